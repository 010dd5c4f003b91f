"""The features of a method: signals, Fourier features or kernel values, and how their parameters are found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_array

from rkdl._backends.arrays import host, squared_norms
from rkdl._coding.encoder import Pursuit
from rkdl._data.signals import Signals
from rkdl._execution.executor import Executor
from rkdl._features.kernels import Kernel, check_definite, family, gamma_parameter, make_kernel
from rkdl._features.kernels.radial import Radial
from rkdl._features.maps import FeatureMap, FourierMap, GivenKernelMap, KernelMap, LinearMap
from rkdl._features.widths import KERNEL_SAMPLE, centre_of, find_gamma, spread_sample
from rkdl._learning.atom_updates import AtomUpdate
from rkdl._learning.diagnostics import check_kernel, check_scales
from rkdl._learning.kernel_vector_choice import choose_kernel_vectors
from rkdl._utils.inputs import well_formed
from rkdl._utils.types import Array

# Phases of Fourier features, relative to their differences, up to which float64 has digits for these.
MOST_OFFSET = 1e11


class FeatureChoice:
    """Base of the choices; its features are the signals themselves."""

    size = 0  # number of features, besides the signal itself
    ignores_missing = False  # whether NaN stands for a number that is not known
    runs_user_code = False

    @property
    def gamma_parameter(self) -> float | str | None:
        """The kernel's gamma, a number or the rule that finds it from the signals; None without a kernel."""
        return None

    def find_gamma(self, signals: Signals) -> float | None:
        """The kernel's gamma as a number."""
        gamma = self.gamma_parameter
        return None if gamma is None else find_gamma(gamma, signals)

    def sample_products(self, sample: np.ndarray) -> tuple[np.ndarray | None, bool]:
        """Inner products of some signals in feature space; None if the signals are kernel values themselves.

        And whether rounding squared norms of the signals to float32 changes the third digit of a kernel value.
        """
        return sample @ sample.T, False

    def first_map(self, signals: Signals, gamma: float | None, rng: np.random.RandomState) -> FeatureMap:
        """The feature map of the signals, where it needs no kernel vectors."""
        return LinearMap(signals.shape[1], self.ignores_missing)

    def fitted_map(self, n_features: int, vectors: Array, gamma: float | None) -> FeatureMap:
        """The feature map of a fitted model, from its kernel vectors or frequencies, if it has any."""
        return LinearMap(n_features, self.ignores_missing)

    def why_empty(self) -> str:
        """Why codes may be zeros, and what to do."""
        return "they are orthogonal to every atom. Use more atoms, or init='rpcholesky'."


@dataclass(frozen=True)
class SignalFeatures(FeatureChoice):
    """The signals themselves."""

    ignores_missing: bool = False


@dataclass(frozen=True)
class KernelChoice(FeatureChoice):
    """Kernel values; the parameters are those of the estimators."""

    kernel: str | Callable[..., Any]
    gamma: float | str
    degree: int
    coef0: float

    @property
    def gamma_parameter(self) -> float | str | None:
        return gamma_parameter(self.kernel, self.gamma)

    @property
    def runs_user_code(self) -> bool:  # type: ignore[override]
        return self.kernel._has_user_code if isinstance(self.kernel, Kernel) else callable(self.kernel)

    def make_kernel(self, sample: np.ndarray, gamma: float | None) -> Kernel:
        """The kernel with its numbers, for signals like those of the sample."""
        assert gamma is not None
        return make_kernel(self.kernel, gamma=gamma, degree=self.degree, coef0=self.coef0, sample=sample)

    def checked_kernel(self, signals: Signals, gamma: float | None) -> Kernel:
        """The kernel for these signals, tried on some of them."""
        sample = spread_sample(signals, KERNEL_SAMPLE)
        kernel = self.make_kernel(sample, gamma)
        check_definite(kernel, sample)
        check_kernel(kernel, sample)
        check_scales(kernel, sample)
        return kernel

    def sample_products(self, sample: np.ndarray) -> tuple[np.ndarray | None, bool]:
        kernel = self.make_kernel(sample, self.find_gamma(Signals(sample, sample.dtype)))
        widths = [leaf._gamma for leaf in kernel._leaves() if isinstance(leaf, Radial)]
        rounding = float(np.finfo(np.float32).eps) * float(squared_norms(sample).max())
        return kernel(sample, sample), max(widths, default=0.0) * rounding > 1e-3

    def fitted_map(self, n_features: int, vectors: Array, gamma: float | None) -> FeatureMap:
        return KernelMap(self.make_kernel(vectors, gamma), vectors)

    def why_empty(self) -> str:
        return self._why_it_vanishes("atoms", ["use more atoms"])

    def _why_it_vanishes(self, others: str, remedies: list[str]) -> str:
        widen = [] if self.runs_user_code else ["lower gamma" if family(self.kernel) else "widen the kernel"]
        words = [*widen, "scale the signals", "leave out extreme ones", *remedies]
        message = f"{', '.join(words[:-1])}, or {words[-1]}."
        return f"the kernel between them and the {others} vanishes. {message[0].upper()}{message[1:]}"


