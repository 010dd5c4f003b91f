"""Timing: contenders run interleaved on the same inputs; the best time of each counts."""

from __future__ import annotations

import gc
import statistics
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.rows import Side

# OpenBLAS and OpenMP threads spin for some milliseconds after their work: wait before the next contender.
PAUSE = 0.05

# A contender whose first run takes longer than this (in seconds) runs only once.
SLOW = 10.0


@dataclass
class Contender:
    """Something to time.

    Attributes
    ----------
    name : str
        Unique in its race.
    run : callable
        What is timed.
    warm : callable or None
        A smaller run that loads and compiles what `run` needs; None for `run` itself.
    judge : callable or None
        Turns a result into its residual or error; not timed.
    scale : float
        Factor applied to the seconds of a contender that runs on a part of the rows.
    """

    name: str
    run: Callable[[], Any]
    warm: Callable[[], Any] | None = None
    judge: Callable[[Any], float] | None = None
    scale: float = 1.0


@dataclass
class Lap:
    """Timings of a contender, whether it is too slow to repeat, its measure, and its error if it failed."""

    seconds: list[float] = field(default_factory=list)
    measure: float | None = None
    error: str = ""
    is_slow: bool = False

    @property
    def best(self) -> float | None:
        """The shortest time."""
        return min(self.seconds, default=None)

    def side(self, library: str, memory_mb: float | None = None) -> Side:
        """As one side of a comparison."""
        return Side(library, list(self.seconds), self.measure, memory_mb)


def race(contenders: Sequence[Contender], repeat: int, *, pause: float = PAUSE) -> dict[str, Lap]:
    """Time the contenders interleaved, A B A B, `repeat` times each.

    A contender that raises is dropped and the others go on.
    """
    laps = {contender.name: Lap() for contender in contenders}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for contender in contenders:
            _guard(laps[contender.name], contender.warm or contender.run)
        for _ in range(repeat):
            for contender in contenders:
                lap = laps[contender.name]
                if lap.error or lap.is_slow:
                    continue
                gc.collect()
                time.sleep(pause)
                start = time.perf_counter()
                result = _guard(lap, contender.run)
                seconds = time.perf_counter() - start
                if lap.error:
                    continue
                lap.is_slow = seconds > SLOW
                lap.seconds.append(seconds * contender.scale)
                if contender.judge is not None and lap.measure is None:
                    judge = contender.judge
                    lap.measure = _guard(lap, lambda judge=judge, result=result: float(judge(result)))
                del result
    return laps


def race_small(
    contenders: Sequence[Contender],
    rounds: int,
    calls: int,
    average: Callable[[Iterable[float]], float] = statistics.median,
) -> dict[str, Lap]:
    """Time short calls: one timing is the median, or another average, of `calls` calls."""
    laps = {contender.name: Lap() for contender in contenders}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(rounds):
            for contender in contenders:
                lap = laps[contender.name]
                result = None if lap.error else _guard(lap, contender.run)
                if lap.error:
                    continue
                if contender.judge is not None:
                    lap.measure = float(contender.judge(result))
                time.sleep(PAUSE)
                lap.seconds.append(average(_seconds(contender.run) for _ in range(calls)))
    return laps


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _guard(lap: Lap, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        lap.error = "".join(traceback.format_exception_only(error)).strip()
        return None
