"""Signals from array files, and scaling to unit norm."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_array

from rkdl.datasets._errors import DatasetError, check_label, reading
from rkdl.datasets._home import as_path
from rkdl.datasets._matlab import images_first, read_mat
from rkdl.datasets._tables import TABLE_SUFFIXES, read_table, table_numbers

__all__ = ["ARRAY_SUFFIXES", "load_digits_signals", "load_signals", "normalize_signals", "pick_name", "read_array"]

ARRAY_SUFFIXES = (".npy", ".npz", ".mat")
# Names that identify the signals in a file with several arrays.
_SIGNAL_NAMES = ("XTrain", "X", "images", "signals")


def load_signals(
    path: str | os.PathLike[str], *, key: str | None = None, header: bool | None = None
) -> npt.NDArray[np.floating]:
    """Load signals from your own file.

    Parameters
    ----------
    path : path-like
        A NumPy ``.npy`` or ``.npz`` file (without Python objects), a table of numbers in ``.csv``, ``.tsv`` or
        ``.parquet`` (needs pandas, ``pip install "rkdl[files]"``), or a MATLAB ``.mat`` file up to version 7.
        Signals are rows. With three or more axes, the first one counts signals (in ``.mat`` files the last one, as in
        MATLAB), and the others are flattened.
    key : str, default=None
        The name of the array in a ``.npz`` or ``.mat`` file. None selects the file's only array, or the one named
        ``XTrain``, ``X``, ``images`` or ``signals``.
    header : bool, default=None
        Whether the first line of a CSV file is a header. None: if it holds no number, or if its numbers are 0, 1, 2
        and so on, as pandas writes them, of which a warning tells.

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
    file = as_path(path)
    suffix = file.suffix.lower()
    if suffix not in (*ARRAY_SUFFIXES, *TABLE_SUFFIXES):
        known = ", ".join((*ARRAY_SUFFIXES, *TABLE_SUFFIXES))
        raise DatasetError(file, f"the ending {suffix!r} is not known", f"use {known}")
    if suffix in ARRAY_SUFFIXES:
        array = read_array(file, key)
    elif key is not None:
        raise ValueError(f"key={key!r} is for .npz and .mat files; {file.name} is a table")
    else:
        array = table_numbers(file, read_table(file, header=header))
    is_single = array.dtype.kind == "f" and array.dtype.itemsize <= 4
    with np.errstate(over="ignore"):
        # A copy of a memory map, which would follow later changes of the file.
        signals: npt.NDArray[np.floating] = (np.array if isinstance(array, np.memmap) else np.asarray)(
            array, dtype=np.float32 if is_single else np.float64, order="C"
        )
    if not signals.size:
        raise DatasetError(file, f"holds no signals (shape {signals.shape})")
    finite = np.isfinite(signals)
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        what = f"row {row}, column {column} (from 0) is {signals[row, column]}, not a finite number"
        raise DatasetError(file, what, "fill or remove it")
    return signals


def normalize_signals(X: npt.ArrayLike, dtype: npt.DTypeLike = np.float32) -> npt.NDArray[np.floating]:
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
    target_dtype = _float_dtype(dtype)
    checked: np.ndarray = check_array(X, dtype="numeric", input_name="X")
    signals = np.empty(checked.shape, dtype=target_dtype)
    # Blocks of about 8 MB, so that large integer or float32 arrays are never converted to float64 as a whole.
    n_rows = max(1, 2**20 // checked.shape[1])
    for start in range(0, len(checked), n_rows):
        block = checked[start : start + n_rows].astype(np.float64)
        # Divide by the largest value first, because squares of 1e200 overflow and those of 1e-200 underflow.
        for order in (np.inf, 2):
            lengths = np.linalg.norm(block, ord=order, axis=1, keepdims=True)
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


def read_array(path: Path, key: str | None = None) -> np.ndarray:
    """Read an ``.npy`` (memory-mapped), ``.npz`` or ``.mat`` file as rows of real numbers of whatever type."""
    with reading(path, "an array of numbers", "save it again with numpy.save or numpy.savez, without Python objects"):
        if path.suffix.lower() == ".mat":
            variables = read_mat(path)
            array = images_first(variables[pick_name(path, list(variables), key)])
        else:
            # A damaged header may declare more elements than an integer can count.
            with np.errstate(over="ignore"):
                loaded = np.load(path, mmap_mode="r", allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                array = loaded
                if key is not None:
                    raise DatasetError(path, "holds one array without a name", "leave out key=")
            else:
                with loaded:
                    # Only the requested array is decompressed.
                    array = loaded[pick_name(path, loaded.files, key)]
    if array.dtype.kind not in "biuf":
        raise DatasetError(path, f"its values are {array.dtype}, not real numbers", "save it as float32 or float64")
    if array.size == 0:
        raise DatasetError(path, f"holds no signals (shape {array.shape})")
    if array.ndim < 2:
        raise DatasetError(path, f"its array is {array.ndim}-D", "signals are the rows of a 2-D array: reshape it")
    return array if array.ndim == 2 else array.reshape(len(array), -1)


def pick_name(path: Path, names: list[str], key: str | None) -> str:
    if key is None and len(names) == 1:
        return names[0]
    candidates = [name for name in names if (name == key if key is not None else name in _SIGNAL_NAMES)]
    if len(candidates) == 1:
        return candidates[0]
    found = ", ".join(sorted(names)) or "none"
    if key is not None:
        raise DatasetError(path, f"holds no array {key!r}", f"choose from: {found}")
    raise DatasetError(path, f"holds the arrays {found}", "choose one by its name (key= or --key), or save it as X")


def _float_dtype(dtype: npt.DTypeLike) -> np.dtype[np.floating]:
    """Return float32 or float64 as a dtype and refuse all others."""
    for valid in (np.dtype(np.float32), np.dtype(np.float64)):
        with suppress(TypeError):
            if dtype is not None and np.dtype(dtype) == valid:
                return valid
    raise ValueError(f"dtype={dtype!r} is not valid; choose float32 or float64")
