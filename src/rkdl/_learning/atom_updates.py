"""Atom updates: one sweep over the atoms for fixed supports of the codes.

In whitened coordinates every method is the linear one, with the identity for a metric. An atom is a row of `atoms`
(n, r); a target is ``Q_j``, the combination of coordinates closest to ``sum_t z_tj phi(y_t)``. Full KDL has its own
coordinates and passes their metric.
"""

from __future__ import annotations

from copy import copy
from typing import NamedTuple, Protocol

import numpy as np

from rkdl._backends.arrays import copied, dot, is_tensor, normalize_rows
from rkdl._backends.base import SHORT, SHORT_IN_METRIC, backend_of
from rkdl._coding.encoder import Pursuit
from rkdl._execution.executor import Executor
from rkdl._features.maps import FeatureMap, LinearMap
from rkdl._features.metric import IdentityMetric, Metric
from rkdl._learning.chunk_tasks import ChunkState, Features
from rkdl._utils.types import Array
from rkdl._utils.warnings import warn

# Share of the largest cosine to which atoms are turned apart, and most passes of such rotations.
TARGET, MOST_ROTATIONS = 0.97, 1000


class CodedSignals(Protocol):
    """Codes of all signals and the signals' inner products with the atoms, for updates that change codes."""

    def codes(self, n_atoms: int) -> Array:
        """The codes, their values free to change: a `SweepCodes` of the backend."""

    def update(self, j: int, couplings: Array, norm: float) -> None:
        """Atom j has become ``(Q_j - sum_i couplings_i a_i) / norm``."""

    def correlations(self, j: int, atoms: Array, rows: Array) -> Array:
        """Inner products of atom j with the signals of `rows`, in float64."""


class CodedFeatures:
    """All codes together, for atom updates that change them: a `CodedSignals`."""

    def __init__(
        self, executor: Executor, feature_map: FeatureMap, metric: Metric | IdentityMetric, chunks: list[ChunkState]
    ) -> None:
        self.executor, self.chunks, self.metric = executor, chunks, executor.to_signals(metric)
        signals = executor.signals
        # In one array, or tensors chunk by chunk.
        if isinstance(feature_map, LinearMap) and signals.is_in_memory and signals.device is None:
            self.features = [signals.read(0, signals.shape[0])]
        else:
            parts = executor.gather(_itself, executor.map_reduce(Features(feature_map))[1])
            self.features = parts if len(parts) == 1 or is_tensor(parts[0]) else [np.concatenate(parts)]

    def codes(self, n_atoms: int) -> Array:
        self.chunks[:] = self.executor.gather(_itself, self.chunks)
        parts = [state.codes for state in self.chunks]
        return backend_of(parts[0].values).sweep_codes(parts, n_atoms)

    def update(self, j: int, couplings: Array, norm: float) -> None:
        """Features do not change with the atoms."""

    def correlations(self, j: int, atoms: Array, rows: Array) -> Array:
        return backend_of(atoms).project_rows(self.features, rows, self.metric.unwhiten(atoms[j : j + 1])[0])


def _itself(state: Array) -> Array:
    return state


class Sweep(NamedTuple):
    """Atoms (n, r) of unit norm after one sweep, and ``Z'Z`` (n, n) of their codes."""

    atoms: Array
    code_gram: Array
    fit: Array  # sum_tj z_tj <phi(y_t), a_j>
    # One of these: factors (n,) that the codes of each atom have been multiplied by, or codes that changed one by one.
    code_scales: Array = None
    codes: Array = None

    def objective(self, energy: Array, metric: Array = None) -> float:
        """``tr K(Y, Y) - 2 fit + <S, A M A'>``."""
        gram = self.atoms @ self.atoms.T if metric is None else self.atoms @ metric @ self.atoms.T
        return float(float(energy) - 2.0 * self.fit + dot(self.code_gram, gram))


class AtomUpdate(Protocol):
    """One sweep over all atoms, codes' supports fixed; an atom that no code uses stays as it is."""

    refits_codes: bool  # whether coefficients change one by one, so that ``Z'F`` has to be computed again
    # Share of its last change by which an atom moves further. If it is positive, useless atoms are replaced too.
    momentum: float
    is_positive: bool  # whether atoms are non-negative signals
    coherence_max: float  # largest absolute cosine of two atoms

    def __call__(
        self, code_gram: Array, targets: Array, atoms: Array, signals: CodedSignals, metric: Array = None
    ) -> Sweep:
        """Update every atom once, from ``S = Z'Z``, the targets ``Q`` (n, r) and atoms (n, r) of unit norm.

        `signals` has the codes themselves, for an update that `refits_codes`; `metric` (r, r) is that of the
        coordinates, None for the identity. The atoms given are left as they are.
        """


