"""Arrays from NumPy, MATLAB and Zarr files, and tables from CSV and Parquet files, which pandas reads."""

from __future__ import annotations

import csv
import re
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from scipy import sparse

from rkdl._utils.inputs import well_formed
from rkdl._utils.text import shown
from rkdl.datasets._errors import DatasetError, reading, require

if TYPE_CHECKING:
    from pandas import DataFrame, Series

_ARRAY_SUFFIXES = (".npy", ".npz", ".mat", ".zarr")
# Names that identify the signals in a file with several arrays.
_SIGNAL_NAMES = ("XTrain", "X", "images", "signals")

# Signals as they are read; Zarr arrays are sliced like arrays.
Rows: TypeAlias = np.ndarray | sparse.csr_array
TABLE_SUFFIXES = (".csv", ".tsv", ".parquet")
_ENCODING = "utf-8-sig"
# Cells that stand for missing values, in addition to those that pandas knows.
_MISSING = ["?", "-", "na", "none", "Null"]
# Most names that a message lists.
_LISTED = 8


def read_arrays(path: Path, key: str | None = None, labels: Collection[str] = ()) -> tuple[Rows, np.ndarray | None]:
    """Read the signals of an array file, and if it holds any, the labels (n_signals,) called by one of the names.

    Signals are rows of real numbers of whatever type: a memory map, a sparse matrix, an open Zarr array or an array.
    """
    if path.suffix.lower() not in _ARRAY_SUFFIXES:
        known = ", ".join((*TABLE_SUFFIXES, *_ARRAY_SUFFIXES))
        raise DatasetError(path, f"the ending {path.suffix!r} is not known", f"use {known}")
    remedy = "save it again with numpy.save or numpy.savez, without Python objects"
    with reading(path, "an array of numbers", remedy), _opened(path) as arrays:
        y = next((np.atleast_1d(np.squeeze(arrays[name])) for name in labels if name in arrays), None)
        if key is None and {"format", "shape"} <= set(arrays):
            with reading(path, "a sparse matrix", "save it again with scipy.sparse.save_npz"):
                array = sparse.csr_array(well_formed(sparse.load_npz(path), "the array"))
        else:
            array = arrays[_pick_name(path, [name for name in arrays if name not in labels], key)]
    if array.dtype.kind not in "biuf":
        raise DatasetError(path, f"its values are {array.dtype}, not real numbers", "save it as float32 or float64")
    if 0 in array.shape:
        raise DatasetError(path, f"holds no signals (shape {array.shape})")
    if array.ndim < 2:
        raise DatasetError(path, f"its array is {array.ndim}-D", "signals are the rows of a 2-D array: reshape it")
    return array if array.ndim == 2 else np.reshape(array, (array.shape[0], -1)), y


@contextmanager
def _opened(path: Path) -> Iterator[Mapping[str, np.ndarray]]:
    """The arrays of a file by their names, read when they are asked for; an array without a name is called ""."""
    if path.suffix.lower() == ".mat":
        # MATLAB's last axis counts images.
        yield {name: np.moveaxis(v, -1, 0) if v.ndim > 2 else v for name, v in _read_mat(path).items()}
    elif path.suffix.lower() == ".zarr":
        zarr = require(path, "zarr", "reading a Zarr array")
        found = zarr.open(str(path), mode="r")
        yield dict(found.arrays()) if isinstance(found, zarr.Group) else {"": found}
    elif path.suffix.lower() == ".npz":
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            yield arrays
    else:
        # A damaged header may declare more elements than an integer can count.
        with np.errstate(over="ignore"):
            array = np.lib.format.open_memmap(path, mode="r")
        yield {"": array}


