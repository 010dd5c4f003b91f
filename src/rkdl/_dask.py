"""Signals on a Dask cluster: the same steps, run where the chunks are.

A chunk is a block of rows of the Dask array. What a step keeps stays with the worker that ran it; sums are added in
chunk order by tasks that hand their total on, so that one total comes back, and with the bits of a local walk over the
same chunks. A walk is one graph, so the scheduler runs again what a lost worker held. Graphs are dictionaries of plain
tasks: for thousands of chunks, Delayed objects take longer to build than the scheduler takes to run them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from threading import Lock
from typing import Any, NamedTuple
from uuid import uuid4

import dask
import numpy as np
from dask import threaded
from dask.base import get_scheduler
from dask.optimization import cull

from rkdl._blas import one_blas_thread
from rkdl._config import persists
from rkdl._input import well_formed
from rkdl._signals import ADDED_AT_ONCE, Moments, Signals, Step, Walker, add_sums, keeps
from rkdl._sources import float_dtype

# What a step is called on the dashboard, where its own name would not say it or looks to Dask like a hash.
_NAMES = {"learn": "encode", "squares": "inspect", "evaluate": "gradient", "decode": "decoder"}
# One fit at a time changes Dask's settings.
_sending = Lock()


class DaskSignals(Signals):
    """Rows of a Dask array.

    Parameters
    ----------
    data : dask.array.Array of shape (n_signals, n_features)
        Blocks may be sparse.
    """

    is_remote = True
    is_in_memory = False

    def __init__(self, data: Any) -> None:
        if any(np.isnan(size) for sizes in data.chunks for size in sizes):
            raise ValueError("The Dask array does not know the sizes of its chunks: call X.compute_chunk_sizes().")
        rows = tuple(size for size in data.chunks[0] if size > 0)
        if rows != data.chunks[0] or len(data.chunks[1]) > 1:
            data = data.rechunk((rows, -1))
        super().__init__(data, float_dtype(data.dtype))
        self._blocks_of: tuple[Any, dict, list] | None = None

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows `start` to `stop`, brought here."""
        return self._bring(np.arange(start, stop))

    def take(self, indices: np.ndarray) -> np.ndarray:
        """The rows of the given indices, in their order, brought here."""
        wanted, inverse = np.unique(np.asarray(indices), return_inverse=True)
        return self._bring(wanted)[inverse]

    def _bring(self, wanted: np.ndarray) -> np.ndarray:
        """Rows of ascending indices: those of a block leave it together, and other blocks are not asked."""
        graph, blocks = self.blocks()
        edges = np.cumsum([0, *self.data.chunks[0]])
        cuts = np.searchsorted(wanted, edges)
        asked = [i for i in range(len(blocks)) if cuts[i] < cuts[i + 1]]
        if not asked:
            return np.empty((0, self.shape[1]), dtype=self.dtype)
        token = uuid4().hex
        rows = (wanted[cuts[i] : cuts[i + 1]] - edges[i] for i in asked)
        tasks = {
            f"rkdl-take-{token}-{i}": (_rows, blocks[i], i, self.data.chunks[0][i], self.shape[1], own)
            for i, own in zip(asked, rows, strict=True)
        }
        needed, _ = cull(graph, [blocks[i] for i in asked])
        return np.concatenate([self._finish(part) for part in _compute({**needed, **tasks}, list(tasks))])

    def blocks(self) -> tuple[dict, list]:
        """The graph that the chunks come from, and their keys in it; not to be written to."""
        if self._blocks_of is None or self._blocks_of[0] is not self.data:
            keys = [key for (key,) in self.data.__dask_keys__()]
            given = self.data.__dask_graph__()
            graph = dict(self.data.__dask_optimize__(given, keys))
            # Blocks that are on the workers already are futures, which Dask's optimisation leaves out.
            graph |= {key: given[key] for key in keys if key not in graph}
            self._blocks_of = self.data, graph, keys
        return self._blocks_of[1:]

    def become(self, data: Any) -> None:
        """Read the same numbers from another Dask array, and let go of this one."""
        self.data, self._blocks_of = data, None

    def check_finite(self) -> None:
        """Refuse NaN and infinity with scikit-learn's words."""
        self.each(_check_block, "rkdl-check", self.dtype)

    def largest(self) -> float:
        """The largest magnitude of all numbers."""
        return max(self.each(_largest_of, "rkdl-extent", self.dtype))

    def moments(self) -> Moments:
        """Moments of all numbers, after their scale."""
        return sum(self.each(_moments_of, "rkdl-moments", (self.dtype, self.scale)), Moments())

    def each(self, function: Callable, name: str, argument: Any) -> list:
        """`function` of every block and of one thing that is sent, brought here."""
        graph, blocks = self.blocks()
        token = uuid4().hex
        sent = f"rkdl-send-{token}"
        held = _Held((function, self.shape[1], argument))
        places = enumerate(zip(blocks, self.data.chunks[0], strict=True))
        tasks = {f"{name}-{token}-{i}": (_call, sent, block, i, rows) for i, (block, rows) in places}
        return _compute({**graph, sent: (_value_of, held), **tasks}, list(tasks))


