"""Signals on a Dask cluster: the same steps, run where the chunks are.

A chunk is a block of rows of the Dask array. What a step keeps stays with the worker that ran it; sums are added in
chunk order by tasks that hand their total on, so that one total comes back, and with the bits of a local walk over the
same chunks. All of it is one lazy graph a step, so the scheduler runs again what a lost worker held.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any
from uuid import uuid4

import dask
import numpy as np
from dask.base import get_scheduler
from scipy import sparse

from rkdl._blas import one_blas_thread
from rkdl._signals import Signals, Step, Walker, add_sums
from rkdl._sources import float_dtype

# Chunks whose sums one task adds to the total.
_ADDED_AT_ONCE = 16
# What a step is called on the dashboard, where its own name would not say it or looks to Dask like a hash.
_NAMES = {"learn": "encode", "squares": "inspect", "evaluate": "gradient", "decode": "decoder"}


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

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows `start` to `stop`, brought here."""
        return self._finish(self.data[start:stop].compute())

    def take(self, indices: np.ndarray) -> np.ndarray:
        """The rows of the given indices, in their order, brought here."""
        wanted, inverse = np.unique(np.asarray(indices), return_inverse=True)
        return self._finish(self.data[wanted].compute())[inverse]

    def blocks(self) -> list:
        """The chunks, as delayed objects."""
        return list(self.data.to_delayed().ravel())

    def check_finite(self) -> None:
        """Refuse NaN and infinity with scikit-learn's words."""
        _each(_check_block, self.blocks(), "rkdl-check", self.dtype)

    def largest(self) -> float:
        """The largest magnitude of all numbers."""
        return max(_each(_largest_of, self.blocks(), "rkdl-extent", self.dtype))


class DaskWalker(Walker):
    """Applies a step to every chunk on the workers of the active client, or by Dask's default scheduler."""

    def __init__(self, signals: DaskSignals, n_jobs: int | None) -> None:
        edges = [0, *itertools.accumulate(signals.data.chunks[0])]
        super().__init__(signals, list(itertools.pairwise(edges)), 1)
        self.n_jobs = n_jobs
        self._given = signals.data

    def __enter__(self) -> DaskWalker:
        super().__enter__()
        if is_cluster():
            # On a cluster the chunks are read once and stay; alone, they may be more than memory holds.
            self.signals.data = self._given.persist()
        return self

    def __exit__(self, *error: Any) -> None:
        self.signals.data = self._given
        super().__exit__(*error)

    def each(self, task: Callable[[int, int, int], Any]) -> Any:
        """Not here: what a task writes would stay on the worker."""
        raise NotImplementedError

    def run(self, step: Step, kept: list | None = None, start: tuple | None = None) -> tuple[tuple, list]:
        """Apply `step` to every chunk, as `Walker.run` does; what is kept are delayed objects."""
        name, token = _task_name(step), uuid4().hex
        signals = self.signals
        assert isinstance(signals, DaskSignals)
        # Sent once, and handed on from worker to worker.
        sent = dask.delayed(_itself)(step, dask_key_name=f"rkdl-send-{token}")
        own = kept if kept is not None else [None] * len(self.bounds)
        pairs = [
            dask.delayed(_apply)(sent, block, item, signals.dtype, signals.scale, dask_key_name=f"{name}-{token}-{i}")
            for i, (block, item) in enumerate(zip(signals.blocks(), own, strict=True))
        ]
        sums, retained = (
            [dask.delayed(_item)(pair, k, dask_key_name=f"rkdl-{what}-{token}-{i}") for i, pair in enumerate(pairs)]
            for k, what in enumerate(("sums", "keep"))
        )
        total: Any = start
        for i in range(0, len(sums), _ADDED_AT_ONCE):
            total = dask.delayed(_add)(total, sums[i : i + _ADDED_AT_ONCE], dask_key_name=f"rkdl-add-{token}-{i}")
        total, *retained = dask.persist(total, *retained)
        return total.compute(), retained

    def change(self, function: Callable[[Any], Any], kept: list) -> list:
        """`function` of what is kept with every chunk; it stays with the chunk."""
        token = uuid4().hex
        changed = [
            dask.delayed(function)(item, dask_key_name=f"rkdl-change-{token}-{i}") for i, item in enumerate(kept)
        ]
        return list(dask.persist(*changed))

    def fetch(self, function: Callable[[Any], Any], kept: list) -> list:
        """`function` of what is kept with every chunk, brought here."""
        return _each(function, kept, "rkdl-fetch")


def is_cluster() -> bool:
    """Whether Dask's work goes to a distributed client now."""
    return hasattr(getattr(get_scheduler(), "__self__", None), "scheduler_info")