def _pick_name(path: Path, names: list[str], key: str | None) -> str:
    if key is None and len(names) == 1:
        return names[0]
    if names == [""]:
        raise DatasetError(path, "holds one array without a name", "leave out key= or --key")
    candidates = [name for name in names if (name == key if key is not None else name in _SIGNAL_NAMES)]
    if len(candidates) == 1:
        return candidates[0]
    found = ", ".join(sorted(names)) or "none"
    if key is not None:
        raise DatasetError(path, f"holds no array {key!r}", f"choose from: {found}")
    raise DatasetError(path, f"holds the arrays {found}", "choose one by its name (key= or --key), or save it as X")


def _read_mat(path: Path) -> dict[str, np.ndarray]:
    """Read the numeric variables of a .mat file with SciPy, sparse ones as dense arrays; others are skipped."""
    import scipy.io

    with reading(path, "a MAT file", "export it again"):
        try:
            variables = scipy.io.loadmat(path, appendmat=False)
        except NotImplementedError:
            what = "MAT files of version 7.3 are not supported"
            raise DatasetError(path, what, "save it with '-v7' in MATLAB") from None
        found = {name: well_formed(v, name) for name, v in variables.items() if name[:2] != "__"}
        dense = {name: v.toarray() if sparse.issparse(v) else v for name, v in found.items()}
    return {name: v for name, v in dense.items() if isinstance(v, np.ndarray) and v.dtype.kind in "biufc"}


def read_table(path: Path, *, header: bool | None = None, text: Collection[str | None] = ()) -> DataFrame:
    """Read a ``.csv``, ``.tsv`` or ``.parquet`` file.

    The cells of a CSV file are separated by the first of semicolons, tabs and commas that is in its first line, which
    is a header if `header` says so; with None, if it holds no number, or if its numbers are 0, 1, 2 and so on, as
    pandas writes them, or others that count up by one (years, say), of which a warning tells. Its columns in `text`
    stay text as it is written. Columns are called by text, or without a header by the integers from 1.
    """
    pandas = require(path, "pandas", "reading a table")
    if path.suffix.lower() == ".parquet":
        require(path, "pyarrow", "reading Parquet")
        with reading(path, "a Parquet file"):
            table = pandas.read_parquet(path)
            # A column that was the index of a frame.
            table = table.reset_index() if any(table.index.names) else table
        return table.set_axis([str(name) for name in table.columns], axis=1)
    with reading(path, "a CSV file in UTF-8"):
        n_lines, separator, cells = _first_line(path)
        if header is None:
            header = _is_header(path, cells)
        if len(cells) == 1:
            # pandas skips blank lines, but in one column a cell may be missing there.
            lines = path.read_text(_ENCODING).rstrip().split("\n")
            blank = next((n for n, line in enumerate(lines, start=1) if n > n_lines and not line.strip(' "\t\r')), None)
            if blank is not None:
                raise DatasetError(path, f"line {blank} is blank", "fill it, or remove it")
        names = [cell.strip() for cell in cells] if header else list(range(1, len(cells) + 1))
        layout = {
            "sep": separator,
            "header": None,
            "skiprows": n_lines if header else 0,
            "encoding": _ENCODING,
            "skipinitialspace": True,
            "low_memory": False,
        }
        try:
            table = pandas.read_csv(path, na_values=_MISSING, **layout)
        except pandas.errors.EmptyDataError:
            raise DatasetError(path, "the table has no rows") from None
        if table.shape[1] != len(names):
            raise DatasetError(path, f"the header has {len(names)} cells, the first row {table.shape[1]}", "correct it")
        exact = [place for place, name in enumerate(names) if str(name) in text]
        if exact:
            table[exact] = pandas.read_csv(path, usecols=exact, dtype=str, keep_default_na=False, **layout)[exact]
    table = table.set_axis(names, axis=1)
    # A column without a name is the index that pandas writes.
    return table.iloc[:, 1:] if names[0] == "" else table


