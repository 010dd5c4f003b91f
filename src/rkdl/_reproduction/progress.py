"""Progress bar on stderr with the current run and the remaining time."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import Any, NamedTuple

from tqdm import tqdm

from rkdl._utils.text import shown

# Work of a method relative to a pass over the data: an estimate until a round has been timed.
_WORK = {"DL": 1.0, "RKDL-D": 2.0, "ORKDL-D": 8.0, "MORKDL-D": 9.0, "Nystrom": 1.0, "Fourier": 2.0}
_PUBLISHED_WORK = {"published": 6.0, "restricted": 6.0, "literal": 200.0}


class Unit(NamedTuple):
    """One method in one round; `work` is proportional to its estimated time."""

    dataset: str
    preset: str
    method: str
    number: int
    work: float


def guess_work(preset: str, method: str, n_signals: int, n_features: int, n_iterations: int) -> float:
    """Estimate a method's time, in arbitrary units."""
    passes = n_signals / 100 if method == "KDL" else _WORK[method]
    if preset in _PUBLISHED_WORK:
        passes *= _PUBLISHED_WORK[preset]
    return passes * n_signals * n_features * n_iterations


class Progress:
    """A progress bar over all units.

    Parameters
    ----------
    units : iterable of Unit
        The units to run, in order.
    n_rounds : int
        Rounds per method.
    quiet : bool
        Whether to show no bar.
    """

    def __init__(self, units: Iterable[Unit], n_rounds: int, quiet: bool) -> None:
        self._left = list(units)
        self.n_done = 0
        self._n_rounds = n_rounds
        self._seconds: dict[tuple[str, str, str], list[float]] = {}
        self._timed_work = self._timed_seconds = 0.0
        self._is_terminal = sys.stderr is not None and sys.stderr.isatty()
        self._bar: Any = tqdm(
            desc="preparing ",
            total=len(self._left),
            bar_format="{desc}|{bar}| {n_fmt}/{total_fmt}{postfix}",
            disable=quiet or not self._left or sys.stderr is None,
            dynamic_ncols=True,
            file=sys.stderr,
            leave=False,
            # In a log file every refresh is a new line.
            mininterval=0.1 if self._is_terminal else 10.0,
        )

    def begin(self, unit: Unit) -> None:
        """Show the current unit."""
        left = self._time_left()
        name = shown(os.path.basename(unit.dataset))
        text = f"{name}, {unit.preset} {unit.method}, round {unit.number + 1}/{self._n_rounds} "
        self._bar.set_description_str(text, refresh=False)
        self._bar.set_postfix_str("" if left is None else f"about {_spoken(left)} left", refresh=self._is_terminal)

    def finish(self, unit: Unit, seconds: float) -> None:
        """Mark a unit as done, with its duration."""
        self._left.remove(unit)
        self.n_done += 1
        self._seconds.setdefault(unit[:3], []).append(seconds)
        self._timed_work += unit.work
        self._timed_seconds += seconds
        self._bar.update()

    def close(self) -> None:
        """Remove the bar."""
        self._bar.close()

    def _time_left(self) -> float | None:
        if not self._timed_work:
            return None
        total = 0.0
        for unit in self._left:
            known = self._seconds.get(unit[:3])
            guess = unit.work * self._timed_seconds / self._timed_work
            total += sum(known) / len(known) if known else guess
        return total


def _spoken(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if seconds < 5400:
        return f"{round(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h"
