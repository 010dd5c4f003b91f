"""Linear dictionary learning: SPAMS's trainDL in sparsity mode, and dictlearn's AK-SVD, from the same dictionary."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from benchmarks import tasks
from benchmarks.cases.common import compare, thousands
from benchmarks.data import MissingDataError, digit_four, encode_inputs, pick_dictionary
from benchmarks.memory import MemoryLab
from benchmarks.race import Contender, race
from benchmarks.rows import SKIPPED, Comparison, Side, no_worse
from benchmarks.settings import Settings

SPAMS_TARGET, DICTLEARN_TARGET = 1.5, 10.0
AKSVD = {"pursuit": "omp", "atom_update": "aksvd"}


def run(settings: Settings) -> Iterator[Comparison]:
    """MNIST digit 4, then patches."""
    for source in ("mnist", "patches"):
        try:
            yield from _one(source, settings)
        except MissingDataError as error:
            yield Comparison("dl", source, "", Side("rkdl"), Side("all peers"), status=SKIPPED, reason=str(error))


def _one(source: str, settings: Settings) -> Iterator[Comparison]:
    if source == "mnist":
        n_atoms, s = (8, 3) if settings.tiny else (50, 5)
        X = digit_four(settings.data_dir, settings.tiny)
        D = pick_dictionary(X, n_atoms)
        name = "MNIST digit 4"
    else:
        n_atoms, s = (16, 3) if settings.tiny else (256, 6)
        X, D = encode_inputs("patches", 400 if settings.tiny else 100_000, n_atoms, settings.data_dir, settings.tiny)
        name = "patches"
    n_iter = 2 if settings.tiny else 10
    extra = 0 if source == "mnist" else 2
    single = {"X": X, "D": D}
    double = {key: array.astype(np.float64) for key, array in single.items()}
    spams, dictlearn = settings.peer("spams"), settings.peer("dictlearn")

    def contender(label, library, inputs, **params):
        call = partial(tasks.dl, library, **{"s": s, "n_iter": n_iter, **params})
        return Contender(
            label,
            partial(call, inputs),
            warm=partial(call, tasks.cut(inputs, 4 * n_atoms)),
            judge=partial(tasks.dictionary_error, single, s=s),
        )

    contenders = [
        # SPAMS sweeps its dictionary five times per iteration; with many atoms rkdl gets two more iterations to match.
        contender("rkdl", "rkdl", single, n_iter=n_iter + extra),
        contender("rkdl float64", "rkdl", double),
        contender("rkdl aksvd", "rkdl", double, **AKSVD),
    ]
    if spams.available:
        contenders.append(contender("spams", "spams", single))
    if dictlearn.available:
        contenders.append(contender("dictlearn", "dictlearn", double))
    laps = race(contenders, settings.repeat, pause=settings.pause)

    what = f"{name} {thousands(len(X))} x {X.shape[1]}, {n_atoms} atoms, s = {s}, {n_iter} iterations"
    with MemoryLab(enabled=not settings.tiny) as lab:

        def row(peer, ours, inputs, target, label, note="", **params):
            peak = partial(lab.peak, "dl", inputs=inputs, s=s, n_iter=n_iter)
            return compare(
                "dl",
                what,
                label,
                peer,
                laps[ours],
                laps.get(peer.key),
                check=no_worse,
                dtype=str(inputs["X"].dtype),
                target=settings.goal(target),
                note=note,
                peaks=(partial(peak, library="rkdl", **params), partial(peak, library=peer.key)),
            )

        note = f"trainDL, SPARSITY, batch; rkdl {n_iter + extra} iterations"
        setting = "OLS" if extra == 0 else f"OLS, rkdl {n_iter + extra} iterations"
        yield row(spams, "rkdl", single, SPAMS_TARGET, setting, note=note)
        yield row(dictlearn, "rkdl float64", double, DICTLEARN_TARGET, "default settings", note="dictlearn: AK-SVD")
        yield row(dictlearn, "rkdl aksvd", double, DICTLEARN_TARGET, "OMP and AK-SVD in both", **AKSVD)