def table_numbers(path: Path, table: DataFrame) -> np.ndarray:
    """Return all columns as a float64 matrix; text and missing values are refused with the names of their columns."""
    columns, texts = [], []
    for name, values in table.items():
        found = _as_numbers(values)
        columns.append(found)
        if isinstance(found, str):
            texts.append(f"{name} ({shown(found)[:20]!r})")
    if texts:
        has_decimal_commas = any(re.search(r"\('[+-]?\d+,\d+'\)$", text) for text in texts)
        are, they = ("columns are", "them") if len(texts) > 1 else ("column is", "it")
        last = "write decimal points instead of commas" if has_decimal_commas else f"encode {they} as numbers"
        raise DatasetError(
            path,
            f"{len(texts)} {are} not numeric: {listed(texts)}",
            f"leave {they} out (--drop), copy {they} to the results (--keep), name the classes (--label), or {last}",
        )
    numbers = np.column_stack(columns) if columns else np.empty((len(table), 0))
    counts = (~np.isfinite(numbers)).sum(axis=0)
    if counts.any():
        gaps = [f"{table.columns[place]} ({counts[place]})" for place in np.flatnonzero(counts)]
        place = int(np.flatnonzero(counts)[0])
        row = int(np.flatnonzero(~np.isfinite(numbers[:, place]))[0]) + 1
        first = f"the first in column {str(table.columns[place])!r}, row {row} (from 1)"
        what = f"missing or infinite values in {listed(gaps)}, {first}"
        raise DatasetError(path, what, "fill them, or remove their rows or columns (--drop)")
    return numbers


def listed(names: Collection[str]) -> str:
    """Return the first names of a list, for a message."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(list(names)[:_LISTED]) + more


def _is_number(cell: object) -> bool:
    """Whether a cell is written as a number."""
    with suppress(ValueError):
        float(str(cell))
        return True
    return False


def _first_line(path: Path) -> tuple[int, str, list[str]]:
    """Return the number of lines up to the first that is not blank, the separator and the cells of that line."""
    with path.open(encoding=_ENCODING, newline="") as stream:
        line = next((line for line in stream if line.strip()), "")
        separator = next((mark for mark in ";\t" if mark in line), ",")
        stream.seek(0)
        for number, cells in enumerate(csv.reader(stream, delimiter=separator), start=1):
            if len(cells) > 1 or "".join(cells).strip():
                return number, separator, cells
    raise DatasetError(path, "the file is empty")


def _is_header(path: Path, cells: list[str]) -> bool:
    numbers = [cell.strip() for cell in cells if _is_number(cell)]
    first = int(numbers[0].removesuffix(".0")) if numbers and numbers[0].removesuffix(".0").isdecimal() else 0
    # As pandas writes columns of either kind.
    counts_up = any(numbers == [f"{first + n}{end}" for n in range(len(numbers))] for end in ("", ".0"))
    # Two numbers count up by chance.
    counts = counts_up and len(numbers) > (1 if first == 0 else 2)
    if counts or {cell.strip().lower() for cell in cells} <= {"true", "false"}:
        warnings.warn(
            f"{shown(path)}: the first line, {', '.join((numbers or cells)[:3])} ..., is read as the header. If it is "
            f"a row of data, say so with header=False (--no-header).",
            UserWarning,
            stacklevel=2,
        )
    return counts or (not numbers and any(cell.strip() for cell in cells))


def _as_numbers(values: Series) -> np.ndarray | str:
    """Return a column as numbers, NaN where a value is missing; the first text if it holds text."""
    import pandas

    if values.dtype.kind in "biuf":
        return values.to_numpy(dtype=np.float64, na_value=np.nan)
    # Dates would become counts of nanoseconds, and complex numbers lose a part.
    if values.dtype.kind in "mMc":
        return str(values.iloc[0])
    truths = values.astype(str).str.strip().str.lower().map({"true": 1.0, "false": 0.0})
    numbers = pandas.to_numeric(values, errors="coerce").astype(float).fillna(truths).to_numpy(dtype=np.float64)
    is_text = np.isnan(numbers) & values.notna().to_numpy(dtype=bool)
    return str(values[is_text].iloc[0]).strip() if is_text.any() else numbers
