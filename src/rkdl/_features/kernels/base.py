"""The interface of kernels: values, diagonal, gradient."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from math import isfinite
from numbers import Real
from typing import Any

import numpy as np

from rkdl._backends.arrays import joined
from rkdl._backends.base import backend_of
from rkdl._features.widths import RULES
from rkdl._utils.types import Array

__all__ = ["Kernel"]

# Rows of a block whose diagonal is read.
_BLOCK = 32

Weighting = Callable[[Array], Array]
ValueAndGradient = tuple[Array, Callable[[Weighting], Array]]


class Kernel:
    """Base class of kernels: derive from it to define your own.

    Write ``__call__(X, Y)``, and for `rkdl.ORKDL` and `rkdl.MORKDL`, which move the kernel vectors, also
    ``gradient(X, Y, weights)``. Kernels can be added, multiplied, and multiplied by positive numbers.

    Notes
    -----
    The methods are called with NumPy arrays. With signals that are torch tensors they are called with tensors if a
    trial shows that they can take them, as code made of operators (``X @ Y.T``, ``** 2``) does; else signals are
    brought to NumPy and values back.

    Examples
    --------
    >>> import numpy as np
    >>> from rkdl import ORKDL
    >>> from rkdl.kernels import Kernel
    >>> class Quadratic(Kernel):
    ...     def __call__(self, X, Y):
    ...         return (X @ Y.T) ** 2
    ...
    ...     def gradient(self, X, Y, weights):
    ...         return (2 * weights * (X @ Y.T)).T @ X
    >>> X = np.random.default_rng(0).standard_normal((200, 6))
    >>> ORKDL(4, kernel=Quadratic(), n_kernel_vectors=12, random_state=0).fit(X).kernel_vectors_.shape
    (12, 6)
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, own in vars(cls).items():
            # A method without a docstring does what the base class says.
            if inspect.isfunction(own) and own.__doc__ is None:
                own.__doc__ = getattr(vars(Kernel).get(name), "__doc__", None)

    def __call__(self, X: Array, Y: Array) -> Array:
        """Kernel values of all pairs of rows.

        Parameters
        ----------
        X : ndarray or Tensor of shape (n, n_features)
            Signals.
        Y : ndarray or Tensor of shape (p, n_features)
            Signals or kernel vectors.

        Returns
        -------
        values : ndarray or Tensor of shape (n, p)
            ``k(x, y)``.
        """
        raise NotImplementedError(f"{type(self).__name__} has no __call__(X, Y): write one that returns k(X, Y).")

    def diagonal(self, X: Array) -> Array:
        """``k(x, x)`` of every row; from small blocks of the kernel matrix, unless a subclass overrides it.

        Parameters
        ----------
        X : ndarray or Tensor of shape (n, n_features)
            Signals.

        Returns
        -------
        values : ndarray or Tensor of shape (n,)
            Squared norms in feature space.
        """
        blocks = [self(X[i : i + _BLOCK], X[i : i + _BLOCK]).diagonal() for i in range(0, max(len(X), 1), _BLOCK)]
        return joined(blocks)

    def gradient(self, X: Array, Y: Array, weights: Array) -> Array:
        """Weighted sums of the kernel's derivatives by the rows of `Y`.

        Parameters
        ----------
        X : ndarray or Tensor of shape (n, n_features)
            Signals.
        Y : ndarray or Tensor of shape (p, n_features)
            Kernel vectors.
        weights : ndarray or Tensor of shape (n, p)
            Weights w.

        Returns
        -------
        gradient : ndarray or Tensor of shape (p, n_features)
            In row i the sum over t of ``w_ti dk(x_t, y_i) / dy_i``.
        """
        if type(self).value_and_gradient is Kernel.value_and_gradient:
            raise NotImplementedError(f"{type(self).__name__} has no gradient(X, Y, weights): write one, or use RKDL.")
        return self.value_and_gradient(X, Y)[1](lambda factor: weights * factor)

    def __add__(self, other: object) -> Kernel:
        from rkdl._features.kernels.composites import Sum

        return Sum._of(self, other) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, other: object) -> Kernel:
        from rkdl._features.kernels.composites import Product, Scaled

        if isinstance(other, Kernel):
            return Product._of(self, other)
        return Scaled(self, float(other)) if isinstance(other, Real) else NotImplemented

    __rmul__ = __mul__

    @property
    def differentiable(self) -> bool:
        """Whether there is a gradient, by itself or with the values."""
        own = type(self)
        return own.gradient is not Kernel.gradient or own.value_and_gradient is not Kernel.value_and_gradient

    @property
    def _has_user_code(self) -> bool:
        """Whether it runs user-defined code."""
        return not all(isinstance(leaf, BuiltIn) for leaf in self._leaves())

    def _leaves(self) -> list[Kernel]:
        """The kernels that sums and products are made of."""
        return [self]

    def _resolved(self, gamma: float) -> Kernel:
        """The kernel with numbers for all parameters; `gamma` is what the rule gives."""
        return self

    def _prepared(self, sample: np.ndarray) -> Kernel:
        """The kernel as the learning uses it, for signals like those of the sample."""
        from rkdl._features.kernels.custom import Custom

        return Custom.wrap(self, sample)

    def value_and_gradient(self, X: Array, Y: Array, values: Array = None) -> ValueAndGradient:
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
            ``gradient(weighting)_i`` is the sum over t of ``w_ti dk(x_t, y_i) / dy_i``, (p, m) in float64, where
            ``weighting(factor)`` returns the weights (c, p) times a factor of that shape.
        """
        values = self(X, Y) if values is None else values

        def gradient(weighting: Weighting) -> Array:
            return self.gradient(X, Y, weighting(backend_of(values).full(values.shape, 1.0, values)))

        return values, gradient


class BuiltIn(Kernel):
    """A kernel of the library, whose gradient follows from `value_and_gradient`."""

    def _prepared(self, sample: np.ndarray) -> Kernel:
        return self


class WithWidth(BuiltIn):
    """A kernel with a gamma, one over the square of a width: a parameter, or given by the width itself.

    The parameter is a number, or the name of a rule that finds gamma from the signals.
    """

    _width_name = "gamma"  # the parameter: "gamma" or "length_scale"

    def __post_init__(self) -> None:
        if self._rule not in RULES:
            check_positive(self, self._width_name, ", 'median' or 'scale'")

    @property
    def _rule(self) -> str | None:
        value = getattr(self, self._width_name)
        return value if isinstance(value, str) else None

    @property
    def _gamma(self) -> float:
        value = getattr(self, self._width_name)
        if isinstance(value, str):
            raise ValueError(f"{self!r} has a parameter {value!r} that is found at fit: give a number to call it.")
        # In two steps, which may end at infinity where a power would raise.
        return float(value) if self._width_name == "gamma" else 1.0 / float(value) / float(value)

    def _resolved(self, gamma: float) -> Kernel:
        if self._rule is None:
            return self
        width = gamma if self._width_name == "gamma" else gamma**-0.5
        return replace(self, **{self._width_name: width})  # type: ignore[type-var]

    def _prepared(self, sample: np.ndarray) -> Kernel:
        if self._gamma > float(np.finfo(sample.dtype).max) / 4.0:
            size, remedy = ("large", "lower") if self._width_name == "gamma" else ("small", "raise")
            raise ValueError(
                f"{self._width_name}={getattr(self, self._width_name)} is too {size} for signals of {sample.dtype}: "
                f"{remedy} it, or scale the signals."
            )
        return self


def check_positive(kernel: Kernel, name: str, rules: str = "") -> None:
    """Refuse a parameter that is not a positive number; `rules` are what may be given instead."""
    value = getattr(kernel, name)
    if isinstance(value, bool) or not isinstance(value, Real) or not (float(value) > 0.0 and isfinite(value)):
        raise ValueError(f"{type(kernel).__name__} has {name}={value!r}: give a positive number{rules}.")
