"""How the defaults were chosen: errors of the alternatives on three data sets, as a Markdown table.

Run with ``python -m benchmarks.defaults [--seeds 2] [--data-dir DIR] [--write]``; ``--write`` puts it into
docs/codes-results.md.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np

from benchmarks.pages import put
from paper.data import load
from rkdl import DL, KDL, MORKDL, ORKDL, RKDL

PAGE = Path(__file__).resolve().parents[1] / "docs" / "codes-results.md"
DATA_SETS = ("digits", "mnist", "cifar10")
GAMMAS = (0.1, "median")
INITS = ("rpcholesky", "data", "random")
VECTORS = ("dictionary", "random", "kmeans", "rpcholesky")
SETTINGS = {"n_components": 20, "n_nonzero_coefs": 4, "max_iter": 10, "tol": 0.0}

ALTERNATIVES = [
    *[(KDL, {"pursuit": pursuit, "init": init}) for pursuit in ("ols", "omp") for init in INITS],
    *[(RKDL, {"kernel_vectors": vectors}) for vectors in VECTORS],
    *[(ORKDL, {"kernel_vectors": vectors}) for vectors in VECTORS],
    (MORKDL, {}),
    (ORKDL, {"n_inner_iter": 6}),
    (ORKDL, {"solver": "gd"}),
    (ORKDL, {"max_iter": 30}),
]


def mean_error(estimator, options, signals, gamma, seeds):
    """Mean final error over the seeds."""
    kernel = {} if estimator is DL else {"gamma": gamma}
    fits = (estimator(**{**SETTINGS, **kernel, **options}, random_state=seed).fit(signals) for seed in range(seeds))
    return float(np.mean([model.errors_[-1] for model in fits]))


def main(argv=None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.defaults", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--data-dir", default=os.environ.get("RKDL_DATA"))
    parser.add_argument("--data-sets", nargs="+", default=DATA_SETS)
    parser.add_argument("--write", action="store_true", help=f"put the table into docs/{PAGE.name}")
    arguments = parser.parse_args(argv)
    columns = [(name, gamma) for name in arguments.data_sets for gamma in GAMMAS]
    signals = {name: load(name, arguments.data_dir).signals for name in arguments.data_sets}
    lines = ["| estimator | " + " | ".join(f"{name}, gamma {gamma}" for name, gamma in columns) + " |"]
    lines.append("|---" * (1 + len(columns)) + "|")
    for estimator, options in ALTERNATIVES:
        given = ", ".join(f"{key}={value!r}" for key, value in options.items())
        errors = [mean_error(estimator, options, signals[name], gamma, arguments.seeds) for name, gamma in columns]
        lines.append(f"| `{estimator.__name__}({given})` | " + " | ".join(f"{error:.4e}" for error in errors) + " |")
    print("\n".join(lines))
    if arguments.write:
        put(PAGE, "defaults", ["", *lines, ""])


if __name__ == "__main__":
    main()
