"""Discriminative refinement of class dictionaries, and probabilities from their residuals.

`Refinement` minimises the cross-entropy of ``softmax(-sharpness * residuals)`` by stochastic gradient descent. For
codes ``z`` that are least squares on their support, the residual ``R = |f - z A|^2`` has the derivative
``dR/dA = -2 z' (f - z A)``, so the gradient is a sum over signals of codes times residuals, weighted by the error of
the predicted probability.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.optimize import minimize_scalar

from rkdl._applications.class_dictionaries import ClassCoder, Picked, SharedFeatures
from rkdl._backends.arrays import cast, host, joined, normalize_rows, stacked, where
from rkdl._backends.base import backend_of
from rkdl._coding.passes import for_each_chunk
from rkdl._execution.blas import one_blas_thread
from rkdl._execution.executor import Executor
from rkdl._features.maps import LinearMap
from rkdl._learning.chunk_tasks import Features
from rkdl._utils.types import Array

# The features of all signals are stored if they take no more than this.
FEATURE_BYTES = 512 << 20
# Maximum batch size, and minimum number of steps per pass where there are enough signals.
BATCH, STEPS = 1000, 16
SMALLEST_BATCH = 64
MOMENTUM = 0.9
# Factor of the sharpness during refinement, below one so that more signals near the decision boundary count.
DOUBT = 0.6
# Signals whose predicted probability of a class is this close to the truth are skipped.
NEGLIGIBLE = 0.01
# Bounds of the sharpness, for residuals at rounding level.
SHARPEST, DULLEST = 1e6, 1e-3


class Refinement:
    """Stochastic gradient descent on the atoms of all classes that minimises the cross-entropy of the residuals.

    `labels` (n_signals,) are indices of classes, negative for signals that are not learned from; features are in
    whitened coordinates, as are the atoms (n_k, r) of each class; `learning_rate` is relative to a least-squares step.
    """

    def __init__(
        self,
        executor: Executor,
        labels: np.ndarray,
        features: SharedFeatures,
        whitened_atoms: Sequence[np.ndarray],
        sharpness: float,
        learning_rate: float,
        rng: np.random.RandomState,
    ) -> None:
        self.executor, self.labels, self.pursuit, self.rng = executor, labels, features.pursuit, rng
        self.feature_map = executor.to_signals(features.feature_map)
        self.sharpness, self.learning_rate = DOUBT * sharpness, learning_rate
        self._counts = [len(own) for own in whitened_atoms]
        sizes = np.array(self._counts, dtype=np.float64)[:, None]
        # One row per signal, with a one in the column of its class.
        targets = (labels[:, None] == np.arange(len(sizes))).astype(np.int8)
        # Atoms (classes, n, r), padded with zeros, and the number of each class.
        self._atoms, self._sizes, self._targets = executor.to_signals((stacked(whitened_atoms), sizes, targets))
        self._momentum = 0.0 * self._atoms
        # Energies (classes, n) of the atoms' codes, averaged over batches.
        self._usage = 0.0 * self._atoms[:, :, 0]
        self._features = self._cached_features()

    @property
    def whitened_atoms(self) -> list[np.ndarray]:
        """The current atoms (n_k, r) of each class, in host memory."""
        return [own[:count] for own, count in zip(host(self._atoms), self._counts, strict=True)]

    def _cached_features(self) -> Array | None:
        """The features of all signals where these are; None if they are the signals or do not fit."""
        signals = self.executor.signals
        n_bytes = signals.shape[0] * self.feature_map.size * signals.dtype.itemsize
        has_room = signals.is_in_memory and n_bytes <= self.executor.cache_room(FEATURE_BYTES)
        if isinstance(self.feature_map, LinearMap) or not has_room:
            return None
        return joined(self.executor.map_reduce(Features(self.feature_map))[1])

    def run_pass(self, remaining: float, share: float) -> float:
        """One pass over the signals in random batches; returns their mean cross-entropy, each before its step.

        The learning rate decreases linearly from `remaining` by `share` over the pass, both relative to its start.
        """
        order = self.rng.permutation(np.flatnonzero(self.labels >= 0))
        size = min(BATCH, max(SMALLEST_BATCH, len(order) // STEPS))
        n_batches = max(1, round(len(order) / size))
        loss = 0.0
        with one_blas_thread():
            for number, batch in enumerate(np.array_split(order, n_batches)):
                rate = self.learning_rate * (remaining - share * number / n_batches)
                loss += self._step(np.sort(batch), rate)
        return float(loss) / len(order)

    def _step(self, batch: np.ndarray, rate: float) -> Array:
        """One gradient step on a batch; returns the sum of its cross-entropies, on a device a tensor."""
        atoms = cast(self._atoms, self.executor.signals.dtype)
        coder = ClassCoder.of(self.feature_map, atoms, [own @ own.T for own in atoms], self.pursuit)
        picked, rows = Picked(self.executor.signals, batch), self.executor.to_signals(batch)

        def work(given: Array, rows: Array) -> tuple[tuple, None]:
            features = self.feature_map.features(given) if self._features is None else self._features[rows]
            norms = self.feature_map.squared_norms(given)
            return _chunk_gradient(coder, features, norms, self._targets[rows], self.sharpness), None

        def task(number: int, start: int, stop: int) -> tuple:
            return self.executor.worker(work)(picked.read(start, stop), rows[start:stop])[0]

        found = for_each_chunk(picked, coder.row_width, self.executor.n_jobs, task)
        loss, gradients, usage = (sum(parts[1:], start=parts[0]) for parts in zip(*found, strict=True))
        self._move(gradients, usage, rate)
        return loss

    def _move(self, gradients: Array, usage: Array, rate: float) -> None:
        """Descend along the gradients with momentum; without branches, which would wait for a device."""
        known, shape = self._usage, self._atoms.shape
        is_known = cast(known.any(1), np.float64)[:, None]
        known += (usage - known) * (1.0 - MOMENTUM * is_known)
        # The diagonal of the least-squares Hessian.
        bound = known.clip(min=0.1 * known.sum(1)[:, None] / self._sizes)
        self._momentum *= MOMENTUM
        self._momentum += gradients / where(bound > 0.0, bound, np.inf)[:, :, None]
        before, moved = (atoms.reshape(-1, shape[2]) for atoms in (self._atoms, self._atoms + rate * self._momentum))
        self._atoms = normalize_rows(moved, otherwise=before).reshape(shape)


def _chunk_gradient(
    coder: ClassCoder, features: Array, norms: Array, targets: Array, sharpness: float
) -> tuple[Array, Array, Array]:
    """Cross-entropy of a chunk, gradients of the atoms, and energies of their codes of signals of their class.

    `targets` (c, classes) are one for the class of a signal and zero for the others. Gradients are (classes, n, r) and
    energies (classes, n).
    """
    backend = backend_of(features)
    codes, residuals = zip(*coder.codes(features, norms), strict=True)
    inverse = 1.0 / backend.where(norms > 0.0, norms, 1.0)
    logs = _log_probabilities(backend.xp.stack(residuals).T * inverse[:, None], sharpness)
    # First, since the logarithms are then overwritten.
    loss = -(targets * logs).sum()
    # Relative to the norm, so that all signals have the same weight.
    weights = backend.as_like((targets - backend.exp(logs)) * inverse[:, None], features)
    least = backend.as_like(NEGLIGIBLE * inverse, features)
    atoms = [own.atoms for own in coder.encoders]
    sums = backend.residual_gradients(list(codes), weights, least, targets * inverse[:, None], features, atoms)
    return loss, *sums


def probabilities(residuals: Array, sharpness: float) -> Array:
    """``softmax(-sharpness * residuals)`` per row, in float64."""
    return backend_of(residuals).exp(_log_probabilities(residuals, sharpness))


def _log_probabilities(residuals: Array, sharpness: float) -> Array:
    return backend_of(residuals).log_softmax(-sharpness * cast(residuals, np.float64))


def fit_sharpness(residuals: np.ndarray, labels: np.ndarray) -> float:
    """The sharpness that maximises the likelihood of ``softmax(-sharpness * residuals)`` on held-out signals.

    `residuals` (n, classes) are relative. The labels are smoothed as in Platt scaling, so that a small sample without
    errors does not give certainty. Without signals it is ten.
    """
    if len(labels) == 0:
        return 10.0
    n_classes = residuals.shape[1]
    doubt = 1.0 / (len(labels) + 2.0)

    def loss(exponent: float) -> float:
        logs = _log_probabilities(residuals, float(np.exp(exponent)))
        right = logs[np.arange(len(labels)), labels]
        wrong = (logs.sum(axis=1) - right) / (n_classes - 1)
        return -float(np.mean((1.0 - doubt) * right + doubt * wrong))

    bounds = (float(np.log(DULLEST)), float(np.log(SHARPEST)))
    return float(np.exp(minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-6}).x))
