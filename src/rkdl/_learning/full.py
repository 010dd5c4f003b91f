"""Full kernel dictionary learning: every signal is a kernel vector.

With D = Y the best combination for ``sum_t z_tj phi(y_t)`` is column j of the codes itself, so after a sweep every
atom is a combination of the codes' columns and of the old atoms: 2n coordinates, whatever the number of
signals. Their metric and the atoms' correlations with the signals follow from ``K Z`` and ``K A'``, and one product
``K Z`` an iteration is the whole cost. No N x N residual is ever formed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rkdl._backends.arrays import cast, host
from rkdl._backends.cpu.statistics import accumulate_gram
from rkdl._coding.encoder import NotFiniteError, Pursuit
from rkdl._coding.pursuit import Codes, join_codes, pursue
from rkdl._execution.executor import Executor
from rkdl._features.kernels import Kernel
from rkdl._learning.atom_updates import aksvd_sweep, gram_sweep
from rkdl._learning.chunk_tasks import ChunkState
from rkdl._learning.initial_atoms import Products
from rkdl._learning.reduced import count_empty, worst_signals
from rkdl._persistence.states import check_full_state


class KernelRows:
    """Rows of the N x N kernel matrix: kept whole, or computed again for every walk."""

    def __init__(self, executor: Executor, kernel: Kernel | None, matrix: np.ndarray | None) -> None:
        self.executor = executor
        self.kernel = kernel
        self.matrix = matrix
        self.size = executor.signals.shape[0]

    @classmethod
    def compute(cls, executor: Executor, kernel: Kernel) -> KernelRows:
        """The whole matrix, from the blocks of its upper triangle."""
        signals, bounds = executor.signals, executor.bounds
        matrix = np.empty((signals.shape[0],) * 2, dtype=signals.dtype)

        def fill(number: int, start: int, stop: int) -> None:
            rows = signals.read(start, stop)
            for left, right in bounds[number:]:
                block = kernel(rows, signals.read(left, right))
                matrix[start:stop, left:right] = block
                if left > start:
                    matrix[left:right, start:stop] = block.T

        with np.errstate(over="ignore", invalid="ignore"):
            executor.map_chunks(fill)
        return cls(executor, kernel, matrix)

    def rows(self, start: int, stop: int) -> np.ndarray:
        """``K[start:stop]``."""
        if self.matrix is not None:
            return self.matrix[start:stop]
        assert self.kernel is not None
        signals = self.executor.signals
        return self.kernel(signals.read(start, stop), signals.read(0, self.size))

    def diagonal(self) -> np.ndarray:
        """``k(y, y)`` of every signal."""
        if self.matrix is not None:
            return self.matrix.diagonal().copy()
        assert self.kernel is not None
        parts = [self.kernel.diagonal(self.executor.signals.read(*bound)) for bound in self.executor.bounds]
        return np.concatenate(parts)

    def products(self, sample: np.ndarray) -> Products:
        """Squared norms of some signals, and a function of i: their products with the i-th of them."""
        diagonal = host(self.diagonal())[sample]

        def column(i: int) -> np.ndarray:
            at = int(sample[i])
            return host(self.rows(at, at + 1)[0])[sample]

        return diagonal, column

    def times(self, right: np.ndarray) -> np.ndarray:
        """``K @ right`` in the kernel's dtype."""
        right = np.ascontiguousarray(right, dtype=self.executor.signals.dtype)
        product = np.empty_like(right)

        def multiply(number: int, start: int, stop: int) -> None:
            np.matmul(self.rows(start, stop), right, out=product[start:stop])

        self.executor.map_chunks(multiply)
        return product


class FullModel(NamedTuple):
    """What an iteration of `FullProblem` ends with; see its attributes."""

    atoms: np.ndarray
    correlations: np.ndarray
    gram: np.ndarray
    objective: float
    update_objective: float
    n_revived: int
    n_empty: int

    def state(self) -> dict[str, np.ndarray]:
        """The model as arrays for a file."""
        return {name: np.asarray(host(value)) for name, value in self._asdict().items()}


