"""Rows of a Dask array."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from operator import getitem
from threading import Lock
from typing import Any, Self
from uuid import uuid4

import dask
import numpy as np
from dask import threaded
from dask.base import get_scheduler
from dask.optimization import cull

from rkdl._data.signals import Result, Signals, float_dtype
from rkdl._utils.inputs import well_formed
from rkdl._utils.nested import map_parts
from rkdl._utils.types import Array

# One fit at a time changes Dask's settings.
_sending = Lock()


class DaskSignals(Signals):
    """Rows of a Dask array, whose blocks may be sparse."""

    is_remote = True
    is_in_memory = False

    def __init__(self, data: Any) -> None:
        if any(np.isnan(size) for sizes in data.chunks for size in sizes):
            raise ValueError("The Dask array does not know the sizes of its chunks: call X.compute_chunk_sizes().")
        rows = tuple(size for size in data.chunks[0] if size > 0)
        if rows != data.chunks[0] or len(data.chunks[1]) > 1:
            data = data.rechunk((rows, -1))
        super().__init__(data, float_dtype(data.dtype))
        self._blocks_of: tuple[dict, list] | None = None

    def read(self, start: int, stop: int) -> np.ndarray:
        return self.take(np.arange(start, stop))

    def take(self, indices: np.ndarray) -> np.ndarray:
        """The rows of the given indices, taken block by block; other blocks are not computed."""
        wanted, inverse = np.unique(np.asarray(indices), return_inverse=True)
        edges = np.cumsum([0, *self.data.chunks[0]])
        cuts = np.searchsorted(wanted, edges)
        parts = {i: wanted[cuts[i] : cuts[i + 1]] - edges[i] for i in range(len(edges) - 1) if cuts[i] < cuts[i + 1]}
        if not parts:
            return np.empty((0, self.shape[1]), dtype=self.dtype)
        found = _compute(*self.tasks(getitem, "rkdl-take", parts))
        return np.concatenate([self._finish(part) for part in found])[inverse]

    def blocks(self) -> tuple[dict, list]:
        """The graph that the chunks come from, and their keys in it; not to be written to."""
        if self._blocks_of is None:
            keys = [key for (key,) in self.data.__dask_keys__()]
            given = self.data.__dask_graph__()
            graph = dict(self.data.__dask_optimize__(given, keys))
            # Blocks that are on the workers already are futures, which Dask's optimisation leaves out.
            graph |= {key: given[key] for key in keys if key not in graph}
            self._blocks_of = graph, keys
        return self._blocks_of

    def persisted(self) -> Self:
        """The same signals, computed and kept by the workers."""
        return self._replaced(data=self.data.persist(), _blocks_of=None)

    def _of_pieces(self, function: Callable[[Array], Result], name: str) -> list[Result]:
        return list(itertools.chain(*self.map_blocks(partial(_pieces_of, function, self.dtype), f"rkdl-{name}")))

    def map_blocks(self, function: Callable[[Any, None], Result], name: str) -> list[Result]:
        """Results of ``function(block, None)`` for every block, in this process."""
        return _compute(*self.tasks(function, name, dict.fromkeys(range(len(self.data.chunks[0])))))

    def tasks(self, function: Callable[[Any, Any], object], name: str, items: dict[int, Any]) -> tuple[dict, list[str]]:
        """The graph of ``function(block, item)`` for the blocks of these numbers, and the keys of the results in it."""
        graph, blocks = self.blocks()
        if len(items) < len(blocks):
            graph, _ = cull(graph, [blocks[i] for i in items])
        token, n_rows = uuid4().hex, self.data.chunks[0]
        # One task holds the function, and workers pass it to each other.
        sent = f"rkdl-send-{token}"
        tasks = {f"{name}-{token}-{i}": (_call, sent, blocks[i], i, n_rows[i], item) for i, item in items.items()}
        return {**graph, sent: (_value_of, _Literal((function, self.shape[1]))), **tasks}, list(tasks)


class _Literal:
    """A value that Dask does not look into."""

    def __init__(self, value: Any) -> None:
        self.value = value


def _submit(graph: dict, keys: list[str]) -> list:
    """Futures of the keys if there is a client; otherwise their values as literals.

    The chunk task is part of the graph, however large: scattered data are not, and would be lost with their worker.
    """
    schedule = get_scheduler() or threaded.get
    if not is_cluster():
        return [_Literal(value) for value in schedule(graph, keys)]
    with _sending, dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 TiB"}):
        return list(schedule(graph, keys, sync=False))


def _compute(graph: dict, keys: list[str]) -> list:
    """The values of the keys, in this process."""
    return _brought(_submit(graph, keys))


def _brought(found: list) -> list:
    """Results of what was submitted, in this process."""
    if found and not isinstance(found[0], _Literal):
        return found[0].client.gather(found)
    return [item.value for item in found]


def is_cluster() -> bool:
    """Whether Dask's work goes to a distributed client now."""
    return hasattr(getattr(get_scheduler(), "__self__", None), "scheduler_info")


def checked_block(block: Any, number: int, shape: tuple[int, int]) -> Any:
    """The block unchanged; one of another shape than the Dask array declares is refused."""
    if tuple(block.shape) != shape:
        raise ValueError(
            f"Block {number} of X has shape {tuple(block.shape)}, and the Dask array declares {shape}: its `chunks` "
            f"and its blocks must agree. Tell map_blocks the right chunks, or call X.compute_chunk_sizes()."
        )
    if np.iscomplexobj(block):
        raise ValueError(f"Complex data not supported: block {number} of X is of dtype {block.dtype}.")
    return well_formed(block)


def aligned(value: Any) -> Any:
    """The value with every array aligned in memory.

    Arrays from a network may not be; NumPy does not use BLAS for those, which changes the last bits.
    """
    if isinstance(value, np.ndarray):
        return value if value.flags.aligned else value.copy()
    return map_parts(aligned, value)


def _call(sent: tuple[Callable[[Any, Any], Result], int], block: Any, number: int, n_rows: int, item: Any) -> Result:
    function, width = sent
    return function(checked_block(block, number, (n_rows, width)), item)


def _pieces_of(function: Callable[[Array], Result], dtype: np.dtype, block: Any, _: None) -> list[Result]:
    return Signals(block, dtype)._of_pieces(function, "")


def _value_of(held: Any) -> Any:
    return held.value if isinstance(held, _Literal) else held
