"""Data and models from a user's files, and the parameters of estimators."""

from __future__ import annotations

import ast
import os
import re
import sys
from argparse import Namespace
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline

from rkdl._estimators.saving import load
from rkdl._execution.config import ON_ROWS
from rkdl._learning.loop import progress
from rkdl._utils.text import shown
from rkdl.datasets import DatasetError
from rkdl.datasets._errors import as_path, reading, require
from rkdl.datasets._files import TABLE_SUFFIXES, Rows, listed, read_arrays, read_table, table_numbers

if TYPE_CHECKING:
    from PIL.ImageFile import ImageFile

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".pgm", ".ppm", ".webp")
# Kinds of input that the options for reading apply to.
_TABLES, _ARRAYS, _FOLDERS = "tables", "files of arrays", "folders of images"
_APPLY_TO = {
    "label": (_TABLES, _ARRAYS),
    "drop": (_TABLES,),
    "keep": (_TABLES,),
    "header": (_TABLES,),
    "key": (_ARRAYS,),
    "color": (_FOLDERS,),
    "size": (_FOLDERS,),
}
KINDS = ("DL", "FourierDL", "KDL", "RKDL", "ORKDL", "MORKDL")
# Their names on the command line.
CLASS_OF = {kind.lower(): kind for kind in KINDS}
# Options that set parameters.
_PARAMETERS = {
    "atoms": "n_components",
    "nonzeros": "n_nonzero_coefs",
    "kernel_vectors": "n_kernel_vectors",
    "iterations": "max_iter",
    "decoder": "fit_inverse_transform",
    **{name: name for name in ("kernel", "gamma", "contamination", "n_jobs", "device")},
}


@dataclass(frozen=True)
class Inputs:
    """Signals (n_signals, n_features), and what is known about them."""

    path: Path
    unit: Literal["rows", "signals", "images"]  # the word for the samples
    X: Rows
    names: list[str] | None = None  # of the features, if the file has names
    columns: list[str] | None = None  # of a table, which are numbers if it has no names
    y: np.ndarray | None = None  # labels (n_signals,)
    # Columns that identify the signals in results: row numbers from 1, file names, or the columns of --keep.
    ids: Mapping[str, Sequence[object]] = field(default_factory=dict)
    # Height and width, and three for colours, of images, whose values are from 0 to 1.
    image_shape: tuple[int, ...] | None = None

    def check_results(self, names: Collection[str]) -> None:
        """Refuse to copy a column to results that have one of the same name."""
        taken = sorted(set(self.ids) & set(names))
        if taken:
            what = f"the results have a column {taken[0]!r} of their own"
            raise DatasetError(self.path, what, "rename the column in the file, or leave it out of --keep")


def read_inputs(
    name: str, options: Namespace, model_names: Sequence[str] | None = None, *, is_new: bool = False
) -> Inputs:
    """Read a file or a folder.

    `model_names` are the columns that a model was fitted on; others of a table are ignored. Labels may be missing from
    new data.
    """
    path = as_path(name)
    if not os.path.exists(path):
        raise DatasetError(path, "there is no such file or folder", "check the path")
    suffix = path.suffix.lower()
    kind = _TABLES if suffix in TABLE_SUFFIXES else _FOLDERS if path.is_dir() and suffix != ".zarr" else _ARRAYS
    for option, kinds in _APPLY_TO.items():
        if kind not in kinds and getattr(options, option) not in (None, []):
            note = ": classes of images are the subfolders that they are in" if option == "label" else ""
            raise ValueError(f"--{option} is for {' and '.join(kinds)}, which {path.name} is not{note}")
    if kind == _TABLES:
        inputs = _read_columns(path, options, model_names, is_new)
    elif kind == _FOLDERS:
        signals, files, labels, shape = _read_images(path, options.size, bool(options.color))
        inputs = Inputs(path, "images", signals, y=labels, ids={"file": files}, image_shape=shape)
    else:
        X, labels = read_arrays(path, options.key, [] if options.label is None else [options.label])
        if labels is None and options.label is not None:
            labels = _read_labels(path, options.label, is_new)
        inputs = Inputs(path, "signals", X, y=labels)
    X = inputs.X
    if options.float32 and X.dtype != np.float32:
        X = X.astype(np.float32) if hasattr(X, "astype") else np.asarray(X[:], dtype=np.float32)
    if inputs.y is not None and len(inputs.y) != X.shape[0]:
        raise DatasetError(path, f"there are {X.shape[0]} signals and {len(inputs.y)} labels", "give one per signal")
    return replace(inputs, X=X, ids=inputs.ids or {"row": range(1, X.shape[0] + 1)})


