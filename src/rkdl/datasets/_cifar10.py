"""CIFAR-10: 60,000 colour images of 32 x 32 pixels in ten classes."""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
from sklearn.utils import Bunch

from rkdl.datasets._errors import DatasetError, check_choice, check_label, reading
from rkdl.datasets._home import SOURCES, find_or_download, get_data_home, warn_if_changed

__all__ = ["CIFAR10_CLASSES", "fetch_cifar10"]

CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

_TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
_PARTS = {"train": _TRAIN, "test": ("test_batch.bin",), "all": (*_TRAIN, "test_batch.bin")}
_ARCHIVE, _FOLDER, _ONE_CLASS = "cifar-10-binary.tar.gz", "cifar-10-batches-bin", "cifar10_airplane.npz"
# The same images as Python pickles, which could run code.
_PYTHON_VERSION = ("cifar-10-python.tar.gz", "cifar-10-batches-py")
_REMEDY = "delete it and fetch it again"
# A batch holds at most 10,000 images: a byte of the class and three colour planes.
_RECORD, _LARGEST_BATCH = 1 + 3 * 32 * 32, 10_000 * (1 + 3 * 32 * 32)
_GRAY_WEIGHTS = np.array([0.2989, 0.5870, 0.1140])
_DESCRIPTION = """CIFAR-10 images

60,000 colour images of 32 x 32 pixels in ten classes: 50,000 for training (5,000 per class) and 10,000 for
testing. A. Krizhevsky. Learning multiple layers of features from tiny images. 2009.
"""

_Images = npt.NDArray[np.uint8]
_Labels = npt.NDArray[np.int64]


def fetch_cifar10(
    *,
    subset: str = "train",
    label: int | None = None,
    gray: bool = False,
    data_home: str | os.PathLike[str] | None = None,
    download_if_missing: bool = True,
    return_X_y: bool = False,
) -> Bunch | tuple[npt.NDArray[np.generic], npt.NDArray[np.int64]]:
    """Fetch the CIFAR-10 images.

    They are read from the first of these found in the data folder or its sub-folder ``cifar10``: the binary version as
    an archive, ``cifar-10-binary.tar.gz``, or unpacked, ``cifar-10-batches-bin``, or ``cifar10_airplane.npz``, which
    holds only the training images of class 0. If none is found, the archive is downloaded into ``cifar10`` and
    verified by its checksum; a local archive that differs from the published one is read with a warning. The Python
    version, ``cifar-10-python.tar.gz``, is refused, because reading its pickles could run code.

    Parameters
    ----------
    subset : {"train", "test", "all"}, default="train"
        The 50,000 training images, the 10,000 test images, or both in that order.
    label : int, default=None
        Keep only the images of this class; 0 is airplane (see ``target_names``).
    gray : bool, default=False
        Whether to convert to grey, 0.2989 R + 0.5870 G + 0.1140 B, without rounding.
    data_home : path-like, default=None
        The data folder; see :func:`get_data_home`.
    download_if_missing : bool, default=True
        Whether a missing archive may be downloaded (170 MB; needs pooch, ``pip install "rkdl[data]"``).
    return_X_y : bool, default=False
        Whether to return ``(data, target)`` instead of a Bunch.

    Returns
    -------
    cifar10 : :class:`~sklearn.utils.Bunch`
        With the attributes ``data`` (n_samples, 3072) of uint8, or (n_samples, 1024) of float64 if `gray`,
        ``target`` (n_samples,) of int64, ``images`` (n_samples, 32, 32, 3) or (n_samples, 32, 32), which is a
        view of ``data``, ``target_names``, ``filenames`` and ``DESCR``.
    (data, target) : tuple of ndarrays, if `return_X_y`
        The first two of these.

    Raises
    ------
    DatasetError
        If the files are missing and cannot be downloaded, are damaged, or lack the requested images.

    Examples
    --------
    >>> from rkdl.datasets import fetch_cifar10
    >>> airplanes = fetch_cifar10(label=0, gray=True)  # doctest: +SKIP
    >>> airplanes.data.shape  # doctest: +SKIP
    (5000, 1024)
    """
    check_choice("subset", subset, tuple(_PARTS))
    label = check_label(label, 10)
    path = _locate(get_data_home(data_home), download_if_missing)
    parts = [_read_one_class(path, subset, label)] if path.suffix == ".npz" else _read_batches(path, _PARTS[subset])
    records, classes = zip(*parts, strict=True)
    # concatenate would keep the memory order of the colour planes, and rows could not be viewed.
    images: npt.NDArray[np.generic] = np.ascontiguousarray(np.concatenate(records))
    target = np.concatenate(classes)
    if label is not None:
        images, target = images[target == label], target[target == label]
    if gray:
        images = _to_gray(images)
    data = images.reshape(len(images), 1024 if gray else 3072)
    if return_X_y:
        return data, target
    return Bunch(
        data=data,
        target=target,
        images=images,
        target_names=list(CIFAR10_CLASSES),
        filenames=[str(path)],
        DESCR=_DESCRIPTION,
    )


