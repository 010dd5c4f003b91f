"""Variable projection: L-BFGS on the kernel vectors, the best atoms eliminated at every point."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Self

import numpy as np

from rkdl._backends.arrays import norm, row_norms
from rkdl._backends.base import backend_of
from rkdl._learning.kernel_vector_updates.base import KernelVectorUpdate, Objective, Point
from rkdl._persistence.named_arrays import Expected
from rkdl._utils.types import Array

# Pairs of L-BFGS that are kept.
MOST_PAIRS = 10


@dataclass
class VariableProjection(KernelVectorUpdate):
    """A few L-BFGS steps per iteration on the objective with its best atoms; the curvature is carried over."""

    # Steps (p, m), changes of the gradient (p, m), and their inner products.
    pairs: deque[tuple[Array, Array, float]] = field(default_factory=lambda: deque(maxlen=MOST_PAIRS))

    eliminates_atoms = True
    state_arrays = KernelVectorUpdate.state_arrays | {
        "shifts": Expected("kpm", group="curvature"),
        "changes": Expected("kpm", group="curvature"),
        "curvatures": Expected("k", group="curvature"),
    }

    def state(self) -> dict[str, np.ndarray]:
        if not self.pairs:
            return super().state()
        shifts, changes, curvatures = zip(*self.pairs, strict=True)
        stack = backend_of(shifts[0]).xp.stack
        pairs = {"shifts": stack(shifts), "changes": stack(changes), "curvatures": np.array(curvatures)}
        return super().state() | pairs

    def restored(self, state: dict[str, np.ndarray]) -> Self:
        pairs: deque = deque(maxlen=MOST_PAIRS)
        if "shifts" in state:
            pairs.extend(zip(state["shifts"], state["changes"], state["curvatures"].tolist(), strict=True))
        return replace(super().restored(state), pairs=pairs)

    def minimize(self, objective: Objective, start: Point) -> Point:
        """The best point found; its value is never above that of the start."""
        point, free = start, start.vectors
        # Curvature that was read from a file is moved to the device of the vectors.
        place = partial(backend_of(free).from_host, like=free)
        pairs = ((place(shift), place(change), curvature) for shift, change, curvature in self.pairs)
        self.pairs = deque(pairs, maxlen=MOST_PAIRS)
        gradient = self._free_gradient(objective, point, free)
        if not norm(gradient) > 0.0:
            self._warn_of_flatness(objective, point)
            return point
        for step in range(self.n_steps):
            direction, slope = self._direction(gradient, free)
            if not slope < 0.0:
                break
            is_last = step + 1 == self.n_steps
            found = self._backtrack(objective, point, free, direction, slope, None if is_last else point.atoms)
            if found is None:
                if not self.pairs:
                    break
                # The carried curvature may be of another problem by now: forget it and try once more.
                self.pairs.clear()
                continue
            moved, point = found
            if is_last:
                break
            new_gradient = self._free_gradient(objective, point, moved)
            self._remember(moved - free, new_gradient - gradient)
            free, gradient = moved, new_gradient
        return point

    def _backtrack(
        self, objective: Objective, start: Point, free: Array, direction: Array, slope: float, atoms: Array | None
    ) -> tuple[Array, Point] | None:
        """Shorten the step by quadratic interpolation until the decrease is sufficient (Armijo), twelve times at most.

        Returns the free variables (p, m) and the point that they stand for, its gradient taken with `atoms`.
        """
        length = 1.0
        for _ in range(12):
            moved = free + (direction if length == 1.0 else length * direction)
            trial = objective.at(self._on_sphere(moved), gradient_atoms=atoms)
            if trial.value <= start.value + 1e-4 * length * slope:
                return moved, trial
            bend = trial.value - start.value - slope * length
            best = -0.5 * slope * length * length / bend if bend > 0.0 and np.isfinite(bend) else 0.0
            length = min(max(best, 0.1 * length), 0.5 * length)
            # Frees cached features before those of the next trial are computed.
            del trial
        return None

    def _warn_of_flatness(self, objective: Objective, point: Point) -> None:
        """Warn that the kernel vectors stay, unless the error is zero or all codes are."""
        is_done = point.value <= 1e3 * np.finfo(np.float64).eps * objective.energy
        if not is_done and bool((objective.code_gram != 0.0).any()):
            self.warn_once(
                "The error does not change with the kernel vectors (its gradient is zero), so they stay where they "
                "are: the kernel vanishes between them and the signals. Lower gamma, scale the signals, or choose "
                "other kernel_vectors."
            )

    def _on_sphere(self, free: Array) -> Array:
        if self.radius is None:
            return free
        return free * (self.radius / row_norms(free)[:, None])

    def _free_gradient(self, objective: Objective, point: Point, free: Array) -> Array:
        gradient = objective.gradient(point)
        if self.radius is None:
            return gradient
        # d = radius v / |v|: only the part tangent to the sphere moves d.
        unit = point.vectors / self.radius
        gradient = gradient - (gradient * unit).sum(1)[:, None] * unit
        return gradient * (self.radius / row_norms(free)[:, None])

    def _direction(self, gradient: Array, free: Array) -> tuple[Array, float]:
        """The two-loop recursion, and the slope along it; a first step moves the vectors by a tenth of their spread."""
        if not self.pairs:
            spread = norm(free - free.mean(0)) or norm(free) or 1.0
            length = norm(gradient)
            # In two factors: one alone overflows where the gradient is tiny.
            return (gradient / (length or 1.0)) * (-0.1 * spread), -0.1 * spread * length
        return backend_of(gradient).lbfgs_direction(gradient, self.pairs)

    def _remember(self, shift: Array, change: Array) -> None:
        curvature, shift_square, change_square = backend_of(shift).dots(shift, change)
        if curvature > 1e-10 * np.sqrt(shift_square * change_square):
            self.pairs.append((shift, change, curvature))
