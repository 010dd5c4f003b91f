"""First atoms by stochastic gradients, for signals that a dictionary has generated.

Each step codes a few signals and moves the atoms by Adam, whose normalised steps move a rarely used atom as fast as the
others, and whose noise keeps atoms from settling early on a mixture of two. Meanwhile, useless atoms are replaced by
directions that residuals share.
"""

from __future__ import annotations

import numpy as np

from rkdl._backends.arrays import cast, host, normalize_rows
from rkdl._backends.base import backend_of
from rkdl._coding.encoder import Pursuit
from rkdl._learning.atom_replacement import ProductsOfRows, find_replacements, sample_size
from rkdl._utils.types import Array

STEPS = 1000
# Signals per step: enough that an atom is used USES_PER_STEP times on average, and at least FEWEST_SIGNALS.
USES_PER_STEP, FEWEST_SIGNALS = 5, 128
# Time of a step relative to that of coding its signals, and the iterations that all steps are compared with.
COST, ITERATIONS = 3, 30
# Length of a step in every coordinate, relative to the root mean square of those of the atoms.
RATE = 0.4
# Shares of the steps in which the step size rises at first and falls at the end.
RISE, FALL = 0.1, 0.5
# Steps between two replacements, of which there are none once the step size falls.
INTERVAL = 50
DECAYS = 0.9, 0.999


def batch_size(n_atoms: int, n_nonzero: int) -> int:
    """Number of signals of one step."""
    return max(FEWEST_SIGNALS, USES_PER_STEP * n_atoms // n_nonzero)


def is_cheap(n_signals: int, n_atoms: int, n_nonzero: int) -> bool:
    """Whether all steps take at most a third of the time of `ITERATIONS`, whatever `max_iter` is."""
    return 3 * COST * STEPS * batch_size(n_atoms, n_nonzero) <= ITERATIONS * n_signals


def gradient_atoms(rows: Array, start: Array, pursuit: Pursuit, rng: np.random.RandomState) -> Array:
    """Atoms (n, r) of unit norm that represent rows (t, r), in whitened coordinates, from the atoms to start with."""
    backend = backend_of(rows)
    energy = float(cast(backend.squared_norms(rows), np.float64).mean())
    if energy == 0.0:
        return start
    pursuit = pursuit._replace(n_nonzero=min(pursuit.n_nonzero, rows.shape[1])).for_signals_over(energy**0.5)
    rows = rows / energy**0.5
    atoms, n_atoms = backend.as_like(normalize_rows(start), rows), len(start)
    means = [backend.full(atoms.shape, 0.0, rows) for _ in DECAYS]
    size, n_coded = batch_size(n_atoms, pursuit.n_nonzero), 0
    uses = backend.full((n_atoms,), 0.0, rows)

    def coded(count: int) -> tuple[Array, Array]:
        """Codes (count, n) of signals drawn at random, and what they leave."""
        batch = rows[backend.from_host(rng.randint(len(rows), size=count), rows)]
        gram, norms = backend.product(atoms, atoms), backend.squared_norms(batch)
        codes = backend.pursue(backend.product(batch, atoms), gram, norms, *pursuit)[0].dense(n_atoms)
        return codes, batch - codes @ atoms

    for step in range(1, STEPS + 1):
        codes, residuals = coded(size)
        gradient = (codes.T @ residuals) / size
        rate = RATE / rows.shape[1] ** 0.5 * min(1.0, step / (RISE * STEPS), (STEPS - step + 1) / (FALL * STEPS))
        for mean, value, decay in zip(means, (gradient, gradient * gradient), DECAYS, strict=True):
            mean *= decay
            mean += (1.0 - decay) * value
        first, second = (mean / (1.0 - decay**step) for mean, decay in zip(means, DECAYS, strict=True))
        atoms = normalize_rows(atoms + rate * first / (second**0.5 + 1e-8))
        uses, n_coded = uses + (codes * codes).sum(0), n_coded + size
        if step % INTERVAL == 0 and step <= (1.0 - FALL) * STEPS:
            _, residuals = coded(sample_size(n_atoms))
            left, code_gram = host(residuals).astype(np.float64), np.diag(host(uses)) * (len(residuals) / n_coded)
            found = find_replacements(ProductsOfRows(left), code_gram, host(atoms @ atoms.T).astype(np.float64))
            uses, n_coded = uses * 0.0, 0
            atoms[found.atoms] = backend.as_like(found.combinations @ left, rows)
            for mean in means:
                mean[found.atoms] = 0.0
    return atoms
