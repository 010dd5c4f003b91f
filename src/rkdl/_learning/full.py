"""Full kernel dictionary learning: every signal is a kernel vector.

With D = Y the best combination for ``sum_t z_tj phi(y_t)`` is column j of the codes itself, so after a sweep every
atom is a combination of the codes' columns and of the old atoms: 2n coordinates, whatever the number of
signals. Their metric and the atoms' correlations with the signals follow from ``K Z`` and ``K A'``, and one product
``K Z`` per iteration is the whole cost. No N x N residual is ever formed.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import starmap
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rkdl._backends.arrays import cast, copied, host, is_tensor, joined, where
from rkdl._backends.base import backend_of
from rkdl._backends.devices import free_bytes
from rkdl._coding.encoder import Pursuit
from rkdl._data.signals import NotFiniteError, is_safe
from rkdl._execution.executor import Executor
from rkdl._execution.machine import physical_memory
from rkdl._features.kernels import Kernel
from rkdl._features.widths import spread_evenly, spread_indices
from rkdl._learning.atom_replacement import (
    Sample,
    find_replacements,
    first_distinct,
    sample_size,
    worst_signals,
)
from rkdl._learning.atom_updates import AtomUpdate
from rkdl._learning.chunk_tasks import ChunkState, count_empty
from rkdl._learning.initial_atoms import Products, first_signals, given_atoms
from rkdl._learning.loop import NUMBERS, LearningProblem
from rkdl._persistence.named_arrays import Expected, check_arrays, flattened, part_of
from rkdl._utils.types import Array
from rkdl._utils.warnings import warn

# Share of the memory that a kernel matrix may take.
MEMORY_SHARE = 0.6
# Signals whose kernel matrix is searched for a negative eigenvalue.
MOST_CHECKED = 500


class KernelRows:
    """Rows of the N x N kernel matrix: stored, or computed again for every pass."""

    def __init__(self, executor: Executor, kernel: Kernel | None, matrix: Any) -> None:
        self.executor = executor
        self.kernel: Any = executor.to_signals(kernel)
        self.matrix = matrix
        self.size = executor.signals.shape[0]

    @classmethod
    def open(cls, executor: Executor, kernel: Kernel | None) -> KernelRows:
        """The kernel matrix if it fits in memory; without a kernel, the signals are its rows."""
        signals = executor.signals
        n_signals = signals.shape[0]
        if kernel is None:
            return cls(executor, None, signals.data if signals.device is None else signals.read(0, n_signals))
        on_gpu = signals.device is not None and signals.device.type == "cuda"
        memory = free_bytes(signals.device) if on_gpu else physical_memory()
        needed = n_signals * n_signals * signals.dtype.itemsize
        rows = cls(executor, kernel, None)
        if needed <= MEMORY_SHARE * memory:
            rows.matrix = rows.whole()
            return rows
        warn(
            f"The kernel matrix of {n_signals} signals takes {needed / 2**30:.1f} GiB and there are "
            f"{memory / 2**30:.1f}: its blocks are computed again in every iteration. RKDL or ORKDL learn from a few "
            f"kernel vectors instead."
        )
        return rows

    def whole(self) -> Array:
        """The whole matrix, from the blocks of its upper triangle."""
        every = self.executor.signals.read(0, self.size)
        matrix = backend_of(every).full((self.size, self.size), 0.0, every)

        def fill(start: int, stop: int) -> None:
            bounds = self.executor.bounds
            for left, right in bounds[bounds.index((start, stop)) :]:
                block = self.block(every[start:stop], every[left:right])
                matrix[start:stop, left:right] = block
                if left > start:
                    matrix[left:right, start:stop] = block.T

        with np.errstate(over="ignore", invalid="ignore"):
            self.for_chunks(fill)
        return matrix

    def row(self, t: int) -> Array:
        """``K[t]``."""
        if self.matrix is not None:
            return self.matrix[t]
        every = self.executor.signals.read(0, self.size)
        return self.kernel(every[t : t + 1], every)[0]

    def diagonal(self) -> Any:
        """``k(y, y)`` of every signal."""
        if self.matrix is not None:
            return copied(self.matrix.diagonal())
        return joined([self.kernel.diagonal(self.executor.signals.read(*bound)) for bound in self.executor.bounds])

    def products(self, sample: np.ndarray) -> Products:
        """Squared norms of some signals, and a function of i: their products with the i-th of them."""
        return host(self.diagonal())[sample], lambda i: host(self.row(int(sample[i])))[sample]

    def vectors(self) -> np.ndarray | None:
        """All signals, as a copy, so that a model does not change with the user's array; None if they are not known."""
        if self.kernel is None:
            return None
        signals = self.executor.signals.on_host()
        return np.array(signals.read(0, self.size), order="C")

    def columns(self, indices: np.ndarray) -> Array:
        """``K[:, indices]``."""
        if self.matrix is not None:
            return self.matrix[:, indices]
        every = self.executor.signals.read(0, self.size)
        return self.kernel(every, every[indices])

    def times(self, right: Any) -> Any:
        """``K @ right`` in the kernel's dtype."""
        right = cast(right, self.executor.signals.dtype)
        if not is_tensor(right):
            right = np.ascontiguousarray(right)

        def multiply(start: int, stop: int) -> Array:
            if self.matrix is not None:
                return self.matrix[start:stop] @ right
            every = self.executor.signals.read(0, self.size)
            return self.block(every[start:stop], every, right)

        return joined(self.for_chunks(multiply))

    def block(self, rows: Array, others: Array, right: Array | None = None) -> Array:
        """``k(rows, others)``, or that times `right`; in pieces where the memory of a device does not hold it."""

        def compute(part: Array, _: None) -> tuple[tuple[()], Array]:
            block = self.kernel(part, others)
            return (), block if right is None else block @ right

        return self.executor.worker(compute)(rows, None)[1]

    def for_chunks(self, task: Callable[[int, int], Any]) -> list:
        """``task(start, stop)`` of every chunk."""
        if self.executor.signals.device is not None:
            return list(starmap(task, self.executor.bounds))
        return self.executor.map_chunks(task)


