"""Errors of the reduced methods beside KDL's on data of many kinds, as Markdown tables.

Every method has 20 atoms and its defaults otherwise. A figure is the mean over the seeds of the last of `errors_`,
in per cent above (+) or below (-) KDL's. "Coded anew" is the error of the training signals coded once more by the
fitted model, in per cent above or below the last of `errors_`.

Run with ``python -m benchmarks.any_data [--sets moons,wine] [--methods RKDL,ORKDL-kmeans] [--seeds 5] [--quick]``.
``--json FILE`` stores every run, ``--before FILE`` prints the stored runs of another version beside this one's,
``--load FILE`` prints stored runs instead of measuring, ``--check`` lists where the claims of the documentation fail,
and ``--write`` puts the tables into docs/any-data.md. A set that needs the data folder (RKDL_DATA) is left out, and
said to be, where it is not there.
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
# With as many non-zeros as atoms the codes are least squares, so that no step may raise the objective.
N_COMPONENTS_DENSE = 8

# What is claimed, in per cent, and the relative rise that is rounding.
ORKDL_ABOVE_RKDL = 1.0
ABOVE_KDL = 10.0
RECODED_ABOVE = 0.5
RECODED_BELOW = -5.0
ROUNDING = 1e-6


def default_vectors(estimator: str) -> str:
    """The kernel vectors that a reduced method chooses when it is not told."""
    return str(ESTIMATORS[estimator]().kernel_vectors)


def full_name(method: str) -> str:
    """Estimator and kernel vectors, as in ``RKDL-kmeans``; the default ones where none are named."""
    estimator, _, vectors = method.partition("-")
    if estimator not in ESTIMATORS or (estimator == "KDL" and vectors):
        raise ValueError(f"{method!r} is no method: give one of {', '.join(ESTIMATORS)}, or RKDL-kmeans and the like.")
    if estimator == "KDL":
        return estimator
    return f"{estimator}-{vectors or default_vectors(estimator)}"


def all_methods() -> list[str]:
    """KDL, RKDL and ORKDL from every choice of kernel vectors, and MORKDL."""
    names = ["KDL"]
    for estimator in ("RKDL", "ORKDL"):
        names += [f"{estimator}-{vectors}" for vectors in VECTORS] + [full_name(estimator)]
    return list(dict.fromkeys([*names, full_name("MORKDL")]))


def make_estimator(method: str, seed: int, **options):
    """An estimator by its full name, not fitted, on one thread."""
    estimator, _, vectors = method.partition("-")
    if vectors:
        options["kernel_vectors"] = vectors
    return ESTIMATORS[estimator](random_state=seed, n_jobs=1, **options)


def recoded_error(model, X) -> float:
    """Error of signals coded anew, in the unit of `errors_`."""
    residuals = np.asarray(model.reconstruction_error(X), dtype=np.float64)
    return float(np.sqrt(np.sum(residuals**2) / (X.shape[0] * X.shape[1])))


def fit_and_score(method: str, X, seed: int) -> dict:
    """Errors, share of signals whose code is zero, and seconds of one fit."""
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
    """Errors of one fit whose codes use all atoms."""
    model = make_estimator(method, seed, n_components=N_COMPONENTS_DENSE, n_nonzero_coefs=N_COMPONENTS_DENSE)
    start = time.perf_counter()
    model.fit(X)
    seconds = time.perf_counter() - start
    # After every update that was made: `errors_` ends with the best model. Older versions have the one list.
    errors = getattr(model, "update_errors_", model.errors_)
    return {"errors": [float(error) for error in errors], "seconds": seconds}


def measure(fit, name: str, method: str, seed: int) -> dict:
    """What a fit gives, with the warnings seen on the way, or the text of the error it ends with."""
    run = {"set": name, "method": method, "seed": seed}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            run |= fit(method, load_set(name), seed)
        except Exception as error:  # Whatever it is, the other methods are still to be measured.
            run["failed"] = f"{type(error).__name__}: {error}"
    run["warnings"] = sorted({f"{item.category.__name__}: {item.message}" for item in caught})
    return run


def measure_set(name: str, methods: Sequence[str], seed: int, dense: bool) -> dict:
    """Runs of all methods on one set with one seed; nothing but the reason where the set is not there."""
    try:
        shape = load_set(name).shape
    except MissingDataError as error:
        return {"set": name, "missing": str(error)}
    runs = [measure(fit_and_score, name, method, seed) for method in methods]
    # MORKDL minimises its linear term too, so that its error may rise.
    reduced = [method for method in methods if method.startswith(("RKDL", "ORKDL"))] if dense else []
    return {
        "set": name,
        "shape": [int(size) for size in shape],
        "runs": runs,
        "dense_runs": [measure(fit_dense, name, method, seed) for method in reduced],
    }


def measure_all(names: Sequence[str], methods: Sequence[str], seeds: int, dense: bool, n_jobs: int = 2) -> dict:
    """Results of every set, in the order of the names, from processes of one thread each."""
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
    """Stored runs, looked up by set and method."""

    def __init__(self, stored: dict):
        self.stored = stored
        self.sets = stored["sets"]
        self.runs: dict[tuple[str, str], list[dict]] = {}
        for run in stored["runs"]:
            self.runs.setdefault((run["set"], run["method"]), []).append(run)
        self.methods = list(dict.fromkeys(run["method"] for run in stored["runs"]))

    def default(self, estimator: str) -> str:
        """Full name of a method with the kernel vectors that it chose by default when it was measured."""
        return estimator if estimator == "KDL" else f"{estimator}-{self.stored['defaults'][estimator]}"

    def values(self, name: str, method: str, key: str) -> list[float]:
        """One figure of every run that did not fail; ``error`` is the last of `errors_`."""
        runs = [run for run in self.runs.get((name, method), []) if "failed" not in run]
        return [run["errors"][-1] if key == "error" else run[key] for run in runs]

    def mean_error(self, name: str, method: str) -> float:
        """Mean of the last error over the seeds; nan where a fit failed."""
        runs, errors = self.runs.get((name, method), []), self.values(name, method, "error")
        return float(np.mean(errors)) if errors and len(errors) == len(runs) else np.nan

    def above_kdl(self, name: str, method: str) -> float:
        """Per cent that the mean error lies above KDL's."""
        return above(self.mean_error(name, method), self.mean_error(name, "KDL"))

    def recoded(self, name: str, method: str) -> list[float]:
        """Per cent that the error of signals coded anew lies above the last error, per seed."""
        pairs = zip(self.values(name, method, "recoded"), self.values(name, method, "error"), strict=True)
        return [above(recoded, error) for recoded, error in pairs]

    def warnings(self, name: str, method: str) -> list[str]:
        """Different warnings of all seeds."""
        return sorted({text for run in self.runs.get((name, method), []) for text in run["warnings"]})


