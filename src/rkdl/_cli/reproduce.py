"""The parser of ``rkdl reproduce``."""

from __future__ import annotations

import argparse
from typing import Any

from rkdl._cli.options import jobs, positive, seed
from rkdl._reproduction.paper import METHODS, PRESETS

_EXAMPLES = """examples:
  rkdl reproduce                                  scikit-learn's digits, which need no download
  rkdl reproduce mnist cifar10 --rounds 3
  rkdl reproduce mnist --preset rkdl --methods KDL MORKDL-D --out mine
  rkdl reproduce signals.npy --out signals        which method for your signals, and how many kernel vectors:
                                                  any .npy, .npz, .csv, .parquet or .mat file

An interrupted run resumes when the same command is given again. The tables and the page show all results in
the folder, so data sets, presets, methods and rounds can be added by further commands.
"""


def add_reproduce(commands: Any) -> None:
    """Add the command to the parser."""
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
        type=positive,
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
    parser.add_argument("--iterations", type=positive, metavar="N", help="number of iterations (default: the preset's)")
    parser.add_argument("--seed", type=seed, default=0, metavar="N", help="seed of the first round (default 0)")
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
        "--n-jobs", type=jobs, metavar="J", help="threads, -1 for all cores (default: as many as BLAS may use)"
    )
    parser.add_argument("--float64", action="store_true", help="double precision, which published always uses")
    parser.add_argument("--quiet", action="store_true", help="no progress bar or tables, only the page's path")


def _reproduce(options: argparse.Namespace) -> int:
    from rkdl._reproduction.command import reproduce

    return reproduce(options)


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
