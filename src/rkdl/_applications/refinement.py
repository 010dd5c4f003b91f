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
from rkdl._backends.arrays import cast, host, normalize_rows, where
from rkdl._backends.base import backend_of
from rkdl._coding.encoder import Pursuit
from rkdl._coding.passes import for_each_chunk
from rkdl._execution.blas import one_blas_thread, resolve_threads
from rkdl._execution.executor import Executor
from rkdl._execution.pool import side_by_side
from rkdl._features.maps import FeatureMap, LinearMap
from rkdl._learning.chunk_tasks import Features
from rkdl._utils.types import Array

# Maximum batch size, and minimum number of steps per pass where there are enough signals.
BATCH, STEPS = 1000, 16
SMALLEST_BATCH = 64
# Multiplications of a step from which on the classes are divided among threads.
MANY_MULTIPLICATIONS = 1 << 24
MOMENTUM = 0.9
# Factor of the sharpness during refinement, below one so that more signals near the decision boundary count.
DOUBT = 0.6
# Signals whose predicted probability of a class is this close to the truth are skipped.
NEGLIGIBLE = 0.01
# Numbers of float32 that the residuals of a batch in the classes of a block may be on a device.
BLOCK_NUMBERS = 1 << 26
# Bounds of the sharpness, for residuals at rounding level.
SHARPEST, DULLEST = 1e6, 1e-3


class Refinement:
    """Stochastic gradient descent on the atoms of all classes that minimises the cross-entropy of the residuals.

    `labels` (n_signals,) are indices of classes, negative for signals that are not learned from; features are in
    whitened coordinates, as are the atoms (n_k, r) of each class; `learning_rate` is relative to a least-squares step.

    Classes are moved in blocks: one by one on threads, and many at a time on a device, to which it takes longer to give
    an operation than the operation itself takes.
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
        self.feature_map = executor.to_signals(feature_map)
        self.sharpness, self.learning_rate = DOUBT * sharpness, learning_rate
        self.rng = rng
        # A pool of threads takes longer to start than a few small products take.
        n_multiplications = sum(len(own) ** 2 for own in whitened_atoms) * feature_map.size
        threads = resolve_threads(executor.n_jobs)
        self._threads = 1 if n_multiplications < MANY_MULTIPLICATIONS else threads
        # One row per signal, with a one in the column of its class.
        self._targets = executor.to_signals((labels[:, None] == np.arange(len(whitened_atoms))).astype(np.int8))
        self._counts = [len(own) for own in whitened_atoms]
        together = 1 if executor.signals.device is None else max(1, BLOCK_NUMBERS // (BATCH * feature_map.size))
        self._groups = [slice(first, first + together) for first in range(0, len(whitened_atoms), together)]
        # Atoms (classes, n, r) of each block, padded with zeros, and their numbers (classes, 1).
        self._blocks = executor.to_signals([_padded(whitened_atoms[group]) for group in self._groups])
        sizes = [np.array(self._counts[group], dtype=np.float64)[:, None] for group in self._groups]
        self._sizes = executor.to_signals(sizes)
        self._momenta = [0.0 * block for block in self._blocks]
        self._usage = [0.0 * block[:, :, 0] for block in self._blocks]
        self._features = self._cached_features()

    @property
    def whitened_atoms(self) -> list[np.ndarray]:
        """The current atoms (n_k, r) of each class, in host memory."""
        padded = [own for block in self._blocks for own in host(block)]
        return [own[:count] for own, count in zip(padded, self._counts, strict=True)]

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
            features[start:stop] = self.executor.worker(Features(self.feature_map))(signals.read(start, stop), None)[1]

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
        atoms = [pad_atoms(own) for block in self._blocks for own in cast(block, signals.dtype)]
        grams = side_by_side(lambda own: own @ own.T, atoms, self._threads)
        coder = ClassCoder(self.feature_map, atoms, grams, self.pursuits)
        picked = Picked(signals, batch)

        def task(number: int, start: int, stop: int) -> tuple[Any, list, list]:
            rows = self.executor.to_signals(batch[start:stop])
            given = picked.read(start, stop)
            features = self.feature_map.features(given) if self._features is None else self._features[rows]
            norms = self.feature_map.squared_norms(given)
            return _chunk_gradient(coder, self._groups, features, norms, self._targets[rows], self.sharpness)

        (loss, gradients, usage), *others = for_each_chunk(picked, coder.row_width, self.executor.n_jobs, task)
        for part, chunk_gradients, chunk_usage in others:
            loss += part
            for total, more in zip([*gradients, *usage], [*chunk_gradients, *chunk_usage], strict=True):
                total += more

        def move(number: int) -> Array:
            block, known, momentum = self._blocks[number], self._usage[number], self._momenta[number]
            n_atoms, size = block.shape[1:]
            # The diagonal of the least-squares Hessian: the energy of the atom's codes, averaged over batches. Without
            # branches, which would wait for a device.
            is_known = cast(known.any(1), np.float64)[:, None]
            known += (usage[number][:, :n_atoms] - known) * (1.0 - MOMENTUM * is_known)
            bound = known.clip(min=0.1 * known.sum(1)[:, None] / self._sizes[number])
            momentum *= MOMENTUM
            momentum += gradients[number][:, :n_atoms] / where(bound > 0.0, bound, np.inf)[:, :, None]
            moved = (block + rate * momentum).reshape(-1, size)
            return normalize_rows(moved, otherwise=block.reshape(-1, size)).reshape(block.shape)

        self._blocks = side_by_side(move, range(len(self._blocks)), self._threads)
        return loss


def _padded(atoms: Sequence[np.ndarray]) -> np.ndarray:
    """Atoms of several classes (classes, n, r), where classes with fewer than the others have rows of zeros."""
    n_atoms = max(len(own) for own in atoms)
    return np.stack([np.pad(own, ((0, n_atoms - len(own)), (0, 0))) for own in atoms])


def _chunk_gradient(
    coder: ClassCoder, groups: Sequence[slice], features: Array, norms: Array, targets: Array, sharpness: float
) -> tuple[Any, list[Array], list[Array]]:
    """Cross-entropy of a chunk, gradients of the atoms, and energies of their codes of signals of their class.

    `targets` (c, classes) are one for the class of a signal and zero for the others. Gradients (classes, n, r) and
    energies (classes, n) are in blocks of classes, the `groups`.
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
    own = targets * inverse[:, None]
    blocks = [
        backend.residual_gradients(
            [codes for codes, _ in found[group]], weights[:, group], least, own[:, group], features, coder.atoms[group]
        )
        for group in groups
    ]
    return loss, [gradients for gradients, _ in blocks], [usage for _, usage in blocks]


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
