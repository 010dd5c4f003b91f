"""Classifiers with their defaults on tables: accuracy, probabilities and time, and what each learned part is worth.

Also missing values in prediction, features of noise, and regressors on scikit-learn's data.

Run with ``python -m benchmarks.tables [--only PART ...] [--seeds N] [--jobs N] [--write] [--data-dir DIR]``, where the
folder DIR holds ``tables/*.npz`` with ``X`` and ``y``. Three folds with standardised columns, the same for all
classifiers. The defaults of the library were chosen by the means of these tables, never by a single one.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import (
    load_breast_cancer,
    load_diabetes,
    load_iris,
    load_linnerud,
    load_wine,
    make_classification,
    make_friedman1,
    make_friedman2,
    make_friedman3,
    make_moons,
    make_regression,
    make_sparse_uncorrelated,
)
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.kernel_ridge import KernelRidge
from sklearn.metrics import log_loss
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.multioutput import MultiOutputRegressor
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from benchmarks.pages import put
from rkdl import KDLClassifier, KDLRegressor
from rkdl._applications.task_learning import smoothed

PAGE = Path(__file__).parent.parent / "docs" / "classification-results.md"
FOLDS, BINS = 3, 10
OWN = "`KDLClassifier`"


class Part(KDLClassifier):
    """The classifier without a part of what it learns; for its accuracy alone."""

    held: tuple[str, ...] = ()  # parameters that stay as they start
    readouts: tuple[float, float] | None = None  # weights in place of those of the held-out signals

    def _start(self, *arguments: Any) -> Any:
        learning, unit = super()._start(*arguments)
        for name in self.held:
            learning.rates[name][:] = 0.0
        return learning, unit

    def _fit(self, signals: Any, labels: np.ndarray, weights: np.ndarray, rng: np.random.RandomState) -> None:
        if self.readouts is None:
            super()._fit(signals, labels, weights, rng)
            return
        targets = smoothed(labels, len(self.classes_), np.dtype(np.float32))
        self._set(*self._learn(signals, self.gamma_, targets, weights, rng, "of all signals"), signals.dtype)
        self.readout_weights_ = np.array(self.readouts)


def part(held: tuple[str, ...] = (), readouts: tuple[float, float] | None = None) -> Callable[[int], Any]:
    """A maker of classifiers without a part."""

    def make(seed: int) -> Any:
        model = Part(random_state=seed)
        model.held, model.readouts = held, readouts
        return model

    return make


LINEAR, DICTIONARIES = (1.0, 0.0), (0.0, 1.0)
CLASSIFIERS: dict[str, Callable[[int], Any]] = {
    OWN: lambda seed: KDLClassifier(random_state=seed),
    "`SVC`": lambda seed: SVC(),
    "`RandomForestClassifier`": lambda seed: RandomForestClassifier(random_state=seed),
    "`SVC` with probabilities": lambda seed: CalibratedClassifierCV(SVC(), ensemble=False),
}
ABLATION: dict[str, Callable[[int], Any]] = {
    "kernel vectors fixed, linear readout": part(("vectors", "log_gammas"), LINEAR),
    "learned, linear readout": part(("log_gammas",), LINEAR),
    "learned, with widths, linear readout": part((), LINEAR),
    "learned, with widths, dictionaries": part((), DICTIONARIES),
    "both readouts, weights from held-out signals": part(),
}


# Shares of the numbers that are missing in prediction.
SHARES = (0.1, 0.3)
REGRESSION: dict[str, Callable[[int], Any]] = {
    "`load_diabetes`": lambda seed: load_diabetes(return_X_y=True),
    "`load_linnerud`": lambda seed: load_linnerud(return_X_y=True),
    "`make_friedman1`, noise 1": lambda seed: make_friedman1(600, noise=1.0, random_state=seed),
    "`make_friedman2`, noise 100": lambda seed: make_friedman2(600, noise=100.0, random_state=seed),
    "`make_friedman3`, noise 0.1": lambda seed: make_friedman3(600, noise=0.1, random_state=seed),
    "`make_regression`, 10 features, noise 20": lambda seed: make_regression(600, 10, noise=20.0, random_state=seed),
    "`make_sparse_uncorrelated`": lambda seed: make_sparse_uncorrelated(600, random_state=seed),
}


# Features of noise, and data with them: signals, targets and the number of features that matter, which are the first.
NOISE_FEATURES = (20, 50, 100)


def moons(noise: int, seed: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Two curved classes, which overlap a little."""
    X, y = make_moons(600, noise=0.15, random_state=seed)
    return (
        np.hstack([StandardScaler().fit_transform(X), np.random.default_rng(seed).standard_normal((600, noise))]),
        y,
        2,
    )


