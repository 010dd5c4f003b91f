"""Chunk tasks on the workers of a Dask cluster.

A chunk is a block of rows of the Dask array. A chunk state stays with the worker that computed it; sums are added in
chunk order by Dask tasks that hand their total on, so that one total comes back, bitwise identical to that of threads
on the same chunks. A pass is one graph, so the scheduler runs again what a lost worker held. Graphs are dictionaries of
plain tasks: for thousands of chunks, Delayed objects take longer to build than the scheduler takes to run them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from operator import itemgetter
from typing import Any, Self
from uuid import uuid4

import numpy as np

from rkdl._data.dask import DaskSignals, _brought, _compute, _Literal, _submit, _value_of, aligned, is_cluster
from rkdl._data.signals import Signals
from rkdl._execution.blas import one_blas_thread
from rkdl._execution.config import PERSIST
from rkdl._execution.executor import ChunkTask, Executor, Result, State, Sums, add_sums

# Chunks whose sums one Dask task adds to the total.
ADDED_AT_ONCE = 16

# Names on the dashboard of tasks whose own name is unclear or looks like a hash to Dask.
_NAMES = {"squares": "inspect", "decode": "decoder"}


class DaskExecutor(Executor):
    """Runs chunk tasks on the workers of the active client, or by Dask's default scheduler."""

    signals: DaskSignals

    def __init__(self, signals: DaskSignals, n_jobs: int | None) -> None:
        edges = [0, *itertools.accumulate(signals.data.chunks[0])]
        super().__init__(signals, list(itertools.pairwise(edges)), n_jobs)

    def __enter__(self) -> Self:
        self._context = ExitStack()
        if is_cluster() and PERSIST.get():
            # On a cluster the chunks are read once and stay; alone, they may be more than memory holds.
            self._context.callback(setattr, self, "signals", self.signals)
            self.signals = self.signals.persisted()
        return self

    def map_reduce(
        self, task: ChunkTask, states: list[State] | None = None, start: Sums | None = None
    ) -> tuple[Sums, list[State]]:
        graph, key, new_states = pass_graph(self.signals, task, states, start)
        total, *pairs = _submit(graph, [key, *new_states])
        if new_states:
            states = _without_sums(pairs)
        return _brought([total])[0], states if states is not None else [None] * len(self.bounds)

    def map_states(self, function: Callable[[State], State], states: list[State]) -> list[State]:
        return _without_sums(_submit(*_states_graph(lambda item: ((), function(_state_of(item))), states, "rkdl-map")))

    def gather(self, function: Callable[[State], Result], states: list[State]) -> list[Result]:
        return _compute(*_states_graph(lambda item: function(_state_of(item)), states, "rkdl-gather"))


def pass_graph(
    signals: DaskSignals, task: ChunkTask, states: list[State] | None, start: Sums | None
) -> tuple[dict, str, list[str]]:
    """The graph of one pass: a Dask task per chunk, another where there is a new chunk state, and the additions.

    With the key of its total, and the keys of new chunk states; none where these do not change.
    """
    held: dict = {}
    items = _references([None] * len(signals.data.chunks[0]) if states is None else states, held)
    graph, applied = signals.tasks(partial(_apply, task, signals.dtype), _task_name(task), dict(enumerate(items)))
    graph |= held
    token, sums, has_states = uuid4().hex, applied, _makes_state(task)
    if has_states:
        # In tasks of their own, so that sums are sent to other workers without the codes.
        sums = [f"rkdl-sums-{token}-{i}" for i in range(len(items))]
        graph.update((key, (itemgetter(0), pair)) for key, pair in zip(sums, applied, strict=True))
    total: Any = None if start is None else _Literal(start)
    for i in range(0, len(sums), ADDED_AT_ONCE):
        key = f"rkdl-add-{token}-{i}"
        graph[key] = (_add, total, sums[i : i + ADDED_AT_ONCE])
        total = key
    return graph, total, applied if has_states else []


def _states_graph(task: Callable, states: list[State], name: str) -> tuple[dict, list[str]]:
    """The graph of ``task(item)`` for every chunk state, and its keys."""
    graph: dict = {}
    token = uuid4().hex
    tasks = {f"{name}-{token}-{i}": (task, item) for i, item in enumerate(_references(states, graph))}
    return {**graph, **tasks}, list(tasks)


def _references(states: list, graph: dict) -> list:
    """Chunk states as a Dask task takes them: keys of futures, which are put into the graph, or values held."""
    items: list = []
    for item in states:
        if hasattr(item, "key"):
            graph[item.key] = item
            items.append(item.key)
        else:
            items.append(item if item is None or isinstance(item, _Literal) else _Literal(item))
    return items


def _without_sums(pairs: list) -> list:
    """Chunk states of pairs in this process; those on workers stay pairs, which saves a Dask task."""
    return [_Literal(pair.value[1]) if isinstance(pair, _Literal) else pair for pair in pairs]


def _makes_state(task: ChunkTask) -> bool:
    return bool(getattr(task, "makes_state", True))


def _task_name(task: Any) -> str:
    name = getattr(task, "__name__", type(task).__name__).strip("_").lower().removesuffix("task")
    return f"rkdl-{_NAMES.get(name, name)}"


def _apply(task: ChunkTask, dtype: np.dtype, block: Any, item: Any) -> tuple[Sums, State] | Sums:
    """A chunk's sums, and its state where the task makes one."""
    with one_blas_thread():
        rows = aligned(Signals(block, dtype).read(0, block.shape[0]))
        sums, state = aligned(task)(rows, aligned(_state_of(item)))
    return (sums, state) if _makes_state(task) else sums


def _state_of(item: Any) -> State:
    """A chunk state: a value held, or that of the pair that a task returned."""
    return _value_of(item) if item is None or isinstance(item, _Literal) else item[1]


def _add(total: Any, parts: Sequence[Sums]) -> Sums:
    earlier = _value_of(total)
    # A copy: what other tasks hold must not change.
    totals = None if earlier is None else add_sums(None, earlier)
    for part in parts:
        totals = add_sums(totals, part)
    assert totals is not None
    return totals
