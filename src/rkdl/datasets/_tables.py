"""Tables from CSV and Parquet files, read by pandas."""

from __future__ import annotations

import csv
import re
import warnings
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rkdl._utils.text import shown
from rkdl.datasets._errors import DatasetError, reading, require

if TYPE_CHECKING:
    from pandas import DataFrame, Series

__all__ = ["TABLE_SUFFIXES", "listed", "read_table", "table_numbers"]

TABLE_SUFFIXES = (".csv", ".tsv", ".parquet")
_ENCODING = "utf-8-sig"
# Cells that stand for missing values, in addition to those that pandas knows.
_MISSING = ["?", "-", "na", "none", "Null"]
# Most names that a message lists.
_LISTED = 8


def read_table(path: Path, *, header: bool | None = None, text: Collection[str | None] = ()) -> DataFrame:
    """Read a table.

    The cells of a CSV file are separated by the first of semicolons, tabs and commas that is in its first line.

    Parameters
    ----------
    path : pathlib.Path
        A ``.csv``, ``.tsv`` or ``.parquet`` file.
    header : bool, default=None
        Whether the first line of a CSV file is a header; None: if it holds no number, or its numbers are 0, 1, 2 and
        so on, as pandas writes them, of which a warning tells.
    text : collection of str, default=()
        Names of columns whose cells of a CSV file stay text as it is written.

    Returns
    -------
    table : pandas.DataFrame
        Its columns are called by text, or without a header by the integers from 1.
    """
    if path.suffix.lower() != ".parquet":
        return _read_csv(path, header, text)
    pandas = require(path, "pandas", "reading a table")
    require(path, "pyarrow", "reading Parquet")
    with reading(path, "a Parquet file"):
        table = pandas.read_parquet(path)
    return table.set_axis([str(name) for name in table.columns], axis=1)


def table_numbers(path: Path, table: DataFrame) -> np.ndarray:
    """Return all columns as a float64 matrix; text and missing values are refused with the names of their columns."""
    columns, texts = {}, []
    for place, (name, values) in enumerate(table.items()):
        if values.dtype.kind not in "biuf":
            columns[place] = _as_numbers(values)
            if isinstance(columns[place], str):
                texts.append(f"{name} ({shown(columns[place])[:20]!r})")
    if texts:
        has_decimal_commas = any(re.search(r"\('[+-]?\d+,\d+'\)$", text) for text in texts)
        are, they = ("columns are", "them") if len(texts) > 1 else ("column is", "it")
        last = "write decimal points instead of commas" if has_decimal_commas else f"encode {they} as numbers"
        raise DatasetError(
            path,
            f"{len(texts)} {are} not numeric: {listed(texts)}",
            f"leave {they} out (--drop), copy {they} to the results (--keep), name the classes (--label), or {last}",
        )
    for place, values in columns.items():
        table = table.copy(deep=False)
        table.isetitem(place, values)
    numbers = table.to_numpy(dtype=np.float64, na_value=np.nan)
    is_gap = ~np.isfinite(numbers)
    if is_gap.any():
        counts = is_gap.sum(axis=0)
        gaps = [f"{table.columns[place]} ({counts[place]})" for place in np.flatnonzero(counts)]
        place = int(np.flatnonzero(counts)[0])
        first = f"the first in column {str(table.columns[place])!r}, row {is_gap[:, place].argmax() + 1} (from 1)"
        what = f"missing or infinite values in {listed(gaps)}, {first}"
        raise DatasetError(path, what, "fill them, or remove their rows or columns (--drop)")
    return numbers


def listed(names: Collection[str]) -> str:
    """Return the first names of a list, for a message."""
    more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(list(names)[:_LISTED]) + more


def _read_csv(path: Path, header: bool | None, text: Collection[str | None]) -> DataFrame:
    pandas = require(path, "pandas", "reading a table")
    with reading(path, "a CSV file in UTF-8"):
        n_lines, separator, cells = _first_line(path)
        if header is None:
            header = _is_header(path, cells)
        names: list[str | int] = [cell.strip() for cell in cells] if header else list(range(1, len(cells) + 1))
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
    counts = len(numbers) > 1 and numbers == [str(number) for number in range(len(numbers))]
    if counts:
        warnings.warn(
            f"{shown(path)}: the first line, {', '.join(numbers[:3])} ..., is read as the header. If it is a row of "
            f"numbers, say so with header=False (--no-header).",
            UserWarning,
            stacklevel=2,
        )
    return counts or (not numbers and any(cell.strip() for cell in cells))


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _as_numbers(values: Series) -> Series | str:
    """Return a column as numbers, NaN where a value is missing; the first text if it holds text."""
    import pandas

    # Dates would become counts of nanoseconds, and complex numbers lose a part.
    if values.dtype.kind in "mMc":
        return str(values.iloc[0])
    truths = values.astype(str).str.strip().str.lower().map({"true": 1.0, "false": 0.0})
    numbers = pandas.to_numeric(values, errors="coerce").astype(float).fillna(truths)
    is_text = (numbers.isna() & values.notna()).to_numpy(dtype=bool)
    return str(values[is_text].iloc[0]).strip() if is_text.any() else numbers