_ARRAYS = {"atoms": Expected("nN"), "correlations": Expected("Nn"), "gram": Expected("nn")}
_SWEPT = {"swept.atoms": Expected("nN"), "swept.correlations": Expected("Nn")}


class SweptAtoms(NamedTuple):
    """Atoms (n, N) and correlations (N, n) after the last sweep, before the momentum."""

    atoms: Any
    correlations: Any


class FullModel(NamedTuple):
    """The model after an iteration of `FullProblem`; its numbers are described in `LearningProblem`."""

    atoms: Any  # (n, N), of unit norm in feature space, as combinations of the signals
    correlations: Any  # (N, n), inner products of signals and atoms
    gram: Any
    objective: float = np.inf
    penalty: float = 0.0  # nothing is minimised besides the error
    update_objective: float = np.inf
    n_revived: int = 0
    n_empty: int = 0
    swept: SweptAtoms = SweptAtoms(None, None)

    def with_swept(self) -> FullModel:
        """The model with its atoms as those from which the next momentum is computed."""
        return self._replace(swept=SweptAtoms(self.atoms, self.correlations))

    def with_momentum(self, earlier: SweptAtoms, momentum: float) -> FullModel:
        """The model with every atom moved further by a share of its change since the sweep before."""
        swept = SweptAtoms(self.atoms, self.correlations)
        atoms, correlations = (now + momentum * (now - then) for now, then in zip(swept, earlier, strict=True))
        return self._replace(atoms=atoms, correlations=correlations, gram=atoms @ correlations).normalized()

    def normalized(self) -> FullModel:
        """The same model with atoms of unit norm; one without direction becomes zero and is replaced later."""
        squares = self.gram.diagonal()
        is_long = squares > 1e-12 * squares.max()
        factors = where(is_long, 1.0 / where(is_long, squares, 1.0) ** 0.5, 0.0)
        return self._replace(
            atoms=self.atoms * factors[:, None],
            correlations=self.correlations * factors,
            gram=self.gram * factors * factors[:, None],
        )

    def state(self) -> dict[str, np.ndarray]:
        """The model as arrays for a file."""
        return flattened(self._asdict())


