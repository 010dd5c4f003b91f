"""Executors: chunk tasks on threads, sums in chunk order, Ctrl-C."""

import _thread
import contextvars
import sys
import threading
import time

import numpy as np
import pytest

from rkdl import DL, ORKDL
from rkdl._data.signals import Signals
from rkdl._data.sources import RowSource
from rkdl._execution import pool, threads
from rkdl._execution.pool import ThreadTeam
from rkdl._execution.threads import FEW_RESULTS, OrderedResults, ThreadExecutor


def executor_of(n_chunks, n_jobs):
    X = np.zeros((n_chunks, 2))
    return ThreadExecutor(Signals(X, X.dtype), [(i, i + 1) for i in range(n_chunks)], n_jobs)


class TestMapChunks:
    """Results of chunks are consumed in chunk order, by whichever thread has the next one."""

    @pytest.mark.parametrize("n_jobs", [1, 2, 5])
    @pytest.mark.parametrize("is_light", [True, False])
    def test_order(self, n_jobs, is_light):
        delays = np.random.default_rng(0).random(60) * 2e-3
        found, at_once = [], threading.Lock()

        def task(number, start, stop):
            time.sleep(delays[number])
            return number

        def consume(result):
            assert at_once.acquire(blocking=False)
            found.append(result)
            at_once.release()

        with executor_of(60, n_jobs) as executor:
            executor.map_chunks(task, consume, lambda result: is_light)
        assert found == list(range(60))

    def test_a_slow_chunk_does_not_let_results_pile_up(self):
        done, most, begun = threading.Event(), [], []

        def task(number, start, stop):
            if number == 0:
                done.wait(timeout=60)
                return 0
            begun.append(number)
            if number == 20:
                # As far as the others may go: the first one is let go, and what they hold is counted.
                most.append(len(begun))
                done.set()
            return number

        with executor_of(100, 2) as executor:
            timer = threading.Timer(1.0, lambda: (most.append(len(begun)), done.set()))
            timer.start()
            found = []
            executor.map_chunks(task, found.append)
            timer.cancel()
        assert most[0] <= FEW_RESULTS + 2 * 2
        assert found == list(range(100))

    @pytest.mark.parametrize("n_jobs", [1, 3])
    @pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
    @pytest.mark.parametrize("where", ["task", "consume"])
    def test_errors_end_it(self, n_jobs, kind, where):
        seen = []

        def fail(number):
            if number == 7:
                raise kind("seven")
            return number

        in_task, in_consume = (fail, int) if where == "task" else (int, fail)
        with executor_of(40, n_jobs) as executor:
            with pytest.raises(kind, match="seven"):
                executor.map_chunks(
                    lambda number, start, stop: in_task(number), lambda number: seen.append(in_consume(number))
                )
            assert seen == list(range(len(seen)))
            assert len(seen) <= 7
            # The executor can be used again.
            again = []
            executor.map_chunks(lambda number, start, stop: number, again.append)
        assert again == list(range(40))

    @pytest.mark.parametrize("n_jobs", [1, 3])
    def test_settings_of_the_caller_hold(self, n_jobs):
        found = []
        with np.errstate(over="raise"), executor_of(9, n_jobs) as executor:
            executor.map_chunks(lambda number, start, stop: np.geterr()["over"], found.append)
        assert found == ["raise"] * 9

    @pytest.mark.parametrize("threads", [1, 2])
    def test_settings_of_the_caller_hold_side_by_side(self, threads):
        with np.errstate(over="raise"):
            assert pool.side_by_side(lambda item: np.geterr()["over"], range(4), threads) == ["raise"] * 4

    def test_settings_of_the_caller_hold_where_rows_are_read_ahead(self):
        found = set()

        class Rows:
            shape, dtype = (40, 2), np.dtype(np.float64)

            def __getitem__(self, rows):
                found.add(np.geterr()["over"])
                return np.ones((len(range(40)[rows]), 2))

        with np.errstate(over="raise"), ThreadExecutor(RowSource(Rows()), [(0, 20), (20, 40)], 2) as executor:
            executor.inspected()
        assert found == {"raise"}


class TestCollect:
    """All results in a list, with no order among the threads."""

    @pytest.mark.parametrize("n_jobs", [1, 2, 5])
    def test_order(self, n_jobs):
        delays = np.random.default_rng(0).random(60) * 2e-3

        def task(number, start, stop):
            time.sleep(delays[number])
            return start

        with executor_of(60, n_jobs) as executor:
            assert executor.collect(task) == list(range(60))
            assert executor.collect(task) == list(range(60))

    def test_a_slow_chunk_delays_no_other(self):
        others = threading.Semaphore(0)

        def task(number, start, stop):
            if number == 0:
                return [others.acquire(timeout=60) for _ in range(99)]
            others.release()
            return number

        with executor_of(100, 2) as executor:
            assert executor.collect(task) == [[True] * 99, *range(1, 100)]

    @pytest.mark.parametrize("n_jobs", [1, 3])
    @pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
    def test_an_error_ends_it(self, n_jobs, kind):
        begun = []

        def task(number, start, stop):
            begun.append(number)
            if number == 7:
                raise kind("seven")
            time.sleep(1e-3)

        with executor_of(1000, n_jobs) as executor, pytest.raises(kind, match="seven"):
            executor.collect(task)
        assert len(begun) < 100


