"""Checks of input that NumPy and SciPy let pass, and errors that name the columns concerned."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import DTypeLike
from scipy import sparse
from sklearn.utils import assert_all_finite, check_array

from rkdl._utils.types import MatrixLike

# Columns that a message lists by name.
_MAX_LISTED = 5


def well_formed(X: MatrixLike, name: str = "X") -> MatrixLike:
    """Return the array or sparse matrix unchanged, or refuse it; `name` is the argument's name.

    NumPy ignores masks, and SciPy reads out of bounds for indices out of range.
    """
    if sparse.issparse(X):
        _check_sparse(X, name)
    elif isinstance(X, np.ma.MaskedArray):
        n_masked = int(np.ma.count_masked(X))
        if n_masked:
            raise ValueError(
                f"{name} is a masked array, and {n_masked} of its {X.size} entries are masked: fill them with "
                f"{name}.filled(value) or an imputer, or drop their rows."
            )
        return np.ma.getdata(X)
    return X


def check_rows_finite(rows: np.ndarray, name: str = "X", columns: Sequence[object] | None = None) -> None:
    """Refuse NaN and infinity with scikit-learn's words, the columns concerned and a remedy.

    The rows are (n_signals, n_features), or the values of a sparse matrix. `columns` are the names of the features.
    """
    # Sums of numbers near the dtype's maximum may become infinity minus infinity.
    with np.errstate(over="ignore", invalid="ignore"):
        try:
            assert_all_finite(rows, input_name=name)
        except ValueError as error:
            has_nan = "NaN" in str(error)
            is_bad = np.isnan(rows) if has_nan else ~np.isfinite(rows)
            where = "" if rows.ndim != 2 else f" It is in {_listed(np.flatnonzero(is_bad.any(axis=0)), columns)}."
            remedy = (
                f" {'Impute missing' if has_nan else 'Replace such'} values or drop their rows." if name == "X" else ""
            )
            raise ValueError(f"{error}{where}{remedy}") from None


def check_numbers(X: MatrixLike, *, dtype: DTypeLike, caller: str, name: str) -> MatrixLike:
    """Array or CSR matrix of an array-like, finite or not, by scikit-learn's checks; errors have a remedy."""
    columns = getattr(X, "columns", None)
    try:
        return check_array(
            X, dtype=dtype, accept_sparse="csr", ensure_all_finite=False, estimator=caller, input_name=name
        )
    except ValueError as error:
        message = str(error)
        texts = _text_columns(X) if message.startswith("could not convert string to float") else []
        if texts:
            raise ValueError(
                f"{message}. Not numeric: {_listed(texts, columns)}. Encode text, for example with scikit-learn's "
                f"OneHotEncoder, or leave these columns out."
            ) from None
        if message.startswith("Found array with dim"):
            raise ValueError(f"{message} Flatten every signal to one row: {name}.reshape(len({name}), -1).") from None
        raise


def _text_columns(X: MatrixLike) -> list[int]:
    """Numbers of the columns that cannot be converted to floats; none if X is not a table."""
    table, found = np.asarray(X, dtype=object), []
    for number, column in enumerate(table.T if table.ndim == 2 else []):
        try:
            column.astype(np.float64)
        except (TypeError, ValueError):
            found.append(number)
    return found


def _listed(numbers: Sequence[int] | np.ndarray, columns: Sequence[object] | None) -> str:
    """The first few columns, by name or else by number from 0."""
    names = [repr(columns[number]) if columns is not None else str(number) for number in numbers[:_MAX_LISTED]]
    more = len(numbers) - len(names)
    ending = f" and {more} more" if more else ""
    return f"column{'s' * (len(numbers) > 1)} {', '.join(names)}{ending}"


def _check_sparse(X: MatrixLike, name: str) -> None:
    """Refuse a sparse matrix, of any format, with index arrays that contradict each other or its shape."""
    try:
        # Lists and dictionaries are converted by SciPy without reading out of bounds.
        problem = _sparse_problem(X.tocsr() if X.format in ("lil", "dok") else X)
    except (TypeError, ValueError, ArithmeticError, AttributeError, IndexError) as error:
        problem = f"its indices cannot be read ({error})"
    if problem is not None:
        raise ValueError(
            f"{name} is a malformed {X.format.upper()} matrix of shape {X.shape}: {problem}. Rebuild it from its "
            f"rows, columns and values, for example with scipy.sparse.coo_array((values, (rows, columns)), shape)."
        )


def _sparse_problem(X: MatrixLike) -> str | None:
    """Describe the first problem of a sparse matrix, without a conversion or a method of it that uses the indices.

    SciPy's `check_format` accepts indices that are not integers, and any `indptr` that ends with 0.
    """
    names, lengths, n_values = ("row", "column")[-len(X.shape) :], X.shape, len(X.data)
    if X.format == "dia":
        offsets, (n_rows, n_columns) = np.asarray(X.offsets), X.shape
        if X.data.ndim != 2 or offsets.shape != X.data.shape[:1] or offsets.dtype.kind not in "iu":
            return "its offsets do not fit its data"
        # SciPy skips some of these diagonals, and writes out of bounds for those of 64-bit offsets.
        outside = offsets[(offsets <= -n_rows) | (offsets >= n_columns)]
        return f"it has the offset {outside[0]}, outside {1 - n_rows} to {n_columns - 1}" if outside.size else None
    if X.format == "coo":
        coordinates = list(getattr(X, "coords", None) or (X.row, X.col))
    else:
        blocks = X.data.shape[1:] if X.format == "bsr" else (1, 1)
        # One-dimensional CSR arrays are one row.
        rows, columns = (length // size for length, size in zip((1, *X.shape)[-2:], blocks, strict=True))
        major, minor, name = (columns, rows, "row") if X.format == "csc" else (rows, columns, "column")
        starts = X.indptr
        fits = starts.shape == (major + 1,) and starts.dtype.kind in "iu" and X.indices.shape == (len(X.data),)
        fits = fits and X.data.ndim == (3 if X.format == "bsr" else 1)
        if not fits or starts[0] != 0 or starts[-1] > n_values or (starts[1:] < starts[:-1]).any():
            return "its indptr, indices and data do not fit each other"
        n_values = int(starts[-1])
        names, lengths, coordinates = (name,), (minor,), [X.indices[:n_values]]
    for name, length, indices in zip(names, lengths, coordinates, strict=True):
        if indices.shape != (n_values,) or (n_values and indices.dtype.kind not in "iu"):
            return f"its {name} indices are not as many integers as it has values"
        for worst in (indices.min(), indices.max()) if n_values else ():
            if not 0 <= worst < length:
                return f"it has the {name} index {worst}, outside 0 to {length - 1}"
    return None
