"""The pursuit on tensors, by Triton on a GPU and by the compiled kernel on the CPU, and the codes that it finds."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import NamedTuple

import numpy as np
import torch

from rkdl._backends.cpu.codes import Codes
from rkdl._backends.cpu.codes import pursue as codes_on_host
from rkdl._backends.devices import csr_tensor, has_triton, to_host, torch_dtype, upload
from rkdl._backends.torch.products import product, weighted_sum

# Pursuits that the Triton kernels know, of codes of any sign; any other is computed on the CPU.
ON_GPU = ("ols", "omp")
# Atoms per non-zero from which on a GPU sums over the non-zeros alone; a fit of DL with 1024 atoms and 8 non-zeros on
# 400,000 patches then takes less than half the time.
SPARSE_RATIO = 32


class TensorCodes(NamedTuple):
    """See `rkdl._backends.base.ChunkCodes`; `counts` entries of every row of `indices` and `values`, the rest zeros.

    Rows are packed only for results, because counting the non-zeros waits for the device.
    """

    counts: torch.Tensor
    indices: torch.Tensor
    values: torch.Tensor

    def packed(self) -> Codes:
        """The codes in compressed rows, once they are in host memory."""
        counts, indices, values = map(np.asarray, self)
        is_used = np.arange(indices.shape[1], dtype=np.int32) < counts[:, None]
        return Codes(counts, indices[is_used], values[is_used])

    def weighted(self, weights: torch.Tensor) -> TensorCodes:
        return self._replace(values=self.values * weights[:, None].to(self.values.dtype))

    def to_csr(self, n_atoms: int) -> torch.Tensor:
        n_signals, width = self.indices.shape
        kind = torch.int32 if n_signals * width < 2**31 else torch.int64
        starts = torch.zeros(n_signals + 1, dtype=kind, device=self.counts.device)
        torch.cumsum(self.counts, 0, dtype=kind, out=starts[1:])
        if int(starts[-1]) == n_signals * width:
            indices, values = self.indices.reshape(-1), self.values.reshape(-1)
        else:
            is_used = torch.arange(width, device=self.counts.device) < self.counts[:, None]
            indices, values = self.indices[is_used], self.values[is_used]
        return csr_tensor(starts, indices.to(kind), values, (n_signals, n_atoms))

    def dense(self, n_atoms: int, dtype: np.dtype | type | torch.dtype | None = None) -> torch.Tensor:
        # Every sum has at most one nonzero term, so that the order does not matter.
        dtype = dtype or self.values.dtype
        kind = dtype if isinstance(dtype, torch.dtype) else torch_dtype(dtype)
        dense = self.values.new_zeros((len(self.counts), n_atoms), dtype=kind)
        return dense.scatter_add_(1, self.indices.long(), self.values.to(kind))

    def times(self, atoms: torch.Tensor) -> torch.Tensor:
        return self.dense(len(atoms)) @ atoms

    def gram(self, n_atoms: int) -> torch.Tensor:
        if sums := self._sparse_sums(n_atoms):
            return sums.code_gram(*self, n_atoms)
        wide = self.dense(n_atoms, torch.float64)
        return wide.T @ wide

    def correlate(self, correlations: torch.Tensor) -> torch.Tensor:
        return (self.values * correlations.gather(1, self.indices.long())).sum(1)

    def cross_products(self, features: torch.Tensor, n_atoms: int) -> torch.Tensor:
        if sums := self._sparse_sums(n_atoms):
            return sums.cross_products(*self, features, n_atoms)
        return weighted_sum(self.dense(n_atoms), features)

    def sums(
        self, roots: TensorCodes, features: torch.Tensor, norms: torch.Tensor, residuals: torch.Tensor, n_atoms: int
    ) -> tuple[torch.Tensor, ...]:
        totals = (squares.sum(dtype=torch.float64) for squares in (norms, residuals))
        return roots.gram(n_atoms), self.cross_products(features, n_atoms), *totals

    def _sparse_sums(self, n_atoms: int) -> ModuleType | None:
        """Sums over the non-zeros alone, where they are faster than products of dense matrices."""
        if self.values.device.type != "cuda" or not has_triton() or n_atoms < SPARSE_RATIO * self.indices.shape[1]:
            return None
        from rkdl._backends.torch import triton_statistics

        return triton_statistics

    def weighted_derivative(self, atoms: torch.Tensor, derivative: torch.Tensor) -> torch.Tensor:
        return self.times(atoms).mul_(derivative)


# Counts (c,), indices and values (c, s) ascending and padded by zeros, and squared residuals (c,).
Parts = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


class Problem(NamedTuple):
    """The arguments of a pursuit; see `rkdl._backends.base.Backend.pursue`."""

    correlations: torch.Tensor
    gram: torch.Tensor
    squared_norms: torch.Tensor
    n_nonzero: int
    residual_tol: float
    pursuit: str
    positive: bool = False
    alpha: float | torch.Tensor = 0.0
    l2: float | torch.Tensor = 0.0
    dictionary: torch.Tensor | None = None
    observed: torch.Tensor | None = None

    @property
    def ols(self) -> bool:
        """Whether an atom's score is divided by what is left of its norm, for the Triton kernels."""
        return self.pursuit == "ols"

    def empty_parts(self) -> Parts:
        """Empty results on the device and in the dtype of the correlations."""
        n_signals, like = len(self.correlations), self.correlations
        counts = like.new_empty(n_signals, dtype=torch.int32)
        indices = like.new_empty((n_signals, self.n_nonzero), dtype=torch.int32)
        return counts, indices, like.new_empty((n_signals, self.n_nonzero)), like.new_empty(n_signals)


