"""Times without compilation, peak memory, and one scale of error for all methods."""

from __future__ import annotations

import statistics
import tracemalloc
from collections.abc import Callable
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
from numba.core import event
from scipy.linalg import eigh

from paper.published import rbf

Result = TypeVar("Result")

# A short run is repeated, so that one interruption by the system does not decide its time.
MOST_REPEATS, ENOUGH_SECONDS = 3, 0.1


class _Counter(event.Listener):
    """Counts how often Numba compiled a function or loaded one from its cache: both hold the compiler's lock."""

    def __init__(self) -> None:
        self.count = 0

    def on_start(self, event: Any) -> None:
        self.count += 1

    def on_end(self, event: Any) -> None:
        pass


def timed(run: Callable[[], Result]) -> tuple[Result, float]:
    """Result and median time in seconds; a run during which anything was compiled or loaded does not count."""
    seconds: list[float] = []
    before = 0
    while True:
        counter = _Counter()
        with event.install_listener("numba:compiler_lock", counter):
            begin = perf_counter()
            result = run()
            duration = perf_counter() - begin
        # Calls with omitted arguments take the lock each time, and a second run has nothing left to compile.
        if counter.count in (0, before):
            seconds.append(duration)
        before = counter.count
        if len(seconds) >= MOST_REPEATS or sum(seconds) >= ENOUGH_SECONDS:
            return result, statistics.median(seconds)


def peak_bytes(run: Callable[[], object]) -> int:
    """Peak of the memory that a function allocates through NumPy and Python."""
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


class BestAtoms:
    """The error that codes Z leave with the best atoms for them: ``tr K - tr((Z'Z)^+ Z'KZ)``, squared.

    These atoms are combinations of all signals in the feature space of the kernel ``exp(-gamma |x - y|^2)``, so methods
    that measure their errors in other spaces can be compared too.
    """

    def __init__(self, signals: np.ndarray, gamma: float) -> None:
        signals = signals.astype(np.float64)
        self._kernel = rbf(signals, signals, gamma)
        self._size = signals.size

    def error(self, codes: np.ndarray) -> float:
        """``sqrt(f / (m N))``; NaN if the codes are not finite."""
        codes = np.asarray(codes, dtype=np.float64)
        if not np.isfinite(codes).all():
            return np.nan
        values, vectors = eigh(codes.T @ codes)
        # Atoms that are not used, or only in a fixed proportion to others, add nothing.
        used = values > len(values) * np.finfo(np.float64).eps * max(values[-1], 0.0)
        mixed = codes @ vectors[:, used]
        represented = np.sum(np.einsum("ij,ij->j", mixed, self._kernel @ mixed) / values[used])
        return float(np.sqrt(max(len(codes) - represented, 0.0) / self._size))
