"""Kernels: those of the library, and those of users."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np

from rkdl._features.kernels import base, composites, inner_products, radial
from rkdl._features.kernels.base import *  # noqa: F403
from rkdl._features.kernels.base import Kernel, WithWidth
from rkdl._features.kernels.composites import *  # noqa: F403
from rkdl._features.kernels.custom import Custom
from rkdl._features.kernels.inner_products import *  # noqa: F403
from rkdl._features.kernels.inner_products import Linear, Polynomial
from rkdl._features.kernels.radial import *  # noqa: F403
from rkdl._features.kernels.radial import RBF
from rkdl._utils.types import plain_scalar

# Types of an estimator's `kernel`.
KernelLike = str | Kernel | Callable[..., Any]
#: The public names of `rkdl.kernels`.
PUBLIC = sorted([*base.__all__, *composites.__all__, *inner_products.__all__, *radial.__all__])


def as_kernel(kernel: KernelLike, gamma: float | str, degree: int, coef0: float) -> Kernel:
    """A kernel from an estimator's parameters: a name with its numbers, a function, or a kernel already."""
    if isinstance(kernel, Kernel):
        return kernel
    if callable(kernel):
        return Custom(kernel)
    return {"rbf": lambda: RBF(gamma), "poly": lambda: Polynomial(degree, gamma, coef0), "linear": Linear}[kernel]()


def family(kernel: KernelLike) -> str | None:
    """The name of an estimator's kernel, whether it was given by that or as an object; None for any other."""
    names = {RBF: "rbf", Polynomial: "poly", Linear: "linear"}
    return kernel if isinstance(kernel, str) else names.get(type(kernel))


def gamma_parameter(kernel: KernelLike, gamma: float | str) -> float | str:
    """A number, or the rule that finds one: of a `Kernel` its own, of any other the estimator's `gamma`.

    All parameters of a kernel that are found at fit follow from one gamma. 1.0 where a kernel has none.
    """
    if not isinstance(kernel, Kernel):
        return gamma
    rules = {leaf._rule for leaf in kernel._leaves() if isinstance(leaf, WithWidth)} - {None}
    if len(rules) > 1:
        raise ValueError(f"kernel={kernel!r} has parameters by 'median' and by 'scale': use one rule, or numbers.")
    if rules:
        return str(rules.pop())
    return kernel._gamma if isinstance(kernel, WithWidth) else 1.0


def make_kernel(kernel: KernelLike, *, gamma: float, degree: int, coef0: float, sample: np.ndarray) -> Kernel:
    """The kernel of an estimator's parameters, as the learning uses it; `gamma` is what the rule of a `Kernel` gives.

    The sample shows where the signals are and what a callable takes.
    """
    return as_kernel(kernel, gamma, degree, coef0)._resolved(gamma)._prepared(sample)


def check_definite(kernel: Kernel, sample: np.ndarray) -> None:
    """Refuse a kernel that, on a sample, is not finite, symmetric and positive semidefinite."""
    leaves = kernel._leaves()
    if not any(leaf._has_user_code or (isinstance(leaf, Polynomial) and leaf.coef0 < 0.0) for leaf in leaves):
        return
    rows = sample[:: max(1, len(sample) // 100)]
    matrix = np.asarray(kernel(rows, rows), dtype=np.float64)
    if not np.isfinite(matrix).all():
        raise ValueError("The kernel's values are not finite on the signals: scale them, or fix the function.")
    slack = 1e4 * float(np.finfo(sample.dtype).eps) * float(np.abs(matrix).max(initial=0.0))
    # A function may come with one for the diagonal, which is checked here.
    kernel.diagonal(rows)
    if np.abs(matrix - matrix.T).max() > slack:
        raise ValueError("The kernel is not symmetric: k(x, y) and k(y, x) differ on the signals.")
    lowest = float(np.linalg.eigvalsh(matrix)[0])
    if lowest < -slack * len(rows):
        raise ValueError(
            f"The kernel is not positive semidefinite: on a sample of the signals its matrix has the negative "
            f"eigenvalue {lowest:.3g}. A polynomial kernel needs coef0 >= 0."
        )


def to_plain(value: object) -> Any:
    """A kernel of the library as names and numbers, for a file; its parameters likewise."""
    if isinstance(value, tuple):
        return [to_plain(part) for part in value]
    if not isinstance(value, Kernel):
        return plain_scalar(value)
    name = type(value).__name__
    if name not in PUBLIC or globals()[name] is not type(value):
        raise ValueError(
            f"The kernel holds a {type(value).__qualname__}, a class of your own, which rkdl.load could not make "
            f"again: make the whole kernel a class of your own and give it to load, or use skops or pickle."
        )
    parameters = [own.name for own in fields(value) if own.init]  # type: ignore[arg-type]
    return {"class": name, **{key: to_plain(getattr(value, key)) for key in parameters}}


def from_plain(plain: Any) -> Any:
    """The kernel of names and numbers, or a parameter of it; what is no kernel is refused with a TypeError."""
    if isinstance(plain, list):
        return tuple(map(from_plain, plain))
    if not isinstance(plain, dict):
        return plain
    values = {key: from_plain(value) for key, value in plain.items()}
    name = values.pop("class")
    if name not in PUBLIC or name == "Kernel":
        raise TypeError("a kernel is not one of rkdl.kernels")
    try:
        return globals()[name](**values)
    except ValueError as error:
        raise TypeError(str(error)) from error
