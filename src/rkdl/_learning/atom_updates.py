"""Atom updates. In whitened coordinates every method is the linear one, with the identity for a metric.

An atom is a row of `atoms` (n, r); a target is ``Q_j``, the combination of coordinates closest to
``sum_t z_tj phi(y_t)``. Full KDL has its own coordinates and gives their metric.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from rkdl._backends.arrays import is_tensor
from rkdl._backends.cpu.sweeps import _SHORT, _refit, _sweep_plain, _users_of_atoms
from rkdl._coding.pursuit import Codes
from rkdl._features.metric import Metric


def gram_sweep(
    products: np.ndarray, targets: np.ndarray, atoms: np.ndarray, metric: np.ndarray | None = None
) -> np.ndarray:
    """Update every atom once from the statistics alone; `atoms` changes in place.

    ``a_j <- Q_j - sum_{i != j} S_ji a_i``, normalised; the codes of atom j are multiplied by what the atom's norm
    was, over ``S_jj``, so that the objective is at its minimum over the atom.

    Parameters
    ----------
    products : ndarray of shape (n, n)
        ``S = Z'Z``.
    targets : ndarray of shape (n, r)
        ``Q``.
    atoms : ndarray of shape (n, r)
        Atoms of unit norm.
    metric : ndarray of shape (r, r) or None
        The coordinates' metric; None for the identity.

    Returns
    -------
    factors : ndarray of shape (n,)
        What each atom's codes are multiplied by; 1 for an atom that is not used.
    """
    if is_tensor(atoms):
        from rkdl._backends.torch import atoms as on_device

        return on_device.gram_sweep(products, targets, atoms, metric)  # type: ignore[arg-type, return-value]
    factors = np.ones(len(atoms))
    if metric is None:
        rows = np.ascontiguousarray(atoms)
        _sweep_plain(np.ascontiguousarray(products), np.ascontiguousarray(targets), rows, factors)
        if rows is not atoms:
            atoms[:] = rows
        return factors
    for j in range(len(atoms)):
        if not products[j, j] > 0.0:
            continue
        couplings = products[j] * factors
        couplings[j] = 0.0
        norm = _improve(j, targets, couplings, atoms, metric)
        if norm > 0.0:
            factors[j] = norm / products[j, j]
    return factors


def least_squares_atoms(products: Metric, targets: np.ndarray) -> np.ndarray:
    """All atoms at once, not normalised: ``S^-1 Q`` on the span of the atoms that are used.

    Parameters
    ----------
    products : Metric
        ``S = Z'Z``, factored.
    targets : ndarray of shape (n, r)
        ``Q``.
    """
    return products.unwhiten(products.whiten(targets.T)).T


def aksvd_sweep(
    codes: Codes,
    products: np.ndarray,
    targets: np.ndarray,
    atoms: np.ndarray,
    correlate: Callable[[int, np.ndarray, np.ndarray, float], np.ndarray],
    metric: np.ndarray | None = None,
) -> np.ndarray:
    """The paper's sweep: update an atom, then refit its codes on their support, before the next atom.

    Parameters
    ----------
    codes : Codes
        Codes of all signals; the values change in place.
    products : ndarray of shape (n, n)
        ``Z'Z`` of the codes; it follows them in place.
    targets, atoms : ndarray of shape (n, r)
        ``Q`` and the atoms; the atoms change in place.
    correlate : callable
        ``(j, rows, couplings, norm)`` to the inner products of the new atom j with the signals of `rows`; the atom is
        the target less the coupled atoms, divided by `norm`.
    metric : ndarray of shape (r, r) or None
        The coordinates' metric; None for the identity.

    Returns
    -------
    fits : ndarray of shape (n,)
        ``sum_t z_tj <phi(y_t), a_j>`` with the new codes and atoms; NaN for an atom that could not be updated.
    """
    n_atoms = len(atoms)
    fits = np.zeros(n_atoms)
    starts, users, places = _users_of_atoms(codes.indptr, codes.indices, n_atoms)
    changes = np.empty(n_atoms)
    for j in range(n_atoms):
        support = slice(starts[j], starts[j + 1])
        rows, positions = users[support], places[support]
        if not products[j, j] > 0.0:
            continue
        couplings = products[j].copy()
        couplings[j] = 0.0
        norm = _improve(j, targets, couplings, atoms, metric)
        if norm == 0.0:
            fits[j] = np.nan
            continue
        correlations = correlate(j, rows, couplings, norm)
        gram_row = atoms @ (atoms[j] if metric is None else metric @ atoms[j])
        square, fits[j] = _refit(
            codes.indptr, codes.indices, codes.values, rows, positions, correlations, gram_row, changes
        )
        products[j] += changes
        products[j, j] = square
        products[:, j] = products[j]
    return fits


def _improve(j: int, targets: np.ndarray, couplings: np.ndarray, atoms: np.ndarray, metric: np.ndarray | None) -> float:
    """Put the unit atom of ``Q_j - sum_i couplings_i a_i`` in place; its norm before, or 0 if there is none."""
    direction = targets[j] - couplings @ atoms
    square = float(direction @ (direction if metric is None else metric @ direction))
    terms = float(targets[j] @ (targets[j] if metric is None else metric @ targets[j]))
    if not square > _SHORT * (terms + float(couplings @ couplings)):
        return 0.0
    norm = float(np.sqrt(square))
    atoms[j] = direction / norm
    return norm


def normalize_rows(rows: np.ndarray, otherwise: np.ndarray | None = None) -> np.ndarray:
    """Rows of unit norm; a row without direction becomes that of `otherwise`, or zero."""
    if is_tensor(rows):
        from rkdl._backends.torch import atoms

        return atoms.normalize_rows(rows, otherwise)  # type: ignore[arg-type, return-value]
    norms = np.linalg.norm(rows, axis=1)
    tiny = norms <= 1e-14 * max(float(norms.max(initial=0.0)), np.finfo(np.float64).tiny)
    unit = np.where(tiny[:, None], 0.0, rows / np.where(tiny, 1.0, norms)[:, None])
    if otherwise is not None and tiny.any():
        unit[tiny] = normalize_rows(otherwise)[tiny]
    return unit


def unit_gram(rows: np.ndarray) -> np.ndarray:
    """Inner products of unit rows."""
    return rows @ rows.T
