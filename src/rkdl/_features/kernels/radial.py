"""Kernels of the distance. CONTRIBUTING says how to add one."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike

from rkdl._backends.base import backend_of
from rkdl._features.kernels.base import Kernel, ValueAndGradient, Weighting, WithWidth, check_positive
from rkdl._features.widths import offset_of
from rkdl._utils.inputs import well_formed
from rkdl._utils.types import Array

__all__ = ["RBF", "Matern", "RationalQuadratic"]


@dataclass(frozen=True)
class Radial(WithWidth):
    """A function of ``s = gamma |x - y|^2``."""

    # Subtracted from signals that are far from zero, where digits would be lost; None for others.
    _shift: Array = field(default=None, init=False, repr=False, compare=False)

    @property
    def _factor(self) -> float:
        """The gamma of rows as `_centred` returns them."""
        return self._gamma

    def _scaled(self, rows: Array) -> Array:
        """Rows in the unit of each feature."""
        return rows

    def _values_and_negative_derivative(self, squares: Array) -> tuple[Array, Array]:
        """Kernel values and ``-dk/ds`` from s, which may change in place."""
        raise NotImplementedError

    def _with_negative_derivative(self, X: Array, Y: Array, values: Array = None) -> tuple[Array, Array]:
        """Kernel values, and ``-dk/ds``."""
        return self._values_and_negative_derivative(backend_of(X).distances(X, Y, self._gamma))

    def _prepared(self, sample: np.ndarray) -> Kernel:
        prepared = copy(super()._prepared(sample))
        # Signals far from zero are worked with in float64; of others, only some kernel vectors may be there.
        object.__setattr__(prepared, "_shift", offset_of(sample) if sample.dtype == np.float64 else None)
        return prepared

    def _centred(self, X: Array, Y: Array) -> tuple[Array, Array]:
        """The rows minus the shift; one object if X and Y are one."""
        if self._shift is None:
            return X, Y
        rows = X - backend_of(X).as_like(self._shift, X)
        return rows, rows if X is Y else Y - backend_of(Y).as_like(self._shift, Y)

    def __call__(self, X: Array, Y: Array) -> Array:
        return self._with_negative_derivative(*self._centred(X, Y))[0]

    def diagonal(self, X: Array) -> Array:
        return backend_of(X).full((len(X),), 1.0, X)

    def value_and_gradient(self, X: Array, Y: Array, values: Array = None) -> ValueAndGradient:
        X, Y = self._centred(X, Y)
        backend, factor = backend_of(X), 2.0 * self._factor
        values, negative_derivative = self._with_negative_derivative(X, Y, values)

        def gradient(weighting: Weighting) -> Array:
            weights = weighting(negative_derivative)
            if X is not Y:
                return self._scaled(backend.weighted_differences(weights, X, Y, factor))
            # One product; the weights may be in NumPy, where small matrices are, though X is on a device.
            both = factor * weights.T
            backend_of(both).fill_diagonal(both, both.diagonal() - both.sum(1))
            return self._scaled(backend.cast(backend.from_host(both, X) @ X, np.float64))

        return values, gradient


@dataclass(frozen=True)
class RBF(Radial):
    """The Gaussian kernel ``exp(-gamma |x - y|^2)``.

    Parameters
    ----------
    gamma : float, "median", "scale" or array-like of shape (n_features,), default="median"
        One over the square of the width. "median": one over the median squared distance between signals of a sample;
        "scale": one over the number of features times the variance of all numbers. Both are found at fit. An array is
        one gamma for every feature, such as those that `KDLClassifier` learns; zero for a feature that does not count.

    Examples
    --------
    >>> import numpy as np
    >>> from rkdl.kernels import RBF
    >>> RBF(gamma=0.5)(np.array([[0.0], [1.0]]), np.array([[0.0]])).round(3)
    array([[1.   ],
           [0.607]])
    >>> RBF() + 0.5 * RBF(gamma=2.0)
    RBF(gamma='median') + 0.5 * RBF(gamma=2.0)
    """

    gamma: float | str | ArrayLike = "median"

    def __post_init__(self) -> None:
        if isinstance(self.gamma, str) or np.ndim(self.gamma) == 0:
            super().__post_init__()
            return
        widths = np.asarray(well_formed(self.gamma, "gamma"), dtype=np.float64)
        if widths.ndim != 1 or not (np.isfinite(widths).all() and (widths >= 0.0).all() and widths.any()):
            raise ValueError(f"RBF has gamma={self.gamma!r}: give one number for every feature, none negative.")
        object.__setattr__(self, "gamma", tuple(widths.tolist()))

    @property
    def _gamma(self) -> float:
        # Noise of the same size in every feature moves a signal as far as under their mean.
        return float(np.mean(self.gamma)) if isinstance(self.gamma, tuple) else super()._gamma

    @property
    def _factor(self) -> float:
        return 1.0 if isinstance(self.gamma, tuple) else self._gamma

    def _scaled(self, rows: Array) -> Array:
        """The rows, or their features times a number each, by position."""
        if not isinstance(self.gamma, tuple):
            return rows
        if rows.shape[1] != len(self.gamma):
            raise ValueError(
                f"RBF has {len(self.gamma)} numbers for gamma, and the signals {rows.shape[1]} features: give one each."
            )
        return rows * backend_of(rows).as_like(np.sqrt(self.gamma), rows)

    def _centred(self, X: Array, Y: Array) -> tuple[Array, Array]:
        rows, others = super()._centred(X, Y)
        scaled = self._scaled(rows)
        return scaled, scaled if rows is others else self._scaled(others)

    def _with_negative_derivative(self, X: Array, Y: Array, values: Array = None) -> tuple[Array, Array]:
        # Minus the derivative is the value.
        values = backend_of(X).rbf(X, Y, self._factor) if values is None else values
        return values, values


@dataclass(frozen=True)
class _WithLengthScale(Radial):
    """Radial kernels whose width is a length."""

    length_scale: float | str = "median"
    _width_name = "length_scale"


@dataclass(frozen=True)
class Matern(_WithLengthScale):
    """The Matern kernel of smoothness 3/2 or 5/2, whose tails are heavier than those of a Gaussian.

    With ``a = sqrt(2 nu) |x - y| / length_scale`` it is ``(1 + a) exp(-a)`` for nu = 1.5 and
    ``(1 + a + a^2 / 3) exp(-a)`` for nu = 2.5.

    Parameters
    ----------
    length_scale : float, "median" or "scale", default="median"
        The width. "median" and "scale", found at fit, are one over the root of the gamma that they give an `RBF`.
    nu : {1.5, 2.5}, default=1.5
        The smoothness: the kernel is once or twice differentiable.

    Examples
    --------
    >>> import numpy as np
    >>> from rkdl.kernels import Matern
    >>> Matern(length_scale=1.0, nu=2.5)(np.array([[0.0], [1.0]]), np.array([[0.0]])).round(3)
    array([[1.   ],
           [0.524]])
    """

    nu: float = 1.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nu not in (1.5, 2.5):
            raise ValueError(f"Matern has nu=1.5 and nu=2.5, got nu={self.nu!r}: other values are not supported.")

    def _values_and_negative_derivative(self, squares: Array) -> tuple[Array, Array]:
        backend = backend_of(squares)
        squares *= 2.0 * self.nu
        squares **= 0.5
        # Clipped where the value is zero anyway, so that infinity is never multiplied by zero.
        lengths = squares.clip(max=1e4)
        decay = backend.exp(-lengths)
        lengths += 1.0
        if self.nu == 1.5:
            lengths *= decay
            decay *= 1.5
            return lengths, decay
        negative_derivative = lengths * decay
        # 1 + a + a^2 / 3, with 1 + a in `lengths`.
        values = (lengths + (lengths - 1.0) ** 2 / 3.0) * decay
        negative_derivative *= 5.0 / 6.0
        return values, negative_derivative


@dataclass(frozen=True)
class RationalQuadratic(_WithLengthScale):
    """The rational quadratic kernel ``(1 + |x - y|^2 / (2 alpha length_scale^2))^-alpha``: Gaussians of many widths.

    Parameters
    ----------
    length_scale : float, "median" or "scale", default="median"
        The width. "median" and "scale", found at fit, are one over the root of the gamma that they give an `RBF`.
    alpha : float, default=1.0
        Large if the widths are alike; as it grows, the kernel approaches a Gaussian.

    Examples
    --------
    >>> import numpy as np
    >>> from rkdl.kernels import RationalQuadratic
    >>> RationalQuadratic(length_scale=1.0, alpha=0.5)(np.array([[0.0], [1.0]]), np.array([[0.0]])).round(3)
    array([[1.   ],
           [0.707]])
    """

    alpha: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "alpha")

    def _values_and_negative_derivative(self, squares: Array) -> tuple[Array, Array]:
        squares /= 2.0 * self.alpha
        squares += 1.0
        values = backend_of(squares).power(squares, -float(self.alpha))
        negative_derivative = values / squares
        negative_derivative *= 0.5
        return values, negative_derivative