def above(value: float, reference: float) -> float:
    """Per cent that a value lies above a reference; 0 where both are 0."""
    if reference == 0.0:
        return 0.0 if value == 0.0 else np.inf
    return 100.0 * (value / reference - 1.0)


def percent(value: float, digits: int = 0) -> str:
    """A signed percentage; powers of ten beyond 10,000, and a word where there is none."""
    if np.isnan(value):
        return "fails"
    if abs(value) >= 1e4:
        return f"{value:+.0e}"
    told = f"{value:+.{digits}f}"
    return told.lstrip("+-") if float(told) == 0.0 else told


def spread(values: Sequence[float], digits: int = 1) -> str:
    """Least and greatest of some percentages, once where they are the same."""
    if not values:
        return "fails"
    low, high = percent(min(values), digits), percent(max(values), digits)
    return low if low == high else f"{low} to {high}"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of a Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|---" * len(header) + "|"]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def size(results: Results, name: str) -> str:
    """Name and shape of a set."""
    n_signals, n_features = results.sets[name]
    return f"{name} ({n_signals} x {n_features})"


def error_table(results: Results) -> list[str]:
    """Mean errors of all methods relative to KDL's, in per cent."""
    groups = {e: [m for m in results.methods if m.partition("-")[0] == e] for e in REDUCED}
    groups = {estimator: methods for estimator, methods in groups.items() if methods}
    choices = [" / ".join(method.partition("-")[2] for method in methods) for methods in groups.values()]
    header = ["data", "KDL", *(f"{name} {told}" for name, told in zip(groups, choices, strict=True))]
    rows = []
    for name in results.sets:
        cells = [" / ".join(percent(results.above_kdl(name, m)) for m in methods) for methods in groups.values()]
        rows.append([size(results, name), f"{results.mean_error(name, 'KDL'):.3g}", *cells])
    return markdown(header, rows)


