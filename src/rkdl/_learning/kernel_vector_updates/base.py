"""The contract of a kernel-vector update, and the objective that it minimises.

For fixed codes Z, with ``S = Z'Z``, ``P(D) = Z'K(Y, D)`` and ``M(D) = K(D, D)``,

    f(D, A) = tr K(Y, Y) - 2 <P, A> + <S, A M A'> + lambda |Y - X D|^2
    df/dd_i = -2 sum_t (Z A)_ti d2 k(y_t, d_i) + 2 sum_l (A'SA)_il d1 k(d_i, d_l) + 2 lambda (X'X D - X'Y)_i

Variable projection puts ``A = S^-1 P M^-1``, the best atoms for D, into f; the paper's rule keeps A fixed. Value and
gradient of a point come from one pass over the signals, in which its best atoms are not yet known. So the gradient of a
step after the first is taken with the best atoms of the point before: it lacks the mixed second derivative of f times
the change of the atoms, which is of the same order as the step. A second pass for every step would give the exact one;
`benchmarks/gradient_lag.py` prints what the lag costs instead. The first gradient of every iteration is exact, and a
step is accepted by the exact value.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from rkdl._backends.arrays import cast, dot, is_tensor
from rkdl._backends.base import backend_of
from rkdl._execution.executor import Executor
from rkdl._features.maps import KernelMap
from rkdl._features.metric import Metric, OverflowingKernelError, make_metric
from rkdl._learning.chunk_tasks import GradientTask
from rkdl._learning.linear_term import LinearTerm
from rkdl._persistence.named_arrays import Expected
from rkdl._utils.types import Array
from rkdl._utils.warnings import warn


class Point(NamedTuple):
    """Kernel vectors (p, m) and what is known at them; nothing else if the value is infinite."""

    vectors: Array
    value: float  # the objective
    metric: Metric = None  # type: ignore[assignment]
    # The best atoms (or fixed ones), not of unit norm: combinations (n, p), and whitened coordinates (n, r).
    atoms: Array = None
    whitened_atoms: Array = None
    # P (n, p).
    cross_products: Array = None
    # sum_t (Z A)_ti d2 k(y_t, d_i) (p, m), and the atoms A (n, p) that it was taken with.
    signal_gradient: Array = None
    gradient_atoms: Array = None
    features: list | None = None  # the chunks with their features, where these were cached


class PastSignals(NamedTuple):
    """Approximation of ``sum_t z_tj phi(y_t)`` over past signals: combinations (n, q) of vectors (q, m)."""

    kernel_vectors: Array
    combinations: Array


@dataclass(frozen=True)
class Objective:
    """The learning objective as a function of the kernel vectors, codes fixed."""

    executor: Executor
    # Codes of the chunks. The first gradient drops cached features, in place, so that nothing else holds them.
    chunks: list
    feature_map: KernelMap  # the kernel, and the kernel vectors that cached features belong to
    code_gram: Array  # S
    energy: float  # tr K(Y, Y)
    linear: LinearTerm | None = None
    fixed_atoms: Array | None = None  # fixed atoms (n, p); None for the best ones at every point
    past: PastSignals | None = None  # signals of a stream that were seen before
    caches_features: bool = False  # whether features of all signals may be cached for the next iteration

    @cached_property
    def _code_metric(self) -> Metric:
        return make_metric(self.code_gram, np.float64)

    def at(self, vectors: Array, cross_products: Array = None, gradient_atoms: Array = None) -> Point:
        """The objective at kernel vectors (p, m), in one pass over the signals at most.

        `cross_products` are ``P`` there, where it is known. The gradient is taken in the same pass, with
        `gradient_atoms`; None for the value alone.
        """
        dtype = self.executor.signals.dtype
        try:
            metric = replace(self.feature_map, kernel_vectors=vectors).metric(dtype)
        except OverflowingKernelError:
            return Point(vectors, np.inf)
        signal_gradient = features = None
        if cross_products is None:
            cross_products, signal_gradient, features = self._evaluate(vectors, gradient_atoms)
        if self.fixed_atoms is None:
            targets = metric.whiten(cross_products)
            # The best atoms for the codes: ``S^-1 Q`` on the span of the atoms that are used.
            whitened_atoms = self._code_metric.unwhiten(self._code_metric.whiten(targets.T)).T
            value = self.energy - float(dot(targets, whitened_atoms))
            atoms = metric.unwhiten(whitened_atoms)
        else:
            atoms, whitened_atoms = self.fixed_atoms, metric.whiten_combinations(self.fixed_atoms)
            value = self.energy - 2.0 * float(dot(cross_products, atoms))
            value += float(dot(self.code_gram, atoms @ metric.matrix @ atoms.T))
        if self.linear is not None:
            value += self.linear.value(vectors)
        value = value if np.isfinite(value) else np.inf
        return Point(
            vectors, value, metric, atoms, whitened_atoms, cross_products, signal_gradient, gradient_atoms, features
        )

    def _evaluate(self, vectors: Array, gradient_atoms: Array | None) -> tuple[Array, Array | None, list | None]:
        kernel, dtype = self.feature_map.kernel, self.executor.signals.dtype
        atoms = None if gradient_atoms is None else cast(gradient_atoms, dtype)
        at_features = vectors is self.feature_map.kernel_vectors
        # A new point without a gradient is the last of an iteration, and the next one encodes with its features.
        caches_features = self.caches_features and gradient_atoms is None and not at_features
        task = GradientTask(kernel, cast(vectors, dtype), len(self.code_gram), atoms, at_features, caches_features)
        sums, chunks = self.executor.map_reduce(task, self.chunks)
        if gradient_atoms is not None:
            self.chunks[:] = chunks
        # Arrays of a signal's length stay on the device of the vectors.
        n_small = 1 if is_tensor(vectors) else len(sums)
        sums = (*self.executor.to_backend(sums[:n_small]), *sums[n_small:])
        cross_products, signal_gradient = sums[0], sums[1] if len(sums) > 1 else None
        if self.past is not None:
            places, combinations = self.past
            values, gradient = kernel.value_and_gradient(places, vectors)
            cross_products = cross_products + combinations @ values
            if signal_gradient is not None:
                weights = combinations.T @ gradient_atoms
                signal_gradient = signal_gradient + gradient(lambda factor: weights * factor)
        return cross_products, signal_gradient, chunks if caches_features else None

    def with_signal_gradient(self, point: Point) -> Point:
        """The point with the signals' part of its gradient, taken with its own atoms if it has none yet."""
        if point.signal_gradient is not None:
            return point
        signal_gradient = self._evaluate(point.vectors, point.atoms)[1]
        return point._replace(signal_gradient=signal_gradient, gradient_atoms=point.atoms)

    def gradient(self, point: Point) -> Array:
        """The gradient (p, m), by the point's `gradient_atoms`."""
        point = self.with_signal_gradient(point)
        couplings = point.gradient_atoms.T @ self.code_gram @ point.gradient_atoms
        _, weighted = self.feature_map.kernel.value_and_gradient(point.vectors, point.vectors, point.metric.matrix)
        gradient = weighted(lambda factor: backend_of(factor).from_host(couplings, factor) * factor)
        gradient -= point.signal_gradient
        gradient *= 2.0
        if self.linear is not None:
            gradient += self.linear.gradient(point.vectors)
        return gradient


