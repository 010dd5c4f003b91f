"""What NumPy and SciPy let through: masked entries, and sparse matrices whose index arrays are wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse


def well_formed(X: Any, name: str = "X") -> Any:
    """The array or sparse matrix as it is, or refused; `name` is the argument's.

    NumPy and SciPy take what is under a mask for numbers, and indices out of range for addresses in memory.
    """
    if sparse.issparse(X):
        _check_sparse(X, name)
    elif isinstance(X, np.ma.MaskedArray):
        n_masked = int(np.ma.count_masked(X))
        if n_masked:
            raise ValueError(
                f"{name} is a masked array, and {n_masked} of its {X.size} entries are masked: fill them, with "
                f"{name}.filled(value) or an imputer, or drop the rows that hold them."
            )
        return np.ma.getdata(X)
    return X


def _check_sparse(X: Any, name: str) -> None:
    """Refuse a sparse matrix whose index arrays contradict each other or its shape."""
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
            f"{name} is a malformed {X.format.upper()} matrix of shape {X.shape}: {problem}. Build it anew from its "
            f"rows, columns and values, for instance with scipy.sparse.coo_array((values, (rows, columns)), shape)."
        )


def _compressed_problem(
    indptr: np.ndarray, indices: np.ndarray, data: np.ndarray, lengths: tuple[int, int], by_rows: bool
) -> str | None:
    """What is wrong with the arrays of a CSR or CSC matrix of `lengths` lines and places in a line."""
    if indptr.shape != (lengths[0] + 1,):
        return f"indptr has shape {indptr.shape} and not {(lengths[0] + 1,)}"
    if indices.shape != data.shape:
        return f"there are {len(indices)} indices for {len(data)} values"
    if indptr[0] != 0:
        return f"indptr begins with {indptr[0]} and not with 0"
    falls = np.flatnonzero(indptr[1:] < indptr[:-1])
    if falls.size:
        return f"indptr falls from {indptr[falls[0]]} to {indptr[falls[0] + 1]}, at its entry {falls[0] + 1}"
    if indptr[-1] > len(indices):
        return f"indptr ends with {indptr[-1]}, and there are {len(indices)} indices"
    return _index_problem(indices[: indptr[-1]], lengths[1], "column" if by_rows else "row")


def _index_problem(indices: np.ndarray, length: int, what: str) -> str | None:
    for worst in (indices.min(initial=0), indices.max(initial=0)):
        if not 0 <= worst < max(length, 1):
            return f"it has the {what} index {worst}, outside 0 to {length - 1}"
    return None
