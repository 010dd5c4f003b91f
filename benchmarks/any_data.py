"""Errors of the reduced methods relative to KDL's on data of many kinds, as Markdown tables.

Every method has 20 atoms and its defaults otherwise. A figure is the final error, averaged over the seeds, in per cent
above (+) or below (-) KDL's.

Run with ``python -m benchmarks.any_data [--sets moons,wine] [--methods RKDL,ORKDL-kmeans] [--seeds 5] [--quick]``.
``--json FILE`` stores every run, ``--load FILE`` prints stored runs instead of measuring, ``--check`` lists where the
claims of the documentation fail, and ``--write`` puts the tables into docs/any-data.md. Data sets missing from the data
folder (RKDL_DATA) are skipped with a message.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np
from joblib import Parallel, delayed, parallel_config

from benchmarks.any_data_sets import FAMILY_OF, NAMES, QUICK_NAMES, load_set
from benchmarks.data import MissingDataError
from benchmarks.pages import put
from rkdl import KDL, MORKDL, ORKDL, RKDL

PAGE = Path(__file__).resolve().parents[1] / "docs" / "any-data.md"
ESTIMATORS = {"KDL": KDL, "RKDL": RKDL, "ORKDL": ORKDL, "MORKDL": MORKDL}
REDUCED = ("RKDL", "ORKDL", "MORKDL")
VECTORS = ("dictionary", "random", "kmeans", "rpcholesky")
N_COMPONENTS = 20
# With as many non-zeros as atoms, codes are least-squares solutions and no step may raise the objective.
N_COMPONENTS_DENSE = 8

# Claimed bounds in per cent, and the largest relative rise attributed to rounding.
ORKDL_ABOVE_RKDL = 1.0
ABOVE_KDL = 10.0
RECODED_ABOVE = 0.5
RECODED_BELOW = -5.0
ROUNDING = 1e-6


def default_vectors(estimator: str) -> str:
    """The default choice of kernel vectors of a reduced method."""
    return str(ESTIMATORS[estimator]().kernel_vectors)


def full_name(method: str) -> str:
    """Estimator and kernel vectors, as in ``RKDL-kmeans``, with the default choice filled in."""
    estimator, _, vectors = method.partition("-")
    if estimator not in ESTIMATORS or (estimator == "KDL" and vectors):
        raise ValueError(
            f"{method!r} is not a method: give one of {', '.join(ESTIMATORS)}, or for example RKDL-kmeans."
        )
    if estimator == "KDL":
        return estimator
    return f"{estimator}-{vectors or default_vectors(estimator)}"


def all_methods() -> list[str]:
    """KDL, RKDL and ORKDL with every choice of kernel vectors, and MORKDL."""
    names = ["KDL"]
    for estimator in ("RKDL", "ORKDL"):
        names += [f"{estimator}-{vectors}" for vectors in VECTORS] + [full_name(estimator)]
    return list(dict.fromkeys([*names, full_name("MORKDL")]))


def make_estimator(method: str, seed: int, **options):
    """Create an estimator by its full name, on one thread."""
    estimator, _, vectors = method.partition("-")
    if vectors:
        options["kernel_vectors"] = vectors
    return ESTIMATORS[estimator](random_state=seed, n_jobs=1, **options)


def recoded_error(model, X) -> float:
    """Error of signals coded again, in the unit of `errors_`."""
    residuals = np.asarray(model.reconstruction_error(X), dtype=np.float64)
    return float(np.sqrt(np.sum(residuals**2) / (X.shape[0] * X.shape[1])))


def fit_and_score(method: str, X, seed: int) -> dict:
    """Errors, share of signals with a zero code, and seconds of one fit."""
    model = make_estimator(method, seed, n_components=N_COMPONENTS)
    start = time.perf_counter()
    model.fit(X)
    seconds = time.perf_counter() - start
    used = np.asarray(model.transform(X) != 0).any(axis=1)
    return {
        "errors": [float(error) for error in model.errors_],
        "recoded": recoded_error(model, X),
        "zero_codes": float(1.0 - used.mean()),
        "seconds": seconds,
    }


def fit_dense(method: str, X, seed: int) -> dict:
    """Errors of one fit with codes that may use all atoms."""
    model = make_estimator(method, seed, n_components=N_COMPONENTS_DENSE, n_nonzero_coefs=N_COMPONENTS_DENSE)
    start = time.perf_counter()
    model.fit(X)
    seconds = time.perf_counter() - start
    # `errors_` ends with the best model, not the last.
    return {"errors": [float(error) for error in model.update_errors_], "seconds": seconds}


def measure(fit, name: str, method: str, seed: int) -> dict:
    """Results of a fit and its warnings, or the text of the exception it raised."""
    run = {"set": name, "method": method, "seed": seed}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            run |= fit(method, load_set(name), seed)
        except Exception as error:  # The other methods must still be measured.
            run["failed"] = f"{type(error).__name__}: {error}"
    run["warnings"] = sorted({f"{item.category.__name__}: {item.message}" for item in caught})
    return run


def measure_set(name: str, methods: Sequence[str], seed: int, dense: bool) -> dict:
    """Runs of all methods on one data set with one seed, or the reason why the data set is missing."""
    try:
        shape = load_set(name).shape
    except MissingDataError as error:
        return {"set": name, "missing": str(error)}
    runs = [measure(fit_and_score, name, method, seed) for method in methods]
    # MORKDL also minimises its linear term, so its error may rise.
    reduced = [method for method in methods if method.startswith(("RKDL", "ORKDL"))] if dense else []
    return {
        "set": name,
        "shape": [int(size) for size in shape],
        "runs": runs,
        "dense_runs": [measure(fit_dense, name, method, seed) for method in reduced],
    }


def measure_all(names: Sequence[str], methods: Sequence[str], seeds: int, dense: bool, n_jobs: int = 2) -> dict:
    """Results of all data sets, in the order of the names, from single-threaded processes."""
    tasks = (delayed(measure_set)(name, methods, seed, dense) for name in names for seed in range(seeds))
    sets: dict[str, list[int]] = {}
    left_out: dict[str, str] = {}
    runs: list[dict] = []
    dense_runs: list[dict] = []
    with parallel_config("loky", n_jobs=n_jobs, inner_max_num_threads=1):
        for count, part in enumerate(Parallel(return_as="generator")(tasks), 1):
            print(f"\r{count} of {len(names) * seeds}: {part['set']:32}", end="", file=sys.stderr, flush=True)
            if "missing" in part:
                left_out[part["set"]] = part["missing"]
                continue
            sets[part["set"]] = part["shape"]
            runs += part["runs"]
            dense_runs += part["dense_runs"]
    print(file=sys.stderr)
    return {
        "version": version("rkdl"),
        "defaults": {estimator: default_vectors(estimator) for estimator in REDUCED},
        "seeds": seeds,
        "sets": sets,
        "left_out": left_out,
        "runs": runs,
        "dense_runs": dense_runs,
    }


class Results:
    """Stored runs, indexed by data set and method."""

    def __init__(self, stored: dict):
        self.stored = stored
        self.sets = stored["sets"]
        self.runs: dict[tuple[str, str], list[dict]] = {}
        for run in stored["runs"]:
            self.runs.setdefault((run["set"], run["method"]), []).append(run)
        self.methods = list(dict.fromkeys(run["method"] for run in stored["runs"]))

    def default(self, estimator: str) -> str:
        """Full name of a method with the default choice of kernel vectors at the time of the run."""
        return estimator if estimator == "KDL" else f"{estimator}-{self.stored['defaults'][estimator]}"

    def values(self, name: str, method: str, key: str) -> list[float]:
        """One figure of every run that did not fail; ``error`` is the last entry of `errors_`."""
        runs = [run for run in self.runs.get((name, method), []) if "failed" not in run]
        return [run["errors"][-1] if key == "error" else run[key] for run in runs]

    def mean_error(self, name: str, method: str) -> float:
        """Mean final error over the seeds; NaN if a fit failed."""
        runs, errors = self.runs.get((name, method), []), self.values(name, method, "error")
        return float(np.mean(errors)) if errors and len(errors) == len(runs) else np.nan

    def above_kdl(self, name: str, method: str) -> float:
        """Mean error in per cent above KDL's."""
        return above(self.mean_error(name, method), self.mean_error(name, "KDL"))

    def recoded(self, name: str, method: str) -> list[float]:
        """Error of recoded signals in per cent above the last error, per seed."""
        pairs = zip(self.values(name, method, "recoded"), self.values(name, method, "error"), strict=True)
        return [above(recoded, error) for recoded, error in pairs]


