"""Moving the kernel vectors: variable projection with L-BFGS, or the paper's column-by-column gradient.

For fixed codes Z, with ``S = Z'Z``, ``P(D) = Z'K(Y, D)`` and ``M(D) = K(D, D)``,

    f(D, A) = tr K(Y, Y) - 2 <P, A> + <S, A M A'> + lambda |Y - X D|^2
    df/dd_i = -2 sum_t (Z A)_ti d2 k(y_t, d_i) + 2 sum_l (A'SA)_il d1 k(d_i, d_l) + 2 lambda (X'X D - X'Y)_i

Variable projection puts ``A = S^-1 P M^-1``, the best atoms for D, into f; the paper's rule holds A. Value and gradient
of a point come from one pass over the signals, in which its best atoms are not yet known. So the gradient of a step
after the first is taken with the best atoms of the point before: it lacks the mixed second derivative of f times the
change of the atoms, which is of the same order as the step. A second pass for every step would give the exact one;
`benchmarks/gradient_lag.py` prints what the lag costs instead. The first gradient of every iteration is exact, and a
step is accepted by the exact value.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.linalg import blas
from sklearn.exceptions import ConvergenceWarning

from rkdl._backends.arrays import beside, cast, copied, dot, dots, is_tensor, norm, row_norms, stacked
from rkdl._execution.executor import Executor
from rkdl._features.kernels import DifferentiableKernel
from rkdl._features.maps import KernelMap
from rkdl._features.metric import Metric, make_metric
from rkdl._learning.atom_updates import least_squares_atoms
from rkdl._learning.chunk_tasks import GradientTask
from rkdl._utils.warnings import warn


@dataclass(frozen=True)
class LinearTerm:
    """``weight |Y - X D|^2`` as sums: ``X'X`` (p, p), ``X'Y`` (p, m) and ``|Y|^2``."""

    weight: float
    products: np.ndarray
    projections: np.ndarray
    trace: float

    def value(self, vectors: np.ndarray) -> float:
        """The term at the kernel vectors (p, m)."""
        fit = dot(self.products, vectors @ vectors.T) - 2.0 * dot(self.projections, vectors)
        return self.weight * (self.trace + float(fit))

    def gradient(self, vectors: np.ndarray) -> np.ndarray:
        """Its gradient (p, m)."""
        return 2.0 * self.weight * (self.products @ vectors - self.projections)


class Point(NamedTuple):
    """Kernel vectors and what is known of them; of an infinite value, nothing more.

    `atoms` are the best ones (or those held), not of unit norm, and `white` the same in whitened coordinates; `pull` is
    that of the signals with `pulling` for atoms; `features` are those of the chunks, where they were kept.
    """

    vectors: np.ndarray
    value: float
    metric: Metric = None  # type: ignore[assignment]
    atoms: np.ndarray = None  # type: ignore[assignment]
    white: np.ndarray = None  # type: ignore[assignment]
    projections: np.ndarray = None  # type: ignore[assignment]
    pull: np.ndarray | None = None
    pulling: np.ndarray | None = None
    features: list | None = None


@dataclass
class Objective:
    """The learning objective as a function of the kernel vectors, codes fixed.

    Attributes
    ----------
    executor : Executor
        Walks the signals.
    kept : list of ChunkState
        Codes of the chunks, and their features until the first gradient has used them.
    kernel : DifferentiableKernel
        The kernel.
    products : ndarray of shape (n, n)
        ``S``.
    trace : float
        ``tr K(Y, Y)``.
    linear : LinearTerm or None
        The linear term of MORKDL.
    held_atoms : ndarray of shape (n, p) or None
        Atoms to hold; None for the best ones at every point.
    feature_vectors : ndarray of shape (p, m) or None
        The kernel vectors that features kept with the codes belong to.
    feature_map : callable
        Kernel vectors (p, m) to their feature map.
    keeps_features : bool
        Whether features may be kept for all signals.
    memory : tuple of (ndarray of shape (q, m), ndarray of shape (n, q)) or None
        Kernel vectors and combinations of them that stand for ``sum_t z_tj phi(y_t)`` of signals seen before.
    """

    executor: Executor
    kept: list
    kernel: DifferentiableKernel
    products: np.ndarray
    trace: float
    linear: LinearTerm | None = None
    held_atoms: np.ndarray | None = None
    feature_vectors: np.ndarray | None = None
    feature_map: Callable[[np.ndarray], KernelMap] = None  # type: ignore[assignment]
    keeps_features: bool = False
    memory: tuple[np.ndarray, np.ndarray] | None = None

    def __post_init__(self) -> None:
        if self.feature_map is None:
            self.feature_map = partial(KernelMap, self.kernel)
        self._dtype = self.executor.signals.dtype
        if self.held_atoms is None:
            self._products_metric = make_metric(self.products, np.float64)

    def at(
        self, vectors: np.ndarray, projections: np.ndarray | None = None, pulling: np.ndarray | None = None
    ) -> Point:
        """The objective at kernel vectors (p, m), in one walk over the signals at most.

        Parameters
        ----------
        vectors : ndarray of shape (p, m)
            Kernel vectors.
        projections : ndarray of shape (n, p), default=None
            ``P`` there, where it is known.
        pulling : ndarray of shape (n, p), default=None
            Atoms to take the gradient with; None where no gradient will be asked for.
        """
        metric = None
        if is_tensor(vectors) or _stays_finite(vectors, self._dtype):
            metric = make_metric(self.feature_map(vectors).matrix(), self._dtype)
        if metric is None:
            return Point(vectors, np.inf)
        pull = features = None
        if projections is None:
            projections, pull, features = self._evaluate(vectors, pulling)
        if self.held_atoms is None:
            targets = metric.whiten(projections)
            white = least_squares_atoms(self._products_metric, targets)
            value = self.trace - float(dot(targets, white))
            atoms = metric.unwhiten(white)
        else:
            atoms, white = self.held_atoms, metric.to_white(self.held_atoms)
            value = self.trace - 2.0 * float(dot(projections, atoms))
            value += float(dot(self.products, atoms @ metric.matrix @ atoms.T))
        if self.linear is not None:
            value += self.linear.value(vectors)
        value = value if np.isfinite(value) else np.inf
        return Point(vectors, value, metric, atoms, white, projections, pull, pulling, features)

    def _evaluate(
        self, vectors: np.ndarray, pulling: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray | None, list | None]:
        dtype = self._dtype
        atoms = None if pulling is None else cast(pulling, dtype)
        at_features = vectors is self.feature_vectors
        # A new point without a gradient is the last of an iteration, and the next one codes with its features.
        keeps_features = self.keeps_features and pulling is None and not at_features
        step = GradientTask(self.kernel, cast(vectors, dtype), len(self.products), atoms, at_features, keeps_features)
        sums, kept = self.executor.map_reduce(step, self.kept)
        if pulling is not None:
            self.kept = kept
        # What has a signal's length stays with the vectors.
        n_small = 1 if is_tensor(vectors) else len(sums)
        sums = (*self.executor.small_to_host(sums[:n_small]), *sums[n_small:])
        projections, pull = sums[0], sums[1] if len(sums) > 1 else None
        if self.memory is not None:
            places, combinations = self.memory
            values, gradient = self.kernel.value_and_gradient(places, vectors)
            projections = projections + combinations @ values
            if pull is not None:
                weights = combinations.T @ pulling
                pull = pull + gradient(lambda factor: weights * factor)
        return projections, pull, kept if keeps_features else None

    def with_pull(self, point: Point) -> Point:
        """The point with the pull of the signals, by its own atoms where none was asked for."""
        if point.pull is not None:
            return point
        return point._replace(pull=self._evaluate(point.vectors, point.atoms)[1], pulling=point.atoms)

    def gradient(self, point: Point) -> np.ndarray:
        """The gradient (p, m), by the atoms that the point was pulled with."""
        point = self.with_pull(point)
        assert point.pulling is not None
        assert point.pull is not None
        couplings = point.pulling.T @ self.products @ point.pulling
        _, weighted = self.kernel.value_and_gradient(point.vectors, point.vectors, point.metric.matrix)
        gradient = weighted(lambda factor: beside(couplings, factor) * factor)
        gradient -= point.pull
        gradient *= 2.0
        if self.linear is not None:
            gradient += self.linear.gradient(point.vectors)
        return gradient


def _stays_finite(vectors: np.ndarray, dtype: np.dtype) -> bool:
    """Whether vectors in float64 are finite in the signals' dtype too."""
    if float(np.vdot(vectors, vectors)) < float(np.finfo(dtype).max):
        return True
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(vectors.astype(dtype)).all())


