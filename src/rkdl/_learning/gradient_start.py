"""First atoms by stochastic gradients, for signals that a dictionary has generated.

Each step codes a few signals and moves the atoms by Adam, whose normalised steps move a rarely used atom as fast as the
others, and whose noise keeps atoms from settling early on a mixture of two. Meanwhile, useless atoms are replaced by
directions that residuals share.
"""

from __future__ import annotations

import numpy as np

from rkdl._backends.arrays import cast, normalize_rows
from rkdl._backends.base import backend_of
from rkdl._coding.encoder import Pursuit
from rkdl._learning.atom_replacement import Sample, find_replacements, sample_size
from rkdl._utils.types import Array

# Most steps, and the fewest that are worth it.
STEPS, FEWEST_STEPS = 1000, 50
# Signals per step: enough that an atom is used USES_PER_STEP times on average, and at least FEWEST_SIGNALS.
USES_PER_STEP, FEWEST_SIGNALS = 5, 64
# Share of the time of ITERATIONS that a trial may take, whatever `max_iter` is: it may be raised. Time of the pursuit,
# per atom and non-zero, relative to a product.
SHARE, ITERATIONS, PURSUIT_COST = 0.15, 30, 27
# Length of a step in every coordinate, relative to the root mean square of those of the atoms.
RATE = 0.3
# Shares of the steps in which the step size rises at first and falls at the end.
RISE, FALL = 0.1, 0.3
# Steps between two replacements, of which there are none once the step size falls.
INTERVAL = 100
DECAYS = 0.9, 0.999
# Divided by instead of the norm of an atom that is zero.
SHORTEST = 1e-12


def batch_size(n_atoms: int, n_nonzero: int) -> int:
    """Number of signals of one step."""
    return max(FEWEST_SIGNALS, USES_PER_STEP * n_atoms // n_nonzero)


def affordable_steps(n_signals: int, rank: int, n_atoms: int, n_nonzero: int) -> int:
    """Number of steps that a trial may take, at most `STEPS`."""
    size, pursuit = batch_size(n_atoms, n_nonzero), PURSUIT_COST * n_nonzero
    # Products of a step: codes, residuals, gradient, and those of the atoms; an iteration only codes.
    cost = ((3 + n_atoms / size) * rank + pursuit) / (rank + pursuit)
    return min(STEPS, int(SHARE * ITERATIONS * n_signals / (cost * size)))


def gradient_atoms(rows: Array, start: Array, pursuit: Pursuit, steps: int, rng: np.random.RandomState) -> Array:
    """Atoms (n, r) of unit norm that represent rows (t, r), in whitened coordinates, from the atoms to start with."""
    backend = backend_of(rows)
    energy = float(cast(backend.squared_norms(rows), np.float64).mean())
    if energy == 0.0:
        return start
    pursuit = pursuit._replace(n_nonzero=min(pursuit.n_nonzero, rows.shape[1])).for_signals_over(energy**0.5)
    # In float32, which is enough for a start: scaled, so that squares stay in its range.
    rows = cast(rows / energy**0.5, np.float32)
    atoms, n_atoms = cast(normalize_rows(start), np.float32), len(start)
    first, second = (backend.full(atoms.shape, 0.0, rows) for _ in DECAYS)
    rates = backend.full((n_atoms * rows.shape[1],), RATE / rows.shape[1] ** 0.5, rows)
    size = batch_size(n_atoms, pursuit.n_nonzero)

    def drawn(count: int) -> Array:
        return rows[backend.from_host(rng.randint(len(rows), size=count), rows)]

    for step in range(1, steps + 1):
        batch = drawn(size)
        gram, norms = backend.product(atoms, atoms), backend.squared_norms(batch)
        codes = pursuit.on(backend)(backend.product(batch, atoms), gram, norms)[0]
        gradient = codes.cross_products(batch - codes.times(atoms), n_atoms) * (-1.0 / size)
        shares = [1.0 - decay**step for decay in DECAYS]
        rate = min(1.0, step / (RISE * steps), (steps - step + 1) / (FALL * steps))
        values, slopes, means, squares = (array.reshape(-1) for array in (atoms, gradient, first, second))
        backend.adam_step(values, slopes, means, squares, *DECAYS, rates, rate / shares[0], shares[1])
        atoms /= backend.row_norms(atoms).clip(min=SHORTEST)[:, None]
        if step % INTERVAL == 0 and step <= (1.0 - FALL) * steps:
            batch = drawn(sample_size(n_atoms, pursuit.n_nonzero))
            found = find_replacements(Sample.of_rows(batch, atoms, np.ones(len(batch))), pursuit, step)
            atoms[found.atoms] = found.combinations @ batch - found.mixes @ atoms
            first[found.atoms] = second[found.atoms] = 0.0
    return atoms
