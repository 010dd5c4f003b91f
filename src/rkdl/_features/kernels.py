"""Kernels and their derivatives, on chunks of signals.

Every kernel has the same verbs: ``kernel(X, Y)``, ``diagonal(X)``, and, for the methods that move the kernel
vectors, ``values, gradient = value_and_gradient(X, D)``: with `weigh` a function that multiplies an array by W,

    gradient(weigh)_i = sum_t W_ti  d k(x_t, d_i) / d d_i
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rkdl._backends.arrays import beside, is_tensor
from rkdl._backends.cpu.jit import compiled
from rkdl._backends.cpu.products import FLOATS, combine, multiply
from rkdl._utils.inputs import well_formed

# Squared distances lose digits to cancellation when the offset outweighs the spread this many times.
_OFFSET_RATIO = 100.0


Weigh = Callable[[Any], Any]


class _Differentiable:
    """What the kernels with a derivative share."""

    slope_is_value = False

    def value_and_gradient(self, X: Any, Y: Any, values: Any = None) -> tuple[Any, Callable[[Weigh], Any]]:
        """Kernel values, and their weighted gradient by the rows of `Y` as a function.

        Parameters
        ----------
        X : ndarray of shape (c, m)
            Signals.
        Y : ndarray of shape (p, m)
            Kernel vectors.
        values : ndarray of shape (c, p), default=None
            The kernel values, where they are known.

        Returns
        -------
        values : ndarray of shape (c, p)
            The kernel values.
        gradient : callable
            ``gradient(weigh)`` is the sum over signals of weights times derivatives, (p, m) in float64, where
            ``weigh(factor)`` returns the weights (c, p) times a factor of that shape.
        """
        slope = values
        if values is None or not self.slope_is_value:
            values, slope = self.value_and_slope(X, Y)  # type: ignore[attr-defined]

        def gradient(weigh: Weigh) -> Any:
            weights = weigh(slope)
            kernel: Any = self
            return kernel.pull_together(X, weights) if X is Y else kernel.pull(X, Y, weights)

        return values, gradient


@dataclass(frozen=True)
class RBF(_Differentiable):
    """``exp(-gamma |x - y|^2)``; `shift` is subtracted from both sides where the signals sit far from zero."""

    gamma: float
    shift: np.ndarray | None = None

    differentiable = slope_is_value = True

    def conditioned(self, sample: np.ndarray) -> RBF:
        """The same kernel, its distances taken from the sample's centre if that saves digits."""
        shift = offset_of(sample)
        return self if shift is None else replace(self, shift=shift)

    def _centred(self, rows: np.ndarray) -> np.ndarray:
        return rows if self.shift is None else rows - self.shift.astype(rows.dtype, copy=False)

    def __call__(self, X: np.ndarray, Y: np.ndarray) -> np.ndarray:
        X, Y = self._centred(X), self._centred(Y)
        return self._of_products(multiply(X, Y), squared_norms(X), squared_norms(Y))

    def of_products(self, products: np.ndarray) -> np.ndarray:
        """``K(X, X)`` from the inner products of the centred rows."""
        squares = products.diagonal().copy()
        with np.errstate(over="ignore", invalid="ignore"):
            values = self._of_products(products, squares, squares)
        np.fill_diagonal(values, 1.0)
        return 0.5 * (values + values.T)

    def _of_products(self, values: np.ndarray, own: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Kernel values from inner products, which change in place, and squared norms."""
        dtype = values.dtype.type
        scaled = [(self.gamma * squares).astype(dtype, copy=False) for squares in (own, other)]
        _find_exponents(values, dtype(2.0 * self.gamma), own, *scaled)
        self._join_equals(values, own, other)
        return np.exp(values, out=values)

    def _join_equals(self, exponents: np.ndarray, own: np.ndarray, other: np.ndarray) -> None:
        """Where gamma is so large that the rounding of a zero distance shows, put zero for it."""
        rounding = 8.0 * self.gamma * float(np.finfo(exponents.dtype).eps)
        if rounding * float(other.max(initial=0.0)) > 1e-4:
            exponents[exponents > -rounding * (own[:, None] + other)] = 0.0

    def diagonal(self, X: np.ndarray) -> np.ndarray:
        """``k(x, x)`` of every row."""
        return np.ones(len(X), dtype=X.dtype)

    def value_and_slope(self, X: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Kernel values, and the factor of the derivative that depends on both sides."""
        values = self(X, Y)
        return values, values

    def pull(self, X: np.ndarray, Y: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Weighted sums of the derivatives by the rows of `Y`, in float64."""
        X, Y = self._centred(X), self._centred(Y)
        pulled = combine(weights, X)
        _pull_apart(pulled, weights.sum(axis=0, dtype=np.float64), Y, 2.0 * self.gamma)
        return pulled

    def pull_together(self, X: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """``pull(X, X, weights)`` of rows in float64, in one product; the weights may be in NumPy though `X` is not."""
        both = (2.0 * self.gamma) * weights.T
        diagonal = both.diagonal() if is_tensor(both) else np.einsum("ii->i", both)
        diagonal -= both.sum(1)
        pulled: np.ndarray = beside(both, X) @ self._centred(X)
        return pulled


@dataclass(frozen=True)
class Polynomial(_Differentiable):
    """``(gamma x'y + coef0)^degree``."""

    gamma: float
    degree: int
    coef0: float

    differentiable = True

    def conditioned(self, sample: np.ndarray) -> Polynomial:
        """Nothing to gain: the kernel is not invariant to an offset."""
        return self

    def _base(self, X: np.ndarray, Y: np.ndarray) -> np.ndarray:
        base = multiply(X, Y)
        base *= base.dtype.type(self.gamma)
        base += base.dtype.type(self.coef0)
        return base

    def __call__(self, X: np.ndarray, Y: np.ndarray) -> np.ndarray:
        return _integer_power(self._base(X, Y), self.degree)

    def of_products(self, products: np.ndarray) -> np.ndarray:
        """``K(X, X)`` from the inner products of the rows."""
        with np.errstate(over="ignore", invalid="ignore"):
            values = _integer_power(self.gamma * products + self.coef0, self.degree)
        return 0.5 * (values + values.T)

    def diagonal(self, X: np.ndarray) -> np.ndarray:
        """``k(x, x)`` of every row."""
        return _integer_power(X.dtype.type(self.gamma) * squared_norms(X) + X.dtype.type(self.coef0), self.degree)

    def value_and_slope(self, X: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Kernel values, and the factor of the derivative that depends on both sides."""
        base = self._base(X, Y)
        slope = _integer_power(base, self.degree - 1)
        return slope * base, slope

    def pull(self, X: np.ndarray, Y: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Weighted sums of the derivatives by the rows of `Y`, in float64."""
        return (self.degree * self.gamma) * combine(weights, X)

    def pull_together(self, X: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """``pull(X, X, weights)``; the weights may be in NumPy though `X` is not."""
        return self.pull(X, X, beside(weights, X))


@dataclass(frozen=True)
class Linear(_Differentiable):
    """``x'y``."""

    differentiable = True

    def conditioned(self, sample: np.ndarray) -> Linear:
        """Nothing to gain: the kernel is not invariant to an offset."""
        return self

    def __call__(self, X: np.ndarray, Y: np.ndarray) -> np.ndarray:
        return multiply(X, Y)

    def diagonal(self, X: np.ndarray) -> np.ndarray:
        """``k(x, x)`` of every row."""
        return squared_norms(X)

    def value_and_slope(self, X: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Kernel values, and the factor of the derivative that depends on both sides."""
        values = multiply(X, Y)
        return values, np.ones_like(values)

    def of_products(self, products: np.ndarray) -> np.ndarray:
        """``K(X, X)`` from the inner products of the rows."""
        return 0.5 * (products + products.T)

    def pull(self, X: np.ndarray, Y: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Weighted sums of the derivatives by the rows of `Y`, in float64."""
        return combine(weights, X)

    def pull_together(self, X: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """``pull(X, X, weights)``; the weights may be in NumPy though `X` is not."""
        return self.pull(X, X, beside(weights, X))


@dataclass(frozen=True)
class Custom:
    """A user's function of two matrices ``(X, Y) -> (len(X), len(Y))``, or of two rows ``(x, y) -> number``."""

    function: Callable[..., Any]
    of_rows: bool

    differentiable = False

    @classmethod
    def wrap(cls, function: Callable[..., Any], sample: np.ndarray) -> Custom:
        """Find out by trying which of the two the function is."""
        # As many rows as a product of two rows cannot be mistaken for.
        n_right = sample.shape[1] + 2
        left, right = sample[:1].repeat(2, axis=0), sample[:1].repeat(n_right, axis=0)
        trial_error: Exception | None = None
        try:
            values = np.asarray(function(left, right))
            if values.shape == (2, n_right) and values.dtype.kind in "fiubc":
                return cls(function, of_rows=False)
        except Exception as error:
            trial_error = error
        try:
            value = function(left[0], right[0])
            if np.ndim(value) == 0 and np.asarray(value).dtype.kind in "fiubc":
                return cls(function, of_rows=True)
        except Exception as error:
            trial_error = error
        raise ValueError(
            f"kernel={function!r} is neither a function of two matrices that returns a (len(X), len(Y)) array "
            f"nor a function of two rows that returns a number"
        ) from trial_error

    def conditioned(self, sample: np.ndarray) -> Custom:
        """A user's function sees the user's signals."""
        return self

    def __call__(self, X: np.ndarray, Y: np.ndarray) -> np.ndarray:
        if self.of_rows:
            values = self._real([[self.function(x, y) for y in Y] for x in X], X.dtype)
            return values.reshape(len(X), len(Y))
        return self._real(self.function(X, Y), X.dtype)

    def diagonal(self, X: np.ndarray) -> np.ndarray:
        """``k(x, x)`` of every row, from small blocks."""
        if self.of_rows:
            values = self._real([self.function(x, x) for x in X], X.dtype)
        elif hasattr(self.function, "diag"):
            values = self._real(self.function.diag(X), X.dtype)
        else:
            blocks = [np.diagonal(self(X[i : i + 32], X[i : i + 32])) for i in range(0, len(X), 32)]
            values = np.concatenate(blocks) if blocks else np.empty(0, dtype=X.dtype)
        rounding = 1e4 * float(np.finfo(X.dtype).eps) * float(np.nanmax(np.abs(values), initial=0.0))
        # Not `values < -rounding`, which NaN is not.
        is_bad = ~(values >= -rounding) | np.isinf(values)
        if is_bad.any():
            raise ValueError(
                f"kernel={self.function!r} gives k(x, x) = {values[is_bad][0]} for {int(is_bad.sum())} of {len(X)} "
                f"signals: a signal's product with itself is finite and not negative; mend the function."
            )
        return np.maximum(values, 0.0)

    def _real(self, values: Any, dtype: np.dtype) -> np.ndarray:
        """What the function returned as a new array of real numbers; of complex ones NumPy would drop a part."""
        values = np.asarray(well_formed(values, "the kernel's value"))
        if values.dtype.kind == "c":
            raise ValueError(
                f"kernel={self.function!r} returns complex numbers, and the methods work with real kernels: return the "
                f"real part where the other is zero."
            )
        return np.array(values, dtype=dtype, order="C")


DifferentiableKernel = RBF | Polynomial | Linear
Kernel = DifferentiableKernel | Custom


def make_kernel(
    name: str | Callable[..., Any],
    *,
    gamma: float,
    degree: int,
    coef0: float,
    sample: np.ndarray,
    check: bool = False,
) -> Kernel:
    """The kernel of the given name, with scikit-learn's meanings of the parameters.

    Parameters
    ----------
    name : {"rbf", "poly", "linear"} or callable
        The kernel.
    gamma, degree, coef0 : float, int, float
        Its parameters.
    sample : ndarray of shape (n_sample, n_features)
        A few signals, to try a callable on and to place the origin of distances.
    check : bool, default=False
        Whether to try on the sample that what may not be a kernel is one.
    """
    if name in ("rbf", "poly") and not gamma <= float(np.finfo(sample.dtype).max) / 4.0:
        raise ValueError(f"gamma={gamma} is too large for signals of {sample.dtype}: lower it, or scale the signals.")
    kernel: Kernel
    if callable(name):
        kernel = Custom.wrap(name, sample)
    elif name == "rbf":
        kernel = RBF(gamma).conditioned(sample)
    elif name == "poly":
        kernel = Polynomial(gamma, degree, coef0)
    else:
        kernel = Linear()
    if check and (callable(name) or (name == "poly" and coef0 < 0.0)):
        _check_positive(kernel, sample)
    return kernel


def _check_positive(kernel: Kernel, sample: np.ndarray) -> None:
    """Refuse, by a sample, what is not finite, symmetric and positive semidefinite."""
    rows = sample[:: max(1, len(sample) // 100)]
    matrix = np.asarray(kernel(rows, rows), dtype=np.float64)
    if not np.isfinite(matrix).all():
        raise ValueError("The kernel's values are not finite on the signals: scale them, or mend the function.")
    slack = 1e4 * float(np.finfo(sample.dtype).eps) * float(np.abs(matrix).max(initial=0.0))
    # A function may have another one for the diagonal.
    kernel.diagonal(rows)
    if np.abs(matrix - matrix.T).max() > slack:
        raise ValueError("The kernel is not symmetric: k(x, y) and k(y, x) differ on the signals.")
    lowest = float(np.linalg.eigvalsh(matrix)[0])
    if lowest < -slack * len(rows):
        raise ValueError(
            f"The kernel is not positive semidefinite: on a sample of the signals its matrix has the negative "
            f"eigenvalue {lowest:.3g}. A polynomial kernel needs coef0 >= 0."
        )


def median_gamma(sample: np.ndarray) -> float:
    """One over the median squared distance between different signals of a sample.

    Parameters
    ----------
    sample : ndarray of shape (n_sample, n_features)
        Signals; pairs of equal ones do not count.

    Returns
    -------
    float
        1.0 where all signals are equal.
    """
    rows = sample.astype(np.float64)
    rows -= centre_of(rows)
    largest = np.abs(rows).max(initial=0.0)
    if largest == 0.0:
        return 1.0
    rows /= largest
    norms = squared_norms(rows)
    sizes = norms[:, None] + norms
    squares = sizes - 2.0 * (rows @ rows.T)
    pairs = np.triu_indices(len(rows), k=1)
    squares, sizes = squares[pairs], sizes[pairs]
    # What cancellation leaves of a zero distance is below this.
    squares = squares[squares > 1e-12 * sizes]
    if squares.size == 0:
        return 1.0
    gamma = 1.0 / float(np.median(squares)) / float(largest) / float(largest)
    return min(max(gamma, np.finfo(np.float64).tiny), np.finfo(np.float64).max)


def offset_of(sample: np.ndarray) -> np.ndarray | None:
    """The mean (m,) of signals that sit so far from zero that their distances lose digits; None of any others."""
    centre = sample.mean(axis=0, dtype=np.float64)
    spread = float(np.mean((sample - centre) ** 2)) * sample.shape[1]
    return centre.astype(sample.dtype) if float(centre @ centre) > _OFFSET_RATIO * spread > 0.0 else None


def centre_of(rows: np.ndarray) -> np.ndarray:
    """The mean (m,) of the rows, or, where a few of them drag it away from all others, the median of every feature."""
    mean = rows.mean(axis=0)
    some = rows[:: max(1, len(rows) // 256)]
    median = np.median(some, axis=0)
    with np.errstate(over="ignore"):
        spread = float(np.median(squared_norms(some - median)))
        is_dragged = float(np.sum((mean - median) ** 2)) > 1e4 * spread
    return median if is_dragged else mean


def squared_norms(rows: np.ndarray) -> np.ndarray:
    """``|x|^2`` of every row, in the rows' dtype."""
    if is_tensor(rows):
        return (rows * rows).sum(1)  # type: ignore[call-overload]
    if rows.dtype not in FLOATS or not rows.flags.c_contiguous:
        return np.einsum("ij,ij->i", rows, rows)
    squares = np.empty(len(rows), dtype=rows.dtype)
    _square_rows(rows, squares)
    return squares


@compiled(error_model="numpy", fastmath={"reassoc", "contract", "nsz"})
def _square_rows(rows, squares):
    """``|x|^2`` of every row."""
    for i in range(len(rows)):
        row = rows[i]
        total = squares.dtype.type(0)
        for k in range(len(row)):
            total += row[k] * row[k]
        squares[i] = total


# Without contraction: a product and an offset that overflow both must meet as infinities and leave NaN.
@compiled(error_model="numpy", fastmath={"nsz"})
def _find_exponents(values, factor, own, scaled, other):
    """``factor v - scaled_i - other_j`` in place of every value, at most zero; NaN where `own` is not finite.

    Or a signal at infinity would pass for one that is merely far.
    """
    zero = values.dtype.type(0)
    for i in range(len(values)):
        row = values[i]
        if not np.isfinite(own[i]):
            row[:] = np.nan
            continue
        offset = scaled[i]
        for j in range(len(row)):
            exponent = row[j] * factor - offset - other[j]
            row[j] = zero if exponent > zero else exponent


@compiled(error_model="numpy", fastmath={"contract", "nsz"})
def _pull_apart(pulled, sums, places, factor):
    """``factor (pulled_i - sums_i places_i)`` in place of every row of `pulled`."""
    for i in range(len(pulled)):
        row, place, total = pulled[i], places[i], sums[i]
        for k in range(len(row)):
            row[k] = factor * (row[k] - total * place[k])


def _integer_power(base: np.ndarray, degree: int) -> np.ndarray:
    """``base ** degree`` by multiplications, exact in sign and faster than a call of pow."""
    result = np.ones_like(base)
    with np.errstate(over="ignore", invalid="ignore"):
        while degree:
            if degree & 1:
                result *= base
            degree >>= 1
            if degree:
                base = base * base
    return result
