"""IDX files, the format of MNIST: a big-endian header and raw bytes, often gzipped."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt

from rkdl.datasets._errors import DatasetError, cause

__all__ = ["read_idx"]

_GZIP_MAGIC = b"\x1f\x8b"
_UNSIGNED_BYTE = 0x08
_REMEDY = "delete it and fetch it again"


def read_idx(path: Path, n_dims: int) -> npt.NDArray[np.uint8]:
    """Read an IDX file of unsigned bytes, gzipped or not, whatever its name says.

    Parameters
    ----------
    path : pathlib.Path
        The file.
    n_dims : int
        The number of axes it must have: 3 for images, 1 for labels.

    Returns
    -------
    array : ndarray of uint8 with `n_dims` axes
        Read-only, as it shares the memory of the bytes read.
    """
    content = _read_bytes(path)
    header_size = 4 + 4 * n_dims
    expected_magic = (_UNSIGNED_BYTE << 8) | n_dims
    if len(content) < header_size:
        raise DatasetError(path, f"{len(content)} bytes are too few for an IDX header of {header_size}", _REMEDY)
    magic, *shape = struct.unpack(f">{1 + n_dims}I", content[:header_size])
    if magic != expected_magic:
        raise DatasetError(
            path,
            f"the IDX magic number is 0x{magic:08x}, not 0x{expected_magic:08x} ({n_dims}-D unsigned bytes)",
            _REMEDY,
        )
    n_values, n_found = math.prod(shape), len(content) - header_size
    if n_values != n_found:
        size = " x ".join(str(length) for length in shape)
        raise DatasetError(path, f"the IDX header promises {size} bytes but {n_found} follow", _REMEDY)
    return np.frombuffer(content, dtype=np.uint8, offset=header_size).reshape(shape)


def _read_bytes(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise DatasetError(path, f"cannot be read ({cause(error)})") from error
    # Browsers unpack downloads but keep the .gz name, so the content decides.
    if not content.startswith(_GZIP_MAGIC):
        return content
    try:
        return gzip.decompress(content)
    except (EOFError, OSError, zlib.error) as error:
        raise DatasetError(path, f"the gzip file is broken or cut short ({cause(error)})", _REMEDY) from error
