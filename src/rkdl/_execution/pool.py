"""Work on a pool of threads, with results in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from contextvars import copy_context
from threading import Lock, Semaphore
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(
    pool: ThreadPoolExecutor,
    function: Callable[..., Result],
    items: Sequence[tuple],
    threads: int,
    window: int,
    consume: Callable[[Result], object],
) -> None:
    """``consume(function(*item))`` of each item on so many threads, this one among them, consumed in order.

    At most `window` results are in flight. After an error or Ctrl-C nothing more begins. A future for every item would
    wake this thread as often, which takes a fifth of the time of coding two thousand signals.
    """
    upcoming, found = iter(range(len(items))), dict[int, Result]()
    turn, room = Lock(), Semaphore(window)
    n_consumed, is_over = 0, False

    def work() -> None:
        nonlocal n_consumed, is_over
        try:
            room.acquire()
            for number in upcoming:
                if is_over:
                    break
                result = function(*items[number])
                with turn:
                    found[number] = result
                    del result
                    while n_consumed in found and not is_over:
                        consume(found.pop(n_consumed))
                        n_consumed += 1
                        room.release()
                room.acquire()
        except BaseException:
            is_over = True
            raise
        finally:
            # Whoever waits for room sees that it is over.
            room.release()

    calls: list[Future[None]] = []
    try:
        # While the interpreter ends, pools take nothing more, and this thread works alone.
        with suppress(RuntimeError):
            for _ in range(threads - 1):
                # The caller's settings, such as NumPy's error state, hold in the threads too.
                calls.append(pool.submit(copy_context().run, work))
        work()
        for call in calls:
            call.result()
    finally:
        is_over = True
        wait(calls)


def side_by_side(function: Callable[[Item], Result], items: Sequence[Item], threads: int) -> list[Result]:
    """``function`` of each item on so many threads, in order; if one fails, those not yet started are left out."""
    threads = min(threads, len(items))
    if threads <= 1:
        return [function(item) for item in items]
    found: list[Result] = []
    with ThreadPoolExecutor(threads - 1, thread_name_prefix="rkdl") as pool:
        in_order(pool, function, [(item,) for item in items], threads, len(items), found.append)
    return found
