"""Sums and products of kernels, and kernels times positive numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from operator import add, mul
from typing import Any, ClassVar, Self

import numpy as np

from rkdl._features.kernels.base import Kernel, ValueAndGradient, Weighting, check_positive
from rkdl._utils.types import Array

__all__ = ["Product", "Scaled", "Sum"]


class Composite(Kernel):
    """A kernel made of others, its `parts`."""

    parts: tuple[Kernel, ...]

    def __post_init__(self) -> None:
        bad = [part for part in self.parts if not isinstance(part, Kernel)]
        if bad or not self.parts:
            raise TypeError(f"{type(self).__name__} is made of kernels, got {bad[0] if bad else self.parts!r}.")

    @property
    def differentiable(self) -> bool:
        """Whether all parts have a gradient."""
        return all(part.differentiable for part in self.parts)

    def _leaves(self) -> list[Kernel]:
        return [leaf for part in self.parts for leaf in part._leaves()]

    def _each(self, function: Callable[[Kernel], Kernel]) -> Kernel:
        """The same of other parts."""
        return type(self)(tuple(map(function, self.parts)))  # type: ignore[call-arg]

    def _resolved(self, gamma: float) -> Kernel:
        return self._each(lambda part: part._resolved(gamma))

    def _prepared(self, sample: np.ndarray) -> Kernel:
        return self._each(lambda part: part._prepared(sample))


@dataclass(frozen=True)
class Combination(Composite):
    """Kernels whose values are combined by `_operator`."""

    parts: tuple[Kernel, ...]
    _operator: ClassVar[Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self.parts))
        super().__post_init__()

    @classmethod
    def _of(cls, *kernels: Kernel) -> Self:
        """The combination of kernels; one of the same kind among them gives its own parts."""
        parts = (kernel.parts if type(kernel) is cls else (kernel,) for kernel in kernels)
        return cls(tuple(chain.from_iterable(parts)))

    def __call__(self, X: Array, Y: Array) -> Array:
        return reduce(self._operator, (part(X, Y) for part in self.parts))

    def diagonal(self, X: Array) -> Array:
        return reduce(self._operator, (part.diagonal(X) for part in self.parts))


@dataclass(frozen=True)
class Sum(Combination):
    """The sum of kernels; ``kernel + other`` makes one.

    Parameters
    ----------
    parts : tuple of Kernel
        The terms.

    Examples
    --------
    >>> from rkdl.kernels import RBF, Linear, Sum
    >>> Sum((RBF(0.5), Linear())) == RBF(0.5) + Linear()
    True
    """

    _operator = staticmethod(add)

    def value_and_gradient(self, X: Array, Y: Array, values: Array = None) -> ValueAndGradient:
        found = [part.value_and_gradient(X, Y) for part in self.parts]
        # The terms' own values serve their gradients, and stay as they are.
        total = sum((own for own, _ in found[1:]), start=found[0][0])
        return total, lambda weighting: reduce(add, (gradient(weighting) for _, gradient in found))

    def __repr__(self) -> str:
        return " + ".join(map(repr, self.parts))


@dataclass(frozen=True)
class Product(Combination):
    """The product of kernels; ``kernel * other`` makes one.

    Parameters
    ----------
    parts : tuple of Kernel
        The factors.

    Examples
    --------
    >>> from rkdl.kernels import RBF, Polynomial, Product
    >>> Product((RBF(0.5), Polynomial(2))) == RBF(0.5) * Polynomial(2)
    True
    """

    _operator = staticmethod(mul)

    def value_and_gradient(self, X: Array, Y: Array, values: Array = None) -> ValueAndGradient:
        found = [part.value_and_gradient(X, Y) for part in self.parts]

        def gradient(weighting: Weighting) -> Array:
            terms = []
            for i, (_, own) in enumerate(found):
                others = reduce(mul, (value for j, (value, _) in enumerate(found) if j != i))
                terms.append(own(lambda factor, others=others: weighting(others * factor)))  # type: ignore[misc]
            return reduce(add, terms)

        return reduce(mul, (value for value, _ in found)), gradient

    def __repr__(self) -> str:
        return " * ".join(f"({part!r})" if isinstance(part, Sum) else repr(part) for part in self.parts)


@dataclass(frozen=True)
class Scaled(Composite):
    """A kernel multiplied by a positive number; ``number * kernel`` makes one.

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    factor : float
        The number.

    Examples
    --------
    >>> from rkdl.kernels import RBF, Scaled
    >>> Scaled(RBF(0.5), 2.0) == 2.0 * RBF(0.5)
    True
    """

    kernel: Kernel
    factor: float

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "factor")

    @property
    def parts(self) -> tuple[Kernel, ...]:  # type: ignore[override]
        """The kernel alone."""
        return (self.kernel,)

    def _each(self, function: Callable[[Kernel], Kernel]) -> Kernel:
        return Scaled(function(self.kernel), self.factor)

    def __call__(self, X: Array, Y: Array) -> Array:
        return self.kernel(X, Y) * float(self.factor)

    def diagonal(self, X: Array) -> Array:
        return self.kernel.diagonal(X) * float(self.factor)

    def value_and_gradient(self, X: Array, Y: Array, values: Array = None) -> ValueAndGradient:
        own, gradient = self.kernel.value_and_gradient(X, Y)
        return own * float(self.factor), lambda weighting: gradient(weighting) * float(self.factor)

    def __repr__(self) -> str:
        own = f"({self.kernel!r})" if isinstance(self.kernel, Sum) else repr(self.kernel)
        return f"{self.factor!r} * {own}"
