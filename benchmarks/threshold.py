"""Share of fresh inliers that the outlier detector marks, by number of training signals, as a Markdown table.

Training and fresh inliers come from one distribution. "own threshold" is the quantile of the training scores that marks
exactly `contamination` of the training signals; `offset_` is the detector's threshold. Means over the seeds, with the
minimum and maximum.

Run with ``python -m benchmarks.threshold [--seeds 5] [--write]``; ``--write`` puts the table into docs/outliers.md.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from benchmarks.pages import put
from rkdl import KDLOutlierDetector

PAGE = Path(__file__).resolve().parents[1] / "docs" / "outliers.md"
DISTRIBUTIONS = ("normal", "Student's t, 3 degrees")
WIDTHS = (2, 20, 100)
SIZES = (50, 100, 200, 500, 1000, 2000)
N_FRESH = 2000
CONTAMINATION = 0.1


def draw(kind: str, rng: np.random.Generator, n_signals: int, n_features: int) -> np.ndarray:
    """Draw inliers."""
    shape = (n_signals, n_features)
    return rng.standard_normal(shape) if kind == DISTRIBUTIONS[0] else rng.standard_t(3, shape)


def shares(kind: str, n_signals: int, n_features: int, seed: int) -> tuple[float, float, float]:
    """Shares marked: fresh inliers by the own threshold and by `offset_`, training signals by `offset_`."""
    rng = np.random.default_rng(seed)
    X, fresh = draw(kind, rng, n_signals, n_features), draw(kind, rng, N_FRESH, n_features)
    detector = KDLOutlierDetector(contamination=CONTAMINATION, random_state=seed).fit(X)
    own = np.percentile(detector.score_samples(X), 100.0 * CONTAMINATION)
    by_own = float((detector.score_samples(fresh) < own).mean())
    by_offset, of_training = (float((detector.predict(rows) == -1).mean()) for rows in (fresh, X))
    return by_own, by_offset, of_training


def table(sizes, widths, seeds: int) -> list[str]:
    """Lines of the table."""
    lines = [
        "| inliers | features | signals | fresh, own threshold | fresh, `offset_` | training signals, `offset_` |",
        "|---|---|---|---|---|---|",
    ]
    for kind in DISTRIBUTIONS:
        for n_features in widths:
            for n_signals in sizes:
                found = np.array([shares(kind, n_signals, n_features, seed) for seed in range(seeds)])
                cells = [
                    f"{100.0 * column.mean():.0f} % ({100.0 * column.min():.0f} to {100.0 * column.max():.0f})"
                    for column in found.T
                ]
                lines.append(f"| {kind} | {n_features} | {n_signals} | " + " | ".join(cells) + " |")
    return lines


def main(argv=None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.threshold", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--widths", type=int, nargs="+", default=WIDTHS)
    parser.add_argument("--write", action="store_true", help="put the table into docs/outliers.md")
    arguments = parser.parse_args(argv)
    lines = table(arguments.sizes, arguments.widths, arguments.seeds)
    print("\n".join(lines))
    if arguments.write:
        put(PAGE, "threshold", lines)


if __name__ == "__main__":
    main()
