"""Numbers from CSV and Parquet files, with the exact position of invalid cells."""

from __future__ import annotations

import csv
import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rkdl.datasets._errors import DatasetError, cause

__all__ = ["bad_csv_cell", "csv_layout", "csv_rows", "is_number", "parquet_columns", "read_csv", "read_parquet"]

_ENCODING = "utf-8-sig"


def read_csv(path: Path) -> npt.NDArray[np.float64]:
    """Read a table of numbers separated by commas, semicolons or tabs.

    A first line with text but without a number is a header. Blank lines and lines that start with # are
    skipped.
    """
    try:
        n_skipped, delimiter, _ = csv_layout(path)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DatasetError(path, f"cannot be read as text in UTF-8 ({cause(error)})", "save it again") from error
    try:
        with warnings.catch_warnings():
            # The caller reports a file without rows.
            warnings.filterwarnings("ignore", message=".*input contained no data", category=UserWarning)
            return np.loadtxt(path, delimiter=delimiter, skiprows=n_skipped, ndmin=2, quotechar='"', encoding=_ENCODING)
    except (ValueError, OSError) as error:
        what = bad_csv_cell(path) or f"not a table of numbers ({cause(error)})"
        raise DatasetError(path, what, "correct or remove it") from error


def bad_csv_cell(path: Path) -> str | None:
    """Describe the first non-finite or non-numeric cell, or row of another length; None if there is none."""
    try:
        n_skipped, delimiter, n_columns = csv_layout(path)
        for line, row in csv_rows(path, delimiter):
            if line <= n_skipped:
                continue
            for column, cell in enumerate(row, start=1):
                if not is_number(cell) or not math.isfinite(float(cell)):
                    value = repr(cell if len(cell) <= 30 else cell[:27] + "...") if cell.strip() else "empty"
                    return f"line {line}, column {column} is {value}, not a finite number"
            if len(row) != n_columns:
                return f"line {line} has {len(row)} cells, the first line {n_columns}"
    except (csv.Error, UnicodeDecodeError) as error:
        return f"not a CSV file ({cause(error)})"
    return None


def read_parquet(path: Path) -> npt.NDArray[np.float64]:
    """Read a table whose columns are all numeric, by pyarrow or, failing that, pandas."""
    columns = parquet_columns(path)
    for name, values in columns:
        if values.dtype.kind not in "biuf":
            raise DatasetError(path, f"the column {name!r} is not numeric but {values.dtype}", "remove it")
        missing = np.flatnonzero(~np.isfinite(values))
        if missing.size:
            row = missing[0]
            what = f"row {row} (from 0) of the column {name!r} is {values[row]}, not a finite number"
            raise DatasetError(path, what, "fill or remove it")
    if not columns:
        raise DatasetError(path, "the table has no columns")
    return np.column_stack([values.astype(np.float64) for _, values in columns])


def parquet_columns(path: Path) -> list[tuple[str, npt.NDArray[Any]]]:
    """Return the names and values of all columns."""
    for reader in (_parquet_by_pyarrow, _parquet_by_pandas):
        try:
            return reader(path)
        except ImportError:
            continue
        except Exception as error:
            raise DatasetError(path, f"not a Parquet file, or damaged ({cause(error)})", "save it again") from error
    remedy = "pip install pyarrow, or save the signals as .npy"
    raise DatasetError(path, "Parquet files need pyarrow, or pandas with an engine", remedy)


def _parquet_by_pyarrow(path: Path) -> list[tuple[str, npt.NDArray[Any]]]:
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path) as file:
        table = file.read()
    # pandas stores a frame's index as a column, which is not a feature.
    index = [name for name in (table.schema.pandas_metadata or {}).get("index_columns", []) if isinstance(name, str)]
    named = zip(table.column_names, table.columns, strict=True)
    return [(name, _as_plain(column.to_numpy())) for name, column in named if name not in index]


def _parquet_by_pandas(path: Path) -> list[tuple[str, npt.NDArray[Any]]]:
    import pandas

    return [(str(name), _as_plain(column.to_numpy())) for name, column in pandas.read_parquet(path).items()]


def _as_plain(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    # Booleans and decimals with missing values arrive as objects; numbers written as text stay text.
    if values.dtype != object or any(isinstance(value, (str, bytes)) for value in values):
        return values
    try:
        return values.astype(np.float64)
    except (TypeError, ValueError):
        return values


def csv_layout(path: Path) -> tuple[int, str, int]:
    """Return the number of lines before the first row of numbers, the delimiter, and the number of cells."""
    with path.open(encoding=_ENCODING, newline="") as stream:
        for number, line in enumerate(stream, start=1):
            if line.strip() and not line.startswith("#"):
                delimiter = next((mark for mark in ";\t" if mark in line), ",")
                cells = next(csv.reader([line], delimiter=delimiter))
                is_header = any(cell.strip() for cell in cells) and not any(map(is_number, cells))
                return (number if is_header else number - 1), delimiter, len(cells)
    raise DatasetError(path, "the file is empty")


def csv_rows(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Iterate over line numbers and cells; blank lines and lines that start with # are skipped."""
    with path.open(encoding=_ENCODING, newline="") as stream:
        reader = csv.reader(stream, delimiter=delimiter)
        for row in reader:
            is_blank = len(row) <= 1 and not "".join(row).strip()
            if not is_blank and not row[0].startswith("#"):
                yield reader.line_num, row


def is_number(cell: str) -> bool:
    """Whether a cell is a number, which may be nan or inf."""
    try:
        float(cell)
    except ValueError:
        return False
    return True