class FullProblem:
    """KDL on a kernel matrix.

    Parameters
    ----------
    kernel_rows : KernelRows
        The kernel matrix.
    atoms : ndarray of shape (n, N)
        The first atoms, as combinations of the signals.
    pursuit : Pursuit
        How signals are coded.
    refit : bool
        The paper's sweep instead of the statistics' one.

    Attributes
    ----------
    atoms : ndarray of shape (n, N)
        Atoms of unit norm in feature space.
    gram : ndarray of shape (n, n)
        Their inner products.
    correlations : ndarray of shape (N, n)
        Inner products of signals and atoms.
    """

    # Nothing is minimised beside the error.
    penalty = 0.0

    def __init__(self, kernel_rows: KernelRows, atoms: np.ndarray, pursuit: Pursuit, *, refit: bool) -> None:
        self.kernel_rows = kernel_rows
        self.executor = kernel_rows.executor
        self.pursuit = pursuit
        self.refit = refit
        self.squared_norms = kernel_rows.diagonal()
        self.trace = float(cast(self.squared_norms, np.float64).sum())
        if not np.isfinite(self.trace):
            raise NotFiniteError
        self.objective = self.update_objective = np.inf
        self.n_revived = self.n_empty = 0
        self._coded: Any = None
        self._begin(atoms)

    def _begin(self, atoms: np.ndarray) -> None:
        self._set(atoms, self.kernel_rows.times(atoms.T).astype(np.float64))

    def _set(self, atoms: np.ndarray, correlations: np.ndarray, gram: np.ndarray | None = None) -> None:
        """Normalise and take over a state; an atom without direction becomes zero and is revived later."""
        gram = atoms @ correlations if gram is None else gram
        squares = gram.diagonal()
        floor = 1e-12 * max(float(squares.max(initial=0.0)), np.finfo(np.float64).tiny)
        factors = np.where(squares > floor, 1.0 / np.sqrt(np.where(squares > floor, squares, 1.0)), 0.0)
        self.atoms = atoms * factors[:, None]
        self.correlations = correlations * factors
        self.gram = gram * factors * factors[:, None]

    def snapshot(self) -> FullModel:
        """The current model, by reference."""
        return FullModel(*(getattr(self, name) for name in FullModel._fields))

    def roll_back(self, snapshot: FullModel) -> None:
        """Make the model of a snapshot the current one again."""
        self._coded = None
        vars(self).update(snapshot._asdict())

    def state(self) -> dict[str, np.ndarray]:
        """What the next iteration starts from: the model and nothing else."""
        return self.snapshot().state()

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Take a state over; one that is not of this problem is refused."""
        check_full_state(state, *self.atoms.shape)
        self.atoms, self.correlations, self.gram = state["atoms"], state["correlations"], state["gram"]
        self.objective, self.update_objective = float(state["objective"]), float(state["update_objective"])
        self.n_revived, self.n_empty = int(state["n_revived"]), int(state["n_empty"])

    def encode(self) -> None:
        """Code the signals with the current model, which gives its error."""
        dtype = self.executor.signals.dtype
        gram = self.gram.astype(dtype)

        def encode(number: int, start: int, stop: int):
            correlations = self.correlations[start:stop].astype(dtype)
            return pursue(correlations, gram, self.squared_norms[start:stop], *self.pursuit)

        parts: list[tuple[Codes, np.ndarray]] = []
        self.executor.map_chunks(encode, parts.append)
        codes = join_codes([part[0] for part in parts])
        residuals = np.concatenate([part[1] for part in parts])
        self._coded = codes, residuals
        self.objective = float(residuals.sum(dtype=np.float64))
        self.n_empty = count_empty(ChunkState(codes, residuals))

    def update(self) -> None:
        """Update the atoms for the codes of `encode`, replace unused ones; all or nothing."""
        n_atoms = len(self.atoms)
        codes, residuals = self._coded
        self._coded = None
        dense = codes.to_csr(n_atoms).toarray()
        aims = self.kernel_rows.times(dense).astype(np.float64)

        # Coordinates of the sweep: the codes' columns first, the old atoms after them.
        metric = np.empty((2 * n_atoms, 2 * n_atoms))
        metric[:n_atoms, :n_atoms] = dense.T @ aims
        metric[:n_atoms, n_atoms:] = dense.T @ self.correlations
        metric[n_atoms:, :n_atoms] = metric[:n_atoms, n_atoms:].T
        metric[n_atoms:, n_atoms:] = self.gram
        metric = 0.5 * (metric + metric.T)
        targets = np.eye(n_atoms, 2 * n_atoms)
        mixed = np.eye(n_atoms, 2 * n_atoms, k=n_atoms)
        products = np.zeros((n_atoms, n_atoms))
        accumulate_gram(codes.indptr, codes.indices, codes.values, products)
        used = products.diagonal() > 0.0

        if self.refit:
            correlations = self.correlations.copy()

            def correlate(j: int, rows: np.ndarray, couplings: np.ndarray, norm: float) -> np.ndarray:
                correlations[:, j] = (aims[:, j] - correlations @ couplings) / norm
                return correlations[rows, j]

            aksvd_sweep(codes, products, targets, mixed, correlate, metric)
            rows = np.repeat(np.arange(codes.n_signals), np.diff(codes.indptr))
            fit = float(np.vdot(codes.values, correlations[rows, codes.indices]))
        else:
            factors = gram_sweep(products, targets, mixed, metric)
            products *= factors * factors[:, None]
            correlations = aims @ mixed[:, :n_atoms].T + self.correlations @ mixed[:, n_atoms:].T
            fit = float(np.vdot(metric[:n_atoms] * factors[:, None], mixed))
        gram_now = mixed @ metric @ mixed.T
        objective = self.trace - 2.0 * fit + float(np.vdot(products, gram_now))
        atoms = mixed[:, :n_atoms] @ dense.T + mixed[:, n_atoms:] @ self.atoms

        revived = self._revive(residuals, used, atoms, correlations, gram_now)
        self._set(atoms, correlations, gram_now)
        self.update_objective = objective
        self.n_revived += revived

    def _revive(
        self,
        residuals: np.ndarray,
        used: np.ndarray,
        atoms: np.ndarray,
        correlations: np.ndarray,
        gram: np.ndarray,
    ) -> int:
        """Replace unused atoms by the worst-represented signals, no two alike, in place; returns how many."""
        unused = np.flatnonzero(~used).tolist()
        if not unused:
            return 0
        rounding = 1e2 * float(np.finfo(self.executor.signals.dtype).eps)
        lengths = np.sqrt(host(self.squared_norms).astype(np.float64))
        taken: list[int] = []
        # More candidates than are needed: some may be copies of one another.
        for t in worst_signals(host(residuals), min(4 * len(unused), len(atoms))).tolist():
            if len(taken) == len(unused):
                break
            if lengths[t] == 0.0:
                continue
            row = self.kernel_rows.rows(t, t + 1)[0] / float(lengths[t])
            if taken and (2.0 - 2.0 * host(row[taken]) / lengths[taken] <= rounding).any():
                continue
            j = unused[len(taken)]
            atoms[j] = 0.0
            atoms[j, t] = 1.0 / float(lengths[t])
            correlations[:, j] = row
            gram[j] = gram[:, j] = atoms @ correlations[:, j]
            taken.append(t)
        return len(taken)
