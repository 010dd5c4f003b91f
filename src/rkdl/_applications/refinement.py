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

from rkdl._applications.class_dictionaries import FEATURE_BYTES, ClassCoder, Picked, pad_atoms
from rkdl._backends.cpu.statistics import accumulate_gradient
from rkdl._coding.encoder import Pursuit, for_each_chunk
from rkdl._data.signals import Signals
from rkdl._execution.blas import one_blas_thread, resolve_threads
from rkdl._execution.pool import side_by_side
from rkdl._features.maps import FeatureMap, LinearMap
from rkdl._learning.atom_updates import normalize_rows

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
        signals: Signals,
        labels: np.ndarray,
        feature_map: FeatureMap,
        whitened_atoms: Sequence[np.ndarray],
        pursuits: Sequence[Pursuit],
        *,
        sharpness: float,
        learning_rate: float,
        rng: np.random.RandomState,
        n_jobs: int | None,
    ) -> None:
        self.signals, self.labels, self.feature_map = signals, labels, feature_map
        self.whitened_atoms, self.pursuits = list(whitened_atoms), list(pursuits)
        self.sharpness, self.learning_rate = DOUBT * sharpness, learning_rate
        self.rng, self.n_jobs = rng, n_jobs
        self._threads = resolve_threads(n_jobs)
        self._momenta = [np.zeros_like(own) for own in whitened_atoms]
        self._usage = [np.zeros(len(own)) for own in whitened_atoms]
        self._features: np.ndarray | None = None
        n_signals = signals.shape[0]
        size = n_signals * feature_map.size * signals.dtype.itemsize
        if not isinstance(feature_map, LinearMap) and signals.is_in_memory and size <= FEATURE_BYTES:
            self._features = np.empty((n_signals, feature_map.size), dtype=signals.dtype)
            width = signals.shape[1] + 2 * feature_map.size
            for_each_chunk(signals, width, n_jobs, self._keep)

    def _keep(self, number: int, start: int, stop: int) -> None:
        assert self._features is not None
        self._features[start:stop] = self.feature_map.features(self.signals.read(start, stop))

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
        return loss / len(order)

    def _step(self, batch: np.ndarray, rate: float) -> float:
        """One gradient step on a batch; returns the sum of its cross-entropies."""
        dtype = self.signals.dtype
        atoms = [pad_atoms(own.astype(dtype)) for own in self.whitened_atoms]
        grams = side_by_side(lambda own: own @ own.T, atoms, self._threads)
        coder = ClassCoder(self.feature_map, atoms, grams, self.pursuits)
        picked = Picked(self.signals, batch)

        def task(number: int, start: int, stop: int) -> tuple[float, list, list]:
            rows = batch[start:stop]
            signals = picked.read(start, stop)
            features = self.feature_map.features(signals) if self._features is None else self._features[rows]
            norms = self.feature_map.squared_norms(signals)
            return _chunk_gradient(coder, features, norms, self.labels[rows], self.sharpness)

        (loss, gradients, usage), *others = for_each_chunk(picked, coder.row_width, self.n_jobs, task)
        for part, chunk_gradients, chunk_usage in others:
            loss += part
            for total, more in zip([*gradients, *usage], [*chunk_gradients, *chunk_usage], strict=True):
                total += more

        def move(k: int) -> np.ndarray:
            count = len(self.whitened_atoms[k])
            # The diagonal of the least-squares Hessian: the energy of the atom's codes, averaged over batches.
            known = self._usage[k]
            known += (usage[k][:count] - known) * (1.0 - MOMENTUM if known.any() else 1.0)
            floor = 0.1 * float(known.mean())
            momentum = self._momenta[k]
            momentum *= MOMENTUM
            if floor > 0.0:
                momentum += gradients[k][:count] / np.maximum(known, floor)[:, None]
            return normalize_rows(self.whitened_atoms[k] + rate * momentum, otherwise=self.whitened_atoms[k])

        self.whitened_atoms[:] = side_by_side(move, range(len(self.whitened_atoms)), self._threads)
        return loss


def _chunk_gradient(
    coder: ClassCoder, features: np.ndarray, norms: np.ndarray, labels: np.ndarray, sharpness: float
) -> tuple[float, list[np.ndarray], list[np.ndarray]]:
    """Cross-entropy of a chunk, and per class the gradient of the atoms and the energy of their codes in the class."""
    found = list(coder.codes(features, norms))
    squares = np.stack([residuals for _, residuals in found], axis=1)
    inverse = 1.0 / np.where(norms > 0.0, norms, 1.0)
    logs = _log_probabilities(squares * inverse[:, None], sharpness)
    loss = -float(logs[np.arange(len(labels)), labels].sum())
    weights = -np.exp(logs)
    weights[np.arange(len(labels)), labels] += 1.0
    # Relative to the norm, so that all signals have the same weight.
    weights = (weights * inverse[:, None]).astype(features.dtype)
    least = (NEGLIGIBLE * inverse).astype(features.dtype)
    gradients, usage = [], []
    for k, (codes, _) in enumerate(found):
        gradient, used = np.zeros_like(coder.atoms[k]), np.zeros(len(coder.atoms[k]))
        own = np.where(labels == k, inverse, 0.0)
        own_weights = np.ascontiguousarray(weights[:, k])
        accumulate_gradient(*codes, own_weights, least, own, features, coder.atoms[k], gradient, used)
        gradients.append(gradient)
        usage.append(used)
    return loss, gradients, usage


def probabilities(residuals: np.ndarray, sharpness: float) -> np.ndarray:
    """``softmax(-sharpness * residuals)`` per row, in float64."""
    return np.exp(_log_probabilities(residuals, sharpness))


def _log_probabilities(residuals: np.ndarray, sharpness: float) -> np.ndarray:
    logits = -sharpness * residuals.astype(np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    logits -= np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return logits


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
