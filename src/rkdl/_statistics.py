"""What the learning needs of a chunk: codes that stay with it, and sums that leave it.

With codes Z and features F, the sums are ``S = Z'Z``, ``P = Z'F`` and the traces. Each class is a step for
`rkdl._signals.Walker`: a picklable function of a chunk and of what was kept with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from rkdl._jit import compiled
from rkdl._kernels import RBF, DifferentiableKernel
from rkdl._maps import FeatureMap, LinearMap
from rkdl._products import multiply
from rkdl._pursuit import Codes, arguments, packed, pursue
from rkdl._pursuit_kernel import pack_rows, pursue_rows
from rkdl._signals import Signals, Walker, chunk_bounds, is_safe, safe_scale


class NotFiniteError(ValueError):
    """Features left the range of their dtype, or the signals were not finite."""

    def __init__(self) -> None:
        super().__init__(
            "The signals' features are not finite in their dtype: scale the signals, lower the kernel's gamma or "
            "degree, or use float64."
        )

    def __reduce__(self) -> tuple:
        # From a worker to the client: the message is not an argument.
        return NotFiniteError, ()


def for_each_chunk(signals: Signals, width: int, n_jobs: int | None, task: Callable[[int, int, int], Any]) -> list[Any]:
    """``task(number, start, stop)`` of every chunk of signals that take `width` numbers each; what each returned.

    Where features are not finite because the signals are not, the error is scikit-learn's, which says so.
    """
    with Walker(signals, chunk_bounds(signals.shape[0], width, signals.dtype.itemsize), n_jobs) as walker:
        try:
            found: list[Any] = []
            walker.fold(task, found.append)
            return found
        except NotFiniteError:
            signals.check_finite()
            raise


class Pursuit(NamedTuple):
    """How a signal is coded: at most `n_nonzero` atoms, down to a squared residual of `residual_tol`."""

    n_nonzero: int
    residual_tol: float
    ols: bool


def has_safe_squares(rows: np.ndarray) -> bool:
    """Whether squares of the numbers, and squares of those, stay well inside the dtype; False if one is not finite."""
    flat = rows.ravel()
    with np.errstate(over="ignore", invalid="ignore"):
        return is_safe(float(np.dot(flat, flat)) / max(1, flat.size), rows.dtype)


def conditioning_scale(rows: np.ndarray) -> float:
    """What finite rows must be multiplied by for their squares to stay in the dtype's range; mostly 1.0."""
    if has_safe_squares(rows):
        return 1.0
    if not np.isfinite(rows).all():
        raise NotFiniteError
    return safe_scale(rows)


def alike(rows: np.ndarray) -> list[np.ndarray]:
    """Indices of rows of like magnitude, a group each, so that no row is lost beside a far larger one."""
    everything = [np.arange(len(rows))]
    if has_safe_squares(rows):
        return everything
    with np.errstate(invalid="ignore"):
        exponents = np.frexp(np.abs(rows).max(axis=1))[1]
    return [np.flatnonzero(exponents == exponent) for exponent in np.unique(exponents)] or everything


class Kept(NamedTuple):
    """What stays with a chunk between steps; of an iteration to come, its features alone."""

    codes: Codes
    residuals: np.ndarray
    features: np.ndarray | None = None