@dataclass(frozen=True)
class FourierFeatures(KernelChoice):
    """Random Fourier features of the RBF kernel."""

    size: int

    def first_map(self, signals: Signals, gamma: float | None, rng: np.random.RandomState) -> FourierMap:
        assert gamma is not None
        self.checked_kernel(signals, gamma)
        frequencies = np.sqrt(2.0 * gamma) * rng.standard_normal((-(-self.size // 2), signals.shape[1]))
        sample = spread_sample(signals, KERNEL_SAMPLE).astype(np.float64)
        centre = centre_of(sample)
        phases = np.abs((sample - centre) @ frequencies.T)
        if np.abs(frequencies @ centre).max() > MOST_OFFSET * max(1.0, float(np.median(phases))):
            raise ValueError(
                f"The signals are so far from zero, up to {np.abs(centre).max():.3g}, that their Fourier features lose "
                f"what tells them apart: subtract the mean of every feature."
            )
        return FourierMap(frequencies, gamma)

    def fitted_map(self, n_features: int, vectors: Array, gamma: float | None) -> FeatureMap:
        assert gamma is not None
        return FourierMap(vectors, gamma)


@dataclass(frozen=True)
class KernelFeatures(KernelChoice):
    """Kernel values with a few kernel vectors, which are chosen by a rule or given."""

    vectors: str | ArrayLike
    linear_pursuit: Pursuit  # of linear codes on kernel vectors, with any number of non-zeros
    size: int

    @property
    def dictionary_pursuit(self) -> Pursuit:
        """Of linear codes on kernel vectors that are learned as a dictionary."""
        return self.linear_pursuit._replace(n_nonzero=min(self.linear_pursuit.n_nonzero, self.size))

    def first_vectors(
        self, executor: Executor, kernel: Kernel, rng: np.random.RandomState, atom_update: AtomUpdate
    ) -> np.ndarray:
        """Kernel vectors (p, m), in float64."""
        if isinstance(self.vectors, str):
            return choose_kernel_vectors(self, executor, kernel, rng, atom_update)
        given = well_formed(host(self.vectors), "kernel_vectors")
        vectors = check_array(given, dtype=np.float64, input_name="kernel_vectors", copy=True)
        n_features = executor.signals.shape[1]
        if vectors.shape[1] != n_features:
            raise ValueError(f"kernel_vectors has {vectors.shape[1]} features and X has {n_features}: they must agree.")
        return vectors

    def check_differentiable(self, kernel: Kernel, name: str) -> None:
        """Refuse a kernel without a gradient, along which kernel vectors would move."""
        if not kernel.differentiable:
            raise ValueError(
                f"{name} moves the kernel vectors along the kernel's derivative, and kernel={self.kernel!r} has none: "
                f"use a Kernel with gradient(X, Y, weights), 'rbf', 'poly' or 'linear', or use RKDL, which needs none."
            )

    def why_empty(self) -> str:
        is_kmeans = isinstance(self.vectors, str) and self.vectors == "kmeans"
        return self._why_it_vanishes("kernel vectors", [] if is_kmeans else ["choose kernel_vectors='kmeans'"])


@dataclass(frozen=True)
class EverySignal(KernelChoice):
    """Kernel values with every signal: full kernel dictionary learning."""

    @property
    def is_precomputed(self) -> bool:
        """Whether signals are given by their kernel values."""
        return isinstance(self.kernel, str) and self.kernel == "precomputed"

    @property
    def gamma_parameter(self) -> float | str | None:
        return None if self.is_precomputed else super().gamma_parameter

    def sample_products(self, sample: np.ndarray) -> tuple[np.ndarray | None, bool]:
        return (None, False) if self.is_precomputed else super().sample_products(sample)

    def fitted_map(self, n_features: int, vectors: Array, gamma: float | None) -> FeatureMap:
        return GivenKernelMap(n_features) if self.is_precomputed else super().fitted_map(n_features, vectors, gamma)