def above(value: float, reference: float) -> float:
    """A value in per cent above a reference; 0 if both are 0."""
    if reference == 0.0:
        return 0.0 if value == 0.0 else np.inf
    return 100.0 * (value / reference - 1.0)


def percent(value: float, digits: int = 0) -> str:
    """Format a signed percentage, in exponent notation above 10,000; NaN is a failure."""
    if np.isnan(value):
        return "fails"
    if abs(value) >= 1e4:
        return f"{value:+.0e}"
    text = f"{value:+.{digits}f}"
    return text.lstrip("+-") if float(text) == 0.0 else text


def spread(values: Sequence[float], digits: int = 1) -> str:
    """Format the range of some percentages."""
    if not values:
        return "fails"
    low, high = percent(min(values), digits), percent(max(values), digits)
    return low if low == high else f"{low} to {high}"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def size(results: Results, name: str) -> str:
    """Name and shape of a data set."""
    n_signals, n_features = results.sets[name]
    return f"{name} ({n_signals} x {n_features})"


def error_table(results: Results) -> list[str]:
    """Mean errors of all methods relative to KDL's, in per cent."""
    groups = {e: [m for m in results.methods if m.partition("-")[0] == e] for e in REDUCED}
    groups = {estimator: methods for estimator, methods in groups.items() if methods}
    choices = [" / ".join(method.partition("-")[2] for method in methods) for methods in groups.values()]
    header = ["data", "KDL", *(f"{name} {vectors}" for name, vectors in zip(groups, choices, strict=True))]
    rows = []
    for name in results.sets:
        cells = [" / ".join(percent(results.above_kdl(name, m)) for m in methods) for methods in groups.values()]
        rows.append([size(results, name), f"{results.mean_error(name, 'KDL'):.3g}", *cells])
    return markdown(header, rows)


