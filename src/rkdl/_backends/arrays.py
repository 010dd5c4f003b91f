"""Primitives of `rkdl._backends.base.Backend` as functions, for code that calls one or two of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rkdl._backends.base import backend_of
from rkdl._backends.base import is_tensor as is_tensor
from rkdl._utils.types import Array


def _primitive(name: str) -> Callable[..., Array]:
    """The primitive of that name in the backend of its first argument."""

    def call(array: Array, *others: Array) -> Array:
        return getattr(backend_of(array), name)(array, *others)

    return call


cast, copied, dot, host = map(_primitive, ("cast", "copy", "dot", "to_host"))
norm, row_norms, squared_norms = map(_primitive, ("norm", "row_norms", "squared_norms"))
where, largest = map(_primitive, ("where", "largest"))


def joined(parts: list[Array]) -> Array:
    """Arrays concatenated along their first axis."""
    return parts[0] if len(parts) == 1 else backend_of(parts[0]).xp.concatenate(parts)


def normalize_rows(rows: Array, otherwise: Array = None) -> Array:
    """Rows of unit norm; a row without direction becomes that of `otherwise`, or zero."""
    if 0 in rows.shape:
        return copied(rows)
    norms = row_norms(rows)
    is_tiny = norms <= 1e-14 * norms.max()
    if not is_tensor(rows) and not is_tiny.any():
        # In C order whatever that of the rows, as `where` has it: sums then have the same digits after a file was read.
        return np.divide(rows, norms[:, None], order="C")
    fallback = backend_of(rows).full(rows.shape, 0.0, rows) if otherwise is None else normalize_rows(otherwise)
    return where(is_tiny[:, None], fallback, rows / where(is_tiny, 1.0, norms)[:, None])
