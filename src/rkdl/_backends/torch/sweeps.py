"""Sweeps over the atoms on a device."""

from __future__ import annotations

from typing import Any

import torch

from rkdl._backends.cpu import sweeps
from rkdl._backends.cpu.sweeps import SHORT, SHORT_IN_METRIC
from rkdl._backends.devices import to_host
from rkdl._backends.torch.pursuit import TensorCodes


def gram_sweep(
    code_gram: torch.Tensor,
    targets: torch.Tensor,
    atoms: torch.Tensor,
    metric: torch.Tensor | None = None,
    **options: bool,
) -> torch.Tensor:
    """Update every atom once from the statistics alone; `atoms` changes in place.

    The norm that an updated atom is divided by comes back in its codes' factor, so that with ``x_j`` the atoms before
    they are normalised the sweep is one triangular solve,

        x_j = Q_j - sum_{i<j} (S_ji / S_ii) x_i - sum_{i>j} S_ji a_i
    """
    if options.get("is_positive") or not options.get("rescales", True):
        return _sweep_on_host(code_gram, targets, atoms, metric, **options)
    squares = code_gram.diagonal()
    used = squares > 0.0
    divisors = torch.where(used, squares, 1.0)
    free = targets - code_gram.triu(1) @ atoms
    free = torch.linalg.solve_triangular((code_gram / divisors).tril(-1), free, upper=False, unitriangular=True)
    lengths = torch.linalg.vecdot(free, free if metric is None else free @ metric)
    scales = torch.where(used, lengths.clamp(min=0.0).sqrt() / divisors, 1.0)
    couplings = (code_gram * scales).tril(-1) + code_gram.triu(1)
    terms = torch.linalg.vecdot(targets, targets if metric is None else targets @ metric)
    terms = terms + couplings.square().sum(1)
    is_short = used & ~(lengths > (SHORT if metric is None else SHORT_IN_METRIC) * terms)
    if is_short.any():
        # An atom without a new direction is not changed, which affects the atoms after it.
        return _sweep_on_host(code_gram, targets, atoms, metric)
    atoms.copy_(torch.where(used[:, None], free / torch.where(used, lengths, 1.0).sqrt()[:, None], atoms))
    return scales


def _sweep_on_host(
    code_gram: torch.Tensor, targets: torch.Tensor, atoms: torch.Tensor, metric: torch.Tensor | None, **options: bool
) -> torch.Tensor:
    """The sweep of the CPU, wherever the tensors are."""
    products, wanted, rows, small = to_host((code_gram, targets, atoms, metric))
    found = sweeps.gram_sweep(products, wanted, rows, small, **options)
    atoms.copy_(torch.from_numpy(rows))
    return torch.from_numpy(found).to(atoms.device)


class SweepCodes:
    """As `SweepCodes` of the CPU; the codes are dense while they are refitted."""

    def __init__(self, parts: list[TensorCodes], n_atoms: int) -> None:
        self.dense = torch.cat([codes.dense(n_atoms, torch.float64) for codes in parts])

    def to_backend_of(self, array: Any) -> torch.Tensor:
        return torch.as_tensor(array, device=self.dense.device)

    def code_gram(self) -> torch.Tensor:
        return self.dense.T @ self.dense

    def couplings(self, j: int) -> torch.Tensor:
        return self.dense.T @ self.dense[:, j]

    def rows(self, j: int) -> slice:
        # Correlations are needed of all signals.
        return slice(None)

    def fit(self, j: int, correlations: torch.Tensor) -> torch.Tensor:
        return self.dense[:, j] @ correlations

    def refit(self, j: int, correlations: torch.Tensor, gram_row: torch.Tensor) -> torch.Tensor:
        gram_row[j] = 0.0
        best = correlations - self.dense @ gram_row
        self.dense[:, j] = torch.where(self.dense[:, j] != 0.0, best, 0.0)
        return self.fit(j, correlations)

    def split(self, like: list[TensorCodes]) -> list[TensorCodes]:
        parts, start = [], 0
        for codes in like:
            values = self.dense[start : start + len(codes.counts)].gather(1, codes.indices.long())
            places = torch.arange(codes.indices.shape[1], device=values.device)
            values = torch.where(places < codes.counts[:, None], values, 0.0).to(codes.values.dtype)
            parts.append(codes._replace(values=values))
            start += len(codes.counts)
        return parts
