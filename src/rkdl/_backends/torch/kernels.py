"""The kernels of `rkdl._features.kernels` on tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.weak import WeakTensorKeyDictionary

from rkdl._backends.torch.device import BLOCK_ROWS
from rkdl._backends.torch.pursuit import has_triton
from rkdl._features.kernels import RBF, Custom, Linear, Polynomial


def squared_norms(rows: torch.Tensor) -> torch.Tensor:
    """``|x|^2`` of every row, in the rows' dtype."""
    return torch.linalg.vecdot(rows, rows)


# Squared norms of the rows of a tensor and what they were multiplied by, while it lives and is not written to.
_known_norms: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def scaled_norms(rows: torch.Tensor, factor: float) -> torch.Tensor:
    """``factor |x|^2`` of every row; of rows that stay from walk to walk it is computed once."""
    if rows.is_inference():
        return factor * squared_norms(rows)
    state = rows._version, factor
    known, norms = _known_norms.get(rows, (None, None))
    if known != state:
        norms = factor * squared_norms(rows)
        _known_norms[rows] = state, norms
    return norms


def summed_product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """``left' right`` over many rows, in float64: sums of blocks of rows, added, so that few digits are lost."""
    n_blocks = len(left) // BLOCK_ROWS
    if n_blocks < 2:
        return (left.T @ right).double()
    whole = n_blocks * BLOCK_ROWS
    blocks = [part[:whole].reshape(n_blocks, BLOCK_ROWS, -1) for part in (left, right)]
    # A conversion of all blocks to float64 would take longer than it is worth.
    total = torch.bmm(blocks[0].mT, blocks[1]).sum(0).double()
    if whole < len(left):
        total += left[whole:].T @ right[whole:]
    return total


@dataclass(frozen=True)
class TensorRBF(RBF):
    """``exp(-gamma |x - y|^2)``."""

    shift: torch.Tensor | None = None

    def _centred(self, rows: torch.Tensor) -> torch.Tensor:
        return rows if self.shift is None else rows - self.shift.to(rows.dtype)

    def __call__(self, X: torch.Tensor, Y: torch.Tensor) -> torch.Tensor:
        X, Y = self._centred(X), self._centred(Y)
        values = X @ (Y * (2.0 * self.gamma)).T
        own, other = scaled_norms(X, self.gamma), self.gamma * squared_norms(Y)
        rounding = 8.0 * torch.finfo(values.dtype).eps
        if values.device.type == "cuda" and has_triton():
            from rkdl._backends.torch.triton_kernels import finish_rbf

            finish_rbf(values, own, other, rounding)
            return values
        # Infinity becomes NaN, or a signal at infinity would pass for one that is merely far.
        own = own + (own - own)
        values -= own[:, None]
        values -= other
        # Where gamma is so large that the rounding of a zero distance shows, zero is put for it.
        near = torch.where(rounding * other.max() > 1e-4, rounding, 0.0).to(values.dtype)
        values = torch.where(values > -near * (own[:, None] + other), 0.0, values)
        return values.clamp_(max=0.0).exp_()

    def diagonal(self, X: torch.Tensor) -> torch.Tensor:
        """``k(x, x)`` of every row."""
        return torch.ones(len(X), dtype=X.dtype, device=X.device)

    def pull(self, X: torch.Tensor, Y: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Weighted sums of the derivatives by the rows of `Y`, in float64."""
        X, Y = self._centred(X), self._centred(Y)
        pulled = summed_product(weights, X)
        pulled -= weights.sum(0, dtype=torch.float64)[:, None] * Y
        return pulled.mul_(2.0 * self.gamma)


@dataclass(frozen=True)
class TensorPolynomial(Polynomial):
    """``(gamma x'y + coef0)^degree``."""

    def _base(self, X: torch.Tensor, Y: torch.Tensor) -> torch.Tensor:
        return (X @ Y.T).mul_(self.gamma).add_(self.coef0)

    def __call__(self, X: torch.Tensor, Y: torch.Tensor) -> torch.Tensor:
        return self._base(X, Y) ** int(self.degree)

    def diagonal(self, X: torch.Tensor) -> torch.Tensor:
        """``k(x, x)`` of every row."""
        return (self.gamma * squared_norms(X) + self.coef0) ** int(self.degree)

    def value_and_slope(self, X: torch.Tensor, Y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Kernel values, and the factor of the derivative that depends on both sides."""
        base = self._base(X, Y)
        slope = base ** (int(self.degree) - 1)
        return slope * base, slope

    def pull(self, X: torch.Tensor, Y: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Weighted sums of the derivatives by the rows of `Y`, in float64."""
        return summed_product(weights, X).mul_(self.degree * self.gamma)


@dataclass(frozen=True)
class TensorLinear(Linear):
    """``x'y``."""

    def __call__(self, X: torch.Tensor, Y: torch.Tensor) -> torch.Tensor:
        return X @ Y.T

    def diagonal(self, X: torch.Tensor) -> torch.Tensor:
        """``k(x, x)`` of every row."""
        return squared_norms(X)

    def value_and_slope(self, X: torch.Tensor, Y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Kernel values, and the factor of the derivative that depends on both sides."""
        values = X @ Y.T
        return values, torch.ones_like(values)

    def pull(self, X: torch.Tensor, Y: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Weighted sums of the derivatives by the rows of `Y`, in float64."""
        return summed_product(weights, X)


@dataclass(frozen=True)
class TensorCustom(Custom):
    """A user's function of NumPy arrays: signals are brought to it, and its values back."""

    def __call__(self, X: torch.Tensor, Y: torch.Tensor) -> torch.Tensor:
        return self._returned(Custom.__call__(self, _host(X), _host(Y)), X)

    def diagonal(self, X: torch.Tensor) -> torch.Tensor:
        """``k(x, x)`` of every row."""
        return self._returned(Custom(self.function, self.of_rows).diagonal(_host(X)), X)

    def _returned(self, values: np.ndarray, like: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(values)).to(like.device)


def _host(rows: torch.Tensor) -> Any:
    return rows.cpu().numpy()
