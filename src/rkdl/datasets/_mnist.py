"""MNIST: 70,000 handwritten digits of 28 x 28 pixels."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
from sklearn.utils import Bunch

from rkdl.datasets._download import download
from rkdl.datasets._errors import DatasetError, check_choice, check_label
from rkdl.datasets._home import HOME_REMEDY, find_file, get_data_home
from rkdl.datasets._idx import read_idx

__all__ = ["fetch_mnist"]

_PARTS = {"train": ("train",), "test": ("t10k",), "all": ("train", "t10k")}
_IMAGE_SHAPE = (28, 28)
_MOST_IMAGES = 60_000
_DESCRIPTION = """MNIST handwritten digits

70,000 grey images of 28 x 28 pixels with values from 0 (background) to 255, of the digits 0 to 9:
60,000 for training (5,842 of them the digit 4) and 10,000 for testing.
Y. LeCun, C. Cortes, C. J. C. Burges. The MNIST database of handwritten digits.
"""


def fetch_mnist(
    *,
    subset: str = "train",
    label: int | None = None,
    data_home: str | os.PathLike[str] | None = None,
    download_if_missing: bool = True,
    return_X_y: bool = False,
) -> Bunch | tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Fetch the MNIST digits.

    The IDX files are searched in the data folder and its sub-folder ``mnist``, gzipped or not, under names like
    ``train-images-idx3-ubyte.gz``, ``train-images-idx3-ubyte`` or ``train-images.idx3-ubyte``. Missing files are
    downloaded into ``mnist`` and verified by their checksums; a local file that differs from the published one is read
    with a warning.

    Parameters
    ----------
    subset : {"train", "test", "all"}, default="train"
        The 60,000 training images, the 10,000 test images, or both in that order.
    label : int, default=None
        Keep only the images of this digit.
    data_home : path-like, default=None
        The data folder; see :func:`get_data_home`.
    download_if_missing : bool, default=True
        Whether missing files may be downloaded (needs pooch, ``pip install "rkdl[data]"``).
    return_X_y : bool, default=False
        Whether to return ``(data, target)`` instead of a Bunch.

    Returns
    -------
    mnist : :class:`~sklearn.utils.Bunch`
        With the attributes ``data`` (n_samples, 784) of uint8, ``target`` (n_samples,) of int64, ``images``
        (n_samples, 28, 28), which is a view of ``data``, ``target_names``, ``filenames`` and ``DESCR``.
    (data, target) : tuple of ndarrays, if `return_X_y`
        The first two of these.

    Raises
    ------
    DatasetError
        If a file is missing and cannot be downloaded, or is damaged.

    Examples
    --------
    >>> from rkdl.datasets import fetch_mnist
    >>> fours = fetch_mnist(label=4)  # doctest: +SKIP
    >>> fours.data.shape  # doctest: +SKIP
    (5842, 784)
    """
    check_choice("subset", subset, tuple(_PARTS))
    label = check_label(label, 10)
    home = get_data_home(data_home)
    images, targets, filenames = [], [], []
    for part in _PARTS[subset]:
        image_path = _locate(home, f"{part}-images", 3, download_if_missing)
        label_path = _locate(home, f"{part}-labels", 1, download_if_missing)
        part_images, part_targets = _read_part(part, image_path, label_path)
        if label is not None:
            chosen = part_targets == label
            part_images, part_targets = part_images[chosen], part_targets[chosen]
        images.append(part_images)
        targets.append(part_targets)
        filenames += [str(image_path), str(label_path)]
    data = np.concatenate(images).reshape(-1, _IMAGE_SHAPE[0] * _IMAGE_SHAPE[1])
    target = np.concatenate(targets).astype(np.int64)
    if return_X_y:
        return data, target
    return Bunch(
        data=data,
        target=target,
        images=data.reshape(-1, *_IMAGE_SHAPE),
        target_names=[str(digit) for digit in range(10)],
        filenames=filenames,
        DESCR=_DESCRIPTION,
    )


def _locate(home: Path, stem: str, n_dims: int, download_if_missing: bool) -> Path:
    names = [f"{stem}{mark}idx{n_dims}-ubyte{ending}" for mark in "-." for ending in (".gz", "")]
    found = find_file((home, home / "mnist"), names)
    if found is not None:
        return found
    if download_if_missing:
        return download("mnist", names[0], home / "mnist")
    raise DatasetError(home, f"MNIST's {names[0]} is neither in this folder nor in its sub-folder mnist", HOME_REMEDY)


def _read_part(part: str, image_path: Path, label_path: Path) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
    images = read_idx(image_path, _IMAGE_SHAPE, _MOST_IMAGES, f"{part}-images")
    labels = read_idx(label_path, (), _MOST_IMAGES, f"{part}-labels")
    if len(images) != len(labels):
        raise DatasetError(
            label_path,
            f"{len(labels)} labels for the {len(images)} images of {image_path.name}",
            "fetch both again",
        )
    if labels.size and labels.max() > 9:
        raise DatasetError(label_path, f"the label {labels.max()} is not a digit", "use MNIST's own files")
    return images, labels
