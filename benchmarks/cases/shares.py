"""Share of matrix products in an RKDL iteration and an ORKDL evaluation, and their speed."""

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


class Timed(NamedTuple):
    """Duration of a call, and the chunks it ran over."""

    seconds: float
    bounds: Bounds


@contextmanager
def watch(owner: type, name: str, work: Callable[..., Any] | None = None) -> Iterator[list[Timed]]:
    """Time every call of a method within the context, or `work` on the same arguments right before it."""
    original = getattr(owner, name)
    timings: list[Timed] = []

    def timed(self, *args):
        start = time.perf_counter()
        result = (work or original)(self, *args)
        timings.append(Timed(time.perf_counter() - start, self.executor.bounds))
        return result if work is None else original(self, *args)

    setattr(owner, name, timed)
    try:
        yield timings
    finally:
        setattr(owner, name, original)


def run(settings: Settings) -> Iterator[Figure]:
    """One iteration of RKDL, then one evaluation (value and gradient) of ORKDL's objective."""
    import rkdl
    from rkdl._backends.cpu.products import combine, multiply
    from rkdl._learning.kernel_vector_updates import Objective
    from rkdl._learning.reduced import ReducedProblem

    n_signals, n_vectors, n_atoms, s = (600, 30, 10, 3) if settings.tiny else (60_000, 500, 100, 5)
    signals, _ = mnist(settings.data_dir, settings.tiny)
    X = np.ascontiguousarray(signals[:n_signals])
    picked = np.random.default_rng(SEED).choice(n_signals, n_vectors, replace=False)
    V = X[picked]
    A = np.random.default_rng(SEED).standard_normal((n_atoms, n_vectors)).astype(X.dtype)
    options: dict[str, Any] = {
        "gamma": GAMMA,
        "kernel_vectors": V,
        # Given atoms let ORKDL update its kernel vectors from the first iteration.
        "init": A,
        "n_nonzero_coefs": s,
        "tol": 0,
        "n_jobs": THREADS,
        "random_state": 0,
    }
    sizes = f"N = {thousands(n_signals)}, p = {n_vectors}, n = {n_atoms}, s = {s}"
    rounds = max(2, settings.repeat)

    gradient = Objective.gradient

    def evaluate(objective: Objective, point: Any) -> np.ndarray:
        """Value and gradient at the point's kernel vectors, with nothing cached."""
        return gradient(objective, objective.at(point.vectors, None, point.atoms))

    # Interleave the estimators with the bare products.
    times: dict[str, list[float]] = {"iteration": [], "of iteration": [], "evaluation": [], "of evaluation": []}
    for _ in range(rounds):
        with watch(ReducedProblem, "update") as updates, watch(ReducedProblem, "encode") as codings:
            rkdl.RKDL(n_atoms, max_iter=2, **options).fit(X)
        # The first coding belongs to initialisation.
        pairs = zip(updates, codings[1:], strict=True)
        times["iteration"] += [update.seconds + coding.seconds for update, coding in pairs]
        times["of iteration"].append(
            _time_chunks(codings[-1].bounds, lambda start, stop: multiply(multiply(X[start:stop], V), A)),
        )
        with watch(Objective, "gradient", evaluate) as evaluations:
            rkdl.ORKDL(n_atoms, max_iter=1, n_inner_iter=1, **options).fit(X)
        times["evaluation"] += [timing.seconds for timing in evaluations]
        times["of evaluation"].append(
            _time_chunks(
                evaluations[-1].bounds, lambda start, stop: combine(multiply(X[start:stop], V), X[start:stop])
            ),
        )
        limits = machine.measure_limits(settings.tiny)

    best = {name: min(seconds) for name, seconds in times.items()}
    gflops = limits["sgemm_gflops"]
    products = 2.0 * np.count_nonzero(X) * n_vectors
    work = {
        "iteration": products + 2.0 * n_signals * n_vectors * n_atoms,
        "evaluation": 2.0 * products,
    }
    for name, bound, title, note in (
        ("iteration", RKDL_SHARE, "RKDL iteration", "K(Y, D) and its product with the atoms"),
        ("evaluation", ORKDL_SHARE, "ORKDL evaluation, value and gradient", "K(Y, D) and its weighted sum of signals"),
    ):
        alone = best[f"of {name}"]
        reached = work[name] / alone / 1e9
        yield Figure(
            "shares",
            f"share of matrix products in one {title}, {sizes}",
            alone / best[name],
            "of the time",
            bound=settings.goal(bound),
            sense="at least",
            note=(
                f"{best[name] * 1e3:.4g} ms, products alone {alone * 1e3:.4g} ms at {reached:.0f} GFLOP/s not "
                f"counting the signals' zeros, {reached / gflops:.0%} of a large sgemm; {note}"
            ),
            series=[{"what": key, "seconds": seconds} for key in (name, f"of {name}") for seconds in times[key]],
        )


def _time_chunks(bounds: Bounds, work: Callable[[int, int], Any]) -> float:
    """Time the work over all chunks as the library runs it: two threads, one BLAS thread each."""

    def discard(start: int, stop: int) -> None:
        # The library frees each product at once; holding them all would cost extra memory traffic.
        work(start, stop)

    with threadpool_limits(1, user_api="blas"), ThreadPoolExecutor(THREADS) as pool:
        start = time.perf_counter()
        for future in [pool.submit(discard, *bound) for bound in bounds]:
            future.result()
        return time.perf_counter() - start
