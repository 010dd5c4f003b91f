"""Whether explanations of outliers name the guilty feature, as a table.

In each data set and with each seed, 40 signals get one value beyond the range of the others, by half to one and a half
times that range, in a random feature. Shares of these signals whose guilty feature has the largest gain of
`KDLOutlierDetector.explain`, or is among the first two.

Run with ``python -m benchmarks.explanations [--seeds 5] [--write]``; ``--write`` puts the table into
docs/outliers-results.md.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine

from benchmarks.pages import put
from rkdl import KDLOutlierDetector

PAGE = Path(__file__).resolve().parents[1] / "docs" / "outliers-results.md"
SETS = {
    "wine": load_wine,
    "breast cancer": load_breast_cancer,
    "digits": load_digits,
    "iris": load_iris,
    "diabetes": load_diabetes,
}
N_PLANTED = 40


def shares(X: np.ndarray, seed: int) -> tuple[float, float]:
    """Shares of planted outliers whose guilty feature is the first, and among the first two."""
    rng = np.random.default_rng(seed)
    low, high = np.quantile(X, (0.01, 0.99), axis=0)
    strange = X[rng.choice(len(X), N_PLANTED)]
    guilty = rng.choice(np.flatnonzero(high > low), N_PLANTED)
    step = ((high - low) * rng.uniform(0.5, 1.5, (N_PLANTED, 1)))[np.arange(N_PLANTED), guilty]
    is_low = rng.random(N_PLANTED) < 0.5
    strange[np.arange(N_PLANTED), guilty] = np.where(is_low, low[guilty] - step, high[guilty] + step)
    order = np.argsort(-KDLOutlierDetector(random_state=seed).fit(X).explain(strange), axis=1)
    return float((order[:, 0] == guilty).mean()), float((order[:, :2] == guilty[:, None]).any(axis=1).mean())


def table(seeds: int) -> list[str]:
    """Lines of the table."""
    lines = ["| data set | features | first | first two (least of a seed) |", "|---|---|---|---|"]
    for name, load in SETS.items():
        X = load(return_X_y=True)[0].astype(np.float64)
        found = 100.0 * np.array([shares(X, seed) for seed in range(seeds)])
        first, two = found.mean(axis=0)
        lines.append(f"| {name} | {X.shape[1]} | {first:.0f} % | {two:.0f} % ({found[:, 1].min():.0f}) |")
    return lines


def main(argv=None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.explanations", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--write", action="store_true", help="put the table into docs/outliers-results.md")
    arguments = parser.parse_args(argv)
    lines = table(arguments.seeds)
    print("\n".join(lines))
    if arguments.write:
        put(PAGE, "explanations", lines)


if __name__ == "__main__":
    main()
