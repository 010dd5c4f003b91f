"""Checks of input that NumPy and SciPy accept: masked entries, and sparse matrices with invalid index arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse


def well_formed(X: Any, name: str = "X") -> Any:
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


def _check_sparse(X: Any, name: str) -> None:
    """Refuse a sparse matrix with index arrays that contradict each other or its shape."""
    problem = None
    if X.format in ("csr", "csc"):
        lengths = X.shape if X.format == "csr" else X.shape[::-1]
        problem = _compressed_problem(X.indptr, X.indices, X.data, lengths, X.format == "csr")
    elif X.format == "coo":
        for places, length, what in zip((X.row, X.col), X.shape, ("row", "column"), strict=True):
            problem = problem or _index_problem(places, length, what)
    elif hasattr(X, "check_format"):
        try:
            X.check_format(full_check=True)
        except ValueError as error:
            problem = str(error)
    if problem is not None:
        raise ValueError(
            f"{name} is a malformed {X.format.upper()} matrix of shape {X.shape}: {problem}. Rebuild it from its "
            f"rows, columns and values, for example with scipy.sparse.coo_array((values, (rows, columns)), shape)."
        )


def _compressed_problem(
    indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, lengths: tuple[int, int], by_rows: bool
) -> str | None:
    """Describe the first problem of a CSR or CSC matrix with `lengths` (major, minor) sizes."""
    if indptr.shape != (lengths[0] + 1,):
        return f"indptr has shape {indptr.shape} instead of {(lengths[0] + 1,)}"
    if indices.shape != data.shape:
        return f"there are {len(indices)} indices for {len(data)} values"
    if indptr[0] != 0:
        return f"indptr begins with {indptr[0]} instead of 0"
    falls = np.flatnonzero(indptr[1:] < indptr[:-1])
    if falls.size:
        return f"indptr decreases from {indptr[falls[0]]} to {indptr[falls[0] + 1]} at entry {falls[0] + 1}"
    if indptr[-1] > len(indices):
        return f"indptr ends with {indptr[-1]}, but there are {len(indices)} indices"
    return _index_problem(indices[: indptr[-1]], lengths[1], "column" if by_rows else "row")


def _index_problem(indices: np.ndarray, length: int, what: str) -> str | None:
    for worst in (indices.min(initial=0), indices.max(initial=0)):
        if not 0 <= worst < max(length, 1):
            return f"it has the {what} index {worst}, outside 0 to {length - 1}"
    return None