class DaskWalker(Walker):
    """Applies a step to every chunk on the workers of the active client, or by Dask's default scheduler."""

    def __init__(self, signals: DaskSignals, n_jobs: int | None) -> None:
        edges = [0, *itertools.accumulate(signals.data.chunks[0])]
        super().__init__(signals, list(itertools.pairwise(edges)), 1)
        self.n_jobs = n_jobs
        self._given = signals.data

    def __enter__(self) -> DaskWalker:
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

    def each(self, task: Callable[[int, int, int], Any]) -> Any:
        """Not here: what a task writes would stay on the worker."""
        raise NotImplementedError

    def run(self, step: Step, kept: list | None = None, start: tuple | None = None) -> tuple[tuple, list]:
        """Apply `step` to every chunk, as `Walker.run` does; what is kept are futures, or without a client values."""
        assert isinstance(self.signals, DaskSignals)
        walk = walk_graph(self.signals, step, kept, start)
        total, *pairs = _submit(walk.graph, [walk.total, *walk.kept])
        if walk.kept:
            kept = _without_sums(pairs)
        return _result(total), kept if kept is not None else [None] * len(self.bounds)

    def change(self, function: Callable[[Any], Any], kept: list) -> list:
        """`function` of what is kept with every chunk; it stays with the chunk."""
        return _without_sums(_submit(*_for_kept(_change, function, kept, "rkdl-change")))

    def fetch(self, function: Callable[[Any], Any], kept: list) -> list:
        """`function` of what is kept with every chunk, brought here."""
        return _compute(*_for_kept(_look, function, kept, "rkdl-fetch"))


class Walk(NamedTuple):
    """A walk's graph, the key of its total, and the keys of what it keeps; none where that does not change."""

    graph: dict
    total: str
    kept: list[str]


def walk_graph(signals: DaskSignals, step: Step, kept: list | None, start: tuple | None) -> Walk:
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


class _Held:
    """A value that Dask does not look into."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _submit(graph: dict, keys: list[str]) -> list:
    """Futures of the keys where there is a client; else what was computed, held.

    The step travels in the graph, however large: what is scattered is in no graph, and lost with its worker.
    """
    schedule = get_scheduler() or threaded.get
    if not is_cluster():
        return [_Held(value) for value in schedule(graph, keys)]
    with _sending, dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TiB"}):
        return list(schedule(graph, keys, sync=False))


def _compute(graph: dict, keys: list[str]) -> list:
    """What the keys stand for, brought here."""
    found = _submit(graph, keys)
    if found and not isinstance(found[0], _Held):
        return found[0].client.gather(found)
    return [item.value for item in found]


def _result(item: Any) -> Any:
    return item.value if isinstance(item, _Held) else item.result()


def _without_sums(pairs: list) -> list:
    """What is kept, of pairs that lie here; those on workers stay as they are, in a task less."""
    return [_Held(pair.value[1]) if isinstance(pair, _Held) else pair for pair in pairs]


def is_cluster() -> bool:
    """Whether Dask's work goes to a distributed client now."""
    return hasattr(getattr(get_scheduler(), "__self__", None), "scheduler_info")


