"""RKDL and ORKDL against rkdl's own KDL, on MNIST digit 4 and on all of MNIST."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from benchmarks import tasks
from benchmarks.cases.common import compare, thousands
from benchmarks.data import SEED, digit_four, mnist
from benchmarks.memory import MemoryLab
from benchmarks.peers import Peer
from benchmarks.race import Contender, Lap, race
from benchmarks.rows import Row
from benchmarks.settings import Settings

RKDL_TARGET, ORKDL_TARGET = 15.0, 1.0


def run(settings: Settings) -> Iterator[Row]:
    """Digit 4, then all digits."""
    n_atoms, s, n_iter = (5, 2, 2) if settings.tiny else (20, 4, 10)
    counts = (10, 30) if settings.tiny else (50, 500)
    four = digit_four(settings.data_dir, settings.tiny)
    everything, _ = mnist(settings.data_dir, settings.tiny)
    common = {"n": n_atoms, "s": s, "n_iter": n_iter}
    tail = f"{n_atoms} atoms, s = {s}, {n_iter} iterations"

    for name, signals, repeat in (("MNIST digit 4", four, settings.repeat), ("all MNIST", everything, 3)):
        laps = race(
            [_contender("KDL", "kdl", {"X": signals}, common), *_contenders(signals, counts, common)],
            min(settings.repeat, repeat),
            pause=settings.pause,
        )
        what = f"{name}, N = {thousands(len(signals))}, {tail}"
        yield from _rows(what, signals, counts, common, laps, settings, kdl_memory=signals is four)


def _rows(
    what: str,
    signals: np.ndarray,
    counts: tuple[int, ...],
    common: dict,
    laps: dict[str, Lap],
    settings: Settings,
    kdl_memory: bool,
) -> Iterator[Row]:
    kdl = Peer("rkdl", "rkdl's KDL", "itself")
    with MemoryLab(enabled=not settings.tiny) as lab:
        for method, target, check in (("RKDL", RKDL_TARGET, None), ("ORKDL", ORKDL_TARGET, _lower)):
            for count in counts:
                inputs, params = _inputs(method, signals, count)
                # So few signals that so many kernel vectors cost as much as the kernel matrix.
                is_small = count == counts[-1] and kdl_memory
                kdl_peak = partial(lab.peak, "kdl", "rkdl", {"X": signals}, **common)
                row = compare(
                    method.lower(),
                    what,
                    f"{method}, p = {count}, {'' if method == 'RKDL' else 'initial '}kernel vectors: random signals",
                    kdl,
                    laps[f"{method} {count}"],
                    laps["KDL"],
                    check=check or _not_comparable,
                    target=None if is_small else settings.goal(target),
                    peaks=(
                        partial(lab.peak, "reduced", "rkdl", inputs, method=method, **common, **params),
                        # KDL on 60,000 signals takes a minute, and its memory is known.
                        kdl_peak if kdl_memory else _not_measured,
                    ),
                )
                row.ours.library = method
                row.note = _errors(laps[f"{method} {count}"], laps["KDL"])
                yield row


def _not_measured() -> None:
    """Skip a measurement."""


def _inputs(method: str, signals: np.ndarray, count: int) -> tuple[tasks.Inputs, dict]:
    """RKDL is given random signals as kernel vectors; ORKDL draws its own."""
    if method == "RKDL":
        picked = np.random.default_rng(SEED).choice(len(signals), count, replace=False)
        return {"X": signals, "V": signals[picked]}, {}
    return {"X": signals}, {"kernel_vectors": "random", "n_kernel_vectors": count}


def _contenders(signals: np.ndarray, counts: tuple[int, ...], common: dict) -> list[Contender]:
    found = []
    for method in ("RKDL", "ORKDL"):
        for count in counts:
            inputs, params = _inputs(method, signals, count)
            found.append(_contender(f"{method} {count}", "reduced", inputs, {"method": method, **common, **params}))
    return found


def _contender(name: str, task: str, inputs: tasks.Inputs, params: dict) -> Contender:
    call = partial(tasks.TASKS[task], "rkdl", **params)
    return Contender(name, partial(call, inputs), warm=partial(call, tasks.cut(inputs, 600)), judge=float)


def _lower(ours: float | None, theirs: float | None) -> bool | None:
    """Whether ORKDL reaches a lower error than KDL."""
    return None if ours is None or theirs is None else ours < theirs


def _not_comparable(ours: float | None, theirs: float | None) -> None:
    """RKDL with random kernel vectors is a different model: its error is printed, not compared."""


def _errors(ours: Lap, theirs: Lap) -> str:
    if ours.measure is None or theirs.measure is None:
        return ""
    return f"error {ours.measure:.3e}, KDL {theirs.measure:.3e}"
