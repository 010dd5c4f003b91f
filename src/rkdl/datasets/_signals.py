"""Signals from your own files."""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt
from scipy import sparse

from rkdl.datasets._errors import DatasetError, as_path
from rkdl.datasets._files import TABLE_SUFFIXES, Rows, read_arrays, read_table, table_numbers


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
        and so on, as pandas writes them, or others that count up by one (years, say), of which a warning tells.

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