def _task_name(step: Any) -> str:
    name = getattr(step, "__name__", type(step).__name__).strip("_").lower()
    return f"rkdl-{_NAMES.get(name, name)}"


def _apply(
    sent: tuple[Step, np.dtype, float, int], block: Any, kept: Any, number: int, n_rows: int
) -> tuple[tuple, Any]:
    """A chunk's sums and what is kept of it."""
    step, dtype, scale, width = sent
    block = checked_block(block, number, (n_rows, width))
    with one_blas_thread():
        rows = aligned(Signals(block, dtype, scale).read(0, block.shape[0]))
        return aligned(step)(rows, aligned(_kept_of(kept)))


def _apply_for_sums(sent: tuple[Step, np.dtype, float, int], block: Any, kept: Any, number: int, n_rows: int) -> tuple:
    return _apply(sent, block, kept, number, n_rows)[0]


def checked_block(block: Any, number: int, shape: tuple[int, int]) -> Any:
    """A block as it is; one of another shape than the Dask array declares is refused."""
    if tuple(block.shape) != shape:
        raise ValueError(
            f"Block {number} of X has shape {tuple(block.shape)}, and the Dask array declares {shape}: its `chunks` "
            f"and its blocks must agree. Tell map_blocks the right chunks, or call X.compute_chunk_sizes()."
        )
    if np.iscomplexobj(block):
        raise ValueError(f"Complex data not supported: block {number} of X is of dtype {block.dtype}.")
    return well_formed(block)


def _call(sent: tuple[Callable, int, Any], block: Any, number: int, n_rows: int) -> Any:
    function, width, argument = sent
    return function(checked_block(block, number, (n_rows, width)), argument)


def _sums_of(pair: tuple[tuple, Any]) -> tuple:
    return pair[0]


def _kept_of(item: Any) -> Any:
    """What was kept: a value held, or that of the pair that a task returned."""
    if item is None or isinstance(item, _Held):
        return _value_of(item)
    return item[1]


def _value_of(held: Any) -> Any:
    return held.value if isinstance(held, _Held) else held


def _change(function: Callable[[Any], Any], item: Any) -> tuple[tuple, Any]:
    return (), function(_kept_of(item))


def _look(function: Callable[[Any], Any], item: Any) -> Any:
    return function(_kept_of(item))


def aligned(value: Any) -> Any:
    """The same with every array at an address its numbers can be read from.

    What comes over a wire may lie anywhere; NumPy leaves BLAS aside for such arrays, and the bits change.
    """
    if isinstance(value, np.ndarray):
        return value if value.flags.aligned else value.copy()
    if isinstance(value, tuple):
        parts = [aligned(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: aligned(getattr(value, field.name)) for field in fields(value)})
    return value


def _add(total: Any, parts: Sequence[tuple]) -> tuple:
    total = _value_of(total)
    for position, part in enumerate(parts):
        total = add_sums(total, part, fresh=position == 0)
    assert total is not None
    return total


def _rows(block: Any, number: int, n_rows: int, width: int, indices: np.ndarray) -> Any:
    return checked_block(block, number, (n_rows, width))[indices]


def _check_block(block: Any, dtype: np.dtype) -> None:
    Signals(block, dtype).check_finite()


def _moments_of(block: Any, argument: tuple[np.dtype, float]) -> Moments:
    return Signals(block, *argument).moments()


def _largest_of(block: Any, dtype: np.dtype) -> float:
    return Signals(block, dtype).largest()