class TestShortPasses:
    """Work that is done before a thread has woken is done by the caller."""

    def threads_of(self, executor, task, passes):
        """The number of threads that ran chunks in each pass."""
        found = []
        for _ in range(passes):
            idents = set()

            def apply(rows, state, idents=idents):
                idents.add(threading.get_ident())
                task()
                return (rows.sum(),), None

            executor.map_reduce(apply)
            found.append(len(idents))
        return found

    def test_passes_that_follow_a_short_one(self, monkeypatch):
        monkeypatch.setattr(threads, "SHORT_PASS", 60.0)
        with executor_of(20, 2) as executor:
            assert self.threads_of(executor, lambda: time.sleep(1e-3), 3) == [2, 1, 1]

    def test_passes_that_follow_a_long_one(self, monkeypatch):
        monkeypatch.setattr(threads, "SHORT_PASS", 0.0)
        with executor_of(20, 2) as executor:
            assert self.threads_of(executor, lambda: time.sleep(1e-3), 3) == [2, 2, 2]

    def test_a_wait_is_no_work_for_one_thread(self, monkeypatch):
        """Threads that wait seem to have little to do; the next pass, on one, shows that they are needed."""
        monkeypatch.setattr(threads, "SHORT_PASS", 0.05)
        with executor_of(20, 2) as executor:
            assert self.threads_of(executor, lambda: time.sleep(5e-3), 4) == [2, 1, 2, 2]

    def test_passes_that_follow_a_slow_first_one(self, monkeypatch):
        """The last pass counts: the first may have loaded compiled code."""
        monkeypatch.setattr(threads, "SHORT_PASS", 0.02)
        begun = []

        def task():
            begun.append(time.thread_time())
            while len(begun) <= 20 and time.thread_time() < begun[-1] + 5e-3:
                pass
            time.sleep(1e-4)

        with executor_of(20, 2) as executor:
            assert self.threads_of(executor, task, 3)[2] == 1

    @pytest.mark.parametrize(("multiplications", "expected"), [(1e6, 1), (1e8, 2), (np.inf, 2)])
    def test_few_multiplications(self, multiplications, expected):
        idents = set()

        def task(number, start, stop):
            idents.add(threading.get_ident())
            time.sleep(2e-3)
            return number

        executor = executor_of(20, 2)
        found = threads.map_chunks(executor.signals, executor.bounds, 2, task, multiplications)
        assert found == list(range(20))
        assert len(idents) == expected


class TestThreadTeam:
    def test_every_thread_runs_it(self):
        team, barrier, found = ThreadTeam(3), threading.Barrier(4), []
        for _ in range(5):
            team.run(lambda: found.append((barrier.wait(timeout=60), threading.get_ident())), lambda: None)
        team.close()
        assert len(found) == 20
        # The threads of the first call serve the others.
        assert len({ident for _, ident in found}) == 4

    def test_threads_end(self):
        team, barrier, idents = ThreadTeam(3), threading.Barrier(4), set()

        def work():
            idents.add(threading.get_ident())
            barrier.wait(timeout=60)

        team.run(work, lambda: None)
        idents.remove(threading.get_ident())
        assert len(idents & set(sys._current_frames())) == 3
        team.close()
        deadline = time.monotonic() + 60
        while idents & set(sys._current_frames()) and time.monotonic() < deadline:
            time.sleep(1e-3)
        assert not idents & set(sys._current_frames())

    def test_no_thread_to_be_had(self, monkeypatch):
        def refuse(*args):
            raise RuntimeError("can't start new thread")

        monkeypatch.setattr(pool, "start_new_thread", refuse)
        with executor_of(9, 3) as executor:
            assert executor.collect(lambda number, start, stop: number) == list(range(9))

    def test_an_interrupt_of_the_waiting(self, monkeypatch):
        """The others are told to stop, and none is left running."""
        stopped, team, caller, returned = threading.Event(), ThreadTeam(1), threading.get_ident(), []

        def work():
            if threading.get_ident() != caller:
                assert stopped.wait(timeout=60)
                time.sleep(0.05)
                returned.append(True)

        def interrupted(self):
            raise KeyboardInterrupt

        monkeypatch.setattr(pool.Future, "result", interrupted)
        with pytest.raises(KeyboardInterrupt):
            team.run(work, stopped.set)
        team.close()
        assert returned == [True]


