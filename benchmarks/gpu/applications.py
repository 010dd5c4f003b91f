"""The classifier and the outlier detector on MNIST."""

from __future__ import annotations

import copy
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import clone

from benchmarks.data import mnist
from benchmarks.gpu.machine import Machine
from benchmarks.gpu.rows import Row, measured
from rkdl import KDLClassifier, KDLOutlierDetector


def run(machine: Machine, out: Path) -> Iterator[Row]:
    """Fits and predictions of both, and how well they agree with those on the CPU."""
    array, labels = mnist(None, machine.small)
    if machine.small:
        array, labels = array[:400], labels[:400]
    yield from _classifier(machine, array, labels)
    yield from _detector(machine, array)


def _classifier(machine: Machine, array: np.ndarray, labels: np.ndarray) -> Iterator[Row]:
    n_vectors, n_atoms = (30, 8) if machine.small else (300, 64)
    model = KDLClassifier(n_atoms, n_kernel_vectors=n_vectors, random_state=0)
    spent, on_device, cpu_spent, on_cpu = _both_fits(machine, model, array, labels)
    note = (
        f"{len(array):,} x {array.shape[1]}, 10 classes, p = {n_vectors}, n = {n_atoms} per class; "
        f"{cpu_spent:.2g} s on the CPU; "
        f"cross-entropy {on_device.losses_[-1]:.4f}, on the CPU {on_cpu.losses_[-1]:.4f}"
    )
    yield measured("KDLClassifier, fit", spent, "s", note)
    yield _predictions(machine, "KDLClassifier, predict", "decision_function", on_cpu, on_device, array)


def _detector(machine: Machine, array: np.ndarray) -> Iterator[Row]:
    model = KDLOutlierDetector(n_members=2 if machine.small else 5, random_state=0)
    spent, on_device, cpu_spent, on_cpu = _both_fits(machine, model, array)
    note = (
        f"{len(array):,} x {array.shape[1]}, {model.n_members} dictionaries of at most 1,024 signals, float64; "
        f"{cpu_spent:.2g} s on the CPU; offset {on_device.offset_:.5g}, on the CPU {on_cpu.offset_:.5g}"
    )
    yield measured("KDLOutlierDetector, fit", spent, "s", note)
    yield _predictions(machine, "KDLOutlierDetector, predict", "score_samples", on_cpu, on_device, array)


def _both_fits(machine: Machine, model: Any, array: np.ndarray, *labels: Any) -> tuple[float, Any, float, Any]:
    """Seconds and fitted models on the device and on the CPU."""
    signals = torch.from_numpy(array).to(machine.device)
    there = clone(model).set_params(device=str(machine.device))
    spent, on_device = machine.seconds(lambda: clone(there).fit(signals, *labels), 1 if machine.small else 2)
    start = time.perf_counter()
    on_cpu = clone(model).fit(array, *labels)
    return spent, on_device, time.perf_counter() - start, on_cpu


def _predictions(machine: Machine, name: str, method: str, on_cpu: Any, on_device: Any, array: np.ndarray) -> Row:
    """Predictions per second on the device, and the share equal to those on the CPU, from one fit and from two."""
    signals = torch.from_numpy(array).to(machine.device)
    same = copy.deepcopy(on_cpu).set_params(device=str(machine.device))
    spent, scores = machine.seconds(lambda: getattr(same, method)(signals), 1 if machine.small else 3)
    start = time.perf_counter()
    expected = getattr(on_cpu, method)(array)
    cpu_spent = time.perf_counter() - start
    gap = np.abs(scores.cpu().numpy() - expected).max()
    labels = on_cpu.predict(array)
    shares = [(model.predict(signals).cpu().numpy() == labels).mean() for model in (same, on_device)]
    note = (
        f"{len(array) / cpu_spent / 1e6:.2g} M signals/s on the CPU; the model fitted there differs by at most "
        f"{gap:.1e} in {method}, equal labels {shares[0]:.3%}; with the model fitted on the GPU {shares[1]:.2%}"
    )
    return measured(name, len(array) / spent / 1e6, "M signals/s", note)
