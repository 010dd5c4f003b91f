"""Chunk tasks on threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Self

from rkdl._data.signals import Signals
from rkdl._execution.blas import check_n_jobs, resolve_threads
from rkdl._execution.chunks import CHUNK_BYTES
from rkdl._execution.executor import Bounds, Executor


class ThreadExecutor(Executor):
    """Runs chunk tasks on threads, or in the calling one where there is a single chunk or little work.

    Signals occupy `row_width` numbers each while they are worked on; other parameters are those of `Executor`.
    """

    def __init__(
        self,
        signals: Signals,
        bounds: Bounds,
        n_jobs: int | None,
        cache_bytes: int | None = None,
        row_width: float = float("inf"),
    ) -> None:
        super().__init__(signals, bounds, n_jobs, cache_bytes)
        check_n_jobs(n_jobs)
        if len(self.bounds) > 1 and signals.device is None:
            # What would fit in a chunk ends sooner in the calling thread than on several, which must be woken.
            n_bytes = signals.shape[0] * row_width * signals.dtype.itemsize
            if not signals.is_in_memory or n_bytes > CHUNK_BYTES:
                self._threads = min(resolve_threads(n_jobs), len(self.bounds))

    def __enter__(self) -> Self:
        super().__enter__()
        if self._threads > 1:
            # The calling thread is one of them.
            self._pool = self._context.enter_context(ThreadPoolExecutor(self._threads - 1, thread_name_prefix="rkdl"))
        return self
