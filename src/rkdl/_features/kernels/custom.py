"""Kernels that users bring."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from rkdl._backends.base import backend_of
from rkdl._features.kernels.base import Kernel
from rkdl._utils.inputs import well_formed


@dataclass(frozen=True)
class Custom(Kernel):
    """A user's kernel: a `Kernel` of the user's, or a function of two matrices or of two rows."""

    function: Callable[..., Any]  # ``(X, Y) -> (len(X), len(Y))``, or, if `of_rows`, ``(x, y) -> number``
    of_rows: bool = False
    # Whether it can be called with tensors; else signals are brought to NumPy, and values back.
    takes_tensors: bool = False

    @classmethod
    def wrap(cls, function: Callable[..., Any], sample: np.ndarray) -> Custom:
        """Find out by trying what the function takes."""
        # As many rows as a product of two rows cannot be mistaken for.
        n_right = sample.shape[1] + 2
        left, right = sample[:1].repeat(2, axis=0), sample[:1].repeat(n_right, axis=0)
        trial_error: Exception | None = None
        try:
            values = np.asarray(function(left, right))
            if values.shape == (2, n_right) and values.dtype.kind in "fiubc":
                takes_tensors = isinstance(function, Kernel) and _takes_tensors(function, left, right)
                return cls(function, False, takes_tensors)
        except Exception as error:
            trial_error = error
        if isinstance(function, Kernel):
            raise ValueError(
                f"kernel={function!r} does not return a (len(X), len(Y)) array of numbers: fix its __call__(X, Y)."
            ) from trial_error
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

    @property
    def differentiable(self) -> bool:
        """Whether the user wrote a gradient."""
        return isinstance(self.function, Kernel) and self.function.differentiable

    def _prepared(self, sample: np.ndarray) -> Kernel:
        return Custom.wrap(self.function, sample)

    def __call__(self, X: Any, Y: Any) -> Any:
        if self.of_rows:
            return self._call(lambda X, Y: np.array([[self.function(x, y) for y in Y] for x in X]), X, Y)
        return self._shaped(self._call(self.function, X, Y), (len(X), len(Y)))

    def _shaped(self, values: Any, shape: tuple[int, ...]) -> Any:
        """The values, or an error if the user's function returned another number of them."""
        if tuple(values.shape) != shape:
            raise ValueError(
                f"kernel={self.function!r} returned values of shape {tuple(values.shape)}, expected {shape}: fix the "
                f"function."
            )
        return values

    def diagonal(self, X: Any) -> Any:
        """``k(x, x)`` of every row, from small blocks."""
        function: Any = self.function
        if self.of_rows:
            values = self._call(lambda X: [function(x, x) for x in X], X)
        elif isinstance(function, Kernel):
            values = self._call(function.diagonal, X)
        elif hasattr(function, "diag"):
            values = self._call(function.diag, X)
        else:
            values = super().diagonal(X)
        values = self._shaped(values, (len(X),))
        backend, shown = backend_of(values), backend_of(values).to_host(values)
        rounding = 1e4 * float(np.finfo(shown.dtype).eps) * float(np.nanmax(np.abs(shown), initial=0.0))
        # Not `values < -rounding`, which NaN is not.
        is_bad = ~(shown >= -rounding) | np.isinf(shown)
        if is_bad.any():
            raise ValueError(
                f"kernel={function!r} gives k(x, x) = {shown[is_bad][0]} for {int(is_bad.sum())} of {len(X)} "
                f"signals: a signal's product with itself is finite and not negative; fix the function."
            )
        return backend.from_host(np.maximum(shown, 0.0), X)

    def gradient(self, X: Any, Y: Any, weights: Any) -> Any:
        """The user's gradient, in float64."""
        function: Any = self.function
        found = self._call(function.gradient, X, Y, backend_of(X).from_host(weights, X))
        if found.shape != Y.shape:
            raise ValueError(
                f"kernel={function!r} has a gradient of shape {tuple(found.shape)}, expected that of Y, "
                f"{tuple(Y.shape)}: fix its gradient(X, Y, weights)."
            )
        return backend_of(found).cast(found, np.float64)

    def _call(self, function: Callable[..., Any], X: Any, *others: Any) -> Any:
        """What a function of the user's returns, as a new array of real numbers of the dtype of X, where X is."""
        backend = backend_of(X)
        if self.takes_tensors and not isinstance(X, np.ndarray):
            found = function(X, *others)
            if backend_of(found) is backend:
                return backend.copy(backend.as_like(found, X))
        values = np.asarray(well_formed(function(*map(backend.to_host, (X, *others))), "the kernel's value"))
        if values.dtype.kind == "c":
            raise ValueError(
                f"kernel={self.function!r} returns complex numbers, and the methods work with real kernels: return the "
                f"real part where the other is zero."
            )
        dtype = backend.to_host(X[:0]).dtype
        values = np.array(values, dtype=dtype, order="C")
        return backend.from_host(values.reshape(len(X), len(others[0])) if self.of_rows and others else values, X)


def _takes_tensors(kernel: Kernel, *rows: np.ndarray) -> bool:
    """Whether a kernel's code runs on tensors of any device, seen on tensors without numbers."""
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
