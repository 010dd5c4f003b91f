"""IDX files, the format of MNIST: a big-endian header and raw bytes, often gzipped."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from rkdl._persistence.files import open_regular
from rkdl.datasets._errors import DatasetError, cause
from rkdl.datasets._published import warn_if_changed

__all__ = ["read_idx"]

_GZIP_MAGIC = b"\x1f\x8b"
_UNSIGNED_BYTE = 0x08
_REMEDY = "delete it and fetch it again"


def read_idx(path: Path, item_shape: tuple[int, ...], max_items: int, name: str) -> npt.NDArray[np.uint8]:
    """Read an IDX file of unsigned bytes, gzipped or not, whatever its suffix.

    No more is decompressed than the header declares, and the header may declare no more than expected. A file that
    differs from the published one raises a warning.

    Parameters
    ----------
    path : pathlib.Path
        The file.
    item_shape : tuple of int
        The shape of an item: (28, 28) for images, () for labels.
    max_items : int
        Largest number of items allowed.
    name : str
        Name of the published file, such as "train-images".

    Returns
    -------
    array : ndarray of uint8 of shape (n_items, *item_shape)
        Read-only, because it shares the memory of the bytes read.
    """
    try:
        with open_regular(path) as file:
            # Browsers may decompress downloads but keep the .gz suffix, so check the content.
            is_packed = file.read(2) == _GZIP_MAGIC
            file.seek(0)
            stream: Any = gzip.GzipFile(fileobj=file) if is_packed else file
            return _read(path, stream, item_shape, max_items, name)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DatasetError(path, f"the gzip file is damaged or truncated ({cause(error)})", _REMEDY) from error
    except OSError as error:
        raise DatasetError(path, f"cannot be read ({cause(error)})") from error


def _read(
    path: Path, stream: IO[bytes], item_shape: tuple[int, ...], max_items: int, name: str
) -> npt.NDArray[np.uint8]:
    n_dims = 1 + len(item_shape)
    header_size = 4 + 4 * n_dims
    expected_magic = (_UNSIGNED_BYTE << 8) | n_dims
    header = stream.read(header_size)
    if len(header) < header_size:
        raise DatasetError(path, f"{len(header)} bytes are too few for an IDX header of {header_size}", _REMEDY)
    magic, *shape = struct.unpack(f">{1 + n_dims}I", header)
    if magic != expected_magic:
        raise DatasetError(
            path,
            f"the IDX magic number is 0x{magic:08x}, not 0x{expected_magic:08x} ({n_dims}-D unsigned bytes)",
            _REMEDY,
        )
    if tuple(shape[1:]) != item_shape:
        found, wanted = (" x ".join(map(str, lengths)) for lengths in (shape[1:], item_shape))
        raise DatasetError(path, f"its images are {found}, not {wanted}", "use the published files")
    if shape[0] > max_items:
        raise DatasetError(path, f"the IDX header declares {shape[0]} items, of at most {max_items}", _REMEDY)
    n_values = math.prod(shape)
    # One byte more than declared, so that the end of the file and its checksum are read.
    content = stream.read(n_values + 1)
    if len(content) != n_values:
        size = " x ".join(str(length) for length in shape)
        more = " or more" if len(content) > n_values else ""
        raise DatasetError(path, f"the IDX header declares {size} bytes but {len(content)}{more} follow", _REMEDY)
    warn_if_changed(path, name, header, content)
    return np.frombuffer(content, dtype=np.uint8).reshape(shape)
