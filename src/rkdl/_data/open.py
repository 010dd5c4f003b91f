"""`open_signals` opens every kind of input. CONTRIBUTING says how to add an array type."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from rkdl._backends.arrays import host, is_tensor
from rkdl._backends.devices import resolve_device
from rkdl._data.signals import Signals, float_dtype
from rkdl._data.sources import RowSource, check_source, is_source
from rkdl._utils.inputs import check_numbers, well_formed
from rkdl._utils.types import FLOATS, MatrixLike


def open_signals(X: Any, *, caller: str, device: Any = None, name: str = "X") -> Signals:
    """Signals to read chunk by chunk; whether they are finite is seen in the first pass over them.

    X, of shape (n_signals, n_features), is an array-like, data frame, CSR matrix, memory map, Zarr array, HDF5 dataset,
    Dask array or tensor. `caller` and `name` are the estimator or function and its argument, for messages; `device` is
    where to compute, None for where the signals are.
    """
    if device is None and is_plain(X):
        return Signals(X, X.dtype)
    X = well_formed(X, name)
    if is_tensor(X):
        from rkdl._data.tensors import open_tensor

        return open_tensor(X, device, caller)
    if is_dask(X):
        from rkdl._data.dask import DaskSignals

        if device is not None:
            raise ValueError(
                f"device={str(device)!r} is for signals on one machine, and X is a Dask array: use device=None."
            )
        check_source(X, caller)
        return DaskSignals(X)
    if is_source(X):
        check_source(X, caller)
        rows: Signals = RowSource(X)
    else:
        rows = _open_array(X, caller, name)
    if device is None:
        return rows
    # First: its error says how to install torch.
    place = resolve_device(device)
    from rkdl._data.tensors import StreamedSignals

    return StreamedSignals(rows, place)


def is_dask(X: Any) -> bool:
    """Whether signals are a Dask array, without importing Dask."""
    return type(X).__module__.partition(".")[0] == "dask" and hasattr(X, "to_delayed") and hasattr(X, "chunks")


def gather(X: Any) -> Any:
    """The input in host memory: all blocks of a Dask array, all rows of a source, a tensor as an array."""
    if is_tensor(X):
        return host(X)
    if not is_dask(X) and not is_source(X):
        return X
    if is_dask(X) and any(np.isnan(size) for size in X.shape):
        raise ValueError("The Dask array does not know the sizes of its chunks: call X.compute_chunk_sizes().")
    rows = well_formed(X.compute() if is_dask(X) else X[0 : X.shape[0]])
    if tuple(rows.shape) != tuple(X.shape):
        raise ValueError(
            f"The rows of X have shape {tuple(rows.shape)} together, and X says {tuple(X.shape)}: its `shape` and its "
            f"{'blocks' if is_dask(X) else 'slices'} must agree."
        )
    return rows if sparse.issparse(rows) else np.asarray(rows)


def is_plain(X: Any) -> bool:
    """Whether scikit-learn's checks, which take longer than coding a signal, would return an array unchanged."""
    return type(X) is np.ndarray and X.ndim == 2 and X.size > 0 and X.dtype in FLOATS and X.flags.aligned


def _open_array(X: MatrixLike, caller: str, name: str) -> Signals:
    """Signals of whatever NumPy can convert."""
    # Integers and the like become floats chunk by chunk, not all at once.
    kind = getattr(getattr(X, "dtype", None), "kind", "O")
    dtype: Any = None if isinstance(X, np.ndarray) and kind in "iub" else FLOATS
    if kind == "f" and isinstance(X, np.ndarray) and X.dtype.itemsize == 4:
        # In any byte order.
        dtype = np.float32
    X = check_numbers(X, dtype=dtype, caller=caller, name=name)
    if isinstance(X, np.ndarray) and not X.flags.aligned:
        # From a network or a file: NumPy does not use BLAS for such arrays, which changes the last bits.
        X = X.copy()
    return Signals(X, float_dtype(X.dtype))
