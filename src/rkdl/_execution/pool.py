"""Work on several threads, with results in order."""

from __future__ import annotations

from _thread import start_new_thread
from collections.abc import Callable, Sequence
from contextlib import suppress
from contextvars import Context, copy_context
from itertools import repeat
from queue import SimpleQueue
from threading import Lock
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_order(
    function: Callable[..., Result],
    items: Sequence[tuple],
    threads: int,
    window: int,
    consume: Callable[[Result], object],
) -> None:
    """``consume(function(*item))`` of each item on so many threads, this one among them, consumed in order.

    At most `window` results are in flight. After an error or Ctrl-C nothing more begins. What threads wait for here is
    made in C: Ctrl-C inside a semaphore or a future, which are made in Python, would leave its lock held for ever.
    """
    upcoming, found = iter(range(len(items))), dict[int, Result]()
    turn, errors = Lock(), list[BaseException]()
    # One entry for each result that there is room for.
    room: SimpleQueue[None] = SimpleQueue()
    for _ in range(window):
        room.put(None)
    n_consumed, is_over = 0, False

    def work() -> None:
        nonlocal n_consumed, is_over
        try:
            room.get()
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
                        room.put(None)
                room.get()
        except BaseException as error:
            is_over = True
            errors.append(error)
        finally:
            # Whoever waits for room sees that it is over.
            room.put(None)

    started, finished, ended = list[int](), list[None](), SimpleQueue[None]()

    def help_out(context: Context) -> None:
        context.run(work)
        finished.append(None)
        ended.put(None)

    def wait() -> None:
        # By what is finished: Ctrl-C may lose what the queue gave.
        while len(finished) < len(started):
            ended.get()

    # The caller's settings, such as NumPy's error state, hold in the threads too.
    contexts = [(copy_context(),) for _ in range(threads - 1)]
    try:
        # While the interpreter ends there are no more threads, and this one works alone.
        with suppress(RuntimeError):
            # A loop in C, so that Ctrl-C cannot come between the start of a thread and its entry in the list.
            started.extend(map(start_new_thread, repeat(help_out), contexts))
        work()
        wait()
    except BaseException:
        is_over = True
        for _ in range(threads):
            room.put(None)
        wait()
        raise
    if errors:
        raise errors[0]


def side_by_side(function: Callable[[Item], Result], items: Sequence[Item], threads: int) -> list[Result]:
    """``function`` of each item on so many threads, in order; if one fails, those not yet started are left out."""
    threads = min(threads, len(items))
    if threads <= 1:
        return [function(item) for item in items]
    found: list[Result] = []
    in_order(function, [(item,) for item in items], threads, len(items), found.append)
    return found
