"""Kernels of the inner product. CONTRIBUTING says how to add one."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from numbers import Integral, Real

from rkdl._backends.base import backend_of
from rkdl._features.kernels.base import BuiltIn, ValueAndGradient, WithWidth
from rkdl._utils.types import Array

__all__ = ["Linear", "Polynomial"]


@dataclass(frozen=True)
class InnerProduct(BuiltIn):
    """A function of ``x'y``."""

    def _values(self, products: Array) -> Array:
        """Kernel values from inner products, which may change in place."""
        raise NotImplementedError

    def _with_derivative(self, X: Array, Y: Array, values: Array) -> tuple[Array, Array]:
        """Kernel values, and their derivative by ``x'y``."""
        raise NotImplementedError

    def __call__(self, X: Array, Y: Array) -> Array:
        return self._values(backend_of(X).product(X, Y))

    def diagonal(self, X: Array) -> Array:
        return self._values(backend_of(X).squared_norms(X))

    def value_and_gradient(self, X: Array, Y: Array, values: Array = None) -> ValueAndGradient:
        backend = backend_of(X)
        values, derivative = self._with_derivative(X, Y, values)
        return values, lambda weighting: backend.weighted_sum(backend.from_host(weighting(derivative), X), X)


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
        Constant term; with a negative one the kernel may not be positive semidefinite.

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

    def _base(self, products: Array) -> Array:
        products *= self._gamma
        products += float(self.coef0)
        return products

    def _values(self, products: Array) -> Array:
        return backend_of(products).power(self._base(products), self.degree)

    def _with_derivative(self, X: Array, Y: Array, values: Array) -> tuple[Array, Array]:
        backend = backend_of(X)
        base = self._base(backend.product(X, Y))
        derivative = backend.power(base, self.degree - 1)
        values = derivative * base
        derivative *= self.degree * self._gamma
        return values, derivative


@dataclass(frozen=True)
class Linear(InnerProduct):
    """The inner product ``x'y``.

    Examples
    --------
    >>> import numpy as np
    >>> from rkdl.kernels import Linear
    >>> Linear()(np.array([[1.0, 2.0]]), np.array([[3.0, 1.0]]))
    array([[5.]])
    """

    def _values(self, products: Array) -> Array:
        return products

    def _with_derivative(self, X: Array, Y: Array, values: Array) -> tuple[Array, Array]:
        values = self(X, Y) if values is None else values
        return values, backend_of(values).full(values.shape, 1.0, values)