def defaults_table(results: Results) -> list[str]:
    """Mean errors with default settings relative to KDL's, in per cent."""
    estimators = [e for e in REDUCED if results.default(e) in results.methods]
    rows = []
    for name in results.sets:
        cells = [percent(results.above_kdl(name, results.default(estimator))) for estimator in estimators]
        rows.append([size(results, name), f"{results.mean_error(name, 'KDL'):.3g}", *cells])
    return markdown(["data", "KDL", *estimators], rows)


def tables(results: Results) -> list[str]:
    """All tables, each with its heading and caption."""
    seeds = results.stored["seeds"]
    n_families = len({FAMILY_OF.get(name, name) for name in results.sets})
    return [
        f"Version {results.stored['version']}, {len(results.sets)} data sets of {n_families} kinds, "
        f"{f'mean over {seeds} seeds' if seeds > 1 else 'one seed'}.",
        "",
        "## Default settings",
        "",
        "The error of KDL, and the errors of the other methods in per cent above (+) or below (-) it:",
        "",
        *defaults_table(results),
        "",
        "## Choices of kernel vectors",
        "",
        "The same for each value of `kernel_vectors`:",
        "",
        *error_table(results),
    ]


def failures(results: Results) -> Iterator[str]:
    """Fits that raised an exception."""
    for run in [*results.stored["runs"], *results.stored["dense_runs"]]:
        if "failed" in run:
            yield f"{run['set']}, {run['method']}, seed {run['seed']}: {run['failed']}"


def orkdl_above_rkdl(results: Results) -> Iterator[str]:
    """Data sets and seeds where ORKDL ends above RKDL with the same initial kernel vectors."""
    for name in results.sets:
        for method in (m for m in results.methods if m.startswith("ORKDL-")):
            fixed = {run["seed"]: run for run in results.runs.get((name, method[1:]), []) if "failed" not in run}
            rises = {
                run["seed"]: above(run["errors"][-1], fixed[run["seed"]]["errors"][-1])
                for run in results.runs.get((name, method), [])
                if "failed" not in run and run["seed"] in fixed
            }
            bad = {seed: rise for seed, rise in rises.items() if rise > ORKDL_ABOVE_RKDL}
            if bad:
                yield f"{name}, {method}: {format_by_seed(bad)}"


def format_by_seed(values: dict[int, float]) -> str:
    """Format percentages with their seeds."""
    return ", ".join(f"{percent(value, 1)} % (seed {seed})" for seed, value in values.items())


def defaults_above_kdl(results: Results) -> Iterator[str]:
    """Data sets where the mean error of RKDL or ORKDL with default settings is far above KDL's."""
    for estimator in ("RKDL", "ORKDL"):
        method = results.default(estimator)
        for name in results.sets:
            if (value := results.above_kdl(name, method)) > ABOVE_KDL:
                yield f"{name}, {method}: {percent(value, 1)} %"


def recoded_off(results: Results, is_above: bool) -> Iterator[str]:
    """Data sets where the error of recoded signals is above, or far below, the last error."""
    for name in results.sets:
        for method in results.methods:
            values = results.recoded(name, method)
            bad = [v for v in values if (v > RECODED_ABOVE if is_above else v < RECODED_BELOW)]
            if bad:
                yield f"{name}, {method}: {spread(bad)} % ({len(bad)} of {len(values)} seeds)"


def greatest_rise(errors: Sequence[float]) -> float:
    """Largest relative rise between consecutive errors, at least 0."""
    values = np.asarray(errors)
    scale = np.maximum(values[:-1], np.finfo(float).tiny)
    return float(np.max(np.diff(values) / scale, initial=0.0))


