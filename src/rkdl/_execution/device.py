"""Chunk tasks on a torch device."""

from __future__ import annotations

import itertools
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Self

import numpy as np
import torch
from scipy import sparse

from rkdl._backends.devices import CACHE_SHARE, csr_tensor, free_bytes, to_device, to_host, upload
from rkdl._data.signals import Signals
from rkdl._execution.config import TF32, cache_limit
from rkdl._execution.executor import Bounds, ChunkTask, Executor, State, Sums, Value, add_sums
from rkdl._utils.nested import map_parts
from rkdl._utils.types import Array
from rkdl._utils.warnings import warn

# Multiplications between two passes, roughly, up to which the host is faster than the launches of a GPU.
HOST_WORK = 1 << 26
# A piece of a chunk this small that does not fit means that the device is full of something else.
SMALLEST_PIECE = 16


class DeviceExecutor(Executor):
    """Runs chunk tasks on a device, one after another, and adds their sums there.

    A chunk that does not fit in the device's memory is processed in pieces, halves first. If `is_light`, small matrices
    are computed in NumPy, because launching that work on the device would take longer. If `is_alone`, no code of the
    user's runs in a pass, so that torch need not track derivatives.
    """

    def __init__(self, signals: Signals, bounds: Bounds, is_light: bool, is_alone: bool) -> None:
        super().__init__(signals, bounds, 1)
        self.is_light, self.is_alone = is_light, is_alone
        self.device = signals.device
        self._pieces = 1

    def __enter__(self) -> Self:
        self._context = ExitStack()
        if self.device.type == "cuda":
            # float32 products in float32, or in TF32 where the configuration says so.
            self._context.callback(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
            torch.set_float32_matmul_precision("high" if TF32.get() else "highest")
            self._context.enter_context(torch.cuda.device(self.device))
        if self.is_light and self.is_alone:
            # No tensor of a fit outlives it.
            self._context.enter_context(torch.inference_mode())
        return self

    @cached_property
    def _cache_limit(self) -> int:
        # Queried once, and not to code a few signals: the query takes as long as many kernels.
        return int(CACHE_SHARE * free_bytes(self.device))

    def to_backend(self, value: Value) -> Value:
        return to_host(value) if self.is_light else to_device(value, self.device)

    def to_signals(self, value: Value) -> Value:
        return to_device(value, self.device)

    def with_vectors_on_device(self, feature_map: Value) -> Value:
        if not self.is_light:
            return feature_map
        # Kernel vectors are as long as signals, so they are on the device even where small matrices are not.
        return replace(to_device(feature_map, self.device), has_host_matrix=True)

    def can_cache(self, n_bytes: int) -> bool:
        if self.device.type == "cpu":
            return super().can_cache(n_bytes)
        return n_bytes <= cache_limit(self._cache_limit)

    def worker(self, task: ChunkTask) -> ChunkTask:
        return partial(self.attempt, self.to_signals(task))

    def _wide(self, part: Array) -> torch.Tensor:
        tensor = part if isinstance(part, torch.Tensor) else torch.from_numpy(np.array(part))
        return tensor.to(self.device, torch.float64, copy=True)

    def attempt(self, work: ChunkTask, rows: torch.Tensor, state: State = None) -> tuple[Sums, State]:
        while True:
            try:
                if self._pieces == 1 or isinstance(rows, np.ndarray):
                    return work(rows, state)
                edges = [len(rows) * i // self._pieces for i in range(self._pieces + 1)]
                found = [work(rows[a:b], _piece(state, a, b)) for a, b in itertools.pairwise(edges)]
                break
            except torch.OutOfMemoryError as error:
                if len(rows) < 2 * self._pieces * SMALLEST_PIECE:
                    raise torch.OutOfMemoryError(
                        f"{self.device} ran out of memory on {len(rows) // self._pieces} signals: free some, use "
                        f"another device, or device=None, which computes on the CPU."
                    ) from error
            # Outside the handler, whose traceback holds intermediate results.
            found = []
            self._pieces *= 2
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
            warn(
                f"{self.device} ran out of memory on {len(rows)} signals: they are processed in {self._pieces} pieces."
            )
        totals = None
        for sums, _ in found:
            totals = add_sums(totals, sums)
        assert totals is not None
        return totals, join_states([item for _, item in found])


def to_input_device(results: Any, signals: Any) -> Any:
    """Move results to the device that the signals came from, or to an array; results are not shared."""
    device = signals.result_device
    if device is None:
        return to_host(results)
    if isinstance(results, np.ndarray):
        is_plain = results.flags.c_contiguous and results.flags.writeable
        return torch.from_numpy(results).to(device) if is_plain else upload(results, device)
    if sparse.issparse(results):
        results = csr_tensor(results.indptr, results.indices, results.data, results.shape)
    return results.to(device)


def _piece(state: Any, start: int, stop: int) -> Any:
    """The chunk state of some rows of a chunk."""
    if isinstance(state, torch.Tensor):
        return state[start:stop]
    return map_parts(lambda part: _piece(part, start, stop), state)


def join_states(states: list) -> Any:
    """Chunk states of consecutive rows as one."""
    first = states[0]
    if len(states) == 1:
        return first
    if isinstance(first, bytes):
        return b"".join(states)
    if isinstance(first, torch.Tensor):
        return torch.cat(states)
    if hasattr(first, "_fields"):
        return type(first)(*(join_states(list(parts)) for parts in zip(*states, strict=True)))
    return first


def is_light(row_width: int, n_features: int) -> bool:
    """Whether the work between passes is so small that launching it on a GPU would take longer.

    Apart from the signal itself a row holds features and atoms, and that work is about their number squared times the
    length of the longest of them.
    """
    own = max(0, row_width - n_features)
    return own * own * row_width <= HOST_WORK
