"""Task-driven learning by minibatches: kernel vectors, a gamma for every feature and two readouts together.

The readouts are those of `rkdl._applications.readouts` in whitened coordinates ``phi(x) = L^-1 k(x)``, where
``K(D, D) + ridge = L L'``. Let u be the derivative of the loss with respect to the scores, times the factor b for the
explained energies. For fixed supports, on which the codes z are least squares, the gradients are

    dW = phi' u     dA_c = 2 (u_c z)' (phi - z A_c)     dphi = u W' + 2 sum_c u_c z A_c     dk = dphi L^-1
    w = dk * k      dd_i = 2 g sum_t w_ti (x_t - d_i)   dlog g = -g sum_ti w_ti (x_t - d_i)^2

L is held fixed for some steps, in which only k changes with D and g. Then W and A are transformed to the coordinates of
the new L, as the same combinations of kernel vectors. Each readout has its own loss, so that neither relies on the
other; held-out signals determine their weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rkdl._applications.readouts import TaskModel, pursue_classes
from rkdl._backends.arrays import host, normalize_rows
from rkdl._backends.base import backend_of, is_tensor
from rkdl._execution.executor import side_by_side
from rkdl._utils.types import Array

# Chosen by means over all tables of benchmarks/tables.py, never by a single one.
STEP, GAMMA_STEP, ATOM_STEP = 3e-2, 1e-2, 1e-2
# With more features than this, gammas take smaller steps: a gamma for every pixel overfits.
MANY_FEATURES = 64
# Standard deviation of the noise that every batch gets then, relative to that of the features: it is nearly orthogonal
# to what classes differ in, and keeps the kernel vectors from fitting single signals.
NOISE = 0.3
DECAY = 0.1  # weight decay of the linear readout, relative to the step
RIDGE = 1e-3
SMOOTHING = 0.05
FIRST_SHARPNESS = 1.0
EPOCHS, FEWEST_STEPS, MOST_STEPS = 40, 400, 6000
SMALLEST_BATCH, LARGEST_BATCH, BATCH_SHARE = 64, 256, 1 / 128
PART = 128  # signals of a batch that one thread takes at a time
HELD_STEPS = 50  # steps between two factorisations of the metric
WARM_UP = 0.3  # share of the steps in which the step size rises
MOMENTUM, SECOND_MOMENTUM = 0.9, 0.999
# Largest magnitude of the logarithm of a gamma, in the unit of the signals: beyond, all kernel values are zero or one.
WIDEST = 40.0


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
    """Targets (n, k) of the cross-entropy, smoothed: `SMOOTHING` is shared by all classes."""
    targets = np.full((len(labels), n_classes), SMOOTHING / n_classes, dtype=dtype)
    targets[np.arange(len(labels)), labels] += 1.0 - SMOOTHING
    return targets


class Examples(NamedTuple):
    """Signals to learn from, with targets and weights; ``rows(batch)`` reads some, centred and scaled."""

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
    """State of the learning: parameters, moments of their gradients, and the metric that is held fixed.

    All parameters lie in one vector, of which `parts` are views, as are `slopes` of the vector of the gradient.
    """

    def __init__(self, task: Task, vectors: Array, gamma: Array) -> None:
        size, n_features = vectors.shape
        self.task, self.backend = task, backend_of(vectors)
        shapes = {
            "vectors": (size, n_features),
            "log_gammas": (n_features,),
            "linear": (size, task.n_outputs),
            "intercept": (task.n_outputs,),
            "atoms": (task.n_outputs, task.n_atoms, size),
            "log_sharpness": (1,),
        }
        self._shapes = shapes
        count = sum(int(np.prod(shape)) for shape in shapes.values())
        self._vector, gradient, self._first, self._second, self._rates = (
            self.backend.full((count,), value, vectors) for value in (0.0, 0.0, 0.0, 0.0, STEP)
        )
        # One for each part of a batch; they are summed in the first.
        self._gradients = [gradient]
        self._gradient = gradient
        self.parts, self.slopes, self.rates = (_views(flat, shapes) for flat in (self._vector, gradient, self._rates))
        self.rates["atoms"][:] = ATOM_STEP
        self.rates["log_gammas"][:] = GAMMA_STEP * min(1.0, MANY_FEATURES / n_features)
        self.parts["vectors"][:] = vectors
        logs = np.log(np.clip(host(gamma), np.exp(-WIDEST), np.exp(WIDEST)))
        self.parts["log_gammas"] += self.backend.as_like(logs, vectors)
        self.parts["log_sharpness"][:] = float(np.log(FIRST_SHARPNESS))
        self.n_steps = 0
        self._unwhiten: Array = None
        self._factorise()

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
        """Set the readouts to those of a fitted model: combinations of kernel values and of kernel vectors."""
        backend, parts = self.backend, self.parts
        whiten = backend.xp.linalg.inv(self._unwhiten)
        parts["linear"][:] = backend.as_like(whiten @ backend.cast(dual, np.float64), parts["linear"])
        parts["intercept"][:] = backend.as_like(intercept, parts["intercept"])
        if self.task.n_atoms:
            atoms = backend.cast(combinations, np.float64) @ whiten.T
            parts["atoms"][:] = backend.as_like(atoms, parts["atoms"])

    def _factorise(self) -> None:
        """Factor the metric of the current kernel vectors; the readouts stay the same combinations of them."""
        backend, parts = self.backend, self.parts
        vectors = backend.cast(parts["vectors"] * backend.xp.exp(0.5 * parts["log_gammas"]), np.float64)
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
        """Whitened features, kernel values, and signals and kernel vectors times the roots of the gammas."""
        scales = self.backend.xp.exp(0.5 * self.parts["log_gammas"])
        signals, vectors = rows * scales, self.parts["vectors"] * scales
        values = self.backend.rbf(signals, vectors, 1.0)
        return values @ self._whitening, values, signals, vectors

    def find_gradient(self, rows: Array, targets: Array, weights: Array, threads: int = 1) -> Array:
        """Set `slopes` to the gradient of the mean loss of a batch, which is returned; on a device a tensor.

        It is the sum of those of parts of the batch, in order, whatever the number of threads.
        """
        count = len(rows)
        size = count if is_tensor(rows) else PART
        bounds = [(start, min(start + size, count)) for start in range(0, count, size)]
        while len(self._gradients) < len(bounds):
            self._gradients.append(self.backend.copy(self._vector))

        def add_part(number: int) -> Array:
            part = slice(*bounds[number])
            slopes = _views(self._gradients[number], self._shapes)
            return self._part_of_gradient(slopes, rows[part], targets[part], weights[part])

        losses = side_by_side(add_part, range(len(bounds)), threads)
        for gradient in self._gradients[1 : len(bounds)]:
            self._gradient += gradient
        self._gradient /= count
        return sum(losses) / count

    def _part_of_gradient(self, slopes: dict[str, Array], rows: Array, targets: Array, weights: Array) -> Array:
        """Set `slopes` to the gradient of the sum of the losses, which is returned."""
        parts = self.parts
        features, values, signals, vectors = self.features(rows)
        losses, errors = self.task.loss(features @ parts["linear"] + parts["intercept"], targets)
        errors = errors * weights[:, None]
        slopes["linear"][:] = features.T @ errors
        slopes["intercept"][:] = errors.sum(0)
        upstream = errors @ parts["linear"].T
        if self.task.n_atoms:
            losses = losses + self._dictionary_gradient(slopes, upstream, features, targets, weights)
        self._vector_gradient(slopes, (upstream @ self._whitening.T) * values, signals, vectors)
        return (losses * weights).sum()

    def _dictionary_gradient(
        self, slopes: dict[str, Array], upstream: Array, features: Array, targets: Array, weights: Array
    ) -> Array:
        """Losses (c,) of the explained energies; their derivative for the features (c, p) is added to `upstream`."""
        atoms, xp = self.parts["atoms"], self.backend.xp
        correlations = features @ xp.swapaxes(atoms, 1, 2)
        found = pursue_classes(correlations, atoms @ xp.swapaxes(atoms, 1, 2), self.task.n_nonzero)
        codes = xp.stack([own.dense(self.task.n_atoms) for own in found])
        explained = (codes * correlations).sum(2).T
        sharpness = xp.exp(self.parts["log_sharpness"])
        losses, errors = self.task.loss(explained * sharpness, targets)
        errors = errors * (weights[:, None] * sharpness)
        slopes["log_sharpness"][:] = (errors * explained).sum()
        weighted = codes * (2.0 * errors.T)[:, :, None]
        transposed = xp.swapaxes(weighted, 1, 2)
        slopes["atoms"][:] = transposed @ features - (transposed @ codes) @ atoms
        upstream += xp.swapaxes(weighted, 0, 1).reshape(len(features), -1) @ atoms.reshape(-1, atoms.shape[2])
        return losses

    def _vector_gradient(self, slopes: dict[str, Array], weights: Array, signals: Array, vectors: Array) -> None:
        """Set the gradients of the kernel vectors and the gammas, from derivatives times kernel values (c, p)."""
        scales = self.backend.xp.exp(0.5 * self.parts["log_gammas"])
        sums, of_vectors = weights.T @ signals, weights.sum(0)
        slopes["vectors"][:] = (sums - of_vectors[:, None] * vectors) * (2.0 * scales)
        crossed = 2.0 * (vectors * sums).sum(0)
        slopes["log_gammas"][:] = crossed - weights.sum(1) @ (signals * signals) - of_vectors @ (vectors * vectors)

    def descend(self, rate: float) -> None:
        """One step of Adam along the gradient, with decay of the linear readout; atoms keep unit norm."""
        self.n_steps += 1
        shares = [1.0 - momentum**self.n_steps for momentum in (MOMENTUM, SECOND_MOMENTUM)]
        self.parts["linear"][:] *= 1.0 - rate * STEP * self.task.decay
        moments = self._first, self._second, MOMENTUM, SECOND_MOMENTUM
        self.backend.adam_step(self._vector, self._gradient, *moments, self._rates, rate / shares[0], shares[1])
        atoms, gammas = self.parts["atoms"], self.parts["log_gammas"]
        gammas[:] = gammas.clip(-WIDEST, WIDEST)
        if self.task.n_atoms:
            atoms /= ((atoms * atoms).sum(2) ** 0.5).clip(min=1e-6)[:, :, None]
        if self.n_steps % HELD_STEPS == 0:
            self._factorise()

    def run(
        self,
        examples: Examples,
        n_steps: int,
        batch: int,
        rng: np.random.RandomState,
        *,
        constant: float | None = None,
        threads: int = 1,
    ) -> Iterator[Array]:
        """Steps over random batches; yields the mean loss of each. The step size rises and falls, or is `constant`."""
        batches = _batches(len(examples.targets), batch, rng)
        generator = np.random.default_rng(rng.randint(2**31))
        for number, chosen in zip(range(n_steps), batches, strict=False):
            done = number / n_steps
            falling = 0.5 * (1.0 + np.cos(np.pi * (done - WARM_UP) / (1.0 - WARM_UP)))
            places = self.backend.from_host(chosen, examples.targets)
            rows = examples.rows(chosen)
            if rows.shape[1] > MANY_FEATURES:
                noise = NOISE * generator.standard_normal(rows.shape, dtype=np.float32)
                rows = rows + self.backend.as_like(noise, rows)
            loss = self.find_gradient(rows, examples.targets[places], examples.weights[places], threads)
            rate = (number + 1) / (WARM_UP * n_steps) if done < WARM_UP else falling
            self.descend(float(rate) if constant is None else constant)
            yield loss

    @property
    def sharpness(self) -> float:
        """The factor of the explained energies."""
        return float(np.exp(float(self.parts["log_sharpness"][0])))

    def model(self, centre: np.ndarray, variances: np.ndarray) -> TaskModel:
        """What was learned, for signals with this centre and these variances of their features."""
        self._factorise()
        backend, parts = self.backend, self.parts
        scales = backend.xp.exp(0.5 * parts["log_gammas"])
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
    """Indices of random batches: all signals once in random order, then all again."""
    waiting = np.empty(0, dtype=np.intp)
    while True:
        if len(waiting) < size:
            waiting = np.concatenate([waiting, rng.permutation(count)])
        yield waiting[:size]
        waiting = waiting[size:]
