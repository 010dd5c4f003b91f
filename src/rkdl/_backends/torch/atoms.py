"""Atom updates on a device."""

from __future__ import annotations

import torch

from rkdl._backends.cpu.sweeps import _SHORT
from rkdl._backends.torch.pursuit import TensorCodes
from rkdl._learning import atom_updates


def gram_sweep(
    products: torch.Tensor, targets: torch.Tensor, atoms: torch.Tensor, metric: torch.Tensor | None = None
) -> torch.Tensor:
    """Update every atom once from the statistics alone; `atoms` changes in place.

    The norm that an updated atom is divided by comes back in its codes' factor, so that with ``x_j`` the atoms before
    they are normalised the sweep is one triangular solve,

        x_j = Q_j - sum_{i<j} (S_ji / S_ii) x_i - sum_{i>j} S_ji a_i
    """
    squares = products.diagonal()
    used = squares > 0.0
    divisors = torch.where(used, squares, 1.0)
    free = targets - products.triu(1) @ atoms
    free = torch.linalg.solve_triangular((products / divisors).tril(-1), free, upper=False, unitriangular=True)
    lengths = torch.linalg.vecdot(free, free if metric is None else free @ metric)
    factors = torch.where(used, lengths.clamp(min=0.0).sqrt() / divisors, 1.0)
    couplings = (products * factors).tril(-1) + products.triu(1)
    terms = torch.linalg.vecdot(targets, targets if metric is None else targets @ metric)
    terms = terms + couplings.square().sum(1)
    is_short = used & ~(lengths > _SHORT * terms)
    if is_short.any():
        # An atom without a direction of its own stays as it is, and the ones after it see that.
        rows = atoms.cpu().numpy()
        small = None if metric is None else metric.cpu().numpy()
        found = atom_updates.gram_sweep(products.cpu().numpy(), targets.cpu().numpy(), rows, small)
        atoms.copy_(torch.from_numpy(rows))
        return torch.from_numpy(found).to(atoms.device)
    atoms.copy_(torch.where(used[:, None], free / torch.where(used, lengths, 1.0).sqrt()[:, None], atoms))
    return factors


def normalize_rows(rows: torch.Tensor, otherwise: torch.Tensor | None = None) -> torch.Tensor:
    """Rows of unit norm; a row without direction becomes that of `otherwise`, or zero."""
    norms = torch.linalg.vector_norm(rows, dim=1)
    if rows.shape[1] == 0:
        return rows.clone()
    tiny = norms <= 1e-14 * norms.max().clamp(min=torch.finfo(torch.float64).tiny)
    fallback = torch.zeros_like(rows) if otherwise is None else normalize_rows(otherwise)
    return torch.where(tiny[:, None], fallback, rows / torch.where(tiny, 1.0, norms)[:, None])


def aksvd_sweep(
    dense: torch.Tensor, targets: torch.Tensor, atoms: torch.Tensor, correlate, metric: torch.Tensor | None = None
) -> None:
    """The paper's sweep: update an atom, then refit its codes on their support, before the next atom.

    Parameters
    ----------
    dense : Tensor of shape (N, n)
        Codes of all signals in float64, zeros included; change in place.
    targets, atoms : Tensor of shape (n, r)
        ``Q`` and the atoms; the atoms change in place.
    correlate : callable
        ``(j, couplings, norm)`` to the inner products (N,) of the new atom j with all signals; the atom is the target
        less the coupled atoms, divided by `norm`.
    metric : Tensor of shape (r, r) or None
        The coordinates' metric; None for the identity.
    """
    for j in range(len(atoms)):
        own = dense[:, j].clone()
        couplings = dense.T @ own
        square = couplings[j].clone()
        couplings[j] = 0.0
        direction = targets[j] - couplings @ atoms
        length = direction @ (direction if metric is None else metric @ direction)
        terms = targets[j] @ (targets[j] if metric is None else metric @ targets[j])
        square, length, terms = torch.stack([square, length, terms + couplings @ couplings]).tolist()
        if not square > 0.0 or not length > _SHORT * terms:
            continue
        norm = length**0.5
        atoms[j] = direction / norm
        correlations = correlate(j, couplings, norm)
        gram_row = atoms @ (atoms[j] if metric is None else metric @ atoms[j])
        gram_row[j] = 0.0
        dense[:, j] = torch.where(own != 0.0, correlations - dense @ gram_row, 0.0)


def read_codes(dense: torch.Tensor, like: TensorCodes) -> TensorCodes:
    """Codes of `like`'s support with the values of dense ones."""
    values = dense.gather(1, like.indices.long())
    places = torch.arange(like.indices.shape[1], device=values.device)
    return like._replace(values=torch.where(places < like.counts[:, None], values, 0.0).to(like.values.dtype))
