"""Kernel vectors, widths and two readings learned together for a label, by minibatches.

With the readings of `rkdl._applications.readings` in whitened coordinates ``phi(x) = L^-1 k(x)``, where
``K(D, D) + ridge = L L'``, and the derivative u of the loss with respect to the scores (for the explained energies with
their factor b), at fixed supports, on which the codes z are least squares:

    dW = phi' u     dA_c = 2 (u_c z)' (phi - z A_c)     dphi = u W' + 2 sum_c u_c z A_c     dk = dphi L^-1
    w = dk * k      dd_i = 2 g sum_t w_ti (x_t - d_i)   dlog g = -g sum_ti w_ti (x_t - d_i)^2

L is held for a while: k is then all that moves with D and g. After that W and A are written in the coordinates of the
new L, as the same combinations of kernel vectors. Each reading has a loss of its own, so that none leans on the other,
and held-out signals say what each is worth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from rkdl._applications.readings import TaskModel, pursue_classes
from rkdl._backends.arrays import host, normalize_rows
from rkdl._backends.base import backend_of
from rkdl._utils.types import Array

# Chosen by means over all tables of benchmarks/tables.py, never by a single one.
STEP, WIDTH_STEP = 3e-2, 1e-2
# Beyond so many features their widths move less: pixels are learned by heart through them.
MANY_FEATURES = 64
DECAY = 0.1  # of the linear reading, relative to the step
RIDGE = 1e-3
SMOOTHING = 0.05
FIRST_SHARPNESS = 1.0
EPOCHS, FEWEST_STEPS, MOST_STEPS = 40, 400, 3000
SMALLEST_BATCH, LARGEST_BATCH, BATCH_SHARE = 64, 512, 1 / 128
HELD_STEPS = 50  # between two factorisations of the metric
WARM_UP = 0.3  # share of the steps in which they grow
MOMENTUM, SECOND_MOMENTUM = 0.9, 0.999


# From scores (c, k) and targets (c, k): the loss of every signal (c,), and its derivative (c, k).
Loss = Callable[[Array, Array], tuple[Array, Array]]


def cross_entropy(scores: Array, targets: Array) -> tuple[Array, Array]:
    """Of targets whose rows add up to one."""
    backend = backend_of(scores)
    logs = backend.log_softmax(scores)
    return -(targets * logs).sum(1), backend.exp(logs) - targets


def squared_error(scores: Array, targets: Array) -> tuple[Array, Array]:
    """Half the squared difference."""
    errors = scores - targets
    return 0.5 * (errors * errors).sum(1), errors


def smoothed(labels: np.ndarray, n_classes: int, dtype: np.dtype) -> np.ndarray:
    """Targets (n, k) of the cross-entropy: nearly one for the class of a signal, the rest shared."""
    targets = np.full((len(labels), n_classes), SMOOTHING / n_classes, dtype=dtype)
    targets[np.arange(len(labels)), labels] += 1.0 - SMOOTHING
    return targets


class Examples(NamedTuple):
    """What is learned from: ``rows(batch)`` reads signals, in the unit of the learning."""

    rows: Callable[[Array], Array]
    targets: Array  # (n, k)
    weights: Array  # (n,), one in the mean


@dataclass(frozen=True)
class Task:
    """What is to be learned: outputs, atoms per class (0 for no dictionaries), non-zeros, and the loss."""

    n_outputs: int
    loss: Loss
    n_atoms: int = 0
    n_nonzero: int = 0
    decay: float = DECAY


def plan(n_signals: int) -> tuple[int, int]:
    """Number of steps and signals per step."""
    batch = min(n_signals, int(min(max(SMALLEST_BATCH, n_signals * BATCH_SHARE), LARGEST_BATCH)))
    return int(min(max(EPOCHS * n_signals / batch, FEWEST_STEPS), MOST_STEPS)), batch


class TaskLearning:
    """The state of the learning: parameters, their averages of gradients, and the metric that is held.

    All parameters lie in one vector, of which `parts` are views, as are `slopes` of the vector of the gradient.
    """

    def __init__(self, task: Task, vectors: Array, gamma: Array) -> None:
        size, n_features = vectors.shape
        self.task, self.backend = task, backend_of(vectors)
        shapes = {
            "vectors": (size, n_features),
            "log_widths": (n_features,),
            "linear": (size, task.n_outputs),
            "intercept": (task.n_outputs,),
            "atoms": (task.n_outputs, task.n_atoms, size),
            "log_sharpness": (1,),
        }
        self._shapes = shapes
        count = sum(int(np.prod(shape)) for shape in shapes.values())
        self._vector, self._gradient, self._first, self._second, self._rates = (
            self.backend.full((count,), value, vectors) for value in (0.0, 0.0, 0.0, 0.0, STEP)
        )
        self._view()
        self.rates["log_widths"][:] = WIDTH_STEP * min(1.0, MANY_FEATURES / n_features)
        self.parts["vectors"][:] = vectors
        self.parts["log_widths"] += self.backend.as_like(np.log(host(gamma)), vectors)
        self.parts["log_sharpness"][:] = float(np.log(FIRST_SHARPNESS))
        self.n_steps = 0
        self._unwhiten: Array = None
        self._factorise()

    def _view(self) -> None:
        vectors = self._vector, self._gradient, self._rates
        self.parts, self.slopes, self.rates = (_views(vector, self._shapes) for vector in vectors)

    def __getstate__(self) -> dict[str, Any]:
        # Copies of views would be views of nothing.
        return {
            name: value for name, value in vars(self).items() if name not in ("parts", "slopes", "rates", "backend")
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.backend = backend_of(self._vector)
        self._view()

    def start_atoms(self, examples: Examples, rng: np.random.RandomState) -> None:
        """Signals of each class as its first atoms, and random ones where there are too few."""
        atoms = self.parts["atoms"]
        if not self.task.n_atoms:
            return
        labels = host(examples.targets.argmax(1))
        count, size = atoms.shape[1:]
        for label, own in enumerate(atoms):
            rows = rng.permutation(np.flatnonzero(labels == label))[:count]
            drawn = self.backend.as_like(rng.standard_normal((count, size)), atoms)
            if len(rows):
                drawn[: len(rows)] = self.features(examples.rows(rows))[0]
            own[:] = normalize_rows(drawn)

    def restore(self, dual: Array, intercept: Array, combinations: Array) -> None:
        """Take the readings of a fitted model, as combinations of kernel values and of kernel vectors."""
        backend, parts = self.backend, self.parts
        whiten = backend.xp.linalg.inv(self._unwhiten)
        parts["linear"][:] = backend.as_like(whiten @ backend.cast(dual, np.float64), parts["linear"])
        parts["intercept"][:] = backend.as_like(intercept, parts["intercept"])
        if self.task.n_atoms:
            atoms = backend.cast(combinations, np.float64) @ whiten.T
            parts["atoms"][:] = backend.as_like(atoms, parts["atoms"])

    def _factorise(self) -> None:
        """Hold the metric of the current kernel vectors; what is read stays the same combination of them."""
        backend, parts = self.backend, self.parts
        vectors = backend.cast(parts["vectors"] * backend.xp.exp(0.5 * parts["log_widths"]), np.float64)
        matrix = backend.rbf(vectors, vectors, 1.0)
        matrix = 0.5 * (matrix + matrix.T)
        backend.fill_diagonal(matrix, matrix.diagonal() * 0.0 + 1.0 + RIDGE)
        factor = backend.xp.linalg.cholesky(matrix)
        if self.n_steps:
            # Old coordinates to those of the new factor: L' L_0^-T, for combinations as rows.
            change = self._unwhiten.T @ factor
            parts["linear"][:] = backend.as_like(change.T @ backend.cast(parts["linear"], np.float64), vectors)
            for own in parts["atoms"]:
                own[:] = backend.as_like(normalize_rows(backend.cast(own, np.float64) @ change), vectors)
        self._unwhiten = backend.xp.linalg.inv(factor).T
        self._whitening = backend.as_like(self._unwhiten, parts["vectors"])

    def features(self, rows: Array) -> tuple[Array, Array, Array, Array]:
        """Whitened features, kernel values, and signals and kernel vectors times the roots of the widths."""
        scales = self.backend.xp.exp(0.5 * self.parts["log_widths"])
        signals, vectors = rows * scales, self.parts["vectors"] * scales
        values = self.backend.rbf(signals, vectors, 1.0)
        return values @ self._whitening, values, signals, vectors

    def find_gradient(self, rows: Array, targets: Array, weights: Array) -> Array:
        """Set `slopes` to the gradient of the mean loss of a batch, which is returned; on a device a tensor."""
        parts, slopes = self.parts, self.slopes
        features, values, signals, vectors = self.features(rows)
        losses, errors = self.task.loss(features @ parts["linear"] + parts["intercept"], targets)
        errors = errors * weights[:, None]
        slopes["linear"][:] = features.T @ errors
        slopes["intercept"][:] = errors.sum(0)
        upstream = errors @ parts["linear"].T
        if self.task.n_atoms:
            own_losses, through = self._dictionary_gradient(features, targets, weights)
            losses, upstream = losses + own_losses, upstream + through
        self._vector_gradient((upstream @ self._whitening.T) * values, signals, vectors)
        self._gradient /= len(rows)
        return (losses * weights).sum() / len(rows)

    def _dictionary_gradient(self, features: Array, targets: Array, weights: Array) -> tuple[Array, Array]:
        """Losses (c,) of the explained energies and their derivative with respect to the features (c, p)."""
        atoms, xp = self.parts["atoms"], self.backend.xp
        flat, count = atoms.reshape(-1, atoms.shape[2]), len(features)
        correlations = (features @ flat.T).reshape(count, *atoms.shape[:2])
        codes = pursue_classes(correlations, atoms @ xp.swapaxes(atoms, 1, 2), self.task.n_nonzero)
        explained, sharpness = (codes * correlations).sum(2), xp.exp(self.parts["log_sharpness"])
        losses, errors = self.task.loss(explained * sharpness, targets)
        errors = errors * (weights[:, None] * sharpness)
        weighted = codes * (2.0 * errors)[:, :, None]
        products = xp.swapaxes(xp.swapaxes(weighted, 0, 1), 1, 2) @ xp.swapaxes(codes, 0, 1)
        self.slopes["atoms"][:] = (weighted.reshape(count, -1).T @ features).reshape(atoms.shape) - products @ atoms
        self.slopes["log_sharpness"][:] = (errors * explained).sum()
        return losses, weighted.reshape(count, -1) @ flat

    def _vector_gradient(self, weights: Array, signals: Array, vectors: Array) -> None:
        """Gradients of the kernel vectors and the widths, of derivatives times kernel values (c, p)."""
        scales = self.backend.xp.exp(0.5 * self.parts["log_widths"])
        sums, of_vectors = weights.T @ signals, weights.sum(0)
        self.slopes["vectors"][:] = (sums - of_vectors[:, None] * vectors) * (2.0 * scales)
        crossed = 2.0 * (vectors * sums).sum(0)
        self.slopes["log_widths"][:] = crossed - weights.sum(1) @ (signals * signals) - of_vectors @ (vectors * vectors)

    def descend(self, rate: float) -> None:
        """One step of Adam along the gradient, with decay of the linear reading; atoms keep unit norm."""
        self.n_steps += 1
        shares = [1.0 - momentum**self.n_steps for momentum in (MOMENTUM, SECOND_MOMENTUM)]
        self.parts["linear"][:] *= 1.0 - rate * STEP * self.task.decay
        moments = self._first, self._second, MOMENTUM, SECOND_MOMENTUM
        self.backend.adam_step(self._vector, self._gradient, *moments, self._rates, rate / shares[0], shares[1])
        atoms = self.parts["atoms"]
        if self.task.n_atoms:
            atoms /= ((atoms * atoms).sum(2) ** 0.5).clip(min=1e-6)[:, :, None]
        if self.n_steps % HELD_STEPS == 0:
            self._factorise()

    def run(
        self, examples: Examples, n_steps: int, batch: int, rng: np.random.RandomState, constant: float | None = None
    ) -> Iterator[Array]:
        """Steps over random batches; yields the mean loss of each. Steps grow and shrink, or are `constant`."""
        batches = _batches(len(examples.targets), batch, rng)
        for number, chosen in zip(range(n_steps), batches, strict=False):
            done = number / n_steps
            falling = 0.5 * (1.0 + np.cos(np.pi * (done - WARM_UP) / (1.0 - WARM_UP)))
            places = self.backend.from_host(chosen, examples.targets)
            loss = self.find_gradient(examples.rows(chosen), examples.targets[places], examples.weights[places])
            rate = (number + 1) / (WARM_UP * n_steps) if done < WARM_UP else falling
            self.descend(float(rate) if constant is None else constant)
            yield loss

    @property
    def sharpness(self) -> float:
        """The factor of the explained energies."""
        return float(np.exp(float(self.parts["log_sharpness"][0])))

    def model(self, centre: np.ndarray, variances: np.ndarray) -> TaskModel:
        """What was learned, of signals from this centre with these variances of their features."""
        self._factorise()
        backend, parts = self.backend, self.parts
        scales = backend.xp.exp(0.5 * parts["log_widths"])
        wide = {name: backend.cast(parts[name], np.float64) for name in ("linear", "atoms")}
        atoms = normalize_rows(wide["atoms"].reshape(-1, len(self._unwhiten)))
        combinations = (atoms @ self._unwhiten.T).reshape(wide["atoms"].shape)
        atoms = atoms.reshape(wide["atoms"].shape)
        return TaskModel(
            backend.from_host(centre, scales),
            scales,
            parts["vectors"] * scales,
            self._unwhiten @ wide["linear"],
            backend.copy(parts["intercept"]),
            combinations if self.task.n_atoms else None,
            atoms @ backend.xp.swapaxes(atoms, 1, 2) if self.task.n_atoms else None,
            backend.from_host(variances, scales) * scales * scales,
            self.task.n_nonzero,
        )


def _views(vector: Array, shapes: dict[str, tuple[int, ...]]) -> dict[str, Array]:
    """Parts of a vector, one after another, in these shapes."""
    views, start = {}, 0
    for name, shape in shapes.items():
        stop = start + int(np.prod(shape))
        views[name], start = vector[start:stop].reshape(shape), stop
    return views


def _batches(count: int, size: int, rng: np.random.RandomState) -> Iterator[np.ndarray]:
    """Numbers of signals, all once in random order, then all again."""
    waiting = np.empty(0, dtype=np.intp)
    while True:
        if len(waiting) < size:
            waiting = np.concatenate([waiting, rng.permutation(count)])
        yield waiting[:size]
        waiting = waiting[size:]
