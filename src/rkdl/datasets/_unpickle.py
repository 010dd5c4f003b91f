"""Reading pickles of NumPy arrays from files that are not trusted."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["load_arrays_pickle"]


def _encode(text: str, encoding: str) -> bytes:
    # Python 3 writes bytes at protocol 2 as text in latin1; no other codec has business here.
    if encoding not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError(f"the codec {encoding!r} is not allowed")
    return text.encode("latin1")


def _dtype(code: str, align: int = 0, copy: int = 0) -> np.dtype[Any]:
    # Python 2 wrote the flags as integers, for which NumPy 2.4 warns.
    dtype = np.dtype(code, align=bool(align), copy=bool(copy))
    if dtype.hasobject:
        raise pickle.UnpicklingError("arrays of Python objects are not allowed")
    return dtype


# NumPy's own helpers, taken from an array because their module has moved between versions.
_ARRAY = np.zeros(1)
_RECONSTRUCT: Callable[..., Any] = _ARRAY.__reduce__()[0]  # type: ignore[assignment]
_FROM_BUFFER: Callable[..., Any] = _ARRAY.__reduce_ex__(5)[0]  # type: ignore[assignment]

_ALLOWED: dict[tuple[str, str], Any] = {("numpy", "ndarray"): np.ndarray, ("numpy", "dtype"): _dtype}
_ALLOWED["_codecs", "encode"] = _encode
for _core in ("numpy.core", "numpy._core"):
    _ALLOWED[f"{_core}.multiarray", "_reconstruct"] = _RECONSTRUCT
    _ALLOWED[f"{_core}.numeric", "_frombuffer"] = _FROM_BUFFER


class _ArraysUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"{module}.{name} is not allowed in a data file") from None


def load_arrays_pickle(content: bytes) -> Any:
    """Load a pickle that holds nothing but plain containers and NumPy arrays.

    Parameters
    ----------
    content : bytes
        The pickle, of Python 2 or 3. Text of Python 2 is read as latin1.

    Returns
    -------
    value : object
        What was stored.

    Raises
    ------
    pickle.UnpicklingError
        If it asks for any other class or function, which is then neither imported nor called. A pickle that
        is broken may raise almost any other exception.
    """
    return _ArraysUnpickler(io.BytesIO(content), encoding="latin1").load()
