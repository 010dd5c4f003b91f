"""Signals in memory, read chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import assert_all_finite

from rkdl._backends.arrays import cast

# Numbers that are in float64 together while their variance is found.
MOMENTS_AT_ONCE = 1 << 20

# Squares of squares of the signals must stay finite in the dtype.
_SAFE_EXPONENT = {np.dtype(np.float32): 20, np.dtype(np.float64): 100}


@dataclass(frozen=True)
class Moments:
    """Of some numbers: how many there are, their mean, and the sum of their squared deviations from it."""

    count: int = 0
    mean: float = 0.0
    deviation: float = 0.0

    @classmethod
    def of(cls, values: np.ndarray) -> Moments:
        """Those of all numbers of an array of float64."""
        if values.size == 0:
            return cls()
        mean = float(values.mean(dtype=np.float64))
        flat = values.ravel() - mean
        return cls(values.size, mean, float(np.dot(flat, flat)))

    def __add__(self, other: Moments) -> Moments:
        """Those of the numbers of both, without the cancellation of a mean of squares less a squared mean."""
        count = self.count + other.count
        if count == 0:
            return self
        step = other.mean - self.mean
        mean = self.mean + step * (other.count / count)
        return Moments(count, mean, self.deviation + other.deviation + step * step * (self.count * other.count / count))

    @property
    def variance(self) -> float:
        """Mean squared deviation from the mean."""
        return self.deviation / self.count if self.count else 0.0


class Signals:
    """Rows of `data` in one dtype, multiplied by a power of two where their squares would leave its range.

    Parameters
    ----------
    data : array-like or CSR matrix of shape (n_signals, n_features)
        Anything with ``shape`` and row slicing.
    dtype : dtype
        float32 or float64.
    scale : float, default=1.0
        What rows are multiplied by when they are read.
    """

    def __init__(self, data: Any, dtype: Any, scale: float = 1.0) -> None:
        self.data = data
        self.dtype = np.dtype(dtype)
        self.scale = scale
        self.shape: tuple[int, int] = tuple(data.shape)
        self.median_gamma: float | None = None

    # The dtype of results, where it is not that in which the signals are worked on.
    given_dtype: np.dtype | None = None
    # Whether a walk happens elsewhere, and few signals are better fetched than visited.
    is_remote = False
    # Whether the signals fit in memory, so that something of their size may be kept beside them.
    is_in_memory = True

    def _finish(self, rows: Any) -> np.ndarray:
        if sparse.issparse(rows):
            rows = rows.toarray()
        rows = np.ascontiguousarray(rows, dtype=self.dtype)
        return rows if self.scale == 1.0 else rows * self.dtype.type(self.scale)

    def widen(self) -> None:
        """Work on the signals in float64 from here on; results go back to the dtype that they have now."""
        self.given_dtype, self.dtype = self.dtype, np.dtype(np.float64)

    @property
    def result_dtype(self) -> np.dtype:
        """The dtype of results."""
        return self.dtype if self.given_dtype is None else self.given_dtype

    def as_given(self, result: Any) -> Any:
        """A result in the dtype of results."""
        return result if self.given_dtype is None else cast(result, self.given_dtype)

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows `start` to `stop`, C-contiguous, scaled; not to be written to."""
        return self._finish(self.data[start:stop])

    def take(self, indices: np.ndarray) -> np.ndarray:
        """The rows of the given indices, in their order, scaled."""
        order = np.argsort(indices, kind="stable")
        rows = self._finish(self.data[np.asarray(indices)[order]])
        taken = np.empty_like(rows)
        taken[order] = rows
        return taken

    def subset(self, indices: np.ndarray) -> Signals:
        """Some of the signals, in memory."""
        return Signals(self.take(indices), self.dtype)

    def reading(self) -> AbstractContextManager:
        """Lasts as long as a walk; a source that is slow to read reads announced rows ahead."""
        return nullcontext()

    def announce(self, start: int, stop: int) -> None:
        """These rows will be read soon."""

    def check_finite(self) -> None:
        """Refuse NaN and infinity with scikit-learn's words."""
        for block in self._blocks():
            # A sum of numbers near the dtype's largest may be infinity less infinity.
            with np.errstate(over="ignore", invalid="ignore"):
                assert_all_finite(block, input_name="X")

    def largest(self) -> float:
        """The largest magnitude of all numbers."""
        extents = [max(block.max(initial=0.0), -block.min(initial=0.0)) for block in self._blocks()]
        return float(max(extents, default=0.0))

    def moments(self) -> Moments:
        """Moments of all numbers, after their scale; the zeros of a sparse matrix are among them."""
        total = Moments()
        blocks = [_values_of(self.data)] if sparse.issparse(self.data) else self._blocks()
        for block in blocks:
            step = MOMENTS_AT_ONCE if block.ndim == 1 else max(1, MOMENTS_AT_ONCE // block.shape[1])
            for start in range(0, len(block), step):
                total += Moments.of(self.scale * block[start : start + step].astype(np.float64))
        return total + Moments(self.shape[0] * self.shape[1] - total.count)

    def _blocks(self) -> Iterator[np.ndarray]:
        yield self.data.data if sparse.issparse(self.data) else np.asarray(self.data)


def _values_of(matrix: Any) -> np.ndarray:
    """The values of a sparse matrix, each place once."""
    matrix = sparse.csr_array(matrix)
    if not matrix.has_canonical_format:
        matrix = matrix.copy()
        matrix.sum_duplicates()
    values: np.ndarray = matrix.data[: matrix.indptr[-1]]
    return values


def is_safe(mean_square: float, dtype: Any) -> bool:
    """Whether squares of numbers of this mean square, and squares of those, stay well inside the dtype."""
    limit = 2.0 ** (2 * _SAFE_EXPONENT[np.dtype(dtype)])
    return 1.0 / limit <= mean_square <= limit


def safe_scale(values: np.ndarray) -> float:
    """The power of two that brings the largest magnitude near one, or 1.0 where all are zero."""
    return unit_scale(float(max(values.max(initial=0.0), -values.min(initial=0.0))), values.dtype)


def unit_scale(largest: float, dtype: Any) -> float:
    """The power of two that brings a magnitude near one as far as the dtype allows, or 1.0 for zero."""
    if largest == 0.0:
        return 1.0
    exponent = int(np.frexp(largest)[1])
    limit = int(np.finfo(dtype).maxexp) - 28
    return float(2.0 ** -min(max(exponent, -limit), limit))
