"""ORKDL on one million signals, from device and from host memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from sklearn.base import clone

from benchmarks.data import enlarged_mnist
from benchmarks.gpu.fits import compared_fit, timed_fit
from benchmarks.gpu.machine import Machine
from benchmarks.gpu.rows import Row, measured
from rkdl import ORKDL


def run(machine: Machine, out: Path) -> Iterator[Row]:
    """A fit on a tensor on the device, the same fit on an array, and the difference from the CPU on fewer signals."""
    count, few = (3_000, 1_000) if machine.small else (1_000_000, 60_000)
    n_atoms, n_vectors = (16, 24) if machine.small else (256, 1000)
    options = {"n_nonzero_coefs": 6, "n_inner_iter": 3, "max_iter": 10, "tol": 0.0, "gamma": 0.1, "random_state": 0}
    model = ORKDL(n_atoms, n_kernel_vectors=n_vectors, **options)
    array = enlarged_mnist(count, None, machine.small)
    signals = torch.from_numpy(array).to(machine.device)
    what = f"{count:,} x {array.shape[1]}, p = {n_vectors}, n = {n_atoms}, s = 6, ten iterations of three L-BFGS steps"
    first = timed_fit(machine, out, "ORKDL, one million signals", model, signals, 6.0, 2, what)
    yield first
    del signals
    streaming = clone(model).set_params(device=str(machine.device))
    spent, streamed = machine.seconds(lambda: clone(streaming).fit(array), 2)
    ratio = spent / first.figures["value"]
    note = f"{ratio:.2f} times the time above; error {streamed.errors_[-1]:.4e}"
    yield measured("the same from host memory", spent, "s", note, "<= 1.5 x", ratio <= 1.5)
    yield compared_fit("one million signals", machine, model, array[:few])
