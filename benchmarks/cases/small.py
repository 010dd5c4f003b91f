"""One signal against 256 atoms: the overhead of a call."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from benchmarks import tasks
from benchmarks.cases.common import compare
from benchmarks.data import encode_inputs
from benchmarks.race import Contender, race_small
from benchmarks.rows import FAILED, Figure, Row, same
from benchmarks.settings import Settings

BOUND_US = 200.0


def run(settings: Settings) -> Iterator[Row]:
    """Median time of a call, against the peers."""
    n_atoms, s, calls, rounds = (32, 3, 5, 1) if settings.tiny else (256, 6, 200, settings.repeat)
    X, D = encode_inputs("patches", 1, n_atoms, settings.data_dir, settings.tiny)
    single = {"X": X, "D": D}
    double = {name: array.astype(np.float64) for name, array in single.items()}

    def contender(name, library, inputs, **params):
        call = partial(tasks.encode, library, inputs, s=s, n_jobs=None, **params)
        return Contender(name, call, judge=partial(tasks.mean_residual, inputs))

    pairs = {
        "spams": ("ols", contender("ols", "rkdl", single, pursuit="ols"), single),
        "sklearn": ("omp", contender("omp", "rkdl", single, pursuit="omp"), single),
        "dictlearn": ("omp float64", contender("omp float64", "rkdl", double, pursuit="omp"), double),
    }
    peers = {key: settings.peer(key) for key in pairs}
    contenders = [ours for _, ours, _ in pairs.values()]
    contenders += [contender(key, key, pairs[key][2]) for key, peer in peers.items() if peer.available]
    laps = race_small(contenders, rounds, calls)
    what = f"one signal of {X.shape[1]} features, {n_atoms} atoms, s = {s}"
    for key, (name, _, inputs) in pairs.items():
        yield compare(
            "small",
            what,
            name[:3].upper(),
            peers[key],
            laps[name],
            laps.get(key),
            check=same,
            dtype=str(inputs["X"].dtype),
            note=f"best median of {calls} calls",
        )
    lap = laps["ols"]
    figure = Figure(
        "small",
        f"sparse_encode of {what}",
        None if lap.best is None else lap.best * 1e6,
        "microseconds",
        bound=settings.goal(BOUND_US),
        series=[{"seconds": seconds} for seconds in lap.seconds],
    )
    if lap.error:
        figure.status, figure.reason = FAILED, lap.error
    yield figure
