"""The paper's rule: gradient descent on one kernel vector after another, with fixed atoms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rkdl._backends.arrays import copied, norm, row_norms
from rkdl._learning.kernel_vector_updates.base import KernelVectorUpdate, Objective, Point
from rkdl._persistence.named_arrays import Expected
from rkdl._utils.types import Array


@dataclass
class GradientDescent(KernelVectorUpdate):
    """The paper's rule: one kernel vector after another, fixed atoms, `n_steps` sweeps per iteration."""

    learning_rate: float | None  # the fixed rate of the paper; None for one that backtracks until the objective falls
    rate: float | None = None  # the rate that backtracking has found

    eliminates_atoms = False
    numbers = ("radius", "rate")
    state_arrays = KernelVectorUpdate.state_arrays | {"rate": Expected("", group="rate")}

    def minimize(self, objective: Objective, start: Point) -> Point:
        """The point after the sweeps; with backtracking its value is never above that of the start."""
        point = start
        for step in range(self.n_steps):
            point = objective.with_signal_gradient(point)
            gradient_atoms = None if step + 1 == self.n_steps else point.atoms
            if self.learning_rate is None:
                trial = self._backtrack(objective, point, gradient_atoms)
                if trial is None:
                    break
            else:
                trial = objective.at(self.sweep(objective, point, self.learning_rate), gradient_atoms=gradient_atoms)
                if not np.isfinite(trial.value):
                    self._warn("would make the kernel vectors diverge, and they are left where they were")
                    break
            point = trial
        if self.learning_rate is not None and point.value > start.value:
            self._warn(f"raised the objective from {start.value:.6g} to {point.value:.6g}")
        return point

    def _warn(self, what: str) -> None:
        self.warn_once(
            f"learning_rate={self.learning_rate} {what}: lower it, or leave it None for a rate that backtracks."
        )

    def _backtrack(self, objective: Objective, point: Point, gradient_atoms: Array | None) -> Point | None:
        if self.rate is None:
            spread = norm(point.vectors - point.vectors.mean(0))
            length = norm(objective.gradient(point))
            self.rate = 0.1 * (spread or 1.0) / length if length > 0.0 else 1.0
        for _ in range(30):
            trial = objective.at(self.sweep(objective, point, self.rate), gradient_atoms=gradient_atoms)
            if trial.value <= point.value:
                self.rate *= 1.5
                return trial
            self.rate *= 0.5
            # Frees cached features before those of the next trial are computed.
            del trial
        return None

    def sweep(self, objective: Objective, point: Point, rate: float) -> Array:
        """Every kernel vector moved once, in order, each seeing the ones moved before it.

        With fixed atoms, the signals' part of a vector's gradient depends on that vector alone, so the point's
        serves the whole sweep.
        """
        vectors = copied(point.vectors)
        couplings = point.atoms.T @ objective.code_gram @ point.atoms
        kernel = objective.feature_map.kernel
        signal_gradient = objective.with_signal_gradient(point).signal_gradient
        linear = objective.linear
        # Too large a rate overflows here, which the objective's value shows.
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            for i in range(len(vectors)):
                own = vectors[i : i + 1]
                weights = couplings[:, i : i + 1]
                _, gradient = kernel.value_and_gradient(vectors, own)
                step = 2.0 * (gradient(weights.__mul__)[0] - signal_gradient[i])
                if linear is not None:
                    step += linear.gradient(vectors, i)
                moved = vectors[i] - rate * step
                if self.radius is not None:
                    moved *= self.radius / row_norms(moved[None])
                vectors[i] = moved
        return vectors
