"""Coding a chunk: features, correlations, pursuit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, Self

import numpy as np

from rkdl._backends.arrays import cast, normalize_rows
from rkdl._backends.arrays import squared_norms as row_squares
from rkdl._backends.base import Backend, ChunkCodes, backend_of, is_tensor
from rkdl._data.signals import NotFiniteError, is_safe
from rkdl._features.maps import FeatureMap, GivenKernelMap, KernelMap, LinearMap
from rkdl._utils.types import Array

# Share of a signal's energy below which float32 does not resolve its residual, a difference of squares.
UNRESOLVED = 1e-3


class Pursuit(NamedTuple):
    """How a signal is coded: at most `n_nonzero` atoms, down to a squared residual of `residual_tol`.

    A negative tolerance is never reached. `rtol` is a tolerance of the residual's norm relative to that of the signal,
    zero for none. `name` is a key of `PURSUITS` of `rkdl._backends.cpu.active_set`. `alpha` and `l2` are penalties on
    codes z of unit-norm atoms, ``alpha |z|_1 + l2 |z|^2 / 2`` beside half the squared residual, for all atoms or for
    each; zero unless it is "lasso".
    """

    n_nonzero: int
    residual_tol: float = -1.0
    name: str = "ols"
    positive: bool = False
    alpha: Any = 0.0
    l2: Any = 0.0
    rtol: float = 0.0

    @property
    def has_tolerance(self) -> bool:
        """Whether a small residual ends a code."""
        return self.residual_tol >= 0.0 or self.rtol > 0.0

    @property
    def has_penalty(self) -> bool:
        """Whether codes minimise a sum of the residual and penalties."""
        return self.name == "lasso"

    def for_atoms_of(self, norms: Array) -> Self:
        """The same for atoms that have been divided by their norms (n,)."""
        if not self.has_penalty:
            return self
        return self._replace(alpha=self.alpha / norms, l2=self.l2 / norms**2 if self.l2 else 0.0)

    def for_signals_over(self, length: float) -> Self:
        """The same for signals that have been divided by a number."""
        return self._replace(residual_tol=self.residual_tol / length**2, alpha=self.alpha / length)

    def greedy(self, n_nonzero: int) -> Self:
        """A greedy pursuit of so many atoms, with codes of these signs."""
        return type(self)(n_nonzero, name="ols" if self.has_penalty else self.name, positive=self.positive)

    def on(self, backend: Backend, **options: Any) -> partial[tuple[ChunkCodes, Array]]:
        """``pursue`` of a backend with these rules and further arguments: codes and squared residuals (c,)."""
        rules: dict[str, Any] = {"n_nonzero": self.n_nonzero, "residual_tol": self.residual_tol, "pursuit": self.name}
        rules |= {"positive": self.positive, "alpha": self.alpha, "l2": self.l2, **options}
        if self.rtol == 0.0:
            return partial(backend.pursue, **rules)
        return partial(_pursue_relative, backend, self.rtol, **rules)

    def penalty(self, codes: ChunkCodes, weighted: ChunkCodes | None = None) -> Any:
        """Twice the penalties of codes, which are times the weights of signals; `weighted` are times their roots."""
        if not self.has_penalty:
            return 0.0
        values, halves = (cast(own.values, np.float64) for own in (codes, weighted or codes))
        return 2.0 * self.alpha * abs(values).sum() + self.l2 * (halves * halves).sum()


def _pursue_relative(
    backend: Backend,
    rtol: float,
    correlations: Array,
    gram: Any,
    squared_norms: Array,
    residual_tol: float,
    **rules: Any,
) -> tuple[ChunkCodes, Array]:
    """As `Backend.pursue`, where every signal has a tolerance of its own.

    It is taken from the squared norm of the signal; then nothing may be left.
    """
    limits = (squared_norms * rtol**2).clip(min=max(residual_tol, 0.0))
    codes = backend.pursue(correlations, gram, squared_norms - limits, residual_tol=0.0, **rules)[0]
    return codes, (squared_norms - codes.correlate(correlations)).clip(min=0.0)


@dataclass(frozen=True)
class Encoder:
    """Codes a chunk against unit-norm atoms, which are combinations (n, p) of the features' coordinates.

    Without `gram`, the inner products (n, n) of the atoms, those that are needed are computed; features are then the
    signals. All arrays have the signals' dtype.
    """

    feature_map: FeatureMap
    atoms: Array
    gram: Array | None
    pursuit: Pursuit

    @property
    def n_atoms(self) -> int:
        """Number of atoms."""
        return len(self.atoms)

    def with_gram(self) -> Self:
        """The encoder with all inner products of its atoms."""
        if self.gram is not None:
            return self
        return replace(self, gram=backend_of(self.atoms).product(self.atoms, self.atoms))

    def limited_to(self, n_nonzero: int) -> Self:
        """The encoder with another number of atoms per signal, and no tolerance."""
        other = replace(self, pursuit=self.pursuit.greedy(n_nonzero))
        # The inner products of the atoms are prepared once.
        prepared = {name: self.pursue.keywords[name] for name in ("dictionary", "gram")}
        prepared["n_nonzero"] = min(n_nonzero, self.feature_map.size)
        vars(other)["pursue"] = other.pursuit.on(backend_of(self.atoms), **prepared)
        return other

    @property
    def is_linear(self) -> bool:
        """Whether the features are the signals."""
        return isinstance(self.feature_map, LinearMap)

    @cached_property
    def row_width(self) -> int:
        """Numbers that a signal occupies while it is coded: itself, its features, its correlations."""
        own_features = 0 if self.is_linear else self.feature_map.size
        return self.feature_map.signal_size + own_features + 2 * self.n_atoms

    @cached_property
    def ones(self) -> np.ndarray:
        """Factors (n,) of codes that stay as they are."""
        return np.ones(self.n_atoms, self.atoms.dtype)

    @cached_property
    def pursue(self) -> partial[tuple[ChunkCodes, Array]]:
        """``pursue(correlations, squared_norms=norms)`` finds the codes and the squared residuals of a chunk."""
        backend, options = backend_of(self.atoms), {"dictionary": self.atoms}
        options["gram"] = None if self.gram is None else backend.padded_gram(with_unit_diagonal(self.gram))
        if isinstance(self.pursuit.l2, float) and self.pursuit.l2 == 0.0:
            # More atoms than there are coordinates could only fit rounding.
            options["n_nonzero"] = min(self.pursuit.n_nonzero, self.feature_map.size)
        return self.pursuit.on(backend, **options)

    def codes(self, signals: Array, squared_norms: Array | None = None, correlations: Array | None = None) -> Any:
        """Codes (`ChunkCodes`) of a chunk, in its dtype; norms of the signals and correlations where they are known."""
        with np.errstate(over="ignore", invalid="ignore"):
            if correlations is None:
                _, correlations = self.correlate(signals)
            if squared_norms is None:
                norms = self._norms(signals, correlations)
            else:
                norms = backend_of(correlations).as_like(squared_norms, correlations)
            is_array, codes = not is_tensor(correlations), None
            if not is_array or self._is_in_range(signals, correlations, norms):
                codes, _ = self.pursue(correlations, squared_norms=norms, observed=self.feature_map.observed(signals))
            if codes is None or (is_array and _have_vanished(correlations, codes.counts)):
                codes = self.as_float64.codes(signals.astype(np.float64), squared_norms)
                codes = codes._replace(values=codes.values.astype(signals.dtype))
            return codes

    def observe(self, signals: Array, features: Array | None = None) -> tuple[Array, Array, Array]:
        """Features, correlations and squared norms of a chunk; `features` where they are known.

        Features that are not finite are refused; tensors are checked when all chunks are done.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            features, correlations = self.correlate(signals, features)
            flat = correlations.reshape(-1)
            # One number that is not finite makes this sum not finite.
            if not is_tensor(flat) and not np.isfinite(np.dot(flat, flat)):
                raise NotFiniteError
        return features, correlations, self.feature_map.squared_norms(signals)

    def residuals(self, signals: Array) -> tuple[Array, Array, Array]:
        """Features, squared residuals and squared norms; residuals that float32 does not resolve are in float64."""
        features, correlations, norms = self.observe(signals)
        observed = self.feature_map.observed(signals)
        codes, squares = self.pursue(correlations, squared_norms=norms, observed=observed)
        if self.is_linear:
            # From the residual itself: a difference of squares loses all digits where the fit is close.
            left = codes.times(self.atoms)
            left -= features
            return features, row_squares(left if observed is None else left * observed), norms
        is_lost = squares < UNRESOLVED * norms
        if not is_tensor(squares) and squares.dtype == np.float32 and is_lost.any():
            rows = signals[is_lost].astype(np.float64)
            wide: Any = self.as_float64
            dense, correlations = codes.dense(self.n_atoms, np.float64)[is_lost], wide.correlate(rows)[1]
            left = (dense * (dense @ wide.gram - 2.0 * correlations)).sum(1)
            squares[is_lost] = (wide.feature_map.squared_norms(rows) + left).clip(min=0.0)
        return features, squares, norms

    def in_range(self, signals: np.ndarray) -> tuple[Encoder, np.ndarray]:
        """The encoder and the signals, both in float64 if squares of the signals leave the range of float32."""
        if self.feature_map.needs_float64(signals):
            return self.as_float64, signals.astype(np.float64)
        return self, signals

    def correlate(self, signals: Array, features: Array | None = None) -> tuple[Array, Array]:
        """Features and correlations of a chunk; `features` where they are known."""
        if features is None:
            features = self.feature_map.features(signals)
        return features, backend_of(features).product(features, self.atoms)

    @cached_property
    def as_float64(self) -> Encoder:
        """The encoder in float64, with the inner products that its atoms have there."""
        feature_map, atoms = self.feature_map.as_dtype(np.dtype(np.float64)), self.atoms.astype(np.float64)
        if isinstance(feature_map, GivenKernelMap):
            return replace(self, atoms=atoms, gram=cast(self.gram, np.float64))
        # Of unit norm in float64 too: the pursuit takes the diagonal of their Gram matrix to be one.
        images = atoms = normalize_rows(atoms) if self.is_linear else atoms
        if isinstance(feature_map, KernelMap):
            # There may be no room for a matrix of all kernel vectors.
            blocks = np.array_split(feature_map.kernel_vectors, -(-feature_map.size // 256))
            images = np.concatenate([feature_map.features(rows) @ atoms.T for rows in blocks]).T
        return replace(self, feature_map=feature_map, atoms=atoms, gram=atoms @ images.T)

    def _is_in_range(self, signals: np.ndarray, correlations: np.ndarray, norms: np.ndarray) -> bool:
        """Whether a chunk can be coded in its dtype; raises if it can be coded in none."""
        flat = correlations.ravel()
        mean_square = float(flat.dot(flat)) / max(1, flat.size)
        if not self.is_linear:
            if not np.isfinite(mean_square):
                raise NotFiniteError
            return True
        if is_safe(mean_square, flat.dtype) and (not self.pursuit.has_tolerance or np.isfinite(norms.sum())):
            return True
        if not np.isfinite(self.feature_map.features(signals)).all():
            raise NotFiniteError
        return not self.feature_map.needs_float64(signals)

    def _norms(self, signals: Array, correlations: Array) -> Array:
        """Squared norms of a chunk, infinite where there is no tolerance to compare a residual with."""
        if not self.pursuit.has_tolerance:
            return backend_of(correlations).full((len(signals),), np.inf, correlations)
        return self.feature_map.squared_norms(signals)


def with_unit_diagonal(gram: Array) -> Array:
    """A copy of inner products (n, n) of atoms whose norms are exactly one or zero.

    In float64, atoms that were normalised in float32 seem to be partly outside their own span, and are chosen twice.
    """
    backend, unit = backend_of(gram), backend_of(gram).copy(gram)
    backend.fill_diagonal(unit, backend.as_like(gram.diagonal() > 0.0, gram))
    return unit


def _have_vanished(correlations: Array, counts: Array) -> bool:
    """Whether float32 rows with empty codes hold nonzero numbers whose squares all underflow."""
    if correlations.dtype != np.float32 or np.count_nonzero(counts) == len(counts):
        return False
    rows = correlations[counts == 0]
    return bool((rows.any(axis=1) & ~(rows * rows).any(axis=1)).any())
