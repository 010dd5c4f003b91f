"""Files that are written atomically and run no code when read: arrays and a JSON header in an .npz archive."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from rkdl._persistence.npz import read_npz
from rkdl._utils.text import shown

if sys.platform != "win32":
    import fcntl

# Version of the layout of saved estimators and checkpoints; raise it when that changes. Others are refused.
FORMAT = 5
#: Prefix of the names of our temporary files and locks.
OWN_PREFIX = ".rkdl-"
_HEADER = "header"
# Parsed JSON takes up to fifty times its length in memory, so the header has a limit of its own.
_LONGEST_HEADER = 16 << 20
# Flags that Windows lacks; exclusive creation does not follow links there either.
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)
_BINARY = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)


class BusyError(OSError):
    """Another process or thread holds the lock."""


def open_regular(path: str | os.PathLike) -> IO[bytes]:
    """Open a regular file for reading; pipes, devices and folders are refused immediately."""
    # Without O_NONBLOCK, opening a pipe would block until it has a writer.
    descriptor = os.open(path, os.O_RDONLY | _NO_WAIT | _BINARY)
    try:
        _check_regular(os.fstat(descriptor), path)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def check_writable(path: Path) -> None:
    """Raise if no file can be written at a path, before there is anything to write."""
    _check_place(path)
    try:
        descriptor, part = _open_part(path)
        try:
            if sys.platform != "win32":
                # While it is locked, so that nobody takes it for a leftover.
                part.unlink()
        finally:
            os.close(descriptor)
        if sys.platform == "win32":
            part.unlink()
    except OSError as error:
        raise type(error)(f"'{shown(path)}' cannot be written ({error}): give another path.") from error


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A binary stream that replaces a file atomically, once all of it is on disk.

    Until then the content is in the same folder under a unique name, which is removed if writing fails. A file that is
    replaced keeps its mode; a link is replaced, not followed; anything but a regular file is refused.
    """
    _check_place(path)
    _remove_leftovers(path)
    mode = None
    with suppress(OSError):
        mode = os.stat(path).st_mode & 0o777
    # Not readable by more users than the file that it replaces; a new file gets the mode of the umask.
    descriptor, part = _open_part(path, 0o666 if mode is None else 0o600)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            if mode is not None:
                # Some file systems do not support modes.
                with suppress(OSError):
                    os.chmod(part, mode)
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
            if sys.platform != "win32":
                # While it is locked: an unlocked one is taken for a leftover.
                os.replace(part, path)
        if sys.platform == "win32":
            os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    _flush_folder(path.parent)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the exclusive lock of a path; raises BusyError if another process or thread holds it.

    The lock is a file in the same folder, locked by the operating system while this process lives and removed
    afterwards. Where the system has no such locks, nothing is locked.
    """
    _check_place(path)
    if sys.platform == "win32":
        yield
        return
    name = path.parent / f"{_stem(path)}.lock"
    descriptor = _take_lock(name)
    _held.add(descriptor)
    try:
        yield
    finally:
        # A child forked in the meantime has closed it already.
        if descriptor in _held:
            _held.discard(descriptor)
            # Removed while it is locked, so that whoever has opened it since sees that its name is gone.
            name.unlink(missing_ok=True)
            os.close(descriptor)


def write_file(path: str | os.PathLike, kind: str, header: dict, arrays: dict[str, np.ndarray]) -> None:
    """Write arrays of numbers or text and a JSON header to a file of `kind`, atomically."""
    assert all(array.dtype != object for array in arrays.values())
    text = json.dumps({"rkdl": kind, "format": FORMAT, "arrays": _shapes(arrays), **header}).encode()
    if len(text) > _LONGEST_HEADER:
        raise ValueError(
            f"The settings and names of this {kind} take {len(text) / 2**20:.0f} MiB, more than the "
            f"{_LONGEST_HEADER >> 20} MiB that a file holds of them: shorten the names of the features."
        )
    members: dict[str, Any] = {_HEADER: np.frombuffer(text, dtype=np.uint8), **arrays}
    with replacing(Path(path)) as stream:
        np.savez(stream, **members)


def read_file(path: str | os.PathLike, kind: str, remedy: str) -> tuple[dict, dict[str, np.ndarray]]:
    """Read the header and arrays of a file of `kind`; anything else is refused, with a message that ends in `remedy`.

    Only arrays that the header lists are read, and nothing is decompressed: memory is bounded by the file's size.
    """
    path = Path(path)
    name = shown(path)
    with open_regular(path) as stream:
        try:
            size = os.fstat(stream.fileno()).st_size
            (text,) = read_npz(stream, [_HEADER], size, is_packed=False).values()
            if text.dtype != np.uint8 or text.nbytes > _LONGEST_HEADER:
                raise ValueError("it has no header")
            header = json.loads(text.tobytes().decode())
            _check_kind(name, header, kind, remedy)
            promised = header.pop("arrays", None)
            if not isinstance(promised, dict):
                raise ValueError("it has no list of arrays")
            arrays = read_npz(stream, None, size, is_packed=False, known=[_HEADER, *promised])
        except _KindError:
            raise
        except Exception as error:
            # NumPy and zipfile raise nearly anything on damaged bytes, with advice that does not help.
            raise ValueError(f"{name} is truncated or not a file of rkdl ({shown(error)}): {remedy}") from error
    del arrays[_HEADER]
    if promised != _shapes(arrays):
        raise ValueError(f"{name} was changed: its arrays are not those that were written. To fix it, {remedy}")
    return header, arrays


class _KindError(ValueError):
    """An intact file of rkdl of another kind or format."""


def _check_kind(name: str, header: Any, kind: str, remedy: str) -> None:
    found = header.get("rkdl", "something else") if isinstance(header, dict) else "something else"
    if found != kind:
        raise _KindError(f"{name} is not a file of rkdl of the kind {kind!r} but {str(found)[:40]!r}: {remedy}")
    version = header.get("format")
    if version != FORMAT:
        if isinstance(version, int) and version < FORMAT:
            advice = "it was written by an earlier version. Fit again with this one"
        else:
            advice = "it was written by a later version. Update rkdl"
        raise _KindError(
            f"{name} has format {str(version)[:20]} and this version of rkdl reads format {FORMAT}: {advice}, or "
            f"{remedy}"
        )


def _shapes(arrays: dict[str, np.ndarray]) -> dict[str, list]:
    return {name: [array.dtype.str, *array.shape] for name, array in sorted(arrays.items())}


def _check_regular(found: os.stat_result, path: str | os.PathLike) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, f"'{shown(path)}' is a folder: give the path of a file.")
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, f"'{shown(path)}' is not a regular file: give another path.")


def _check_place(path: Path) -> None:
    """Refuse a path whose folder is missing, or where there is something other than a regular file."""
    if not path.parent.is_dir():
        raise FileNotFoundError(f"The folder of '{shown(path)}' does not exist: make it first.")
    with suppress(FileNotFoundError):
        _check_regular(os.stat(path), path)


def _stem(path: Path) -> str:
    """Prefix of the names of our own files for `path`: short, and different for every name."""
    return f"{OWN_PREFIX}{hashlib.sha256(os.fsencode(path.name)).hexdigest()[:16]}"


def _open_part(path: Path, mode: int = 0o600) -> tuple[int, Path]:
    """A new file in the folder of `path`, opened for writing and locked."""
    while True:
        part = path.parent / f"{_stem(path)}-{secrets.token_hex(8)}.part"
        try:
            descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_FOLLOW | _BINARY, mode)
        except FileExistsError:
            continue
        if sys.platform == "win32":
            return descriptor, part
        if _try_lock(descriptor) and _is_still(part, descriptor):
            return descriptor, part
        # Taken for a leftover before we locked it: another process has locked or removed it.
        part.unlink(missing_ok=True)
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    """Lock a file; False if it is locked already. On network file systems without locks, go on without one."""
    if sys.platform != "win32":
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            return not isinstance(error, BlockingIOError)
    return True


def _remove_leftovers(path: Path) -> None:
    """Remove temporary files of killed processes: those that nobody has locked."""
    if sys.platform == "win32":
        return
    begin = f"{_stem(path)}-"
    with os.scandir(path.parent) as entries:
        names = [entry.name for entry in entries if entry.name.startswith(begin) and entry.name.endswith(".part")]
    for name in names:
        with suppress(OSError):
            descriptor = os.open(path.parent / name, os.O_RDONLY | _NO_FOLLOW | _NO_WAIT | _BINARY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.unlink(path.parent / name)
            finally:
                os.close(descriptor)


def _take_lock(name: Path) -> int:
    """The descriptor of a lock file, locked and still under its name."""
    while True:
        descriptor = os.open(name, os.O_RDWR | os.O_CREAT | _NO_FOLLOW | _NO_WAIT | _BINARY, 0o666)
        if not _try_lock(descriptor):
            os.close(descriptor)
            raise BusyError(errno.EBUSY, "in use")
        if _is_still(name, descriptor):
            return descriptor
        # Its holder removed it after we opened it and before we locked it.
        os.close(descriptor)


def _is_still(name: Path, descriptor: int) -> bool:
    """Whether a name refers to the open file."""
    try:
        return os.path.samestat(os.stat(name, follow_symlinks=False), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _flush_folder(folder: Path) -> None:
    """Flush a folder to disk: a new name is durable only then."""
    if hasattr(os, "O_DIRECTORY"):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


_held: set[int] = set()


def _close_in_child() -> None:
    """Close the locks in a forked child, which would hold them as long as it lives."""
    for descriptor in _held:
        with suppress(OSError):
            os.close(descriptor)
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)
