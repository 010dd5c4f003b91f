"""Data sets of the paper's experiments, by their names on the command line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.utils import check_array

from rkdl.datasets._cifar10 import CIFAR10_CLASSES, fetch_cifar10
from rkdl.datasets._errors import DatasetError, check_label
from rkdl.datasets._home import as_path
from rkdl.datasets._mnist import fetch_mnist
from rkdl.datasets._signals import (
    SIGNAL_SUFFIXES,
    float_dtype,
    load_digits_signals,
    normalize_signals,
    read_array,
)

__all__ = ["EXPERIMENT_NAMES", "ExperimentData", "load_experiment"]

EXPERIMENT_NAMES = ("digits", "mnist", "mnist-5000", "cifar10")

_PER_CLASS = 500


class ExperimentData(NamedTuple):
    """Signals of an experiment and what is needed to show them.

    Parameters
    ----------
    signals : ndarray of shape (n_signals, n_features)
        The signals as rows of unit norm.
    image_shape : tuple of int or None
        Shape of a signal as an image, (height, width) or (height, width, 3 or 4); None for signals that are not
        images.
    description : str
        Short description.
    """

    signals: npt.NDArray[np.floating[Any]]
    image_shape: tuple[int, ...] | None
    description: str


def load_experiment(
    name: str | os.PathLike[str],
    *,
    label: int | None = None,
    data_home: str | os.PathLike[str] | None = None,
    dtype: npt.DTypeLike = np.float32,
    download_if_missing: bool = True,
    normalize: bool = True,
) -> ExperimentData:
    """Load the signals of an experiment, scaled to unit norm unless told otherwise.

    ============== ================================================================ ===============
    name           signals                                                          size
    ============== ================================================================ ===============
    ``digits``     scikit-learn's digits, all or those of `label`                   1797 x 64
    ``mnist``      MNIST's training images of the digit `label`, 4 by default       5842 x 784
    ``mnist-5000`` MNIST's first 500 training images of each digit, in file order   5000 x 784
    ``cifar10``    CIFAR-10's training images of class `label`, 0 (airplane) by     5000 x 1024
                   default, in grey
    a path         a file that :func:`load_signals` reads
    ============== ================================================================ ===============

    Parameters
    ----------
    name : str or path-like
        One of these names, or the path of a file.
    label : int, default=None
        The class to load, for data sets with `label` above.
    data_home : path-like, default=None
        The data folder; see :func:`get_data_home`.
    dtype : {numpy.float32, numpy.float64}, default=numpy.float32
        The type of the signals.
    download_if_missing : bool, default=True
        Whether missing data may be downloaded.
    normalize : bool, default=True
        Whether signals are scaled to unit norm, as in the paper; otherwise they are only converted to `dtype`.

    Returns
    -------
    data : ExperimentData
        The named tuple ``(signals, image_shape, description)``.

    Raises
    ------
    DatasetError
        If the data are missing and cannot be downloaded, or are damaged.
    ValueError
        If the name is unknown, or the label invalid for it.

    Examples
    --------
    >>> from rkdl.datasets import load_experiment
    >>> signals, image_shape, description = load_experiment("digits")
    >>> signals.shape, image_shape
    ((1797, 64), (8, 8))
    >>> description
    "scikit-learn's digits, 1797 x 64"
    """
    dtype = float_dtype(dtype)
    data: npt.NDArray[Any]
    image_shape: tuple[int, ...] | None
    if name == "digits":
        data = load_digits_signals(label=label)
        what, image_shape = "scikit-learn's digits" + ("" if label is None else f", digit {label}"), (8, 8)
    elif name == "mnist":
        label = check_label(4 if label is None else label, 10)
        mnist: Any = fetch_mnist(label=label, data_home=data_home, download_if_missing=download_if_missing)
        data, what, image_shape = mnist.data, f"MNIST digit {label} (training set)", (28, 28)
    elif name == "mnist-5000":
        _refuse_label(name, label)
        mnist = fetch_mnist(data_home=data_home, download_if_missing=download_if_missing)
        data = mnist.data[_first_of_each_class(mnist.target, mnist.filenames[1])]
        what, image_shape = f"MNIST, the first {_PER_CLASS} of each digit (training set)", (28, 28)
    elif name == "cifar10":
        label = check_label(0 if label is None else label, 10)
        cifar: Any = fetch_cifar10(label=label, gray=True, data_home=data_home, download_if_missing=download_if_missing)
        what, image_shape = f"CIFAR-10 {CIFAR10_CLASSES[label or 0]}, grey (training set)", (32, 32)
        data = cifar.data
    else:
        path = _as_path(name)
        _refuse_label(path.name, label)
        array = read_array(path)
        data, what, image_shape = array.reshape(len(array), -1), path.name, _image_shape(array.shape[1:])
    if not len(data):
        raise ValueError(f"{what}: there are no signals with label {label}")
    signals = normalize_signals(data, dtype) if normalize else check_array(data, dtype=dtype, input_name="signals")
    return ExperimentData(signals, image_shape, f"{what}, {signals.shape[0]} x {signals.shape[1]}")


def _as_path(name: str | os.PathLike[str]) -> Path:
    path = as_path(name)
    is_bare_word = isinstance(name, str) and path.name == name and not path.suffix
    if is_bare_word:
        valid = ", ".join(repr(valid_name) for valid_name in EXPERIMENT_NAMES)
        endings = ", ".join(SIGNAL_SUFFIXES)
        raise ValueError(f"unknown data set {name!r}; choose one of {valid}, or the path of a file ({endings})")
    return path


def _refuse_label(name: str | os.PathLike[str], label: int | None) -> None:
    if label is not None:
        raise ValueError(f"label={label!r} cannot be used with {name}; it is for digits, mnist and cifar10")


def _first_of_each_class(target: npt.NDArray[np.int64], filename: str) -> npt.NDArray[np.intp]:
    firsts = [np.flatnonzero(target == digit)[:_PER_CLASS] for digit in range(10)]
    for digit, indices in enumerate(firsts):
        if len(indices) < _PER_CLASS:
            raise DatasetError(
                filename, f"only {len(indices)} labels are {digit}, of {_PER_CLASS}", "use the complete data set"
            )
    return np.sort(np.concatenate(firsts))


def _image_shape(shape: tuple[int, ...]) -> tuple[int, ...] | None:
    if len(shape) == 3 and shape[2] == 1:
        shape = shape[:2]
    return shape if len(shape) == 2 or (len(shape) == 3 and shape[2] in (3, 4)) else None