def transform_lazily(model: Any, signals: DaskSignals) -> Any:
    """Codes of the signals as a Dask array of the same row chunks."""
    n_codes = model._n_features_out
    if model.sparse_output:
        meta: Any = sparse.csr_array((0, n_codes), dtype=signals.dtype)
    else:
        meta = np.empty((0, n_codes), dtype=signals.dtype)
    return signals.data.map_blocks(
        _transform_block,
        dask.delayed(_for_blocks(model)),
        chunks=(signals.data.chunks[0], (n_codes,)),
        meta=meta,
        name=f"rkdl-transform-{uuid4().hex}",
    )


def reconstruction_error_lazily(model: Any, signals: DaskSignals) -> Any:
    """Norms of the residuals as a Dask array of the same row chunks."""
    return signals.data.map_blocks(
        _error_block,
        dask.delayed(_for_blocks(model)),
        drop_axis=1,
        chunks=(signals.data.chunks[0],),
        meta=np.empty(0, dtype=signals.dtype),
        name=f"rkdl-error-{uuid4().hex}",
    )


def denoise_lazily(model: Any, signals: DaskSignals, noise: float | None) -> Any:
    """Cleaned signals as a Dask array of the same row chunks."""
    return signals.data.map_blocks(
        _denoise_block,
        dask.delayed(_for_blocks(model)),
        noise,
        chunks=signals.data.chunks,
        meta=np.empty((0, signals.shape[1]), dtype=signals.dtype),
        name=f"rkdl-denoise-{uuid4().hex}",
    )


def decode_lazily(model: Any, codes: Any) -> Any:
    """Signals of codes as a Dask array of the same row chunks."""
    dtype, size = float_dtype(codes.dtype), model.n_features_in_
    rows = codes.rechunk({1: -1})
    return rows.map_blocks(
        _decode_block,
        dask.delayed(_for_blocks(model)),
        chunks=(rows.chunks[0], (size,)),
        meta=np.empty((0, size), dtype=dtype),
        name=f"rkdl-decode-{uuid4().hex}",
    )


def norms_of_blocks(model: Any, signals: DaskSignals) -> list[tuple[float, float, float]]:
    """Largest norm of every block, and its squared residuals and norms, summed in units of that."""
    return _each(_energies, signals.blocks(), "rkdl-score", dask.delayed(_for_blocks(model)))


def _task_name(step: Any) -> str:
    name = getattr(step, "__name__", type(step).__name__).strip("_").lower()
    return f"rkdl-{_NAMES.get(name, name)}"


def _each(function: Callable, items: list, name: str, *more: Any) -> list:
    """`function` of every item, computed now."""
    token = uuid4().hex
    tasks = [dask.delayed(function)(item, *more, dask_key_name=f"{name}-{token}-{i}") for i, item in enumerate(items)]
    return list(dask.compute(*tasks))


def _for_blocks(model: Any) -> Any:
    """The model as a block sees it: one thread, and no names of features, which a block has not."""
    model = copy.copy(model).set_params(n_jobs=1)
    for name in ("feature_names_in_", "_stream"):
        model.__dict__.pop(name, None)
    return model


def _apply(step: Step, block: Any, kept: Any, dtype: np.dtype, scale: float) -> tuple[tuple, Any]:
    with one_blas_thread():
        return aligned(step)(aligned(Signals(block, dtype, scale).read(0, block.shape[0])), aligned(kept))


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


def _add(total: tuple | None, parts: list[tuple]) -> tuple:
    for position, part in enumerate(parts):
        total = add_sums(total, part, fresh=position == 0)
    assert total is not None
    return total


def _itself(value: Any) -> Any:
    return value


def _item(pair: tuple, position: int) -> Any:
    return pair[position]


def _check_block(block: Any, dtype: np.dtype) -> None:
    Signals(block, dtype).check_finite()


def _largest_of(block: Any, dtype: np.dtype) -> float:
    return Signals(block, dtype).largest()


def _on_arrival(model: Any) -> Any:
    model = copy.copy(model)
    vars(model).update({name: aligned(value) for name, value in vars(model).items()})
    return model


def _transform_block(block: Any, model: Any) -> Any:
    return _on_arrival(model).transform(aligned(block))


def _denoise_block(block: Any, model: Any, noise: float | None) -> np.ndarray:
    return _on_arrival(model).denoise(aligned(block), noise=noise)


def _decode_block(block: Any, model: Any) -> np.ndarray:
    return _on_arrival(model).inverse_transform(aligned(block))


def _error_block(block: Any, model: Any) -> np.ndarray:
    return _on_arrival(model).reconstruction_error(aligned(block))


def _energies(block: Any, model: Any) -> tuple[float, float, float]:
    from rkdl.estimators._base import energies

    return energies(*_on_arrival(model)._residuals(aligned(block)))
