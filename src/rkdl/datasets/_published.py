"""Published data sets: MNIST, CIFAR-10 and nine of the ODDS collection."""

from __future__ import annotations

import gzip
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sklearn.utils import Bunch

from rkdl.datasets._arrays import read_arrays
from rkdl.datasets._errors import DatasetError, check_choice, check_label, reading
from rkdl.datasets._home import find_or_download, get_data_home, warn_if_changed

CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
ODDS_NAMES = ("arrhythmia", "cardio", "glass", "letter", "mnist", "musk", "pendigits", "satellite", "vowels")

_AGAIN = "delete it and fetch it again"
# The files of each subset.
_MNIST = {"train": ("train",), "test": ("t10k",), "all": ("train", "t10k")}
_BATCHES = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
_CIFAR10 = {"train": _BATCHES, "test": ("test_batch.bin",), "all": (*_BATCHES, "test_batch.bin")}
# The most images that a file of MNIST holds.
_MOST_IMAGES = 60_000
_ARCHIVE, _FOLDER, _ONE_CLASS = "cifar-10-binary.tar.gz", "cifar-10-batches-bin", "cifar10_airplane.npz"
# The same images as Python pickles, which could run code.
_PICKLES = ("cifar-10-python.tar.gz", "cifar-10-batches-py")
# A batch holds at most 10,000 images: a byte of the class and three colour planes.
_RECORD, _LARGEST_BATCH = 1 + 3 * 32 * 32, 10_000 * (1 + 3 * 32 * 32)
_MNIST_DESCRIPTION = """MNIST handwritten digits

70,000 grey images of 28 x 28 pixels with values from 0 (background) to 255, of the digits 0 to 9:
60,000 for training (5,842 of them the digit 4) and 10,000 for testing.
Y. LeCun, C. Cortes, C. J. C. Burges. The MNIST database of handwritten digits.
"""
_CIFAR10_DESCRIPTION = """CIFAR-10 images

60,000 colour images of 32 x 32 pixels in ten classes: 50,000 for training (5,000 per class) and 10,000 for
testing. A. Krizhevsky. Learning multiple layers of features from tiny images. 2009.
"""


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
    check_choice("subset", subset, tuple(_MNIST))
    label, home = check_label(label), get_data_home(data_home)
    images, targets, files = [], [], []
    for part in _MNIST[subset]:
        image_path, part_images = _read_idx(home, f"{part}-images", (28, 28), download_if_missing)
        label_path, part_targets = _read_idx(home, f"{part}-labels", (), download_if_missing)
        if len(part_images) != len(part_targets) or (part_targets > 9).any():
            what = f"it does not hold {len(part_images)} digits, one for each image of {image_path.name}"
            raise DatasetError(label_path, what, "fetch both again")
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
    check_choice("subset", subset, tuple(_CIFAR10))
    label, home = check_label(label), get_data_home(data_home)
    names = (_ARCHIVE, _FOLDER, _ONE_CLASS)
    for path in (folder / name for folder in (home, home / "cifar10") for name in _PICKLES):
        if path.exists() and not any((path.parent / name).exists() for name in names):
            raise DatasetError(path, "the Python version holds pickles, which could run code", f"give {_ARCHIVE}")
    path = find_or_download(home, "cifar10", names, download_if_missing)
    parts = [_read_one_class(path, subset, label)] if path.suffix == ".npz" else _read_batches(path, _CIFAR10[subset])
    images, targets = (list(values) for values in zip(*parts, strict=True))
    return _of_class(label, images, targets, return_X_y, list(CIFAR10_CLASSES), [path], _CIFAR10_DESCRIPTION, gray)