def _read_columns(path: Path, options: Namespace, model_names: Sequence[str] | None, is_new: bool) -> Inputs:
    """Features of the columns of a table, with the labels and what identifies the rows."""
    table = read_table(path, header=options.header, text=(options.label, *options.keep))
    # Without a header, columns are called by their numbers.
    has_names = any(isinstance(name, str) for name in table.columns)
    names = [str(name) for name in table.columns]
    table.columns = names
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise DatasetError(path, f"several columns are called {listed(repeated)}", "give each a name of its own")
    if not len(table):
        raise DatasetError(path, "the table has no rows")
    wanted = [*(options.drop if model_names is None else model_names), *options.keep]
    wanted += [] if options.label is None or is_new else [options.label]
    if own := sorted(set(options.drop).intersection([] if model_names is None else model_names)):
        raise DatasetError(path, f"the model was fitted on {listed(own)}", "leave it out of --drop, or fit without it")
    known = set(names)
    lacking = [name for name in wanted if name not in known]
    if lacking:
        is_kept = model_names is None or lacking[0] in options.keep
        fitted = "" if is_kept else ", which the model was fitted on"
        columns = f"is no column {lacking[0]!r}" if len(lacking) == 1 else f"are no columns {listed(lacking)}"
        raise DatasetError(path, f"there {columns}{fitted}", f"its columns are {listed(names)}")
    left_out = {options.label, *options.drop, *options.keep}
    features = [name for name in names if name not in left_out] if model_names is None else list(model_names)
    if not features:
        raise DatasetError(path, "no column is left to learn from")
    y = _as_labels(path, table[options.label].to_numpy()) if options.label in names else None
    ids = {name: table[name].tolist() for name in options.keep if name in names}
    named = features if has_names else None
    return Inputs(path, "rows", table_numbers(path, table[features]), named, features, y, ids)


def _read_images(
    folder: Path, size: tuple[int, int] | None, has_color: bool
) -> tuple[np.ndarray, list[str], np.ndarray | None, tuple[int, ...]]:
    """Read images of one size, grey unless colours are to be kept.

    Returns signals from 0 to 1, file names, labels (the subfolders, None if there are none) and the shape of an image.
    """
    files = sorted(file for file in folder.rglob("*") if file.suffix.lower() in IMAGES and file.is_file())
    if not files:
        raise DatasetError(folder, "there are no images in this folder", f"their endings are {', '.join(IMAGES)}")
    image_module = require(folder, "PIL.Image", "reading images")
    operations = require(folder, "PIL.ImageOps", "reading images")
    rows: list[np.ndarray] = []
    for file in files:
        with reading(file, "an image", "remove or repair it"), image_module.open(file) as image:
            _check_nothing_is_lost(file, image)
            # As a viewer shows it, though a camera may have stored it turned.
            pixels = operations.exif_transpose(image).convert("RGB" if has_color else "L")
        if size is not None:
            pixels = pixels.resize(size)
        rows.append(np.asarray(pixels, dtype=np.float32) / np.float32(255.0))
        if rows[-1].shape != rows[0].shape:
            (height, width), (first_height, first_width) = rows[-1].shape[:2], rows[0].shape[:2]
            what = f"is {width} x {height} pixels, and {files[0].name} {first_width} x {first_height}"
            raise DatasetError(file, what, "resize all images with --size WIDTH HEIGHT")
    names = [file.relative_to(folder) for file in files]
    has_classes = any(name.parent != Path() for name in names)
    labels = np.array([shown(name.parent.as_posix()) for name in names]) if has_classes else None
    return np.stack(rows).reshape(len(rows), -1), [name.as_posix() for name in names], labels, rows[0].shape


def _check_nothing_is_lost(file: Path, image: ImageFile) -> None:
    """Refuse images that lose information in 8 bits of grey or RGB."""
    # Pillow opens 16 bits of several channels as 8; how they are stored is in the arguments of its decoders.
    stored = " ".join(str(tile[3]) for tile in image.tile)
    levels = re.search(r"\d+", stored) if image.format == "PPM" else None
    is_deep = image.mode.startswith(("I", "F")) or re.search(r"(L|LA|RGB|RGB[AXa]|CMYK);(16|32)", stored)
    if is_deep or (levels and int(levels[0]) > 255):
        what = f"has more than 8 bits per value (mode {image.mode})"
        raise DatasetError(file, what, "convert it to 8 bits, or give the pixels as an .npy file")
    if getattr(image, "n_frames", 1) > 1:
        raise DatasetError(file, "holds several images", "save each as a file of its own")
    if image.has_transparency_data and np.asarray(image.convert("RGBA"))[..., 3].min() < 255:
        raise DatasetError(file, "is transparent in places", "save it with a background")


