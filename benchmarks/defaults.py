"""What the defaults were chosen by: errors of the alternatives on three data sets, as a Markdown table.

Run with ``python -m benchmarks.defaults [--seeds 2] [--data-dir DIR]``; the table of docs/estimators.md is its output.
"""

from __future__ import annotations

import argparse
import os

import numpy as np

from rkdl import DL, KDL, MORKDL, ORKDL, RKDL
from rkdl.datasets import load_experiment

DATA_SETS = ("digits", "mnist", "cifar10")
GAMMAS = (0.1, "median")
VECTORS = ("dictionary", "random", "kmeans", "rpcholesky")
SETTINGS = {"n_components": 20, "n_nonzero_coefs": 4, "max_iter": 10, "tol": 0.0}

ALTERNATIVES = [
    *[(KDL, {"pursuit": pursuit, "init": init}) for pursuit in ("ols", "omp") for init in ("data", "random")],
    *[(RKDL, {"kernel_vectors": vectors}) for vectors in VECTORS],
    *[(ORKDL, {"kernel_vectors": vectors}) for vectors in VECTORS],
    (MORKDL, {}),
    (ORKDL, {"n_inner_iter": 6}),
    (ORKDL, {"solver": "gd"}),
    (ORKDL, {"max_iter": 30}),
]


def mean_error(estimator, options, signals, gamma, seeds):
    """Mean of the last error over the seeds."""
    kernel = {} if estimator is DL else {"gamma": gamma}
    fits = (estimator(**{**SETTINGS, **kernel, **options}, random_state=seed).fit(signals) for seed in range(seeds))
    return float(np.mean([model.errors_[-1] for model in fits]))


def main(argv=None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.defaults", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--data-dir", default=os.environ.get("RKDL_DATA"))
    parser.add_argument("--data-sets", nargs="+", default=DATA_SETS)
    arguments = parser.parse_args(argv)
    columns = [(name, gamma) for name in arguments.data_sets for gamma in GAMMAS]
    signals = {name: load_experiment(name, data_home=arguments.data_dir).signals for name in arguments.data_sets}
    print("| estimator | " + " | ".join(f"{name}, gamma {gamma}" for name, gamma in columns) + " |")
    print("|---" * (1 + len(columns)) + "|")
    for estimator, options in ALTERNATIVES:
        told = ", ".join(f"{key}={value!r}" for key, value in options.items())
        errors = [mean_error(estimator, options, signals[name], gamma, arguments.seeds) for name, gamma in columns]
        print(
            f"| `{estimator.__name__}({told})` | " + " | ".join(f"{error:.4e}" for error in errors) + " |", flush=True
        )


if __name__ == "__main__":
    main()