@dataclass(frozen=True)
class Encoder:
    """Codes a chunk against unit-norm atoms.

    Attributes
    ----------
    feature_map : FeatureMap
        What turns signals (c, m) into features (c, p).
    atoms : ndarray of shape (n, p)
        Atoms as combinations of the features' coordinates, in the signals' dtype.
    gram : ndarray of shape (n, n) or None
        Their inner products, in the signals' dtype; None, where atoms are signals, for what is needed of them.
    pursuit : Pursuit
        When to stop.
    """

    feature_map: FeatureMap
    atoms: np.ndarray
    gram: np.ndarray | None
    pursuit: Pursuit

    @property
    def n_atoms(self) -> int:
        """Number of atoms."""
        return len(self.atoms)

    @property
    def row_width(self) -> int:
        """Numbers that a signal occupies while it is coded: itself, its features, its correlations."""
        own_features = 0 if isinstance(self.feature_map, LinearMap) else self.feature_map.size
        return self.feature_map.signal_size + own_features + 2 * self.n_atoms

    def encode(
        self, signals: np.ndarray, features: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray, Codes, np.ndarray]:
        """Features, squared norms, codes and squared residuals of a chunk; `features` where they are known."""
        features, correlations = self._correlate(signals, features)
        norms = self.feature_map.squared_norms(signals)
        codes, residuals = pursue(correlations, self.gram, norms, *self._limited(), dictionary=self.atoms)
        return features, norms, codes, residuals

    def codes(self, signals: np.ndarray, squared_norms: np.ndarray | None = None) -> Codes:
        """Codes of a chunk alone."""
        _, correlations = self._correlate(signals)
        if squared_norms is not None:
            norms = squared_norms
        elif self.pursuit.residual_tol < 0.0:
            norms = np.full(len(signals), np.inf, dtype=correlations.dtype)
        else:
            norms = self.feature_map.squared_norms(signals)
        return pursue(correlations, self.gram, norms, *self._limited(), dictionary=self.atoms)[0]

    def plain_codes(self, signals: np.ndarray) -> Codes | None:
        """Codes of a chunk whose correlations show that nothing leaves the dtype's range; None for any other."""
        if self.pursuit.residual_tol >= 0.0:
            return None
        _, correlations = self._multiply(signals)
        if not has_safe_squares(correlations):
            return None
        norms = np.full(len(signals), np.inf, dtype=correlations.dtype)
        return pursue(correlations, self.gram, norms, *self._limited(), dictionary=self.atoms)[0]

    def _limited(self) -> Pursuit:
        # No more atoms than coordinates are independent; what a further one could fit is rounding.
        return self.pursuit._replace(n_nonzero=min(self.pursuit.n_nonzero, self.feature_map.size))

    def condition(self, signals: np.ndarray) -> tuple[Encoder, np.ndarray, float]:
        """An encoder and multiplied signals whose squares stay in range, and what they were multiplied by.

        Only where features are linear in the signals, so that codes are multiplied alike; elsewhere nothing changes.
        """
        if not isinstance(self.feature_map, LinearMap):
            return self, signals, 1.0
        scale = conditioning_scale(signals)
        if scale == 1.0:
            return self, signals, scale
        pursuit = self.pursuit._replace(residual_tol=self.pursuit.residual_tol * scale * scale)
        return replace(self, pursuit=pursuit), signals * signals.dtype.type(scale), scale

    def _correlate(self, signals: np.ndarray, features: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        features, correlations = self._multiply(signals, features)
        flat = correlations.ravel()
        with np.errstate(over="ignore", invalid="ignore"):
            # One non-finite feature makes this sum non-finite.
            if not np.isfinite(np.dot(flat, flat)):
                raise NotFiniteError
        return features, correlations

    def _multiply(self, signals: np.ndarray, features: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        with np.errstate(over="ignore", invalid="ignore"):
            if features is None:
                features = self.feature_map.features(signals)
            return features, multiply(features, self.atoms)


@dataclass(frozen=True)
class Learn(Encoder):
    """Sums ``S, P, tr K, sum of squared residuals`` of a chunk; its codes and residuals are kept if it `keeps`."""

    keeps_features: bool = False
    keeps: bool = True

    def __call__(self, signals: np.ndarray, kept: Kept | None) -> tuple[tuple, Kept | None]:
        features, correlations = self._correlate(signals, None if kept is None else kept.features)
        norms = self.feature_map.squared_norms(signals)
        given = arguments(correlations, self.gram, norms, *self._limited(), dictionary=self.atoms)
        n_atoms = len(self.atoms)
        products = np.zeros((n_atoms, n_atoms))
        projections = np.zeros((n_atoms, features.shape[1]), dtype=features.dtype)
        indptr = np.empty(len(signals) + 1, dtype=np.int32)
        # One call for all of it: threads that meet at Python's lock wait for longer than a small chunk takes.
        total, trace, lost = _learn(*given, features, indptr, products, projections)
        sums = (products, projections, trace, lost)
        if not self.keeps:
            return sums, None
        return sums, Kept(packed(given, indptr, total), given.residuals, features if self.keeps_features else None)


@dataclass(frozen=True)
class Evaluate:
    """For codes that are kept: ``P = Z'K(Y, D)``, and the pull of the signals on D if `atoms` are given.

    The pull on ``d_i`` is the sum over signals of ``(Z A)_ti`` times the derivative of ``k(y_t, d_i)`` by ``d_i``.
    Kernel vectors move after their pull, so features are not kept beyond it.
    """

    kernel: DifferentiableKernel
    kernel_vectors: np.ndarray
    n_atoms: int
    atoms: np.ndarray | None
    # Whether the kernel vectors are still those that the kept features belong to.
    at_features: bool = False
    keeps_features: bool = False

    @property
    def keeps(self) -> bool:
        """Codes stay as they are; features are all that it may add."""
        return self.keeps_features

    def __call__(self, signals: np.ndarray, kept: Kept) -> tuple[tuple, Kept]:
        if self.at_features and kept.features is not None and isinstance(self.kernel, RBF):
            # An RBF kernel's slope is its value.
            features = slope = kept.features
        else:
            features, slope = self.kernel.value_and_slope(signals, self.kernel_vectors)
        projections = np.zeros((self.n_atoms, features.shape[1]), dtype=features.dtype)
        codes = kept.codes
        accumulate_products(codes.indptr, codes.indices, codes.values, features, projections)
        if self.atoms is None:
            return (projections,), kept._replace(features=features) if self.keeps_features else kept
        weights = np.empty_like(slope)
        _weigh(codes.indptr, codes.indices, codes.values, self.atoms, slope, weights)
        return (projections, self.kernel.pull(signals, self.kernel_vectors, weights)), kept._replace(features=None)


@dataclass(frozen=True)
class Residual:
    """Sum of squares of ``Y - Z A`` for codes that are kept and atoms that are signals."""

    keeps: ClassVar[bool] = False

    atoms: np.ndarray

    def __call__(self, signals: np.ndarray, kept: Kept) -> tuple[tuple, Kept]:
        residual = (signals - kept.codes.to_csr(len(self.atoms)) @ self.atoms).ravel()
        return (float(np.dot(residual, residual)),), kept


@dataclass(frozen=True)
class Features:
    """The features (c, p) of a chunk, kept."""

    feature_map: FeatureMap

    def __call__(self, signals: np.ndarray, kept: Kept) -> tuple[tuple, np.ndarray]:
        return (), self.feature_map.features(signals)


@compiled()
def _learn(
    correlations,
    gram,
    dictionary,
    squared_norms,
    residual_tol,
    ols,
    eps,
    indices,
    values,
    counts,
    residuals,
    features,
    indptr,
    products,
    projections,
):
    """Codes of a chunk, packed, and their sums; returns their number and the sums of norms and residuals."""
    pursue_rows(
        correlations, gram, dictionary, squared_norms, residual_tol, ols, eps, indices, values, counts, residuals
    )
    total = pack_rows(counts, indices, values, indptr)
    flat_indices, flat_values = indices.reshape(indices.size), values.reshape(values.size)
    accumulate_gram(indptr, flat_indices, flat_values, products)
    accumulate_products(indptr, flat_indices, flat_values, features, projections)
    trace = lost = 0.0
    for t in range(len(counts)):
        trace += squared_norms[t]
        lost += residuals[t]
    return total, trace, lost


@compiled()
def accumulate_gram(indptr, indices, values, products):
    """Add ``Z'Z``; rows have ascending indices, so the upper triangle is filled and then mirrored."""
    for t in range(len(indptr) - 1):
        for first in range(indptr[t], indptr[t + 1]):
            value = values[first]
            row = products[indices[first]]
            for second in range(first, indptr[t + 1]):
                row[indices[second]] += value * values[second]
    for i in range(len(products)):
        for j in range(i):
            products[i, j] = products[j, i]


@compiled(error_model="numpy", fastmath={"contract", "nsz"})
def accumulate_products(indptr, indices, values, features, projections):
    """Add ``Z'F``."""
    for t in range(len(indptr) - 1):
        source = features[t]
        for position in range(indptr[t], indptr[t + 1]):
            value = values[position]
            target = projections[indices[position]]
            for i in range(len(source)):
                target[i] += value * source[i]


@compiled(error_model="numpy", fastmath={"contract", "nsz"})
def _weigh(indptr, indices, values, atoms, slope, weights):
    """``(Z A) * slope`` into `weights`."""
    for t in range(len(indptr) - 1):
        target = weights[t]
        target[:] = 0
        for position in range(indptr[t], indptr[t + 1]):
            value = values[position]
            source = atoms[indices[position]]
            for i in range(len(target)):
                target[i] += value * source[i]
        source = slope[t]
        for i in range(len(target)):
            target[i] *= source[i]
