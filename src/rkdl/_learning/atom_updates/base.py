"""The contract of an atom update.

In whitened coordinates every method is the linear one, with the identity for a metric. An atom is a row of `atoms`
(n, r); a target is ``Q_j``, the combination of coordinates closest to ``sum_t z_tj phi(y_t)``. Full KDL has its own
coordinates and passes their metric.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from rkdl._backends.arrays import copied, dot, row_norms, where, zeros


class CodedSignals(Protocol):
    """Codes of all signals and the signals' inner products with the atoms, for updates that change codes."""

    def codes(self, n_atoms: int) -> Any:
        """The codes, their values free to change: a `SweepCodes` of the backend."""

    def update(self, j: int, couplings: Any, norm: float) -> None:
        """Atom j has become ``(Q_j - sum_i couplings_i a_i) / norm``."""

    def correlations(self, j: int, atoms: Any, rows: Any) -> Any:
        """Inner products of atom j with the signals of `rows`, in float64."""


class Sweep(NamedTuple):
    """Atoms after one sweep, and what became of the codes.

    Attributes
    ----------
    atoms : array of shape (n, r)
        Atoms of unit norm.
    code_gram : array of shape (n, n)
        ``Z'Z`` of the codes after the sweep.
    fit : float
        ``sum_tj z_tj <phi(y_t), a_j>`` after the sweep.
    code_scales : array of shape (n,) or None
        Factors that the codes of each atom have been multiplied by; None where codes changed one by one.
    codes : SweepCodes or None
        Codes that changed one by one.
    """

    atoms: Any
    code_gram: Any
    fit: Any
    code_scales: Any = None
    codes: Any = None

    def objective(self, energy: Any, metric: Any = None) -> float:
        """``tr K(Y, Y) - 2 fit + <S, A M A'>``."""
        gram = self.atoms @ self.atoms.T if metric is None else self.atoms @ metric @ self.atoms.T
        return float(float(energy) - 2.0 * self.fit + dot(self.code_gram, gram))


class AtomUpdate(Protocol):
    """One sweep over all atoms, codes' supports fixed; an atom that no code uses stays as it is.

    Attributes
    ----------
    refits_codes : bool
        Whether coefficients change one by one, so that ``Z'F`` has to be computed again.
    """

    refits_codes: bool

    def __call__(self, code_gram: Any, targets: Any, atoms: Any, signals: CodedSignals, metric: Any = None) -> Sweep:
        """Update every atom once.

        Parameters
        ----------
        code_gram : array of shape (n, n)
            ``S = Z'Z``.
        targets, atoms : array of shape (n, r)
            ``Q``, and atoms of unit norm, which are left as they are.
        signals : CodedSignals
            The codes themselves, for an update that needs more than ``S``.
        metric : array of shape (r, r) or None
            The coordinates' metric; None for the identity.
        """


def normalize_rows(rows: Any, otherwise: Any = None) -> Any:
    """Rows of unit norm; a row without direction becomes that of `otherwise`, or zero."""
    if 0 in rows.shape:
        return copied(rows)
    norms = row_norms(rows)
    is_tiny = norms <= 1e-14 * norms.max()
    fallback = zeros(rows.shape, rows) if otherwise is None else normalize_rows(otherwise)
    return where(is_tiny[:, None], fallback, rows / where(is_tiny, 1.0, norms)[:, None])


def unit_gram(rows: Any) -> Any:
    """Inner products of unit rows."""
    return rows @ rows.T
