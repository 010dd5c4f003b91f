"""Errors and times of this version beside those of another one, on the same signals, as Markdown tables.

Run with ``python -m benchmarks.versions FOLDER [--groups kinds,images,kernels,passes,paper,degenerate] [--seeds 2]
[--small]``; FOLDER holds a checkout of the other version. Both make the same number of iterations (`tol` is 0) with the
same sparsity, fit by fit in turn on one thread, in a process each.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
# An error above the other version's by more than this is listed.
TOLERANCE = 0.005

WORKER = """
import json, os, sys, time, warnings
import numpy as np
import scipy.sparse
import rkdl

warnings.simplefilter("ignore")
known = {}
for line in sys.stdin:
    order = json.loads(line)
    if order["file"] not in known:
        known.clear()
        loaded = np.load(order["file"], allow_pickle=True)
        known[order["file"]] = loaded if loaded.ndim else loaded.item()
    X = known[order["file"]]
    make = getattr(rkdl, order["estimator"])
    start = time.process_time()
    model = make(tol=0.0, n_jobs=1, **order["options"]).fit(X)
    seconds = time.process_time() - start
    # Errors at the level of rounding are equal.
    print(json.dumps({"error": float(model.errors_[-1]) + 1e-9 * float(abs(X).max()), "seconds": seconds}), flush=True)
"""


@dataclass(frozen=True)
class Case:
    """A fit on signals (N, m); `other` are options of the other version that differ."""

    name: str
    signals: Callable[[], Any]
    estimator: str
    options: dict[str, Any] = field(default_factory=dict)
    other: dict[str, Any] = field(default_factory=dict)


def kinds() -> Iterator[Case]:
    """The data sets of `benchmarks.any_data` with 20 atoms."""
    from benchmarks.any_data_sets import NAMES, load_set

    for name in NAMES:
        for estimator in ("DL", "KDL", "RKDL", "ORKDL"):
            yield Case(name, partial(load_set, name), estimator)


@lru_cache(maxsize=1)
def digits(count: int) -> np.ndarray:
    """Signals of MNIST."""
    from benchmarks.data import mnist

    images = mnist(None)[0]
    return images[np.random.default_rng(0).permutation(len(images))[:count]]


@lru_cache(maxsize=1)
def patches(count: int) -> np.ndarray:
    """Patches of 8 x 8 pixels of grey airplanes of CIFAR-10, means removed."""
    from rkdl.datasets import fetch_cifar10

    images = fetch_cifar10(label=0, gray=True, download_if_missing=False, return_X_y=True)[0].reshape(-1, 32, 32)
    rng = np.random.default_rng(0)
    windows = np.lib.stride_tricks.sliding_window_view(images, (8, 8), axis=(1, 2))
    chosen = windows[rng.integers(len(images), size=count), *rng.integers(25, size=(2, count))].reshape(count, -1)
    return np.ascontiguousarray(chosen - chosen.mean(axis=1, keepdims=True), dtype=np.float32)


def images() -> Iterator[Case]:
    """More signals and atoms."""
    for name, load, sizes in (("MNIST", digits, (100, 256)), ("patches of CIFAR-10", patches, (100, 256))):
        for count, n_atoms in zip((5_000, 20_000), sizes, strict=True):
            options = {"n_components": n_atoms}
            yield Case(f"{name}, {count:,} signals, {n_atoms} atoms", partial(load, count), "DL", options)


def kernels() -> Iterator[Case]:
    """200 atoms on kernel vectors."""
    from sklearn.datasets import load_digits

    from benchmarks.any_data_sets import load_set

    sets = {"MNIST, 5,000 signals": partial(digits, 5_000), "digits": lambda: load_digits().data}
    sets |= {name: partial(load_set, name) for name in ("sinusoids", "spectra", "pulses")}
    for name, load in sets.items():
        for estimator in ("RKDL", "ORKDL"):
            yield Case(name, load, estimator, {"n_components": 200, "n_kernel_vectors": 200})


def passes() -> Iterator[Case]:
    """30 iterations against 120 of the other version."""
    for name, load, n_atoms in (("MNIST", digits, 256), ("patches of CIFAR-10", patches, 256), ("MNIST", digits, 600)):
        options = {"n_components": n_atoms, "max_iter": 30}
        yield Case(f"{name}, 20,000 signals, {n_atoms} atoms", partial(load, 20_000), "DL", options, {"max_iter": 120})


def paper() -> Iterator[Case]:
    """The problem of the paper with the library's defaults."""
    from paper.data import load
    from paper.settings import TABLE

    for name in ("mnist", "cifar10"):
        for method in ("RKDL-D", "ORKDL-D", "MORKDL-D"):
            estimator, options = TABLE["rkdl"][method]
            signals = partial(lambda name: load(name, os.environ.get("RKDL_DATA")).signals, name)
            yield Case(name, signals, estimator.__name__, {**options, "max_iter": 10})


