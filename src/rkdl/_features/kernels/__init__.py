"""Kernels: what they are, the library's own, and those of users."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from rkdl._backends.arrays import squared_norms as squared_norms
from rkdl._features.kernels import base, composites, inner_products, radial
from rkdl._features.kernels.base import *  # noqa: F403
from rkdl._features.kernels.base import Kernel
from rkdl._features.kernels.composites import *  # noqa: F403
from rkdl._features.kernels.composites import Composite, Scaled
from rkdl._features.kernels.custom import Custom
from rkdl._features.kernels.inner_products import *  # noqa: F403
from rkdl._features.kernels.inner_products import Linear, Polynomial
from rkdl._features.kernels.radial import *  # noqa: F403
from rkdl._features.kernels.radial import RBF
from rkdl._features.widths import centre_of as centre_of
from rkdl._features.widths import median_gamma as median_gamma
from rkdl._features.widths import offset_of as offset_of

DifferentiableKernel = Kernel

#: What `rkdl.kernels` offers.
PUBLIC = sorted([*base.__all__, *composites.__all__, *inner_products.__all__, *radial.__all__])


def as_kernel(kernel: Any, gamma: float | str, degree: int, coef0: float) -> Kernel:
    """A kernel from an estimator's parameters: a name with its numbers, a function, or a kernel already."""
    if isinstance(kernel, Kernel):
        return kernel
    if callable(kernel):
        return Custom(kernel)
    return {"rbf": lambda: RBF(gamma), "poly": lambda: Polynomial(degree, gamma, coef0), "linear": Linear}[kernel]()


def make_kernel(
    name: str | Callable[..., Any],
    *,
    gamma: float,
    degree: int,
    coef0: float,
    sample: np.ndarray,
    check: bool = False,
) -> Kernel:
    """The kernel of an estimator's parameters, with scikit-learn's meanings, as the learning uses it.

    Parameters
    ----------
    name : {"rbf", "poly", "linear"}, callable or Kernel
        The kernel.
    gamma, degree, coef0 : float, int, float
        Its parameters.
    sample : ndarray of shape (n_sample, n_features)
        A few signals, to try a callable on and to place the origin of distances.
    check : bool, default=False
        Whether to try on the sample that what may not be a kernel is one.
    """
    kernel = as_kernel(name, gamma, degree, coef0)._prepared(sample)
    if check and _may_be_indefinite(kernel):
        _check_definite(kernel, sample)
    return kernel


def _may_be_indefinite(kernel: Kernel) -> bool:
    if isinstance(kernel, Composite):
        return any(map(_may_be_indefinite, kernel.parts))
    if isinstance(kernel, Scaled):
        return _may_be_indefinite(kernel.kernel)
    return kernel._has_user_code or (isinstance(kernel, Polynomial) and kernel.coef0 < 0.0)


def _check_definite(kernel: Kernel, sample: np.ndarray) -> None:
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
