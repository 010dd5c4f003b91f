"""Primitives of `rkdl._backends.base` as functions, for code that calls one or two of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rkdl._backends.base import backend_of
from rkdl._backends.base import is_tensor as is_tensor


def cast(array: Any, dtype: Any) -> Any:
    """The array in a NumPy dtype; itself if it has it."""
    return backend_of(array).cast(array, dtype)


def copied(array: Any) -> Any:
    """A copy."""
    return backend_of(array).copy(array)


def dot(left: Any, right: Any) -> Any:
    """Sum of the products of all entries; of tensors a tensor, so that nothing waits for it yet."""
    return backend_of(left).dot(left, right)


def row_norms(rows: Any) -> Any:
    """``|x|`` of every row."""
    return backend_of(rows).row_norms(rows)


def squared_norms(rows: Any) -> Any:
    """``|x|^2`` of every row."""
    return backend_of(rows).squared_norms(rows)


def norm(array: Any) -> float:
    """Root of the sum of all squares; infinite where that overflows."""
    return backend_of(array).norm(array)


def host(value: Any) -> Any:
    """A tensor as a NumPy array; anything else as it is."""
    return backend_of(value).to_host(value)


def where(condition: Any, value: Any, otherwise: Any) -> Any:
    """`value` where the condition holds, else `otherwise`."""
    return backend_of(condition).where(condition, value, otherwise)


def largest(rows: Any, count: int) -> tuple[Any, Any]:
    """The `count` largest numbers of every row and their places, in no order."""
    return backend_of(rows).largest(rows, count)


def joined(parts: list[Any]) -> Any:
    """Arrays one after another along their first axis."""
    return parts[0] if len(parts) == 1 else backend_of(parts[0]).concatenate(parts)


def stacked(arrays: Sequence[np.ndarray]) -> np.ndarray:
    """Arrays of the same number of axes in one, each padded with zeros to the largest length of every axis."""
    shape = np.max([array.shape for array in arrays], axis=0)
    return np.stack([np.pad(own, [(0, n - k) for n, k in zip(shape, own.shape, strict=True)]) for own in arrays])


def normalize_rows(rows: Any, otherwise: Any = None) -> Any:
    """Rows of unit norm; a row without direction becomes that of `otherwise`, or zero."""
    if 0 in rows.shape:
        return copied(rows)
    norms = row_norms(rows)
    is_tiny = norms <= 1e-14 * norms.max()
    fallback = backend_of(rows).full(rows.shape, 0.0, rows) if otherwise is None else normalize_rows(otherwise)
    return where(is_tiny[:, None], fallback, rows / where(is_tiny, 1.0, norms)[:, None])
