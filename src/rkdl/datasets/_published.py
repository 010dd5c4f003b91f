"""Published data sets: MNIST and CIFAR-10."""

from __future__ import annotations

import gzip
import hashlib
import os
import sys
import tarfile
from collections.abc import Iterator, Sequence
from functools import partial
from io import BufferedReader
from pathlib import Path

import numpy as np
from sklearn.utils import Bunch

from rkdl.datasets._errors import DatasetError, as_path, cause, check_choices, reading, require
from rkdl.datasets._files import read_arrays

CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

_HOME_REMEDY = "give its folder as data_home= or in the environment variable RKDL_DATA"
_AGAIN = "delete it and fetch it again"
_MNIST_URL, _CIFAR10_URL = "https://ossci-datasets.s3.amazonaws.com/mnist/", "https://www.cs.toronto.edu/~kriz/"
# URL of each published file, and MD5 checksums of the download and of the content that is compared (MNIST's unpacked).
FILES = {
    "train-images-idx3-ubyte.gz": (_MNIST_URL, "f68b3c2dcbeaaa9fbdd348bbdeb94873", "6bbc9ace898e44ae57da46a324031adb"),
    "train-labels-idx1-ubyte.gz": (_MNIST_URL, "d53e105ee54ea40749a09fcbcd1e9432", "a25bea736e30d166cdddb491f175f624"),
    "t10k-images-idx3-ubyte.gz": (_MNIST_URL, "9fb629c4189551a2d022fa330f9573f3", "2646ac647ad5339dbf082846283269ea"),
    "t10k-labels-idx1-ubyte.gz": (_MNIST_URL, "ec29112dd5afa0611ce80d1b7f02629c", "27ae3e4e09519cfbb04c329615203637"),
    "cifar-10-binary.tar.gz": (_CIFAR10_URL, "c32a1d4ab5d03f1284b67883e8d87530", "c32a1d4ab5d03f1284b67883e8d87530"),
}
# The files of each subset.
_MNIST = {"train": ("train",), "test": ("t10k",), "all": ("train", "t10k")}
_BATCHES = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
_CIFAR10 = {"train": _BATCHES, "test": ("test_batch.bin",), "all": (*_BATCHES, "test_batch.bin")}
# Bytes of the longest file of MNIST.
_LONGEST = 16 + 60_000 * 28 * 28
_ARCHIVE, _FOLDER, _ONE_CLASS = "cifar-10-binary.tar.gz", "cifar-10-batches-bin", "cifar10_airplane.npz"
_MNIST_DESCRIPTION = (
    "MNIST handwritten digits: grey images of 28 x 28 pixels from 0 (background) to 255, 60,000 for training and "
    "10,000 for testing. Y. LeCun, C. Cortes, C. J. C. Burges."
)
_CIFAR10_DESCRIPTION = (
    "CIFAR-10: colour images of 32 x 32 pixels in ten classes, 50,000 for training and 10,000 for testing. "
    "A. Krizhevsky. Learning multiple layers of features from tiny images. 2009."
)


