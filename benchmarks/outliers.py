"""The outlier detector against PyOD's, under two protocols that are never mixed, as Markdown tables.

A random 60 % of a data set trains a detector and the rest tests it; the figures are the area under the ROC curve and
the average precision on the test part. Under "contaminated" all signals of the training part are used, under "normals"
only its inliers, and the test part is the same. Features are standardised on the training signals. Of a larger set,
`MOST` signals are drawn with each seed. All detectors use their defaults; PyOD's are given the share of outliers as
`contamination`, which their scores hardly depend on, and ours is told by `novelty` whether all training signals are
normal, unless ``--defaults`` is given, with a file of its own for ``--out``.

Run with ``python -m benchmarks.outliers [--protocol normals] [--suite public|development] [--seeds 5] [--write]``, with
PyOD installed (the extra ``rkdl[pyod]``). Every figure is appended to ``--out`` as it is computed and none is computed
twice: a run can be split (``--limit SECONDS``), and after a change of the detector, its own results are computed again
with ``--fresh``. Times need an idle machine and a new file; CPU times are those of all threads. ``--write`` puts the
tables into docs/outliers-results.md.
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
from scipy.stats import rankdata, wilcoxon
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from benchmarks.data import ADBENCH_NAMES, ODDS_NAMES, adbench, odds
from benchmarks.outlier_problems import development_problems
from benchmarks.pages import put

PAGE = Path(__file__).resolve().parents[1] / "docs" / "outliers-results.md"
PROTOCOLS = {"contaminated": "contaminated training", "normals": "trained on normals only"}
MOST = 5_000
OURS = "KDLOutlierDetector"
# Module, and whether the detector takes a seed.
PEERS = {
    "KNN": ("knn", False),
    "INNE": ("inne", True),
    "IForest": ("iforest", True),
    "LOF": ("lof", False),
    "OCSVM": ("ocsvm", False),
    "MCD": ("mcd", True),
    "HBOS": ("hbos", False),
    "CBLOF": ("cblof", True),
    "ECOD": ("ecod", False),
    "COPOD": ("copod", False),
    "PCA": ("pca", True),
}
DETECTORS = (OURS, *PEERS)


def make_detector(name: str, contamination: float, seed: int, novelty: bool):
    """Create a detector by name; `novelty` says whether its training signals are known to be normal."""
    if name == OURS:
        from rkdl import KDLOutlierDetector

        return KDLOutlierDetector(novelty=novelty, random_state=seed)
    module, is_random = PEERS[name]
    options = {"contamination": contamination} | ({"random_state": seed} if is_random else {})
    return getattr(importlib.import_module(f"pyod.models.{module}"), name)(**options)


def abnormality(detector, X: np.ndarray) -> np.ndarray:
    """Scores of signals, higher for outliers, for either library."""
    return -detector.score_samples(X) if hasattr(detector, "score_samples") else detector.decision_function(X)


def split(X: np.ndarray, y: np.ndarray, protocol: str, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Training signals and test signals, standardised on the former, and the labels of the latter."""
    rng = np.random.RandomState(seed)
    if len(X) > MOST:
        X, _, y, _ = train_test_split(X, y, train_size=MOST, stratify=y, random_state=rng)
    X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.4, stratify=y, random_state=rng)
    if protocol == "normals":
        X_train = X_train[y_train == 0]
    scaler = StandardScaler().fit(X_train)
    return scaler.transform(X_train), scaler.transform(X_test), y_test


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


def clocks() -> tuple[float, float]:
    """Seconds, and CPU seconds of all threads."""
    return time.perf_counter(), time.process_time()


def measure(name: str, X: np.ndarray, y: np.ndarray, protocol: str, seed: int, *, defaults: bool = False) -> dict:
    """Area under the ROC curve, average precision, and seconds and CPU seconds of one detector on one split."""
    X_train, X_test, y_test = split(X, y, protocol, seed)
    contamination = float(min(max(y.mean(), 1e-3), 0.5))
    failure = ""
    for changes in ({}, *repairs(name, X_train)):
        detector = make_detector(name, contamination, seed, protocol == "normals" and not defaults)
        detector.set_params(**changes)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            start = clocks()
            try:
                detector.fit(X_train)
                fitted = clocks()
                scores = abnormality(detector, X_test)
            except (ValueError, np.linalg.LinAlgError) as error:
                failure = str(error)
                continue
            scored = clocks()
        if np.isfinite(scores).all():
            found = {"roc": roc_auc_score(y_test, scores), "precision": average_precision_score(y_test, scores)}
            for act, (first, last) in {"fit": (start, fitted), "score": (fitted, scored)}.items():
                found |= {f"{act}_seconds": last[0] - first[0], f"{act}_cpu": last[1] - first[1]}
            return {key: float(value) for key, value in found.items()} | ({"repaired": changes} if changes else {})
        failure = "non-finite scores"
    # Chance level.
    share = float(y_test.mean())
    return {"roc": 0.5, "precision": share, "fit_seconds": 0.0, "score_seconds": 0.0, "failed": failure}


def problems(suite: str) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Name, signals and labels of every data set of a suite."""
    if suite == "development":
        yield from development_problems()
        return
    for names, load in ((ADBENCH_NAMES, adbench), (ODDS_NAMES, odds)):
        for name in names:
            yield name, *load(name)


def read_records(path: Path) -> list[dict]:
    """Records of earlier runs."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def key_of(record: dict) -> tuple:
    """What a record measures."""
    return tuple(record[key] for key in ("suite", "protocol", "problem", "seed", "detector"))


