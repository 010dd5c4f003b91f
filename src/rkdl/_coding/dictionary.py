"""A fitted dictionary: atoms in a feature space, and what is computed from them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np
from sklearn.utils import assert_all_finite

from rkdl._backends.arrays import cast, host, normalize_rows
from rkdl._backends.arrays import squared_norms as row_squares
from rkdl._backends.base import backend_of, is_tensor
from rkdl._backends.devices import placed, to_device
from rkdl._coding.encoder import Encoder, Pursuit
from rkdl._coding.passes import densify, encode_signals, gram_matrix, map_rows
from rkdl._coding.preimages import Decoder, FixedPoint, LinearDecoder
from rkdl._data.signals import Signals
from rkdl._features.kernels import RBF
from rkdl._features.maps import FeatureMap, FourierMap, KernelMap, LinearMap
from rkdl._features.widths import spread_indices
from rkdl._utils.types import Array

# A Gram matrix that takes more bytes than this is computed by the calls that need it.
MOST_BYTES = 64 << 20
# Squared residuals in units of the noise's variance that are as good as infinite.
_LARGEST = 1e30
# Kernel vectors that show what atoms explain of noise.
N_PROBES = 100

Value = TypeVar("Value")


@dataclass(frozen=True)
class FittedDictionary:
    """Atoms (n, p) in the coordinates of a feature map, and how signals are coded with them.

    Immutable: derived values, such as the atoms in another dtype or on a device, are computed once and cached.
    Atoms have unit norm in feature space, unless `norms` holds the norms that codes are to be divided by. `decoder` is
    the learned one, if any.
    """

    feature_map: FeatureMap
    atoms: np.ndarray
    pursuit: Pursuit
    gram: np.ndarray | None = None  # inner products (n, n) of the atoms
    decoder: LinearDecoder | None = None
    norms: np.ndarray | None = None
    _known: dict[Hashable, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_known": {}}

    @cached_property
    def _factors(self) -> np.ndarray | None:
        """Factors (n,) that make codes of unit-norm atoms those of the atoms."""
        return None if self.norms is None else 1.0 / self.norms

    def _once(self, key: Hashable, compute: Callable[[], Value]) -> Value:
        found: Value | None = self._known.get(key)
        if found is None:
            # Several threads may compute the same value at once.
            found = self._known[key] = compute()
        return found

    @property
    def n_atoms(self) -> int:
        """Number of atoms."""
        return len(self.atoms)

    @property
    def runs_user_code(self) -> bool:
        """Whether a kernel of the user's maps the signals."""
        return isinstance(self.feature_map, KernelMap) and self.feature_map.kernel._has_user_code

    @property
    def n_features(self) -> int:
        """Length of a signal."""
        return self.feature_map.signal_size

    def encoder(self, dtype: np.dtype, device: Any = None) -> Encoder:
        """The encoder of signals of a dtype, in NumPy or on a device."""
        if device is not None:
            return self._once((dtype, device), lambda: to_device(self.encoder(dtype).with_gram(), device))
        return self._known.get(dtype) or self._once(dtype, lambda: self._make_encoder(dtype))

    def _make_encoder(self, dtype: np.dtype) -> Encoder:
        atoms, gram = self.atoms.astype(dtype, copy=False), self.gram
        if dtype.itemsize > self.atoms.itemsize and isinstance(self.feature_map, LinearMap | FourierMap):
            # Of unit norm in float64 too.
            atoms, gram = normalize_rows(atoms), None
        if gram is None and self.n_atoms**2 * dtype.itemsize <= MOST_BYTES:
            gram = gram_matrix(atoms, None)
        gram = None if gram is None else np.array(gram, dtype=dtype, order="C")
        return Encoder(self.feature_map.as_dtype(dtype), atoms, gram, self.pursuit)

    def encode(
        self,
        signals: Signals,
        *,
        sparse_output: bool = False,
        n_jobs: int | None = None,
        squared_norms: np.ndarray | None = None,
    ) -> Array:
        """Codes (n_signals, n) of signals, as an array, a CSR array or a tensor."""
        codes = encode_signals(
            signals,
            self.encoder(signals.dtype, signals.device),
            sparse_output=sparse_output,
            n_jobs=n_jobs,
            factors=self._factors,
            squared_norms=squared_norms,
        )
        return signals.as_given(codes)

    def residuals(
        self, signals: Signals, *, n_jobs: int | None = None, dtype: Any = None, squared_norms: Array | None = None
    ) -> tuple[Array, Array]:
        """Norms (n_signals,) of the residuals and of the signals in feature space, in `dtype` or else the signals'.

        `squared_norms` are those of signals that are given by a precomputed kernel.
        """
        if squared_norms is not None:
            return self._residuals_of_kernel(signals, squared_norms)
        encoder = self.encoder(signals.dtype, signals.device)
        both = map_rows(signals, encoder, None, 2, n_jobs, self._residuals_of, dtype)
        both = both if dtype is not None else signals.as_given(both)
        return both[:, 0], both[:, 1]

    def _residuals_of(self, encoder: Encoder, decoder: None, rows: Array) -> tuple[Array, Array]:
        features, squares, norms = encoder.residuals(rows)
        return features, cast(backend_of(norms).xp.stack([squares, norms]).T, np.float64) ** 0.5

    def _residuals_of_kernel(self, signals: Signals, norms: Array) -> tuple[Array, Array]:
        encoder = self.encoder(signals.dtype)
        correlations = host(signals.data) @ encoder.atoms.T
        squares = encoder.pursue(correlations, squared_norms=norms)[1]
        return placed((np.sqrt(squares), np.sqrt(norms)), signals.result_device)

    def residual_norms(self, signals: Signals, **options: Any) -> Array:
        """Norms (n_signals,) of the residuals in feature space."""
        return self.residuals(signals, **options)[0]

    def energies(self, signals: Signals, *, n_jobs: int | None = None, **norms: Any) -> tuple[float, float]:
        """Sums of squared errors and squared norms of the signals; in feature space without a way back from there."""
        # In float64: norms of signals near the largest number of float32 leave its range.
        decoder = self.find_decoder(signals.dtype)
        if decoder is None or self.feature_map.is_linear:
            errors, lengths = self.residuals(signals, n_jobs=n_jobs, dtype=np.float64, **norms)
        else:
            encoder = self.encoder(signals.dtype, signals.device)
            errors, lengths = map_rows(signals, encoder, decoder, 2, n_jobs, _lengths, np.float64).T
        return float((errors**2).sum()), float((lengths**2).sum())

    def find_decoder(self, dtype: np.dtype) -> Decoder | None:
        """The decoder of codes of unit-norm atoms: the learned one, or that of the kernel."""
        return self._once(("decoder", dtype), lambda: self._make_decoder(dtype))

    def _make_decoder(self, dtype: np.dtype) -> Decoder | None:
        if self.decoder is not None:
            gram = self.gram if self.feature_map.has_unit_norms else None
            return self.decoder.as_dtype(dtype, gram)
        feature_map = self.feature_map
        if isinstance(feature_map, LinearMap):
            return LinearDecoder(self.atoms.astype(dtype, copy=False))
        if not isinstance(feature_map, KernelMap):
            return None
        vectors, core = feature_map.kernel_vectors, feature_map.kernel
        if feature_map.is_linear:
            return LinearDecoder((self.atoms.astype(np.float64) @ vectors.astype(np.float64)).astype(dtype))
        return FixedPoint.prepare(RBF(core.gamma), self.atoms, vectors, dtype) if isinstance(core, RBF) else None

    def decode(self, codes: Signals, *, n_jobs: int | None = None) -> Array:
        """Signals (n_signals, m) of codes (n_signals, n)."""
        decoder = self.find_decoder(codes.dtype)
        assert decoder is not None
        if self.norms is not None:
            assert isinstance(decoder, LinearDecoder)
            known = np.where(np.isfinite(self.norms), self.norms, 0.0)
            decoder = LinearDecoder((decoder.matrix * known[:, None]).astype(codes.dtype))
        if codes.device is not None:
            codes.check_finite()
        return map_rows(codes, None, decoder, self.n_features, n_jobs, _decoded_codes)

    def denoise(self, signals: Signals, *, noise: float | None = None, n_jobs: int | None = None) -> Array:
        """Signals as their codes represent them; `noise` is the standard deviation of the noise, where it is known."""
        encoder, decoder = self.encoder(signals.dtype, signals.device), self.find_decoder(signals.dtype)
        work: Callable = _decoded
        if noise is not None:
            limits = np.finfo(signals.dtype)
            level = min(max(noise, 4.0 * float(limits.tiny)), float(limits.max) / 4.0)
            key = ("noise", level, signals.dtype)
            work = partial(_averaged, level, self._once(key, lambda: self._explained_noise(level, signals.dtype)))
        return signals.as_given(map_rows(signals, encoder, decoder, self.n_features, n_jobs, work))

    def _explained_noise(self, noise: float, dtype: np.dtype) -> dict[int, float]:
        """What 0, 1, 2, ... atoms explain of noise, in units of its variance.

        The best s of n vectors explain about ``s log(n)``, or ``2 s log(n)`` if they are few. Reconstructions by a
        kernel vary less: there it is the covariance of noise, at most twice as large as kernel vectors vary, with what
        these become once it is added (Efron, 2004), and half of that more, as signals vary more than kernel vectors.
        """
        encoder, decoder, penalty = self.encoder(dtype), self.find_decoder(dtype), max(1.0, np.log(self.n_atoms))
        sizes = _sizes(encoder, self.n_features / (2.0 * penalty))
        if decoder is None or self.feature_map.is_linear or not isinstance(self.feature_map, KernelMap):
            return {size: min(size * penalty, self.n_features) for size in sizes}
        vectors = self.feature_map.kernel_vectors.astype(dtype)
        vectors = np.resize(vectors[spread_indices(len(vectors), N_PROBES)], (N_PROBES, self.n_features))
        noise = min(
            noise, 2.0 * (float(vectors.std(axis=0, dtype=np.float64).max()) or float(abs(vectors).max()) or 1.0)
        )
        probes = np.asarray(np.random.RandomState(0).standard_normal(vectors.shape), dtype=dtype)
        both = np.concatenate([vectors + probes * dtype.type(noise), vectors - probes * dtype.type(noise)])
        correlations, explained = encoder.correlate(both)[1], {0: 0.0}
        for before, size in itertools.pairwise(sizes):
            codes = encoder.limited_to(size).codes(both, correlations=correlations)
            more, less = np.split(decoder(densify(codes, self.n_atoms)) / dtype.type(2.0 * noise), 2)
            explained[size] = max(explained[before], 1.5 * float((probes * (more - less)).sum()) / N_PROBES)
        return explained

    def preimages(self, *, n_jobs: int | None = None) -> np.ndarray:
        """A signal (n, m) for each atom: its pre-image, or that of its negative, whichever comes closer."""
        dtype = self.atoms.dtype
        identity = np.eye(self.n_atoms, dtype=dtype)
        signals, negatives = (self.decode(Signals(codes, dtype), n_jobs=n_jobs) for codes in (identity, -identity))
        if self.feature_map.is_linear:
            return signals
        encoder = self.encoder(dtype)

        def distances(rows: np.ndarray, sign: float) -> np.ndarray:
            products = (encoder.feature_map.features(rows) * encoder.atoms).sum(axis=1)
            return encoder.feature_map.squared_norms(rows) - 2.0 * sign * products + 1.0

        # By more than rounding: for some kernels both are the same.
        is_closer = distances(negatives, -1.0) < (1.0 - 1e-5) * distances(signals, 1.0)
        return np.where(is_closer[:, None], negatives, signals)