def clusters(noise: int, seed: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Two classes of two clusters each, in five dimensions."""
    options = {"n_informative": 5, "n_redundant": 0, "shuffle": False, "random_state": seed}
    return *make_classification(600, 5 + noise, **options), 5


def friedman(noise: int, seed: int) -> tuple[np.ndarray, np.ndarray, int]:
    """A function of five features."""
    return *make_friedman1(600, 5 + noise, noise=0.5, random_state=seed), 5


NOISY: dict[str, Callable[[int, int], Any]] = {
    "`make_moons`, 2 features": moons,
    "`make_classification`, 5 features": clusters,
    "`make_friedman1`, 5 features": friedman,
}


class Table(NamedTuple):
    """A table with its name."""

    name: str
    X: np.ndarray
    y: np.ndarray


def load_tables(data_dir: str | None, small: bool) -> list[Table]:
    """The tables of the folder, or small ones of scikit-learn."""
    if small:
        loads = {"iris": load_iris, "wine": load_wine, "wdbc": load_breast_cancer}
        return [Table(name, *load(return_X_y=True)) for name, load in loads.items()]
    paths = sorted(Path(data_dir or ".", "tables").glob("*.npz"))
    if not paths:
        raise SystemExit(f"{data_dir} has no folder tables with .npz files: give --data-dir, or --small.")
    files = [np.load(path) for path in paths]
    return [Table(path.stem, file["X"].astype(np.float64), file["y"]) for path, file in zip(paths, files, strict=True)]


def calibration_error(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Mean difference of confidence and accuracy, in bins of equal width of the confidence."""
    confidence, right = probabilities.max(1), probabilities.argmax(1) == labels
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    differences = np.bincount(bins, weights=confidence - right, minlength=BINS)
    return float(np.abs(differences).sum() / len(labels))


def measure(make: Callable[[int], Any], table: Table, seed: int) -> np.ndarray:
    """Accuracy, log loss, calibration error, seconds to fit, to predict and to predict one row: means of folds."""
    labels = np.unique(table.y, return_inverse=True)[1]
    found = []
    for train, test in StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(table.X, labels):
        scaler = StandardScaler().fit(table.X[train])
        X, X_new, truth = scaler.transform(table.X[train]), scaler.transform(table.X[test]), labels[test]
        start = time.perf_counter()
        model = make(seed).fit(X, labels[train])
        fitted = time.perf_counter()
        predicted = model.predict(X_new)
        ended = time.perf_counter()
        for row in range(20):
            model.predict(X_new[row : row + 1])
        single = (time.perf_counter() - ended) / 20
        scores = [np.nan, np.nan]
        if hasattr(model, "predict_proba"):
            chances = model.predict_proba(X_new).astype(np.float64)
            chances /= chances.sum(1, keepdims=True)
            scores = [log_loss(truth, chances, labels=model.classes_), calibration_error(chances, truth)]
        found.append([np.mean(predicted == truth), *scores, fitted - start, ended - fitted, single])
    return np.mean(found, axis=0)


def results_of(
    makers: dict[str, Callable[[int], Any]], tables: list[Table], seeds: int, jobs: int
) -> dict[str, np.ndarray]:
    """What `measure` returns, (tables, 6) per classifier, means of seeds; classifiers take turns on every table."""
    tasks = [(name, table, seed) for table in tables for seed in range(seeds) for name in makers]
    measured = Parallel(jobs)(delayed(measure)(makers[name], table, seed) for name, table, seed in tasks)
    shape = len(tables), seeds, len(makers), -1
    found = np.array(measured).reshape(shape).mean(axis=1)
    return {name: found[:, place] for place, name in enumerate(makers)}


def comparison(tables: list[Table], seeds: int, jobs: int) -> Iterator[str]:
    """The classifiers with their defaults: means, and the accuracy on every table."""
    results = results_of(CLASSIFIERS, tables, seeds, jobs)
    yield f"{len(tables)} tables, {FOLDS} folds, {seeds} seeds; means of all tables:"
    yield ""
    yield "| classifier | accuracy | better / worse than it | log loss | calibration error | fit | predict | one row |"
    yield "|---|---|---|---|---|---|---|---|"
    own = results[OWN]
    for name, found in results.items():
        wins, losses = (int(np.sum(sign * (own[:, 0] - found[:, 0]) > 5e-4)) for sign in (1, -1))
        accuracy, loss, error, fit, predict, single = found.mean(axis=0)
        versus = "" if name == OWN else f"{wins} / {losses}"
        chances = "| |" if np.isnan(loss) else f"{loss:.3f} | {error:.3f} |"
        times = f"{fit:.2f} s | {1e3 * predict:.1f} ms | {1e3 * single:.2f} ms"
        yield f"| {name} | {accuracy:.4f} | {versus} | {chances} {times} |"
    yield ""
    yield f"| table | {' | '.join(results)} |"
    yield f"|---|{'---|' * len(results)}"
    for row, table in enumerate(tables):
        yield f"| {table.name} | {' | '.join(f'{found[row, 0]:.3f}' for found in results.values())} |"


def ablation(tables: list[Table], seeds: int, jobs: int) -> Iterator[str]:
    """The classifier without parts of what it learns."""
    results = results_of(ABLATION, tables, seeds, jobs)
    yield "| what is learned | accuracy |"
    yield "|---|---|"
    for name, found in results.items():
        yield f"| {name} | {found[:, 0].mean():.4f} |"


def missing(tables: list[Table], seeds: int, jobs: int) -> Iterator[str]:
    """Numbers that are missing in prediction: their distribution is averaged over (NaN), or the mean is filled in."""

    def measure_gaps(table: Table, seed: int) -> list[float]:
        labels, rng, found = np.unique(table.y, return_inverse=True)[1], np.random.default_rng(seed), []
        for train, test in StratifiedKFold(FOLDS, shuffle=True, random_state=seed).split(table.X, labels):
            scaler = StandardScaler().fit(table.X[train])
            model = KDLClassifier(random_state=seed).fit(scaler.transform(table.X[train]), labels[train])
            rows = scaler.transform(table.X[test])
            for share in SHARES:
                is_missing = rng.random(rows.shape) < share
                for filled in (np.nan, 0.0):
                    chances = model.predict_proba(np.where(is_missing, filled, rows))
                    accuracy = np.mean(model.classes_[chances.argmax(1)] == labels[test])
                    found += [accuracy, log_loss(labels[test], chances, labels=model.classes_)]
        return np.mean(np.reshape(found, (FOLDS, -1)), axis=0)

    measured = Parallel(jobs)(delayed(measure_gaps)(table, seed) for table in tables for seed in range(seeds))
    found = np.reshape(measured, (len(tables), seeds, len(SHARES), 2, 2)).mean(axis=1)
    yield "| missing | accuracy with NaN | with the mean | better / worse | log loss with NaN | with the mean |"
    yield "|---|---|---|---|---|---|"
    for number, share in enumerate(SHARES):
        (own, own_loss), (filled, filled_loss) = found[:, number].mean(axis=0)
        change = found[:, number, 0, 0] - found[:, number, 1, 0]
        counts = f"{np.sum(change > 5e-4)} / {np.sum(change < -5e-4)}"
        yield f"| {share:.0%} | {own:.4f} | {filled:.4f} | {counts} | {own_loss:.3f} | {filled_loss:.3f} |"


def regression(_: list[Table], seeds: int, jobs: int) -> Iterator[str]:
    """Regressors with their defaults on scikit-learn's data, standardised: mean coefficients of determination."""
    regressors: dict[str, Callable[[int], Any]] = {
        "`KDLRegressor`": lambda seed: KDLRegressor(random_state=seed),
        "`SVR`": lambda seed: MultiOutputRegressor(SVR()),
        "`KernelRidge`, RBF": lambda seed: KernelRidge(kernel="rbf"),
    }

    def measure_fits(load: Callable[[int], Any], seed: int) -> np.ndarray:
        X, y = load(seed)
        y, found = StandardScaler().fit_transform(y.reshape(len(X), -1)), []
        for train, test in KFold(FOLDS, shuffle=True, random_state=seed).split(X):
            scaler = StandardScaler().fit(X[train])
            X_new = scaler.transform(X[test])
            for make in regressors.values():
                found.append(make(seed).fit(scaler.transform(X[train]), y[train]).score(X_new, y[test]))
        return np.mean(np.reshape(found, (FOLDS, -1)), axis=0)

    tasks = [(load, seed) for load in REGRESSION.values() for seed in range(seeds)]
    measured = Parallel(jobs)(delayed(measure_fits)(*task) for task in tasks)
    yield f"| data | {' | '.join(regressors)} |"
    yield f"|---|{'---|' * len(regressors)}"
    for name, scores in zip(REGRESSION, np.reshape(measured, (len(REGRESSION), seeds, -1)).mean(axis=1), strict=True):
        yield f"| {name} | {' | '.join(f'{score:.3f}' for score in scores)} |"


def relevance(_: list[Table], seeds: int, jobs: int) -> Iterator[str]:
    """Tables whose features are mostly noise: which share of those that matter have the largest relevance."""

    def measure_share(load: Callable[[int, int], Any], noise: int, seed: int) -> list[float]:
        X, y, count = load(noise, seed)
        X, is_regression = StandardScaler().fit_transform(X), y.dtype.kind == "f"
        own: Any = (KDLRegressor if is_regression else KDLClassifier)(random_state=seed)
        forest: Any = (RandomForestRegressor if is_regression else RandomForestClassifier)(random_state=seed)
        found = own.fit(X, y).feature_relevance_, forest.fit(X, y).feature_importances_
        return [float(np.mean(np.argsort(-shares)[:count] < count)) for shares in found]

    tasks = [(load, noise, seed) for load in NOISY.values() for noise in NOISE_FEATURES for seed in range(seeds)]
    measured = Parallel(jobs)(delayed(measure_share)(*task) for task in tasks)
    found = np.reshape(measured, (len(NOISY), len(NOISE_FEATURES), seeds, 2)).mean(axis=2)
    yield f"| 600 signals | {' | '.join(f'{noise} of noise' for noise in NOISE_FEATURES)} |"
    yield f"|---|{'---|' * len(NOISE_FEATURES)}"
    for name, shares in zip(NOISY, found, strict=True):
        yield f"| {name} | {' | '.join(f'{own:.2f} (forest {other:.2f})' for own, other in shares)} |"


PARTS = {
    "tables": comparison,
    "ablation": ablation,
    "missing": missing,
    "relevance": relevance,
    "regression": regression,
}


def main(argv: list[str] | None = None) -> None:
    """Measure, print and save."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tables", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="processes; times need one")
    parser.add_argument("--small", action="store_true", help="three small tables of scikit-learn, to check the code")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/classification-results.md")
    parser.add_argument("--out", type=Path, default=Path("results/tables"))
    parser.add_argument("--data-dir", default=os.environ.get("RKDL_DATA"))
    options = parser.parse_args(argv)
    tables = load_tables(options.data_dir, options.small)
    options.out.mkdir(parents=True, exist_ok=True)
    for name in options.only:
        lines = []
        for line in PARTS[name](tables, options.seeds, options.jobs):
            print(line, flush=True)
            lines.append(line)
        (options.out / f"{name}.md").write_text("\n".join(lines) + "\n")
        if options.write:
            put(PAGE, name, lines)


if __name__ == "__main__":
    main()