class FullProblem(LearningProblem):
    """KDL on a kernel matrix; the first atoms (n, N) are combinations of the signals."""

    model: FullModel

    def __init__(self, kernel_rows: KernelRows, atoms: np.ndarray, pursuit: Pursuit, atom_update: AtomUpdate) -> None:
        self.kernel_rows = kernel_rows
        self.pursuit = pursuit
        self.atom_update = atom_update
        self.squared_norms = kernel_rows.diagonal()
        weights = kernel_rows.executor.signals.weights
        self.weights = None if weights is None else kernel_rows.executor.to_signals(weights)
        self.energy = self.sum_of(self.squared_norms)
        if not np.isfinite(self.energy):
            raise NotFiniteError
        atoms = kernel_rows.executor.to_signals(atoms)
        correlations = cast(kernel_rows.times(atoms.T), np.float64)
        super().__init__(
            kernel_rows.executor, FullModel(atoms, correlations, atoms @ correlations).normalized().with_swept()
        )

    def model_of(self, state: dict[str, np.ndarray]) -> FullModel:
        sizes = dict(zip("nN", self.model.atoms.shape, strict=True))
        check_arrays(state, {**NUMBERS, **_ARRAYS, **_SWEPT}, sizes)
        arrays: dict[str, Any] = self.executor.to_signals({name: state[name] for name in _ARRAYS})
        numbers = {name: state[name].item() for name in NUMBERS}
        return FullModel(**arrays, **numbers, swept=SweptAtoms(**self.executor.to_signals(part_of(state, "swept"))))

    def sum_of(self, squares: Any) -> float:
        """The sum of a number of every signal, by their weights."""
        wide = cast(squares, np.float64)
        return float((wide if self.weights is None else wide * self.weights).sum())

    def penalty_of(self, chunks: list[ChunkState]) -> float:
        """Penalties of all codes, by the weights of their signals."""
        total, start = 0.0, 0
        for codes, *_ in chunks:
            kept, half, stop = codes, codes, start + len(codes.counts)
            if self.weights is not None:
                weights = self.weights[start:stop]
                kept, half = codes.weighted(weights), codes.weighted(weights**0.5)
            total, start = total + float(self.pursuit.penalty(kept, half)), stop
        return total

    def encode(self) -> None:
        dtype, correlations = self.executor.signals.dtype, self.model.correlations
        gram = cast(self.model.gram, dtype)
        pursue = self.pursuit.on(backend_of(gram))

        def encode(start: int, stop: int) -> ChunkState:
            norms = self.squared_norms[start:stop]
            return ChunkState(*pursue(cast(correlations[start:stop], dtype), gram, norms))

        chunks = self._coded = self.kernel_rows.for_chunks(encode)
        residuals = joined([state.residuals for state in chunks])
        objective = self.sum_of(residuals) + self.penalty_of(chunks)
        self.model = self.model._replace(objective=objective, n_empty=sum(map(count_empty, chunks)))

    def update(self, *, is_rise: bool = False, seed: int | None = None) -> None:
        model, n_atoms = self.model, len(self.model.atoms)
        chunks, self._coded = self._coded, None
        parts = [state.codes for state in chunks]
        dense = joined([codes.dense(n_atoms, np.float64) for codes in parts])
        weighted = dense if self.weights is None else dense * self.weights[:, None]
        kernel_codes = cast(self.kernel_rows.times(weighted), np.float64)

        # Coordinates of the sweep: the codes' columns first, the old atoms after them.
        metric = backend_of(kernel_codes).full((2 * n_atoms, 2 * n_atoms), 0.0, kernel_codes)
        metric[:n_atoms, :n_atoms] = weighted.T @ kernel_codes
        metric[:n_atoms, n_atoms:] = weighted.T @ model.correlations
        metric[n_atoms:, :n_atoms] = metric[:n_atoms, n_atoms:].T
        metric[n_atoms:, n_atoms:] = model.gram
        metric = 0.5 * (metric + metric.T)
        identity = backend_of(kernel_codes).from_host(np.eye(2 * n_atoms), kernel_codes)
        targets, mixed = identity[:n_atoms], identity[n_atoms:]

        products = dense.T @ weighted
        used = host(products.diagonal() > 0.0)
        penalty = self.penalty_of(chunks)
        signals = _CodedKernel(parts, kernel_codes, copied(model.correlations))
        sweep = self.atom_update(products, targets, mixed, signals, metric)
        code_part, atom_part = sweep.atoms[:, :n_atoms], sweep.atoms[:, n_atoms:]
        found = model._replace(
            atoms=code_part @ weighted.T + atom_part @ model.atoms,
            correlations=kernel_codes @ code_part.T + model.correlations @ atom_part.T,
            gram=sweep.atoms @ metric @ sweep.atoms.T,
            update_objective=sweep.objective(self.energy + penalty, metric),
        )
        found = found.normalized().with_swept()
        momentum, is_first = self.atom_update.momentum, not np.isfinite(model.update_objective)
        if momentum > 0.0 and not (is_rise or is_first):
            found = found.with_momentum(model.swept, momentum)
        n_replaced = self.replace_unused_atoms(chunks, used, found)
        if seed is not None and self.atom_update.momentum > 0.0:
            found = self.replace_useless_atoms(found, seed)
        self.model = self._without_cancellation(found)._replace(n_revived=model.n_revived + n_replaced)

    def _without_cancellation(self, model: FullModel) -> FullModel:
        """The model with products of its atoms computed anew where large coefficients cancel in them.

        An atom of unit norm whose coefficients leave nothing but rounding becomes zero, and is replaced later.
        """
        eps = float(np.finfo(self.executor.signals.dtype).eps)
        rounding = eps * (abs(model.atoms) @ cast(self.squared_norms, np.float64) ** 0.5) ** 2
        if not bool((rounding > 10.0 * eps**0.75).any()):
            return model
        # Far below eps**0.5 in float64: codes grow to eps**-0.25 where the pursuit takes near copies for independent.
        atoms = where((rounding < 50.0 * eps**0.75)[:, None], model.atoms, 0.0)
        correlations = cast(self.kernel_rows.times(atoms.T), np.float64)
        return model._replace(atoms=atoms, correlations=correlations, gram=atoms @ correlations).normalized()

    def replace_unused_atoms(self, chunks: list[ChunkState], used: np.ndarray, model: FullModel) -> int:
        """Replace unused atoms by the worst-represented signals, no two alike, in place; returns how many."""
        unused = np.flatnonzero(~used).tolist()
        if not unused:
            return 0
        atoms, correlations, gram, *_ = model
        residuals = np.concatenate([host(state.residuals) for state in chunks])
        # More candidates than are needed: some may be copies of one another.
        candidates = worst_signals(residuals, min(4 * len(unused), len(atoms)))
        squares, products = self.kernel_rows.products(candidates)
        chosen = first_distinct(squares, products, len(unused), residuals.dtype)
        for j, i in zip(unused, chosen, strict=False):
            t, length = int(candidates[i]), float(np.sqrt(float(squares[i])))
            for own in (model, model.swept):
                own.atoms[j] = 0.0
                own.atoms[j, t] = 1.0 / length
                own.correlations[:, j] = self.kernel_rows.row(t) / length
            gram[j] = gram[:, j] = atoms @ correlations[:, j]
        return len(chosen)

    def replace_useless_atoms(self, model: FullModel, seed: int) -> FullModel:
        """Replace atoms by directions of more use to a sample of the signals, see `find_replacements`."""
        dtype = self.executor.signals.dtype
        size = sample_size(len(model.atoms), self.pursuit.n_nonzero)
        sample, factors = spread_evenly(self.executor.signals, size)
        columns = self.kernel_rows.columns(sample)
        kernel, correlations, gram = columns[sample], cast(model.correlations[sample], dtype), cast(model.gram, dtype)

        def products(weights: Any, mixes: Any) -> tuple[Any, Any]:
            return kernel @ weights - correlations @ mixes, correlations.T @ weights - gram @ mixes

        signals = Sample(correlations, gram, self.squared_norms[sample], products, factors[:, 0] ** 2, self.executor)
        found = find_replacements(signals, self.pursuit, seed)
        if len(found.atoms) == 0:
            return model
        mixes, combinations = (cast(part, np.float64) for part in found[:0:-1])
        duals = np.zeros((self.kernel_rows.size, len(found.atoms)))
        np.add.at(duals, sample, host(combinations).T)
        atoms = backend_of(mixes).from_host(duals.T, mixes) - mixes @ cast(model.atoms, np.float64)
        fresh = SweptAtoms(atoms, cast(columns, np.float64) @ combinations.T - model.correlations @ mixes.T)
        both = SweptAtoms(copied(model.atoms), copied(model.correlations))
        for own in (both, model.swept):
            own.atoms[found.atoms] = backend_of(own.atoms).as_like(fresh.atoms, own.atoms)
            own.correlations[:, found.atoms] = fresh.correlations
        return model._replace(**both._asdict(), gram=both.atoms @ both.correlations).normalized()