class TestOrderedResults:
    def test_a_thread_without_room_sleeps_until_there_is(self):
        """It is woken by the result that it waits for; nothing polls."""
        found, entered = [], []
        results = OrderedResults(found.append, window=1)

        def wait():
            assert results.wait_for_room(1 + FEW_RESULTS)
            entered.append(time.perf_counter())

        thread = threading.Thread(target=wait)
        thread.start()
        for number in range(1, FEW_RESULTS):
            results.put(number, number, is_light=True)
        assert found == []
        assert not entered
        begin = time.perf_counter()
        results.put(0, 0, is_light=True)
        thread.join(timeout=10)
        assert found == list(range(FEW_RESULTS))
        assert entered[0] >= begin

    def test_closing_wakes_who_waits(self):
        results = OrderedResults(lambda result: None, window=1)
        answers = []
        threads = [threading.Thread(target=lambda: answers.append(results.wait_for_room(99))) for _ in range(3)]
        for thread in threads:
            thread.start()
        results.close()
        for thread in threads:
            thread.join(timeout=10)
        assert answers == [False] * 3

    def test_many_threads(self):
        """Every result is consumed once and in order, whatever the timing."""
        for light in (True, False):
            found = []
            results = OrderedResults(found.append, window=8)
            numbers = iter(range(20_000))

            def work(results=results, numbers=numbers, light=light):
                for number in numbers:
                    assert results.wait_for_room(number)
                    results.put(number, number, light)

            threads = [threading.Thread(target=work) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(timeout=60)
            results.consume()
            assert found == list(range(20_000))


class TestMapReduce:
    @pytest.mark.parametrize("n_jobs", [1, 2, 3])
    def test_sums_and_states(self, n_jobs):
        X = np.random.default_rng(0).standard_normal((1000, 3))
        bounds = [(i, i + 50) for i in range(0, 1000, 50)]

        def task(rows, state):
            return (rows.sum(axis=0), len(rows)), (0 if state is None else state) + len(rows)

        with ThreadExecutor(Signals(X, X.dtype), bounds, n_jobs) as executor:
            (total, count), states = executor.map_reduce(task)
            (again, _), states = executor.map_reduce(task, states, start=(total, count))
        expected = np.zeros(3)
        for start, stop in bounds:
            expected += X[start:stop].sum(axis=0)
        assert np.array_equal(total, expected)
        np.testing.assert_allclose(again, 2 * expected)
        assert states == [100] * 20

    def test_states(self):
        with executor_of(3, 1) as executor:
            assert executor.map_states(lambda state: 2 * state, [1, 2, 3]) == [2, 4, 6]
            assert executor.gather(str, [1, 2, 3]) == ["1", "2", "3"]

    def test_other_signals_share_the_threads(self):
        with executor_of(8, 2) as executor:
            other = executor.with_signals(Signals(np.ones((8, 2)), np.float64))
            (total,), _ = other.map_reduce(lambda rows, state: ((rows.sum(),), None))
        assert total == 16


class TestInterrupt:
    """Ctrl-C is a value that the loop and the preparation return; the estimator raises it after storing."""

    @pytest.mark.parametrize("model", [DL(5, random_state=0), ORKDL(5, n_kernel_vectors=8, random_state=0)])
    @pytest.mark.parametrize("after", [2, 5])
    def test_what_was_learned_is_stored(self, model, after, monkeypatch):
        from rkdl._learning.reduced import ReducedProblem

        update, calls = ReducedProblem.update, []

        def interrupted(self):
            calls.append(1)
            if len(calls) == after:
                raise KeyboardInterrupt
            return update(self)

        monkeypatch.setattr(ReducedProblem, "update", interrupted)
        X = np.random.default_rng(0).standard_normal((200, 6))
        with pytest.raises(KeyboardInterrupt, match="holds the best model"):
            model.fit(X)
        # No iteration follows an interruption, be it of the preparation.
        assert len(calls) == after
        assert model.transform(X).shape == (200, 5)

    def test_an_interrupt_while_starting(self, monkeypatch):
        """What was begun ends, and so do the threads."""
        copies, begun = [], []

        def copy_or_stop():
            copies.append(None)
            if len(copies) == 2:
                raise KeyboardInterrupt
            return contextvars.copy_context()

        def task(number, start, stop):
            begun.append(number)
            time.sleep(1e-3)

        monkeypatch.setattr(pool, "copy_context", copy_or_stop)
        before = _thread._count()
        with executor_of(1000, 3) as executor, pytest.raises(KeyboardInterrupt):
            executor.collect(task)
        assert len(begun) < 100
        for _ in range(500):
            if _thread._count() <= before:
                break
            time.sleep(1e-2)
        assert _thread._count() <= before
