"""Signals from a user's files: tables with labels, arrays, sparse matrices, folders of images."""

from __future__ import annotations

import csv
import itertools
import os
import re
import zipfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from rkdl._utils.inputs import well_formed
from rkdl._utils.text import shown
from rkdl.datasets import DatasetError
from rkdl.datasets._errors import cause
from rkdl.datasets._home import as_path
from rkdl.datasets._signals import read_array
from rkdl.datasets._tables import csv_layout, csv_rows, is_number, parquet_columns

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".pgm", ".ppm", ".webp")
_TABLE_SUFFIXES = (".csv", ".tsv", ".parquet")
_ARRAY_SUFFIXES = (".npy", ".npz", ".mat", ".zarr")
# Cells that stand for a missing value.
_MISSING = {"", "na", "n/a", "nan", "null", "none", "?", "-"}
# Cells that stand for truth values, which are numbers in Parquet files too.
_TRUTH = {"true": 1.0, "false": 0.0}
# Rows of a text file that are converted at a time.
_BLOCK = 4096
# Most names that a message lists.
_LISTED = 8


@dataclass(frozen=True)
class Inputs:
    """Signals and what is known about them.

    Attributes
    ----------
    path : Path
        The file or folder.
    X : array, memory map, Zarr array or CSR matrix of shape (n_signals, n_features)
        The signals.
    names : list of str or None
        Names of the features, if the file has them.
    y : ndarray of shape (n_signals,) or None
        Labels.
    ids : dict of str to sequence
        Columns that identify the signals in results: the row number, or file names and chosen columns.
    image_shape : tuple of int or None
        Height and width, and three for colours, of images whose values are from 0 to 1.
    """

    path: Path
    X: Any
    names: list[str] | None = None
    y: np.ndarray | None = None
    ids: dict[str, Sequence[Any]] = field(default_factory=dict)
    image_shape: tuple[int, ...] | None = None

    @property
    def is_table(self) -> bool:
        """Whether features are columns with meanings of their own."""
        return self.path.suffix.lower() in _TABLE_SUFFIXES


@dataclass(frozen=True)
class Reading:
    """How a file is to be read: names of columns and arrays.

    Attributes
    ----------
    label : str or None
        Column, array or file with labels.
    drop, keep : sequence of str
        Columns that are no features; those of `keep` appear in results.
    key : str or None
        Name of the array in a file with several.
    is_label_optional : bool
        Whether a file without the label is fine.
    color : bool
        Whether images keep their colours.
    size : tuple of int or None
        Width and height that images are resized to.
    float32 : bool
        Whether to convert to single precision.
    features : sequence of str or None
        Columns that a model was fitted on; others are ignored.
    """

    label: str | None = None
    drop: Sequence[str] = ()
    keep: Sequence[str] = ()
    key: str | None = None
    is_label_optional: bool = False
    color: bool = False
    size: tuple[int, int] | None = None
    float32: bool = False
    features: Sequence[str] | None = None


def read_inputs(name: str, reading: Reading) -> Inputs:
    """Read a file or a folder; a DatasetError says what is wrong with it and what to do."""
    path = as_path(name)
    if not os.path.exists(path):
        raise DatasetError(path, "there is no such file or folder", "check the path")
    if not (path.is_file() or path.is_dir()):
        raise DatasetError(path, "this is a pipe or a device", "write its content to a file first")
    suffix = path.suffix.lower()
    if suffix in (".csv", ".tsv"):
        inputs = _read_csv(path, reading)
    elif suffix == ".parquet":
        inputs = _read_parquet(path, reading)
    else:
        for option, value in (("--drop", reading.drop), ("--keep", reading.keep)):
            if value:
                raise ValueError(f"{option} names columns of a table, and {path.name} has none")
        if suffix in _ARRAY_SUFFIXES:
            inputs = _read_arrays(path, reading)
        elif path.is_dir():
            inputs = _read_images(path, reading)
        else:
            known = ", ".join((*_TABLE_SUFFIXES, *_ARRAY_SUFFIXES))
            raise DatasetError(path, f"the ending {suffix!r} is not known", f"use {known}, or a folder of images")
    X = inputs.X
    if reading.float32 and X.dtype != np.float32:
        X = X.astype(np.float32) if hasattr(X, "astype") else np.asarray(X[:], dtype=np.float32)
    ids = inputs.ids or {"row": range(X.shape[0])}
    if inputs.y is not None and len(inputs.y) != X.shape[0]:
        raise DatasetError(path, f"there are {X.shape[0]} signals and {len(inputs.y)} labels", "give one per signal")
    return replace(inputs, X=X, ids=ids)


