"""Data from a user's files: tables with labels, arrays, sparse matrices, folders of images."""

from __future__ import annotations

import os
from argparse import Namespace
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
from scipy import sparse

from rkdl._utils.inputs import well_formed
from rkdl._utils.text import shown
from rkdl.datasets import DatasetError
from rkdl.datasets._errors import reading, require
from rkdl.datasets._home import as_path
from rkdl.datasets._signals import pick_name, read_array
from rkdl.datasets._tables import TABLE_SUFFIXES, listed, read_table, table_numbers

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".pgm", ".ppm", ".webp")

# Signals; Zarr arrays are sliced like arrays.
Rows: TypeAlias = np.ndarray | sparse.csr_array


@dataclass(frozen=True)
class Inputs:
    """Signals (n_signals, n_features), and what is known about them."""

    path: Path
    X: Rows
    # Of the features, if the file has names.
    names: list[str] | None = None
    # Labels (n_signals,).
    y: np.ndarray | None = None
    # Columns that identify the signals in results: row numbers from 1, file names, or the columns of --keep.
    ids: Mapping[str, Sequence[object]] = field(default_factory=dict)
    # Height and width, and three for colours, of images, whose values are from 0 to 1.
    image_shape: tuple[int, ...] | None = None

    @property
    def is_table(self) -> bool:
        """Whether features are columns with meanings of their own."""
        return self.path.suffix.lower() in TABLE_SUFFIXES

    @property
    def unit(self) -> str:
        """The word for the samples."""
        return "rows" if self.is_table else "signals" if self.image_shape is None else "images"

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
    if suffix in TABLE_SUFFIXES:
        inputs = _read_columns(path, options, model_names, is_new)
    else:
        for option, value in (("--drop", options.drop), ("--keep", options.keep), ("--header", options.header)):
            if value:
                raise ValueError(f"{option} is for tables, and {path.name} is none")
        reader = _READERS.get(suffix, _read_images if path.is_dir() else None)
        if reader is None:
            known = ", ".join((*TABLE_SUFFIXES, *_READERS))
            raise DatasetError(path, f"the ending {suffix!r} is not known", f"use {known}, or a folder of images")
        inputs = reader(path, options)
        if inputs.y is None and inputs.image_shape is None and options.label is not None:
            inputs = replace(inputs, y=_read_labels(path, options.label, inputs.X.shape[0], is_new))
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
    wanted = [*options.drop, *options.keep] if model_names is None else list(model_names)
    wanted += [] if options.label is None or is_new else [options.label]
    lacking = [name for name in wanted if name not in names]
    if lacking:
        fitted = "" if model_names is None else ", which the model was fitted on"
        columns = f"is no column {lacking[0]!r}" if len(lacking) == 1 else f"are no columns {listed(lacking)}"
        raise DatasetError(path, f"there {columns}{fitted}", f"its columns are {listed(names)}")
    left_out = {options.label, *options.drop, *options.keep}
    features = [name for name in names if name not in left_out] if model_names is None else list(model_names)
    if not features:
        raise DatasetError(path, "no column is left to learn from")
    y = _as_labels(path, table[options.label].to_numpy()) if options.label in names else None
    ids = {name: table[name].tolist() for name in options.keep if name in names}
    return Inputs(path, table_numbers(path, table[features]), features if has_names else None, y, ids)


def _as_labels(path: Path, values: np.ndarray) -> np.ndarray:
    """Labels as integers if they are written so, else as text or numbers; missing ones are refused."""
    if values.dtype.kind in "biuf":
        labels, is_missing = values, ~np.isfinite(values)
    else:
        labels = np.array(["" if value is None else str(value).strip() for value in values])
        is_missing = labels == ""
        with suppress(ValueError):
            labels = labels.astype(np.int64)
    if is_missing.any():
        what = f"the label of row {is_missing.argmax() + 1} (from 1) is missing"
        raise DatasetError(path, what, "fill it, or remove the row")
    return labels


