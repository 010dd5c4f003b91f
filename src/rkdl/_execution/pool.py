"""Work given to threads, or done here where there are no threads to be had."""

from __future__ import annotations

from _thread import start_new_thread
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from contextvars import Context, copy_context
from queue import SimpleQueue
from typing import Any, NamedTuple


class ThreadTeam:
    """`size` threads that run functions together with the calling thread.

    They start with the first function, wait between functions, and end after `close`. A `threading.Thread`, like a
    pool of them, makes its creator wait until it runs, which takes as long as coding a few hundred signals.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._queues: list[SimpleQueue] = []

    def run(self, function: Callable[[], Any], stop: Callable[[], Any]) -> None:
        """Run `function` here and on every thread of the team, at the same time, and return when all have returned.

        If one of them fails, `stop` is called, which must make the others return soon, and its error is raised.
        """

        def guarded() -> None:
            try:
                function()
            except BaseException:
                stop()
                raise

        calls: list[Future] = []
        try:
            self._start(guarded, calls)
            # To sleep and be woken takes as long as a small chunk: this thread works too.
            guarded()
            for call in calls:
                call.result()
        except BaseException:
            # Perhaps an interrupt of the waiting, which stops nobody else.
            stop()
            self.close()
            wait(calls)
            raise

    def _start(self, function: Callable[[], Any], calls: list[Future]) -> None:
        """Begin `function` on every thread, or on as many as can be started: none while the interpreter ends.

        What was begun is added to `calls`. A queue is known before its thread starts, so that no interrupt leaves a
        thread that `close` does not end.
        """
        for i in range(self._size):
            # The caller's context, such as NumPy's error state, holds in the threads too.
            job = _Job(function, copy_context(), Future())
            if i < len(self._queues):
                self._queues[i].put(job)
            else:
                queue: SimpleQueue = SimpleQueue()
                queue.put(job)
                self._queues.append(queue)
                try:
                    start_new_thread(_serve, (queue,))
                except RuntimeError:
                    self._queues.pop()
                    break
            calls.append(job.call)

    def close(self) -> None:
        """Let the threads end."""
        while self._queues:
            # In this order, so that an interrupt leaves none out.
            self._queues[-1].put(None)
            self._queues.pop()

    def __del__(self) -> None:
        # Perhaps `close` was interrupted.
        self.close()


class _Job(NamedTuple):
    """A function to run in a context, and where its result goes."""

    function: Callable[[], Any]
    context: Context
    call: Future


def _serve(queue: SimpleQueue) -> None:
    """Run one job after another until None comes."""
    while (job := queue.get()) is not None:
        try:
            result = job.context.run(job.function)
        except BaseException as error:
            job.call.set_exception(error)
        else:
            job.call.set_result(result)
            del result
        # Nothing of a job is kept while waiting for the next.
        del job


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
        # The caller's context, such as `config_context` and NumPy's error state, holds in the threads too.
        futures = [submit(pool, copy_context().run, function, item) for item in items]
        try:
            return [future.result() for future in futures]
        except BaseException:
            pool.shutdown(wait=True, cancel_futures=True)
            raise
