"""The primitives of `rkdl._backends.base` on torch tensors."""

from __future__ import annotations

import numpy as np
import torch

from rkdl._backends.base import Backend
from rkdl._backends.cpu.backend import BACKEND as CPU
from rkdl._backends.devices import has_triton, torch_dtype, upload
from rkdl._backends.torch.products import product, weighted_sum
from rkdl._backends.torch.pursuit import pursue
from rkdl._backends.torch.sweeps import SweepCodes, gram_sweep
from rkdl._utils.types import Array

# Where the smallest pivot is this many times what counts as zero, no other order of pivots finds one that does.
_CLEAR = 100.0


class TorchBackend(Backend):
    """torch, and Triton on a GPU."""

    xp = torch

    def to_host(self, array: torch.Tensor) -> np.ndarray:
        array = array.detach().cpu().resolve_neg()
        # NumPy has no bfloat16.
        return (array.float() if array.dtype == torch.bfloat16 else array).numpy()

    def from_host(self, array: Array, like: torch.Tensor) -> torch.Tensor:
        return array if isinstance(array, torch.Tensor) else upload(array, like.device)

    def as_like(self, array: Array, like: torch.Tensor) -> torch.Tensor:
        return self.from_host(array, like).to(like.dtype)

    def cast(self, array: torch.Tensor, dtype: np.dtype | type) -> torch.Tensor:
        return array.to(torch_dtype(dtype))

    def copy(self, array: torch.Tensor) -> torch.Tensor:
        return array.clone()

    def full(self, shape: tuple[int, ...], value: float, like: torch.Tensor) -> torch.Tensor:
        return like.new_full(shape, value)

    def largest(self, rows: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
        found, at = rows.topk(count, dim=1, sorted=False)
        return found, at

    def group_sums(
        self, rows: torch.Tensor, groups: torch.Tensor, weights: torch.Tensor, count: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        members = rows.new_zeros((len(rows), count)).scatter_(1, groups[:, None], weights[:, None])
        counts = torch.bincount(groups, minlength=count)
        return weighted_sum(members, rows), members.sum(0, dtype=torch.float64), counts

    pursue = staticmethod(pursue)
    gram_sweep = staticmethod(gram_sweep)
    sweep_codes = SweepCodes

    def project_rows(self, features: list[torch.Tensor], rows: Array, vector: torch.Tensor) -> torch.Tensor:
        return torch.cat([part @ vector.to(part.dtype) for part in features]).double()

    def add_scaled(self, total: torch.Tensor, term: torch.Tensor, factor: torch.Tensor) -> None:
        total += factor * term

    def power(self, array: torch.Tensor, exponent: float) -> torch.Tensor:
        return array ** (int(exponent) if exponent == int(exponent) else exponent)

    def fill_diagonal(self, matrix: torch.Tensor, values: torch.Tensor) -> None:
        matrix.diagonal().copy_(values)

    def dot(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return (left * right).sum()

    def dots(self, left: torch.Tensor, right: torch.Tensor) -> tuple[float, float, float]:
        both = torch.stack([left, right]).reshape(2, -1)
        (left_square, crossed), (_, right_square) = (both @ both.T).tolist()
        return crossed, left_square, right_square

    def row_norms(self, rows: torch.Tensor) -> torch.Tensor:
        return (rows * rows).sum(1).sqrt()

    def squared_norms(self, rows: torch.Tensor) -> torch.Tensor:
        return torch.linalg.vecdot(rows, rows)

    product = staticmethod(product)
    weighted_sum = staticmethod(weighted_sum)

    def rbf(self, rows: torch.Tensor, others: torch.Tensor, gamma: float) -> torch.Tensor:
        if rows.device.type == "cuda" and has_triton():
            from rkdl._backends.torch.triton_kernels import finish_rbf

            values, own, other = _distance_terms(rows, others, gamma)
            finish_rbf(values, own, other, 8.0 * torch.finfo(values.dtype).eps)
            return values
        return super().rbf(rows, others, gamma)

    def exponents(self, rows: torch.Tensor, others: torch.Tensor, gamma: float) -> torch.Tensor:
        values, own, other = _distance_terms(rows, others, gamma)
        rounding = 8.0 * torch.finfo(values.dtype).eps
        # Infinity becomes NaN, or a signal at infinity would be treated as one that is far away.
        own = own + (own - own)
        values -= own[:, None]
        values -= other
        # If gamma is so large that rounding of a zero distance matters, such exponents become zero.
        near = torch.where(rounding * other.max() > 1e-4, rounding, 0.0).to(values.dtype)
        return torch.where(values > -near * (own[:, None] + other), 0.0, values).clamp_(max=0.0)

    def cholesky(self, matrix: torch.Tensor, zero: float) -> tuple[torch.Tensor | None, torch.Tensor] | None:
        """Pivoted, on the host, only where the rank is in doubt."""
        # A matrix that is not finite shows in the factor, and only a factor that fails is examined.
        factor = torch.linalg.cholesky_ex(matrix)[0]
        lowest, largest = torch.stack([factor.diagonal().min(), matrix.diagonal().max()]).tolist()
        least = zero * largest
        if lowest > 0.0 and lowest * lowest > 2.0 * least:
            # The least that all other coordinates leave of one: no order of pivots has a smaller last pivot.
            is_clear = lowest * lowest > _CLEAR * least
            if is_clear or 1.0 / float(self.inverse_factor(factor).square().sum(0).max()) > 2.0 * least:
                return None, factor
        found = CPU.cholesky(self.to_host(matrix), zero)
        return None if found is None else (upload(found[0], matrix.device), upload(found[1], matrix.device))

    def inverse_factor(self, factor: torch.Tensor) -> torch.Tensor:
        """Small solves are mostly kernel launches: the factor is inverted once, and whitening is a product."""
        identity = torch.eye(len(factor), dtype=factor.dtype, device=factor.device)
        return torch.linalg.solve_triangular(factor, identity, upper=False) if len(factor) else identity

    def solve_rows(self, factor: torch.Tensor, inverse: Array, rows: torch.Tensor, transposed: bool) -> torch.Tensor:
        return rows @ (inverse if transposed else inverse.T)


BACKEND = TorchBackend()


def _distance_terms(
    rows: torch.Tensor, others: torch.Tensor, gamma: float
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """``2 gamma x'y``, ``gamma |x|^2`` and ``gamma |y|^2``."""
    products = product(rows, others * (2.0 * gamma))
    own = gamma * torch.linalg.vecdot(rows, rows)
    return products, own, own if rows is others else gamma * torch.linalg.vecdot(others, others)
