"""Executors: chunk tasks on threads, sums in chunk order, Ctrl-C."""

import _thread
import threading
import time
from contextlib import suppress

import numpy as np
import pytest

from rkdl import DL, ORKDL
from rkdl._data.signals import Signals
from rkdl._data.sources import RowSource
from rkdl._execution.config import CHUNK_BYTES, ON_ROWS
from rkdl._execution.executor import Executor, in_order, side_by_side

n_jobs = pytest.mark.parametrize("n_jobs", [1, 2, 5])


def executor_of(n_chunks, n_jobs, **options):
    X = np.zeros((n_chunks, 2))
    return Executor(Signals(X, X.dtype), [(i, i + 1) for i in range(n_chunks)], n_jobs, **options)


class TestInOrder:
    @pytest.mark.parametrize("window", [1, 3, 10_000])
    def test_results_are_consumed_in_order_and_one_at_a_time(self, window):
        found, at_once = [], threading.Lock()

        def consume(result):
            assert at_once.acquire(blocking=False)
            found.append(result)
            at_once.release()

        in_order(int.__add__, lambda number: (number, 1), 10_000, 4, window, consume)
        assert found == list(range(1, 10_001))

    def test_a_slow_item_does_not_let_results_pile_up(self):
        last, begun, found = threading.Event(), [], []

        def work(item):
            begun.append(item)
            if item == 7:
                last.set()
            if item == 0:
                assert last.wait(timeout=60)
                assert max(begun) <= 7
            return item

        in_order(work, lambda number: (number,), 100, 3, 8, found.append)
        assert found == list(range(100))

    @pytest.mark.parametrize("threads", [1, 3])
    @pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
    @pytest.mark.parametrize("where", ["task", "sum"])
    def test_an_error_ends_the_pass_and_not_the_executor(self, threads, kind, where):
        begun = []

        class Part:
            """A sum that fails when it is added."""

            def __array__(self, *args, **options):
                raise kind("seven")

        def task(rows, state):
            begun.append(state)
            if state == 0 and where == "task":
                raise kind("seven")
            return (Part() if state == 0 else 1.0,), state

        with executor_of(1000, threads) as executor:
            with pytest.raises(kind, match="seven"):
                executor.map_reduce(task, list(range(1000)))
            assert len(begun) < 1000
            assert executor.map_chunks(lambda start, stop: start) == list(range(1000))

    def test_an_interrupt_while_threads_are_started(self, monkeypatch):
        """Those that were not started are not waited for, which would take for ever."""
        started, found = [], []

        def start(*args):
            if started:
                raise KeyboardInterrupt
            started.append(_thread.start_new_thread(*args))
            return started[0]

        def interrupted():
            try:
                in_order(sum, lambda number: (range(200_000),), 8, 4, 8, found.append)
            except KeyboardInterrupt:
                found.append("interrupted")

        monkeypatch.setattr("rkdl._execution.executor.start_new_thread", start)
        caller = threading.Thread(target=interrupted, daemon=True)
        caller.start()
        caller.join(20.0)
        assert not caller.is_alive()
        assert found[-1] == "interrupted"

    def test_without_threads_the_caller_does_the_work(self, monkeypatch):
        """As while the interpreter ends, or where the system gives no more threads."""

        def refuse(*args):
            raise RuntimeError("can't create new thread at interpreter shutdown")

        monkeypatch.setattr("rkdl._execution.executor.start_new_thread", refuse)
        with executor_of(9, 3) as executor:
            assert executor.map_chunks(lambda start, stop: start) == list(range(9))
        assert side_by_side(str, range(4), 3) == ["0", "1", "2", "3"]


