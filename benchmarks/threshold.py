"""What the outlier detector labels with ``contamination="auto"`` among clean data and planted outliers, as a table.

"clean" is the share that `fit_predict` labels of signals of one shape, "new" the share that `predict` labels of further
signals. In the last two columns, a twentieth of the signals have one to three features moved beyond the range of the
others, by one to two times that range: the share of these that `fit_predict` labels, and of the others. Means over the
seeds, with the maximum for clean signals.

Run with ``python -m benchmarks.threshold [--seeds 5] [--write]``; ``--write`` puts the table into
docs/outliers-results.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.pages import put
from rkdl import KDLOutlierDetector

PAGE = Path(__file__).resolve().parents[1] / "docs" / "outliers-results.md"
SIZES = (200, 1000)
PLANTED = 0.05


def _blobs(rng: np.random.Generator, n: int) -> np.ndarray:
    fixed = np.random.default_rng(7)
    centres, spreads = fixed.uniform(-6.0, 6.0, (5, 4)), fixed.uniform(0.3, 1.5, 5)
    blob = rng.choice(5, n, p=[0.4, 0.25, 0.15, 0.12, 0.08])
    return centres[blob] + spreads[blob, None] * rng.standard_normal((n, 4))


def _spiral(rng: np.random.Generator, n: int) -> np.ndarray:
    t = rng.uniform(0.0, 3.0 * np.pi, n)
    return np.c_[t * np.cos(t), t * np.sin(t)] + 0.2 * rng.standard_normal((n, 2))


def _sheet(rng: np.random.Generator, n: int) -> np.ndarray:
    u = rng.uniform(-1.0, 1.0, (n, 2))
    waves = np.c_[np.sin(3.0 * u), np.cos(3.0 * u), u, u[:, :1] * u[:, 1:]]
    return waves @ np.random.default_rng(5).standard_normal((7, 10)) + 0.1 * rng.standard_normal((n, 10))


def _correlated(rng: np.random.Generator, n: int) -> np.ndarray:
    factors = np.random.default_rng(3).standard_normal((5, 20))
    return rng.standard_normal((n, 5)) @ factors + 0.5 * rng.standard_normal((n, 20))


def _classes(rng: np.random.Generator, n: int) -> np.ndarray:
    first, second = np.eye(4)[rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])], np.eye(3)[rng.choice(3, n, p=[0.6, 0.3, 0.1])]
    return np.c_[first, second, rng.poisson(2, n), rng.binomial(10, 0.3, n)]


def _mixed(rng: np.random.Generator, n: int) -> np.ndarray:
    return np.c_[np.eye(3)[rng.choice(3, n, p=[0.5, 0.26, 0.24])], rng.poisson(1, n), rng.standard_normal((n, 4))]


# Shape and number of features.
SHAPES: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "normal, 1": lambda rng, n: rng.standard_normal((n, 1)),
    "normal, 2": lambda rng, n: rng.standard_normal((n, 2)),
    "correlated normal, 20": _correlated,
    "normal, 50": lambda rng, n: rng.standard_normal((n, 50)),
    "uniform, 1": lambda rng, n: rng.uniform(0.0, 1.0, (n, 1)),
    "uniform, 5": lambda rng, n: rng.uniform(0.0, 1.0, (n, 5)),
    "five clusters, 4": _blobs,
    "spiral, 2": _spiral,
    "curved sheet, 10": _sheet,
    "Student's t of 3 degrees, 5": lambda rng, n: rng.standard_t(3, (n, 5)),
    "Student's t of 3 degrees, 20": lambda rng, n: rng.standard_t(3, (n, 20)),
    "log-normal, 3": lambda rng, n: np.exp(rng.standard_normal((n, 3))),
    "exponential, 1": lambda rng, n: rng.exponential(1.0, (n, 1)),
    "Laplace, 4": lambda rng, n: rng.laplace(size=(n, 4)),
    "chi-square of 2 degrees, 3": lambda rng, n: rng.chisquare(2, (n, 3)),
    "Weibull of shape 0.7, 2": lambda rng, n: rng.weibull(0.7, (n, 2)),
    "Pareto of shape 3, 6": lambda rng, n: rng.pareto(3, (n, 6)),
    "Student's t of 2 degrees, 3": lambda rng, n: rng.standard_t(2, (n, 3)),
    "Student's t of 5 degrees, 10": lambda rng, n: rng.standard_t(5, (n, 10)),
    "two scales, 10": lambda rng, n: rng.standard_normal((n, 10)) * np.where(rng.random((n, 1)) < 0.2, 2.0, 1.0),
    "classes and counts, 9": _classes,
    "classes and numbers, 8": _mixed,
}


def plant(X: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """The signals with outliers among them, and which these are."""
    X, is_outlier = X.copy(), np.zeros(len(X), dtype=bool)
    is_outlier[rng.choice(len(X), round(PLANTED * len(X)), replace=False)] = True
    low, high = np.quantile(X, (0.01, 0.99), axis=0)
    width = np.where(high > low, high - low, 1.0)
    for row in np.flatnonzero(is_outlier):
        moved = rng.choice(X.shape[1], min(X.shape[1], int(rng.integers(1, 4))), replace=False)
        step = width[moved] * rng.uniform(1.0, 2.0, len(moved))
        X[row, moved] = np.where(rng.random(len(moved)) < 0.5, low[moved] - step, high[moved] + step)
    return X, is_outlier


def shares(name: str, n_signals: int, seed: int) -> tuple[float, float, float, float]:
    """Shares labelled: of clean signals, of new ones, of planted outliers, and of the signals that these are among."""
    rng = np.random.default_rng([seed, n_signals])
    X, detector = SHAPES[name](rng, n_signals), KDLOutlierDetector(random_state=seed)
    clean = (detector.fit_predict(X) == -1).mean()
    new = (detector.predict(SHAPES[name](rng, 1000)) == -1).mean()
    X, is_outlier = plant(X, rng)
    found = detector.fit_predict(X) == -1
    return float(clean), float(new), float(found[is_outlier].mean()), float(found[~is_outlier].mean())


def table(sizes: tuple[int, ...], seeds: int) -> list[str]:
    """Lines of the table."""
    lines = ["| shape, features | signals | clean (most) | new | planted | others |", "|---|---|---|---|---|---|"]
    for name in SHAPES:
        for size in sizes:
            found = 100.0 * np.array([shares(name, size, seed) for seed in range(seeds)])
            clean, new, planted, others = found.mean(axis=0)
            cells = [f"{clean:.1f} % ({found[:, 0].max():.1f})", f"{new:.1f} %", f"{planted:.0f} %", f"{others:.1f} %"]
            lines.append(f"| {name} | {size} | " + " | ".join(cells) + " |")
    return lines


def main(argv=None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.threshold", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--write", action="store_true", help="put the table into docs/outliers-results.md")
    arguments = parser.parse_args(argv)
    lines = table(arguments.sizes, arguments.seeds)
    print("\n".join(lines))
    if arguments.write:
        put(PAGE, "threshold", lines)


if __name__ == "__main__":
    main()
