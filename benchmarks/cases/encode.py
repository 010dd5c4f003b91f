"""Sparse coding: OLS against SPAMS in float32; OMP against scikit-learn in float32 and dictlearn in float64.

Cases on random signals, with many non-zeros or few atoms, have SPAMS alone for a peer.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from benchmarks import machine, tasks
from benchmarks.cases.common import compare, thousands
from benchmarks.data import encode_inputs, random_inputs
from benchmarks.environment import THREADS
from benchmarks.memory import MemoryLab
from benchmarks.race import Contender, race
from benchmarks.rows import Comparison, same
from benchmarks.settings import Settings


class Size(NamedTuple):
    """Signals, atoms and sparsity of a case, the target ratio to SPAMS's time, and the length of random signals."""

    source: str
    n_signals: int
    n_atoms: int
    s: int
    spams_target: float | None
    n_features: int = 0
    peers: tuple[str, ...] = ("spams", "sklearn", "dictlearn")


SPAMS = ("spams",)
SIZES = {
    "encode-a": Size("mnist", 10_000, 50, 5, 1.5),
    "encode-b": Size("mnist", 10_000, 256, 10, 2.0),
    "encode-c": Size("patches", 200_000, 256, 6, 2.0),
    "encode-d": Size("patches", 100_000, 1024, 8, 2.0),
    # The first two with noise on every pixel, because rkdl skips zeros; no targets.
    "encode-a-dense": Size("noisy", 10_000, 50, 5, None),
    "encode-b-dense": Size("noisy", 10_000, 256, 10, None),
    # From the sizes of the paper to many non-zeros.
    "encode-s4-mnist": Size("noisy", 6_000, 20, 4, 1.5, peers=SPAMS),
    "encode-s4": Size("random", 5_000, 24, 4, 1.5, 1024, SPAMS),
    "encode-s16": Size("random", 5_000, 1024, 16, 1.5, 256, SPAMS),
    "encode-s32": Size("random", 5_000, 1024, 32, 1.5, 256, SPAMS),
    "encode-s64": Size("random", 2_000, 2048, 64, 1.5, 512, SPAMS),
    "encode-s128": Size("random", 1_000, 2048, 128, 1.5, 512, SPAMS),
}
TINY = {
    "encode-a": Size("mnist", 400, 10, 3, 1.5),
    "encode-b": Size("mnist", 400, 32, 5, 2.0),
    "encode-c": Size("patches", 600, 32, 4, 2.0),
    "encode-d": Size("patches", 500, 64, 5, 2.0),
    "encode-a-dense": Size("noisy", 400, 10, 3, None),
    "encode-b-dense": Size("noisy", 400, 32, 5, None),
    "encode-s4-mnist": Size("noisy", 400, 10, 4, 1.5, peers=SPAMS),
    "encode-s4": Size("random", 400, 12, 4, 1.5, 80, SPAMS),
    "encode-s16": Size("random", 100, 96, 16, 1.5, 64, SPAMS),
    "encode-s32": Size("random", 100, 96, 32, 1.5, 64, SPAMS),
    "encode-s64": Size("random", 50, 192, 64, 1.5, 128, SPAMS),
    "encode-s128": Size("random", 50, 256, 128, 1.5, 256, SPAMS),
}
SKLEARN_TARGET, DICTLEARN_TARGET = 60.0, 3.0

# scikit-learn is timed on at most this many rows and its time scaled.
SKLEARN_ROWS, SKLEARN_ROWS_TINY = 10_000, 40