def degenerate() -> Iterator[Case]:
    """Codes that cannot be told apart: atoms that were planted twice, and codes of as many numbers as atoms."""
    rng = np.random.default_rng(0)
    half = rng.standard_normal((10, 20))
    codes = rng.standard_normal((1_500, 20)) * (rng.random((1_500, 20)).argsort(axis=1) < 3)
    X = codes @ np.concatenate([half, half]) + 0.1 * rng.standard_normal((1_500, 20))
    for estimator in ("DL", "KDL", "RKDL", "ORKDL"):
        yield Case("atoms planted twice", lambda: X, estimator, {"n_components": 20, "n_nonzero_coefs": 3})
        yield Case("s = n", lambda: X, estimator, {"n_components": 8, "n_nonzero_coefs": 8})


GROUPS = {group.__name__: group for group in (kinds, images, kernels, passes, paper, degenerate)}


class Version:
    """A process that fits with the version of a folder."""

    def __init__(self, folder: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": str(folder / "src"), "OPENBLAS_NUM_THREADS": "1"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process: Any = subprocess.Popen([sys.executable, "-P", "-c", WORKER], env=environment, **pipes)  # type: ignore[call-overload]

    def fit(self, order: dict[str, Any]) -> dict[str, float]:
        """Error and seconds of a fit."""
        print(json.dumps(order), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"No result for {order}: see the message above.")
        return json.loads(line)


def compare(cases: list[Case], versions: tuple[Version, Version], n_seeds: int) -> Iterator[tuple[Case, float, float]]:
    """Error and seconds of every case, relative to the other version, over all seeds."""
    with tempfile.TemporaryDirectory() as folder:
        path, saved = str(Path(folder) / "signals.npy"), ""
        for number, case in enumerate(cases):
            if case.name != saved:
                path, saved = str(Path(folder) / f"{number}.npy"), case.name
                np.save(path, case.signals(), allow_pickle=True)
            sums = np.zeros((2, 2))
            # The first fits load and compile.
            for seed in range(0 if number else -1, n_seeds):
                for i, (version, own) in enumerate(zip(versions, ({}, case.other), strict=True)):
                    options = {**case.options, **own, "random_state": max(seed, 0)}
                    found = version.fit({"file": path, "estimator": case.estimator, "options": options})
                    sums[i] += (found["error"], found["seconds"]) if seed >= 0 else (0.0, 0.0)
            error, seconds = sums[0] / sums[1]
            yield case, error, seconds


def main(argv=None) -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.versions", description=__doc__)
    parser.add_argument("folder", type=Path, help="checkout of the other version")
    parser.add_argument("--groups", default=",".join(GROUPS))
    parser.add_argument("--estimators", help="comma-separated names; all by default")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--small", action="store_true", help="one case of each group, to check the benchmark itself")
    arguments = parser.parse_args(argv)
    versions = Version(ROOT), Version(arguments.folder)
    for group in arguments.groups.split(","):
        cases = list(GROUPS[group]())
        if arguments.estimators:
            cases = [case for case in cases if case.estimator in arguments.estimators.split(",")]
        print(f"\n{GROUPS[group].__doc__}\n\n| signals | estimator | error | time |\n|---|---|---|---|", flush=True)
        results: dict[str, list[tuple[float, float]]] = {}
        for case, error, seconds in compare(cases[:1] if arguments.small else cases, versions, arguments.seeds):
            results.setdefault(case.estimator, []).append((error, seconds))
            mark = " (above)" if error > 1.0 + TOLERANCE else ""
            print(f"| {case.name} | {case.estimator} | {error - 1.0:+.2%}{mark} | {seconds:.2f} |", flush=True)
        for estimator, pairs in results.items():
            errors, times = np.transpose(pairs)
            above = int(np.sum(errors > 1.0 + TOLERANCE))
            print(
                f"| all {len(pairs)}, {above} above | {estimator} | {errors.mean() - 1.0:+.2%} | {times.mean():.2f} |"
            )


if __name__ == "__main__":
    main()
