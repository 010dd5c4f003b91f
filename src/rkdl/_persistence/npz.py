"""Reading .npz files with a limit on memory."""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterable, Sequence
from typing import IO

import numpy as np
from numpy.lib import format as npy

_HEADER_READERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def npz_names(stream: IO[bytes]) -> list[str]:
    """Names of the arrays in an .npz file."""
    with _open(stream) as archive:
        return list(_members(archive))


def read_npz(
    stream: IO[bytes],
    names: Iterable[str] | None,
    max_bytes: int,
    *,
    is_packed: bool = True,
    known: Sequence[str] | None = None,
) -> dict[str, np.ndarray]:
    """Read arrays of an .npz file; raises ValueError, or an error of zipfile, if it is malformed.

    All arrays are read unless `names` are given, `max_bytes` in all at most. Unless `is_packed`, members must not be
    compressed, so that they take no more memory than the file has bytes. With `known`, other names are refused.
    """
    with _open(stream) as archive:
        members = _members(archive)
        unknown = sorted(set(members) - set(members if known is None else known))
        if unknown:
            raise ValueError(f"it holds {unknown[0]!r}, which is not expected")
        wanted = list(members if names is None else names)
        missing = [name for name in wanted if name not in members]
        if missing:
            raise ValueError(f"it has no {missing[0]}")
        if not is_packed and any(members[name].compress_type != zipfile.ZIP_STORED for name in wanted):
            raise ValueError("its members are compressed")
        total = sum(members[name].file_size for name in wanted)
        if total > max_bytes:
            raise ValueError(f"its arrays take {total:,} bytes, more than the {max_bytes:,} there can be")
        found = {}
        for name in wanted:
            with archive.open(members[name]) as member:
                found[name] = read_npy(member, members[name].file_size)
        return found


def read_npy(stream: IO[bytes], n_bytes: int) -> np.ndarray:
    """The array of an .npy file of `n_bytes`, header included; raises ValueError if it is not exactly that long."""
    version = npy.read_magic(stream)
    if version not in _HEADER_READERS:
        raise ValueError(f"its arrays have version {version} of the format")
    shape, _, dtype = _HEADER_READERS[version](stream)
    # Numbers, text and times; no Python objects, no records. Any number of texts without letters takes no bytes.
    if dtype.kind not in "biufcSUMm" or dtype.hasobject or not dtype.itemsize:
        raise ValueError(f"its arrays hold {dtype}, not plain numbers or text")
    size = math.prod(shape) * dtype.itemsize
    if any(length < 0 for length in shape) or stream.tell() + size != n_bytes:
        raise ValueError(f"an array of shape {shape} takes {size:,} bytes, and {n_bytes - stream.tell():,} follow")
    stream.seek(0)
    array: np.ndarray = npy.read_array(stream, allow_pickle=False)
    return array


def _open(stream: IO[bytes]) -> zipfile.ZipFile:
    if not zipfile.is_zipfile(stream):
        raise ValueError("it is no .npz file")
    return zipfile.ZipFile(stream)


def _members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Members by the name of their array; duplicates are refused."""
    found: dict[str, zipfile.ZipInfo] = {}
    for member in archive.infolist():
        name = member.filename.removesuffix(".npy")
        if name in found:
            raise ValueError(f"it holds {name!r} twice")
        found[name] = member
    return found
