"""Files that are written atomically and run no code when read: arrays and a JSON header in an .npz archive."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib.format import read_array

from rkdl._utils.text import shown

# Versions of the layouts of our files; raise one when its layout changes. Others are refused.
FORMATS = {"estimator": 9, "checkpoint": 8}
_HEADER = "header"
# Parsed JSON takes up to fifty times its length in memory, so the header has a limit of its own.
_LONGEST_HEADER = 16 << 20
# A temporary file that was not written to for this many seconds was left by a process that was killed.
_LEFTOVER_SECONDS = 3600.0


def check_writable(path: Path) -> None:
    """Raise if no file can be written at a path, before there is anything to write."""
    check_place(path)
    # Without opening a file, whose descriptor an interrupt could leave behind.
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise PermissionError(f"'{shown(path)}' cannot be written: give another path.")


def check_place(path: Path) -> None:
    """Refuse a path whose folder is missing, or where there is something other than a regular file."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"The folder of '{shown(path)}' does not exist: make it first.")
    with suppress(FileNotFoundError):
        _check_regular(os.stat(path), path)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A binary stream that replaces a file atomically, once all of it is on disk.

    Until then the content is in the same folder under a unique name, which is removed if writing fails. Of several
    writers the last one wins. A file that is replaced keeps its mode; a link is replaced, not followed; anything but a
    regular file is refused.
    """
    check_place(path)
    mode = None
    with suppress(OSError):
        mode = os.stat(path).st_mode & 0o777
    # Named before there is a file, so that an interrupt leaves none.
    part = _part_of(path)
    # Not readable by more users than the file that it replaces; a new file gets the mode of the umask.
    create = partial(os.open, mode=0o666 if mode is None else 0o600)
    try:
        # "x": a file that exists is an error, and a link is not followed.
        with open(part, "xb", opener=create) as stream:
            if mode is not None:
                # Some file systems do not support modes.
                with suppress(OSError):
                    os.chmod(part, mode)
            # The clock of the file system, which may be another machine's.
            _remove_leftovers(part, os.fstat(stream.fileno()).st_mtime - _LEFTOVER_SECONDS)
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _part_of(path: Path) -> Path:
    """A new name for a temporary file: short, with a prefix that identifies the path."""
    return path.parent / f".rkdl-{hashlib.sha256(os.fsencode(path.name)).hexdigest()[:16]}-{secrets.token_hex(8)}.part"


def _remove_leftovers(part: Path, oldest: float) -> None:
    """Remove temporary files for the same path that were last written to before a time."""
    for other in part.parent.glob(f"{part.name.rpartition('-')[0]}-*.part"):
        with suppress(OSError):
            if other.lstat().st_mtime < oldest:
                other.unlink()


def write_file(path: str | os.PathLike, kind: str, header: dict, arrays: dict[str, np.ndarray]) -> None:
    """Write arrays of numbers or text and a JSON header to a file of `kind`, atomically."""
    assert all(array.dtype != object for array in arrays.values())
    text = json.dumps({"rkdl": kind, "format": FORMATS[kind], **header}).encode()
    if len(text) > _LONGEST_HEADER:
        raise ValueError(
            f"The settings and names of this {kind} take {len(text) / 2**20:.0f} MiB, more than the "
            f"{_LONGEST_HEADER >> 20} MiB that a file holds of them: shorten the names of the features."
        )
    members: dict[str, Any] = {_HEADER: np.frombuffer(text, dtype=np.uint8), **arrays}
    with replacing(Path(path)) as stream:
        try:
            np.savez(stream, **members)
        except ValueError as error:
            # zipfile refuses to close an archive in the middle of which it was interrupted.
            if isinstance(error.__context__, KeyboardInterrupt):
                raise error.__context__ from None
            raise


def read_file(path: str | os.PathLike, kind: str, remedy: str) -> tuple[dict, dict[str, np.ndarray]]:
    """Read the header and arrays of a file of `kind`; anything else is refused, with a message that ends in `remedy`.

    Nothing is decompressed or read twice: memory is bounded by the file's size.
    """
    name = shown(Path(path))
    # Before it is opened: a pipe without a writer would block.
    _check_regular(os.stat(path), path)
    with open(path, "rb") as stream:
        try:
            arrays = _read_arrays(stream)
            text = arrays.pop(_HEADER)
            if text.dtype != np.uint8 or text.nbytes > _LONGEST_HEADER:
                raise ValueError("its header is not text")
            header = json.loads(text.tobytes().decode())
            found, version = header.pop("rkdl"), header.pop("format")
        except Exception as error:
            # NumPy and zipfile raise nearly anything on damaged bytes, with advice that does not help.
            raise ValueError(f"{name} is truncated or not a file of rkdl ({shown(error)}): {remedy}") from error
    if found != kind:
        raise ValueError(f"{name} is not a file of rkdl of the kind {kind!r} but {str(found)[:40]!r}: {remedy}")
    if version != FORMATS[kind]:
        which, advice = "a later", "Update rkdl"
        if isinstance(version, int) and version < FORMATS[kind]:
            which, advice = "an earlier", "Fit again with this one"
        raise ValueError(
            f"{name} has format {shown(version)[:20]} and this version of rkdl reads format {FORMATS[kind]}: it was "
            f"written by {which} version. {advice}, or {remedy}"
        )
    return header, arrays


def _read_arrays(stream: IO[bytes]) -> dict[str, np.ndarray]:
    """All arrays of an .npz file, which must be plain and not compressed."""
    found: dict[str, np.ndarray] = {}
    with zipfile.ZipFile(stream) as archive:
        members = archive.infolist()
        if any(member.compress_type != zipfile.ZIP_STORED for member in members):
            raise ValueError("its arrays are compressed")
        if sum(member.file_size for member in members) > os.fstat(stream.fileno()).st_size:
            raise ValueError("its arrays overlap")
        for member in members:
            with archive.open(member) as part:
                array = read_array(part, allow_pickle=False)
                # To the end: there the checksum is compared.
                if part.read(1):
                    raise ValueError("more bytes follow an array")
            # No records, and no empty texts, any number of which takes no bytes.
            if array.dtype.kind not in "biufcSUMm" or not array.dtype.itemsize:
                raise ValueError(f"its arrays hold {array.dtype}, not plain numbers or text")
            if found.setdefault(member.filename.removesuffix(".npy"), array) is not array:
                raise ValueError("it holds an array twice")
    return found


def _check_regular(found: os.stat_result, path: str | os.PathLike) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, f"'{shown(path)}' is a folder: give the path of a file.")
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, f"'{shown(path)}' is not a regular file: give another path.")
