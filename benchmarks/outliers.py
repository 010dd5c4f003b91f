"""The outlier detector against PyOD's, by the protocol of PyOD's benchmark, as Markdown tables.

A random 60 % of each data set trains a detector and the rest tests it, with features standardised on the training part.
PyOD's detectors use their defaults and the data set's share of outliers as `contamination`; KDLOutlierDetector uses its
defaults. The figure is the area under the ROC curve on the test part.

Run with ``python -m benchmarks.outliers --out results/outliers.jsonl [--suite odds|development] [--seeds 10]``, with
PyOD installed (the extra ``rkdl[pyod]``). Every figure is appended to the file as it is computed and none is computed
twice, so a run can be split (``--limit SECONDS``).
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from scipy.stats import rankdata
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from benchmarks.data import ODDS_NAMES, odds
from benchmarks.outlier_problems import development_problems, is_real

OURS = "KDLOutlierDetector"
# Module, and whether the detector takes a seed.
PEERS = {
    "IForest": ("iforest", True),
    "KNN": ("knn", False),
    "MCD": ("mcd", True),
    "OCSVM": ("ocsvm", False),
    "PCA": ("pca", True),
    "LOF": ("lof", False),
    "HBOS": ("hbos", False),
    "CBLOF": ("cblof", True),
    "ECOD": ("ecod", False),
    "COPOD": ("copod", False),
    "KPCA": ("kpca", True),
}
# Alternatives to the default, compared on the development suite alone.
ALTERNATIVES: dict[str, dict] = {
    "wide alone": {"n_components": 32, "n_nonzero_coefs": 16, "gamma_factors": 0.1},
    "narrow alone": {"n_components": 8, "n_nonzero_coefs": 8, "gamma_factors": 6.0},
    "three widths": {"n_components": (32, 16, 8), "n_nonzero_coefs": (16, 8, 8), "gamma_factors": (0.1, 0.7, 6.0)},
    "wide, 48 atoms": {"n_components": (48, 8), "n_nonzero_coefs": (24, 8)},
    "wide, all atoms": {"n_nonzero_coefs": (32, 8)},
    "wide, 4 non-zeros": {"n_nonzero_coefs": (4, 8)},
    "narrow, 16 atoms": {"n_components": (32, 16)},
    "discard 0": {"discard": 0.0},
    "discard 0.1": {"discard": 0.1},
    "discard 0.4": {"discard": 0.4},
    "p = 50": {"n_kernel_vectors": 50},
    "p = 400": {"n_kernel_vectors": 400},
    "one of each": {"n_members": 2},
    "20 members": {"n_members": 20},
}
DETECTORS = (OURS, *PEERS)


def make_detector(name: str, contamination: float, seed: int):
    """Create a detector by name."""
    if name == OURS or name in ALTERNATIVES:
        from rkdl import KDLOutlierDetector

        return KDLOutlierDetector(**ALTERNATIVES.get(name, {}), random_state=seed)
    module, is_random = PEERS[name]
    options = {"contamination": contamination} | ({"random_state": seed} if is_random else {})
    return getattr(importlib.import_module(f"pyod.models.{module}"), name)(**options)


def abnormality(detector, X: np.ndarray) -> np.ndarray:
    """Scores of signals, higher for outliers, for either library."""
    return -detector.score_samples(X) if hasattr(detector, "score_samples") else detector.decision_function(X)


def split(X: np.ndarray, y: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training and test part, standardised on the training part."""
    rng = np.random.RandomState(seed)
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.4, random_state=rng)
    scaler = StandardScaler().fit(X_train)
    return scaler.transform(X_train), scaler.transform(X_test), y_train, y_test


def repairs(name: str, X_train: np.ndarray) -> list[dict]:
    """Parameters to try, in this order, if a detector fails with its defaults or gives non-finite scores.

    PCA divides by the variance of its components, which is zero for linearly dependent features; CBLOF fails if its
    clusters cannot be divided into large and small ones.
    """
    if name == "PCA":
        return [{"n_components": int(np.linalg.matrix_rank(X_train))}]
    if name == "CBLOF":
        return [{"n_clusters": count} for count in (10, 12, 6, 4, 15, 20)]
    return []


def measure(name: str, X: np.ndarray, y: np.ndarray, seed: int) -> dict:
    """Area under the ROC curve and seconds of one detector on one split."""
    X_train, X_test, _, y_test = split(X, y, seed)
    contamination = float(min(max(y.mean(), 1e-3), 0.5))
    failure = ""
    for changes in ({}, *repairs(name, X_train)):
        detector = make_detector(name, contamination, seed).set_params(**changes)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            start = time.perf_counter()
            try:
                detector.fit(X_train)
                fitted = time.perf_counter()
                scores = abnormality(detector, X_test)
            except (ValueError, np.linalg.LinAlgError) as error:
                failure = str(error)
                continue
            scored = time.perf_counter()
        if np.isfinite(scores).all():
            found = {"roc": float(roc_auc_score(y_test, scores))}
            found |= {"fit_seconds": fitted - start, "score_seconds": scored - fitted}
            return found | ({"repaired": changes} if changes else {})
        failure = "non-finite scores"
    # Chance level.
    return {"roc": 0.5, "fit_seconds": 0.0, "score_seconds": 0.0, "failed": failure}


