"""Kernels of the inner product. CONTRIBUTING says how to add one."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from numbers import Integral, Real
from typing import Any

from rkdl._backends.base import backend_of
from rkdl._features.kernels.base import BuiltIn, Kernel, ValueAndGradient, Weighting, WithWidth
from rkdl._features.kernels.composites import Scaled

__all__ = ["Linear", "Polynomial"]


@dataclass(frozen=True)
class InnerProduct(BuiltIn):
    """A function of ``x'y``."""

    @property
    def _factor(self) -> float:
        """What the derivative by ``x'y`` is to be multiplied by."""
        return 1.0

    def _with_derivative(self, X: Any, Y: Any, values: Any) -> tuple[Any, Any]:
        """Kernel values, and their derivative by ``x'y`` over `_factor`."""
        raise NotImplementedError

    def value_and_gradient(self, X: Any, Y: Any, values: Any = None) -> ValueAndGradient:
        backend = backend_of(X)
        values, derivative = self._with_derivative(X, Y, values)

        def gradient(weighting: Weighting) -> Any:
            weighted = backend.weighted_sum(backend.from_host(weighting(derivative), X), X)
            return weighted if self._factor == 1.0 else self._factor * weighted

        return values, gradient


@dataclass(frozen=True)
class Polynomial(InnerProduct, WithWidth):
    """The polynomial kernel ``(gamma x'y + coef0)^degree``.

    Parameters
    ----------
    degree : int, default=3
        The degree, at least 1.
    gamma : float, "median" or "scale", default="median"
        Factor of the inner product; the rules are those of `RBF`, found at fit.
    coef0 : float, default=1.0
        What is added; a negative number may leave no positive semidefinite kernel.

    See Also
    --------
    Linear : The inner product itself.

    Examples
    --------
    >>> import numpy as np
    >>> from rkdl.kernels import Polynomial
    >>> Polynomial(degree=2, gamma=1.0)(np.array([[1.0, 2.0]]), np.array([[3.0, 0.0]]))
    array([[16.]])
    """

    degree: int = 3
    gamma: float | str = "median"
    coef0: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.degree, Integral) or self.degree < 1:
            raise ValueError(f"Polynomial has degree={self.degree!r}: give a whole number of at least 1.")
        if not isinstance(self.coef0, Real) or not isfinite(self.coef0):
            raise ValueError(f"Polynomial has coef0={self.coef0!r}: give a finite number.")

    def _base(self, products: Any) -> Any:
        products *= self._gamma
        products += float(self.coef0)
        return products

    @property
    def _factor(self) -> float:
        return self.degree * self._gamma

    def __call__(self, X: Any, Y: Any) -> Any:
        backend = backend_of(X)
        return backend.power(self._base(backend.product(X, Y)), self.degree)

    def diagonal(self, X: Any) -> Any:
        backend = backend_of(X)
        return backend.power(self._base(backend.squared_norms(X)), self.degree)

    def _with_derivative(self, X: Any, Y: Any, values: Any) -> tuple[Any, Any]:
        backend = backend_of(X)
        base = self._base(backend.product(X, Y))
        derivative = backend.power(base, self.degree - 1)
        return derivative * base, derivative


@dataclass(frozen=True)
class Linear(InnerProduct):
    """The inner product ``x'y``.

    See Also
    --------
    Polynomial : Its powers.

    Examples
    --------
    >>> import numpy as np
    >>> from rkdl.kernels import Linear
    >>> Linear()(np.array([[1.0, 2.0]]), np.array([[3.0, 1.0]]))
    array([[5.]])
    """

    def _rescaled(self, scale: float) -> Kernel:
        return Scaled(self, scale**-2.0)

    def __call__(self, X: Any, Y: Any) -> Any:
        return backend_of(X).product(X, Y)

    def diagonal(self, X: Any) -> Any:
        return backend_of(X).squared_norms(X)

    def _with_derivative(self, X: Any, Y: Any, values: Any) -> tuple[Any, Any]:
        values = self(X, Y) if values is None else values
        return values, backend_of(values).full(values.shape, 1.0, values)