def comparison_table(before: Results, now: Results) -> list[str]:
    """Mean errors of the methods' defaults relative to KDL's, before and now, in per cent."""
    estimators = [e for e in REDUCED if now.default(e) in now.methods and before.default(e) in before.methods]
    header = ["data", "KDL before", "KDL now"]
    header += [f"{estimator} {when}" for estimator in estimators for when in ("before", "now")]
    rows = []
    for name in (name for name in now.sets if name in before.sets):
        cells = [f"{results.mean_error(name, 'KDL'):.3g}" for results in (before, now)]
        for estimator in estimators:
            cells += [percent(results.above_kdl(name, results.default(estimator))) for results in (before, now)]
        rows.append([size(now, name), *cells])
    return markdown(header, rows)


def recoded_table(results: Results) -> list[str]:
    """Per default method: per cent between the errors coded anew and learned, zero codes, warnings and seconds."""
    methods = [m for m in map(results.default, ESTIMATORS) if m in results.methods]
    header = ["data", *(f"{method.partition('-')[0]} {what}" for method in methods for what in ("anew", "zero, s"))]
    rows = []
    for name in results.sets:
        cells = []
        for method in methods:
            seconds, zeros = (results.values(name, method, key) or [np.nan] for key in ("seconds", "zero_codes"))
            told = f", warnings: {count}" if (count := len(results.warnings(name, method))) else ""
            cells += [spread(results.recoded(name, method))]
            cells += [f"{100.0 * np.mean(zeros):.0f} %, {np.median(seconds):.2f}{told}"]
        rows.append([name, *cells])
    return markdown(header, rows)


def tables(results: Results, before: Results | None) -> list[str]:
    """All tables, each with a sentence on what it shows."""
    n_families = len({FAMILY_OF.get(name, name) for name in results.sets})
    lines = [f"Version {results.stored['version']}, {len(results.sets)} sets of {n_families} families, seeds: "]
    lines[0] += f"{results.stored['seeds']}."
    if before is not None:
        lines += ["", "Error of each method with its defaults, in per cent above KDL's:", ""]
        lines += comparison_table(before, results)
        lines += ["", "The same before, for all kernel vectors:", "", *error_table(before)]
    lines += ["", "Error in per cent above KDL's, for all kernel vectors:", "", *error_table(results)]
    lines += [
        "",
        "Training signals coded anew, in per cent above the last of `errors_` (least to greatest of the seeds),",
    ]
    lines += ["share of signals whose code is zero, median seconds of a fit, and different warnings seen:", ""]
    return lines + recoded_table(results)


def failures(results: Results) -> Iterator[str]:
    """Fits that ended with an error."""
    for run in [*results.stored["runs"], *results.stored["dense_runs"]]:
        if "failed" in run:
            yield f"{run['set']}, {run['method']}, seed {run['seed']}: {run['failed']}"


def orkdl_above_rkdl(results: Results) -> Iterator[str]:
    """Sets and seeds where ORKDL ends above RKDL from the same kernel vectors."""
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
                yield f"{name}, {method}: {seeds_told(bad)}"


def seeds_told(values: dict[int, float]) -> str:
    """Percentages with their seeds."""
    return ", ".join(f"{percent(value, 1)} % (seed {seed})" for seed, value in values.items())


def defaults_above_kdl(results: Results) -> Iterator[str]:
    """Sets where the mean error of RKDL or ORKDL with their defaults is far above KDL's."""
    for estimator in ("RKDL", "ORKDL"):
        method = results.default(estimator)
        for name in results.sets:
            if (value := results.above_kdl(name, method)) > ABOVE_KDL:
                yield f"{name}, {method}: {percent(value, 1)} %"


def recoded_off(results: Results, is_above: bool) -> Iterator[str]:
    """Sets where the error of signals coded anew is above, or far below, the last error."""
    for name in results.sets:
        for method in results.methods:
            values = results.recoded(name, method)
            bad = [v for v in values if (v > RECODED_ABOVE if is_above else v < RECODED_BELOW)]
            if bad:
                yield f"{name}, {method}: {spread(bad)} % ({len(bad)} of {len(values)} seeds)"