def _read_labels(path: Path, label: str, n_signals: int, is_new: bool) -> np.ndarray | None:
    """Labels from a file of their own."""
    other = as_path(label)
    if not other.is_file():
        if is_new:
            return None
        remedy = "name an array in it, or a .npy or .csv file of labels"
        raise DatasetError(path, f"{label!r} is neither an array in it nor a file", remedy)
    if other.suffix.lower() == ".npy":
        with reading(other, "an array of labels"):
            return np.load(other, allow_pickle=False).ravel()
    if other.suffix.lower() not in (".csv", ".tsv"):
        raise DatasetError(other, "labels are read from .npy and .csv files", "save them as one of these")
    table = read_table(other, header=False, text=["1"])
    if table.shape[1] != 1:
        raise DatasetError(other, f"has {table.shape[1]} columns", "labels are a file of one column")
    # The first line is a header if there is a line too many.
    return _as_labels(other, table[1].to_numpy()[len(table) == n_signals + 1 :])


def _read_array(path: Path, options: Namespace) -> Inputs:
    return Inputs(path, read_array(path, options.key))


def _read_npz(path: Path, options: Namespace) -> Inputs:
    """A dense array, or a matrix that scipy.sparse.save_npz wrote."""
    labels = None
    with reading(path, "an .npz file"), np.load(path, allow_pickle=False) as arrays:
        names = arrays.files
        if options.label in names:
            labels = arrays[options.label].ravel()
    if options.key is not None or not {"format", "shape"} <= set(names):
        return Inputs(path, read_array(path, options.key), y=labels)
    with reading(path, "a sparse matrix", "save it again with scipy.sparse.save_npz"):
        return Inputs(path, sparse.csr_array(well_formed(sparse.load_npz(path), "the array")), y=labels)


def _read_zarr(path: Path, options: Namespace) -> Inputs:
    """A Zarr array, which is read chunk by chunk, alone or in a group."""
    zarr = require(path, "zarr", "reading a Zarr array")
    # Zarr and its codecs raise many kinds of exceptions on damaged stores.
    try:
        found = zarr.open(str(path), mode="r")
    except Exception as error:
        raise DatasetError(path, f"cannot be read as a Zarr array ({error})", "save it again") from error
    labels = None
    if isinstance(found, zarr.Group):
        names = sorted(found.array_keys())
        if options.label in names:
            labels = found[options.label][:].ravel()
        found = found[pick_name(path, [name for name in names if name != options.label], options.key)]
    elif options.key is not None:
        raise ValueError(f"--key is for files with several arrays; {path.name} holds one array only")
    return Inputs(path, found if found.ndim == 2 else np.reshape(found[:], (found.shape[0], -1)), y=labels)


def _read_images(path: Path, options: Namespace) -> Inputs:
    """Images of one size, grey unless colours are to be kept, from 0 to 1; subfolders are classes."""
    if options.label is not None:
        raise ValueError(f"--label does not apply to {path}: classes of images are the subfolders that they are in")
    files = sorted(file for file in path.rglob("*") if file.suffix.lower() in IMAGE_SUFFIXES and file.is_file())
    if not files:
        raise DatasetError(path, "there are no images in this folder", f"their endings are {', '.join(IMAGE_SUFFIXES)}")
    image_module = require(path, "PIL.Image", "reading images")
    rows: list[np.ndarray] = []
    for file in files:
        with reading(file, "an image", "remove or repair it"), image_module.open(file) as image:
            if image.mode.startswith(("I", "F")):
                what = f"has more than 8 bits per pixel (mode {image.mode})"
                raise DatasetError(file, what, "convert it to 8 bits, or give the pixels as an .npy file")
            pixels = image.convert("RGB" if options.color else "L")
        if options.size is not None:
            pixels = pixels.resize(options.size)
        rows.append(np.asarray(pixels, dtype=np.float32) / np.float32(255.0))
        if rows[-1].shape != rows[0].shape:
            (height, width), (first_height, first_width) = rows[-1].shape[:2], rows[0].shape[:2]
            what = f"is {width} x {height} pixels, and {files[0].name} {first_width} x {first_height}"
            raise DatasetError(file, what, "resize all images with --size WIDTH HEIGHT")
    names = [file.relative_to(path) for file in files]
    has_classes = any(name.parent != Path() for name in names)
    labels = np.array([shown(name.parent.as_posix()) for name in names]) if has_classes else None
    ids = {"file": [name.as_posix() for name in names]}
    return Inputs(path, np.stack(rows).reshape(len(rows), -1), y=labels, ids=ids, image_shape=rows[0].shape)


# What reads a file that is no table, by its ending.
_READERS: dict[str, Callable[[Path, Namespace], Inputs]] = {
    ".npy": _read_array,
    ".npz": _read_npz,
    ".mat": _read_array,
    ".zarr": _read_zarr,
}