def problems(suite: str) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Name, signals and labels of every data set of a suite."""
    if suite == "development":
        yield from development_problems()
        return
    for name in ODDS_NAMES:
        yield name, *odds(name)


def read_records(path: Path) -> list[dict]:
    """Records of earlier runs."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run(suite: str, detectors: list[str], seeds: int, path: Path, limit: float) -> bool:
    """Measure what is missing; returns whether all of it fitted in the time limit."""
    done = {(r["problem"], r["seed"], r["detector"]) for r in read_records(path) if r["suite"] == suite}
    deadline = time.monotonic() + limit
    path.parent.mkdir(parents=True, exist_ok=True)
    warm = set()
    with path.open("a") as file:
        for problem, X, y in problems(suite):
            for seed in range(seeds):
                for detector in detectors:
                    if (problem, seed, detector) in done:
                        continue
                    if time.monotonic() > deadline:
                        return False
                    if detector not in warm:
                        # Import and compile before timing.
                        measure(detector, X[:500], np.arange(len(X[:500])) % 5 == 0, seed)
                        warm.add(detector)
                    found = measure(detector, X, y, seed)
                    if "failed" in found:
                        print(f"{detector} fails on {problem}: {found['failed']}")
                    record = {"suite": suite, "problem": problem, "seed": seed, "detector": detector, **found}
                    file.write(json.dumps(record) + "\n")
                    file.flush()
    return True


def table(records: list[dict], key: str) -> tuple[list[str], list[str], np.ndarray]:
    """Problems, detectors, and the mean of one figure over seeds, of shape (problems, detectors)."""
    names = list(dict.fromkeys(r["problem"] for r in records))
    detectors = [d for d in (*DETECTORS, *ALTERNATIVES) if any(r["detector"] == d for r in records)]
    values: dict[tuple[str, str], list[float]] = {}
    for r in records:
        values.setdefault((r["problem"], r["detector"]), []).append(r[key])
    means = np.array([[np.mean(values.get((name, d), [np.nan])) for d in detectors] for name in names])
    return names, detectors, means


def report(records: list[dict], suite: str) -> str:
    """Areas per ODDS data set; then mean area, mean rank among the detectors shown, and seconds, per detector.

    For the development suite: the mean over problems with real outliers in place of areas and seconds.
    """
    if not records:
        return "Nothing has been measured yet."
    names, detectors, areas = table(records, "roc")
    ranks = rankdata(-areas, axis=1).mean(axis=0)
    lines = []
    if suite == "odds":
        lines += ["| set | " + " | ".join(detectors) + " |", "|---" * (1 + len(detectors)) + "|"]
        for name, row in zip(names, areas, strict=True):
            lines.append(f"| {name} | " + " | ".join(f"{value:.3f}" for value in row) + " |")
        lines.append("")
        last, title = sum(table(records, key)[2].sum(axis=0) for key in ("fit_seconds", "score_seconds")), "seconds"
    else:
        real = np.array([is_real(name) for name in names])
        last, title = areas[real].mean(axis=0), f"mean ROC, {real.sum()} real"
    lines += [f"| detector | mean ROC, {len(names)} sets | mean rank | {title} |", "|---|---|---|---|"]
    for detector, mean, rank, value in zip(detectors, areas.mean(axis=0), ranks, last, strict=True):
        lines.append(f"| {detector} | {mean:.4f} | {rank:.2f} | {value:.{1 if suite == 'odds' else 4}f} |")
    return "\n".join(lines)


def main(argv=None) -> int:
    """Measure what is missing, then print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.outliers", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/outliers.jsonl"))
    parser.add_argument("--suite", choices=("odds", "development"), default="odds")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--detectors", nargs="+", choices=DETECTORS, default=list(DETECTORS))
    parser.add_argument("--alternatives", action="store_true", help="compare the default with its alternatives")
    parser.add_argument(
        "--limit", type=float, default=np.inf, help="start no further measurement after this many seconds"
    )
    arguments = parser.parse_args(argv)
    chosen = [OURS, *ALTERNATIVES] if arguments.alternatives else arguments.detectors
    complete = run(arguments.suite, chosen, arguments.seeds, arguments.out, arguments.limit)
    found = [
        r
        for r in read_records(arguments.out)
        if r["suite"] == arguments.suite and r["detector"] in chosen and r["seed"] < arguments.seeds
    ]
    print(report(found, arguments.suite))
    return 0 if complete else 3


if __name__ == "__main__":
    raise SystemExit(main())
