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
from rkdl._data.signals import float_dtype


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
    n_codes = model._n_features_out
    if model.sparse_output:
        meta: Any = sparse.csr_array((0, n_codes), dtype=signals.result_dtype)
    else:
        meta = np.empty((0, n_codes), dtype=signals.result_dtype)
    return signals.data.map_blocks(
        _transform_block,
        dask.delayed(_for_blocks(model)),
        chunks=(signals.data.chunks[0], (n_codes,)),
        meta=meta,
        name=f"rkdl-transform-{uuid4().hex}",
    )


def reconstruction_error_lazily(model: Any, signals: DaskSignals) -> Any:
    """Norms of the residuals as a Dask array with the same row chunks."""
    return signals.data.map_blocks(
        _error_block,
        dask.delayed(_for_blocks(model)),
        drop_axis=1,
        chunks=(signals.data.chunks[0],),
        meta=np.empty(0, dtype=signals.result_dtype),
        name=f"rkdl-error-{uuid4().hex}",
    )


def denoise_lazily(model: Any, signals: DaskSignals, noise: float | None) -> Any:
    """Denoised signals as a Dask array with the same row chunks."""
    return signals.data.map_blocks(
        _denoise_block,
        dask.delayed(_for_blocks(model)),
        noise,
        chunks=signals.data.chunks,
        meta=np.empty((0, signals.shape[1]), dtype=signals.result_dtype),
        name=f"rkdl-denoise-{uuid4().hex}",
    )


def decode_lazily(model: Any, codes: Any) -> Any:
    """Signals reconstructed from codes as a Dask array with the same row chunks."""
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
    """Sums of squared residuals and norms per block, relative to a power of four, with its exponent."""
    return signals.each(_energies, "rkdl-score", _for_blocks(model))


def _for_blocks(model: Any) -> Any:
    """The model for use on a block: one thread, and no feature names, which blocks do not have."""
    model = copy.copy(model).set_params(n_jobs=1)
    for name in ("feature_names_in_", "_stream", "_saved_stream"):
        model.__dict__.pop(name, None)
    return model


def _on_arrival(model: Any) -> Any:
    model = copy.copy(model)
    vars(model).update({name: aligned(value) for name, value in vars(model).items()})
    return model


def _arrived(block: Any, block_info: dict | None) -> Any:
    """The block, checked to have the shape that its Dask array declares."""
    if block_info:
        place = block_info[0]
        shape = tuple(stop - start for start, stop in place["array-location"])
        block = checked_block(block, place["chunk-location"][0], shape)
    return aligned(block)


def _transform_block(block: Any, model: Any, block_info: dict | None = None) -> Any:
    # Blocks of an array are arrays, whatever the worker's configuration.
    with config_context(transform_output="default"):
        return _on_arrival(model).transform(_arrived(block, block_info))


def _denoise_block(block: Any, model: Any, noise: float | None, block_info: dict | None = None) -> np.ndarray:
    return _on_arrival(model).denoise(_arrived(block, block_info), noise=noise)


def _decode_block(block: Any, model: Any, block_info: dict | None = None) -> np.ndarray:
    return _on_arrival(model).inverse_transform(_arrived(block, block_info))


def _error_block(block: Any, model: Any, block_info: dict | None = None) -> np.ndarray:
    return _on_arrival(model).reconstruction_error(_arrived(block, block_info))


def _energies(block: Any, model: Any) -> tuple[float, float, float]:
    return _on_arrival(model)._energies(aligned(block))
