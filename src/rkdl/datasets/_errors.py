"""The exception raised by the loaders, and what they share."""

from __future__ import annotations

import importlib
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from numbers import Integral
from pathlib import Path
from types import ModuleType


class DatasetError(ValueError):
    """Raised when a data set is missing, damaged, or cannot be downloaded.

    The message is one line that names the file or folder, the problem, and a remedy.

    Parameters
    ----------
    where : path-like or str
        The file, folder or URL concerned.
    what : str
        The problem.
    remedy : str, default=""
        What the user can do.

    Examples
    --------
    >>> from rkdl.datasets import DatasetError
    >>> str(DatasetError("digits.npy", "the file is empty", "save it again"))
    'digits.npy: the file is empty; save it again'
    """

    def __init__(self, where: str | os.PathLike[str], what: str, remedy: str = "") -> None:
        # All three are in `args`, so that the exception can be pickled between processes.
        super().__init__(os.fspath(where), what, remedy)

    def __str__(self) -> str:
        where, what, remedy = self.args
        return " ".join(f"{where}: {what}{'; ' if remedy else ''}{remedy}".split())


def as_path(path: str | os.PathLike[str]) -> Path:
    """Return a path with a leading ~ expanded where possible (Path.expanduser raises for unknown users)."""
    return Path(os.path.expanduser(path))


@contextmanager
def reading(path: str | os.PathLike[str], kind: str, remedy: str = "save it again") -> Iterator[None]:
    """Turn every way in which a file cannot be read into one DatasetError that names it.

    Libraries raise many kinds of exceptions on damaged files. Pipes are refused before they are opened, which would
    block. Only Zarr arrays are folders.
    """
    if not os.path.isfile(path) and not (os.path.isdir(path) and os.fspath(path).lower().endswith(".zarr")):
        what = "this is not a regular file" if os.path.exists(path) else "there is no such file"
        raise DatasetError(path, what, "check the path")
    try:
        yield
    except (DatasetError, Warning):
        raise
    except Exception as error:
        raise DatasetError(path, f"cannot be read as {kind} ({cause(error)})", remedy) from error


def require(path: str | os.PathLike[str], module: str, purpose: str, extra: str = "files") -> ModuleType:
    """Import an optional library, or say which extra installs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        library = {"PIL": "Pillow"}.get(module.split(".")[0], module.split(".")[0])
        raise DatasetError(path, f"{purpose} needs {library}", f'pip install "rkdl[{extra}]"') from error


def cause(error: BaseException) -> str:
    """Format an exception and its message for use in a longer message."""
    text = " ".join(str(error).split()).rstrip(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def check_choices(subset: object, subsets: Collection[str], label: object) -> None:
    """Refuse a subset that is none of `subsets`, and a label that is neither None nor one of ten classes."""
    if subset not in subsets:
        raise ValueError(f"subset={subset!r} is not valid; choose one of {', '.join(map(repr, subsets))}")
    is_class = not isinstance(label, bool) and isinstance(label, Integral) and label in range(10)
    if label is not None and not is_class:
        raise ValueError(f"label={label!r} is not valid; use an integer from 0 to 9, or None for all")
