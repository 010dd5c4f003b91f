"""The pursuit on tensors: by Triton on a GPU, by the compiled CPU kernel on the CPU, in plain torch anywhere else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from rkdl._backends.cpu.codes import Codes, arguments
from rkdl._backends.cpu.pursuit import pursue_rows
from rkdl._backends.devices import csr_tensor, has_triton
from rkdl._backends.torch.products import product, weighted_sum

# Bytes that the plain pursuit's rows may take at a time.
PLAIN_BYTES = 1 << 30
# Codes with their zeros are remembered for the tasks to come while they are no more numbers than this.
KNOWN_CODES = 1 << 20
# Atoms per non-zero from which on a GPU sums over the non-zeros alone.
SPARSE_RATIO = 32


class TensorCodes(NamedTuple):
    """Sparse codes of a chunk: `counts` entries of every row (c, s), indices ascending, the rest zeros.

    Rows are packed only for results: how many non-zeros there are would have to be waited for.
    """

    counts: torch.Tensor
    indices: torch.Tensor
    values: torch.Tensor
    # The values that were made dense, and what they became: of other values it says nothing.
    known: tuple[torch.Tensor, torch.Tensor] | None = None

    def packed(self) -> Codes:
        """The codes in compressed rows, once they are in host memory."""
        counts, indices, values = map(np.asarray, self[:3])
        is_used = np.arange(indices.shape[1], dtype=np.int32) < counts[:, None]
        return Codes(counts, indices[is_used], values[is_used])

    def to_csr(self, n_atoms: int) -> torch.Tensor:
        """The same codes as a CSR tensor."""
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

    def dense(self, n_atoms: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        """The codes (c, n) with their zeros; every sum has one term that is not zero, so any order gives its bits."""
        dtype = torch.float64 if dtype is np.float64 else dtype
        if self.known is not None and self.known[0] is self.values and dtype in (None, self.values.dtype):
            return self.known[1]
        dense = torch.zeros((len(self.counts), n_atoms), dtype=dtype or self.values.dtype, device=self.values.device)
        return dense.scatter_add_(1, self.indices.long(), self.values.to(dense.dtype))

    def times(self, atoms: torch.Tensor) -> torch.Tensor:
        return self.dense(len(atoms)) @ atoms

    def cross_products(self, features: torch.Tensor, n_atoms: int) -> torch.Tensor:
        if self._are_sparse(n_atoms):
            from rkdl._backends.torch import triton_statistics

            return triton_statistics.cross_products(*self[:3], features, n_atoms)
        return weighted_sum(self.dense(n_atoms), features)

    def gram(self, n_atoms: int) -> torch.Tensor:
        """``Z'Z`` (n, n) in float64."""
        if self._are_sparse(n_atoms):
            from rkdl._backends.torch import triton_statistics

            return triton_statistics.code_gram(*self[:3], n_atoms)
        wide = self.dense(n_atoms).double()
        return wide.T @ wide

    def _are_sparse(self, n_atoms: int) -> bool:
        """Whether sums over the non-zeros alone are faster than products of dense matrices."""
        is_on_gpu = self.values.device.type == "cuda" and has_triton()
        return is_on_gpu and self.known is None and n_atoms >= SPARSE_RATIO * self.indices.shape[1]

    def weighted_derivative(self, atoms: torch.Tensor, derivative: torch.Tensor) -> Any:
        if derivative.device.type == "cuda" and has_triton() and self.known is None:
            from rkdl._backends.torch import triton_kernels

            return triton_kernels.weight(self.indices, self.values, atoms, derivative)
        return self.times(atoms).mul_(derivative)


