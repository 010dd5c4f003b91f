"""A pass of DL over signals in bfloat16 that are sent from host memory in every pass."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import clone

from benchmarks.gpu.fits import compared_errors
from benchmarks.gpu.machine import Machine
from benchmarks.gpu.rows import Row, measured
from rkdl import DL
from rkdl._data import tensors
from rkdl._learning.reduced import ReducedProblem

# Signals and their length.
SHAPE = (2_621_440, 2304)
# Atoms, non-zeros, and the target in seconds.
SIZES = [(4096, 20, 6.0), (16384, 40, 45.0)]


def run(machine: Machine, out: Path) -> Iterator[Row]:
    """Time of one pass for every size, and the difference between errors on the device and on the CPU."""
    signals = _bfloat16_signals(machine, *((3_000, 64) if machine.small else SHAPE))
    for sizes in [(96, 4, 6.0)] if machine.small else SIZES:
        yield from _one_pass(machine, signals, *sizes)


def _one_pass(machine: Machine, signals: torch.Tensor, n_atoms: int, n_nonzero: int, limit: float) -> Iterator[Row]:
    count, n_features = signals.shape
    start = np.random.default_rng(0).standard_normal((n_atoms, n_features), dtype=np.float32)
    model = DL(n_atoms, n_nonzero_coefs=n_nonzero, init=start, tol=0.0, device=str(machine.device), random_state=0)
    model.set_params(max_iter=1)
    clone(model).fit(signals[: max(n_atoms, count // 50)])
    begun = time.perf_counter()
    with _signals_sent_in_every_pass(), _timed_passes(machine) as spent:
        fitted = clone(model).fit(signals)
    total = time.perf_counter() - begun
    # The update, and the coding with the new atoms.
    seconds = sum(spent[-2:])
    least = _least_seconds(machine, n_features, n_atoms, n_nonzero, count)
    note = (
        f"{count:,} x {n_features} in bfloat16, n = {n_atoms:,}, s = {n_nonzero}; at the hardware's limits "
        + ", ".join(f"{what} would take {value:.2g} s" for what, value in least.items())
        + f": {sum(least.values()) / seconds:.0%} of the time; a fit of one iteration, which codes the signals "
        + f"twice, took {total:.3g} s"
    )
    what = f"DL, one pass, n = {n_atoms}"
    yield measured(what, seconds, "s", note, f"< {limit} s", seconds < limit)
    few = signals[: 200 if machine.small else 2_000]
    errors = []
    for device in (str(machine.device), None):
        given = few if device is not None else few.float().numpy()
        errors.append(float(np.linalg.norm(fitted.set_params(device=device).reconstruction_error(given))))
    yield compared_errors(what, *errors, len(few))


def _bfloat16_signals(machine: Machine, count: int, n_features: int) -> torch.Tensor:
    """Random signals in host memory, drawn on the device."""
    generator = torch.Generator(machine.device).manual_seed(0)
    signals = torch.empty((count, n_features), dtype=torch.bfloat16)
    for start in range(0, count, 1 << 16):
        rows = signals[start : start + (1 << 16)]
        rows.copy_(torch.randn(rows.shape, device=machine.device, generator=generator))
    return signals


@contextmanager
def _signals_sent_in_every_pass() -> Iterator[None]:
    """Send signals in every pass, as if they were too large for the device's memory."""
    share, tensors.CACHE_SHARE = tensors.CACHE_SHARE, 0.0
    try:
        yield
    finally:
        tensors.CACHE_SHARE = share


@contextmanager
def _timed_passes(machine: Machine) -> Iterator[list[float]]:
    """Seconds of every coding and every update of the fits inside, in their order."""
    spent: list[float] = []
    own = ReducedProblem.encode, ReducedProblem.update

    def timed(work: Callable[..., None]) -> Callable[..., None]:
        def call(problem: Any, **how: Any) -> None:
            machine.wait()
            begun = time.perf_counter()
            work(problem, **how)
            machine.wait()
            spent.append(time.perf_counter() - begun)

        return call

    ReducedProblem.encode, ReducedProblem.update = map(timed, own)
    try:
        yield spent
    finally:
        ReducedProblem.encode, ReducedProblem.update = own


def _least_seconds(machine: Machine, n_features: int, n_atoms: int, n_nonzero: int, count: int) -> dict[str, float]:
    """Seconds that the parts of a pass would take at the hardware's limits if nothing overlapped."""
    # The factor's rows, in half precision, of one signal per multiprocessor.
    is_cached = 2 * n_nonzero * n_atoms <= machine.cache_per_core
    factor_bytes = 2 * count * n_atoms * (n_nonzero * (n_nonzero - 1) // 2)
    return {
        "the transfer": 2 * count * n_features / machine.transfer(),
        "three products in half precision": 6 * count * n_features * n_atoms / machine.arithmetic(torch.float16),
        f"the factor's rows from {'the L2 cache' if is_cached else 'memory'}": factor_bytes
        / machine.bandwidth(is_cached),
    }
