"""User-defined kernels."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rkdl._backends.base import backend_of
from rkdl._features.kernels.base import Kernel
from rkdl._utils.inputs import well_formed
from rkdl._utils.types import Array


@dataclass(frozen=True)
class Custom(Kernel):
    """A user-defined kernel: a class derived from `Kernel`, or a function of two matrices."""

    function: Callable[..., Any]  # ``(X, Y) -> (len(X), len(Y))``
    # Whether it can be called with tensors; else signals are brought to NumPy, and values back.
    takes_tensors: bool = False

    @classmethod
    def wrap(cls, function: Callable[..., Any], sample: np.ndarray) -> Custom:
        """Find out by a trial what the function accepts."""
        # Enough rows that a function of two rows cannot be mistaken for one of two matrices.
        left, right = sample[:1].repeat(2, axis=0), sample[:1].repeat(sample.shape[1] + 2, axis=0)
        trial_error: Exception | None = None
        try:
            values = np.asarray(function(left, right))
            if values.shape == (2, len(right)) and values.dtype.kind in "fiubc":
                return cls(function, isinstance(function, Kernel) and _takes_tensors(function, left, right))
        except Exception as error:
            trial_error = error
        remedy = (
            "fix its __call__(X, Y)"
            if isinstance(function, Kernel)
            else "fix the function, or if it is one of two rows, give lambda X, Y: sklearn.metrics.pairwise."
            "pairwise_kernels(X, Y, metric=function)"
        )
        raise ValueError(
            f"kernel={function!r} does not return a (len(X), len(Y)) array of numbers: {remedy}."
        ) from trial_error

    @property
    def differentiable(self) -> bool:
        """Whether the user wrote a gradient."""
        return isinstance(self.function, Kernel) and self.function.differentiable

    def _prepared(self, sample: np.ndarray) -> Kernel:
        return Custom.wrap(self.function, sample)

    def __call__(self, X: Array, Y: Array) -> Array:
        return self._call(self.function, "values", (len(X), len(Y)), X, Y)

    def diagonal(self, X: Array) -> Array:
        own = getattr(self.function, "diagonal" if isinstance(self.function, Kernel) else "diag", None)
        values = super().diagonal(X) if own is None else self._call(own, "diagonal", (len(X),), X)
        backend, shown = backend_of(values), backend_of(values).to_host(values)
        rounding = 1e4 * float(np.finfo(shown.dtype).eps) * float(np.nanmax(np.abs(shown), initial=0.0))
        # Written so that NaN counts too.
        is_bad = ~(shown >= -rounding) | np.isinf(shown)
        if is_bad.any():
            raise ValueError(
                f"kernel={self.function!r} gives k(x, x) = {shown[is_bad][0]} for {int(is_bad.sum())} of {len(X)} "
                f"signals: it must be finite and not negative; fix the function."
            )
        return backend.from_host(np.maximum(shown, 0.0), X)

    def gradient(self, X: Array, Y: Array, weights: Array) -> Array:
        """The user's gradient, in float64."""
        assert isinstance(self.function, Kernel)
        weights = backend_of(X).from_host(weights, X)
        found = self._call(self.function.gradient, "gradient", tuple(Y.shape), X, Y, weights)
        return backend_of(found).cast(found, np.float64)

    def _call(self, function: Callable[..., Any], what: str, shape: tuple[int, ...], X: Array, *others: Array) -> Array:
        """Result of a user's function, as a new array of real numbers with the dtype and device of X."""
        backend = backend_of(X)
        found = function(X, *others) if self.takes_tensors and not isinstance(X, np.ndarray) else None
        if found is not None and backend_of(found) is backend:
            found = backend.copy(backend.as_like(found, X))
        else:
            values = np.asarray(well_formed(function(*map(backend.to_host, (X, *others))), "the kernel's value"))
            if values.dtype.kind == "c":
                raise ValueError(
                    f"kernel={self.function!r} returns complex numbers, and the methods need real kernels: return the "
                    f"real part if the imaginary part is zero."
                )
            found = backend.from_host(np.array(values, dtype=backend.to_host(X[:0]).dtype, order="C"), X)
        if tuple(found.shape) != shape:
            raise ValueError(
                f"kernel={self.function!r} returned {what} of shape {tuple(found.shape)}, expected {shape}: "
                f"{'fix its gradient(X, Y, weights)' if what == 'gradient' else 'fix the function'}."
            )
        return found


def _takes_tensors(kernel: Kernel, *rows: np.ndarray) -> bool:
    """Whether a kernel's code runs on tensors of any device, tried on tensors without data."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    given = [torch.from_numpy(np.array(part)).to("meta") for part in rows]
    try:
        found = [kernel(*given), kernel.diagonal(given[0])]
        if kernel.differentiable:
            found.append(kernel.gradient(given[0], given[1], found[0]))
    except Exception:
        return False
    return all(isinstance(part, torch.Tensor) for part in found)
