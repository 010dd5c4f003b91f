"""Results of a fitted dictionary for Dask arrays, as lazy arrays with the same row chunks."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import uuid4

import dask
import numpy as np
from scipy import sparse
from sklearn import get_config

from rkdl._coding.dictionary import FittedDictionary
from rkdl._data.dask import DaskSignals, aligned, checked_block
from rkdl._data.open import open_signals
from rkdl._data.signals import Signals
from rkdl._execution.blas import one_blas_thread
from rkdl._utils.types import Array

# What tasks are called on the dashboard, where the method has another name.
_NAMES = {"encode": "transform", "residual_norms": "error"}


def transform_lazily(estimator: Any, dictionary: FittedDictionary, signals: DaskSignals) -> Array:
    """Codes of the signals as a Dask array with the same row chunks."""
    own = getattr(estimator, "_sklearn_output_config", {})
    output = own.get("transform", get_config()["transform_output"])
    if output != "default":
        raise ValueError(
            f"transform_output={output!r} would bring all codes of a Dask array to this machine: use "
            "set_output(transform='default') for codes as a lazy Dask array, which dask.dataframe.from_dask_array "
            "turns into a lazy data frame."
        )
    empty: Any = np.empty((0, dictionary.n_atoms), dtype=signals.result_dtype)
    is_sparse = estimator.sparse_output
    return _map_blocks(
        dictionary, signals, "encode", sparse.csr_array(empty) if is_sparse else empty, sparse_output=is_sparse
    )


def errors_lazily(dictionary: FittedDictionary, signals: DaskSignals) -> Array:
    """Norms of the residuals as a Dask array."""
    return _map_blocks(dictionary, signals, "residual_norms", np.empty(0, dtype=signals.result_dtype))


def denoise_lazily(dictionary: FittedDictionary, signals: DaskSignals, noise: float | None) -> Array:
    """Denoised signals as a Dask array."""
    empty = np.empty((0, signals.shape[1]), dtype=signals.result_dtype)
    return _map_blocks(dictionary, signals, "denoise", empty, noise=noise)


def decode_lazily(dictionary: FittedDictionary, codes: Any, dtype: np.dtype) -> Array:
    """Signals of codes, which are a Dask array, as a Dask array."""
    return _map_blocks(dictionary, DaskSignals(codes), "decode", np.empty((0, dictionary.n_features), dtype=dtype))


def energies_of_blocks(dictionary: FittedDictionary, signals: DaskSignals) -> list[tuple[float, float]]:
    """Sums of squared residuals and of squared norms per block."""
    return signals.map_blocks(partial(_energies, dictionary, signals.dtype), "rkdl-score")


def _map_blocks(dictionary: FittedDictionary, signals: DaskSignals, method: str, meta: Any, **options: Any) -> Array:
    """A method of the dictionary on each block of signals with one column of blocks; `meta` is an empty result."""
    rows = signals.data
    return rows.map_blocks(
        _apply,
        dask.delayed(dictionary),
        method,
        signals.dtype,
        chunks=(rows.chunks[0], *((width,) for width in meta.shape[1:])),
        drop_axis=1 if meta.ndim == 1 else None,
        meta=meta,
        name=f"rkdl-{_NAMES.get(method, method)}-{uuid4().hex}",
        **options,
    )


def _apply(
    block: Any,
    dictionary: FittedDictionary,
    method: str,
    dtype: np.dtype,
    block_info: dict | None = None,
    **options: Any,
) -> Array:
    """The method on a block, which is checked to have the shape that its Dask array declares."""
    if block_info:
        place = block_info[0]
        shape = tuple(stop - start for start, stop in place["array-location"])
        block = checked_block(block, place["chunk-location"][0], shape)
    with one_blas_thread():
        return getattr(aligned(dictionary), method)(_signals_of(block, dtype), n_jobs=1, **options)


def _energies(dictionary: FittedDictionary, dtype: np.dtype, block: Any, _: None) -> tuple[float, float]:
    with one_blas_thread():
        return aligned(dictionary).energies(_signals_of(block, dtype), n_jobs=1)


def _signals_of(block: Any, dtype: np.dtype) -> Signals:
    signals = open_signals(aligned(block), caller="a block of a Dask array")
    return signals.with_dtype(dtype)
