"""One scale for all methods: the error in the kernel's feature space of given codes, with the best atoms for them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy.linalg import eigh

from rkdl._reproduction.published import rbf

_BLOCK_ROWS = 1024
# A kernel matrix up to this size is kept between calls; otherwise its blocks are recomputed.
_KEPT_BYTES = 1 << 30


class OneScale:
    """Errors of codes of one data set, whatever method they come from.

    For codes Z the best atoms in the kernel's feature space are combinations of all signals, and the squared error that
    they leave is ``tr K - tr((Z'Z)^+ Z'KZ)``.

    Parameters
    ----------
    signals : ndarray of shape (n_signals, n_features)
        The signals.
    gamma : float
        Parameter of the kernel ``exp(-gamma |x - y|^2)``.
    """

    def __init__(self, signals: np.ndarray, gamma: float) -> None:
        self._signals = np.ascontiguousarray(signals, dtype=np.float64)
        self._gamma = gamma
        self._keeps = 8 * len(signals) ** 2 <= _KEPT_BYTES
        self._blocks: list[np.ndarray] | None = None

    def error(self, codes: np.ndarray) -> float:
        """``sqrt(f / (m N))`` with the best atoms for the codes, of shape (n_signals, n_components)."""
        codes = np.asarray(codes, dtype=np.float64)
        products = np.zeros((codes.shape[1], codes.shape[1]))
        start = 0
        for block in self._kernel_blocks():
            products += codes[start : start + len(block)].T @ (block @ codes)
            start += len(block)
        values, vectors = eigh(codes.T @ codes)
        # Atoms that are not used, or only in a fixed proportion to others, add nothing.
        used = values > len(values) * np.finfo(np.float64).eps * max(values[-1], 0.0)
        represented = np.sum(np.einsum("ij,ik,kj->j", vectors, products, vectors)[used] / values[used])
        return float(np.sqrt(max(len(codes) - represented, 0.0) / self._signals.size))

    def _kernel_blocks(self) -> Iterator[np.ndarray]:
        if self._blocks is not None:
            yield from self._blocks
            return
        kept = []
        for start in range(0, len(self._signals), _BLOCK_ROWS):
            block = rbf(self._signals[start : start + _BLOCK_ROWS], self._signals, self._gamma)
            if self._keeps:
                kept.append(block)
            yield block
        if self._keeps:
            self._blocks = kept