def get_data_home(data_home: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder in which loaders look for data.

    It is `data_home` if given, else the folder named by the environment variable ``RKDL_DATA``, else
    ``~/rkdl_data``. The folder is not created: only a download writes into it.

    Parameters
    ----------
    data_home : path-like, default=None
        A folder; a leading ``~`` is expanded to the user's home.

    Returns
    -------
    folder : pathlib.Path
        The folder, which need not exist.

    Examples
    --------
    >>> from rkdl.datasets import get_data_home
    >>> get_data_home("/srv/data").name
    'data'
    """
    chosen = data_home if data_home is not None else os.environ.get("RKDL_DATA") or Path("~", "rkdl_data")
    folder = as_path(chosen)
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise DatasetError(folder, "the data folder is not a folder", _HOME_REMEDY)
    return folder


def fetch_mnist(
    *,
    subset: str = "train",
    label: int | None = None,
    data_home: str | os.PathLike[str] | None = None,
    download_if_missing: bool = True,
    return_X_y: bool = False,
) -> Bunch | tuple[np.ndarray, np.ndarray]:
    """Fetch the MNIST digits.

    The IDX files are searched in the data folder and its sub-folder ``mnist``, gzipped or not, under names like
    ``train-images-idx3-ubyte.gz``, ``train-images-idx3-ubyte`` or ``train-images.idx3-ubyte``. Missing files are
    downloaded into ``mnist``. All are verified by their checksums.

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
    check_choices(subset, _MNIST, label)
    home = get_data_home(data_home)
    images, targets, files = [], [], []
    for part in _MNIST[subset]:
        image_path, part_images = _read_idx(home, f"{part}-images", (28, 28), download_if_missing)
        label_path, part_targets = _read_idx(home, f"{part}-labels", (), download_if_missing)
        images.append(part_images)
        targets.append(part_targets.astype(np.int64))
        files += [image_path, label_path]
    names = [str(digit) for digit in range(10)]
    return _of_class(label, images, targets, return_X_y, names, files, _MNIST_DESCRIPTION)


def fetch_cifar10(
    *,
    subset: str = "train",
    label: int | None = None,
    gray: bool = False,
    data_home: str | os.PathLike[str] | None = None,
    download_if_missing: bool = True,
    return_X_y: bool = False,
) -> Bunch | tuple[np.ndarray, np.ndarray]:
    """Fetch the CIFAR-10 images.

    They are read from the first of these found in the data folder or its sub-folder ``cifar10``: the binary version as
    an archive, ``cifar-10-binary.tar.gz``, or unpacked, ``cifar-10-batches-bin``, or ``cifar10_airplane.npz``, which
    holds only the training images of class 0. If none is found, the archive is downloaded into ``cifar10``; it is
    verified by its checksum. The Python version is not read, because its pickles could run code.

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
    check_choices(subset, _CIFAR10, label)
    home = get_data_home(data_home)
    path = _find_or_download(home, "cifar10", (_ARCHIVE, _FOLDER, _ONE_CLASS), download_if_missing)
    parts = [_read_one_class(path, subset, label)] if path.suffix == ".npz" else _read_batches(path, _CIFAR10[subset])
    images, targets = (list(values) for values in zip(*parts, strict=True))
    return _of_class(label, images, targets, return_X_y, list(CIFAR10_CLASSES), [path], _CIFAR10_DESCRIPTION, gray)


def _of_class(
    label: int | None,
    images: list[np.ndarray],
    targets: list[np.ndarray],
    return_X_y: bool,
    names: list[str],
    files: list[Path],
    description: str,
    gray: bool = False,
) -> Bunch | tuple[np.ndarray, np.ndarray]:
    """The images of one class or of all, as the loaders return them."""
    pixels, target = np.concatenate(images), np.concatenate(targets)
    if label is not None:
        pixels, target = pixels[target == label], target[target == label]
    if gray:
        pixels = np.einsum("nxyc,c->nxy", pixels, [0.2989, 0.5870, 0.1140])
    # Colour planes keep their order in memory so far, and rows could not be viewed.
    pixels = np.ascontiguousarray(pixels)
    data = pixels.reshape(len(pixels), int(np.prod(pixels.shape[1:])))
    if return_X_y:
        return data, target
    filenames = [str(file) for file in files]
    return Bunch(data=data, target=target, images=pixels, target_names=names, filenames=filenames, DESCR=description)


def _find_or_download(home: Path, source: str, names: Sequence[str], download_if_missing: bool) -> Path:
    """Return the first of `names` found in the data folder or its sub-folder `source`; if none is, download the first.

    pooch verifies the checksum of a download and discards a wrong one.
    """
    for path in (folder / name for folder in (home, home / source) for name in names):
        if os.path.exists(path):
            return path
    folder, by_hand = home / source, f"or put {names[0]} into {home / source} yourself"
    if not download_if_missing:
        what = f"none of {', '.join(names)} is in this folder or its sub-folder {source}"
        raise DatasetError(home, what, _HOME_REMEDY)
    url, checksum, _ = FILES[names[0]]
    pooch = require(folder, "pooch", f"{names[0]} was not found, and downloading it", extra="data")
    bar = sys.stderr is not None and sys.stderr.isatty()
    try:
        return Path(pooch.retrieve(url + names[0], f"md5:{checksum}", fname=names[0], path=folder, progressbar=bar))
    except (OSError, ValueError) as error:
        raise DatasetError(url + names[0], f"cannot be downloaded ({cause(error)})", f"try again, {by_hand}") from error


def check_published(path: Path, name: str, content: bytes | BufferedReader) -> None:
    """Refuse a local file whose content is not that of the published file `name`."""
    md5 = partial(hashlib.md5, usedforsecurity=False)
    digest = md5(content) if isinstance(content, bytes) else hashlib.file_digest(content, md5)
    if digest.hexdigest() != FILES[name][2]:
        what = f"this is not the published file: its MD5 checksum is {digest.hexdigest()}, expected {FILES[name][2]}"
        raise DatasetError(path, what, _AGAIN)


def _read_idx(home: Path, stem: str, shape: tuple[int, ...], download_if_missing: bool) -> tuple[Path, np.ndarray]:
    """Find and read a file of unsigned bytes: a header of a magic number and the lengths of axes, then the bytes."""
    n_dims = 1 + len(shape)
    names = [f"{stem}{mark}idx{n_dims}-ubyte{ending}" for mark in "-." for ending in (".gz", "")]
    path = _find_or_download(home, "mnist", names, download_if_missing)
    with reading(path, "an IDX file", _AGAIN), path.open("rb") as file:
        # Browsers may decompress downloads but keep the .gz suffix, so check the content.
        opener = gzip.open if file.read(2) == b"\x1f\x8b" else open
        with opener(path, "rb") as stream:
            # No more than the published files hold, so that a small file cannot fill the memory.
            content = stream.read(_LONGEST + 1)
    check_published(path, names[0], content)
    return path, np.frombuffer(content, dtype=np.uint8, offset=4 * (1 + n_dims)).reshape(-1, *shape)


def _read_batches(path: Path, names: tuple[str, ...]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Images and classes of the batches, from the archive or its unpacked folder."""
    if path.is_dir():
        for name in names:
            with reading(path / name, "a batch of CIFAR-10", _AGAIN):
                yield _batch((path / name).read_bytes())
        return
    with reading(path, "the archive of CIFAR-10", _AGAIN), path.open("rb") as file:
        check_published(path, _ARCHIVE, file)
        contents = {}
        # One pass in file order: seeking back in a gzip file restarts decompression.
        with tarfile.open(path, "r|gz") as archive:
            for member in archive:
                name = member.name.rpartition("/")[2]
                if name in names and (stream := archive.extractfile(member)) is not None:
                    contents[name] = stream.read()
        for name in names:
            yield _batch(contents.pop(name))


def _batch(content: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Images and classes of records: a byte of the class and three colour planes."""
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, 1 + 3 * 32 * 32)
    return records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), records[:, 0].astype(np.int64)


def _read_one_class(path: Path, subset: str, label: int | None) -> tuple[np.ndarray, np.ndarray]:
    if subset != "train" or label != 0:
        what = f"holds only the training images of class 0 (airplane), not subset={subset!r}, label={label}"
        raise DatasetError(path, what, f"put the complete data set, {_ARCHIVE}, into the same folder")
    images, _ = read_arrays(path, "images")
    if images.dtype != np.uint8 or images.shape[1] != 3072:
        raise DatasetError(path, "`images` does not hold bytes of shape (n, 32, 32, 3)", _AGAIN)
    return images.reshape(-1, 32, 32, 3), np.zeros(images.shape[0], dtype=np.int64)