def _read_csv(path: Path, reading: Reading) -> Inputs:
    try:
        n_skipped, delimiter, n_columns = csv_layout(path)
        rows = csv_rows(path, delimiter)
        header = next(rows)[1] if n_skipped else []
        names = [name.strip() for name in header] or [str(number) for number in range(1, n_columns + 1)]
        texts = [name in (reading.label, *reading.keep) for name in names]
        parts: list[list[Any]] = [[] for _ in names]
        while block := _next_rows(path, rows, n_columns):
            for part, cells, is_text in zip(parts, zip(*block, strict=True), texts, strict=True):
                part.append(list(cells) if is_text else _column_numbers(cells))
    except DatasetError:
        raise
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DatasetError(path, f"cannot be read as CSV in UTF-8 ({cause(error)})", "save it again") from error
    table = [(name, _joined(part)) for name, part in zip(names, parts, strict=True)]
    if header and not names[0]:
        # The index that pandas writes, in whatever order.
        del table[0]
    inputs = _from_columns(path, reading, table)
    # Numbers of columns are no names.
    return inputs if header else replace(inputs, names=None)


def _next_rows(path: Path, rows: Iterator[tuple[int, list[str]]], n_columns: int) -> list[list[str]]:
    """The next rows, some thousands, or none at the end; those of another length are refused."""
    block = []
    for line, row in itertools.islice(rows, _BLOCK):
        if len(row) != n_columns:
            raise DatasetError(path, f"line {line} has {len(row)} cells, the first line {n_columns}", "correct it")
        block.append(row)
    return block


def _joined(parts: list[Any]) -> Any:
    """A column from its parts; the first text of one that should be numbers."""
    text = next((part for part in parts if isinstance(part, str)), None)
    if text is not None:
        return text
    if parts and isinstance(parts[0], list):
        return list(itertools.chain.from_iterable(parts))
    return np.concatenate(parts) if parts else np.empty(0)


def _read_parquet(path: Path, reading: Reading) -> Inputs:
    return _from_columns(path, reading, parquet_columns(path))


def _from_columns(path: Path, reading: Reading, table: list[tuple[str, Any]]) -> Inputs:
    """Signals of the columns that are features, with the labels and what identifies the rows."""
    names = [name for name, _ in table]
    repeated = sorted(name for name, count in Counter(names).items() if count > 1)
    if repeated:
        raise DatasetError(path, f"several columns are called {_listed(repeated)}", "give each a name of its own")
    columns = dict(table)
    if not any(len(values) for values in columns.values()):
        raise DatasetError(path, "holds no signals")
    y = None
    if reading.label in columns:
        y = _as_labels(path, reading.label, columns[reading.label])
    elif reading.label is not None and not reading.is_label_optional:
        raise DatasetError(path, f"there is no column {reading.label!r}", f"its columns are {_listed(names)}")
    for name in (*reading.drop, *reading.keep):
        if name not in columns and reading.features is None:
            raise DatasetError(path, f"there is no column {name!r}", f"its columns are {_listed(names)}")
    left_out = {reading.label, *reading.drop, *reading.keep}
    features = [name for name in names if name not in left_out]
    if reading.features is not None:
        lacking = [name for name in reading.features if name not in columns]
        if lacking:
            what = f"has no column{'s' * (len(lacking) > 1)} {_listed(lacking)}, which the model was fitted on"
            raise DatasetError(path, what, f"its columns are {_listed(names)}")
        features = list(reading.features)
    if not features:
        raise DatasetError(path, "no column is left to learn from")
    X = _as_numbers(path, {name: columns[name] for name in features})
    ids = {name: columns[name] for name in reading.keep if name in columns}
    return Inputs(path, X, features, y, ids)


def _as_numbers(path: Path, columns: dict[str, Any]) -> np.ndarray:
    """A matrix of the columns; text and missing values are refused with the names of the columns."""
    texts, gaps, numbers = [], [], {}
    has_decimal_commas = False
    for name, values in columns.items():
        found = values if isinstance(values, str) else _column_numbers(values)
        if isinstance(found, str):
            texts.append(f"{name} ({shown(found)[:20]!r})")
            has_decimal_commas |= re.fullmatch(r"[+-]?\d+,\d+", found) is not None
            continue
        if not np.isfinite(found).all():
            gaps.append(f"{name} ({int((~np.isfinite(found)).sum())})")
        numbers[name] = found
    if texts:
        what = f"{_count(len(texts), 'column is', 'columns are')} not numeric: {_listed(texts)}"
        they = "them" if len(texts) > 1 else "it"
        remedy = f"leave {they} out with --drop, copy {they} to the results with --keep, name the classes with --label"
        last = "write decimal points instead of commas" if has_decimal_commas else f"encode {they} as numbers"
        raise DatasetError(path, what, f"{remedy}, or {last}")
    if gaps:
        first, row = next(
            (name, int(np.flatnonzero(~np.isfinite(values))[0]))
            for name, values in numbers.items()
            if not np.isfinite(values).all()
        )
        what = f"missing or infinite values in {_listed(gaps)}, the first in column {first!r}, row {row} (from 0)"
        raise DatasetError(path, what, "fill them, remove their rows, or leave the columns out with --drop")
    return np.column_stack(list(numbers.values()))


