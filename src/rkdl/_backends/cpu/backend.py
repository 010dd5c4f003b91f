"""The primitives of `rkdl._backends.base` on NumPy arrays."""

from __future__ import annotations

import numpy as np
from scipy import sparse
from scipy.linalg import blas, lapack

from rkdl._backends.base import Backend
from rkdl._backends.cpu import sweeps
from rkdl._backends.cpu.codes import padded_gram, pursue
from rkdl._backends.cpu.products import combine, multiply
from rkdl._backends.cpu.rows import adam_step, divide_rows, find_exponents, square_rows, subtract_others
from rkdl._utils.types import FLOATS, Array


class CPUBackend(Backend):
    """NumPy, LAPACK and Numba."""

    xp = np
    padded_gram = staticmethod(padded_gram)
    pursue = staticmethod(pursue)
    adam_step = staticmethod(adam_step)

    def as_like(self, array: Array, like: Array) -> Array:
        return array.astype(like.dtype, copy=False)

    def cast(self, array: Array, dtype: np.dtype | type) -> Array:
        return array.astype(dtype, copy=False)

    def copy(self, array: np.ndarray) -> np.ndarray:
        return array.copy()

    def full(self, shape: tuple[int, ...], value: float, like: np.ndarray) -> np.ndarray:
        array = np.empty(shape, dtype=like.dtype)
        array.fill(value)
        return array

    def largest(self, rows: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        at = np.argpartition(rows, -count, axis=1)[:, -count:]
        return np.take_along_axis(rows, at, axis=1), at

    def group_sums(
        self, rows: np.ndarray, groups: np.ndarray, weights: np.ndarray, count: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        members = sparse.csr_array((weights, (groups, np.arange(len(rows)))), shape=(count, len(rows)))
        return members @ rows, members.sum(axis=1), np.bincount(groups, minlength=count)

    gram_sweep = staticmethod(sweeps.gram_sweep)
    sweep_codes = sweeps.SweepCodes

    def project_rows(self, features: list[np.ndarray], rows: np.ndarray, vector: np.ndarray) -> np.ndarray:
        return sweeps.project_rows(features[0], rows, vector)

    def add_scaled(self, total: np.ndarray, term: np.ndarray, factor: Array) -> None:
        # Without an array in between.
        blas.daxpy(term.ravel(), total.ravel(), a=factor)

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

    def fill_diagonal(self, matrix: np.ndarray, values: Array) -> None:
        np.fill_diagonal(matrix, values)

    def dot(self, left: np.ndarray, right: np.ndarray) -> Array:
        return np.vdot(left, right)

    def dots(self, left: np.ndarray, right: np.ndarray) -> tuple[float, float, float]:
        return float(np.vdot(left, right)), float(np.vdot(left, left)), float(np.vdot(right, right))

    def squared_norms(self, rows: np.ndarray) -> np.ndarray:
        if rows.dtype not in FLOATS or not rows.flags.c_contiguous:
            return np.einsum("ij,ij->i", rows, rows)
        squares = np.empty(len(rows), dtype=rows.dtype)
        square_rows(rows, squares)
        return squares

    def unit_rows(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, float, float]:
        # In one pass: NumPy's four take an eighth of the time of coding one signal.
        unit, norms = np.empty_like(rows), np.empty(len(rows), dtype=rows.dtype)
        return unit, norms, *divide_rows(rows, norms, unit)

    product = staticmethod(multiply)
    weighted_sum = staticmethod(combine)

    def weighted_differences(self, weights: Array, rows: Array, others: Array, factor: float) -> Array:
        total = combine(weights, rows)
        subtract_others(total, weights, others, factor)
        return total

    def exponents(self, rows: np.ndarray, others: np.ndarray, gamma: float) -> np.ndarray:
        values = multiply(rows, others)
        find_exponents(values, float(gamma), self.squared_norms(rows), self.squared_norms(others))
        return values

    def cholesky(self, matrix: np.ndarray, zero: float) -> tuple[np.ndarray, np.ndarray] | None:
        if not np.isfinite(matrix).all():
            return None
        largest = max(float(matrix.diagonal().max()), 0.0)
        if largest == 0.0:
            return np.empty(0, dtype=np.intp), np.empty((0, 0))
        factor, pivots, rank, _ = lapack.dpstrf(matrix, tol=zero * largest, lower=1)
        # Entries above the diagonal are not read.
        return pivots[:rank] - 1, np.ascontiguousarray(factor[:rank, :rank])

    def solve_rows(self, factor: np.ndarray, inverse: None, rows: np.ndarray, transposed: bool) -> np.ndarray:
        # LAPACK directly: SciPy's checks of the arguments take longer than so small a solve. In column order the
        # lower factor is an upper one, so that nothing is copied.
        solution: np.ndarray = lapack.dtrtrs(factor.T, rows.T, lower=0, trans=int(not transposed))[0]
        return solution.T


BACKEND = CPUBackend()
