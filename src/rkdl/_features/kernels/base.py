"""What a kernel is: its values, its diagonal, and its gradient.

The methods that move the kernel vectors ask for ``values, gradient = kernel.value_and_gradient(X, D)``: with
`weighting` a function that multiplies an array by weights W,

    gradient(weighting)_i = sum_t W_ti  d k(x_t, d_i) / d d_i
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from math import isfinite
from numbers import Real
from typing import Any

import numpy as np

from rkdl._backends.base import backend_of

__all__ = ["Kernel"]

# Rows of a block whose diagonal is read.
_BLOCK = 32
# Rules that find gamma, one over the square of a width, from the signals.
RULES = ("median", "scale")

Weighting = Callable[[Any], Any]
ValueAndGradient = tuple[Any, Callable[[Weighting], Any]]


class Kernel:
    """Base class of kernels: derive from it to bring a kernel of your own.

    Write ``__call__(X, Y)``, and for `rkdl.ORKDL` and `rkdl.MORKDL`, which move the kernel vectors, also
    ``gradient(X, Y, weights)``. Kernels can be added, multiplied, and multiplied by positive numbers.

    See Also
    --------
    RBF : A kernel of the library.

    Notes
    -----
    The methods are called with NumPy arrays. With signals that are torch tensors they are called with tensors if a
    trial shows that they can take them, as code made of operators (``X @ Y.T``, ``** 2``) does; else signals are
    brought to NumPy and values back. Signals are passed as they are given, never scaled.

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
            # A verb without words of its own does what the base class says.
            if inspect.isfunction(own) and own.__doc__ is None:
                own.__doc__ = getattr(vars(Kernel).get(name), "__doc__", None)

    def __call__(self, X: Any, Y: Any) -> Any:
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

    def diagonal(self, X: Any) -> Any:
        """``k(x, x)`` of every row; from small blocks of the kernel matrix unless a subclass knows better.

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
        return backend_of(blocks[0]).concatenate(blocks)

    def gradient(self, X: Any, Y: Any, weights: Any) -> Any:
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

    def __add__(self, other: Any) -> Kernel:
        from rkdl._features.kernels.composites import Sum

        return Sum._of(self, other) if isinstance(other, Kernel) else NotImplemented

    def __mul__(self, other: Any) -> Kernel:
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
        """Whether it runs code of the user's, which sees signals as the user gave them."""
        return True

    @property
    def _core(self) -> Kernel:
        """The kernel without what `_prepared` added for the sake of digits."""
        return self

    def _rules(self) -> set[str]:
        """Names of rules among the parameters."""
        return set()

    def _own_gamma(self) -> float | None:
        """Its gamma, where it has one that is a number."""
        return None

    def _resolved(self, gamma: float) -> Kernel:
        """The kernel with numbers for all parameters; `gamma` is what the rule gives."""
        return self

    def _rescaled(self, scale: float) -> Kernel:
        """The kernel whose values of signals multiplied by `scale` are those of this one; rules stay rules."""
        return self

    def _prepared(self, sample: np.ndarray) -> Kernel:
        """The kernel as the learning uses it, fit to signals like those of the sample."""
        from rkdl._features.kernels.custom import Custom

        return Custom.wrap(self, sample)

    def value_and_gradient(self, X: Any, Y: Any, values: Any = None) -> ValueAndGradient:
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
            ``gradient(weighting)`` is the sum over signals of weights times derivatives, (p, m) in float64, where
            ``weighting(factor)`` returns the weights (c, p) times a factor of that shape.
        """
        values = self(X, Y) if values is None else values

        def gradient(weighting: Weighting) -> Any:
            return self.gradient(X, Y, weighting(backend_of(values).full(values.shape, 1.0, values)))

        return values, gradient


class BuiltIn(Kernel):
    """What the library's own kernels share: their gradient follows from `value_and_gradient`."""

    @property
    def _has_user_code(self) -> bool:
        return False

    def _prepared(self, sample: np.ndarray) -> Kernel:
        return self


class WithWidth(BuiltIn):
    """A kernel with a gamma, one over the square of a width: a parameter, or by another that is the width itself.

    The parameter is a number, or the name of a rule that finds gamma from the signals.
    """

    _width_name = "gamma"  # the parameter: "gamma" or "length_scale"

    def __post_init__(self) -> None:
        if not self._rules() & set(RULES):
            check_positive(self, self._width_name, ", 'median' or 'scale'")

    @property
    def _width(self) -> float:
        """The parameter, which must be a number by now."""
        value = getattr(self, self._width_name)
        if isinstance(value, str):
            raise ValueError(f"{self!r} has a parameter {value!r} that is found at fit: give a number to call it.")
        return float(value)

    @property
    def _gamma(self) -> float:
        # In two steps, which may end at infinity where a power would raise.
        return self._width if self._width_name == "gamma" else 1.0 / self._width / self._width

    def _with_width(self, width: float) -> Kernel:
        return replace(self, **{self._width_name: width})  # type: ignore[type-var]

    def _rules(self) -> set[str]:
        value = getattr(self, self._width_name)
        return {value} if isinstance(value, str) else set()

    def _own_gamma(self) -> float | None:
        return None if self._rules() else self._gamma

    def _resolved(self, gamma: float) -> Kernel:
        if not self._rules():
            return self
        return self._with_width(gamma if self._width_name == "gamma" else gamma**-0.5)

    def _rescaled(self, scale: float) -> Kernel:
        if self._rules():
            return self
        return self._with_width(self._width / scale / scale if self._width_name == "gamma" else self._width * scale)

    def _prepared(self, sample: np.ndarray) -> Kernel:
        if self._gamma > float(np.finfo(sample.dtype).max) / 4.0:
            size, remedy = ("large", "lower") if self._width_name == "gamma" else ("small", "raise")
            raise ValueError(
                f"{self._width_name}={self._width} is too {size} for signals of {sample.dtype}: {remedy} it, or scale "
                f"the signals."
            )
        return self


def check_positive(kernel: Any, name: str, rules: str = "") -> None:
    """Refuse a parameter that is not a positive number; `rules` are what may be given instead."""
    value = getattr(kernel, name)
    if isinstance(value, bool) or not isinstance(value, Real) or not (float(value) > 0.0 and isfinite(value)):
        raise ValueError(f"{type(kernel).__name__} has {name}={value!r}: give a positive number{rules}.")
