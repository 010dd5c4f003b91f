"""MATLAB's .mat files, and the synthetic digits that come only with MATLAB."""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils import Bunch

from rkdl._execution.machine import physical_memory
from rkdl._persistence.files import open_regular
from rkdl.datasets._errors import DatasetError, cause
from rkdl.datasets._home import as_path
from rkdl.datasets._mat5 import read_mat5

__all__ = ["images_first", "load_matlab_digits", "read_mat"]

_IMAGE_NAMES = ("XTrain", "X", "images")
_LABEL_NAMES = ("YTrain", "y", "labels")
_HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
_DESCRIPTION = """MATLAB's synthetic digits

5,000 grey images of 28 x 28 pixels, 500 of each digit, which MATLAB's Deep Learning Toolbox returns from
digitTrain4DArrayData. They come only with MATLAB; this is the user's export.
"""


def load_matlab_digits(path: str | os.PathLike[str]) -> Bunch:
    """Load MATLAB's synthetic digits from your own export.

    They are part of MATLAB's Deep Learning Toolbox and cannot be downloaded. In MATLAB::

        [XTrain, YTrain] = digitTrain4DArrayData;
        YTrain = double(YTrain) - 1;    % categories 1 to 10 are the digits 0 to 9
        save('digits.mat', 'XTrain', 'YTrain', '-v7')

    Parameters
    ----------
    path : path-like
        The ``.mat`` file. The images are its variable ``XTrain``, ``X`` or ``images`` (28 x 28 x 1 x n or
        28 x 28 x n), the labels ``YTrain``, ``y`` or ``labels``, if present. Labels that are not saved as numbers
        (MATLAB's categories) cannot be read and are ignored. Files of version 7.3 need h5py.

    Returns
    -------
    digits : :class:`~sklearn.utils.Bunch`
        With the attributes ``data`` (n_samples, 784), ``target`` (n_samples,) of int64, or None without
        labels, ``images`` (n_samples, 28, 28), which is a view of ``data``, and ``DESCR``.

    Raises
    ------
    DatasetError
        If the file is missing or damaged, or its variables are not such images and labels.

    Examples
    --------
    >>> from rkdl.datasets import load_matlab_digits
    >>> load_matlab_digits("digits.mat").data.shape  # doctest: +SKIP
    (5000, 784)
    """
    file = as_path(path)
    variables = read_mat(file)
    image_name = next((name for name in _IMAGE_NAMES if name in variables), None)
    if image_name is None:
        raise DatasetError(
            path, f"no numeric variable {_or(_IMAGE_NAMES)} among {_listed(variables)}", "export it again"
        )
    images = images_first(variables[image_name])
    if images.ndim == 4 and images.shape[-1] == 1:
        images = images[..., 0]
    if images.ndim != 3 or 0 in images.shape:
        shape = " x ".join(str(length) for length in variables[image_name].shape)
        raise DatasetError(path, f"{image_name} is {shape}, not 28 x 28 x 1 x N", "save it as MATLAB returns it")
    if images.dtype.kind == "c" or not np.isfinite(images).all():
        raise DatasetError(path, f"{image_name} holds values that are not finite real numbers", "export it again")
    images = np.ascontiguousarray(images)
    return Bunch(
        data=images.reshape(len(images), -1),
        target=_matlab_labels(file, variables, len(images)),
        images=images,
        DESCR=_DESCRIPTION,
    )


def read_mat(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Read the numeric variables of a .mat file, with MATLAB's order of axes.

    Variables of other kinds (text, cells, tables, categories) are skipped. Files of version 7.3 are HDF5 and
    need h5py.
    """
    try:
        with open_regular(path) as stream:
            start = stream.read(520)
    except OSError as error:
        raise DatasetError(path, f"cannot be read ({cause(error)})") from error
    is_hdf5 = _HDF5_MAGIC in (start[:8], start[512:520])
    if is_hdf5 and importlib.util.find_spec("h5py") is None:
        raise DatasetError(
            path, "MAT-files of version 7.3 need h5py", "pip install h5py, or save it with '-v7' in MATLAB"
        )
    try:
        return _read_hdf5(path) if is_hdf5 else _read_plain(path)
    # NumPy, SciPy and h5py raise many kinds of exceptions on damaged files.
    except Exception as error:
        raise DatasetError(path, f"not a MAT-file, or damaged ({cause(error)})", "export it again") from error


def images_first(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Move MATLAB's last axis, which counts images, to the front; matrices are unchanged."""
    return np.moveaxis(array, -1, 0) if array.ndim > 2 else array


def _read_plain(path: Path) -> dict[str, npt.NDArray[Any]]:
    """Read the numeric variables of a file that is not HDF5."""
    with open_regular(path) as stream:
        content = stream.read()
    # Files of version 4 begin with a number, those of version 5 with text.
    return _read_v4(path) if 0 in content[:4] else read_mat5(content, physical_memory())


def _read_v4(path: Path) -> dict[str, npt.NDArray[Any]]:
    import scipy.io
    import scipy.sparse

    _check_room(8 * math.prod(shape) for _, shape, _ in scipy.io.whosmat(path, appendmat=False))
    variables = {}
    for name, value in scipy.io.loadmat(path, appendmat=False).items():
        if scipy.sparse.issparse(value):
            value = value.toarray()
        if isinstance(value, np.ndarray) and value.dtype.kind in "biufc" and not name.startswith("__"):
            variables[name] = value
    return variables


def _check_room(sizes: Iterable[int]) -> None:
    """Refuse variables that need more memory than this machine has."""
    needed, memory = sum(sizes), physical_memory()
    if needed > memory:
        raise ValueError(f"its variables take {needed / 2**30:.1f} GiB, but this machine has {memory / 2**30:.1f}")


def _read_hdf5(path: Path) -> dict[str, npt.NDArray[Any]]:
    import h5py

    with h5py.File(path, "r") as file:
        _check_room(value.nbytes for value in file.values() if isinstance(value, h5py.Dataset))
        # HDF5 reverses the order of axes; text is also stored as numbers, with class char.
        return {
            name: np.asarray(value).T
            for name, value in file.items()
            if isinstance(value, h5py.Dataset)
            and value.dtype.kind in "biufc"
            and value.attrs.get("MATLAB_class", b"double") not in (b"char", b"cell")
        }


def _matlab_labels(path: Path, variables: dict[str, npt.NDArray[Any]], n_images: int) -> npt.NDArray[np.int64] | None:
    name = next((name for name in _LABEL_NAMES if name in variables), None)
    if name is None:
        return None
    labels = variables[name].ravel()
    if len(labels) != n_images:
        raise DatasetError(path, f"{len(labels)} labels in {name} for {n_images} images", "export both again")
    if labels.dtype.kind == "c" or not np.array_equal(labels, np.rint(labels)):
        raise DatasetError(path, f"{name} holds values that are not integers", "save it as the digits 0 to 9")
    return labels.astype(np.int64)


def _or(names: tuple[str, ...]) -> str:
    return ", ".join(names[:-1]) + " or " + names[-1]


def _listed(variables: dict[str, npt.NDArray[Any]]) -> str:
    return ", ".join(sorted(variables)) or "none"
