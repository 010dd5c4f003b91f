"""Location of data files: the data folder and the search in it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from rkdl.datasets._errors import DatasetError

__all__ = ["HOME_REMEDY", "as_path", "find_file", "get_data_home"]

HOME_REMEDY = "give its folder as data_home= or in the environment variable RKDL_DATA"


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
    """Return a path with a leading ~ expanded where possible."""
    # Path.expanduser raises for unknown users, and Path.exists for names that are too long.
    return Path(os.path.expanduser(path))


def find_file(folders: Iterable[Path], names: Iterable[str]) -> Path | None:
    """Return the first of `names` found in one of `folders`, or None."""
    names = tuple(names)
    for folder in folders:
        for name in names:
            path = folder / name
            if os.path.exists(path):
                return path
    return None
