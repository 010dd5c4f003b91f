"""Signals in memory, read chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from functools import partial
from typing import Any, Final, Self, TypeVar

import numpy as np
from scipy import sparse

from rkdl._backends.arrays import cast, host, squared_norms, where
from rkdl._utils.inputs import check_rows_finite
from rkdl._utils.types import Array

# Numbers per piece, in float64, where all signals are inspected.
PIECE_SIZE = 1 << 20
Result = TypeVar("Result")
_NOTHING = nullcontext()

# Mean squares up to this, and from its inverse on, are safe: squares of sums over signals stay in the range of float64,
# and squares of correlations in that of float32.
_SAFE_LIMIT = {np.dtype(np.float32): 2.0**60, np.dtype(np.float64): 2.0**440}


# Below this, squares of float32 lose digits to underflow.
_FAINT = float(np.finfo(np.float32).tiny / np.finfo(np.float32).eps)


class Signals:
    """Rows of `data`, anything with ``shape`` (n_signals, n_features) and row slicing, read in float32 or float64.

    Immutable: `with_dtype` returns others that share the data.
    """

    def __init__(self, data: Any, dtype: Any, shape: tuple[int, int] | None = None) -> None:
        self.data: Final[Any] = data
        self.dtype: Final[np.dtype] = np.dtype(dtype)
        # The dtype that the signals were given in.
        self.result_dtype: Final[np.dtype] = self.dtype
        self.shape: Final[tuple[int, int]] = tuple(data.shape) if shape is None else shape

    # The torch device that rows are read to, None for NumPy; and, for tensors, the one that results are moved to.
    device: Any = None
    result_device: Any = None
    # How much every signal counts (n_signals,), in NumPy; None for all alike.
    weights: np.ndarray | None = None
    allows_nan = False  # whether NaN stands for a number that is not known
    is_remote = False  # whether passes run elsewhere, on a cluster
    is_in_memory = True  # whether the signals are in memory, so that there is room for something of their size

    def _finish(self, rows: Any) -> Array:
        # Asked of arrays, it takes longer than the rest.
        if type(rows) is not np.ndarray and sparse.issparse(rows):
            rows = rows.toarray()
        return np.ascontiguousarray(rows, dtype=self.dtype)

    @property
    def total(self) -> float:
        """The sum of the weights: the number of signals where all count alike."""
        return self.shape[0] if self.weights is None else float(self.weights.sum())

    def weighted(self, weights: np.ndarray, *, keeps_all: bool = False) -> Signals:
        """The signals with a weight each; those without any are left out, except on a cluster or with `keeps_all`."""
        rows = np.flatnonzero(weights)
        if len(rows) == len(weights) or self.is_remote or keeps_all:
            return self._replaced(weights=weights)
        return self.subset(rows)._replaced(weights=weights[rows])

    def with_dtype(self, dtype: np.dtype) -> Self:
        """The same signals, read in another dtype; results go back to the one that they were given in."""
        return self if dtype == self.dtype else self._replaced(dtype=dtype)

    def with_missing(self, missing: str) -> Self:
        """The same signals, in which NaN stands for a number that is not known if `missing` is "ignore"."""
        if missing not in ("error", "ignore"):
            raise ValueError(f"missing={missing!r} is unknown; choose 'error' or 'ignore'.")
        if missing == "error":
            return self
        if self.is_remote or sparse.issparse(self.data):
            raise ValueError(
                "missing='ignore' is for dense signals on one machine: give an array, a memory map, a Zarr array or an "
                "HDF5 dataset."
            )
        return self._replaced(allows_nan=True)

    def _replaced(self, **changes: Any) -> Self:
        """A copy with other attributes, which does not share buffers of rows."""
        other = copy(self)
        vars(other).update(changes)
        return other

    def as_given(self, result: Any) -> Any:
        """A result in the dtype of results."""
        if self.dtype == self.result_dtype:
            return result
        try:
            with np.errstate(over="raise"):
                return cast(result, self.result_dtype)
        except FloatingPointError:
            raise ValueError(
                f"Results leave the range of {self.result_dtype}: give the signals in {self.dtype}, or scale them."
            ) from None

    def read(self, start: int, stop: int) -> Array:
        """Rows `start` to `stop`, C-contiguous; not to be written to."""
        return self._finish(self.data[start:stop])

    def take(self, indices: np.ndarray) -> np.ndarray:
        """The rows of the given indices, in their order."""
        order = np.argsort(indices, kind="stable")
        rows = self._finish(self.data[np.asarray(indices)[order]])
        if (order[1:] > order[:-1]).all():
            return rows
        taken = np.empty_like(rows)
        taken[order] = rows
        return taken

    def on_host(self) -> Signals:
        """The same signals, read into host memory."""
        return self

    def subset(self, indices: np.ndarray) -> Signals:
        """Some of the signals, in memory."""
        return Signals(self.take(indices), self.dtype)

    def reading(self, bounds: Sequence[tuple[int, int]], at_once: int) -> AbstractContextManager[None]:
        """Context of a pass that reads rows `bounds` in this order, `at_once` at a time; slow sources read ahead."""
        return _NOTHING

    def check_finite(self, name: str = "X") -> None:
        """Refuse NaN and infinity with scikit-learn's words and the columns concerned."""
        self._of_pieces(partial(_check_finite, name=name), "check")

    def largest(self) -> float:
        """The largest magnitude of all numbers."""
        return max(self._of_pieces(_largest, "extent"), default=0.0)

    def squared_norms(self) -> np.ndarray:
        """``|y|^2`` (n_signals,) of every signal, in float64."""
        return np.concatenate(self._of_pieces(_squares, "norms"))

    def variance(self) -> float:
        """Variance of all numbers."""
        counts, means, deviations = np.array(self._of_pieces(_moments, "moments")).T
        size = self.shape[0] * self.shape[1]
        mean = float(counts @ means) / size
        return float(deviations.sum() + float(counts @ (means - mean) ** 2)) / size

    def _of_pieces(self, function: Callable[[Array], Result], name: str) -> list[Result]:
        """Results of the function for consecutive pieces of rows, with zeros for missing numbers."""
        n_rows, step = self.shape[0], max(1, PIECE_SIZE // self.shape[1])
        pieces = (self.read(start, min(start + step, n_rows)) for start in range(0, n_rows, step))
        return [function(without_nan(rows) if self.allows_nan else rows) for rows in pieces]


def without_nan(rows: Array) -> Array:
    """The rows with zeros for NaN."""
    return where(rows == rows, rows, 0.0)


def _check_finite(rows: Array, name: str) -> None:
    check_rows_finite(host(rows), name)


def _largest(numbers: Array) -> float:
    return max(float(numbers.max()), -float(numbers.min()))


def _squares(rows: Array) -> np.ndarray:
    return host(squared_norms(cast(rows, np.float64)))


def _moments(numbers: Array) -> tuple[int, float, float]:
    """How many there are, their mean, and the sum of their squared deviations from it."""
    wide = cast(numbers, np.float64).reshape(-1)
    mean = float(wide.mean())
    wide = wide - mean
    return len(wide), mean, float(wide @ wide)


def check_shape(shape: tuple[int, ...], kind: str, caller: str) -> None:
    """Refuse a shape other than (n_signals, n_features); `kind` names what has it."""
    if len(shape) != 2:
        raise ValueError(f"Expected 2D array, got {len(shape)}D {kind} instead: one signal per row.")
    for count, what in zip(shape, ("sample(s)", "feature(s)"), strict=True):
        if count < 1:
            raise ValueError(f"Found array with 0 {what} (shape={shape}) while a minimum of 1 is required by {caller}.")


def float_dtype(dtype: Any) -> np.dtype:
    """float32 and float64 stay, other numbers become float64."""
    dtype = np.dtype(dtype)
    return np.dtype(np.float32 if dtype.kind == "f" and dtype.itemsize == 4 else np.float64)


def is_safe(mean_square: float, dtype: Any) -> bool:
    """Whether squares of numbers of this mean square, and squares of those, stay well inside the dtype."""
    limit = _SAFE_LIMIT[np.dtype(dtype)]
    return 1.0 / limit <= mean_square <= limit


class NotFiniteError(ValueError):
    """Features left the range of their dtype, or the signals were not finite."""

    def __str__(self) -> str:
        return (
            "The signals' features are not finite in their dtype: scale the signals, lower the kernel's gamma or "
            "degree, or use float64."
        )


class RangeError(ValueError):
    """Squares of the signals, whose largest magnitude is the argument, leave the range of float64."""

    def __str__(self) -> str:
        return (
            f"The largest magnitude in X is {self.args[0]:.3g}, and squares of such numbers leave the range of "
            f"float64: rescale the signals, for example X / {self.args[0]:.0e}."
        )


def has_faint(rows: np.ndarray, squares: np.ndarray) -> bool:
    """Whether the squared norm of a row in float32, which is not zero, has lost digits, or vanished."""
    if rows.dtype != np.float32:
        return False
    return bool(rows[squares < _FAINT].any())


def needs_float64(rows: np.ndarray) -> bool:
    """Whether squares of the rows, which are finite, leave the range of float32 and not that of float64."""
    squares = squared_norms(rows)
    with np.errstate(over="ignore", invalid="ignore"):
        mean_square = float(squares.sum()) / max(1, rows.size)
    if leaves_range(mean_square, rows.dtype, lambda: _largest(rows) if rows.size else 0.0):
        return True
    return is_safe(mean_square, rows.dtype) and has_faint(rows, squares)


def leaves_range(mean_square: float, dtype: Any, largest: Callable[[], float]) -> bool:
    """Whether squares leave the range of float32; raises if they leave that of float64 too.

    `largest` finds the largest magnitude, where the mean square does not decide.
    """
    if is_safe(mean_square, dtype):
        return False
    magnitude = largest()
    if magnitude == 0.0 or not np.isfinite(magnitude):
        return False
    if not is_safe(magnitude * magnitude, np.float64):
        raise RangeError(magnitude)
    return np.dtype(dtype) == np.float32
