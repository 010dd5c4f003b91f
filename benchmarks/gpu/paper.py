"""The paper's problem: ORKDL on MNIST's digit 4."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks.data import digit_four
from benchmarks.gpu.fits import compared_fit, timed_fit
from benchmarks.gpu.machine import Machine
from benchmarks.gpu.rows import Row
from rkdl import ORKDL


def run(machine: Machine, out: Path) -> Iterator[Row]:
    """Time of a fit, choice of kernel vectors included, and the difference from the CPU."""
    array = digit_four(None, machine.small)
    n_vectors = 20 if machine.small else 50
    options = {"n_nonzero_coefs": 4, "max_iter": 10, "tol": 0.0, "gamma": 0.1, "random_state": 0}
    model = ORKDL(20, n_kernel_vectors=n_vectors, **options)
    signals = torch.from_numpy(array).to(machine.device)
    what = f"{len(array):,} x {array.shape[1]}, p = {n_vectors}, n = 20, s = 4, ten iterations"
    what += ", choice of kernel vectors included"
    repeats = 3 if machine.small else 10
    yield timed_fit(machine, out, "ORKDL, the paper's problem", model, signals, 0.15, repeats, what)
    yield compared_fit("the paper's problem", machine, model, array)
