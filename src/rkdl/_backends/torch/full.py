"""Full kernel dictionary learning on a device: the algorithm of `rkdl._learning.full` on tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rkdl._backends.torch.atoms import aksvd_sweep, gram_sweep
from rkdl._backends.torch.backend import torch_dtype
from rkdl._backends.torch.place import to_device
from rkdl._backends.torch.pursuit import pursue
from rkdl._execution.device import DeviceExecutor
from rkdl._learning.chunk_tasks import ChunkState
from rkdl._learning.full import FullProblem, KernelRows
from rkdl._learning.reduced import count_empty


class TensorKernelRows(KernelRows):
    """Rows of the N x N kernel matrix on a device: kept whole, or computed again for every walk."""

    executor: DeviceExecutor
    matrix: torch.Tensor | None

    def __init__(self, executor: Any, kernel: Any, matrix: Any) -> None:
        super().__init__(executor, to_device(kernel, executor.device), matrix)

    @classmethod
    def compute(cls, executor: Any, kernel: Any) -> TensorKernelRows:
        """The whole matrix, block of rows by block of rows."""
        signals = executor.signals
        size = signals.shape[0]
        matrix = torch.empty((size, size), dtype=torch_dtype(signals.dtype), device=executor.device)
        found, every = cls(executor, kernel, matrix), _all_signals(signals)

        def fill(number: int, start: int, stop: int) -> None:
            def work(rows: torch.Tensor, place: torch.Tensor) -> tuple[tuple, None]:
                place.copy_(found.kernel(rows, every))
                return (), None

            executor.attempt(work, every[start:stop], matrix[start:stop])

        for number, (start, stop) in enumerate(executor.bounds):
            fill(number, start, stop)
        return found

    def rows(self, start: int, stop: int) -> torch.Tensor:
        """``K[start:stop]``."""
        if self.matrix is not None:
            return self.matrix[start:stop]
        every = _all_signals(self.executor.signals)
        return self.kernel(every[start:stop], every)

    def diagonal(self) -> torch.Tensor:
        """``k(y, y)`` of every signal."""
        if self.matrix is not None:
            return self.matrix.diagonal().clone()
        return self.kernel.diagonal(_all_signals(self.executor.signals))

    def times(self, right: torch.Tensor) -> torch.Tensor:
        """``K @ right`` in the kernel's dtype."""
        right = right.to(torch_dtype(self.executor.signals.dtype))
        if self.matrix is not None:
            return self.matrix @ right
        every = _all_signals(self.executor.signals)

        def work(rows: torch.Tensor, kept: Any) -> tuple[tuple, torch.Tensor]:
            return (), self.kernel(rows, every) @ right

        return torch.cat([self.executor.attempt(work, every[a:b])[1] for a, b in self.executor.bounds])


def _all_signals(signals: Any) -> torch.Tensor:
    return signals.read(0, signals.shape[0])


class TensorFullProblem(FullProblem):
    """KDL on a kernel matrix that is a tensor."""

    kernel_rows: TensorKernelRows
    executor: DeviceExecutor
    atoms: torch.Tensor
    gram: torch.Tensor
    correlations: torch.Tensor

    def _begin(self, atoms: Any) -> None:
        atoms = to_device(atoms, self.executor.device)
        self._set(atoms, self.kernel_rows.times(atoms.T).double())

    def _set(self, atoms: Any, correlations: Any, gram: Any = None) -> None:
        gram = atoms @ correlations if gram is None else gram
        squares = gram.diagonal()
        is_long = squares > 1e-12 * squares.max().clamp(min=torch.finfo(torch.float64).tiny)
        factors = torch.where(is_long, torch.where(is_long, squares, 1.0).rsqrt(), 0.0)
        self.atoms = atoms * factors[:, None]
        self.correlations = correlations * factors
        self.gram = gram * factors * factors[:, None]

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Take a state over; one that is not of this problem is refused."""
        super().restore(state)
        held = (self.atoms, self.correlations, self.gram)
        self.atoms, self.correlations, self.gram = to_device(held, self.executor.device)

    def encode(self) -> None:
        """Code the signals with the current model, which gives its error."""
        dtype = torch_dtype(self.executor.signals.dtype)
        norms: Any = self.squared_norms
        codes, residuals = pursue(self.correlations.to(dtype), self.gram.to(dtype), norms, *self.pursuit)
        self._coded = codes, residuals
        self.objective = float(residuals.double().sum())
        self.n_empty = count_empty(ChunkState(codes, residuals))

    def update(self) -> None:
        """Update the atoms for the codes of `encode`, replace unused ones; all or nothing."""
        n_atoms = len(self.atoms)
        codes, residuals = self._coded
        self._coded = None
        dense = codes.dense(n_atoms, torch.float64)
        aims = self.kernel_rows.times(dense).double()
        products = dense.T @ dense

        # Coordinates of the sweep: the codes' columns first, the old atoms after them.
        crossed = dense.T @ self.correlations
        metric = torch.cat([torch.cat([dense.T @ aims, crossed], 1), torch.cat([crossed.T, self.gram], 1)])
        metric = 0.5 * (metric + metric.T)
        identity = torch.eye(2 * n_atoms, dtype=torch.float64, device=self.executor.device)
        targets, mixed = identity[:n_atoms].clone(), identity[n_atoms:].clone()
        used = products.diagonal() > 0.0

        if self.refit:
            correlations, refitted = self.correlations.clone(), dense.clone()

            def correlate(j: int, couplings: torch.Tensor, norm: float) -> torch.Tensor:
                correlations[:, j] = (aims[:, j] - correlations @ couplings) / norm
                return correlations[:, j]

            aksvd_sweep(refitted, targets, mixed, correlate, metric)
            products = refitted.T @ refitted
            fit = (refitted * correlations).sum()
        else:
            factors = gram_sweep(products, targets, mixed, metric)
            products = products * factors * factors[:, None]
            correlations = aims @ mixed[:, :n_atoms].T + self.correlations @ mixed[:, n_atoms:].T
            fit = (metric[:n_atoms] * factors[:, None] * mixed).sum()
        gram_now = mixed @ metric @ mixed.T
        objective = self.trace - 2.0 * fit + (products * gram_now).sum()
        atoms = mixed[:, :n_atoms] @ dense.T + mixed[:, n_atoms:] @ self.atoms

        revived = self._revive(residuals, used.cpu().numpy(), atoms, correlations, gram_now)
        self._set(atoms, correlations, gram_now)
        self.update_objective = float(objective)
        self.n_revived += revived