def _locate(home: Path, download_if_missing: bool) -> Path:
    for path in (folder / name for folder in (home, home / "cifar10") for name in _PYTHON_VERSION):
        is_alone = not any((path.parent / name).exists() for name in (_ARCHIVE, _FOLDER, _ONE_CLASS))
        if path.exists() and is_alone:
            raise DatasetError(path, "the Python version holds pickles, which could run code", f"give {_ARCHIVE}")
    return find_or_download(home, "cifar10", (_ARCHIVE, _FOLDER, _ONE_CLASS), download_if_missing)


def _read_batches(path: Path, names: tuple[str, ...]) -> Iterator[tuple[_Images, _Labels]]:
    """Images and classes of the batches, from the archive or its unpacked folder."""
    if path.is_dir():
        for name in names:
            with reading(path / name, "a batch of CIFAR-10", _REMEDY):
                yield _batch((path / name).read_bytes())
        return
    with reading(path, "the archive of CIFAR-10", _REMEDY), path.open("rb") as file:
        digest = hashlib.file_digest(file, partial(hashlib.md5, usedforsecurity=False)).hexdigest()
        warn_if_changed(path, digest, SOURCES["cifar10"][1][_ARCHIVE])
        contents = {}
        # One pass in file order: seeking back in a gzip file restarts decompression.
        with tarfile.open(path, "r|gz") as archive:
            for member in archive:
                stream = archive.extractfile(member) if member.isfile() else None
                name = member.name.rpartition("/")[2]
                if stream is not None and name in names:
                    contents[name] = stream.read(_LARGEST_BATCH + 1)
        for name in names:
            yield _batch(contents.pop(name))


def _batch(content: bytes) -> tuple[_Images, _Labels]:
    if len(content) % _RECORD or len(content) > _LARGEST_BATCH:
        raise ValueError(f"a batch of {len(content)} bytes does not consist of at most 10,000 records of {_RECORD}")
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, _RECORD)
    if (records[:, 0] > 9).any():
        raise ValueError(f"class {records[:, 0].max()} is not one of 0 to 9")
    return records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), records[:, 0].astype(np.int64)


def _read_one_class(path: Path, subset: str, label: int | None) -> tuple[_Images, _Labels]:
    if subset != "train" or label != 0:
        what = f"holds only the training images of class 0 (airplane), not subset={subset!r}, label={label}"
        raise DatasetError(path, what, f"put the complete data set, {_ARCHIVE}, into the same folder")
    with reading(path, "an .npz file of images", _REMEDY), np.load(path, allow_pickle=False) as arrays:
        images = arrays["images"]
        if images.dtype != np.uint8 or images.shape[1:] != (32, 32, 3):
            raise ValueError(f"`images` is {images.dtype} of shape {images.shape}, not uint8 of shape (n, 32, 32, 3)")
    return images, np.zeros(len(images), dtype=np.int64)


def _to_gray(images: npt.NDArray[np.generic], block: int = 4096) -> npt.NDArray[np.float64]:
    # In blocks, because the product needs eight times the memory of the bytes.
    mixed = np.empty(images.shape[:-1])
    for start in range(0, len(images), block):
        np.matmul(images[start : start + block], _GRAY_WEIGHTS, out=mixed[start : start + block])
    return mixed
