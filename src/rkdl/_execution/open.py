"""The executor for signals, by where they are."""

from __future__ import annotations

from typing import Any

import numpy as np

from rkdl._backends.arrays import is_tensor
from rkdl._execution.config import plan_chunks
from rkdl._execution.executor import Executor
from rkdl._execution.threads import ThreadExecutor


def open_executor(signals: Any, row_width: int, n_jobs: int | None, *, is_alone: bool = False) -> Executor:
    """What runs chunk tasks on the signals, each of which occupies `row_width` numbers while it is worked on.

    `is_alone` says that the chunk tasks run no code of the user's.
    """
    if signals.is_remote:
        from rkdl._execution.dask import DaskExecutor

        return DaskExecutor(signals, n_jobs)
    if signals.device is not None:
        from rkdl._execution.device import DeviceExecutor, is_light

        # A source of signals that is the user's may differentiate.
        is_alone = is_alone and (is_tensor(signals.data) or type(signals.data) is np.ndarray)
        return DeviceExecutor(signals, row_width, is_light(row_width, signals.shape[1]), is_alone)
    return ThreadExecutor(signals, plan_chunks(signals.shape[0], row_width, signals.dtype.itemsize), n_jobs)