def _decoded(encoder: Encoder, decoder: Decoder, rows: Array) -> tuple[Array, Array]:
    features, correlations = encoder.correlate(rows)
    codes = encoder.codes(rows, correlations=correlations)
    return features if encoder.is_linear else correlations, decoder(densify(codes, encoder.n_atoms))


def _averaged(
    noise: float, explained: dict[int, float], encoder: Encoder, decoder: Decoder, rows: Array
) -> tuple[Array, Array]:
    """Denoised rows (c, m): an average over numbers of atoms, and what noise does not explain of the rest.

    With s atoms, which explain e_s times the variance of pure noise, a row y becomes x_s, whose squared error is about
    ``|y - x_s|^2 + 2 e_s noise^2`` and a constant. The weights ``exp(-error / (4 noise^2))`` are those of Leung and
    Barron (2006). James and Stein's estimator then returns the share ``1 - m noise^2 / |r|^2`` of the residual r (m,),
    if that is positive.
    """
    features, correlations = encoder.correlate(rows)
    backend, n_features = backend_of(rows), rows.shape[1]

    def energy(signals: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):
            return row_squares((rows - signals) / noise).clip(max=_LARGEST)

    mean = backend.full(rows.shape, 0.0, rows)
    smallest, total = backend.full((len(rows),), np.inf, rows), backend.full((len(rows),), 0.0, rows)
    for size, of_noise in explained.items():
        if size:
            codes = densify(encoder.limited_to(size).codes(rows, correlations=correlations), encoder.n_atoms)
        else:
            codes = backend.full((1, encoder.n_atoms), 0.0, rows)
        signals = decoder(codes)
        error = energy(signals) + 2.0 * of_noise
        least = backend.xp.minimum(smallest, error)
        kept, weight = (backend.xp.exp((least - other) / 4.0) for other in (smallest, error))
        total, mean = total * kept + weight, mean * kept[:, None] + weight[:, None] * signals
        smallest = least
    mean = mean / total[:, None]
    share = 1.0 - n_features / energy(mean).clip(min=n_features)
    return features if encoder.is_linear else correlations, mean + share[:, None] * (rows - mean)


def _sizes(encoder: Encoder, most: float) -> list[int]:
    """Numbers of atoms to average over: up to `most`, beyond which their error exceeds that of the noise itself."""
    has_limit = not (encoder.pursuit.has_tolerance or encoder.pursuit.has_penalty)
    own = encoder.pursuit.n_nonzero if has_limit else 1
    grid = {0, 1, own, *(factor << power for factor in (2, 3) for power in range(20))}
    return sorted(size for size in grid if size <= min(max(own, most), encoder.n_atoms))


def _lengths(encoder: Encoder, decoder: Decoder, rows: Array) -> tuple[Array, Array]:
    """Norms of what decoded codes leave of the rows, and of the rows (c, 2)."""
    checked, signals = _decoded(encoder, decoder, rows)
    both = [row_squares(cast(part, np.float64)) for part in (rows - signals, rows)]
    return checked, backend_of(both[0]).xp.stack(both).T ** 0.5


def _decoded_codes(coder: None, decoder: Decoder, codes: Array) -> tuple[Array, Array]:
    if not is_tensor(codes):
        assert_all_finite(codes, input_name="X")
    return codes, decoder(codes)
