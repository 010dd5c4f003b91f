"""The options of the commands; what runs them is imported when they run."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

from rkdl import __version__
from rkdl._utils.text import shown

_METHODS = ("dl", "fourierdl", "kdl", "rkdl", "orkdl", "morkdl")
_DATA_HELP = """data:
  .csv, .tsv           a table, with or without a header line; without one, columns are called 1, 2, 3 ...
  .parquet             a table
  .npy, .npz, .mat     an array with one signal per row; further axes, as of images, are flattened. An .npz file
                       may hold several arrays, one of which --key selects, or a SciPy sparse matrix
  .zarr                an array, which is read chunk by chunk
  a folder             images, scaled to 0 ... 1; subfolders are classes

The columns of a table must be numeric, without missing values. --drop leaves columns out, --label names the column
of class labels, and --keep copies columns to the results. Rows are counted from 1. Tables, Zarr arrays and images
need optional libraries: pip install "rkdl[files]".
"""


def _number_or_word(text: str) -> float | str:
    """The type of an option that takes a number, or a word such as median."""
    with suppress(ValueError):
        return float(text)
    return text


def _option(text: str, metavar: str | tuple[str, str], kind: Callable | None = None, **more: object) -> dict:
    """Keywords of argparse for an option with a value."""
    return {"help": text, "metavar": metavar, "type": kind, **more}


def _flag(text: str) -> dict:
    return {"help": text, "action": "store_true", "default": None}


# Keywords of add_argument. Where an option differs between commands, the commands change them.
_OPTIONS: dict[str, dict[str, Any]] = {
    "model": _option("a file written by rkdl fit, or by save() in Python", "MODEL"),
    "data": _option("a file with one signal per row, or a folder of images", "DATA"),
    "--out": _option("", "FILE"),
    "--method": {"help": "method (default: orkdl)", "choices": _METHODS, "type": str.lower, "default": "orkdl"},
    "--atoms": _option("number of atoms (default: 20)", "N", int),
    "--nonzeros": _option("nonzero coefficients per signal (default: 4)", "N", int),
    "--gamma": _option("gamma of the kernel: a number, median or scale (default: median)", "GAMMA", _number_or_word),
    "--kernel-vectors": _option("number of kernel vectors (default: 50, or as many as atoms)", "N", int),
    "--kernel": {"help": "kernel (default: rbf)", "choices": ("rbf", "poly", "linear")},
    "--iterations": _option("maximum number of iterations (default: 30)", "N", int),
    "--decoder": _flag("also learn a decoder from codes to signals, for denoising with any kernel"),
    "--checkpoint": _option("save the state after every iteration; if the file exists, resume from it", "FILE"),
    "--device": _option("compute on this device, such as cuda (needs torch)", "DEVICE"),
    "--standardize": {
        "help": "scale columns by median and quartiles, as part of the model (default: for tables)",
        "action": argparse.BooleanOptionalAction,
    },
    "--noise": _option("standard deviation of the noise (default: unknown)", "SIGMA", float),
    "--train": _option("train on this data instead", "DATA"),
    "--test": _option("data to predict; the accuracy is printed if it has labels", "DATA"),
    "--cv": _option("print the accuracy in K-fold cross-validation", "K", int),
    "--model": _option("use a saved model instead of training", "MODEL"),
    "--save": _option("file to save the trained model to", "MODEL"),
    "--contamination": _option(
        "fraction of outliers, at most 0.5 (default: auto, determined from the scores)", "SHARE", _number_or_word
    ),
    "--top": _option("number of rows to print without --out (default: 10)", "N", int, default=10),
    "--sort": _flag("order the results by anomaly, the most abnormal row first"),
    "--explain": _flag("name the columns that make each row abnormal"),
    "--set": _option("set any other parameter; can be repeated", "NAME=VALUE", action="append", default=[]),
    "--seed": _option("random seed (default: 0)", "N", int, default=0),
    "--label": _option("column or array of class labels, or a .npy file of them", "NAME"),
    "--drop": _option("columns to ignore", "COLUMN", nargs="+", action="extend", default=[]),
    "--keep": _option("columns to copy to the results", "COLUMN", nargs="+", action="extend", default=[]),
    "--header": {
        "help": "whether the first line of a CSV file is a header (default: if it has no numbers, or they count up)",
        "action": argparse.BooleanOptionalAction,
    },
    "--key": _option("name of the array, if an .npz, .mat or .zarr file has several", "NAME"),
    "--color": _flag("keep the colours of images"),
    "--size": _option("resize images", ("WIDTH", "HEIGHT"), int, nargs=2),
    "--float32": _flag("compute in single precision"),
    "--n-jobs": _option("number of threads, or -1 for all cores", "J", int),
    "--quiet": _flag("print only warnings and errors"),
}
_SIZES = "--atoms --nonzeros --gamma"
_READING = "--label --drop --keep --header --key --color --size --float32 --n-jobs --quiet"


# Of every command: description, examples, options in order, and what it changes of them.
_COMMANDS: dict[str, tuple[str, str, str, dict[str, dict[str, object]]]] = {
    "fit": (
        "Learn a dictionary and save it for rkdl encode, rkdl denoise and rkdl.load() in Python.",
        "  rkdl fit data.csv --out model.rkdl\n"
        "  rkdl fit data.csv --method orkdl --atoms 50 --kernel-vectors 100 --out model.rkdl\n"
        "  rkdl fit photos/ --size 32 32 --out photos.rkdl\n",
        f"data --out --method {_SIZES} --kernel-vectors --kernel --iterations --decoder --standardize --checkpoint "
        f"--device --set --seed {_READING}",
        {"--out": {"required": True, "metavar": "MODEL", "help": "file to save the model to"}},
    ),
    "encode": (
        "Compute the sparse codes of signals with a saved dictionary.",
        "  rkdl encode model.rkdl new.csv --out codes.npz     a sparse matrix, for scipy.sparse.load_npz\n"
        "  rkdl encode model.rkdl new.csv --out codes.csv     one column per atom\n",
        f"model data --out {_READING}",
        {"--out": {"required": True, "help": "file for the codes: .npz (sparse), .npy, .zarr or a table"}},
    ),
    "denoise": (
        "Denoise signals with a saved dictionary.",
        "  rkdl denoise model.rkdl noisy.npy --noise 0.1 --out clean.npy\n"
        "  rkdl denoise photos.rkdl noisy/ --out clean/       images with the same names\n",
        f"model data --out --noise {_READING}",
        {"--out": {"required": True, "help": "file for the signals: .npy, .npz, .zarr, a table or a folder"}},
    ),
    "outliers": (
        "Compute an anomaly score for every row (higher is more abnormal) and mark outliers with 1.",
        "  rkdl outliers data.csv                              prints the most abnormal rows\n"
        "  rkdl outliers data.csv --explain --sort --keep id --out scores.csv\n"
        "  rkdl outliers new.csv --train normal.csv --out scores.csv --save detector.rkdl\n"
        "  rkdl outliers newer.csv --model detector.rkdl --out scores.csv\n",
        f"data --out --train --model --save --contamination --top --sort --explain --set --seed {_READING}",
        {"--out": {"help": "file for the scores: a table or .npz (default: print the top 10)"}},
    ),
    "classify": (
        "Train a classifier and predict labels.",
        "  rkdl classify train.csv --label class --cv 5        prints the accuracy in five folds\n"
        "  rkdl classify train.csv --label class --test new.csv --out predictions.csv\n"
        "  rkdl classify train.csv --label class --save model.rkdl\n"
        "  rkdl classify new.csv --model model.rkdl --out predictions.csv\n"
        "  rkdl classify photos/ --size 32 32 --test new/ --out predictions.csv\n",
        f"data --out --test --cv --model --save {_SIZES} --kernel-vectors --standardize --set --seed {_READING}",
        {
            "--out": {"help": "file for predictions and probabilities: a table or .npz"},
            "--atoms": {"help": "number of atoms per class (default: 8)"},
            "--nonzeros": {"help": "nonzero coefficients per signal and class (default: 3)"},
            "--kernel-vectors": {"help": "number of kernel vectors (default: 200)"},
        },
    ),
}


class _Parser(argparse.ArgumentParser):
    """A parser that prints errors on one line."""

    def error(self, message: str) -> NoReturn:
        text = shown(" ".join(message.split()))
        if text.endswith("required: DATA"):
            # As in `rkdl fit --drop id data.csv`, where the file counts as a column to drop.
            text += "; give it before --drop and --keep, which take all names that follow them"
        self.exit(2, f"{self.prog}: error: {text} (see {self.prog} --help)\n")


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    top = _Parser(prog="rkdl", description="Sparse coding, denoising, outlier detection, classification.")
    top.add_argument("--version", action="version", version=f"rkdl {__version__}", help="print the version and exit")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, (description, examples, options, changes) in _COMMANDS.items():
        parser = commands.add_parser(
            name,
            help=description,
            description=description,
            epilog=f"examples:\n{examples}\n{_DATA_HELP}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        parser.set_defaults(command=name)
        for option in options.split():
            parser.add_argument(option, **{**_OPTIONS[option], **changes.get(option, {})})
    return top
