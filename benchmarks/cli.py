"""The command line: parse arguments, run the cases, write the report."""

from __future__ import annotations

import argparse
import datetime
import time
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import machine, peers, report
from benchmarks.cases import ALIASES, CASES
from benchmarks.data import MissingDataError
from benchmarks.environment import ROOT
from benchmarks.rows import FAILED, SKIPPED, Figure, Row
from benchmarks.settings import Settings


def run(arguments: Sequence[str]) -> int:
    """Run the cases, print the table, save it; returns the exit code."""
    options = _parser().parse_args(arguments)
    settings = Settings(options.tiny, options.repeat or (1 if options.tiny else 5), options.data_dir)
    names = list(dict.fromkeys(name for given in options.cases or CASES for name in ALIASES.get(given, [given])))
    head: dict[str, Any] = {
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "tiny": settings.tiny,
        "repeat": settings.repeat,
        "cases": names,
        "versions": machine.versions(),
        "peers": {},
        # Read before anything runs, so that the load is that of other processes.
        "machine": machine.describe(),
    }
    for peer in peers.find_all().values():
        head["peers"][peer.key] = {"version": peer.version, "available": peer.available, "reason": peer.reason}
        print(f"{peer.name}: {peer.version}" if peer.available else f"{peer.name}: not available, {peer.reason}")
    head["machine"]["libraries"] = machine.describe()["libraries"]
    rows: list[Row] = []
    for name in names:
        head["limits"] = machine.measure_limits(settings.tiny)
        start = time.perf_counter()
        found = list(_rows(name, settings))
        rows += found
        print(f"\n== {name}, {time.perf_counter() - start:.1f} s\n\n{report.as_text(found)}", flush=True)
        # Saved after every case, so that an interrupted run leaves its results so far.
        saved = report.save(rows, head, options.out)
    if options.write:
        report.write_documents(rows, head, ROOT)
    print("", *report.summary(rows), f"Saved {saved[0]} and {saved[1]}.", sep="\n")
    return 0


def _rows(name: str, settings: Settings) -> Iterator[Row]:
    """Rows of a case; if it cannot run, a row that says why."""
    try:
        yield from CASES[name](settings)
    except MissingDataError as error:
        yield Figure(name, "the whole case", status=SKIPPED, reason=str(error))
    except Exception as error:
        traceback.print_exc()
        yield Figure(name, "the rest of the case", status=FAILED, reason=f"{type(error).__name__}: {error}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Time rkdl and its peers on the same inputs."
    )
    parser.add_argument(
        "cases",
        nargs="*",
        metavar="CASE",
        type=_case,
        help=f"{', '.join(CASES)}, or {', '.join(ALIASES)}; all by default",
    )
    parser.add_argument("--repeat", type=_positive, metavar="K", help="timings per contender (default 5)")
    parser.add_argument(
        "--out", type=Path, default=Path("results"), metavar="DIR", help="output folder (default: results)"
    )
    parser.add_argument("--write", action="store_true", help="write the tables into docs/benchmarks.md and README.md")
    parser.add_argument("--tiny", action="store_true", help="tiny inputs, to check the benchmark itself")
    parser.add_argument("--data-dir", metavar="DIR", help="folder with MNIST (default: the variable RKDL_DATA)")
    return parser


def _case(name: str) -> str:
    if name not in CASES and name not in ALIASES:
        raise argparse.ArgumentTypeError(f"{name!r} is not a case; choose from {', '.join([*CASES, *ALIASES])}")
    return name


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"the number of timings must be at least 1, got {value}")
    return value
