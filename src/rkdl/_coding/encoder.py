"""Codes of a chunk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from rkdl._backends.arrays import normalize_rows
from rkdl._backends.base import backend_of, is_tensor
from rkdl._backends.devices import to_host
from rkdl._coding.pursuit import Codes, pursue
from rkdl._data.signals import Signals, is_safe, needs_float64
from rkdl._execution.chunks import chunk_bounds
from rkdl._execution.threads import ThreadExecutor
from rkdl._features.maps import FeatureMap, LinearMap
from rkdl._utils.types import Array


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


def for_each_chunk(
    signals: Signals,
    width: int,
    n_jobs: int | None,
    task: Callable[[int, int, int], Any],
) -> list[Any]:
    """``task(number, start, stop)`` of every chunk of signals that take `width` numbers each; what each returned.

    Chunks on a device are worked on one after another. Where features are
    not finite because the signals are not, the error is scikit-learn's, which says so.
    """
    choose: Callable[[int, int, int], list[tuple[int, int]]] = chunk_bounds
    if signals.device is not None:
        from rkdl._execution.device import bounds_on

        choose, n_jobs = bounds_on(signals.device), 1
    bounds = choose(signals.shape[0], width, signals.dtype.itemsize)
    try:
        with ThreadExecutor(signals, bounds, n_jobs, row_width=width) as executor:
            return executor.map_chunks(task)
    except NotFiniteError:
        signals.check_finite()
        raise


def map_rows(
    signals: Any,
    encoder: Any,
    decoder: Any,
    width: int,
    n_jobs: int | None,
    work: Callable[..., tuple[Any, Any]],
    dtype: Any = None,
) -> Any:
    """Rows of results (n_signals, width), as a tensor where the signals came as one.

    The encoder is an `Encoder`, or has its `row_width`, `is_linear`, `in_range` and `with_gram`.
    ``work(encoder, decoder, rows)`` returns numbers whose squares tell whether the results can be trusted, and the
    results, in `dtype` or else that of the signals; encoder and decoder are given to it in NumPy or on the signals'
    device.
    """
    row_width = encoder.row_width + (0 if decoder is None else decoder.row_width)
    if signals.device is not None:
        return _map_rows_on_device(signals, encoder, decoder, row_width, width, n_jobs, work)
    results = np.empty((signals.shape[0], width), dtype=signals.dtype if dtype is None else dtype)

    def task(number: int, start: int, stop: int) -> None:
        coder, rows = encoder.in_range(signals.read(start, stop))
        results[start:stop] = work(coder, decoder, rows)[1]

    for_each_chunk(signals, row_width, n_jobs, task)
    return results


def _map_rows_on_device(
    signals: Any, encoder: Any, decoder: Any, row_width: int, width: int, n_jobs: int | None, work: Callable
) -> Any:
    from rkdl._execution.device import DeviceExecutor, send_home

    with DeviceExecutor(signals, row_width) as executor:
        placed, placed_decoder = executor.to_backend((encoder, decoder))
        placed = placed.with_gram()

        def apply(rows: Any, state: Any) -> tuple[tuple, Any]:
            checked, results = work(placed, placed_decoder, rows)
            return (square_sum(checked),), results

        checks, parts = executor.attempt_chunks(apply)
        results = backend_of(parts[0]).concatenate(parts)
        # Numbers that are not finite, of features that are, come from a decoder.
        if not encoder.is_linear and not np.isfinite(backend_of(results).norm(results)):
            checks.append(np.inf)
        if are_in_range(checks, signals, encoder):
            return send_home(results, signals)
    # Signals that are not finite, or whose squares leave the dtype's range, are left to the CPU.
    encoder, decoder = to_host((encoder, decoder))
    return send_home(map_rows(signals.on_host(), encoder, decoder, width, n_jobs, work), signals)


def square_sum(numbers: Any) -> Any:
    """Sum of all squares; of a tensor a tensor, so that nothing waits for it."""
    return backend_of(numbers).dot(numbers, numbers)


def are_in_range(means: list[float], signals: Any, encoder: Any) -> bool:
    """Whether codes of chunks on a device can be trusted, from mean squares; features not finite are refused.

    Zero is the mean square of zeros, or of squares that vanished.
    """
    if not encoder.is_linear:
        if not np.isfinite(means).all():
            signals.check_finite()
            raise NotFiniteError
        return True
    if not all(is_safe(mean, signals.dtype) for mean in means if mean != 0.0):
        return False
    return 0.0 not in means or signals.largest() == 0.0


class Pursuit(NamedTuple):
    """How a signal is coded: at most `n_nonzero` atoms, down to a squared residual of `residual_tol`."""

    n_nonzero: int
    residual_tol: float
    ols: bool


def _is_safe(rows: np.ndarray) -> bool:
    flat = rows.ravel()
    return is_safe(float(np.dot(flat, flat)) / max(1, flat.size), rows.dtype)


@dataclass(frozen=True)
class Encoder:
    """Codes a chunk against unit-norm atoms, which are combinations (n, p) of the features' coordinates.

    Without `gram`, the inner products (n, n) of the atoms, those that are needed are computed; features are then the
    signals. All arrays have the signals' dtype.
    """

    feature_map: FeatureMap
    atoms: Array
    gram: Array
    pursuit: Pursuit

    @property
    def n_atoms(self) -> int:
        """Number of atoms."""
        return len(self.atoms)

    def with_gram(self) -> Encoder:
        """The encoder with all inner products of its atoms."""
        return (
            self
            if self.gram is not None
            else replace(self, gram=backend_of(self.atoms).product(self.atoms, self.atoms))
        )

    @cached_property
    def padded_gram(self) -> Array:
        """The inner products of the atoms as the pursuit reads them; None without `gram`."""
        return None if self.gram is None else backend_of(self.gram).padded_gram(self.gram)

    @property
    def n_nonzero(self) -> int:
        """The largest number of non-zeros that a signal gets."""
        # No more atoms than coordinates are independent; what a further one could fit is rounding.
        return min(self.pursuit.n_nonzero, self.feature_map.size)

    @property
    def is_linear(self) -> bool:
        """Whether the features are the signals, so that codes grow with them."""
        return isinstance(self.feature_map, LinearMap)

    @property
    def row_width(self) -> int:
        """Numbers that a signal occupies while it is coded: itself, its features, its correlations."""
        own_features = 0 if self.is_linear else self.feature_map.size
        return self.feature_map.signal_size + own_features + 2 * self.n_atoms

    def encode(self, signals: Any, features: Any = None) -> tuple[Any, Any, Any, Any]:
        """Features, squared norms, codes and squared residuals of a chunk; `features` where they are known."""
        features, correlations = self._correlate(signals, features)
        norms = self.feature_map.squared_norms(signals)
        codes, residuals = pursue(correlations, self.padded_gram, norms, *self._limited(), dictionary=self.atoms)
        return features, norms, codes, residuals

    def codes(self, signals: np.ndarray, squared_norms: np.ndarray | None = None) -> Codes:
        """Codes of a chunk alone."""
        return self._pursue(signals, self._correlate(signals)[1], squared_norms)

    def plain_products(self, signals: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """Correlations and squared norms of a chunk that needs no care; None where squares may leave the dtype's range.

        The norms are infinite where there is no tolerance to compare a residual with.
        """
        has_tolerance = self.pursuit.residual_tol >= 0.0
        with np.errstate(over="ignore", invalid="ignore"):
            if has_tolerance and not _is_safe(signals):
                return None
            correlations = self._multiply(signals)[1]
            if not _is_safe(correlations):
                return None
        return correlations, self._norms(signals, correlations)

    def plain_codes(self, correlations: np.ndarray, squared_norms: np.ndarray) -> Codes:
        """Codes from `plain_products`."""
        return pursue(correlations, self.padded_gram, squared_norms, *self._limited(), dictionary=self.atoms)[0]

    def write_plain_codes(
        self, correlations: np.ndarray, squared_norms: np.ndarray, factors: np.ndarray, dense: np.ndarray
    ) -> None:
        """Write codes from `plain_products`, times one factor per atom, into the zeros of `dense` (c, n)."""
        self.plain_codes(correlations, squared_norms).scatter(factors, dense)

    def _limited(self) -> Pursuit:
        return Pursuit(self.n_nonzero, self.pursuit.residual_tol, self.pursuit.ols)

    def in_range(self, signals: np.ndarray) -> tuple[Encoder, np.ndarray]:
        """The encoder and the signals, both in float64 if squares of the signals leave the range of float32."""
        if self.is_linear and needs_float64(signals):
            return self._wide, signals.astype(np.float64)
        return self, signals

    @cached_property
    def _wide(self) -> Encoder:
        # Of unit norm in float64 too: the pursuit takes the diagonal of their Gram matrix to be one.
        atoms = normalize_rows(self.atoms.astype(np.float64))
        return replace(self, atoms=atoms, gram=atoms @ atoms.T)

    def checked_codes(self, signals: Any, squared_norms: Any = None) -> tuple[Any, Any]:
        """Codes of a chunk, and the numbers whose squares tell whether they can be trusted."""
        features, correlations = self._correlate(signals)
        codes = self._pursue(signals, correlations, squared_norms)
        return codes, features if self.is_linear else correlations

    def _pursue(self, signals: Any, correlations: Any, squared_norms: Any = None) -> Any:
        norms = self._norms(signals, correlations) if squared_norms is None else squared_norms
        return pursue(correlations, self.padded_gram, norms, *self._limited(), dictionary=self.atoms)[0]

    def _norms(self, signals: Any, correlations: Any) -> Any:
        """Squared norms of a chunk, infinite without a tolerance."""
        if self.pursuit.residual_tol < 0.0:
            return backend_of(correlations).full((len(signals),), np.inf, correlations)
        return self.feature_map.squared_norms(signals)

    def _correlate(self, signals: Any, features: Any = None) -> tuple[Any, Any]:
        features, correlations = self._multiply(signals, features)
        if is_tensor(correlations):
            # Looking would wait for the device: what is not finite shows when all chunks are done.
            return features, correlations
        flat = correlations.ravel()
        with np.errstate(over="ignore", invalid="ignore"):
            # One non-finite feature makes this sum non-finite.
            if not np.isfinite(np.dot(flat, flat)):
                raise NotFiniteError
        return features, correlations

    def _multiply(self, signals: Any, features: Any = None) -> tuple[Any, Any]:
        with np.errstate(over="ignore", invalid="ignore"):
            if features is None:
                features = self.feature_map.features(signals)
            return features, backend_of(features).product(features, self.atoms)
