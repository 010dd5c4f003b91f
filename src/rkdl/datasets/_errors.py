"""The exception raised by the loaders, and what they share."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import numpy as np


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


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Refuse an option that is not among its valid values."""
    if value not in choices:
        valid = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name}={value!r} is not valid; choose one of {valid}")


def check_label(label: object) -> int | None:
    """Return the label of one of ten classes as an int, or None for all classes."""
    if label is None:
        return None
    if isinstance(label, bool) or not isinstance(label, int | np.integer) or not 0 <= label <= 9:
        raise ValueError(f"label={label!r} is not valid; use an integer from 0 to 9, or None for all")
    return int(label)