def pursue(
    correlations: torch.Tensor,
    gram: Any,
    squared_norms: torch.Tensor,
    n_nonzero: int,
    residual_tol: float,
    ols: bool,
    dictionary: Any = None,
) -> tuple[TensorCodes, torch.Tensor]:
    """Codes and squared residuals (c,); see `rkdl._coding.pursuit.pursue`."""
    options = n_nonzero, residual_tol, ols
    gram = product(dictionary, dictionary) if gram is None else gram
    work = _pursuit_for(correlations, n_nonzero)
    counts, indices, values, residuals = work(correlations, gram, squared_norms, *options)
    return TensorCodes(counts, indices, values), residuals


def explained_squares(correlations: torch.Tensor, *parameters: Any) -> torch.Tensor:
    """Squared norms (c,) of what the codes represent; parameters as for `pursue`."""
    codes, _ = pursue(correlations, *parameters)
    return (codes.values * correlations.gather(1, codes.indices.long())).sum(1)


def residual_gradients(
    codes: list[TensorCodes],
    weights: torch.Tensor,
    least: torch.Tensor,
    own: torch.Tensor,
    features: torch.Tensor,
    atoms: Sequence[torch.Tensor],
) -> tuple[torch.Tensor, torch.Tensor]:
    """See `rkdl._backends.base.Backend.residual_gradients`; all at once, since each is too little for a GPU."""
    width = max(part.indices.shape[1] for part in codes)
    indices = torch.stack([_widened(part.indices, width) for part in codes])
    values = torch.stack([_widened(part.values, width) for part in codes])
    dense = values.new_zeros((len(codes), len(features), len(atoms[0]))).scatter_add_(2, indices.long(), values)
    weights = torch.where(weights.abs() > least[:, None], weights, 0.0).T[:, :, None]
    gradients = (dense * weights).mT @ (features - dense @ torch.stack(list(atoms)))
    return gradients, (own.T[:, None].double() @ dense.double().square())[:, 0]


def _widened(part: torch.Tensor, width: int) -> torch.Tensor:
    """The columns of a tensor, and zeros up to a width."""
    missing = width - part.shape[1]
    return torch.nn.functional.pad(part, (0, missing)) if missing else part


def pursue_and_sum(
    correlations: torch.Tensor, gram: torch.Tensor, squared_norms: torch.Tensor, features: torch.Tensor, *options: Any
) -> tuple[TensorCodes, torch.Tensor, tuple]:
    """As `pursue`, with the sufficient statistics; small dense codes are remembered for the tasks to come."""
    codes, residuals = pursue(correlations, gram, squared_norms, *options)
    n_atoms = correlations.shape[1]
    if correlations.numel() <= KNOWN_CODES:
        codes = codes._replace(known=(codes.values, codes.dense(n_atoms)))
    energies = squared_norms.sum(dtype=torch.float64), residuals.sum(dtype=torch.float64)
    return codes, residuals, (codes.gram(n_atoms), codes.cross_products(features, n_atoms), *energies)


Parts = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]


def _pursuit_for(correlations: torch.Tensor, n_nonzero: int) -> Callable[..., Parts]:
    """The fastest pursuit: of the CPU, or on a GPU one of two Triton kernels, unless the sizes are beyond both."""
    if correlations.device.type == "cpu":
        return _pursue_on_host
    if correlations.device.type == "cuda" and has_triton():
        from rkdl._backends.torch import triton_kernels, triton_streamed_pursuit

        n_atoms = correlations.shape[1]
        if triton_kernels.fits(n_atoms, n_nonzero, correlations.element_size()):
            return triton_kernels.pursue
        if triton_streamed_pursuit.fits(n_atoms, n_nonzero):
            return triton_streamed_pursuit.pursue
    return pursue_plainly


def _pursue_on_host(correlations: torch.Tensor, gram: torch.Tensor, squared_norms: torch.Tensor, *rest: Any) -> Parts:
    products, atom_products, norms = (part.contiguous().numpy() for part in (correlations, gram, squared_norms))
    given = arguments(products, atom_products, norms, *rest)
    pursue_rows(*given)
    found = given.counts, given.indices, given.values, given.residuals
    counts, indices, values, residuals = map(torch.from_numpy, found)
    return counts, indices, values, residuals


