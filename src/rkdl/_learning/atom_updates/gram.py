"""The Gram update: atoms from the sufficient statistics alone."""

from __future__ import annotations

from rkdl._backends.arrays import copied, dot
from rkdl._backends.base import backend_of
from rkdl._learning.atom_updates.base import CodedSignals, Sweep
from rkdl._utils.types import Array


class GramUpdate:
    """``a_j <- Q_j - sum_{i != j} S_ji a_i``, normalised, for one atom after another.

    The codes of atom j are multiplied by what the atom's norm was, over ``S_jj``, so that the objective is at its
    minimum over the atom.
    """

    refits_codes = False

    def __call__(
        self, code_gram: Array, targets: Array, atoms: Array, signals: CodedSignals | None = None, metric: Array = None
    ) -> Sweep:
        """Update every atom once."""
        atoms = copied(atoms)
        scales = backend_of(atoms).gram_sweep(code_gram, targets, atoms, metric)
        duals = targets if metric is None else targets @ metric
        fit = dot(duals * scales[:, None], atoms)
        return Sweep(atoms, code_gram * (scales[:, None] * scales), fit, code_scales=scales)