def fetch_odds(
    name: str,
    *,
    data_home: str | os.PathLike[str] | None = None,
    return_X_y: bool = False,
) -> Bunch | tuple[np.ndarray, np.ndarray]:
    """Fetch an outlier-detection data set of the ODDS collection.

    It is read from ``NAME.mat`` in the data folder or its sub-folder ``odds``, and never downloaded, because the
    collection has no source with checksums.

    Parameters
    ----------
    name : str
        One of ``rkdl.datasets.ODDS_NAMES``.
    data_home : path-like, default=None
        The data folder; see :func:`get_data_home`.
    return_X_y : bool, default=False
        Whether to return ``(data, target)`` instead of a Bunch.

    Returns
    -------
    odds : :class:`~sklearn.utils.Bunch`
        With the attributes ``data`` (n_samples, n_features) of float64, ``target`` (n_samples,) of int64,
        which is 1 for outliers and 0 for the others, ``target_names``, ``filenames`` and ``DESCR``.
    (data, target) : tuple of ndarrays, if `return_X_y`
        The first two of these.

    Raises
    ------
    DatasetError
        If the file is missing or damaged.

    Examples
    --------
    >>> from rkdl.datasets import ODDS_NAMES, fetch_odds
    >>> len(ODDS_NAMES)
    9
    >>> fetch_odds("cardio").data.shape  # doctest: +SKIP
    (1831, 21)
    """
    check_choice("name", name, ODDS_NAMES)
    path = find_or_download(get_data_home(data_home), "odds", [f"{name}.mat"], download_if_missing=False)
    data, labels = read_arrays(path, "X", ["y"])
    if labels is None or len(labels) != data.shape[0] or not np.isin(labels, (0, 1)).all():
        raise DatasetError(path, f"y does not hold {data.shape[0]} times 0 or 1 (outlier)", "fetch it again")
    data, target = np.ascontiguousarray(data, dtype=np.float64), labels.astype(np.int64)
    if return_X_y:
        return data, target
    description = f"{name}, of the ODDS collection: {len(data)} samples, {target.sum()} of them outliers (target 1)"
    return Bunch(data=data, target=target, target_names=["inlier", "outlier"], filenames=[str(path)], DESCR=description)


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
    if label is not None:
        images = [part[classes == label] for part, classes in zip(images, targets, strict=True)]
        targets = [classes[classes == label] for classes in targets]
    if gray:
        images = [np.einsum("nxyc,c->nxy", part, [0.2989, 0.5870, 0.1140]) for part in images]
    # concatenate would keep the memory order of colour planes, and rows could not be viewed.
    pixels, target = np.ascontiguousarray(np.concatenate(images)), np.concatenate(targets)
    data = pixels.reshape(len(pixels), int(np.prod(pixels.shape[1:])))
    if return_X_y:
        return data, target
    filenames = [str(file) for file in files]
    return Bunch(data=data, target=target, images=pixels, target_names=names, filenames=filenames, DESCR=description)


def _read_idx(home: Path, stem: str, shape: tuple[int, ...], download_if_missing: bool) -> tuple[Path, np.ndarray]:
    """Find and read a file of unsigned bytes: a big-endian header of a magic number and lengths, then the bytes."""
    n_dims = 1 + len(shape)
    names = [f"{stem}{mark}idx{n_dims}-ubyte{ending}" for mark in "-." for ending in (".gz", "")]
    path = find_or_download(home, "mnist", names, download_if_missing)
    with reading(path, "an IDX file", _AGAIN), path.open("rb") as file:
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
    warn_if_changed(path, names[0], content)
    return path, values.reshape(-1, *shape)


def _read_batches(path: Path, names: tuple[str, ...]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Images and classes of the batches, from the archive or its unpacked folder."""
    if path.is_dir():
        for name in names:
            with reading(path / name, "a batch of CIFAR-10", _AGAIN):
                yield _batch((path / name).read_bytes())
        return
    with reading(path, "the archive of CIFAR-10", _AGAIN), path.open("rb") as file:
        warn_if_changed(path, _ARCHIVE, file)
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


def _batch(content: bytes) -> tuple[np.ndarray, np.ndarray]:
    if len(content) % _RECORD or len(content) > _LARGEST_BATCH:
        raise ValueError(f"a batch of {len(content)} bytes does not consist of at most 10,000 records of {_RECORD}")
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, _RECORD)
    if (records[:, 0] > 9).any():
        raise ValueError(f"class {records[:, 0].max()} is not one of 0 to 9")
    return records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), records[:, 0].astype(np.int64)


def _read_one_class(path: Path, subset: str, label: int | None) -> tuple[np.ndarray, np.ndarray]:
    if subset != "train" or label != 0:
        what = f"holds only the training images of class 0 (airplane), not subset={subset!r}, label={label}"
        raise DatasetError(path, what, f"put the complete data set, {_ARCHIVE}, into the same folder")
    images, _ = read_arrays(path, "images")
    if images.dtype != np.uint8 or images.shape[1] != 3072:
        raise DatasetError(path, "`images` does not hold bytes of shape (n, 32, 32, 3)", _AGAIN)
    return images.reshape(-1, 32, 32, 3), np.zeros(images.shape[0], dtype=np.int64)
