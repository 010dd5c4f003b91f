"""The AK-SVD update: the paper's sweep, which refits the codes of an atom before it goes on to the next."""

from __future__ import annotations

from rkdl._backends.arrays import copied
from rkdl._backends.base import SHORT, SHORT_IN_METRIC, backend_of
from rkdl._learning.atom_updates.base import CodedSignals, Sweep
from rkdl._utils.types import Array


class AKSVDUpdate:
    """``a_j <- Q_j - sum_{i != j} S_ji a_i``, normalised; then the best coefficients of a_j on their support."""

    refits_codes = True

    def __call__(
        self, code_gram: Array, targets: Array, atoms: Array, signals: CodedSignals, metric: Array = None
    ) -> Sweep:
        """Update every atom once, and its codes with it."""
        codes = signals.codes(len(atoms))
        targets, atoms = codes.to_backend_of(targets), copied(codes.to_backend_of(atoms))
        fits = []

        def times_metric(vector: Array) -> Array:
            return vector if metric is None else metric @ vector

        for j in range(len(atoms)):
            couplings = codes.couplings(j)
            own, couplings[j] = copied(couplings[j]), 0.0
            direction = targets[j] - couplings @ atoms
            terms = targets[j] @ times_metric(targets[j]) + couplings @ couplings
            # Waiting for a device once.
            numbers = [own, direction @ times_metric(direction), terms]
            own, square, terms = backend_of(atoms).xp.stack(numbers).tolist()
            if not own > 0.0:
                continue
            if square > (SHORT if metric is None else SHORT_IN_METRIC) * terms:
                norm = square**0.5
                atoms[j] = direction / norm
                signals.update(j, couplings, norm)
                correlations = signals.correlations(j, atoms, codes.rows(j))
                fits.append(codes.refit(j, correlations, atoms @ times_metric(atoms[j])))
            else:
                # An atom without a direction of its own stays as it is.
                fits.append(codes.fit(j, signals.correlations(j, atoms, codes.rows(j))))
        return Sweep(atoms, codes.code_gram(), backend_of(atoms).xp.stack(fits).sum() if fits else 0.0, codes=codes)
