"""MNIST: 70,000 handwritten digits of 28 x 28 pixels."""

from __future__ import annotations

import gzip
import hashlib
import os
from pathlib import Path

import numpy as np
import numpy.typing as npt
from sklearn.utils import Bunch

from rkdl.datasets._errors import DatasetError, check_choice, check_label, reading
from rkdl.datasets._home import find_or_download, get_data_home, warn_if_changed

__all__ = ["fetch_mnist"]

_PARTS = {"train": ("train",), "test": ("t10k",), "all": ("train", "t10k")}
_IMAGE_SHAPE = (28, 28)
_MOST_IMAGES = 60_000
# MD5 checksums of the published files, decompressed.
_CONTENT_MD5 = {
    "train-images": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels": "a25bea736e30d166cdddb491f175f624",
    "t10k-images": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels": "27ae3e4e09519cfbb04c329615203637",
}
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
        image_path, part_images = _read_idx(home, f"{part}-images", _IMAGE_SHAPE, download_if_missing)
        label_path, part_targets = _read_idx(home, f"{part}-labels", (), download_if_missing)
        if len(part_images) != len(part_targets) or (part_targets > 9).any():
            what = f"it does not hold {len(part_images)} digits, one for each image of {image_path.name}"
            raise DatasetError(label_path, what, "fetch both again")
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


def _read_idx(
    home: Path, stem: str, shape: tuple[int, ...], download_if_missing: bool
) -> tuple[Path, npt.NDArray[np.uint8]]:
    """Find and read a file of unsigned bytes: a big-endian header of a magic number and lengths, then the bytes."""
    n_dims = 1 + len(shape)
    names = [f"{stem}{mark}idx{n_dims}-ubyte{ending}" for mark in "-." for ending in (".gz", "")]
    path = find_or_download(home, "mnist", names, download_if_missing)
    with reading(path, "an IDX file", "delete it and fetch it again"), path.open("rb") as file:
        # Browsers may decompress downloads but keep the .gz suffix, so check the content.
        opener = gzip.open if file.read(2) == b"\x1f\x8b" else open
        with opener(path, "rb") as stream:
            # No more than the published files hold, so that a small file cannot fill the memory.
            content = stream.read(4 * (1 + n_dims) + _MOST_IMAGES * int(np.prod(shape)) + 1)
        magic, *lengths = np.frombuffer(content, dtype=">u4", count=1 + n_dims).tolist()
        if magic != 0x0800 + n_dims or tuple(lengths[1:]) != shape:
            raise ValueError(f"its header is 0x{magic:08x} for {lengths}, not 0x{0x0800 + n_dims:08x} for n, {shape}")
        values = np.frombuffer(content, dtype=np.uint8, offset=4 * (1 + n_dims))
        if values.size != lengths[0] * int(np.prod(shape)):
            raise ValueError(f"its header declares {lengths[0]} items, and {values.size} bytes follow")
    warn_if_changed(path, hashlib.md5(content, usedforsecurity=False).hexdigest(), _CONTENT_MD5[stem])
    return path, values.reshape(-1, *shape)
