"""Work given to a pool of threads, or done here where there are no threads to be had."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any


def submit(pool: Executor, function: Callable, *arguments: Any) -> Future:
    """``pool.submit``; while the interpreter ends, when pools take nothing more, `function` runs here and now."""
    try:
        return pool.submit(function, *arguments)
    except RuntimeError:
        # Raised by the pool alone: what the function raises is in the future.
        done: Future = Future()
        try:
            done.set_result(function(*arguments))
        except BaseException as error:
            done.set_exception(error)
        return done


def side_by_side(function: Callable[[Any], Any], items: Sequence[Any], threads: int) -> list:
    """``function`` of each item on a pool of threads, in order; if one fails, those not yet started are cancelled."""
    if threads == 1 or len(items) == 1:
        return [function(item) for item in items]
    with ThreadPoolExecutor(min(threads, len(items)), thread_name_prefix="rkdl") as pool:
        futures = [submit(pool, function, item) for item in items]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