def objective_rises(results: Results) -> Iterator[str]:
    """Fits whose error rises although codes may use all atoms."""
    rises: dict[tuple[str, str], list[float]] = {}
    for run in results.stored["dense_runs"]:
        if "failed" not in run:
            rises.setdefault((run["set"], run["method"]), []).append(greatest_rise(run["errors"]))
    for (name, method), values in rises.items():
        bad = [value for value in values if value > ROUNDING]
        if bad:
            yield f"{name}, {method}: by up to {max(bad):.1e} ({len(bad)} of {len(values)} seeds)"


def warnings_seen(results: Results) -> list[str]:
    """Every distinct warning with the methods and data sets that raised it."""
    places: dict[str, dict[str, None]] = {}
    for (name, method), runs in results.runs.items():
        for text in {text for run in runs for text in run["warnings"]}:
            # Warnings that differ in numbers alone count as one.
            shape = re.sub(r"[-+]?\d[\d.,e+-]*", "#", text.split("\n")[0])
            places.setdefault(shape, {})[f"{name} {method}"] = None
    return [f"- {text} ({len(where)}: {', '.join(where)})" for text, where in places.items()]


def check(results: Results) -> list[str]:
    """Where each claim fails."""
    claims = {
        "No fit raises an exception": failures(results),
        f"(a) ORKDL at most {ORKDL_ABOVE_RKDL:g} % above RKDL from the same kernel vectors": orkdl_above_rkdl(results),
        f"(b) RKDL and ORKDL with default settings within {ABOVE_KDL:g} % of KDL": defaults_above_kdl(results),
        f"(c) recoded error at most {RECODED_ABOVE:g} % above the last error": recoded_off(results, True),
        f"(c) recoded error not more than {-RECODED_BELOW:g} % below the last error": recoded_off(results, False),
        f"(d) with n_nonzero_coefs = n_components = {N_COMPONENTS_DENSE} the error never rises": objective_rises(
            results
        ),
    }
    if not results.stored["dense_runs"]:
        claims = {claim: found for claim, found in claims.items() if not claim.startswith("(d)")}
    lines = []
    for claim, found in claims.items():
        found = list(found)
        lines += ["", f"{claim}: " + (f"fails in {len(found)} cases" if found else "holds everywhere")]
        lines += [f"- {line}" for line in found]
    return [*lines, "", "Warnings, with # for numbers:", *warnings_seen(results)]


def write(results: Results, page: Path = PAGE) -> None:
    """Put the tables between the marks ``any-data`` of the page."""
    put(page, "any-data", tables(results))


def chosen(text: str | None, everything: Sequence[str]) -> list[str]:
    """Split a comma-separated list of names; None means all."""
    return list(everything) if text is None else [part.strip() for part in text.split(",") if part.strip()]


def parse(argv=None) -> argparse.Namespace:
    """Parse the arguments and check the names of data sets and methods."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.any_data", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", help=f"comma-separated names: {', '.join(NAMES)}")
    parser.add_argument(
        "--methods", help="comma-separated names, such as KDL,RKDL,ORKDL-kmeans; KDL is always included"
    )
    parser.add_argument("--seeds", type=int, default=None, help="number of seeds (default 5, or 1 with --quick)")
    parser.add_argument("--quick", action="store_true", help="one data set per family and one seed")
    parser.add_argument("--jobs", type=int, default=2, help="number of processes")
    parser.add_argument("--json", type=Path, help="file to store all runs in")
    parser.add_argument("--load", type=Path, help="file of stored runs to print instead of measuring")
    parser.add_argument("--check", action="store_true", help="list where the claims fail")
    parser.add_argument("--write", action="store_true", help=f"put the tables into docs/{PAGE.name}")
    arguments = parser.parse_args(argv)
    arguments.sets = chosen(arguments.sets, QUICK_NAMES if arguments.quick else NAMES)
    if unknown := set(arguments.sets) - set(NAMES):
        parser.error(f"unknown data sets {', '.join(sorted(unknown))}; choose from {', '.join(NAMES)}")
    try:
        methods = [full_name(method) for method in chosen(arguments.methods, all_methods())]
    except ValueError as error:
        parser.error(str(error))
    arguments.methods = list(dict.fromkeys(["KDL", *methods]))
    arguments.seeds = arguments.seeds or (1 if arguments.quick else 5)
    return arguments


def main(argv=None) -> None:
    """Measure or load, store, and print."""
    arguments = parse(argv)
    if arguments.load:
        stored = json.loads(arguments.load.read_text())
    else:
        stored = measure_all(arguments.sets, arguments.methods, arguments.seeds, arguments.check, arguments.jobs)
    if arguments.json:
        arguments.json.write_text(json.dumps(stored))
    results = Results(stored)
    for name, reason in stored["left_out"].items():
        print(f"{name} skipped: {reason}")
    print("\n".join(tables(results)))
    if arguments.check:
        print("\n".join(check(results)))
    if arguments.write:
        write(results)


if __name__ == "__main__":
    main()
