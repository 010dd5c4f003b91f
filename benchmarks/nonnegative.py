"""Non-negative dictionaries at equal sparsity: DL, scikit-learn's NMF with L1 and its MiniBatchDictionaryLearning.

Run with ``python -m benchmarks.nonnegative [--write]``; MNIST and CIFAR-10 come from the folder RKDL_DATA. Penalties
are searched so that codes have S non-zeros on average. Errors are ``|X - Z A|_F / |X|_F`` of every library's own codes.
``--write`` puts the table into docs/codes-results.md.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from threadpoolctl import threadpool_limits

from benchmarks.any_data_sets import spectra
from benchmarks.data import mnist
from benchmarks.environment import THREADS
from benchmarks.pages import put
from rkdl import DL

PAGE = Path(__file__).resolve().parents[1] / "docs" / "codes-results.md"
S, N_SIGNALS, SEARCHES = 4, 1_000, 8


class Fit(NamedTuple):
    """Non-zeros per signal, the relative error, and the seconds of the fit."""

    n_nonzero: float
    error: float
    seconds: float


def data_sets() -> Iterator[tuple[str, np.ndarray, int]]:
    """Names, non-negative signals and numbers of atoms."""
    from sklearn.datasets import load_digits

    from rkdl.datasets import fetch_cifar10

    rng = np.random.default_rng(0)
    yield "digits", load_digits().data / 16.0, 32
    signals, _ = mnist(None)
    yield "MNIST", signals[rng.choice(len(signals), N_SIGNALS, replace=False)].astype(float), 50
    images = np.asarray(fetch_cifar10(label=0, download_if_missing=False, return_X_y=True)[0], dtype=float)
    grey = images[:500].reshape(-1, 3, 32, 32).mean(axis=1) / images.max()
    windows = sliding_window_view(grey, (8, 8), axis=(1, 2)).reshape(-1, 64)
    yield "patches of CIFAR-10", windows[rng.choice(len(windows), N_SIGNALS, replace=False)], 64
    yield "spectra", np.maximum(spectra(rng), 0.0), 30


def fitted(model, X: np.ndarray) -> Fit:
    """Fit and transform."""
    start = time.perf_counter()
    with warnings.catch_warnings():
        # Fits of scikit-learn that have not converged.
        warnings.simplefilter("ignore")
        model.fit(X)
        seconds = time.perf_counter() - start
        codes = model.transform(X)
    error = np.linalg.norm(X - codes @ model.components_) / np.linalg.norm(X)
    return Fit(float((codes != 0.0).sum(axis=1).mean()), float(error), seconds)


def searched(make: Callable[[float], object], X: np.ndarray, low: float, high: float) -> Fit:
    """The fit with about S non-zeros, by bisection of the penalty."""
    fits = []
    for _ in range(SEARCHES):
        alpha = (low * high) ** 0.5
        fits.append(fitted(make(alpha), X))
        low, high = (alpha, high) if fits[-1].n_nonzero > S else (low, alpha)
    return min(fits, key=lambda fit: abs(fit.n_nonzero - S))


def results(X: np.ndarray, n_atoms: int) -> Iterator[tuple[str, Fit]]:
    """Names of methods and their fits."""
    from sklearn.decomposition import NMF, MiniBatchDictionaryLearning

    def dl(**options) -> DL:
        return DL(n_atoms, positive_code=True, positive_dict=True, random_state=0, **options)

    def nmf(alpha: float) -> NMF:
        return NMF(n_atoms, alpha_W=alpha, alpha_H=0.0, l1_ratio=1.0, init="nndsvda", max_iter=100, random_state=0)

    def batches(alpha: float) -> MiniBatchDictionaryLearning:
        options = {
            "positive_code": True,
            "positive_dict": True,
            "fit_algorithm": "cd",
            "transform_algorithm": "lasso_cd",
        }
        return MiniBatchDictionaryLearning(n_atoms, alpha=alpha, batch_size=256, max_iter=20, random_state=0, **options)

    yield "`DL`", fitted(dl(n_nonzero_coefs=S), X)
    yield '`DL`, `pursuit="lasso"`', searched(lambda alpha: dl(pursuit="lasso", alpha=alpha), X, 0.1, 5.0)
    yield "`NMF` with L1", searched(nmf, X, 1e-3, 30.0)
    yield "`MiniBatchDictionaryLearning`", searched(batches, X, 0.1, 5.0)


def table() -> Iterator[str]:
    """Lines of the table."""
    yield "| signals | method | non-zeros | relative error | seconds |"
    yield "|---|---|---|---|---|"
    for name, X, n_atoms in data_sets():
        shape = f"{name}, {len(X):,} x {X.shape[1]}, {n_atoms} atoms"
        for method, fit in results(X, n_atoms):
            yield f"| {shape} | {method} | {fit.n_nonzero:.1f} | {fit.error:.3f} | {fit.seconds:.2g} |"


def main(argv=None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.nonnegative", description=__doc__)
    parser.add_argument("--write", action="store_true", help="put the table into docs/codes-results.md")
    arguments = parser.parse_args(argv)
    lines = []
    with threadpool_limits(THREADS):
        for line in table():
            print(line, flush=True)
            lines.append(line)
    if arguments.write:
        put(PAGE, "nonnegative", ["", *lines, ""])


if __name__ == "__main__":
    main()
