"""Discriminative refinement of class dictionaries, and probabilities from their residuals.

`Refinement` minimises the cross-entropy of ``softmax(-sharpness * residuals)`` by stochastic gradient descent. For
codes ``z`` that are least squares on their support, the residual ``R = |f - z A|^2`` has the derivative
``dR/dA = -2 z' (f - z A)``, so the gradient is a sum over signals of codes times residuals, weighted by the error of
the predicted probability.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from rkdl._applications.class_dictionaries import FEATURE_BYTES, ClassCoder, Picked, pad_atoms
from rkdl._backends.arrays import cast, where
from rkdl._backends.base import backend_of
from rkdl._coding.encoder import Pursuit, for_each_chunk
from rkdl._execution.blas import one_blas_thread, resolve_threads
from rkdl._execution.executor import Executor
from rkdl._execution.pool import side_by_side
from rkdl._features.maps import FeatureMap, LinearMap
from rkdl._learning.atom_updates import normalize_rows
from rkdl._utils.types import Array

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
    The current atoms are `whitened_atoms`.
    """

    def __init__(
        self,
        executor: Executor,
        labels: np.ndarray,
        feature_map: FeatureMap,
        whitened_atoms: Sequence[np.ndarray],
        pursuits: Sequence[Pursuit],
        *,
        sharpness: float,
        learning_rate: float,
        rng: np.random.RandomState,
    ) -> None:
        self.executor, self.labels, self.pursuits = executor, labels, list(pursuits)
        self.feature_map, self.whitened_atoms = executor.to_signals((feature_map, list(whitened_atoms)))
        self.sharpness, self.learning_rate = DOUBT * sharpness, learning_rate
        self.rng = rng
        self._threads = resolve_threads(executor.n_jobs)
        # One row per signal, with a one in the column of its class.
        self._targets = executor.to_signals((labels[:, None] == np.arange(len(whitened_atoms))).astype(np.int8))
        self._momenta = [0.0 * own for own in self.whitened_atoms]
        self._usage = [0.0 * own[:, 0] for own in self.whitened_atoms]
        self._features = self._cached_features()

    def _cached_features(self) -> Array | None:
        """The features of all signals where these are; None if they are the signals or do not fit."""
        signals, size = self.executor.signals, self.feature_map.size
        n_bytes = signals.shape[0] * size * signals.dtype.itemsize
        has_room = signals.is_in_memory and n_bytes <= self.executor.cache_room(FEATURE_BYTES)
        if isinstance(self.feature_map, LinearMap) or not has_room:
            return None
        like = self.executor.to_signals(np.empty(0, dtype=signals.dtype))
        features = backend_of(like).full((signals.shape[0], size), 0.0, like)

        def keep(number: int, start: int, stop: int) -> None:
            features[start:stop] = self.feature_map.features(signals.read(start, stop))

        for_each_chunk(signals, signals.shape[1] + 2 * size, self.executor.n_jobs, keep)
        return features

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

    def _step(self, batch: np.ndarray, rate: float) -> Any:
        """One gradient step on a batch; returns the sum of its cross-entropies, on a device a tensor."""
        signals = self.executor.signals
        atoms = [pad_atoms(cast(own, signals.dtype)) for own in self.whitened_atoms]
        grams = side_by_side(lambda own: own @ own.T, atoms, self._threads)
        coder = ClassCoder(self.feature_map, atoms, grams, self.pursuits)
        picked = Picked(signals, batch)

        def task(number: int, start: int, stop: int) -> tuple[Any, list, list]:
            rows = self.executor.to_signals(batch[start:stop])
            given = picked.read(start, stop)
            features = self.feature_map.features(given) if self._features is None else self._features[rows]
            norms = self.feature_map.squared_norms(given)
            return _chunk_gradient(coder, features, norms, self._targets[rows], self.sharpness)

        (loss, gradients, usage), *others = for_each_chunk(picked, coder.row_width, self.executor.n_jobs, task)
        for part, chunk_gradients, chunk_usage in others:
            loss += part
            for total, more in zip([*gradients, *usage], [*chunk_gradients, *chunk_usage], strict=True):
                total += more

        def move(k: int) -> Array:
            count = len(self.whitened_atoms[k])
            # The diagonal of the least-squares Hessian: the energy of the atom's codes, averaged over batches. Without
            # branches, which would wait for a device.
            known = self._usage[k]
            known += (usage[k][:count] - known) * (1.0 - MOMENTUM * cast(known.any(), np.float64))
            bound = known.clip(min=0.1 * known.mean())
            momentum = self._momenta[k]
            momentum *= MOMENTUM
            momentum += gradients[k][:count] / where(bound > 0.0, bound, np.inf)[:, None]
            return normalize_rows(self.whitened_atoms[k] + rate * momentum, otherwise=self.whitened_atoms[k])

        self.whitened_atoms[:] = side_by_side(move, range(len(self.whitened_atoms)), self._threads)
        return loss


def _chunk_gradient(
    coder: ClassCoder, features: Array, norms: Array, targets: Array, sharpness: float
) -> tuple[Any, list[Array], list[Array]]:
    """Cross-entropy of a chunk, and per class the gradient of the atoms and the energy of their codes in the class.

    `targets` (c, classes) are one for the class of a signal and zero for the others.
    """
    backend = backend_of(features)
    found = list(coder.codes(features, norms))
    squares = backend.stack([residuals for _, residuals in found]).T
    inverse = 1.0 / backend.where(norms > 0.0, norms, 1.0)
    logs = _log_probabilities(squares * inverse[:, None], sharpness)
    loss = -(targets * logs).sum()
    # Relative to the norm, so that all signals have the same weight.
    weights = backend.as_like((targets - backend.exp(logs)) * inverse[:, None], features)
    least = backend.as_like(NEGLIGIBLE * inverse, features)
    gradients, usage = [], []
    for k, (codes, _) in enumerate(found):
        own = targets[:, k] * inverse
        gradient, used = codes.residual_gradient(weights[:, k], least, own, features, coder.atoms[k])
        gradients.append(gradient)
        usage.append(used)
    return loss, gradients, usage


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
