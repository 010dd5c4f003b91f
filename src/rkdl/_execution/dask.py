"""Signals on a Dask cluster: the same steps, run where the chunks are.

A chunk is a block of rows of the Dask array. What a step keeps stays with the worker that ran it; sums are added in
chunk order by tasks that hand their total on, so that one total comes back, and with the bits of a local walk over the
same chunks. A walk is one graph, so the scheduler runs again what a lost worker held. Graphs are dictionaries of plain
tasks: for thousands of chunks, Delayed objects take longer to build than the scheduler takes to run them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np

from rkdl._data.dask import (
    DaskSignals,
    _compute,
    _Held,
    _result,
    _submit,
    _value_of,
    aligned,
    checked_block,
    is_cluster,
)
from rkdl._data.signals import Signals
from rkdl._execution.blas import one_blas_thread
from rkdl._execution.config import persists
from rkdl._execution.executor import ADDED_AT_ONCE, ChunkTask, Executor, add_sums, keeps

# What a step is called on the dashboard, where its own name would not say it or looks to Dask like a hash.
_NAMES = {"squares": "inspect", "decode": "decoder"}


class DaskExecutor(Executor):
    """Applies a step to every chunk on the workers of the active client, or by Dask's default scheduler."""

    def __init__(self, signals: DaskSignals, n_jobs: int | None) -> None:
        edges = [0, *itertools.accumulate(signals.data.chunks[0])]
        super().__init__(signals, list(itertools.pairwise(edges)), 1)
        self.n_jobs = n_jobs
        self._given = signals.data

    def __enter__(self) -> DaskExecutor:
        super().__enter__()
        assert isinstance(self.signals, DaskSignals)
        if is_cluster() and persists():
            # On a cluster the chunks are read once and stay; alone, they may be more than memory holds.
            self.signals.become(self._given.persist())
        return self

    def __exit__(self, *error: Any) -> None:
        assert isinstance(self.signals, DaskSignals)
        self.signals.become(self._given)
        super().__exit__(*error)

    def iter_chunks(self, task: Callable[[int, int, int], Any]) -> Any:
        """Not here: what a task writes would stay on the worker."""
        raise NotImplementedError

    def map_reduce(self, step: ChunkTask, kept: list | None = None, start: tuple | None = None) -> tuple[tuple, list]:
        """Apply `step` to every chunk, as `Executor.map_reduce`; states are futures, or without a client values."""
        assert isinstance(self.signals, DaskSignals)
        walk = walk_graph(self.signals, step, kept, start)
        total, *pairs = _submit(walk.graph, [walk.total, *walk.kept])
        if walk.kept:
            kept = _without_sums(pairs)
        return _result(total), kept if kept is not None else [None] * len(self.bounds)

    def map_states(self, function: Callable[[Any], Any], kept: list) -> list:
        """`function` of what is kept with every chunk; it stays with the chunk."""
        return _without_sums(_submit(*_for_kept(_change, function, kept, "rkdl-change")))

    def gather(self, function: Callable[[Any], Any], kept: list) -> list:
        """`function` of what is kept with every chunk, brought here."""
        return _compute(*_for_kept(_look, function, kept, "rkdl-fetch"))


class Walk(NamedTuple):
    """A walk's graph, the key of its total, and the keys of what it keeps; none where that does not change."""

    graph: dict
    total: str
    kept: list[str]


def walk_graph(signals: DaskSignals, step: ChunkTask, kept: list | None, start: tuple | None) -> Walk:
    """The graph of one walk: a task a chunk, another where the step keeps something, and the additions."""
    blocks, keys = signals.blocks()
    name, token = _task_name(step), uuid4().hex
    graph = dict(blocks)
    # One task has the step, and workers hand it on to each other.
    sent = f"rkdl-send-{token}"
    graph[sent] = (_value_of, _Held((step, signals.dtype, signals.scale, signals.shape[1])))
    items = _references(kept, graph) if kept is not None else [None] * len(keys)
    chunks = list(zip(keys, items, range(len(keys)), signals.data.chunks[0], strict=True))
    applied = [f"{name}-{token}-{i}" for i in range(len(keys))]
    sums = applied
    if keeps(step):
        graph.update(zip(applied, ((_apply, sent, *chunk) for chunk in chunks), strict=True))
        # Apart, for what is added elsewhere must not take the codes along.
        sums = [f"rkdl-sums-{token}-{i}" for i in range(len(keys))]
        graph.update((key, (_sums_of, pair)) for key, pair in zip(sums, applied, strict=True))
    else:
        graph.update(zip(applied, ((_apply_for_sums, sent, *chunk) for chunk in chunks), strict=True))
    total: Any = None if start is None else _Held(start)
    for i in range(0, len(sums), ADDED_AT_ONCE):
        key = f"rkdl-add-{token}-{i}"
        graph[key] = (_add, total, sums[i : i + ADDED_AT_ONCE])
        total = key
    return Walk(graph, total, applied if keeps(step) else [])


def _for_kept(task: Callable, function: Callable, kept: list, name: str) -> tuple[dict, list[str]]:
    """The graph of ``task(function, item)`` of every item that is kept, and its keys."""
    graph: dict = {}
    token = uuid4().hex
    tasks = {f"{name}-{token}-{i}": (task, function, item) for i, item in enumerate(_references(kept, graph))}
    return {**graph, **tasks}, list(tasks)


def _references(kept: list, graph: dict) -> list:
    """Items that are kept as a task takes them: keys of futures, which are put into the graph, or values held."""
    items: list = []
    for item in kept:
        if hasattr(item, "key"):
            graph[item.key] = item
            items.append(item.key)
        else:
            items.append(item if item is None or isinstance(item, _Held) else _Held(item))
    return items


def _without_sums(pairs: list) -> list:
    """What is kept, of pairs that lie here; those on workers stay as they are, in a task less."""
    return [_Held(pair.value[1]) if isinstance(pair, _Held) else pair for pair in pairs]


def _task_name(step: Any) -> str:
    name = getattr(step, "__name__", type(step).__name__).strip("_").lower().removesuffix("task")
    return f"rkdl-{_NAMES.get(name, name)}"


def _apply(
    sent: tuple[ChunkTask, np.dtype, float, int], block: Any, kept: Any, number: int, n_rows: int
) -> tuple[tuple, Any]:
    """A chunk's sums and what is kept of it."""
    step, dtype, scale, width = sent
    block = checked_block(block, number, (n_rows, width))
    with one_blas_thread():
        rows = aligned(Signals(block, dtype, scale).read(0, block.shape[0]))
        return aligned(step)(rows, aligned(_kept_of(kept)))


def _apply_for_sums(
    sent: tuple[ChunkTask, np.dtype, float, int], block: Any, kept: Any, number: int, n_rows: int
) -> tuple:
    return _apply(sent, block, kept, number, n_rows)[0]


def _sums_of(pair: tuple[tuple, Any]) -> tuple:
    return pair[0]


def _kept_of(item: Any) -> Any:
    """What was kept: a value held, or that of the pair that a task returned."""
    if item is None or isinstance(item, _Held):
        return _value_of(item)
    return item[1]


def _change(function: Callable[[Any], Any], item: Any) -> tuple[tuple, Any]:
    return (), function(_kept_of(item))


def _look(function: Callable[[Any], Any], item: Any) -> Any:
    return function(_kept_of(item))


def _add(total: Any, parts: Sequence[tuple]) -> tuple:
    total = _value_of(total)
    for position, part in enumerate(parts):
        total = add_sums(total, part, fresh=position == 0)
    assert total is not None
    return total