class _CodedKernel:
    """All codes, and the signals' correlations with the atoms, which follow these: a `CodedSignals`."""

    def __init__(self, parts: list, kernel_codes: Any, products: Any) -> None:
        self.parts, self.kernel_codes, self.products = parts, kernel_codes, products

    def codes(self, n_atoms: int) -> Any:
        return backend_of(self.kernel_codes).sweep_codes(self.parts, n_atoms)

    def update(self, j: int, couplings: Any, norm: float) -> None:
        self.products[:, j] = (self.kernel_codes[:, j] - self.products @ couplings) / norm

    def correlations(self, j: int, atoms: Any, rows: Any) -> Any:
        return self.products[rows, j]


def first_combinations(init: str | ArrayLike, n_atoms: int, rows: KernelRows, rng: np.random.RandomState) -> np.ndarray:
    """First atoms (n_atoms, N) as combinations of the signals, as `rkdl._learning.initial_atoms.initial_atoms`."""
    shape = (n_atoms, rows.size)
    if not isinstance(init, str):
        return given_atoms(init, shape, "dual_components_")
    atoms = np.zeros(shape)
    n_picked = 0
    if init != "random":
        picked = first_signals(init, rows.executor.signals, n_atoms, rng, rows.products)
        n_picked = len(picked)
        atoms[np.arange(n_picked), picked] = 1.0
    atoms[n_picked:] = rng.standard_normal((n_atoms - n_picked, rows.size))
    return atoms