def pursue(
    correlations: torch.Tensor,
    gram: torch.Tensor | None,
    squared_norms: torch.Tensor,
    n_nonzero: int,
    residual_tol: float,
    pursuit: str,
    positive: bool = False,
    alpha: float | torch.Tensor = 0.0,
    l2: float | torch.Tensor = 0.0,
    dictionary: torch.Tensor | None = None,
    observed: torch.Tensor | None = None,
) -> tuple[TensorCodes, torch.Tensor]:
    """Codes and squared residuals (c,); see `rkdl._backends.base.Backend.pursue`."""
    if gram is None:
        assert dictionary is not None
        gram = product(dictionary, dictionary)
    rules = n_nonzero, residual_tol, pursuit, positive, alpha, l2
    problem = Problem(correlations, gram, squared_norms, *rules, None if observed is None else dictionary, observed)
    counts, indices, values, residuals = _pursuit_for(problem)(problem)
    return TensorCodes(counts, indices, values), residuals


def _pursuit_for(problem: Problem) -> Callable[[Problem], Parts]:
    """The pursuit for a problem: on a GPU one of two Triton kernels, unless the sizes are too large for both."""
    is_known = problem.pursuit in ON_GPU and not problem.positive and problem.observed is None
    if is_known and problem.correlations.device.type == "cuda" and has_triton():
        from rkdl._backends.torch import triton_kernels, triton_streamed_pursuit

        for kernels in (triton_kernels, triton_streamed_pursuit):
            if kernels.fits(problem):
                return kernels.pursue
    return pursue_on_host


def pursue_on_host(problem: Problem) -> Parts:
    """The pursuit of the CPU, wherever the tensors are."""
    products, gram, norms = (part.contiguous().cpu().numpy() for part in problem[:3])
    codes, residuals = codes_on_host(products, gram, norms, *to_host(problem[3:]))
    is_used = np.arange(problem.n_nonzero) < codes.counts[:, None]
    indices, values = np.zeros(is_used.shape, dtype=np.int32), np.zeros(is_used.shape, dtype=residuals.dtype)
    indices[is_used], values[is_used] = codes.indices, codes.values
    device = problem.correlations.device
    return upload(codes.counts, device), upload(indices, device), upload(values, device), upload(residuals, device)


def widened(part: torch.Tensor, width: int) -> torch.Tensor:
    """The tensor padded with columns of zeros to a width."""
    missing = width - part.shape[1]
    return torch.nn.functional.pad(part, (0, missing)) if missing else part
