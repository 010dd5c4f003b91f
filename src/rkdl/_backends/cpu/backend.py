"""The primitives of `rkdl._backends.base` on NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import blas, lapack

from rkdl._backends.cpu import sweeps
from rkdl._backends.cpu.codes import (
    padded_gram,
    pursue,
    residual_gradients,
)
from rkdl._backends.cpu.products import combine, multiply
from rkdl._backends.cpu.rows import find_exponents, square_rows
from rkdl._utils.types import FLOATS


def _add(total: np.ndarray, term: np.ndarray, factor: float) -> None:
    """``total += factor * term`` without an array in between."""
    blas.daxpy(term.ravel(), total.ravel(), a=factor)


class CPUBackend:
    """NumPy, LAPACK and Numba; see `rkdl._backends.base.Backend` for what each primitive does."""

    padded_gram = staticmethod(padded_gram)
    pursue = staticmethod(pursue)
    residual_gradients = staticmethod(residual_gradients)

    def to_host(self, array: Any) -> Any:
        return array

    def from_host(self, array: Any, like: Any) -> Any:
        return array

    def as_like(self, array: Any, like: Any) -> Any:
        return array.astype(like.dtype, copy=False)

    def cast(self, array: Any, dtype: Any) -> Any:
        return array.astype(dtype, copy=False)

    def copy(self, array: np.ndarray) -> np.ndarray:
        return array.copy()

    def full(self, shape: tuple[int, ...], value: float, like: np.ndarray) -> np.ndarray:
        array = np.empty(shape, dtype=like.dtype)
        array.fill(value)
        return array

    stack = staticmethod(np.stack)
    concatenate = staticmethod(np.concatenate)
    where = staticmethod(np.where)
    flatnonzero = staticmethod(np.flatnonzero)

    def largest(self, rows: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        at = np.argpartition(rows, -count, axis=1)[:, -count:]
        return np.take_along_axis(rows, at, axis=1), at

    def smallest(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        at = rows.argmin(axis=1)
        return rows[np.arange(len(rows)), at], at

    def group_sums(
        self, rows: np.ndarray, groups: np.ndarray, weights: np.ndarray, count: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        members = sparse.csr_array((weights, (groups, np.arange(len(rows)))), shape=(count, len(rows)))
        return members @ rows, members.sum(axis=1), np.bincount(groups, minlength=count)

    gram_sweep = staticmethod(sweeps.gram_sweep)
    sweep_codes = sweeps.SweepCodes

    def project_rows(self, features: list[np.ndarray], rows: np.ndarray, vector: np.ndarray) -> np.ndarray:
        return sweeps.project_rows(features[0], rows, vector)

    def lbfgs_direction(self, gradient: np.ndarray, pairs: Any) -> tuple[np.ndarray, float]:
        direction = np.ascontiguousarray(-gradient)
        weights = []
        for shift, change, curvature in reversed(pairs):
            weight = np.vdot(shift, direction) / curvature
            _add(direction, change, -weight)
            weights.append(weight)
        shift, change, curvature = pairs[-1]
        direction *= curvature / np.vdot(change, change)
        for (shift, change, curvature), weight in zip(pairs, reversed(weights), strict=True):
            _add(direction, shift, weight - np.vdot(change, direction) / curvature)
        return direction, float(np.vdot(direction, gradient))

    def finfo(self, array: np.ndarray) -> Any:
        return np.finfo(array.dtype)

    def exp(self, array: np.ndarray) -> np.ndarray:
        return np.exp(array, out=array)

    log = staticmethod(np.log)

    def log_softmax(self, rows: np.ndarray) -> np.ndarray:
        logits = rows - rows.max(axis=1, keepdims=True)
        logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
        return logits

    def power(self, array: np.ndarray, exponent: float) -> np.ndarray:
        if exponent != int(exponent) or exponent < 0.0:
            return array ** array.dtype.type(exponent)
        # By multiplications: exact in sign, and faster than a call of pow.
        degree, result = int(exponent), np.ones_like(array)
        with np.errstate(over="ignore", invalid="ignore"):
            while degree:
                if degree & 1:
                    result *= array
                degree >>= 1
                if degree:
                    array = array * array
        return result

    def cos_and_sin(self, phases: np.ndarray, factor: float) -> np.ndarray:
        count = phases.shape[1]
        both = np.empty((len(phases), 2 * count), dtype=phases.dtype)
        np.cos(phases, out=both[:, :count])
        np.sin(phases, out=both[:, count:])
        both *= phases.dtype.type(factor)
        return both

    def fill_diagonal(self, matrix: np.ndarray, values: Any) -> None:
        np.fill_diagonal(matrix, values)

    def dot(self, left: np.ndarray, right: np.ndarray) -> Any:
        return np.vdot(left, right)

    def dots(self, left: np.ndarray, right: np.ndarray) -> tuple[float, float, float]:
        return float(np.vdot(left, right)), float(np.vdot(left, left)), float(np.vdot(right, right))

    def norm(self, array: np.ndarray) -> float:
        with np.errstate(over="ignore"):
            return float(np.linalg.norm(array))

    def row_norms(self, rows: np.ndarray) -> np.ndarray:
        return np.linalg.norm(rows, axis=1)

    def extremes(self, array: np.ndarray) -> tuple[float, float]:
        return float(array.min()), float(array.max())

    def squared_norms(self, rows: np.ndarray) -> np.ndarray:
        if rows.dtype not in FLOATS or not rows.flags.c_contiguous:
            return np.einsum("ij,ij->i", rows, rows)
        squares = np.empty(len(rows), dtype=rows.dtype)
        square_rows(rows, squares)
        return squares

    def unit_rows(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, float, float]:
        norms = np.sqrt(self.squared_norms(rows))
        with np.errstate(divide="ignore", invalid="ignore"):
            return rows / norms[:, None], norms, *self.extremes(norms)

    product = staticmethod(multiply)
    weighted_sum = staticmethod(combine)

    def distances(self, rows: np.ndarray, others: np.ndarray, factor: float) -> np.ndarray:
        exponents = self._exponents(rows, others, factor)
        return np.negative(exponents, out=exponents)

    def rbf(self, rows: np.ndarray, others: np.ndarray, gamma: float) -> np.ndarray:
        return self.exp(self._exponents(rows, others, gamma))

    def _exponents(self, rows: np.ndarray, others: np.ndarray, gamma: float) -> np.ndarray:
        """``-gamma |x - y|^2`` (c, n)."""
        values = multiply(rows, others)
        own, other = self.squared_norms(rows), self.squared_norms(others)
        dtype = values.dtype.type
        scaled = [(gamma * squares).astype(dtype, copy=False) for squares in (own, other)]
        find_exponents(values, dtype(2.0 * gamma), own, *scaled)
        # Where gamma is so large that the rounding of a zero distance shows, put zero for it.
        rounding = 8.0 * gamma * float(np.finfo(values.dtype).eps)
        if rounding * float(other.max(initial=0.0)) > 1e-4:
            values[values > -rounding * (own[:, None] + other)] = 0.0
        return values

    def scaled_rbf(
        self, rows: np.ndarray, others: np.ndarray, gamma: float, squares: np.ndarray, other_squares: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        with np.errstate(over="ignore", invalid="ignore"):
            exponents = multiply(rows, others)
            exponents *= 2.0
            exponents -= squares[:, None]
            exponents -= other_squares
            exponents *= gamma
        np.minimum(exponents, 0.0, out=exponents)
        logs = exponents.max(axis=1)
        is_far = ~np.isfinite(logs)
        exponents[is_far] = logs[is_far] = 0.0
        exponents -= logs[:, None]
        logs[is_far] = -np.inf
        return np.exp(exponents, out=exponents), logs

    def radial_gradient(self, weights: np.ndarray, rows: np.ndarray, others: np.ndarray, factor: float) -> np.ndarray:
        gradient = combine(weights, rows)
        gradient -= weights.sum(axis=0, dtype=np.float64)[:, None] * others
        gradient *= factor
        return gradient

    def cholesky(self, matrix: np.ndarray, dtype: Any) -> tuple[np.ndarray, np.ndarray] | None:
        if not np.isfinite(matrix).all():
            return None
        largest = max(float(matrix.diagonal().max()), 0.0)
        if largest == 0.0:
            return np.empty(0, dtype=np.intp), np.empty((0, 0))
        tolerance = len(matrix) * float(np.finfo(dtype).eps) * largest
        factor, pivots, rank, _ = lapack.dpstrf(matrix, tol=tolerance, lower=1)
        # What stands above the diagonal is not read.
        return pivots[:rank] - 1, np.ascontiguousarray(factor[:rank, :rank])

    def inverse_factor(self, factor: np.ndarray) -> None:
        return None

    def solve_rows(self, factor: np.ndarray, inverse: None, rows: np.ndarray, transposed: bool) -> np.ndarray:
        # LAPACK itself: SciPy's function checks its arguments for longer than so small a solution takes. What is
        # lower in rows is upper in columns, and nothing is copied.
        solution: np.ndarray = lapack.dtrtrs(factor.T, rows.T, lower=0, trans=int(not transposed))[0]
        return solution.T


CPU = CPUBackend()
