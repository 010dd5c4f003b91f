"""Calls with one signal or a few: the coder, the methods, the classifier and the detector, all of them ready."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.svm import SVC

import rkdl
from benchmarks import tasks
from benchmarks.cases.common import compare
from benchmarks.data import encode_inputs
from benchmarks.environment import THREADS
from benchmarks.race import Contender, race_small
from benchmarks.rows import FAILED, Comparison, Figure, Row, same
from benchmarks.settings import Settings

# The peer's time over rkdl's: within 1.2 times SPAMS for one signal, ahead of it for 64; 1.5 times PCA; 4 times SVC.
ONE_SIGNAL, FEW_SIGNALS, TRANSFORM, PREDICT = 1.0 / 1.2, 1.0, 1.0 / 1.5, 1.0 / 4.0


class Size(NamedTuple):
    """Signals of a call to the coder, where they come from, and the target."""

    source: str
    n_signals: int
    target: float


SIZES = [Size("patches", 1, ONE_SIGNAL), Size("noisy", 1, ONE_SIGNAL), Size("noisy", 64, FEW_SIGNALS)]
METHODS = ("DL", "RKDL", "ORKDL", "KDL")


def run(settings: Settings) -> Iterator[Row]:
    """Times of a call, against the peers, alone and with other processes busy."""
    for size in SIZES:
        yield _coder_row(size, settings)
    yield from _model_rows(settings)


def _calls(settings: Settings) -> tuple[int, int]:
    return (1, 5) if settings.tiny else (settings.repeat, 200)


def _coder_row(size: Size, settings: Settings) -> Comparison:
    """`SparseCoder` and the whole call of SPAMS on the same signals."""
    n_atoms, s = (32, 3) if settings.tiny else (256, 6)
    X, D = encode_inputs(size.source, size.n_signals, n_atoms, settings.data_dir, settings.tiny)
    inputs = {"X": X, "D": D}
    coder = rkdl.SparseCoder(D, n_nonzero_coefs=s).fit()
    judge = partial(tasks.mean_residual, inputs)
    contenders = [Contender("rkdl", partial(coder.transform, X), judge=judge)]
    peer = settings.peer("spams")
    if peer.available:
        call = partial(tasks.encode, "spams", inputs, s=s, n_jobs=1 if size.n_signals == 1 else THREADS)
        contenders.append(Contender("spams", call, judge=judge))
    rounds, calls = _calls(settings)
    laps = race_small(contenders, rounds, calls)
    return compare(
        "latency",
        f"{_count(size.n_signals)} of {X.shape[1]} features, {n_atoms} atoms, s = {s}",
        "SparseCoder.transform, OLS",
        peer,
        laps["rkdl"],
        laps.get("spams"),
        check=same,
        target=settings.goal(size.target),
        note=f"best median of {calls} calls",
    )


def _model_rows(settings: Settings) -> Iterator[Row]:
    """Fitted models on one of scikit-learn's digits, alone and with a busy process on every core."""
    X, y = load_digits(return_X_y=True)
    X, y = (X[:200], y[:200]) if settings.tiny else (X, y)
    row = X[:1].copy()
    sizes: dict[str, Any] = {"max_iter": 2} if settings.tiny else {}
    calls = {name: getattr(rkdl, name)(random_state=0, **sizes).fit(X).transform for name in METHODS}
    calls["KDLClassifier"] = rkdl.KDLClassifier(random_state=0).fit(X, y).predict
    members = {"n_members": 2} if settings.tiny else {}
    calls["KDLOutlierDetector"] = rkdl.KDLOutlierDetector(random_state=0, **members).fit(X).score_samples
    calls["PCA"] = PCA(20).fit(X).transform
    calls["SVC"] = SVC().fit(X, y).predict
    contenders = [Contender(name, partial(call, row)) for name, call in calls.items()]
    for is_busy in (False, True):
        rounds, n_calls = _calls(settings)
        what, note = "one signal of 64 features", f"best median of {n_calls} calls"
        if is_busy:
            # Means over many calls, because what other processes cost falls on a few of them.
            rounds, n_calls = 1, 5 if settings.tiny else 2000
            what, note = f"{what}, {THREADS} other processes busy", f"mean of {n_calls} calls"
        with busy_processes(THREADS) if is_busy else nullcontext():
            laps = race_small(contenders, rounds, n_calls, statistics.fmean if is_busy else statistics.median)
        pairs = [(name, "PCA", "transform", TRANSFORM if name != "KDL" else None) for name in METHODS]
        pairs.append(("KDLClassifier", "SVC", "predict", PREDICT))
        for name, peer_name, method, target in pairs:
            peer = replace(settings.peer("sklearn"), name=f"scikit-learn's {peer_name}")
            yield compare(
                "latency",
                what,
                f"{name}.{method}",
                peer,
                laps[name],
                laps[peer_name],
                check=lambda ours, theirs: None,
                dtype=str(row.dtype),
                target=settings.goal(target),
                note=note,
            )
        lap = laps["KDLOutlierDetector"]
        value = None if lap.best is None else lap.best * 1e6
        figure = Figure("latency", f"KDLOutlierDetector.score_samples of {what}", value, "microseconds", note=note)
        if lap.error:
            figure.status, figure.reason = FAILED, lap.error
        yield figure


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Processes that do nothing but take a core each."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        time.sleep(0.5)
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _count(n_signals: int) -> str:
    return "one signal" if n_signals == 1 else f"{n_signals} signals"
