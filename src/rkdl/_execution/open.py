"""The executor for signals, by where they are."""

from __future__ import annotations

import numpy as np

from rkdl._backends.arrays import is_tensor
from rkdl._data.signals import Signals
from rkdl._execution.chunks import chunk_bounds
from rkdl._execution.config import plan_chunks
from rkdl._execution.executor import Executor


def open_executor(signals: Signals, row_width: int, n_jobs: int | None, *, is_alone: bool = False) -> Executor:
    """What runs chunk tasks on the signals, each of which occupies `row_width` numbers while it is worked on.

    `is_alone` says that the chunk tasks run no code of the user's.
    """
    if signals.is_remote:
        from rkdl._data.dask import DaskSignals
        from rkdl._execution.dask import DaskExecutor

        assert isinstance(signals, DaskSignals)
        return DaskExecutor(signals, n_jobs)
    n_signals, itemsize = signals.shape[0], signals.dtype.itemsize
    if signals.device is not None:
        from rkdl._execution.device import DeviceExecutor, bounds_on, is_light

        # A source of signals that is the user's may differentiate.
        is_alone = is_alone and (is_tensor(signals.data) or type(signals.data) is np.ndarray)
        bounds = plan_chunks(n_signals, row_width, itemsize, bounds_on(signals.device))
        return DeviceExecutor(signals, row_width, is_light(row_width, signals.shape[1]), is_alone, bounds)
    return Executor(signals, plan_chunks(n_signals, row_width, itemsize), n_jobs, None, row_width)


def open_part(signals: Signals, row_width: int, n_jobs: int | None, cache_bytes: int | None = None) -> Executor:
    """As `open_executor`, for some rows of signals on this machine; at most `cache_bytes` are cached between passes.

    Not in the user's chunks, which are those of all signals.
    """
    if signals.device is not None:
        from rkdl._execution.device import DeviceExecutor, is_light

        return DeviceExecutor(signals, row_width, is_light(row_width, signals.shape[1]), cache_bytes=cache_bytes)
    bounds = chunk_bounds(signals.shape[0], row_width, signals.dtype.itemsize)
    return Executor(signals, bounds, n_jobs, cache_bytes, row_width)
