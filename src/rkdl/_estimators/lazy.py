"""Results of fitted models for Dask arrays, as lazy arrays with the same row chunks."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import uuid4

import dask
import numpy as np
from scipy import sparse

from rkdl._coding.dictionary import FittedDictionary
from rkdl._data.dask import DaskSignals, aligned, checked_block
from rkdl._data.open import open_signals
from rkdl._data.signals import Signals
from rkdl._execution.blas import one_blas_thread
from rkdl._utils.types import Array

# Names of tasks that are not the name of the dictionary's method.
NAMES = {"encode": "transform", "residual_norms": "error"}


def energies_of_blocks(dictionary: FittedDictionary, signals: DaskSignals) -> list[tuple[float, float]]:
    """Sums of squared residuals and of squared norms per block."""
    task = partial(_apply, model=dictionary, method="energies", read_as=signals.dtype)
    return signals.map_blocks(task, "rkdl-score")


def apply_lazily(dictionary: FittedDictionary, method: str, signals: Signals, **options: Any) -> Array:
    """A method of the dictionary on each block of signals, as a Dask array with the same row chunks."""
    shape = {"encode": (0, dictionary.n_atoms), "residual_norms": (0,)}.get(method, (0, dictionary.n_features))
    empty: Any = np.empty(shape, dtype=signals.result_dtype)
    empty = sparse.csr_array(empty) if options.get("sparse_output") else empty
    return call_lazily(dictionary, method, signals, empty, read_as=signals.dtype, **options)


def call_lazily(model: Any, method: str, signals: Signals, empty: Any, **options: Any) -> Array:
    """As `apply_lazily`, of any model; results are like `empty`, which has no rows."""
    rows = signals.data
    return rows.map_blocks(
        _apply,
        model=dask.delayed(model),
        method=method,
        chunks=(rows.chunks[0], *((width,) for width in empty.shape[1:])),
        drop_axis=1 if empty.ndim == 1 else None,
        meta=empty,
        name=f"rkdl-{NAMES.get(method, method)}-{uuid4().hex}",
        **options,
    )


def _apply(
    block: Any,
    block_info: dict | None = None,
    *,
    model: Any,
    method: str,
    read_as: np.dtype | None = None,
    **options: Any,
) -> Any:
    """The method on a block; one of a Dask array is checked to have the shape that this declares."""
    if block_info:
        place = block_info[0]
        shape = tuple(stop - start for start, stop in place["array-location"])
        block = checked_block(block, place["chunk-location"][0], shape)
    with one_blas_thread():
        if read_as is None:
            return getattr(model, method)(aligned(block))
        signals = open_signals(aligned(block), caller="a block of a Dask array").with_dtype(read_as)
        return getattr(aligned(model), method)(signals, n_jobs=1, **options)
