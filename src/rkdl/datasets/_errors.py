"""The exception raised by the loaders, and checks they share."""

from __future__ import annotations

import os

__all__ = ["DatasetError", "cause", "check_choice", "check_label"]


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


def cause(error: BaseException) -> str:
    """Format an exception and its message for use in a longer message."""
    text = " ".join(str(error).split()).rstrip(".")
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Refuse an option that is not among its valid values."""
    if value not in choices:
        valid = ", ".join(repr(choice) for choice in choices)
        raise ValueError(f"{name}={value!r} is not valid; choose one of {valid}")


def check_label(label: object, n_classes: int) -> int | None:
    """Return a class label as an int, or None for all classes."""
    if label is None:
        return None
    try:
        index = None if isinstance(label, bool) else label.__index__()  # type: ignore[attr-defined]
    except AttributeError:
        index = None
    if index is None or not 0 <= index < n_classes:
        raise ValueError(f"label={label!r} is not valid; use an integer from 0 to {n_classes - 1}, or None for all")
    return int(index)