def run(case: str, settings: Settings) -> Iterator[Comparison]:
    """Compare rkdl with every peer on one size."""
    size = (TINY if settings.tiny else SIZES)[case]
    if size.source == "random":
        X, D = random_inputs(size.n_signals, size.n_features, size.n_atoms, size.s)
    else:
        X, D = encode_inputs(size.source, size.n_signals, size.n_atoms, settings.data_dir, settings.tiny)
    single = {"X": X, "D": D}
    double = {name: array.astype(np.float64) for name, array in single.items()}
    n_part = SKLEARN_ROWS_TINY if settings.tiny else SKLEARN_ROWS
    part = tasks.cut(single, n_part)
    peers = {key: settings.peer(key) for key in size.peers}
    s = size.s

    def contender(name, library, inputs, n_rows=None, scale=1.0, **params):
        return Contender(
            name,
            partial(tasks.encode, library, inputs, s=s, **params),
            # The small run also starts any pool of processes or threads.
            warm=partial(tasks.encode, library, tasks.cut(inputs, 256), s=s, **params),
            judge=partial(tasks.mean_residual, inputs, n_rows=n_rows),
            scale=scale,
        )

    contenders = [
        Contender("product float32", partial(tasks.product, "numpy", single)),
        contender("ols", "rkdl", single, pursuit="ols", sparse_output=True),
    ]
    if peers["spams"].available:
        contenders.append(contender("spams", "spams", single))
    if size.peers != SPAMS:
        contenders += [
            Contender("product float64", partial(tasks.product, "numpy", double)),
            contender("omp", "rkdl", single, n_rows=n_part, pursuit="omp"),
            contender("omp float64", "rkdl", double, pursuit="omp"),
        ]
    if "sklearn" in peers and peers["sklearn"].available:
        # scikit-learn's process pool takes seconds to start: tiny runs do without.
        n_jobs = 1 if settings.tiny else THREADS
        contenders.append(contender("sklearn", "sklearn", part, scale=len(X) / n_part, n_jobs=n_jobs))
    if "dictlearn" in peers and peers["dictlearn"].available:
        contenders.append(contender("dictlearn", "dictlearn", double))
    laps = race(contenders, settings.repeat, pause=settings.pause)

    source = {"mnist": "MNIST", "noisy": "MNIST with noise", "patches": "patches", "random": "random signals"}[
        size.source
    ]
    has_targets = size.spams_target is not None
    scaled = ", scaled" if n_part < len(X) else ""
    what = f"{source} {thousands(len(X))} x {X.shape[1]}, {len(D)} atoms, s = {s}"
    with MemoryLab(enabled=not settings.tiny) as lab:

        def row(key, ours, inputs, target, params, peer_inputs=None, peer_params=None, note=""):
            dtype = str(inputs["X"].dtype)
            peaks = (
                partial(lab.peak, "encode", "rkdl", inputs, s=s, **params),
                partial(lab.peak, "encode", key, peer_inputs or inputs, s=s, **(peer_params or {})),
            )
            limits = {"arithmetic_s": arithmetic_seconds(size, X, dtype, settings.tiny)}
            if (best := laps[f"product {dtype}"].best) is not None:
                limits["product_s"] = best
            return compare(
                case,
                what,
                params["pursuit"].upper(),
                peers[key],
                laps[ours],
                laps.get(key),
                check=same,
                dtype=dtype,
                target=settings.goal(target),
                limits=limits,
                note=note,
                peaks=peaks,
            )

        yield row(
            "spams",
            "ols",
            single,
            size.spams_target,
            {"pursuit": "ols", "sparse_output": True},
            note="both return sparse codes",
        )
        if size.peers == SPAMS:
            return
        yield row(
            "sklearn",
            "omp",
            single,
            SKLEARN_TARGET if has_targets else None,
            {"pursuit": "omp"},
            peer_inputs=part,
            peer_params={"n_jobs": 1},
            note=f"scikit-learn on {thousands(n_part)} rows: time of two processes{scaled}; memory of one",
        )
        yield row("dictlearn", "omp float64", double, DICTLEARN_TARGET if has_targets else None, {"pursuit": "omp"})


def arithmetic_seconds(size: Size, signals: np.ndarray, dtype: str, tiny: bool) -> float:
    """Lower bound on the time: operations of the product and the pursuit, at the rate of a large matrix product.

    Zeros of the signals are not counted. For all atoms, step k of a pursuit updates one row of the factor with k - 1
    earlier rows (2 operations each), the norms, the correlations and the scores (2 each); the last step has no updates.
    """
    steps = sum(2 * (k - 1) + 6 for k in range(1, size.s))
    operations = size.n_atoms * (2 * np.count_nonzero(signals) + len(signals) * (1 + steps))
    key = "sgemm_gflops" if dtype == "float32" else "dgemm_gflops"
    return operations / machine.limits(tiny)[key] / 1e9
