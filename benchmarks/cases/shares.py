"""How much of an RKDL iteration and of an ORKDL evaluation is matrix products, and how fast those are."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks import machine
from benchmarks.cases.common import thousands
from benchmarks.data import SEED, mnist
from benchmarks.environment import THREADS
from benchmarks.rows import Figure
from benchmarks.settings import Settings
from benchmarks.tasks import GAMMA

RKDL_SHARE, ORKDL_SHARE = 1.0 / 2.0, 2.0 / 3.0

Bounds = list[tuple[int, int]]


class Call(NamedTuple):
    """One call of a watched method."""

    seconds: float
    owner: Any
    args: tuple
    result: Any


@contextmanager
def watch(owner: type, name: str) -> Iterator[list[Call]]:
    """Time every call of a method while the context lasts."""
    original = getattr(owner, name)
    calls: list[Call] = []

    def timed(self, *args):
        start = time.perf_counter()
        result = original(self, *args)
        calls.append(Call(time.perf_counter() - start, self, args, result))
        return result

    setattr(owner, name, timed)
    try:
        yield calls
    finally:
        setattr(owner, name, original)


def run(settings: Settings) -> Iterator[Figure]:
    """One iteration of RKDL, then one evaluation (value and gradient) of ORKDL's objective."""
    import rkdl
    from rkdl._descent import Objective
    from rkdl._learning import ReducedProblem

    n_signals, n_vectors, n_atoms, s = (600, 30, 10, 3) if settings.tiny else (60_000, 500, 100, 5)
    signals, _ = mnist(settings.data_dir, settings.tiny)
    X = np.ascontiguousarray(signals[:n_signals])
    picked = np.random.default_rng(SEED).choice(n_signals, n_vectors, replace=False)
    V = X[picked]
    A = np.random.default_rng(SEED).standard_normal((n_atoms, n_vectors)).astype(X.dtype)
    options: dict[str, Any] = {
        "gamma": GAMMA,
        "kernel_vectors": V,
        "n_nonzero_coefs": s,
        "tol": 0,
        "n_jobs": THREADS,
        "random_state": 0,
    }
    sizes = f"N = {thousands(n_signals)}, p = {n_vectors}, n = {n_atoms}, s = {s}"
    rounds = max(2, settings.repeat)

    # The estimators and the products alone take turns; the first call of each is a warm-up.
    times: dict[str, list[float]] = {"iteration": [], "of iteration": [], "evaluation": [], "of evaluation": []}
    recomputes = False
    for _ in range(rounds):
        with watch(ReducedProblem, "iterate") as iterations:
            rkdl.RKDL(n_atoms, max_iter=2, **options).fit(X)
        bounds = iterations[-1].owner.walker.bounds
        times["iteration"] += [call.seconds for call in iterations]
        times["of iteration"].append(_walk(bounds, lambda start, stop: (X[start:stop] @ V.T) @ A.T))

        with watch(Objective, "at") as values, watch(Objective, "gradient") as gradients:
            rkdl.ORKDL(n_atoms, max_iter=1, n_inner_iter=2, **options).fit(X)
        # The first value comes from statistics that the iteration had already.
        walked = [call for call in values if len(call.args) == 1]
        recomputes = getattr(walked[-1].result.kept[0], "slope", None) is None
        times["evaluation"].append(min(call.seconds for call in walked) + min(call.seconds for call in gradients))
        bounds = walked[-1].owner.walker.bounds

        def evaluate(start: int, stop: int, again: bool = recomputes) -> np.ndarray:
            rows = X[start:stop]
            kernel = rows @ V.T
            if again:
                kernel = rows @ V.T
            return kernel.T @ rows

        times["of evaluation"].append(_walk(bounds, evaluate))

    best = {name: min(seconds) for name, seconds in times.items()}
    gflops = machine.limits(settings.tiny)["sgemm_gflops"]
    products = 2.0 * n_signals * n_vectors * X.shape[1]
    work = {
        "iteration": products + 2.0 * n_signals * n_vectors * n_atoms,
        "evaluation": products * (3 if recomputes else 2),
    }
    kept = "kernel values computed twice" if recomputes else "kernel values kept for the gradient"
    for name, bound, title, note in (
        ("iteration", RKDL_SHARE, "RKDL iteration", "K(Y, D) and its product with the atoms"),
        ("evaluation", ORKDL_SHARE, "ORKDL evaluation, value and gradient", kept),
    ):
        alone = best[f"of {name}"]
        reached = work[name] / alone / 1e9
        yield Figure(
            "shares",
            f"matrix products in one {title}, {sizes}",
            alone / best[name],
            "of its time",
            bound=settings.goal(bound),
            sense="at least",
            note=(
                f"{best[name] * 1e3:.4g} ms, products alone {alone * 1e3:.4g} ms at {reached:.0f} GFLOP/s, "
                f"{reached / gflops:.0%} of a large sgemm; {note}"
            ),
            series=[{"what": key, "seconds": seconds} for key in (name, f"of {name}") for seconds in times[key]],
        )


def _walk(bounds: Bounds, work: Callable[[int, int], Any]) -> float:
    """Seconds for the work on every chunk, as the library walks them: two threads, one BLAS thread in each."""
    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(THREADS) as pool:
        start = time.perf_counter()
        for future in [pool.submit(work, *bound) for bound in bounds]:
            future.result()
        return time.perf_counter() - start
