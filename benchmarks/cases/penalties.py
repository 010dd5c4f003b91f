"""Codes with an L1 penalty or without negative coefficients: rkdl against SPAMS in float32, both with sparse codes.

The penalty is one that leaves about `s` non-zeros of either sign, and is the same for non-negative codes, of which
random signals then need many. The measure is the mean objective in float64.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from benchmarks import tasks
from benchmarks.cases.common import compare, thousands
from benchmarks.cases.encode import Size
from benchmarks.data import encode_inputs, random_inputs
from benchmarks.race import Contender, race
from benchmarks.rows import Comparison, same
from benchmarks.settings import Settings

TARGET = 3.0
SIZES = {
    "lasso-64": Size("patches", 50_000, 256, 5, TARGET),
    "lasso-256": Size("random", 10_000, 1024, 5, TARGET, 256),
    "lasso-784": Size("noisy", 10_000, 200, 10, TARGET),
    "lasso-512": Size("random", 2_000, 2048, 30, TARGET, 512),
}
TINY = {
    "lasso-64": Size("patches", 600, 32, 4, TARGET),
    "lasso-256": Size("random", 200, 64, 4, TARGET, 32),
    "lasso-784": Size("noisy", 400, 20, 4, TARGET),
    "lasso-512": Size("random", 100, 96, 6, TARGET, 64),
}
# Non-negative OLS takes at most this many times as long as OLS.
MOST_TIMES = 2.0


def run(case: str, settings: Settings) -> Iterator[Comparison]:
    """Compare the lasso, the non-negative one, and non-negative OLS with OLS, on one size."""
    size = (TINY if settings.tiny else SIZES)[case]
    if size.source == "random":
        X, D = random_inputs(size.n_signals, size.n_features, size.n_atoms, size.s)
    else:
        X, D = encode_inputs(size.source, size.n_signals, size.n_atoms, settings.data_dir, settings.tiny)
    inputs, peer = {"X": X, "D": D}, settings.peer("spams")
    alpha = find_alpha(X[:400], D, size.s)

    def contender(name, library, **params):
        judge = partial(tasks.mean_objective, inputs, alpha) if "alpha" in params else None
        warm = partial(tasks.penalised, library, tasks.cut(inputs, 256), **params)
        return Contender(name, partial(tasks.penalised, library, inputs, **params), warm=warm, judge=judge)

    greedy = {"n_nonzero_coefs": size.s}
    contenders = [contender("ols", "rkdl", **greedy), contender("ols+", "rkdl", **greedy, positive=True)]
    for sign in ("", "+"):
        contenders.append(contender(f"lasso{sign}", "rkdl", alpha=alpha, positive=sign == "+"))
        if peer.available:
            contenders.append(contender(f"spams{sign}", "spams", alpha=alpha, positive=sign == "+"))
    laps = race(contenders, settings.repeat, pause=settings.pause)
    source = {"noisy": "MNIST with noise", "patches": "patches", "random": "random signals"}[size.source]
    what = f"{source} {thousands(len(X))} x {X.shape[1]}, {len(D)} atoms, s = {size.s}"
    for sign, setting in (("", "lasso"), ("+", "non-negative lasso")):
        ours, theirs = laps[f"lasso{sign}"], laps.get(f"spams{sign}")
        target = settings.goal(TARGET)
        yield compare(case, what, setting, peer, ours, theirs, check=same, dtype="float32", target=target)
    yield Comparison(
        case,
        what,
        "non-negative OLS",
        laps["ols+"].side("rkdl"),
        laps["ols"].side("rkdl's OLS"),
        dtype="float32",
        target=settings.goal(1.0 / MOST_TIMES),
        note="codes differ: those of OLS have both signs",
    )


def find_alpha(X: np.ndarray, D: np.ndarray, s: int) -> float:
    """The penalty that leaves `s` non-zeros on average, to a few percent."""
    low, high = 1e-4, float(np.abs(X @ D.T).max())
    for _ in range(20):
        alpha = (low * high) ** 0.5
        many = tasks.penalised("rkdl", {"X": X, "D": D}, alpha=alpha).nnz > s * len(X)
        low, high = (alpha, high) if many else (low, alpha)
    return high
