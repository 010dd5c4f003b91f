"""Files that are whole or not there, and that run nothing when they are read: arrays and a JSON header in an .npz."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

FORMAT = 1
_HEADER = "header"


def check_writable(path: Path) -> None:
    """Refuse a place where no file can be written, before there is anything to write."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"The folder of {str(path)!r} does not exist: make it first.")
    part = _part(path)
    try:
        part.open("wb").close()
        part.unlink()
    except OSError as error:
        raise type(error)(f"{str(path)!r} cannot be written ({error}): give another path.") from error


def _part(path: Path) -> Path:
    """Where a file is until it is whole."""
    return path.with_name(path.name + ".part")


def write_file(path: str | os.PathLike, kind: str, header: dict, arrays: dict[str, np.ndarray]) -> None:
    """Write arrays and a header so that `path` holds either what it held before or all of the new.

    Parameters
    ----------
    path : path
        Where.
    kind : str
        What the file is: "checkpoint" or "estimator".
    header : dict
        Whatever JSON holds.
    arrays : dict of str to ndarray
        Numbers, not objects.
    """
    path = Path(path)
    assert all(array.dtype != object for array in arrays.values())
    if not path.parent.is_dir():
        raise FileNotFoundError(f"The folder of {str(path)!r} does not exist: make it first.")
    text = json.dumps({"rkdl": kind, "format": FORMAT, "arrays": _shapes(arrays), **header})
    part = _part(path)
    with open(part, "wb") as file:
        members: dict[str, Any] = {_HEADER: np.frombuffer(text.encode(), dtype=np.uint8), **arrays}
        np.savez(file, **members)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)
    if hasattr(os, "O_DIRECTORY"):
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            # The new name is safe only when the folder is.
            os.fsync(folder)
        finally:
            os.close(folder)


def read_file(path: str | os.PathLike, kind: str, remedy: str) -> tuple[dict, dict[str, np.ndarray]]:
    """Header and arrays of a file of `kind`; anything else is refused, with the remedy."""
    path = Path(path)
    try:
        stored = np.load(path, allow_pickle=False)
        if not isinstance(stored, np.lib.npyio.NpzFile):
            raise ValueError("it holds a single array")
        with stored:
            if _HEADER not in stored.files:
                raise ValueError("it has no header")
            arrays = {name: stored[name] for name in stored.files}
        header = json.loads(arrays.pop(_HEADER).tobytes().decode())
    except (FileNotFoundError, PermissionError, IsADirectoryError):
        raise
    except Exception as error:
        # Damaged bytes make NumPy and zipfile raise nearly anything, and give advice that is none.
        told = "it is no .npz file" if "pickle" in str(error) else error
        raise ValueError(f"{path} is truncated or not a file of rkdl ({told}): {remedy}") from error
    if not isinstance(header, dict) or header.get("rkdl") != kind:
        found = header.get("rkdl", "something else") if isinstance(header, dict) else "something else"
        raise ValueError(f"{path} is not a file of rkdl of the kind {kind!r} but {found!r}: {remedy}")
    if header.get("format") != FORMAT:
        raise ValueError(
            f"{path} has format {header.get('format')!r} and this version of rkdl reads format {FORMAT}: {remedy}"
        )
    if header.pop("arrays", None) != _shapes(arrays):
        raise ValueError(f"{path} was changed: its arrays are not those that were written. To mend it, {remedy}")
    return header, arrays


def _shapes(arrays: dict[str, np.ndarray]) -> dict[str, list]:
    return {name: [array.dtype.str, *array.shape] for name, array in sorted(arrays.items())}
