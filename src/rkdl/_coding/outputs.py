"""Where the codes of the chunks go: a dense array, or a CSR array by way of parts."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from scipy import sparse

from rkdl._backends.base import Codes
from rkdl._coding.encoder import Encoder
from rkdl._utils.types import Array


class Output(Protocol):
    """Codes of signals, written chunk by chunk in any order, from several threads."""

    def write_plain(self, correlations: Array, squared_norms: Array, start: int, stop: int) -> None:
        """Code a chunk from `Encoder.plain_products`."""

    def write(self, codes: Codes, factors: np.ndarray, start: int, stop: int) -> None:
        """Write codes of a chunk, times one factor per atom."""

    def result(self) -> np.ndarray | sparse.csr_array:
        """The codes of all signals, when every chunk is written."""


class DenseOutput:
    """Codes (n_signals, n_components) with their zeros; `factors` are those of plain chunks."""

    def __init__(self, encoder: Encoder, factors: np.ndarray, n_signals: int) -> None:
        self._encoder, self._factors = encoder, factors
        self._codes = np.zeros((n_signals, encoder.n_atoms), dtype=factors.dtype)

    def write_plain(self, correlations: Array, squared_norms: Array, start: int, stop: int) -> None:
        """See `Output`."""
        self._encoder.write_plain_codes(correlations, squared_norms, self._factors, self._codes[start:stop])

    def write(self, codes: Codes, factors: np.ndarray, start: int, stop: int) -> None:
        """See `Output`."""
        codes.scatter(factors, self._codes[start:stop])

    def result(self) -> np.ndarray:
        """See `Output`."""
        return self._codes


class JoinedOutput:
    """CSR codes of signals: one part per chunk, joined at the end."""

    def __init__(self, encoder: Encoder, factors: np.ndarray, n_signals: int) -> None:
        self._encoder, self._factors, self._n_signals = encoder, factors, n_signals
        self._parts: dict[int, Codes] = {}

    def write_plain(self, correlations: Array, squared_norms: Array, start: int, stop: int) -> None:
        """See `Output`."""
        self.write(self._encoder.plain_codes(correlations, squared_norms), self._factors, start, stop)

    def write(self, codes: Codes, factors: np.ndarray, start: int, stop: int) -> None:
        """See `Output`."""
        self._parts[start] = codes.scaled(factors)

    def result(self) -> sparse.csr_array:
        """See `Output`."""
        parts = [self._parts.pop(start) for start in sorted(self._parts)]
        return join(parts, self._n_signals).to_csr(self._encoder.n_atoms)


def open_output(encoder: Encoder, factors: np.ndarray, n_signals: int, sparse_output: bool) -> Output:
    """The output for codes of so many signals; `factors` are those of plain chunks, one per atom."""
    return (JoinedOutput if sparse_output else DenseOutput)(encoder, factors, n_signals)


def join(parts: list[Codes], n_signals: int) -> Codes:
    """Codes of consecutive chunks as one; `parts` is emptied on the way."""
    total = sum(len(part.values) for part in parts)
    counts = np.empty(n_signals, dtype=np.int32)
    indices = np.empty(total, dtype=np.int32 if total < 2**31 else np.int64)
    values = np.empty(total, dtype=parts[0].values.dtype)
    row = position = 0
    for number, part in enumerate(parts):
        rows, size = len(part.counts), len(part.values)
        counts[row : row + rows] = part.counts
        indices[position : position + size] = part.indices
        values[position : position + size] = part.values
        parts[number] = None  # type: ignore[call-overload]
        row, position = row + rows, position + size
    return Codes(counts, indices, values)