def greatest_rise(errors: Sequence[float]) -> float:
    """Greatest relative rise from one error to the next, at least 0."""
    values = np.asarray(errors)
    scale = np.maximum(values[:-1], np.finfo(float).tiny)
    return float(np.max(np.diff(values) / scale, initial=0.0))


def objective_rises(results: Results) -> Iterator[str]:
    """Fits whose error rises although codes use all atoms."""
    rises: dict[tuple[str, str], list[float]] = {}
    for run in results.stored["dense_runs"]:
        if "failed" not in run:
            rises.setdefault((run["set"], run["method"]), []).append(greatest_rise(run["errors"]))
    for (name, method), values in rises.items():
        bad = [value for value in values if value > ROUNDING]
        if bad:
            yield f"{name}, {method}: by up to {max(bad):.1e} ({len(bad)} of {len(values)} seeds)"


def warnings_seen(results: Results) -> list[str]:
    """Every different warning with the methods and sets that gave it."""
    places: dict[str, dict[str, None]] = {}
    for (name, method), runs in results.runs.items():
        for text in {text for run in runs for text in run["warnings"]}:
            # Numbers differ between sets: a warning is the same if its other characters are.
            shape = re.sub(r"[-+]?\d[\d.,e+-]*", "#", text.split("\n")[0])
            places.setdefault(shape, {})[f"{name} {method}"] = None
    return [f"- {text} ({len(where)}: {', '.join(where)})" for text, where in places.items()]


def check(results: Results) -> list[str]:
    """Where each claim fails."""
    claims = {
        "No fit ends with an error": failures(results),
        f"(a) ORKDL at most {ORKDL_ABOVE_RKDL:g} % above RKDL from the same kernel vectors": orkdl_above_rkdl(results),
        f"(b) RKDL and ORKDL with their defaults within {ABOVE_KDL:g} % of KDL": defaults_above_kdl(results),
        f"(c) coded anew at most {RECODED_ABOVE:g} % above the last error": recoded_off(results, True),
        f"(c) coded anew not more than {-RECODED_BELOW:g} % below the last error": recoded_off(results, False),
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
    return [*lines, "", "Warnings seen, a number in them as #:", *warnings_seen(results)]


def write(results: Results, before: Results | None, page: Path = PAGE) -> None:
    """Put the tables between the marks ``any-data`` of the page."""
    put(page, "any-data", tables(results, before))


def chosen(text: str | None, everything: Sequence[str]) -> list[str]:
    """The names of a list separated by commas, or all of them."""
    return list(everything) if text is None else [part.strip() for part in text.split(",") if part.strip()]


def parse(argv=None) -> argparse.Namespace:
    """Arguments, with names of sets and methods that are known to exist."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.any_data", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", help=f"names separated by commas; of {', '.join(NAMES)}")
    parser.add_argument("--methods", help="names separated by commas, as KDL,RKDL,ORKDL-kmeans; KDL is always measured")
    parser.add_argument("--seeds", type=int, default=None, help="5, or 1 with --quick")
    parser.add_argument("--quick", action="store_true", help="one set per family and one seed")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--json", type=Path, help="file to store all runs in")
    parser.add_argument("--load", type=Path, help="file of stored runs to print instead of measuring")
    parser.add_argument("--before", type=Path, help="file of stored runs to print beside these")
    parser.add_argument("--check", action="store_true", help="list where the claims fail")
    parser.add_argument("--write", action="store_true", help=f"put the tables into docs/{PAGE.name}")
    arguments = parser.parse_args(argv)
    arguments.sets = chosen(arguments.sets, QUICK_NAMES if arguments.quick else NAMES)
    if unknown := set(arguments.sets) - set(NAMES):
        parser.error(f"unknown sets {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
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
    before = Results(json.loads(arguments.before.read_text())) if arguments.before else None
    for name, reason in stored["left_out"].items():
        print(f"{name} is left out: {reason}")
    print("\n".join(tables(results, before)))
    if arguments.check:
        print("\n".join(check(results)))
    if arguments.write:
        write(results, before)


if __name__ == "__main__":
    main()