def _as_labels(path: Path, values: np.ndarray) -> np.ndarray:
    """Labels as integers if all are written as such, else as text or numbers; missing ones are refused."""
    if values.dtype.kind in "biuf":
        labels, is_missing = values, ~np.isfinite(values)
    else:
        labels = np.array(["" if value is None else str(value).strip() for value in values])
        is_missing = labels == ""
        with suppress(ValueError, OverflowError):
            integers = labels.astype(np.int64)
            # 01 and 1 are two classes.
            labels = integers if np.array_equal(integers.astype(str), labels) else labels
    if is_missing.any():
        what = f"the label of row {is_missing.argmax() + 1} (from 1) is missing"
        raise DatasetError(path, what, "fill it, or remove the row")
    return labels


def _read_labels(path: Path, label: str, is_new: bool) -> np.ndarray | None:
    """Labels from a file of their own."""
    other = as_path(label)
    if not other.is_file():
        if is_new:
            return None
        remedy = "name an array in it, or a .npy file of labels"
        raise DatasetError(path, f"{label!r} is neither an array in it nor a file", remedy)
    with reading(other, "a .npy file of labels", "save them with numpy.save"), other.open("rb") as stream:
        return np.atleast_1d(np.squeeze(np.lib.format.read_array(stream)))


def load_model(path: str, kinds: tuple[str, ...], command: str) -> Any:
    """A saved estimator of one of the classes."""
    model = load(path)
    last = model[-1] if isinstance(model, Pipeline) else model
    if type(last).__name__ not in kinds:
        source = f"rkdl {command} --save" if command in ("outliers", "classify") else "rkdl fit"
        raise ValueError(
            f"{path} holds a {type(last).__name__}, and rkdl {command} needs {' or '.join(kinds)}; give a file "
            f"written by {source} or by save() in Python"
        )
    return model


def read_new(name: str, options: Namespace, fitted: BaseEstimator | Inputs) -> Inputs:
    """Data with the features of a fitted model, or of the training data."""
    if isinstance(fitted, Inputs):
        names, width, source = fitted.names, fitted.X.shape[1], f"{fitted.path} has"
    else:
        names, width = getattr(fitted, "feature_names_in_", None), fitted.n_features_in_
        source = "the model was fitted on"
    inputs = read_inputs(name, options, names, is_new=True)
    if inputs.X.shape[1] != width:
        images = "; give --size and --color as for the model" if inputs.image_shape is not None else ""
        raise ValueError(f"{inputs.path} has {inputs.X.shape[1]} features, and {source} {width}{images}")
    return inputs


def _verbosity(options: Namespace) -> int:
    """How progress is shown: with a bar on a terminal, in lines of a file."""
    return 0 if sys.stderr is None or options.quiet else 1 if sys.stderr.isatty() else 2


@contextmanager
def counted_rows(options: Namespace, name: str, inputs: Inputs) -> Iterator[None]:
    """Show how many of the rows are done."""
    with progress(inputs.X.shape[0], _verbosity(options), name, inputs.unit[:-1]) as bar:
        token = ON_ROWS.set(lambda start, stop: bar and bar.update(stop - start))
        try:
            yield
        finally:
            ON_ROWS.reset(token)


def remember_names(model: BaseEstimator, inputs: Inputs) -> None:
    """Keep the names of the columns, as after a fit on a data frame, so that later files are read by name."""
    if inputs.names is not None:
        model.feature_names_in_ = np.array(inputs.names, dtype=object)


def configure(model: BaseEstimator, options: Namespace) -> None:
    """Set the parameters that options stand for, and those of --set."""
    known = model.get_params()
    values = {"random_state": options.seed, "verbose": _verbosity(options)}
    for option, parameter in _PARAMETERS.items():
        if getattr(options, option, None) is not None:
            if parameter not in known:
                raise ValueError(f"--{option.replace('_', '-')} does not apply to {CLASS_OF[options.method]}")
            values[parameter] = getattr(options, option)
    for text in options.set:
        name, sign, value = (part.strip() for part in text.partition("="))
        if not sign or not name:
            raise ValueError(f"--set {text}: give NAME=VALUE")
        values[name] = value
        # Text need not be in quotes.
        with suppress(ValueError, SyntaxError, TypeError):
            values[name] = ast.literal_eval(value)
    model.set_params(**values)
