"""KDL on all of MNIST."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks.data import mnist
from benchmarks.gpu.fits import compared_fit, timed_fit
from benchmarks.gpu.machine import Machine
from benchmarks.gpu.rows import Row
from rkdl import KDL


def run(machine: Machine, out: Path) -> Iterator[Row]:
    """Time of a fit, kernel matrix included, and the difference from the CPU."""
    array = mnist(None, machine.small)[0]
    model = KDL(n_components=20, n_nonzero_coefs=4, max_iter=10, tol=0.0, gamma=0.1, random_state=0)
    signals = torch.from_numpy(array).to(machine.device)
    what = f"{len(array):,} x {array.shape[1]}, n = 20, s = 4, ten iterations, kernel matrix included"
    yield timed_fit(machine, out, "KDL, exact", model, signals, 1.5, 3, what)
    yield compared_fit("KDL", machine, model, array)