def pursue_plainly(
    correlations: torch.Tensor, gram: torch.Tensor, squared_norms: torch.Tensor, n_nonzero: int, *options: Any
) -> Parts:
    """The pursuit in torch's own functions, all signals a step at a time: counts, indices, values, residuals."""
    n_signals, n_atoms = correlations.shape
    rows = max(1, PLAIN_BYTES // (n_atoms * (n_nonzero + 4) * correlations.element_size()))
    parts = [
        _pursue_rows(correlations[i : i + rows], gram, squared_norms[i : i + rows], n_nonzero, *options)
        for i in range(0, max(n_signals, 1), rows)
    ]
    if len(parts) == 1:
        return parts[0]
    counts, indices, values, residuals = (torch.cat(pieces) for pieces in zip(*parts, strict=True))
    return counts, indices, values, residuals


def _pursue_rows(
    correlations: torch.Tensor,
    gram: torch.Tensor,
    squared_norms: torch.Tensor,
    n_nonzero: int,
    residual_tol: float,
    ols: bool,
) -> Parts:
    n_signals, n_atoms = correlations.shape
    dtype, device = correlations.dtype, correlations.device
    eps = torch.finfo(dtype).eps
    floor, noise = eps**0.5, (8.0 * eps) ** 2
    a, u = correlations.clone(), torch.ones_like(correlations)
    factor = torch.zeros((n_nonzero, n_signals, n_atoms), dtype=dtype, device=device)
    # triangle[:, k, q] = w_q[b_k]; its diagonal holds sqrt(u_b).
    triangle = torch.zeros((n_signals, n_nonzero, n_nonzero), dtype=dtype, device=device)
    chosen = torch.full((n_signals, n_nonzero), n_atoms, dtype=torch.int64, device=device)
    projections = torch.zeros((n_signals, n_nonzero), dtype=dtype, device=device)
    residuals = squared_norms.clone()
    is_alive = residuals > residual_tol
    smallest = torch.ones_like(residuals)
    threshold = torch.zeros_like(residuals)
    counts = torch.zeros(n_signals, dtype=torch.int32, device=device)
    scores = a * a
    for k in range(n_nonzero):
        b = scores.argmax(dim=1, keepdim=True)
        correlation, norm = a.gather(1, b)[:, 0], u.gather(1, b)[:, 0]
        square = correlation * correlation
        is_alive = is_alive & (square * smallest > threshold) & (norm > floor)
        smallest = torch.minimum(smallest, norm)
        if k == 0:
            threshold = noise * square
        root = torch.where(is_alive, norm, 1.0).sqrt()
        projection = torch.where(is_alive, correlation / root, 0.0)
        residuals = residuals - projection * projection
        entries = factor[:k].gather(2, b.expand(k, n_signals, 1))[:, :, 0].T
        triangle[:, k, :k] = entries * is_alive[:, None]
        triangle[:, k, k] = root
        chosen[:, k] = torch.where(is_alive, b[:, 0], n_atoms)
        projections[:, k] = projection
        counts += is_alive
        is_alive = is_alive & (residuals > residual_tol)
        if k + 1 == n_nonzero:
            break
        row = gram[b[:, 0]]
        if k:
            row = row - torch.einsum("tq,qtj->tj", entries, factor[:k])
        row = row / root[:, None]
        factor[k] = row
        a -= projection[:, None] * row
        u -= row * row
        scores = torch.where(u > floor, a * a / u if ols else a * a, 0.0)
    # A step after the last has a one on the diagonal and nothing else, so that it adds nothing.
    solution = torch.linalg.solve_triangular(triangle.mT, projections[:, :, None], upper=True)[:, :, 0]
    indices, order = chosen.sort(dim=1)
    is_used = indices < n_atoms
    values = torch.where(is_used, solution.gather(1, order), 0.0)
    return counts, torch.where(is_used, indices, 0).int(), values, residuals.clamp(min=0.0)
