"""Times without compilation, and peak memory."""

from __future__ import annotations

import statistics
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any, TypeVar

from numba.core import event

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


@contextmanager
def counting_compilations() -> Iterator[_Counter]:
    """Count the compilations and cache loads of the block."""
    counter = _Counter()
    with event.install_listener("numba:compiler_lock", counter):
        yield counter


def timed(run: Callable[[], Result], repeats: bool = True) -> tuple[Result, float]:
    """Result and median time in seconds of a function that always does the same.

    A run during which anything was compiled or loaded does not count. Short runs are repeated.

    Parameters
    ----------
    run : callable
        The function.
    repeats : bool
        Whether the time is of interest; otherwise it is run once.
    """
    seconds: list[float] = []
    before = 0
    while True:
        with counting_compilations() as compilations:
            begin = perf_counter()
            result = run()
            duration = perf_counter() - begin
        if not repeats:
            return result, duration
        # Calls with omitted arguments take the lock each time, and a second run has nothing left to compile.
        if compilations.count in (0, before):
            seconds.append(duration)
        before = compilations.count
        if len(seconds) >= MOST_REPEATS or sum(seconds) >= ENOUGH_SECONDS:
            return result, statistics.median(seconds)


def peak_bytes(run: Callable[[], object]) -> int:
    """Peak of the memory that a function allocates through NumPy and Python, in bytes."""
    if tracemalloc.is_tracing():  # somebody else's measurement
        return 0
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
