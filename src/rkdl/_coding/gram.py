"""Inner products of many atoms."""

from __future__ import annotations

import numpy as np

from rkdl._execution.blas import one_blas_thread, resolve_threads
from rkdl._execution.pool import side_by_side

# Atoms per block, and the number of atoms from which on threads gain something.
_BLOCK, _MANY = 256, 1024


@one_blas_thread()
def gram_matrix(atoms: np.ndarray, n_jobs: int | None) -> np.ndarray:
    """``A A'`` (n, n) of atoms (n, m); for many atoms in blocks on threads, the same for any number of threads."""
    n_atoms = len(atoms)
    if n_atoms < _MANY:
        return atoms @ atoms.T
    gram = np.empty((n_atoms, n_atoms), dtype=atoms.dtype)

    def fill(start: int) -> None:
        stop = min(start + _BLOCK, n_atoms)
        products = atoms[start:stop] @ atoms[:stop].T
        gram[start:stop, :stop] = products
        gram[:start, start:stop] = products[:, :start].T

    # The largest blocks first, so that threads end together.
    side_by_side(fill, range(0, n_atoms, _BLOCK)[::-1], resolve_threads(n_jobs))
    return gram
