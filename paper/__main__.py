"""``python -m paper [DATASET ...]``: repeat the paper's experiments, check its claims and write a report."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from paper.data import NAMES, load
from paper.report import write_report
from paper.runs import plan, read_all, run_all
from paper.settings import COLUMNS, METHODS


def main(argv: Sequence[str] | None = None) -> int:
    """Run the experiments, write the report and print its beginning."""
    parser = argparse.ArgumentParser(prog="python -m paper", description=str(__doc__).partition(": ")[2].capitalize())
    add = parser.add_argument
    add("datasets", nargs="*", help=f"{', '.join(NAMES)}, or the .mat file of MATLAB's Digits (default: digits)")
    add("--rounds", type=int, default=3, metavar="N", help="rounds, each with its own seed (default: 3)")
    add("--columns", nargs="+", choices=COLUMNS, default=list(COLUMNS), help="columns of the tables (default: all)")
    add("--methods", nargs="+", choices=METHODS, default=list(METHODS), help="methods (default: all)")
    add("--out", type=Path, default=Path("reproduction"), help="folder for runs and report (default: ./reproduction)")
    add("--data-dir", help="folder of data files (default: RKDL_DATA, or ~/rkdl_data)")
    add("--fresh", action="store_true", help="discard the runs in the folder; use it after a change of the code")
    add("--quiet", action="store_true", help="print nothing but the report's path")
    options = parser.parse_args(argv)
    if options.rounds < 1:
        parser.error("--rounds must be at least 1")
    if options.fresh:
        shutil.rmtree(options.out / "runs", ignore_errors=True)
    found = {}
    for name in dict.fromkeys(options.datasets or ["digits"]):
        try:
            data = load(name, options.data_dir)
        except (ValueError, OSError, ImportError) as error:
            parser.error(f"{name}: {error}")
        units = plan(options.rounds, len(data.signals), options.columns, options.methods)
        try:
            run_all(options.out, name, data, units, options.quiet)
        except KeyboardInterrupt:
            print("interrupted; completed runs are kept, and the command resumes without --fresh", file=sys.stderr)
            return 130
        found[name] = data, read_all(options.out, name, units)
    page, summary = write_report(options.out, found)
    print(page if options.quiet else f"{summary}\n\nReport: {page}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