def _add(total: np.ndarray, term: np.ndarray, factor: float) -> None:
    """``total += factor * term`` without an array in between."""
    blas.daxpy(term.ravel(), total.ravel(), a=factor)


def _radius_state(radius: float | None) -> dict[str, np.ndarray]:
    return {} if radius is None else {"radius": np.array(radius)}


class LBFGS:
    """A few quasi-Newton steps an outer iteration; what was learned of the curvature is carried over.

    Parameters
    ----------
    n_steps : int
        Steps an outer iteration.
    radius : float or None
        Norm that every kernel vector is held to.
    """

    projects_atoms = True

    def __init__(self, n_steps: int, radius: float | None) -> None:
        self.n_steps = n_steps
        self.radius = radius
        self.pairs: deque = deque(maxlen=10)
        self.has_warned = False

    def state(self) -> dict[str, np.ndarray]:
        """The curvature learned so far."""
        state = _radius_state(self.radius)
        if not self.pairs:
            return state
        shifts, changes, curvatures = zip(*self.pairs, strict=True)
        return {**state, "shifts": stacked(shifts), "changes": stacked(changes), "curvatures": np.array(curvatures)}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Take a state over."""
        self.radius = float(state["radius"]) if "radius" in state else None
        self.pairs.clear()
        if "shifts" in state:
            curvatures = state["curvatures"].tolist()
            self.pairs.extend(zip(state["shifts"], state["changes"], curvatures, strict=True))

    def move(self, objective: Objective, start: Point) -> Point:
        """The best point found; its value is never above that of the start."""
        point, free = start, start.vectors
        # Curvature that was read from a file goes to where the vectors are.
        pairs = ((beside(shift, free), beside(change, free), curvature) for shift, change, curvature in self.pairs)
        self.pairs = deque(pairs, maxlen=self.pairs.maxlen)
        gradient = self._free_gradient(objective, point, free)
        if not norm(gradient) > 0.0:
            self._warn_of_flatness(objective, point)
            return point
        for step in range(self.n_steps):
            direction, slope = self._direction(gradient, free)
            if not slope < 0.0:
                break
            is_last = step + 1 == self.n_steps
            found = self._search(objective, point, free, direction, slope, None if is_last else point.atoms)
            if found is None:
                if not self.pairs:
                    break
                # The carried curvature may be of another problem by now: forget it and try once more.
                self.pairs.clear()
                continue
            point, moved = found
            if is_last:
                break
            new_gradient = self._free_gradient(objective, point, moved)
            self._remember(moved - free, new_gradient - gradient)
            free, gradient = moved, new_gradient
        return point

    def _warn_of_flatness(self, objective: Objective, point: Point) -> None:
        """Say that the kernel vectors stay, unless there is nothing to gain, or no code, which is told elsewhere."""
        is_done = point.value <= 1e3 * np.finfo(np.float64).eps * objective.trace
        if self.has_warned or is_done or not bool((objective.products != 0.0).any()):
            return
        self.has_warned = True
        warn(
            "The error does not change with the kernel vectors (its gradient is zero), so they stay where they are: "
            "the kernel vanishes between them and the signals. Lower gamma, scale the signals, or choose other "
            "kernel_vectors.",
            ConvergenceWarning,
        )

    def _place(self, free: np.ndarray) -> np.ndarray:
        if self.radius is None:
            return free
        return free * (self.radius / row_norms(free)[:, None])

    def _free_gradient(self, objective: Objective, point: Point, free: np.ndarray) -> np.ndarray:
        gradient = objective.gradient(point)
        if self.radius is None:
            return gradient
        # d = radius v / |v|: only what is tangent to the sphere moves d.
        unit = point.vectors / self.radius
        gradient = gradient - (gradient * unit).sum(1)[:, None] * unit
        return gradient * (self.radius / row_norms(free)[:, None])

    def _direction(self, gradient: np.ndarray, free: np.ndarray) -> tuple[np.ndarray, float]:
        """The two-loop recursion, and the slope along it; a first step moves the vectors by a tenth of their spread."""
        if not self.pairs:
            spread = norm(free - free.mean(0)) or norm(free) or 1.0
            length = norm(gradient)
            # In two factors: one alone overflows where the gradient is tiny.
            return (gradient / length) * (-0.1 * spread), -0.1 * spread * length
        if is_tensor(gradient):
            from rkdl._backends.torch.lbfgs import find_direction

            return find_direction(gradient, self.pairs)  # type: ignore[arg-type, return-value]
        direction = np.ascontiguousarray(-gradient)
        weights = []
        for shift, change, curvature in reversed(self.pairs):
            weight = dot(shift, direction) / curvature
            _add(direction, change, -weight)
            weights.append(weight)
        shift, change, curvature = self.pairs[-1]
        direction *= curvature / dot(change, change)
        for (shift, change, curvature), weight in zip(self.pairs, reversed(weights), strict=True):
            _add(direction, shift, weight - dot(change, direction) / curvature)
        return direction, float(dot(direction, gradient))

    def _search(
        self,
        objective: Objective,
        point: Point,
        free: np.ndarray,
        direction: np.ndarray,
        slope: float,
        pulling: np.ndarray | None,
    ) -> tuple[Point, np.ndarray] | None:
        """Backtrack, by interpolation, to a sufficient decrease."""
        length = 1.0
        for _ in range(12):
            moved = free + (direction if length == 1.0 else length * direction)
            trial = objective.at(self._place(moved), pulling=pulling)
            if trial.value <= point.value + 1e-4 * length * slope:
                return trial, moved
            bend = trial.value - point.value - slope * length
            best = -0.5 * slope * length * length / bend if bend > 0.0 and np.isfinite(bend) else 0.0
            length = min(max(best, 0.1 * length), 0.5 * length)
            # Its features, where they were kept, make room for those of the next.
            del trial
        return None

    def _remember(self, shift: np.ndarray, change: np.ndarray) -> None:
        curvature, shift_square, change_square = dots(shift, change)
        if curvature > 1e-10 * np.sqrt(shift_square * change_square):
            self.pairs.append((shift, change, curvature))


class GradientDescent:
    """The paper's rule: one kernel vector after another, atoms held, a few sweeps an outer iteration.

    Parameters
    ----------
    n_steps : int
        Sweeps an outer iteration.
    radius : float or None
        Norm that every kernel vector is held to.
    learning_rate : float or None
        The fixed rate of the paper, or None for a rate that backtracks until the objective falls.
    """

    projects_atoms = False

    def __init__(self, n_steps: int, radius: float | None, learning_rate: float | None) -> None:
        self.n_steps = n_steps
        self.radius = radius
        self.learning_rate = learning_rate
        self._rate = learning_rate
        self.has_warned = False

    def state(self) -> dict[str, np.ndarray]:
        """The rate found so far."""
        state = _radius_state(self.radius)
        return state if self._rate is None else {**state, "rate": np.array(self._rate)}

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Take a state over."""
        self.radius = float(state["radius"]) if "radius" in state else None
        self._rate = float(state["rate"]) if "rate" in state else self.learning_rate

    def move(self, objective: Objective, start: Point) -> Point:
        """The point after the sweeps; with a rate of its own its value is never above that of the start."""
        point = start
        for step in range(self.n_steps):
            point = objective.with_pull(point)
            pulling = None if step + 1 == self.n_steps else point.atoms
            if self.learning_rate is None:
                trial = self._backtrack(objective, point, pulling)
            else:
                trial = self._fixed(objective, point, pulling, self.learning_rate)
            if trial is None:
                break
            point = trial
        if self.learning_rate is not None and point.value > start.value:
            self._warn(f"raised the objective from {start.value:.6g} to {point.value:.6g}")
        return point

    def _fixed(self, objective: Objective, point: Point, pulling: np.ndarray | None, rate: float) -> Point | None:
        trial = objective.at(self.sweep(objective, point, rate), pulling=pulling)
        if not np.isfinite(trial.value):
            self._warn("would make the kernel vectors diverge, and they are left where they were")
            return None
        return trial

    def _warn(self, what: str) -> None:
        if not self.has_warned:
            self.has_warned = True
            warn(
                f"learning_rate={self.learning_rate} {what}: lower it, or leave it None for a rate that backtracks.",
                ConvergenceWarning,
            )

    def _backtrack(self, objective: Objective, point: Point, pulling: np.ndarray | None) -> Point | None:
        if self._rate is None:
            spread = norm(point.vectors - point.vectors.mean(0))
            length = norm(objective.gradient(point))
            self._rate = 0.1 * (spread or 1.0) / length if length > 0.0 else 1.0
        for _ in range(30):
            trial = objective.at(self.sweep(objective, point, self._rate), pulling=pulling)
            if trial.value <= point.value:
                self._rate *= 1.5
                return trial
            self._rate *= 0.5
            # Its features, where they were kept, make room for those of the next.
            del trial
        return None

    def sweep(self, objective: Objective, point: Point, rate: float) -> np.ndarray:
        """Every kernel vector moved once, in order, each seeing the ones moved before it.

        With the atoms held, the signals' part of a vector's gradient depends on that vector alone, so the point's
        pull serves the whole sweep.
        """
        vectors = copied(point.vectors)
        couplings = point.atoms.T @ objective.products @ point.atoms
        kernel = objective.kernel
        pull = objective.with_pull(point).pull
        assert pull is not None
        linear = objective.linear
        # A rate that is too large overflows here and is found out by the objective's value.
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            for i in range(len(vectors)):
                own = vectors[i : i + 1]
                weights = couplings[:, i : i + 1]
                _, gradient = kernel.value_and_gradient(vectors, own)
                step = 2.0 * (gradient(weights.__mul__)[0] - pull[i])
                if linear is not None:
                    step += 2.0 * linear.weight * (linear.products[i] @ vectors - linear.projections[i])
                moved = vectors[i] - rate * step
                if self.radius is not None:
                    moved *= self.radius / row_norms(moved[None])
                vectors[i] = moved
        return vectors


KernelVectorUpdate = LBFGS | GradientDescent
