"""Full kernel dictionary learning against dictlearn's, from the same random atoms."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from benchmarks import tasks
from benchmarks.cases.common import compare, exponent, thousands
from benchmarks.data import SEED, digit_four
from benchmarks.memory import MemoryLab
from benchmarks.race import Contender, race
from benchmarks.rows import Figure, Row, no_worse
from benchmarks.settings import Settings

TARGET = 40.0
MEMORY_BOUND = 1.3
LITERAL = {"pursuit": "omp", "atom_update": "aksvd", "init": "A"}


def run(settings: Settings) -> Iterator[Row]:
    """Three numbers of signals, then the growth of time and memory."""
    n_atoms, s, n_iter = (5, 2, 2) if settings.tiny else (20, 4, 10)
    signals = digit_four(settings.data_dir, settings.tiny)
    signals = signals[np.random.default_rng(SEED).permutation(len(signals))].astype(np.float64)
    sizes = [60, 120, len(signals)] if settings.tiny else [2_000, 4_000, len(signals)]
    peer = settings.peer("dictlearn")
    settled = []
    with MemoryLab(enabled=not settings.tiny) as lab:
        for size in sizes:
            inputs = {"X": np.ascontiguousarray(signals[:size]), "A": tasks.peer_start(size, n_atoms)}
            call = partial(tasks.kdl, n=n_atoms, s=s, n_iter=n_iter)
            small = tasks.cut(inputs, 50)

            def contender(name, library, call=call, inputs=inputs, small=small, **params):
                run_all = partial(call, library, inputs, **params)
                return Contender(name, run_all, warm=partial(call, library, small, **params), judge=float)

            contenders = [contender("default", "rkdl"), contender("literal", "rkdl", **LITERAL)]
            if peer.available:
                contenders.append(contender("dictlearn", "dictlearn"))
            laps = race(contenders, settings.repeat, pause=settings.pause)
            if laps["default"].best is not None:
                settled.append((size, laps["default"].best))
            goal = settings.goal(TARGET) if size == sizes[-1] else None
            what = f"MNIST digit 4, N = {thousands(size)}, {n_atoms} atoms, s = {s}, {n_iter} iterations"
            peak = partial(lab.peak, "kdl", inputs=inputs, n=n_atoms, s=s, n_iter=n_iter)
            for name, label, params in (
                ("literal", "OMP and AK-SVD in both", LITERAL),
                ("default", "default settings", {}),
            ):
                yield compare(
                    "kdl",
                    what,
                    label,
                    peer,
                    laps[name],
                    laps.get("dictlearn"),
                    check=no_worse,
                    dtype="float64",
                    target=goal,
                    peaks=(partial(peak, library="rkdl", **params), partial(peak, library="dictlearn")),
                )
    if len(settled) > 1:
        yield Figure(
            "kdl",
            "exponent of N in KDL's time",
            exponent([size for size, _ in settled], [seconds for _, seconds in settled]),
            bound=settings.goal(2.0),
            series=[{"n_signals": size, "seconds": seconds} for size, seconds in settled],
        )
    yield from _memory(signals, n_atoms, s, n_iter, settings)


def _memory(signals: np.ndarray, n_atoms: int, s: int, n_iter: int, settings: Settings) -> Iterator[Figure]:
    """Peak memory above the loaded signals, in kernel matrices."""
    with MemoryLab() as lab:
        for dtype in ("float32",) if settings.tiny else ("float32", "float64"):
            inputs = {"X": signals.astype(dtype)}
            peak = lab.peak("kdl", "rkdl", inputs, n=n_atoms, s=s, n_iter=n_iter)
            matrix = len(signals) ** 2 * inputs["X"].itemsize / 1e6
            figure = Figure(
                "kdl",
                f"KDL's peak memory, N = {thousands(len(signals))}, {dtype}",
                None if peak is None else peak / matrix,
                "kernel matrices",
                bound=settings.goal(MEMORY_BOUND),
                note=f"the kernel matrix takes {matrix:.0f} MB; loaded signals not counted",
            )
            if peak is None:
                figure.status, figure.reason = "failed", "; ".join(lab.problems)
            yield figure