class TestSettingsOfTheCaller:
    """NumPy's error state, like `config_context`, holds wherever the work is done."""

    @n_jobs
    def test_in_chunks(self, n_jobs):
        with np.errstate(over="raise"), executor_of(9, n_jobs) as executor:
            done = []
            token = ON_ROWS.set(lambda start, stop: done.append((start, stop)))
            assert executor.map_chunks(lambda start, stop: np.geterr()["over"]) == ["raise"] * 9
            ON_ROWS.reset(token)
            assert done == executor.bounds
            assert side_by_side(lambda item: np.geterr()["over"], range(4), n_jobs) == ["raise"] * 4

    def test_where_rows_are_read_ahead(self):
        found = set()

        class Rows:
            shape, dtype = (40, 2), np.dtype(np.float64)

            def __getitem__(self, rows):
                found.add(np.geterr()["over"])
                return np.ones((len(range(40)[rows]), 2))

        with np.errstate(over="raise"), Executor(RowSource(Rows()), [(0, 20), (20, 40)], 2) as executor:
            executor.inspected()
        assert found == {"raise"}


def threads_of(executor):
    """Threads that run chunks; each waits until all have come or no other can."""
    together = threading.Barrier(2)

    def task(rows, state):
        with suppress(threading.BrokenBarrierError):
            together.wait(timeout=0.2)
        return (0.0,), threading.get_ident()

    with executor:
        return set(executor.map_reduce(task)[1])


@pytest.mark.parametrize(("share", "n_threads"), [(1, 1), (1.1, 2)])
def test_what_fits_in_a_chunk_is_done_by_the_caller(share, n_threads):
    assert len(threads_of(executor_of(8, 2, row_width=share * CHUNK_BYTES / 8 / 8))) == n_threads


@n_jobs
def test_sums_and_states(n_jobs):
    X = np.random.default_rng(0).standard_normal((1000, 3))
    bounds = [(i, i + 50) for i in range(0, 1000, 50)]

    def task(rows, state):
        return (rows.sum(axis=0), len(rows)), (0 if state is None else state) + len(rows)

    with Executor(Signals(X, X.dtype), bounds, n_jobs) as executor:
        first, states = executor.map_reduce(task)
        expected = np.zeros(3)
        for start, stop in bounds:
            expected += X[start:stop].sum(axis=0)
        assert np.array_equal(first[0], expected)
        (again, count), states = executor.map_reduce(task, states, start=first)
        # What was given is not added to.
        assert np.array_equal(first[0], expected)
        assert (count, states) == (2000, [100] * 20)
        np.testing.assert_allclose(again, 2 * expected)
        assert executor.map_states(lambda state: state + 1, states) == [101] * 20
        assert executor.gather(str, states) == ["100"] * 20
        other = executor.with_signals(Signals(np.ones((1000, 3)), np.float64))
        assert other.map_reduce(task)[0][0].tolist() == [1000.0] * 3


class TestInterrupt:
    """Ctrl-C is a value that the loop and the preparation return; the estimator raises it after storing."""

    @pytest.mark.parametrize("model", [DL(5, random_state=0), ORKDL(5, n_kernel_vectors=8, random_state=0)])
    @pytest.mark.parametrize("after", [2, 5])
    def test_what_was_learned_is_stored(self, model, after, monkeypatch):
        from rkdl._learning.reduced import ReducedProblem

        update, calls = ReducedProblem.update, []

        def interrupted(self, **how):
            calls.append(1)
            if len(calls) == after:
                raise KeyboardInterrupt
            return update(self, **how)

        monkeypatch.setattr(ReducedProblem, "update", interrupted)
        X = np.random.default_rng(0).standard_normal((200, 6))
        with pytest.raises(KeyboardInterrupt, match="holds the best model"):
            model.fit(X)
        # No iteration follows an interruption, be it of the preparation.
        assert len(calls) == after
        assert model.transform(X).shape == (200, 5)

    @pytest.mark.parametrize("threads", [1, 3])
    def test_a_pass_ends_soon_and_leaves_no_threads(self, threads):
        """The signal comes to the main thread, whatever that does at the time."""
        begun, before = [], threading.active_count()

        def task(start, stop):
            begun.append(start)
            if start == 5:
                _thread.interrupt_main()
            # Long enough for the signal to be seen.
            sum(range(20_000))

        with pytest.raises(KeyboardInterrupt), executor_of(100_000, threads) as executor:
            executor.map_chunks(task)
        assert len(begun) < 10_000
        # A thread that was just starting may end after the executor.
        deadline = time.monotonic() + 60
        while threading.active_count() > before and time.monotonic() < deadline:
            pass
        assert threading.active_count() == before