def _column_numbers(values: Any) -> np.ndarray | str:
    """A column as float64, NaN where a value is missing; the first text if it holds text."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "mMc":
        # Dates would become counts of nanoseconds, and complex numbers lose a part.
        return str(values[0]) if len(values) else ""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        cells = ["" if value is None else str(value).strip() for value in values]
    text = next((cell for cell in cells if not (cell.lower() in _MISSING | _TRUTH.keys() or is_number(cell))), None)
    if text is not None:
        return text
    return np.array([_TRUTH.get(cell.lower(), float(cell) if is_number(cell) else np.nan) for cell in cells])


def _as_labels(path: Path, name: str | None, values: Any) -> np.ndarray:
    """Labels as integers if they are written so, else as text or numbers; missing ones are refused."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "biuf":
        labels = values
        is_missing = ~np.isfinite(values)
    else:
        labels = np.array(["" if value is None else str(value).strip() for value in values])
        is_missing = labels == ""
        with suppress(ValueError):
            labels = labels.astype(np.int64)
    if is_missing.any():
        row = int(np.flatnonzero(is_missing)[0])
        raise DatasetError(path, f"the label {name!r} of row {row} (from 0) is missing", "fill it, or remove the row")
    return labels


def _read_arrays(path: Path, reading: Reading) -> Inputs:
    suffix = path.suffix.lower()
    if suffix == ".zarr":
        X, group = _open_zarr(path, reading.key)
        labels = group.get(reading.label) if group is not None and reading.label is not None else None
        return Inputs(path, X, y=_array_labels(path, reading, None if labels is None else labels[:], X.shape[0]))
    if suffix == ".npz":
        X = _read_npz(path, reading.key)
    elif suffix == ".npy" and reading.key is None:
        X = _map_npy(path)
    else:
        X = _flat(read_array(path, reading.key))
    labels = _npz_labels(path, reading.label) if suffix == ".npz" and reading.label is not None else None
    return Inputs(path, X, y=_array_labels(path, reading, labels, X.shape[0]))


