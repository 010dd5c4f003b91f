"""Signals from array files and tables, and scaling to unit norm."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.utils import check_array

from rkdl._utils.inputs import well_formed
from rkdl.datasets._errors import DatasetError, check_label, reading, require
from rkdl.datasets._home import as_path
from rkdl.datasets._matlab import images_first, read_mat
from rkdl.datasets._tables import TABLE_SUFFIXES, read_table, table_numbers

ARRAY_SUFFIXES = (".npy", ".npz", ".mat", ".zarr")
# Names that identify the signals in a file with several arrays.
_SIGNAL_NAMES = ("XTrain", "X", "images", "signals")

# Signals as they are read; Zarr arrays are sliced like arrays.
Rows: TypeAlias = np.ndarray | sparse.csr_array


def load_signals(
    path: str | os.PathLike[str], *, key: str | None = None, header: bool | None = None
) -> npt.NDArray[np.floating]:
    """Load signals from your own file.

    Parameters
    ----------
    path : path-like
        A NumPy ``.npy`` or ``.npz`` file (without Python objects), a sparse matrix that SciPy wrote as ``.npz``, a
        MATLAB ``.mat`` file up to version 7, or a table of numbers in ``.csv``, ``.tsv`` or ``.parquet``, or a Zarr
        array ``.zarr``, which need ``pip install "rkdl[files]"``.
        Signals are rows. With three or more axes, the first one counts signals (in ``.mat`` files the last one, as in
        MATLAB), and the others are flattened.
    key : str, default=None
        The name of the array in a ``.npz``, ``.mat`` or ``.zarr`` file. None selects the file's only array, or the one
        named ``XTrain``, ``X``, ``images`` or ``signals``.
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
    if file.suffix.lower() in TABLE_SUFFIXES:
        if key is not None:
            raise ValueError(f"key={key!r} is for files of arrays; {file.name} is a table")
        found: Rows = table_numbers(file, read_table(file, header=header))
    else:
        found, _ = read_arrays(file, key)
    array = found.toarray() if isinstance(found, sparse.sparray) else found
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
    if dtype not in (np.float32, np.float64, float, "float32", "float64"):
        raise ValueError(f"dtype={dtype!r} is not valid; choose float32 or float64")
    checked: np.ndarray = check_array(X, dtype="numeric", input_name="X")
    signals = np.empty(checked.shape, dtype=dtype)
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


def read_arrays(path: Path, key: str | None = None, label: str | None = None) -> tuple[Rows, np.ndarray | None]:
    """Read the signals of an array file, and the labels (n_signals,) called `label` if it holds them.

    Signals are rows of real numbers of whatever type: a memory map, a sparse matrix, an open Zarr array or an array.
    """
    if path.suffix.lower() not in ARRAY_SUFFIXES:
        known = ", ".join((*TABLE_SUFFIXES, *ARRAY_SUFFIXES))
        raise DatasetError(path, f"the ending {path.suffix!r} is not known", f"use {known}")
    remedy = "save it again with numpy.save or numpy.savez, without Python objects"
    with reading(path, "an array of numbers", remedy), _opened(path) as arrays:
        labels = np.ravel(arrays[label]) if label is not None and label in arrays else None
        if key is None and {"format", "shape"} <= set(arrays):
            with reading(path, "a sparse matrix", "save it again with scipy.sparse.save_npz"):
                return sparse.csr_array(well_formed(sparse.load_npz(path), "the array")), labels
        array = arrays[_pick_name(path, [name for name in arrays if name != label], key)]
    if array.dtype.kind not in "biuf":
        raise DatasetError(path, f"its values are {array.dtype}, not real numbers", "save it as float32 or float64")
    if array.size == 0:
        raise DatasetError(path, f"holds no signals (shape {array.shape})")
    if array.ndim < 2:
        raise DatasetError(path, f"its array is {array.ndim}-D", "signals are the rows of a 2-D array: reshape it")
    return array if array.ndim == 2 else np.reshape(array, (array.shape[0], -1)), labels


@contextmanager
def _opened(path: Path) -> Iterator[Mapping[str, np.ndarray]]:
    """The arrays of a file by their names, read when they are asked for; an array without a name is called ""."""
    if path.suffix.lower() == ".mat":
        yield {name: images_first(array) for name, array in read_mat(path).items()}
    elif path.suffix.lower() == ".zarr":
        zarr = require(path, "zarr", "reading a Zarr array")
        found = zarr.open(str(path), mode="r")
        yield dict(found.arrays()) if isinstance(found, zarr.Group) else {"": found}
    else:
        # A damaged header may declare more elements than an integer can count.
        with np.errstate(over="ignore"):
            loaded = np.load(path, mmap_mode="r", allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            yield {"": loaded}
        else:
            with loaded:
                yield loaded


def _pick_name(path: Path, names: list[str], key: str | None) -> str:
    if key is None and len(names) == 1:
        return names[0]
    if names == [""]:
        raise DatasetError(path, "holds one array without a name", "leave out key= or --key")
    candidates = [name for name in names if (name == key if key is not None else name in _SIGNAL_NAMES)]
    if len(candidates) == 1:
        return candidates[0]
    found = ", ".join(sorted(names)) or "none"
    if key is not None:
        raise DatasetError(path, f"holds no array {key!r}", f"choose from: {found}")
    raise DatasetError(path, f"holds the arrays {found}", "choose one by its name (key= or --key), or save it as X")
