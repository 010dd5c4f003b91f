"""The parsers of the commands on one's own data; what runs them is imported when they run."""

from __future__ import annotations

import argparse
from typing import Any

from rkdl._cli.options import jobs, positive, seed

METHODS = ("dl", "fourierdl", "kdl", "rkdl", "orkdl", "morkdl")

_DATA_HELP = """data:
  .csv, .tsv           a table, with or without a header line; without one, columns are called 1, 2, 3 ...
  .parquet             a table (needs pyarrow)
  .npy, .npz, .mat     an array with one signal per row; further axes, as of images, are flattened.
                       An .npz file may hold several arrays, of which --key names one, or a SciPy sparse matrix
  .zarr                an array, read chunk by chunk (needs zarr)
  a folder             of images (needs Pillow), scaled to 0 ... 1; subfolders are classes

Columns must be numbers without gaps. --drop leaves columns out, --label names the one with the classes, and
--keep copies columns to the results. The optional libraries come with pip install "rkdl[files]".
"""


def add_commands(commands: Any) -> None:
    """Add the commands to the parser."""
    _add_fit(commands)
    _add_encode(commands)
    _add_denoise(commands)
    _add_outliers(commands)
    _add_classify(commands)


def _add(commands: Any, name: str, run: str, short: str, description: str, examples: str) -> argparse.ArgumentParser:
    """A command whose function `run` of a module of this package is imported when it runs."""

    def start(options: argparse.Namespace) -> int:
        from importlib import import_module

        module, function = run.split(":")
        return getattr(import_module(f"rkdl._cli.{module}"), function)(options)

    parser = commands.add_parser(
        name,
        help=short,
        description=description,
        epilog=f"examples:\n{examples}\n{_DATA_HELP}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(run=start)
    return parser


def _add_fit(commands: Any) -> None:
    parser = _add(
        commands,
        "fit",
        "dictionaries:fit",
        "learn a dictionary from your signals and save it",
        "Learn a dictionary and save it to a file, which encode, denoise and rkdl.load() in Python read.",
        "  rkdl fit data.csv --out model.rkdl\n"
        "  rkdl fit data.csv --method orkdl --atoms 50 --kernel-vectors 100 --out model.rkdl\n"
        "  rkdl fit photos/ --size 32 32 --out photos.rkdl\n",
    )
    _add_data(parser)
    parser.add_argument("--out", required=True, metavar="MODEL", help="file for the model")
    parser.add_argument(
        "--method", choices=METHODS, type=str.lower, default="orkdl", help="what to learn (default: orkdl)"
    )
    _add_sizes(parser)
    parser.add_argument("--kernel-vectors", type=positive, metavar="N", help="number of kernel vectors (default 50)")
    parser.add_argument("--kernel", choices=("rbf", "poly", "linear"), help="the kernel (default: rbf)")
    parser.add_argument("--iterations", type=positive, metavar="N", help="maximum number of iterations (default 30)")
    parser.add_argument(
        "--decoder", action="store_true", help="also learn to turn codes back into signals, for any kernel"
    )
    parser.add_argument("--checkpoint", metavar="FILE", help="write every iteration here, and resume from it")
    parser.add_argument("--device", metavar="DEVICE", help="cuda to compute on a GPU (needs torch)")
    parser.add_argument("--standardize", action=_NoScaling, nargs=0, help=argparse.SUPPRESS)
    _add_learning(parser)
    _add_reading(parser)


def _add_encode(commands: Any) -> None:
    parser = _add(
        commands,
        "encode",
        "dictionaries:encode",
        "compute sparse codes of signals",
        "Compute the sparse codes of signals with a saved dictionary.",
        "  rkdl encode model.rkdl new.csv --out codes.npz     a sparse matrix: scipy.sparse.load_npz reads it\n"
        "  rkdl encode model.rkdl new.csv --out codes.csv     a column per atom\n",
    )
    _add_model(parser)
    _add_data(parser)
    parser.add_argument(
        "--out", required=True, metavar="FILE", help="codes: .npz (sparse), .npy, .zarr, .csv, .tsv or .parquet"
    )
    _add_reading(parser)


def _add_denoise(commands: Any) -> None:
    parser = _add(
        commands,
        "denoise",
        "dictionaries:denoise",
        "replace signals by what a dictionary represents of them",
        "Replace signals by what a saved dictionary represents of them.",
        "  rkdl denoise model.rkdl noisy.npy --noise 0.1 --out clean.npy\n"
        "  rkdl denoise photos.rkdl noisy/ --out clean/       images of the same names\n",
    )
    _add_model(parser)
    _add_data(parser)
    parser.add_argument(
        "--out",
        required=True,
        metavar="FILE",
        help="signals: .npy, .npz, .zarr, .csv, .tsv or .parquet; for images also a folder",
    )
    parser.add_argument(
        "--noise",
        type=float,
        metavar="SIGMA",
        help="standard deviation of the noise; without it, the number of nonzeros of the model limits what is kept",
    )
    _add_reading(parser)


def _add_outliers(commands: Any) -> None:
    parser = _add(
        commands,
        "outliers",
        "decisions:outliers",
        "find outliers among your signals",
        "Score every signal (higher anomaly is more abnormal) and mark the outliers with 1.",
        "  rkdl outliers data.csv                              prints the most abnormal rows\n"
        "  rkdl outliers data.csv --standardize --keep id --out scores.csv\n"
        "  rkdl outliers new.csv --train normal.csv --out scores.csv --save detector.rkdl\n"
        "  rkdl outliers newer.csv --model detector.rkdl --out scores.csv\n",
    )
    _add_data(parser)
    parser.add_argument("--out", metavar="FILE", help="scores: .csv, .tsv, .parquet or .npz (default: print some)")
    parser.add_argument("--train", metavar="DATA", help="learn from these signals instead")
    parser.add_argument("--model", metavar="MODEL", help="use a saved detector instead of learning one")
    parser.add_argument("--save", metavar="MODEL", help="file for the detector")
    parser.add_argument(
        "--contamination",
        type=_contamination,
        metavar="SHARE",
        help="share of outliers, above 0 and at most 0.5 (default: auto, from the scores)",
    )
    parser.add_argument(
        "--top", type=positive, default=10, metavar="N", help="signals that are printed without --out (default 10)"
    )
    _add_standardize(parser)
    _add_learning(parser)
    _add_reading(parser)


def _add_classify(commands: Any) -> None:
    parser = _add(
        commands,
        "classify",
        "decisions:classify",
        "learn to tell classes, and predict those of new signals",
        "Learn one dictionary per class, and predict the class that represents a signal best.",
        "  rkdl classify train.csv --label class --cv 5        prints the accuracy in five folds\n"
        "  rkdl classify train.csv --label class --test new.csv --out predictions.csv\n"
        "  rkdl classify train.csv --label class --save model.rkdl\n"
        "  rkdl classify new.csv --model model.rkdl --out predictions.csv\n"
        "  rkdl classify photos/ --size 32 32 --test new/ --out predictions.csv\n",
    )
    _add_data(parser)
    parser.add_argument("--out", metavar="FILE", help="predictions and probabilities: .csv, .tsv, .parquet or .npz")
    parser.add_argument(
        "--test", metavar="DATA", help="signals to predict; if they have labels, the accuracy is printed"
    )
    parser.add_argument("--cv", type=_folds, metavar="K", help="print the accuracy in a K-fold cross-validation")
    parser.add_argument("--model", metavar="MODEL", help="use a saved classifier instead of learning one")
    parser.add_argument("--save", metavar="MODEL", help="file for the classifier")
    parser.add_argument(
        "--method", choices=METHODS, type=str.lower, help="how dictionaries are learned (default: rkdl)"
    )
    _add_sizes(parser, "atoms per class (default 64)", 5)
    _add_standardize(parser)
    _add_learning(parser)
    _add_reading(parser)


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a file that rkdl fit, or save() in Python, wrote")


def _add_data(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", metavar="DATA", help="a file of signals, one per row, or a folder of images")


def _add_sizes(parser: argparse.ArgumentParser, atoms: str = "atoms (default 20)", nonzeros: int = 4) -> None:
    parser.add_argument("--atoms", type=positive, metavar="N", help=f"number of {atoms}")
    parser.add_argument(
        "--nonzeros", type=positive, metavar="N", help=f"nonzero coefficients per signal (default {nonzeros})"
    )
    parser.add_argument(
        "--gamma", type=_gamma, metavar="GAMMA", help="the kernel's gamma: a number, median or scale (default: median)"
    )


def _add_standardize(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--standardize", action="store_true", help="scale columns to mean 0 and variance 1, as in the training data"
    )


class _NoScaling(argparse.Action):
    """Explains why a command does not standardise, to those who know the option from other commands."""

    def __call__(self, parser: argparse.ArgumentParser, *rest: Any) -> None:
        parser.error(
            "there is no --standardize here, because a model file holds no scaling: standardise the columns in the "
            "file beforehand, or use a scikit-learn pipeline in Python"
        )


def _add_learning(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="set any other parameter of the estimator; may be repeated",
    )
    parser.add_argument("--seed", type=seed, default=0, metavar="N", help="seed (default 0)")


def _add_reading(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("reading")
    group.add_argument(
        "--label", metavar="NAME", help="column or array with the classes, or a .npy or .csv file of them"
    )
    group.add_argument("--drop", nargs="+", default=[], metavar="COLUMN", help="columns to ignore")
    group.add_argument("--keep", nargs="+", default=[], metavar="COLUMN", help="columns to copy to the results")
    group.add_argument("--key", metavar="NAME", help="name of the array in an .npz, .mat or .zarr file with several")
    group.add_argument("--color", action="store_true", help="keep the colours of images")
    group.add_argument("--size", nargs=2, type=positive, metavar=("WIDTH", "HEIGHT"), help="resize images")
    group.add_argument("--float32", action="store_true", help="compute in single precision")
    parser.add_argument("--n-jobs", type=jobs, metavar="J", help="threads, -1 for all cores")
    parser.add_argument("--quiet", action="store_true", help="print nothing but warnings and errors")


def _gamma(text: str) -> float | str:
    if text in ("median", "scale"):
        return text
    return _number(text, "a positive number, median or scale", lambda value: 0.0 < value < float("inf"))


def _contamination(text: str) -> float | str:
    return text if text == "auto" else _number(text, "above 0 and at most 0.5", lambda value: 0.0 < value <= 0.5)


def _number(text: str, expected: str, is_valid: Any) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not is_valid(value):
        raise argparse.ArgumentTypeError(f"{text!r} is not {expected}")
    return value


def _folds(text: str) -> int:
    number = positive(text)
    if number < 2:
        raise argparse.ArgumentTypeError("there are at least 2 folds")
    return number
