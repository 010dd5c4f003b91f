"""The command line: parse arguments, run the tests and the cases, write the report."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks import gpu
from benchmarks.data import MissingDataError
from benchmarks.environment import ROOT
from benchmarks.gpu import CASES
from benchmarks.gpu.long_codes import use_peer
from benchmarks.gpu.machine import Machine
from benchmarks.gpu.report import Report

PAGE = ROOT / "docs" / "gpu.md"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tests and the cases, print the tables, save them; returns the exit code."""
    options = _parser().parse_args(arguments)
    if options.device != "cpu" and not torch.cuda.is_available():
        _say("no CUDA GPU found; use --device cpu --small to try the code")
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    if not options.no_tests and not _tests_pass():
        _say("the tests failed; nothing was measured")
        return 1
    if options.peer is not None:
        if not (options.peer / "orthogonal_matching_pursuit_gpu").is_dir():
            _say(f"--peer {options.peer} has no folder orthogonal_matching_pursuit_gpu: give the folder of its sources")
            return 2
        use_peer(options.peer)
    machine = Machine(options.device, options.small)
    report = Report(machine, options.out)
    if report.had_others:
        _say(f"{options.out} has results of another machine or other inputs, which this run replaces")
    for case in options.only or CASES:
        _measure(case, machine, report)
    print(report.text(), report.targets(), sep="\n\n")
    if options.write:
        report.write_page(PAGE)
    return 0


def _measure(case: str, machine: Machine, report: Report) -> None:
    """Run a case; every row is printed and saved as soon as it is there, in case the run is stopped."""
    rows = []
    try:
        for row in CASES[case](machine, report.folder):
            print(" | ".join(row.cells), file=sys.stderr, flush=True)
            report.add(case, row)
            rows.append(row)
    except MissingDataError as error:
        _say(f"{case} skipped: {error}")
        return
    report.finish(case, rows)
    print(f"{case} done", file=sys.stderr, flush=True)


def _tests_pass() -> bool:
    tests = str(ROOT / "tests" / "test_torch.py")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tests]
    return subprocess.run(command, check=False).returncode == 0


def _say(message: str) -> None:
    print(f"benchmarks.gpu: {message}", file=sys.stderr, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.gpu",
        description=gpu.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, default=Path("results/gpu"), help="output folder")
    parser.add_argument("--device", default="cuda", help="cuda, or cpu to try the code")
    parser.add_argument("--only", choices=list(CASES), action="append", help="measure this case only; may be repeated")
    parser.add_argument("--peer", type=Path, help="folder with the sources of orthogonal-matching-pursuit-gpu")
    parser.add_argument("--small", action="store_true", help="small inputs")
    parser.add_argument("--no-tests", action="store_true", help="skip the tests")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/gpu.md")
    return parser
