"""Arrays from NumPy, MATLAB and Zarr files."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import numpy as np
from scipy import sparse

from rkdl._utils.inputs import well_formed
from rkdl.datasets._errors import DatasetError, reading, require
from rkdl.datasets._tables import TABLE_SUFFIXES

_SUFFIXES = (".npy", ".npz", ".mat", ".zarr")
# Names that identify the signals in a file with several arrays.
_SIGNAL_NAMES = ("XTrain", "X", "images", "signals")

# Signals as they are read; Zarr arrays are sliced like arrays.
Rows: TypeAlias = np.ndarray | sparse.csr_array


def read_arrays(path: Path, key: str | None = None, labels: Collection[str] = ()) -> tuple[Rows, np.ndarray | None]:
    """Read the signals of an array file, and if it holds any, the labels (n_signals,) called by one of the names.

    Signals are rows of real numbers of whatever type: a memory map, a sparse matrix, an open Zarr array or an array.
    """
    if path.suffix.lower() not in _SUFFIXES:
        known = ", ".join((*TABLE_SUFFIXES, *_SUFFIXES))
        raise DatasetError(path, f"the ending {path.suffix!r} is not known", f"use {known}")
    remedy = "save it again with numpy.save or numpy.savez, without Python objects"
    with reading(path, "an array of numbers", remedy), _opened(path) as arrays:
        y = next((np.ravel(arrays[name]) for name in labels if name in arrays), None)
        if key is None and {"format", "shape"} <= set(arrays):
            with reading(path, "a sparse matrix", "save it again with scipy.sparse.save_npz"):
                array = sparse.csr_array(well_formed(sparse.load_npz(path), "the array"))
        else:
            array = arrays[_pick_name(path, [name for name in arrays if name not in labels], key)]
    if array.dtype.kind not in "biuf":
        raise DatasetError(path, f"its values are {array.dtype}, not real numbers", "save it as float32 or float64")
    if 0 in array.shape:
        raise DatasetError(path, f"holds no signals (shape {array.shape})")
    if array.ndim < 2:
        raise DatasetError(path, f"its array is {array.ndim}-D", "signals are the rows of a 2-D array: reshape it")
    return array if array.ndim == 2 else np.reshape(array, (array.shape[0], -1)), y


@contextmanager
def _opened(path: Path) -> Iterator[Mapping[str, np.ndarray]]:
    """The arrays of a file by their names, read when they are asked for; an array without a name is called ""."""
    if path.suffix.lower() == ".mat":
        # MATLAB's last axis counts images.
        yield {name: np.moveaxis(v, -1, 0) if v.ndim > 2 else v for name, v in _read_mat(path).items()}
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


def _read_mat(path: Path) -> dict[str, np.ndarray]:
    """Read the numeric variables of a .mat file with SciPy, sparse ones as dense arrays; others are skipped."""
    import scipy.io

    with reading(path, "a MAT file", "export it again"):
        try:
            variables = scipy.io.loadmat(path, appendmat=False)
        except NotImplementedError:
            what = "MAT files of version 7.3 are not supported"
            raise DatasetError(path, what, "save it with '-v7' in MATLAB") from None
        found = {name: well_formed(v, name) for name, v in variables.items() if name[:2] != "__"}
        dense = {name: v.toarray() if sparse.issparse(v) else v for name, v in found.items()}
    return {name: v for name, v in dense.items() if isinstance(v, np.ndarray) and v.dtype.kind in "biufc"}
