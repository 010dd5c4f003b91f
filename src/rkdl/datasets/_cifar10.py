"""CIFAR-10: 60,000 colour images of 32 x 32 pixels in ten classes."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
from sklearn.utils import Bunch

from rkdl._persistence.files import open_regular
from rkdl._persistence.npz import read_npz
from rkdl.datasets._download import download
from rkdl.datasets._errors import DatasetError, cause, check_choice, check_label
from rkdl.datasets._home import HOME_REMEDY, find_file, get_data_home
from rkdl.datasets._pickled_arrays import read_pickled_arrays
from rkdl.datasets._published import warn_if_changed

__all__ = ["CIFAR10_CLASSES", "fetch_cifar10"]

CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

_TRAIN = tuple(f"data_batch_{number}" for number in range(1, 6))
_PARTS = {"train": _TRAIN, "test": ("test_batch",), "all": (*_TRAIN, "test_batch")}
_FOLDER, _ARCHIVE, _ONE_CLASS = "cifar-10-batches-py", "cifar-10-python.tar.gz", "cifar10_airplane.npz"
_GRAY_WEIGHTS = np.array([0.2989, 0.5870, 0.1140])
_REMEDY = "delete it and fetch it again"
# Upper limits in bytes of a batch, of the unpacked archive, and of all images of a class.
_LARGEST_BATCH, _LARGEST_ARCHIVE, _LARGEST_CLASS = 40 << 20, 256 << 20, 6_000 * 3072 + 4096
_MOST_IN_BATCH = 10_000
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

    They are read from the first of these found in the data folder or its sub-folder ``cifar10``: the folder
    ``cifar-10-batches-py``, the archive ``cifar-10-python.tar.gz``, or ``cifar10_airplane.npz``, which holds only the
    training images of class 0. If none is found, the archive is downloaded into ``cifar10`` and verified by its
    checksum; a local batch that differs from the published one is read with a warning. The archive is read in place,
    and its pickles are parsed as data: nothing in them is ever called.

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
    if path.suffix == ".npz":
        parts = [_read_one_class(path, subset, label)]
    else:
        batches = _tar_batches if path.name == _ARCHIVE else _folder_batches
        parts = [_choose(*_read_batch(*batch), label) for batch in batches(path, _PARTS[subset])]
    # concatenate would keep the memory order of the colour planes, and rows could not be viewed.
    images: npt.NDArray[np.generic] = np.ascontiguousarray(np.concatenate([part_images for part_images, _ in parts]))
    target = np.concatenate([part_labels for _, part_labels in parts])
    if gray:
        images = _to_gray(images)
    data = images.reshape(len(images), -1)
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
    if (home / _TRAIN[0]).exists():
        return home
    found = find_file((home, home / "cifar10"), (_FOLDER, _ARCHIVE, _ONE_CLASS))
    if found is not None:
        return found
    if download_if_missing:
        return download("cifar10", _ARCHIVE, home / "cifar10")
    raise DatasetError(home, f"CIFAR-10 was not found (neither {_FOLDER} nor {_ARCHIVE} nor {_ONE_CLASS})", HOME_REMEDY)


def _folder_batches(folder: Path, names: tuple[str, ...]) -> Iterator[tuple[str, str, bytes]]:
    for name in names:
        try:
            with open_regular(folder / name) as file:
                yield str(folder / name), name, file.read(_LARGEST_BATCH + 1)
        except FileNotFoundError:
            raise DatasetError(folder, f"the file {name} is missing", f"unpack {_ARCHIVE} again") from None
        except (OSError, MemoryError) as error:
            raise DatasetError(folder / name, f"cannot be read ({cause(error)})") from error


class _Bounded(io.RawIOBase):
    """A stream that raises an error beyond a size limit."""

    def __init__(self, stream: IO[bytes], limit: int) -> None:
        self._stream, self._left = stream, limit

    def read(self, size: int = -1) -> bytes:
        content = self._stream.read(size if size >= 0 else self._left + 1)
        self._left -= len(content)
        if self._left < 0:
            raise tarfile.TarError("it is larger than the published archive")
        return content


def _tar_batches(path: Path, names: tuple[str, ...]) -> Iterator[tuple[str, str, bytes]]:
    contents: dict[str, bytes] = {}
    try:
        # One pass in file order: seeking back in a gzip file restarts decompression.
        with open_regular(path) as file, _open_tar(file) as archive:
            for member in archive:
                name = member.name.rpartition("/")[2]
                stream = archive.extractfile(member) if name in names and member.isfile() else None
                if stream is not None:
                    contents[name] = stream.read(_LARGEST_BATCH + 1)
                if len(contents) == len(names):
                    break
    except (tarfile.TarError, EOFError, OSError, MemoryError, zlib.error) as error:
        raise DatasetError(path, f"the archive is damaged or truncated ({cause(error)})", _REMEDY) from error
    for name in names:
        if name not in contents:
            raise DatasetError(path, f"the archive holds no {name}", _REMEDY)
        yield f"{path} ({name})", name, contents.pop(name)


def _open_tar(file: IO[bytes]) -> tarfile.TarFile:
    """Open the archive, gzipped or not, for one pass with a limit on its unpacked size."""
    is_packed = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    unpacked: Any = gzip.GzipFile(fileobj=file) if is_packed else file
    bounded: Any = _Bounded(unpacked, _LARGEST_ARCHIVE)
    return tarfile.open(fileobj=bounded, mode="r|")


def _read_batch(where: str, name: str, content: bytes) -> tuple[_Images, _Labels]:
    if len(content) > _LARGEST_BATCH:
        raise DatasetError(where, f"larger than a CIFAR-10 batch can be ({_LARGEST_BATCH >> 20} MiB)", _REMEDY)
    try:
        entries = read_pickled_arrays(content)
    # A damaged pickle can raise anything.
    except Exception as error:
        raise DatasetError(where, f"not a pickle of a CIFAR-10 batch ({cause(error)})", _REMEDY) from error
    data, labels = (entries.get(key, entries.get(key.encode())) for key in ("data", "labels"))
    target = _as_labels(labels)
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.ndim != 2 or data.shape[1] != 3072:
        raise DatasetError(where, "not a CIFAR-10 batch: no array `data` of uint8 with 3072 columns", _REMEDY)
    if target is None or target.shape != data.shape[:1] or (target.size and not 0 <= target.min() <= target.max() < 10):
        raise DatasetError(where, f"not a CIFAR-10 batch: `labels` are not {len(data)} integers from 0 to 9", _REMEDY)
    warn_if_changed(where, name, content)
    # Stored as three consecutive colour planes.
    return data.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), target


def _as_labels(found: Any) -> _Labels | None:
    """Labels of a batch, or None if not a flat list or array of integers."""
    if isinstance(found, np.ndarray):
        return found.astype(np.int64) if found.ndim == 1 and len(found) <= _MOST_IN_BATCH else None
    # Checked before conversion: nested shared lists could grow without bound in NumPy.
    if not isinstance(found, list) or len(found) > _MOST_IN_BATCH:
        return None
    if not all(type(label) is int and 0 <= label < 10 for label in found):
        return None
    return np.array(found, dtype=np.int64)


def _choose(images: _Images, target: _Labels, label: int | None) -> tuple[_Images, _Labels]:
    if label is None:
        return images, target
    return images[target == label], target[target == label]


def _read_one_class(path: Path, subset: str, label: int | None) -> tuple[_Images, _Labels]:
    if subset != "train" or label != 0:
        requested = f"subset={subset!r}, label={label}"
        raise DatasetError(
            path,
            f"holds only the training images of class 0 (airplane): subset='train', label=0, not {requested}",
            f"put the complete data set, {_ARCHIVE} or {_FOLDER}, into the same folder or another data_home",
        )
    try:
        with open_regular(path) as stream:
            images = read_npz(stream, ["images"], _LARGEST_CLASS)["images"]
    # zipfile, zlib and NumPy raise many kinds of exceptions on damaged files.
    except Exception as error:
        raise DatasetError(path, f"no array `images` can be read from it ({cause(error)})", _REMEDY) from error
    if images.dtype != np.uint8 or images.shape[1:] != (32, 32, 3):
        found = f"{images.dtype} of shape {images.shape}"
        raise DatasetError(path, f"`images` is {found}, not uint8 of shape (n, 32, 32, 3)", _REMEDY)
    return images, np.zeros(len(images), dtype=np.int64)


def _to_gray(images: npt.NDArray[np.generic], block: int = 4096) -> npt.NDArray[np.float64]:
    # In blocks, because the product needs eight times the memory of the bytes.
    mixed = np.empty(images.shape[:-1])
    for start in range(0, len(images), block):
        np.matmul(images[start : start + block], _GRAY_WEIGHTS, out=mixed[start : start + block])
    return mixed