def is_training_matrix(kernel: np.ndarray) -> bool:
    """Whether this looks like a square kernel matrix: it is symmetric."""
    return kernel.shape[0] == kernel.shape[1] and _asymmetry(kernel) <= _rounding(kernel)


def _asymmetry(matrix: np.ndarray) -> float:
    """The largest difference between an entry and its transpose."""
    # Row by row: memory may hold the matrix once.
    return max(float(np.abs(row - column).max()) for row, column in zip(matrix, matrix.T, strict=True))


def _rounding(matrix: np.ndarray) -> float:
    return 1e3 * float(np.finfo(matrix.dtype).eps) * float(np.abs(matrix).max(initial=0.0))


def check_kernel_matrix(matrix: np.ndarray) -> None:
    """Refuse a matrix that is not square, symmetric and positive semidefinite, up to rounding.

    An eigenvalue is looked for in the rows and columns of some signals, spread over all of them.
    """
    size = len(matrix)
    if matrix.shape != (size, size):
        raise ValueError(
            f"A precomputed kernel has one row and one column per signal; X has shape {matrix.shape}, which is not "
            f"square."
        )
    largest = float(np.abs(matrix).max())
    if largest > 0.0 and not is_safe(largest, matrix.dtype):
        raise ValueError(
            f"The precomputed kernel has entries of size {largest:.3g}, whose squares leave the range of "
            f"{matrix.dtype}: scale it."
        )
    worst, slack = _asymmetry(matrix), _rounding(matrix)
    if worst > slack:
        raise ValueError(
            f"The precomputed kernel is not symmetric: entries differ by up to {worst:.3g} from their transposes. Use "
            f"(K + K.T) / 2 if that is meant."
        )
    some = spread_indices(size, MOST_CHECKED)
    lowest = min(float(np.linalg.eigvalsh(matrix[np.ix_(some, some)])[0]), float(matrix.diagonal().min()))
    if lowest < -max(slack * size, 1e-6 * largest):
        raise ValueError(
            f"The precomputed kernel is not positive semidefinite: it has an eigenvalue of about {lowest:.3g}"
            f"{' or less' if size > MOST_CHECKED else ''}. Clip its negative eigenvalues or add {-lowest:.3g} to its "
            f"diagonal."
        )
