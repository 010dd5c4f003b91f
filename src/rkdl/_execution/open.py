"""The executor for signals, by where they are."""

from __future__ import annotations

import numpy as np

from rkdl._backends.arrays import is_tensor
from rkdl._data.signals import Signals
from rkdl._execution.chunks import chunk_bounds
from rkdl._execution.config import plan_chunks
from rkdl._execution.executor import Executor


def open_executor(
    signals: Signals,
    row_width: int,
    n_jobs: int | None,
    *,
    is_alone: bool = False,
    is_part: bool = False,
    cache_bytes: int | None = None,
) -> Executor:
    """What runs chunk tasks on the signals, each of which occupies `row_width` numbers while it is worked on.

    `is_alone` says that the chunk tasks run no code of the user's, `is_part` that the signals are a part of others, to
    which the user's chunks apply. At most `cache_bytes` are cached between passes.
    """
    if signals.is_remote:
        from rkdl._data.dask import DaskSignals
        from rkdl._execution.dask import DaskExecutor

        assert isinstance(signals, DaskSignals)
        return DaskExecutor(signals, n_jobs)
    bounds = (chunk_bounds if is_part else plan_chunks)(
        signals.shape[0], row_width, signals.dtype.itemsize, signals.device
    )
    if signals.device is None:
        return Executor(signals, bounds, n_jobs, cache_bytes, row_width)
    from rkdl._execution.device import DeviceExecutor, is_light

    # A source of signals that is the user's may differentiate.
    is_alone = is_alone and (is_tensor(signals.data) or type(signals.data) is np.ndarray)
    return DeviceExecutor(signals, row_width, is_light(row_width, signals.shape[1]), is_alone, bounds, cache_bytes)
