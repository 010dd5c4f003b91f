"""Signals that are tensors, or that are brought to a device chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Self

import numpy as np
import torch

from rkdl._backends.arrays import host
from rkdl._backends.devices import CACHE_SHARE, free_bytes, resolve_device, torch_dtype
from rkdl._data.signals import Result, Signals, check_shape

_DTYPES = {torch.float32: np.float32, torch.float16: np.float32, torch.bfloat16: np.float32}

# Bytes that are copied to pinned memory together: one piece is sent while the next is copied.
STAGING_BYTES = 32 << 20


def open_tensor(X: torch.Tensor, device: Any, caller: str) -> TensorSignals | StreamedSignals:
    """Signals that are a tensor, on `device` or, without one, where they are; from host memory they are streamed."""
    if X.layout is not torch.strided:
        _check_sparse(X)
        X = X.to_dense()
    if X.dtype.is_complex:
        raise ValueError(f"Complex data not supported: X is of dtype {X.dtype}.")
    check_shape(tuple(X.shape), "tensor", caller)
    place = resolve_device(X.device if device is None else device)
    dtype = _DTYPES.get(X.dtype, np.float64)
    if X.device.type == "cpu" and place.type == "cuda":
        return StreamedSignals(HostTensor(X.detach().as_subclass(torch.Tensor), dtype), place)
    return TensorSignals(X, dtype, place)


def _check_sparse(X: torch.Tensor) -> None:
    """Refuse a sparse tensor with indices outside its shape, which torch would follow."""
    try:
        # torch checks them when it makes a tensor, unless it is told not to.
        if X.layout is torch.sparse_coo:
            torch.sparse_coo_tensor(X._indices(), X._values(), X.shape, check_invariants=True)
        else:
            by_rows = X.layout in (torch.sparse_csr, torch.sparse_bsr)
            places = (X.crow_indices(), X.col_indices()) if by_rows else (X.ccol_indices(), X.row_indices())
            torch.sparse_compressed_tensor(*places, X.values(), X.shape, layout=X.layout, check_invariants=True)
    except RuntimeError as error:
        raise ValueError(f"X is a malformed sparse tensor ({error}): make it with check_invariants=True.") from error


def _finished(rows: torch.Tensor, dtype: np.dtype) -> torch.Tensor:
    return rows.to(torch_dtype(dtype)).contiguous()


class TensorSignals(Signals):
    """Rows of a tensor, on the device that processes them."""

    def __init__(self, data: torch.Tensor, dtype: Any, device: torch.device) -> None:
        super().__init__(data.detach().as_subclass(torch.Tensor).to(device).resolve_neg(), dtype)
        self.device = device
        self.result_device = data.device

    def _finish(self, rows: torch.Tensor) -> torch.Tensor:
        return _finished(rows, self.dtype)

    def read(self, start: int, stop: int) -> torch.Tensor:
        # All rows together are one tensor from pass to pass, if they have the dtype.
        return self._finish(self.data[start:stop] if stop - start < self.shape[0] else self.data)

    def take(self, indices: np.ndarray) -> np.ndarray:
        return self._take(indices).cpu().numpy()

    def _take(self, indices: np.ndarray) -> torch.Tensor:
        return self._finish(self.data[torch.from_numpy(np.asarray(indices, dtype=np.int64)).to(self.device)])

    def on_host(self) -> Signals:
        data = self.data.cpu()
        if data.dtype == torch.bfloat16:
            return HostTensor(data, self.dtype)
        return Signals(host(data), self.dtype)

    def subset(self, indices: np.ndarray) -> TensorSignals:
        return TensorSignals(self._take(indices), self.dtype, self.device)


class HostTensor(Signals):
    """Rows of a tensor in host memory, which become arrays when they are read; a device gets them as they are stored.

    NumPy has no bfloat16.
    """

    def _finish(self, rows: torch.Tensor) -> np.ndarray:
        return _finished(rows, self.dtype).numpy()

    def take(self, indices: np.ndarray) -> np.ndarray:
        return self._finish(self.data[torch.from_numpy(np.asarray(indices, dtype=np.int64))])


class StreamedSignals(Signals):
    """Rows in host memory or on disk that go through a device: two chunks there, one arriving, one processed.

    Where all signals fit in a share of the device's memory they stay there when they have arrived once. A tensor's
    rows are sent and kept in its own dtype, and converted chunk by chunk on the device.
    """

    def __init__(self, source: Signals, device: torch.device) -> None:
        super().__init__(source.data, source.dtype)
        self.source = source
        self.device = device
        # Whether rows are sent in their own dtype and converted on the device.
        self._is_stored = isinstance(source, HostTensor)
        self.result_device = source.data.device if self._is_stored else None
        self.is_in_memory = source.is_in_memory
        self._buffers = self._make_buffers(self.dtype) if device.type == "cuda" else None

    def _make_buffers(self, dtype: np.dtype) -> _Buffers:
        return _Buffers(self.device, self.shape, self.data.dtype if self._is_stored else torch_dtype(dtype))

    def _replaced(self, **changes: Any) -> Self:
        buffers = self._buffers
        if buffers is not None and "dtype" in changes and not self._is_stored:
            buffers = self._make_buffers(changes["dtype"])
        return super()._replaced(source=self.source._replaced(**changes), _buffers=buffers, **changes)

    def read(self, start: int, stop: int) -> torch.Tensor:
        if self._buffers is None:
            rows = self.source.read(start, stop)
            return torch.from_numpy(rows if rows.flags.writeable else rows.copy())
        arrived = self._buffers.read(self._sent, start, stop)
        return _finished(arrived, self.dtype) if self._is_stored else arrived

    def _sent(self, start: int, stop: int) -> Any:
        """Rows as they are sent."""
        return self.data[start:stop] if self._is_stored else self.source.read(start, stop)

    def take(self, indices: np.ndarray) -> np.ndarray:
        return self.source.take(indices)

    def on_host(self) -> Signals:
        return self.source

    def subset(self, indices: np.ndarray) -> TensorSignals:
        there = None if self._buffers is None else self._buffers.whole()
        if there is not None:
            return TensorSignals(there, self.dtype, self.device).subset(indices)
        rows = torch.from_numpy(np.ascontiguousarray(self.take(indices)))
        return TensorSignals(rows.to(self.device), self.dtype, self.device)

    def reading(self, bounds: Sequence[tuple[int, int]], at_once: int) -> AbstractContextManager[None]:
        missing = [bound for bound in bounds if self._buffers is None or not self._buffers.has(*bound)]
        return self.source.reading(missing, at_once)

    def _of_pieces(self, function: Callable[[Any], Result], name: str) -> list[Result]:
        return self.source._of_pieces(function, name)


class _Buffers:
    """Memory of a GPU that signals arrive in, shared by signals that differ in their dtype alone."""

    def __init__(self, device: torch.device, shape: tuple[int, int], dtype: torch.dtype) -> None:
        self.device, self.shape, self.dtype = device, shape, dtype
        self._copies = torch.cuda.Stream(device)
        self._sent = [torch.cuda.Event(), torch.cuda.Event()]
        # All rows, if they fit; and which of them have arrived.
        self._resident: torch.Tensor | None = None
        self._is_there = np.zeros(shape[0], dtype=bool)
        # Otherwise two slots used in turn; the event of a slot marks the end of the work that was submitted for it.
        self._slots: list[tuple[torch.Tensor, torch.cuda.Event] | None] = [None, None]
        self._is_used = False

    def _empty(self, n_rows: int) -> torch.Tensor:
        found = torch.empty((n_rows, self.shape[1]), dtype=self.dtype, device=self.device)
        self._copies.wait_stream(torch.cuda.current_stream(self.device))
        return found

    def has(self, start: int, stop: int) -> bool:
        """Whether these rows are on the device to stay."""
        return bool(self._is_there[start:stop].all())

    def whole(self) -> torch.Tensor | None:
        """All rows, if they are on the device."""
        return self._resident if self._is_there.all() else None

    def read(self, source: Callable[[int, int], Any], start: int, stop: int) -> torch.Tensor:
        """Rows on the device; ``source(start, stop)`` are those rows in host memory."""
        if not self._is_used:
            self._is_used = True
            if self.shape[0] * self.shape[1] * self.dtype.itemsize <= CACHE_SHARE * free_bytes(self.device):
                self._resident = self._empty(self.shape[0])
        if self._resident is None:
            return self._send(source(start, stop), self._slot(stop - start))
        if not self.has(start, stop):
            self._send(source(start, stop), self._resident[start:stop])
            self._is_there[start:stop] = True
        return self._resident[start:stop]

    def _slot(self, n_rows: int) -> torch.Tensor:
        """A slot for a chunk, that of the last but one."""
        earlier, last = self._slots
        if last is not None:
            # The work submitted so far includes all work on the last chunk.
            last[1].record(torch.cuda.current_stream(self.device))
        if earlier is None or len(earlier[0]) < n_rows:
            earlier = self._empty(n_rows), torch.cuda.Event()
        else:
            self._copies.wait_event(earlier[1])
        self._slots = [last, earlier]
        return earlier[0][:n_rows]

    def _send(self, rows: Any, target: torch.Tensor) -> torch.Tensor:
        """Copy through pinned memory on a separate stream; work submitted to the device later waits for it."""
        if isinstance(rows, np.ndarray) and rows.flags.writeable:
            # torch copies with several threads.
            rows = torch.from_numpy(rows)
        count = max(1, STAGING_BYTES // max(1, rows.shape[1] * rows.itemsize))
        with torch.cuda.stream(self._copies):
            for number, first in enumerate(range(0, len(rows), count)):
                piece, sent = rows[first : first + count], self._sent[number % 2]
                sent.synchronize()
                # torch keeps pinned memory and hands it out again when it has been read.
                pinned = torch.empty(piece.shape, dtype=target.dtype, pin_memory=True)
                if isinstance(piece, torch.Tensor):
                    pinned.copy_(piece)
                else:
                    np.copyto(pinned.numpy(), piece)
                target[first : first + count].copy_(pinned, non_blocking=True)
                sent.record(self._copies)
        torch.cuda.current_stream(self.device).wait_stream(self._copies)
        return target