def _map_npy(path: Path) -> np.ndarray:
    """A memory map, so that files larger than memory are read chunk by chunk."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError, OverflowError) as error:
        remedy = "save it again with numpy.save, without Python objects"
        raise DatasetError(path, f"no plain array can be read from it ({cause(error)})", remedy) from error
    if not isinstance(array, np.memmap):
        raise DatasetError(path, "this is an archive of arrays", "give it the ending .npz")
    if array.dtype.kind not in "biuf" or array.ndim < 2 or array.size == 0:
        # Which says what is wrong.
        return _flat(read_array(path))
    return _flat(array)


def _read_npz(path: Path, key: str | None) -> Any:
    """A dense array, or a matrix that scipy.sparse.save_npz wrote."""
    if key is None and {"format.npy", "shape.npy"} <= set(_members(path)):
        from scipy import sparse

        try:
            return sparse.csr_array(well_formed(sparse.load_npz(path), "the array"))
        # zipfile, zlib and SciPy raise many kinds of exceptions on damaged files.
        except Exception as error:
            what = f"no sparse matrix can be read from it ({cause(error)})"
            raise DatasetError(path, what, "save it again with scipy.sparse.save_npz") from error
    return _flat(read_array(path, key))


def _members(path: Path) -> list[str]:
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    except (OSError, zipfile.BadZipFile):
        # Reported by what reads it.
        return []


def _npz_labels(path: Path, label: str) -> np.ndarray | None:
    if f"{label}.npy" not in _members(path):
        return None
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return np.asarray(arrays[label])
    except (ValueError, OSError, zipfile.BadZipFile) as error:
        what = f"its array {label!r} is not a plain array of labels ({cause(error)})"
        raise DatasetError(path, what, "save it again without Python objects") from error


def _open_zarr(path: Path, key: str | None) -> tuple[Any, Any]:
    """The array, and the group that it is in."""
    try:
        import zarr
    except ImportError as error:
        raise DatasetError(path, "Zarr arrays need zarr", "pip install 'rkdl[files]'") from error
    try:
        found = zarr.open(str(path), mode="r")
    # Zarr and its codecs raise many kinds of exceptions on damaged stores.
    except Exception as error:
        raise DatasetError(path, f"no Zarr array can be opened there ({cause(error)})", "save it again") from error
    if not isinstance(found, zarr.Group):
        if key is not None:
            raise ValueError(f"--key is for files with several arrays; {path.name} holds one array only")
        return _flat(found), None
    names = sorted(found.array_keys())
    chosen = key if key is not None else next((name for name in ("X", "signals", "images") if name in names), None)
    if chosen is None and len(names) == 1:
        chosen = names[0]
    if chosen not in names:
        raise DatasetError(path, f"holds the arrays {_listed(names) or 'none'}", "choose one with --key")
    return _flat(found[chosen]), found


def _flat(array: Any) -> Any:
    """Signals as rows; what is stored in more than two axes, such as images, is flattened."""
    if len(array.shape) == 2:
        return array
    loaded = array if isinstance(array, np.ndarray) else np.asarray(array[:])
    return loaded.reshape(len(loaded), -1) if loaded.ndim > 2 else loaded


def _array_labels(path: Path, reading: Reading, found: Any, n_signals: int) -> np.ndarray | None:
    """Labels that are beside the signals, or in a file of their own."""
    if found is not None:
        return np.asarray(found).ravel()
    if reading.label is None:
        return None
    other = as_path(reading.label)
    if not other.is_file():
        if reading.is_label_optional:
            return None
        remedy = "name an array in it, or a .npy or .csv file of labels"
        raise DatasetError(path, f"{reading.label!r} is neither an array in it nor a file", remedy)
    if other.suffix.lower() == ".npy":
        try:
            return np.load(other, allow_pickle=False).ravel()
        except (ValueError, OSError) as error:
            raise DatasetError(other, f"no labels can be read from it ({cause(error)})", "save it again") from error
    if other.suffix.lower() in (".csv", ".tsv"):
        _, delimiter, n_columns = csv_layout(other)
        if n_columns != 1:
            raise DatasetError(other, f"has {n_columns} columns", "labels are a file of one column")
        cells = [row[0] for _, row in csv_rows(other, delimiter)]
        # Text in the first line is a header if there is a line too many.
        return _as_labels(other, other.name, cells[1:] if len(cells) == n_signals + 1 else cells)
    raise DatasetError(other, "labels are read from .npy and .csv files", "save them as one of these")


def _read_images(path: Path, reading: Reading) -> Inputs:
    """Images of one size, grey unless colours are to be kept, from 0 to 1; subfolders are classes."""
    files = sorted(file for file in path.rglob("*") if file.suffix.lower() in IMAGE_SUFFIXES and file.is_file())
    if not files:
        raise DatasetError(path, "there are no images in this folder", f"their endings are {', '.join(IMAGE_SUFFIXES)}")
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError as error:
        raise DatasetError(path, "images need Pillow", "pip install 'rkdl[files]'") from error
    rows, shape = [], None
    for file in files:
        try:
            with Image.open(file) as image:
                if image.mode.startswith(("I", "F")):
                    what = f"has more than 8 bits per pixel (mode {image.mode})"
                    raise DatasetError(file, what, "convert it to 8 bits, or give the pixels as an .npy file")
                pixels = image.convert("RGB" if reading.color else "L")
        except (UnidentifiedImageError, OSError, Image.DecompressionBombError) as error:
            raise DatasetError(file, f"no image can be read from it ({cause(error)})", "remove or repair it") from error
        if reading.size is not None:
            pixels = pixels.resize(reading.size)
        values = np.asarray(pixels, dtype=np.float32) / np.float32(255.0)
        if shape is None:
            shape = values.shape
        if values.shape != shape:
            what = f"is {values.shape[1]} x {values.shape[0]} pixels, and {files[0].name} {shape[1]} x {shape[0]}"
            raise DatasetError(file, what, "resize all images with --size WIDTH HEIGHT")
        rows.append(values.ravel())
    names = [file.relative_to(path).as_posix() for file in files]
    folders = {str(Path(name).parent) for name in names}
    labels = None
    if folders != {"."}:
        labels = np.array([shown(Path(name).parent.as_posix()) for name in names])
    if reading.label is not None:
        raise ValueError(f"--label does not apply to {path}: classes of images are the subfolders that they are in")
    return Inputs(path, np.stack(rows), y=labels, ids={"file": names}, image_shape=shape)


def _listed(names: Sequence[str]) -> str:
    """The first names of a list, for a message."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
