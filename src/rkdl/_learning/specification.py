"""The specification of a fit, which is independent of the data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rkdl._coding.encoder import Pursuit
from rkdl._learning.atom_updates import AtomUpdate
from rkdl._learning.feature_choice import EverySignal, FeatureChoice
from rkdl._learning.kernel_vector_updates import GradientDescent, KernelVectorUpdate, VariableProjection
from rkdl._learning.linear_term import LinearTermChoice

# Numbers that a signal occupies for its correlations and codes, per atom.
_NUMBERS_PER_ATOM = 3


@dataclass(frozen=True)
class VectorUpdateChoice:
    """How kernel vectors are learned: the solver ("lbfgs" or "gd"), its steps per iteration, a fixed rate of "gd"."""

    solver: str
    n_steps: int
    learning_rate: float | None = None

    def make(self, norm: float | None, *, has_warned: bool = False) -> KernelVectorUpdate:
        """The update, which keeps all kernel vectors at a norm unless that is None."""
        if self.solver == "lbfgs":
            return VariableProjection(self.n_steps, norm, has_warned=has_warned)
        return GradientDescent(self.n_steps, norm, self.learning_rate, has_warned=has_warned)


@dataclass(frozen=True)
class Specification:
    """Everything that a fit needs to know besides the data."""

    n_atoms: int
    features: FeatureChoice
    pursuit: Pursuit
    atom_update: AtomUpdate
    init: str | np.ndarray  # a rule of `rkdl._learning.initial_atoms`, or the first atoms (n, p)
    vector_update: VectorUpdateChoice | None = None
    linear: LinearTermChoice | None = None
    max_iter: int = 30
    tol: float = 1e-4
    half_life: float | None = None  # signals of a stream after which one counts half
    decoder_alpha: float | None = None  # ridge penalty of the decoder; None learns none

    @property
    def moves_vectors(self) -> bool:
        """Whether kernel vectors are learned."""
        return self.vector_update is not None and self.vector_update.n_steps > 0

    @property
    def warms_up(self) -> bool:
        """Whether iterations with fixed kernel vectors come first."""
        update = self.vector_update
        return self.moves_vectors and isinstance(self.init, str) and update is not None and update.solver == "lbfgs"

    def row_width(self, n_signals: int, n_features: int) -> int:
        """Numbers that a signal occupies in a pass of the learning."""
        if isinstance(self.features, EverySignal):
            # A chunk is a block of rows of the kernel matrix.
            return n_signals
        return n_features + 2 * self.features.size + _NUMBERS_PER_ATOM * self.n_atoms