class GramUpdate:
    """``a_j <- Q_j - sum_{i != j} S_ji a_i``, normalised, for one atom after another.

    The codes of atom j are multiplied by what the atom's norm was, over ``S_jj``, so that the objective is at its
    minimum over the atom; unless it `rescales`, they stay as they are, as penalties on codes require. With
    `is_positive`, in coordinates that are those of the signals, what is negative becomes zero before an atom is
    normalised, which is the minimum over non-negative atoms.
    """

    refits_codes = False
    coherence_max = 1.0

    def __init__(self, momentum: float = 0.0, *, is_positive: bool = False, rescales: bool = True) -> None:
        self.momentum = momentum
        self.is_positive = is_positive
        self.rescales = rescales

    def __call__(
        self, code_gram: Array, targets: Array, atoms: Array, signals: CodedSignals | None = None, metric: Array = None
    ) -> Sweep:
        """Update every atom once."""
        atoms = copied(atoms)
        options = {"rescales": self.rescales, "is_positive": self.is_positive}
        scales = backend_of(atoms).gram_sweep(code_gram, targets, atoms, metric, **options)
        duals = targets if metric is None else targets @ metric
        fit = dot(duals * scales[:, None], atoms)
        return Sweep(atoms, code_gram * (scales[:, None] * scales), fit, code_scales=scales)


class AKSVDUpdate:
    """The paper's sweep: ``a_j <- Q_j - sum_{i != j} S_ji a_i``, normalised; then the best coefficients of a_j."""

    momentum = 0.0
    refits_codes = True
    is_positive = False
    coherence_max = 1.0

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
                # An atom without a new direction is not changed.
                fits.append(codes.fit(j, signals.correlations(j, atoms, codes.rows(j))))
        return Sweep(atoms, codes.code_gram(), backend_of(atoms).xp.stack(fits).sum() if fits else 0.0, codes=codes)


ATOM_UPDATES: dict[str, AtomUpdate] = {
    "momentum": GramUpdate(momentum=0.8),
    "gram": GramUpdate(),
    "aksvd": AKSVDUpdate(),
}


def choose_atom_update(
    name: str, pursuit: Pursuit, *, is_positive: bool = False, coherence_max: float = 1.0
) -> AtomUpdate:
    """The atom update of that name, for the codes of a pursuit; `is_positive` asks for non-negative atoms."""
    update = copy(ATOM_UPDATES[name])
    if is_positive or pursuit.positive or pursuit.has_penalty:
        if not isinstance(update, GramUpdate):
            raise ValueError(
                f"atom_update={name!r} refits codes by least squares, without penalties and with either sign: use "
                f"'momentum' or 'gram' with pursuit='lasso', positive_code or positive_dict."
            )
        update = GramUpdate(update.momentum, is_positive=is_positive, rescales=not pursuit.has_penalty)
    if is_positive and coherence_max < 1.0:
        raise ValueError(f"coherence_max={coherence_max} would make atoms negative: leave it at 1 with positive_dict.")
    update.coherence_max = coherence_max
    return update


def decorrelated(atoms: np.ndarray, coherence_max: float) -> np.ndarray:
    """Atoms (n, r) of unit norm of which no two have a larger absolute cosine, by rotations of pairs of atoms.

    Atoms that are nearest to each other are turned apart, each by as much, until none are too close; after Mailhe,
    Barchiesi and Plumbley (2012).
    """
    if coherence_max >= 1.0:
        return atoms
    (n_atoms, rank), atoms = atoms.shape, atoms.copy()
    least = np.sqrt(max(n_atoms - rank, 0) / (max(rank, 1) * max(n_atoms - 1, 1)))
    if coherence_max < least:
        raise ValueError(
            f"coherence_max={coherence_max} is out of reach: of {n_atoms} atoms in {rank} dimensions, two have a "
            f"cosine of at least {least:.3g}. Raise it, or use fewer atoms."
        )
    # Turned a little further, which takes fewer rotations.
    half, rng = np.arccos(TARGET * coherence_max) / 2.0, np.random.RandomState(0)
    for _ in range(MOST_ROTATIONS):
        cosines = abs(atoms @ atoms.T)
        np.fill_diagonal(cosines, 0.0)
        nearest, numbers = cosines.argmax(axis=1), np.arange(n_atoms)
        is_close = (cosines.max(axis=1) > coherence_max - 1e-6) & (nearest[nearest] == numbers) & (numbers < nearest)
        left = np.flatnonzero(is_close)
        if len(left) == 0:
            return atoms
        right = nearest[left]
        signs = np.sign((atoms[left] * atoms[right]).sum(axis=1, keepdims=True))
        middle = normalize_rows(atoms[left] + signs * atoms[right])
        # Atoms that are equal are turned in any direction.
        across = atoms[left] - signs * atoms[right] + 1e-9 * rng.standard_normal(middle.shape)
        across = normalize_rows(across - (across * middle).sum(axis=1, keepdims=True) * middle)
        atoms[left] = np.cos(half) * middle + np.sin(half) * across
        atoms[right] = signs * (np.cos(half) * middle - np.sin(half) * across)
    warn(f"Atoms with a coherence of {coherence_max} were not found: raise coherence_max, or use fewer atoms.")
    return atoms
