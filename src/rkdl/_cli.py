"""The command ``rkdl``; subcommands import what they need when they run, so that --help is fast."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from rkdl._reproduction.paper import METHODS, PRESETS
from rkdl._utils.text import shown

_EXAMPLES = """examples:
  rkdl reproduce                                  scikit-learn's digits, which need no download
  rkdl reproduce mnist cifar10 --rounds 3
  rkdl reproduce mnist --preset rkdl --methods KDL MORKDL-D --out mine
  rkdl reproduce signals.npy --out signals        which method for your signals, and how many kernel vectors:
                                                  any .npy, .npz, .csv, .parquet or .mat file

An interrupted run resumes when the same command is given again. The tables and the page show all results in
the folder, so data sets, presets, methods and rounds can be added by further commands.
"""


class _Parser(argparse.ArgumentParser):
    """A parser that prints errors on one line."""

    def error(self, message: str) -> NoReturn:
        text = shown(" ".join(message.split()))
        self.exit(2, f"{self.prog}: error: {text} (see {self.prog} --help)\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with arguments, by default those of the process.

    Returns 0 on success, 2 for invalid options, files or data, 130 after Ctrl-C.
    """
    try:
        options = _parser().parse_args(argv)
    except SystemExit as end:
        return int(end.code or 0)
    try:
        return options.run(options)
    except KeyboardInterrupt:
        _complain("rkdl: interrupted")
        return 130
    except BrokenPipeError:
        # The pipe's reader has gone; avoid a second error when Python flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ValueError, OSError, MemoryError) as error:
        _complain(f"rkdl: error: {_one_line(error)}")
        return 2


def _complain(text: str) -> None:
    if sys.stderr is not None:  # None if closed before Python started; print would then use stdout
        print(shown(text), file=sys.stderr)


def _one_line(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return "not enough memory; exclude KDL with --methods, or use fewer signals"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="rkdl", description="Reduced kernel dictionary learning.")
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_reproduce(commands)
    return parser


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *rest: Any) -> None:
        from rkdl import __version__

        print(f"rkdl {__version__}")
        parser.exit(0)


def _add_reproduce(commands: Any) -> None:
    parser = commands.add_parser(
        "reproduce",
        help="repeat the paper's experiments and check its claims, or find the method for your own signals",
        description="Repeat the experiments of 'Reduced Kernel Dictionary Learning' and check the paper's claims; or, "
        "given a file of signals, find out which method represents them best and with how many kernel vectors.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=_reproduce)
    parser.add_argument(
        "datasets",
        nargs="*",
        metavar="DATASET",
        help="digits (the default), mnist, mnist-5000, cifar10, or a file of signals, one per row",
    )
    parser.add_argument(
        "--rounds",
        type=_positive,
        metavar="N",
        help="rounds, each with its own seed (default 10; 3 for digits and files)",
    )
    parser.add_argument(
        "--preset",
        nargs="+",
        type=_preset,
        metavar="PRESET",
        help="; ".join(f"{name}: {meaning}" for name, meaning in PRESETS.items())
        + " (default: all of them; for files none, but this library's methods for several numbers of kernel vectors)",
    )
    parser.add_argument(
        "--methods",
        nargs="+",
        type=_method,
        default=list(METHODS),
        metavar="METHOD",
        help=f"{', '.join(METHODS)} (default: all; published and restricted have the paper's four)",
    )
    parser.add_argument(
        "--iterations", type=_positive, metavar="N", help="number of iterations (default: the preset's)"
    )
    parser.add_argument("--seed", type=_seed, default=0, metavar="N", help="seed of the first round (default 0)")
    parser.add_argument("--label", type=int, metavar="L", help="class of digits, mnist or cifar10")
    parser.add_argument(
        "--out", default="reproduction", metavar="DIR", help="folder for results (default: ./reproduction)"
    )
    parser.add_argument(
        "--no-scaling", action="store_true", help="do not scale the signals of files to unit norm, as the paper does"
    )
    parser.add_argument("--fresh", action="store_true", help="discard existing results in DIR")
    parser.add_argument("--data-dir", metavar="DIR", help="folder of data files (default: RKDL_DATA, or ~/rkdl_data)")
    parser.add_argument("--no-download", action="store_true", help="never download missing data")
    parser.add_argument(
        "--n-jobs", type=_jobs, metavar="J", help="threads, -1 for all cores (default: as many as BLAS may use)"
    )
    parser.add_argument("--float64", action="store_true", help="double precision, which published always uses")
    parser.add_argument("--quiet", action="store_true", help="no progress bar or tables, only the page's path")


def _reproduce(options: argparse.Namespace) -> int:
    from rkdl._reproduction.command import reproduce

    return reproduce(options)


def _positive(text: str) -> int:
    return _integer(text, "an integer of at least 1", lambda number: number >= 1)


def _seed(text: str) -> int:
    return _integer(text, "an integer from 0 to 2**31 - 1", lambda number: 0 <= number < 2**31)


def _jobs(text: str) -> int:
    return _integer(text, "an integer other than 0", lambda number: number != 0)


def _integer(text: str, expected: str, is_valid: Any) -> int:
    try:
        number = int(text)
    except ValueError:
        number = None
    if number is None or not is_valid(number):
        raise argparse.ArgumentTypeError(f"{text!r} is not {expected}")
    return number


def _preset(text: str) -> str:
    if text not in PRESETS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a preset; choose from {', '.join(PRESETS)}, and put data sets before the options"
        )
    return text


def _method(text: str) -> str:
    for method in METHODS:
        if text.lower() == method.lower():
            return method
    raise argparse.ArgumentTypeError(
        f"{text!r} is not a method; choose from {', '.join(METHODS)}, and put data sets before the options"
    )
