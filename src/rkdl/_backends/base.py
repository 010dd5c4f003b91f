"""The interface of a backend, and `backend_of`, which finds that of an array.

Kernels, maps, metrics and the learning are written once on these primitives. What NumPy and torch do alike is written
here; the rest in `cpu/backend.py` for arrays, with Numba where that is faster, and in `torch/backend.py` for tensors,
with Triton on a GPU. A third backend is one more folder and a line in `backend_of`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from rkdl._backends.cpu.codes import PURSUITS as PURSUITS
from rkdl._backends.cpu.codes import Codes as Codes
from rkdl._backends.cpu.sweeps import SHORT as SHORT
from rkdl._backends.cpu.sweeps import SHORT_IN_METRIC as SHORT_IN_METRIC
from rkdl._utils.types import Array

if TYPE_CHECKING:
    from rkdl._backends.torch.pursuit import TensorCodes


# History of L-BFGS, oldest first: shifts, changes of the gradient, and their inner products.
Pairs: TypeAlias = Sequence[tuple[Array, Array, float]]
# The codes of a chunk, of arrays or of tensors; `Codes` describes both.
ChunkCodes: TypeAlias = "Codes | TensorCodes"


class Backend(Protocol):
    """Primitives on arrays of one library; arguments are of that library unless they say otherwise.

    Functions that NumPy and torch call by the same name, such as `stack` and `finfo`, are taken from `xp`.
    """

    xp: ModuleType

    def to_host(self, array: Array) -> np.ndarray:
        """The array in NumPy; unchanged if it is there."""
        return array

    def from_host(self, array: Array, like: Array) -> Array:
        """A NumPy array moved to the device of `like`; an array of this backend is unchanged."""
        return array

    def as_like(self, array: Array, like: Array) -> Array:
        """An array of this backend or of NumPy, with the dtype and device of `like`."""

    def cast(self, array: Array, dtype: np.dtype | type) -> Array:
        """The array in a NumPy dtype; unchanged if it has that dtype."""

    def copy(self, array: Array) -> Array:
        """A copy."""

    def full(self, shape: tuple[int, ...], value: float, like: Array) -> Array:
        """An array filled with one number, with the dtype and device of `like`."""

    def where(self, condition: Array, value: Array, otherwise: Array) -> Array:
        """`value` where the condition holds, else `otherwise`."""
        return self.xp.where(condition, value, otherwise)

    def largest(self, rows: Array, count: int) -> tuple[Array, Array]:
        """The `count` largest numbers of every row and their indices, in any order."""

    def group_sums(self, rows: Array, groups: Array, weights: Array, count: int) -> tuple[Array, Array, Array]:
        """Weighted sums (count, m) and weights (count,) of the rows of every group, and their numbers (count,)."""

    def exp(self, array: Array) -> Array:
        """``e^x`` of every number, in place."""
        return self.xp.exp(array, out=array)

    def log_softmax(self, rows: Array) -> Array:
        """Logarithms of the softmax of every row, in a new array."""
        logits = rows - self.xp.amax(rows, 1, keepdims=True)
        logits -= self.xp.log(self.xp.exp(logits).sum(1, keepdims=True))
        return logits

    def power(self, array: Array, exponent: float) -> Array:
        """``x^exponent`` in a new array; the sign is exact if the exponent is an integer."""

    def cos_and_sin(self, phases: Array, factor: float) -> Array:
        """``factor cos(x)`` and, to the right of it, ``factor sin(x)``."""
        count = phases.shape[1]
        both = self.full((len(phases), 2 * count), 0.0, phases)
        self.xp.cos(phases, out=both[:, :count])
        self.xp.sin(phases, out=both[:, count:])
        both *= factor
        return both

    def fill_diagonal(self, matrix: Array, values: Array) -> None:
        """Write the diagonal in place."""

    def dot(self, left: Array, right: Array) -> Array:
        """Sum of the products of all entries, without waiting for a device."""

    def dots(self, left: Array, right: Array) -> tuple[float, float, float]:
        """``<x, y>``, ``<x, x>`` and ``<y, y>``, waiting for a device once."""

    def norm(self, array: Array) -> float:
        """Root of the sum of all squares; infinite where that overflows."""
        with np.errstate(over="ignore"):
            return float(self.xp.linalg.norm(array))

    def row_norms(self, rows: Array) -> Array:
        """``|x|`` of every row."""
        return self.xp.linalg.norm(rows, axis=1)

    def unit_rows(self, rows: Array) -> tuple[Array, Array, float, float]:
        """The rows divided by their norms, the norms, and the smallest and the largest norm, or NaN twice."""
        norms = self.xp.sqrt(self.squared_norms(rows))
        with np.errstate(divide="ignore", invalid="ignore"):
            return rows / norms[:, None], norms, float(norms.min()), float(norms.max())

    def squared_norms(self, rows: Array) -> Array:
        """``|x|^2`` of every row."""

    def product(self, rows: Array, others: Array) -> Array:
        """``rows @ others.T`` (c, n) in a new array."""

    def weighted_sum(self, weights: Array, rows: Array) -> Array:
        """``weights.T @ rows`` (n, m) in float64, of weights (c, n) and rows (c, m) in the rows' dtype."""

    def weighted_differences(self, weights: Array, rows: Array, others: Array, factor: float) -> Array:
        """``factor sum_t w_ti (x_t - y_i)`` (n, m) in float64, of weights (c, n), rows (c, m) and others (n, m)."""
        total = self.weighted_sum(weights, rows)
        total -= weights.sum(0, dtype=self.xp.float64)[:, None] * others
        total *= factor
        return total

    def exponents(self, rows: Array, others: Array, gamma: float) -> Array:
        """``-gamma |x - y|^2`` (c, n), zero between equal rows and NaN for a row that is not finite."""

    def distances(self, rows: Array, others: Array, factor: float) -> Array:
        """``factor |x - y|^2`` (c, n), as `exponents`."""
        exponents = self.exponents(rows, others, factor)
        return self.xp.negative(exponents, out=exponents)

    def rbf(self, rows: Array, others: Array, gamma: float) -> Array:
        """``exp(-gamma |x - y|^2)`` (c, n), as `exponents`."""
        return self.exp(self.exponents(rows, others, gamma))

    def padded_gram(self, gram: Array) -> Array:
        """The inner products of all atoms as the pursuit reads them, prepared once for many chunks."""
        return gram

    def pursue(
        self,
        correlations: Array,
        gram: Array | None,
        squared_norms: Array,
        n_nonzero: int,
        residual_tol: float,
        pursuit: str,
        positive: bool = False,
        alpha: float | Array = 0.0,
        l2: float | Array = 0.0,
        dictionary: Array | None = None,
        observed: Array | None = None,
    ) -> tuple[ChunkCodes, Array]:
        """Sparse codes of c signals against n atoms of unit norm, and squared residuals (c,), never negative.

        `correlations` (c, n) and `gram` (n, n) have the same dtype; the diagonal of `gram` is one, or zero for an atom
        that must not be used. Without it, the rows that are needed are computed from the `dictionary` (n, m). A
        negative `residual_tol` is never reached. `pursuit` is a key of `PURSUITS`, see `rkdl._backends.cpu.pursuit`
        and `active_set` beside it. `alpha` and `l2` are the penalties of "lasso", for all atoms or for each (n,).
        `observed` (c, m) says which numbers of the signals are known; the others are zeros in `correlations`, and do
        not count.
        """

    def adam_step(
        self,
        values: Array,
        gradient: Array,
        first: Array,
        second: Array,
        momentum: float,
        second_momentum: float,
        rates: Array,
        factor: float,
        share: float,
    ) -> None:
        """A step of Adam on flat arrays, in place.

        ``values -= factor rates first / sqrt(second / share)``, after the averages of the gradient and its square.
        """
        first += (gradient - first) * (1.0 - momentum)
        second += (gradient * gradient - second) * (1.0 - second_momentum)
        values -= rates * first * factor / ((second / share) ** 0.5 + 1e-8)

    def gram_sweep(
        self, code_gram: Array, targets: Array, atoms: Array, metric: Array | None, **options: bool
    ) -> Array:
        """Update every atom once from ``S = Z'Z`` and the targets, in place; the scales (n,) for the atoms' codes.

        Of the options, `rescales` (True) lets scales differ from one, and `is_positive` (False) clips atoms at zero.
        """

    def sweep_codes(self, parts: list, n_atoms: int) -> Any:
        """Codes of consecutive chunks for an AK-SVD sweep, which refits them: a `SweepCodes`."""

    def project_rows(self, features: list, rows: Array, vector: Array) -> Array:
        """Inner products in float64 of a vector with `rows` of the features: of one array, or all rows of tensors."""

    def add_scaled(self, total: Array, term: Array, factor: Array) -> None:
        """``total += factor * term`` in place; `total` is C-contiguous."""

    def lbfgs_direction(self, gradient: Array, pairs: Pairs) -> tuple[Array, float]:
        """Direction of L-BFGS, and its slope."""
        direction = self.full(gradient.shape, 0.0, gradient)
        direction -= gradient
        weights = []
        for shift, change, curvature in reversed(pairs):
            weight = self.dot(shift, direction) / curvature
            self.add_scaled(direction, change, -weight)
            weights.append(weight)
        shift, change, curvature = pairs[-1]
        direction *= curvature / self.dot(change, change)
        for (shift, change, curvature), weight in zip(pairs, reversed(weights), strict=True):
            self.add_scaled(direction, shift, weight - self.dot(change, direction) / curvature)
        return direction, float(self.dot(direction, gradient))

    def cholesky(self, matrix: Array, zero: float) -> tuple[Array | None, Array] | None:
        """Pivots (rank,), None for all in order, and the factor (rank, rank) of a positive semidefinite matrix.

        At most `zero` times the largest entry counts as zero. None if it is not finite.
        """

    def inverse_factor(self, factor: Array) -> Array | None:
        """The inverse of a triangular factor, where products are faster than solves; None elsewhere."""
        return None

    def solve_rows(self, factor: Array, inverse: Array | None, rows: Array, transposed: bool) -> Array:
        """``rows @ inv(factor)'``, or ``rows @ inv(factor)`` if `transposed`."""


def is_tensor(value: object) -> bool:
    """Whether a value is a torch tensor, without importing torch."""
    if type(value) is np.ndarray:
        return False
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, getattr(torch, "Tensor", ()))


def backend_of(array: object) -> Backend:
    """The backend of an array: torch's for a tensor, otherwise the CPU's."""
    return _backend("cpu" if type(array) is np.ndarray or not is_tensor(array) else "torch")


@cache
def _backend(folder: str) -> Backend:
    """Imported when it is first needed: torch may not be installed."""
    return import_module(f"rkdl._backends.{folder}.backend").BACKEND
