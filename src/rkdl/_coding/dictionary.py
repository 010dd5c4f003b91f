"""A fitted dictionary: atoms in a feature space, and what is computed from them."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from sklearn.utils import assert_all_finite

from rkdl._backends.arrays import cast, host
from rkdl._backends.arrays import squared_norms as row_squares
from rkdl._backends.base import backend_of, is_tensor
from rkdl._backends.devices import placed, to_device
from rkdl._coding.encoder import Encoder, Pursuit
from rkdl._coding.passes import densify, encode_signals, gram_matrix, map_rows
from rkdl._coding.preimages import Decoder, FixedPoint, LinearDecoder
from rkdl._data.signals import Signals
from rkdl._features.kernels import RBF, family
from rkdl._features.maps import FeatureMap, FourierMap, KernelMap, LinearMap
from rkdl._utils.types import Array

# A Gram matrix that takes more bytes than this is computed by the calls that need it.
MOST_BYTES = 64 << 20
# Noise leaves a residual that exceeds its expectation in about one patch of ten: the margin of the K-SVD denoising
# literature, in units of the noise's standard deviation.
NOISE_GAIN = 1.15

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

    def __post_init__(self) -> None:
        check_shapes(self.atoms, self.gram, self.feature_map.size)

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
        return self._once(dtype, lambda: self._make_encoder(dtype))

    def _make_encoder(self, dtype: np.dtype) -> Encoder:
        atoms = self.atoms.astype(dtype, copy=False)
        gram = self.gram
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
        features, correlations, norms = encoder.observe(rows)
        codes, squares = encoder.pursue(correlations, squared_norms=norms)
        if encoder.is_linear:
            # From the residual itself: a difference of squares loses all digits where the fit is close.
            squares = row_squares(rows - codes.times(encoder.atoms))
        return features, cast(backend_of(norms).xp.stack([squares, norms]).T, np.float64) ** 0.5

    def _residuals_of_kernel(self, signals: Signals, norms: Array) -> tuple[Array, Array]:
        encoder = self.encoder(signals.dtype)
        correlations = host(signals.data) @ encoder.atoms.T
        squares = encoder.pursue(correlations, squared_norms=norms)[1]
        return placed((np.sqrt(squares), np.sqrt(norms)), signals.result_device)

    def residual_norms(self, signals: Signals, **options: Any) -> Array:
        """Norms (n_signals,) of the residuals in feature space."""
        return self.residuals(signals, **options)[0]

    def energies(self, signals: Signals, **options: Any) -> tuple[float, float]:
        """Sums of the squared residuals and of the squared norms of the signals in feature space."""
        # In float64: norms of signals near the largest number of float32 leave its range.
        residuals, norms = self.residuals(signals, dtype=np.float64, **options)
        return float((residuals**2).sum()), float((norms**2).sum())

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
        """Signals as their codes represent them; with `noise`, codes leave residuals of that standard deviation."""
        dictionary = self
        if noise is not None:
            pursuit = Pursuit(self.n_atoms, self.squared_residual_of_noise(noise), self.pursuit.name)
            dictionary = replace(self, pursuit=pursuit)
        encoder, decoder = dictionary.encoder(signals.dtype, signals.device), self.find_decoder(signals.dtype)
        return signals.as_given(map_rows(signals, encoder, decoder, self.n_features, n_jobs, _decoded))

    def squared_residual_of_noise(self, noise: float) -> float:
        """Squared residual in feature space that white noise of this standard deviation leaves.

        Noise n moves the image of a signal by ``|n|^2`` where features are the signals. Under an RBF kernel
        ``<phi(x), phi(x + n)> = exp(-gamma |n|^2)``, so what is orthogonal to the clean image has the squared norm
        ``1 - exp(-2 gamma |n|^2)``.
        """
        feature_map, energy = self.feature_map, self.n_features * NOISE_GAIN**2 * noise * noise
        if feature_map.is_linear:
            return energy
        core = feature_map.kernel if isinstance(feature_map, KernelMap) else None
        if isinstance(core, RBF):
            gamma = core._gamma
        elif isinstance(feature_map, FourierMap):
            gamma = feature_map.gamma
        else:
            shown = "'precomputed'" if core is None else repr(family(core) or core)
            raise ValueError(
                f"The residual that noise leaves is not known for kernel={shown}: set residual_tol and leave noise at "
                f"None, or use 'rbf' or 'linear'."
            )
        return float(-np.expm1(-2.0 * gamma * energy))

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


def check_shapes(atoms: np.ndarray, gram: np.ndarray | None, size: int) -> None:
    """Refuse atoms that do not fit the number of features or the inner products."""
    # Compiled code does not check bounds.
    if atoms.shape[1] != size or (gram is not None and gram.shape != (len(atoms), len(atoms))):
        raise ValueError(
            f"The fitted atoms have shape {atoms.shape}, a signal has {size} features, and the atoms' inner products "
            f"have shape {getattr(gram, 'shape', None)}: these do not fit together."
        )


def _decoded(encoder: Encoder, decoder: Decoder, rows: Array) -> tuple[Array, Array]:
    features, correlations = encoder.correlate(rows)
    codes = encoder.codes(rows, correlations=correlations)
    return features if encoder.is_linear else correlations, decoder(densify(codes, encoder.n_atoms))


def _decoded_codes(coder: None, decoder: Decoder, codes: Array) -> tuple[Array, Array]:
    if not is_tensor(codes):
        assert_all_finite(codes, input_name="X")
    return codes, decoder(codes)
