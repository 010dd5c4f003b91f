"""Reader for numeric variables of MATLAB .mat files of versions 5 to 7 that checks every length.

The format is a sequence of elements, each with a tag for its type and length; a matrix is an element made of others:
flags, dimensions, name, numbers. SciPy's reader accesses invalid memory if types or lengths are wrong.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

__all__ = ["read_mat5"]

_MATRIX, _COMPRESSED = 14, 15
_INT32, _UINT32 = 5, 6
_TYPES = {
    **{1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4"},
    **{7: "f4", 9: "f8", 12: "i8", 13: "u8"},
}
_SPARSE = 5
# Sparse, double, single, and the integers; not text, cells, structures, objects and functions.
_NUMERIC_CLASSES = range(_SPARSE, 16)
_COMPLEX = 0x0800
_HEADER_BYTES = 128
# Bytes of a matrix element up to and including its class.
_BYTES_TO_CLASS = 20


class _Element(NamedTuple):
    kind: int
    content: memoryview


def read_mat5(content: bytes, max_bytes: int) -> dict[str, npt.NDArray[Any]]:
    """Read all numeric variables; variables of other kinds are skipped.

    Parameters
    ----------
    content : bytes
        The file.
    max_bytes : int
        Limit on the total size of decompressed variables, in bytes.

    Returns
    -------
    dict of str to ndarray
        Variables by name, with MATLAB's order of axes and their stored dtypes; sparse ones as dense arrays.
    """
    order = {b"IM": "<", b"MI": ">"}.get(content[126:128])
    if order is None:
        raise ValueError("its header does not specify the byte order")
    reader = _Reader(order, max_bytes)
    variables = {}
    for element in reader.elements(memoryview(content)[_HEADER_BYTES:]):
        found = reader.variable(element)
        if found is not None and not found[0].startswith("__"):
            variables[found[0]] = found[1]
    return variables


class _Reader:
    """Reads elements in one byte order, within a limit on the memory it allocates."""

    def __init__(self, order: str, max_bytes: int) -> None:
        self.order = order
        self.left = max_bytes

    def elements(self, rest: memoryview) -> Iterator[_Element]:
        """Iterate over elements, whose lengths are given by their tags."""
        while len(rest) >= 8:
            kind, size = self.integers(rest[:8])
            if kind >> 16:
                # Up to four bytes are stored in the tag itself.
                kind, size, begin, end = kind & 0xFFFF, kind >> 16, 4, 8
            else:
                begin, end = 8, 8 + size + (0 if kind == _COMPRESSED else -size % 8)
            if begin + size > len(rest) or (begin == 4 and size > 4):
                raise ValueError(f"an element of {size} bytes where {len(rest) - begin} follow")
            yield _Element(kind, rest[begin : begin + size])
            rest = rest[end:]
        if len(rest):
            raise ValueError(f"{len(rest)} bytes are too few for an element")

    def integers(self, content: memoryview) -> list[int]:
        return np.frombuffer(content, dtype=f"{self.order}u4").tolist()

    def spend(self, size: int) -> None:
        """Count allocated bytes against the limit."""
        self.left -= size
        if self.left < 0:
            raise ValueError("its variables take more memory than there is")

    def variable(self, element: _Element) -> tuple[str, npt.NDArray[Any]] | None:
        """Name and values of a numeric matrix; None for anything else."""
        if element.kind == _COMPRESSED:
            unpacked = self._unpack(element.content)
            if unpacked is None:
                return None
            element = unpacked
        if element.kind != _MATRIX or not self._is_numeric(element.content[:_BYTES_TO_CLASS]):
            return None
        flags, axes, name, *data = self.elements(element.content)
        bits = self.integers(flags.content)[0]
        shape = self._numbers(axes, (_INT32, _UINT32)).tolist()
        if len(shape) < 2 or any(length < 0 for length in shape):
            raise ValueError(f"a variable cannot have the shape {shape}")
        text = bytes(name.content).decode("latin1")
        if bits & 0xFF == _SPARSE:
            return text, self._sparse(shape, data, bool(bits & _COMPLEX))
        values = self._values(data, bool(bits & _COMPLEX))
        if math.prod(shape) != values.size:
            raise ValueError(f"{values.size} numbers for the shape {shape}")
        return text, values.reshape(shape, order="F")

    def _unpack(self, packed: memoryview) -> _Element | None:
        """Decompress an element; None, without decompressing it, if it is not numeric."""
        stream = zlib.decompressobj()
        head = stream.decompress(packed, 8 + _BYTES_TO_CLASS)
        kind, size = self.integers(memoryview(head)[:8])
        if kind != _MATRIX or not self._is_numeric(memoryview(head)[8:]):
            return None
        self.spend(size)
        content = head[8:] + stream.decompress(stream.unconsumed_tail, max(1, size - len(head) + 8))
        # Read to the end, where the checksum is.
        if len(content) != size or stream.decompress(stream.unconsumed_tail, 1) or not stream.eof:
            raise ValueError(f"a compressed variable of {size} bytes has another size")
        return _Element(kind, memoryview(content))

    def _is_numeric(self, begin: memoryview) -> bool:
        """Whether a matrix with this beginning is numeric."""
        kind, size, bits = self.integers(begin[:12]) if len(begin) >= 12 else (0, 0, 0)
        return (kind, size) == (_UINT32, 8) and bits & 0xFF in _NUMERIC_CLASSES

    def _numbers(self, element: _Element, kinds: Any = tuple(_TYPES)) -> npt.NDArray[Any]:
        if element.kind not in kinds:
            raise ValueError(f"numbers of the unknown type {element.kind}")
        values = np.frombuffer(element.content, dtype=self.order + _TYPES[element.kind])
        return values.astype(values.dtype.newbyteorder("="))

    def _values(self, data: list[_Element], is_complex: bool) -> npt.NDArray[Any]:
        parts = [self._numbers(element) for element in data[: 2 if is_complex else 1]]
        return parts[0] + 1j * parts[1] if is_complex else parts[0]

    def _sparse(self, shape: list[int], data: list[_Element], is_complex: bool) -> npt.NDArray[Any]:
        rows, ends = (self._numbers(element, (_INT32, _UINT32)) for element in data[:2])
        values = self._values(data[2:], is_complex)
        if len(shape) != 2 or len(ends) != shape[1] + 1:
            raise ValueError("a sparse variable does not have one end per column")
        count = int(ends[-1])
        self.spend(8 * math.prod(shape))
        matrix = sparse.csc_array((values[:count], rows[:count], ends), shape=tuple(shape))
        matrix.check_format(full_check=True)
        return matrix.toarray()
