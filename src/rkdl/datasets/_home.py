"""The data folder: where published files are looked for, and downloaded to."""

from __future__ import annotations

import hashlib
import os
import sys
import warnings
from collections.abc import Sequence
from functools import partial
from io import BufferedReader
from pathlib import Path

from rkdl._utils.text import shown
from rkdl.datasets._errors import DatasetError, cause, require

HOME_REMEDY = "give its folder as data_home= or in the environment variable RKDL_DATA"

_MNIST, _CIFAR10 = "https://ossci-datasets.s3.amazonaws.com/mnist/", "https://www.cs.toronto.edu/~kriz/"
# Of published files, the place and the MD5 checksums of the file and of what is compared: MNIST's files unpacked.
FILES = {
    "train-images-idx3-ubyte.gz": (_MNIST, "f68b3c2dcbeaaa9fbdd348bbdeb94873", "6bbc9ace898e44ae57da46a324031adb"),
    "train-labels-idx1-ubyte.gz": (_MNIST, "d53e105ee54ea40749a09fcbcd1e9432", "a25bea736e30d166cdddb491f175f624"),
    "t10k-images-idx3-ubyte.gz": (_MNIST, "9fb629c4189551a2d022fa330f9573f3", "2646ac647ad5339dbf082846283269ea"),
    "t10k-labels-idx1-ubyte.gz": (_MNIST, "ec29112dd5afa0611ce80d1b7f02629c", "27ae3e4e09519cfbb04c329615203637"),
    "cifar-10-binary.tar.gz": (_CIFAR10, "c32a1d4ab5d03f1284b67883e8d87530", "c32a1d4ab5d03f1284b67883e8d87530"),
}


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
        raise DatasetError(folder, "the data folder is not a folder", HOME_REMEDY)
    return folder


def as_path(path: str | os.PathLike[str]) -> Path:
    """Return a path with a leading ~ expanded where possible (Path.expanduser raises for unknown users)."""
    return Path(os.path.expanduser(path))


def find_or_download(home: Path, source: str, names: Sequence[str], download_if_missing: bool) -> Path:
    """Return the first of `names` found in the data folder or its sub-folder `source`; if none is, download the first.

    pooch verifies the checksum of a download and discards a wrong one.
    """
    for path in (folder / name for folder in (home, home / source) for name in names):
        if os.path.exists(path):
            return path
    folder, by_hand = home / source, f"or put {names[0]} into {home / source} yourself"
    if not download_if_missing:
        what = f"none of {', '.join(names)} is in this folder or its sub-folder {source}"
        raise DatasetError(home, what, HOME_REMEDY)
    url, checksum, _ = FILES[names[0]]
    pooch = require(folder, "pooch", f"{names[0]} was not found, and downloading it", extra="data")
    bar = sys.stderr is not None and sys.stderr.isatty()
    try:
        return Path(pooch.retrieve(url + names[0], f"md5:{checksum}", fname=names[0], path=folder, progressbar=bar))
    except (OSError, ValueError) as error:
        raise DatasetError(url + names[0], f"cannot be downloaded ({cause(error)})", f"try again, {by_hand}") from error


def warn_if_changed(path: Path, name: str, content: bytes | BufferedReader) -> None:
    """Warn if the content of a local file is not that of the published file `name`."""
    md5 = partial(hashlib.md5, usedforsecurity=False)
    digest = md5(content) if isinstance(content, bytes) else hashlib.file_digest(content, md5)
    found, published = digest.hexdigest(), FILES[name][2]
    if found != published:
        warnings.warn(
            f"{shown(path)} is not the published file: its MD5 checksum is {found}, expected {published}. Results "
            f"will differ from published ones; if this is not intended, download it again.",
            UserWarning,
            stacklevel=2,
        )
