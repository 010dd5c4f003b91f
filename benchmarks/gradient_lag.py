"""Cost of ORKDL's lagged gradients, taken with the atoms of the previous point, against exact ones with a second pass.

``python -m benchmarks.gradient_lag`` prints a Markdown table: the mean error of both over the seeds.
"""

from __future__ import annotations

import numpy as np

from benchmarks.any_data_sets import load_set
from rkdl import ORKDL
from rkdl._learning.kernel_vector_updates import VariableProjection

SETS = ("moons", "swiss-roll", "cancer-standardised", "log-normal", "spectra", "digits-standardised")
SEEDS = range(5)


def mean_error(X: np.ndarray) -> float:
    """Mean final error over the seeds."""
    return float(np.mean([ORKDL(tol=0.0, random_state=seed).fit(X).errors_[-1] for seed in SEEDS]))


def exact_error(X: np.ndarray) -> float:
    """The same with every gradient taken at the optimal atoms of its own point."""
    along = VariableProjection._along

    def exact(vector_update, objective, free, direction, gradient_atoms):
        return along(vector_update, objective, free, direction, None)

    VariableProjection._along = exact
    try:
        return mean_error(X)
    finally:
        VariableProjection._along = along


def main() -> None:
    """Print the table."""
    print("| data | exact gradients | lagged gradients | |")
    print("|---|---|---|---|")
    for name in SETS:
        X = load_set(name)
        exact, lagging = exact_error(X), mean_error(X)
        print(f"| {name} | {exact:.4e} | {lagging:.4e} | {100 * (lagging / exact - 1):+.2f} % |", flush=True)


if __name__ == "__main__":
    main()