@dataclass
class KernelVectorUpdate:
    """Moves the kernel vectors to a smaller objective, codes fixed."""

    n_steps: int  # steps per iteration; 0 leaves the kernel vectors where they are
    radius: float | None  # norm of every kernel vector; None if norms are free
    has_warned: bool = field(default=False, kw_only=True)

    # Whether the objective has the best atoms at every point, so that no atom update is needed before; else the atoms
    # are fixed.
    eliminates_atoms: ClassVar[bool]
    # Attributes that are a number, or None, and the arrays that `state` may return, by which a file is checked.
    numbers: ClassVar[tuple[str, ...]] = ("radius",)
    state_arrays: ClassVar[dict[str, Expected]] = {"radius": Expected("", group="radius")}

    def minimize(self, objective: Objective, start: Point) -> Point:
        """A point of `objective` that is no worse than `start`, if the rule can guarantee that."""
        raise NotImplementedError

    def state(self) -> dict[str, np.ndarray]:
        """State carried from one iteration to the next, as arrays for a file."""
        return {name: np.array(getattr(self, name)) for name in self.numbers if getattr(self, name) is not None}

    def restored(self, state: dict[str, np.ndarray]) -> Self:
        """The same update in a state that was saved."""
        numbers: dict[str, Any] = {name: float(state[name]) if name in state else None for name in self.numbers}
        return replace(self, **numbers)

    def warn_once(self, message: str) -> None:
        """Warn once of something that every iteration would repeat."""
        if not self.has_warned:
            self.has_warned = True
            warn(message, ConvergenceWarning)
