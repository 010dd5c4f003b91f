"""Signals from array files, and scaling to unit norm."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_array

from rkdl._execution.machine import physical_memory
from rkdl._persistence.files import open_regular
from rkdl._persistence.npz import npz_names, read_npy, read_npz
from rkdl.datasets._errors import DatasetError, cause, check_label
from rkdl.datasets._home import as_path
from rkdl.datasets._matlab import images_first, read_mat
from rkdl.datasets._tables import bad_csv_cell, read_csv, read_parquet

__all__ = [
    "SIGNAL_SUFFIXES",
    "float_dtype",
    "load_digits_signals",
    "load_signals",
    "normalize_signals",
    "read_array",
]

SIGNAL_SUFFIXES = (".npy", ".npz", ".csv", ".parquet", ".mat")

_NPY_MAGIC = b"\x93NUMPY"

# Names that identify the signals in a file with several arrays.
_SIGNAL_NAMES = ("XTrain", "X", "images", "signals")


def load_signals(path: str | os.PathLike[str], *, key: str | None = None) -> npt.NDArray[np.floating[Any]]:
    """Load signals from your own file.

    Parameters
    ----------
    path : path-like
        A NumPy ``.npy`` or ``.npz`` file (without Python objects), a ``.csv`` file of numbers with or without a
        header line, a ``.parquet`` file of numeric columns (needs pyarrow or pandas), or a MATLAB ``.mat`` file.
        Signals are rows. With three or more axes, the first one counts signals (in ``.mat`` files the last one, as in
        MATLAB), and the others are flattened.
    key : str, default=None
        The name of the array in a ``.npz`` or ``.mat`` file. None selects the file's only array, or the one named
        ``XTrain``, ``X``, ``images`` or ``signals``.

    Returns
    -------
    signals : ndarray of shape (n_signals, n_features)
        Finite; float32 if the file is in single or half precision, else float64.

    Raises
    ------
    DatasetError
        If the file is missing, damaged, empty or not numeric, or holds NaN or infinity; the message says
        where.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> from rkdl.datasets import load_signals
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "images.npy"
    ...     np.save(path, np.ones((5, 4, 3), dtype=np.float32))
    ...     signals = load_signals(path)
    >>> signals.shape, signals.dtype
    ((5, 12), dtype('float32'))
    """
    array = read_array(as_path(path), key)
    return array.reshape(len(array), -1)


def normalize_signals(X: npt.ArrayLike, dtype: npt.DTypeLike = np.float32) -> npt.NDArray[np.floating[Any]]:
    """Scale signals to unit Euclidean norm.

    Parameters
    ----------
    X : array-like of shape (n_signals, n_features)
        The signals: finite numbers of any type, not modified.
    dtype : {numpy.float32, numpy.float64}, default=numpy.float32
        The dtype of the result. Norms are computed in float64 without overflow.

    Returns
    -------
    signals : ndarray of shape (n_signals, n_features)
        The signals scaled to unit norm; zero rows stay zero.

    Examples
    --------
    >>> from rkdl.datasets import normalize_signals
    >>> normalize_signals([[3, 4], [0, 0]], dtype=float)
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    target_dtype = float_dtype(dtype)
    checked: npt.NDArray[Any] = check_array(X, dtype="numeric", input_name="X")
    signals = np.empty(checked.shape, dtype=target_dtype)
    # Blocks of about 8 MB, so that large integer or float32 arrays are never converted to float64 as a whole.
    n_rows = max(1, 2**20 // checked.shape[1])
    for start in range(0, len(checked), n_rows):
        block = checked[start : start + n_rows].astype(np.float64)
        # Divide by the largest value first, because squares of 1e200 overflow and those of 1e-200 underflow.
        for measure in (_largest, _euclidean):
            lengths = measure(block)
            block /= np.where(lengths > 0, lengths, 1.0)
        signals[start : start + n_rows] = block
    return signals


def load_digits_signals(*, label: int | None = None) -> npt.NDArray[np.float64]:
    """Load scikit-learn's handwritten digits as signals.

    Parameters
    ----------
    label : int, default=None
        Keep only the images of this digit.

    Returns
    -------
    signals : ndarray of shape (1797, 64)
        The 8 x 8 images as rows of values from 0 to 16; fewer rows with `label`.

    Examples
    --------
    >>> from rkdl.datasets import load_digits_signals
    >>> load_digits_signals().shape
    (1797, 64)
    """
    from sklearn.datasets import load_digits

    label = check_label(label, 10)
    data, target = load_digits(return_X_y=True)
    return np.ascontiguousarray(data if label is None else data[target == label], dtype=np.float64)


def float_dtype(dtype: npt.DTypeLike) -> np.dtype[np.floating[Any]]:
    """Return float32 or float64 as a dtype and refuse all others."""
    for valid in (np.dtype(np.float32), np.dtype(np.float64)):
        try:
            if dtype is not None and np.dtype(dtype) == valid:
                return valid
        except TypeError:
            break
    raise ValueError(f"dtype={dtype!r} is not valid; choose float32 or float64")


def read_array(path: Path, key: str | None = None) -> npt.NDArray[np.floating[Any]]:
    """Read an array file as finite floats with two or more non-empty axes, the first counting signals."""
    suffix = path.suffix.lower()
    if suffix not in SIGNAL_SUFFIXES:
        raise DatasetError(path, f"the ending {suffix!r} is not known", f"use {', '.join(SIGNAL_SUFFIXES)}")
    if not os.path.isfile(path):
        raise DatasetError(
            path, "this is not a file" if os.path.exists(path) else "there is no such file", "check the path"
        )
    if key is not None and suffix not in (".npz", ".mat"):
        raise ValueError(f"key={key!r} is for .npz and .mat files; {path.name} holds one array only")
    if suffix == ".csv":
        array: npt.NDArray[Any] = read_csv(path)
    elif suffix == ".parquet":
        array = read_parquet(path)
    elif suffix == ".mat":
        variables = read_mat(path)
        array = images_first(variables[_pick_name(path, list(variables), key)])
    else:
        array = _read_numpy(path, key)
    return _checked(path, array)


def _largest(block: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.maximum(block.max(axis=1, keepdims=True), -block.min(axis=1, keepdims=True))


def _euclidean(block: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.sqrt(np.einsum("ij,ij->i", block, block))[:, np.newaxis]


def _read_numpy(path: Path, key: str | None) -> npt.NDArray[Any]:
    try:
        with open_regular(path) as stream:
            if stream.read(len(_NPY_MAGIC)) == _NPY_MAGIC:
                stream.seek(0)
                return read_npy(stream, path.stat().st_size)
            # Only the requested array is decompressed.
            name = _pick_name(path, npz_names(stream), key)
            return read_npz(stream, [name], physical_memory())[name]
    except DatasetError:
        raise
    # zipfile, zlib and NumPy raise many kinds of exceptions on damaged files.
    except Exception as error:
        what = f"no plain array can be read from it ({cause(error)})"
        remedy = "save it again with numpy.save or numpy.savez, without Python objects"
        raise DatasetError(path, what, remedy) from error


def _pick_name(path: Path, names: list[str], key: str | None) -> str:
    if key is not None:
        candidates = [name for name in names if name == key]
    else:
        candidates = names if len(names) == 1 else [name for name in _SIGNAL_NAMES if name in names]
    if len(candidates) == 1:
        return candidates[0]
    listed = ", ".join(sorted(names)) or "none"
    if key is not None:
        raise DatasetError(path, f"holds no numeric array {key!r}", f"choose key= from: {listed}")
    if not names:
        raise DatasetError(path, "holds no numeric array")
    raise DatasetError(path, f"holds several arrays: {listed}", "choose one with key=, or save it as X")


def _checked(path: Path, array: npt.NDArray[Any]) -> npt.NDArray[np.floating[Any]]:
    if array.dtype.kind not in "biuf":
        raise DatasetError(path, f"its values are {array.dtype}, not real numbers", "save it as float32 or float64")
    if array.size == 0:
        raise DatasetError(path, f"holds no signals (shape {array.shape})")
    if array.ndim < 2:
        raise DatasetError(path, f"its array is {array.ndim}-D", "signals are the rows of a 2-D array: reshape it")
    single = array.dtype.kind == "f" and array.dtype.itemsize <= 4
    needed, memory = array.size * (4 if single else 8), physical_memory()
    if needed > memory:
        raise DatasetError(
            path,
            f"its signals take {needed / 2**30:.1f} GiB as floating-point numbers, of {memory / 2**30:.1f} GiB here",
            "fit estimators on a memory map of it",
        )
    with np.errstate(over="ignore"):
        floats: npt.NDArray[np.floating[Any]] = (
            np.ascontiguousarray(array, dtype=np.float32) if single else np.ascontiguousarray(array, dtype=np.float64)
        )
    finite = np.isfinite(floats.reshape(len(floats), -1))
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        value = floats.reshape(len(floats), -1)[row, column]
        what = bad_csv_cell(path) if path.suffix.lower() == ".csv" else None
        what = what or f"row {row}, column {column} (from 0) is {value}, not a finite number"
        raise DatasetError(path, what, "fill or remove it")
    return floats