def run(options: argparse.Namespace) -> bool:
    """Measure what is missing; returns whether all of it fitted in the time limit."""
    records = read_records(options.out)
    if options.fresh:
        records = [record for record in records if record["detector"] != OURS]
    done = {key_of(record) for record in records}
    deadline = time.monotonic() + options.limit
    options.out.parent.mkdir(parents=True, exist_ok=True)
    warm = set()
    with options.out.open("w") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)
        for problem, X, y in problems(options.suite):
            for protocol in options.protocol:
                for seed in range(options.seeds):
                    for detector in options.detectors:
                        what = {"suite": options.suite, "protocol": protocol, "problem": problem}
                        what |= {"seed": seed, "detector": detector}
                        if key_of(what) in done:
                            continue
                        if time.monotonic() > deadline:
                            return False
                        if detector not in warm:
                            # Import and compile before timing.
                            measure(detector, X[:500], np.arange(len(X[:500])) % 5 == 0, protocol, seed)
                            warm.add(detector)
                        found = measure(detector, X, y, protocol, seed, defaults=options.defaults)
                        if "failed" in found:
                            print(f"{detector} fails on {problem}: {found['failed']}")
                        file.write(json.dumps(what | found) + "\n")
                        file.flush()
    return True


def means(records: list[dict], key: str) -> tuple[list[str], list[str], np.ndarray]:
    """Problems, detectors, and the mean of one figure over seeds, of shape (problems, detectors)."""
    names = list(dict.fromkeys(r["problem"] for r in records))
    detectors = [d for d in DETECTORS if any(r["detector"] == d for r in records)]
    values: dict[tuple[str, str], list[float]] = {}
    for r in records:
        values.setdefault((r["problem"], r["detector"]), []).append(r[key])
    return names, detectors, np.array([[np.mean(values.get((name, d), [np.nan])) for d in detectors] for name in names])


def report(records: list[dict]) -> tuple[list[str], list[str]]:
    """Lines of two tables: areas per set; and per detector means, ranks, and comparison with the first."""
    names, detectors, areas = means(records, "roc")
    precisions = means(records, "precision")[2]
    single = ["| set | " + " | ".join(detectors) + " |", "|---" * (1 + len(detectors)) + "|"]
    single += [f"| {n} | " + " | ".join(f"{v:.3f}" for v in row) + " |" for n, row in zip(names, areas, strict=True)]
    ranks = [rankdata(-values, axis=1).mean(axis=0) for values in (areas, precisions)]
    lines = [
        f"| detector, {len(names)} sets | mean ROC | rank | better, worse | p | mean precision | rank | p |",
        "|---" * 8 + "|",
    ]
    for k, name in enumerate(detectors):
        cells = [f"{areas[:, k].mean():.4f}", f"{ranks[0][k]:.2f}"]
        gains = areas[:, 0] - areas[:, k]
        cells += [f"{(gains > 0).sum()}, {(gains < 0).sum()}", f"{wilcoxon(gains).pvalue:.3f}"] if k else ["", ""]
        cells += [f"{precisions[:, k].mean():.4f}", f"{ranks[1][k]:.2f}"]
        cells += [f"{wilcoxon(precisions[:, 0] - precisions[:, k]).pvalue:.3f}" if k else ""]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return single, lines


def durations(records: list[dict]) -> list[str]:
    """Lines of a table: mean milliseconds per set and protocol."""
    lines = ["| detector | fit, milliseconds | score | fit, CPU | score, CPU |", "|---" * 5 + "|"]
    for name in dict.fromkeys(r["detector"] for r in records):
        own = [r for r in records if r["detector"] == name]
        keys = "fit_seconds", "score_seconds", "fit_cpu", "score_cpu"
        cells = [f"{1e3 * np.mean([r.get(key, np.nan) for r in own]):.0f}" for key in keys]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def main(argv=None) -> int:
    """Measure what is missing, then print the tables."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.outliers", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/outliers.jsonl"))
    parser.add_argument("--suite", choices=("public", "development"), default="public")
    parser.add_argument("--protocol", nargs="+", choices=PROTOCOLS, default=list(PROTOCOLS))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--detectors", nargs="+", choices=DETECTORS, default=list(DETECTORS))
    parser.add_argument("--fresh", action="store_true", help=f"forget the results of {OURS}")
    parser.add_argument("--defaults", action="store_true", help=f"{OURS} with novelty=False under both protocols")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/outliers-results.md")
    parser.add_argument(
        "--limit", type=float, default=np.inf, help="start no further measurement after this many seconds"
    )
    options = parser.parse_args(argv)
    complete = run(options)
    wanted = [r for r in read_records(options.out) if r["suite"] == options.suite and r["seed"] < options.seeds]
    print(*durations([r for r in wanted if r["detector"] in options.detectors]), sep="\n")
    for protocol in options.protocol:
        found = [r for r in wanted if r["protocol"] == protocol and r["detector"] in options.detectors]
        if not found:
            continue
        single, summary = report(found)
        print(f"\n{PROTOCOLS[protocol]}\n", *single, "", *summary, sep="\n")
        if options.write:
            put(PAGE, protocol, summary)
    return 0 if complete else 3


if __name__ == "__main__":
    raise SystemExit(main())
