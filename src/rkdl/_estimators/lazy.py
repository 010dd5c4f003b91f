"""Results of a fitted estimator for Dask arrays, as lazy arrays with the same row chunks."""

from __future__ import annotations

import copy
from typing import Any
from uuid import uuid4

import dask
import numpy as np
from scipy import sparse
from sklearn import config_context, get_config

from rkdl._data.dask import DaskSignals, aligned, checked_block


def map_blocks(model: Any, rows: Any, method: str, meta: Any, **options: Any) -> Any:
    """A method of the model on each block of a Dask array with one column of blocks; `meta` is an empty result."""
    chunks = (rows.chunks[0], *((width,) for width in meta.shape[1:]))
    return rows.map_blocks(
        _apply,
        dask.delayed(_for_blocks(model)),
        method,
        chunks=chunks,
        drop_axis=1 if meta.ndim == 1 else None,
        meta=meta,
        name=f"rkdl-{method}-{uuid4().hex}",
        **options,
    )


def transform_lazily(model: Any, signals: DaskSignals) -> Any:
    """Codes of the signals as a Dask array with the same row chunks."""
    own = getattr(model, "_sklearn_output_config", {})
    output = own.get("transform", get_config()["transform_output"])
    if output != "default":
        raise ValueError(
            f"transform_output={output!r} would bring all codes of a Dask array to this machine: use "
            "set_output(transform='default') for codes as a lazy Dask array, which dask.dataframe.from_dask_array "
            "turns into a lazy data frame."
        )
    empty: Any = np.empty((0, model._n_features_out), dtype=signals.result_dtype)
    return map_blocks(model, signals.data, "transform", sparse.csr_array(empty) if model.sparse_output else empty)


def norms_of_blocks(model: Any, signals: DaskSignals) -> list[tuple[float, float]]:
    """Sums of squared residuals and norms per block."""
    return signals.map_blocks(_energies, "rkdl-score", _for_blocks(model))


def _for_blocks(model: Any) -> Any:
    """The model for use on a block: one thread, and no feature names, which blocks do not have."""
    model = copy.copy(model).set_params(n_jobs=1)
    for name in ("feature_names_in_", "_stream"):
        model.__dict__.pop(name, None)
    return model


def _on_arrival(model: Any) -> Any:
    model = copy.copy(model)
    vars(model).update({name: aligned(value) for name, value in vars(model).items()})
    return model


def _apply(block: Any, model: Any, method: str, block_info: dict | None = None, **options: Any) -> Any:
    """The method on a block, which is checked to have the shape that its Dask array declares."""
    if block_info:
        place = block_info[0]
        shape = tuple(stop - start for start, stop in place["array-location"])
        block = checked_block(block, place["chunk-location"][0], shape)
    # Blocks of an array are arrays, whatever the worker's configuration.
    with config_context(transform_output="default"):
        return getattr(_on_arrival(model), method)(aligned(block), **options)


def _energies(block: Any, model: Any) -> tuple[float, float]:
    return _on_arrival(model)._energies(aligned(block))
