"""MATLAB's .mat files, and the synthetic digits that come only with MATLAB."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from sklearn.utils import Bunch

from rkdl.datasets._errors import DatasetError, reading
from rkdl.datasets._home import as_path

_IMAGE_NAMES = ("XTrain", "X", "images")
_LABEL_NAMES = ("YTrain", "y", "labels")
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
        (MATLAB's categories) cannot be read and are ignored. Files of version 7.3 are refused: save with ``-v7``.

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
    variables = read_mat(as_path(path))
    image_name = next((name for name in _IMAGE_NAMES if name in variables), None)
    if image_name is None:
        listed = ", ".join(sorted(variables)) or "none"
        raise DatasetError(path, f"no numeric variable XTrain, X or images among {listed}", "export it again")
    images = images_first(variables[image_name])
    if images.ndim == 4 and images.shape[-1] == 1:
        images = images[..., 0]
    if images.ndim != 3 or 0 in images.shape or images.dtype.kind == "c" or not np.isfinite(images).all():
        shape = " x ".join(str(length) for length in variables[image_name].shape)
        what = f"{image_name} ({shape}) does not hold 28 x 28 x 1 x N finite real numbers"
        raise DatasetError(path, what, "save it as MATLAB returns it")
    label_name = next((name for name in _LABEL_NAMES if name in variables), None)
    labels = None if label_name is None else variables[label_name].ravel()
    if labels is not None:
        if len(labels) != len(images) or labels.dtype.kind == "c" or not np.array_equal(labels, np.rint(labels)):
            what = f"{label_name} does not hold {len(images)} integers, one for each image"
            raise DatasetError(path, what, "save the digits 0 to 9")
        labels = labels.astype(np.int64)
    images = np.ascontiguousarray(images)
    return Bunch(data=images.reshape(len(images), -1), target=labels, images=images, DESCR=_DESCRIPTION)


def read_mat(path: Path) -> dict[str, np.ndarray]:
    """Read the numeric variables of a .mat file with SciPy, sparse ones as dense arrays; others are skipped."""
    import scipy.io
    from scipy import sparse

    with reading(path, "a MAT file", "export it again"):
        try:
            variables = scipy.io.loadmat(path, appendmat=False)
        except NotImplementedError:
            what = "MAT files of version 7.3 are not supported"
            raise DatasetError(path, what, "save it with '-v7' in MATLAB") from None
        dense = {name: v.toarray() if sparse.issparse(v) else v for name, v in variables.items() if name[:2] != "__"}
    return {name: v for name, v in dense.items() if isinstance(v, np.ndarray) and v.dtype.kind in "biufc"}


def images_first(array: np.ndarray) -> np.ndarray:
    """Move MATLAB's last axis, which counts images, to the front; matrices are unchanged."""
    return np.moveaxis(array, -1, 0) if array.ndim > 2 else array
