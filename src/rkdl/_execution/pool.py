"""Work given to a pool of threads, or done here where there are no threads to be had."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor, Future
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
