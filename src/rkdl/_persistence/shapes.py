"""Arrays from files, checked before anything computes with them: compiled code does not look at the ends of arrays."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeGuard

import numpy as np

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))
DOUBLE = (np.dtype(np.float64),)
INTEGERS = (np.dtype(np.int64), np.dtype(np.int32))


class Expected(NamedTuple):
    """What an array must be.

    Attributes
    ----------
    shape : str
        A letter per axis; axes with the same letter are equally long, in one array and across arrays.
    dtypes : tuple of dtype
        One of these, in the machine's byte order.
    is_optional : bool
        Whether the array may be missing.
    is_finite : bool
        Whether it must be; text cannot be.
    """

    shape: str
    dtypes: tuple[np.dtype, ...] = DOUBLE
    is_optional: bool = False
    is_finite: bool = True


class ArrayError(ValueError):
    """An array that is missing, or of another shape, dtype or content than it must have."""


def is_finite_number(value: Any) -> TypeGuard[int | float]:
    """Whether a value of JSON is a number that a float can hold: no NaN, no integer beyond all floats."""
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def check_arrays(
    arrays: Mapping[str, np.ndarray],
    expected: Mapping[str, Expected],
    sizes: Mapping[str, int],
    *,
    has_others: bool = False,
) -> dict[str, int]:
    """Check that all arrays are there, with the shapes and dtypes that belong together, and finite.

    Parameters
    ----------
    arrays : mapping of str to ndarray
        What was read.
    expected : mapping of str to Expected
        What each must be.
    sizes : mapping of str to int
        Lengths of axes that are known, by their letters.
    has_others : bool, default=False
        Whether there may be arrays that are not expected, which somebody else checks.

    Returns
    -------
    dict of str to int
        Lengths of all axes.
    """
    unknown = sorted(set(arrays) - set(expected))
    if unknown and not has_others:
        raise ArrayError(f"{unknown[0]} is there, which nothing asks for")
    found = dict(sizes)
    for name, wanted in expected.items():
        if name in arrays:
            _check_array(name, arrays[name], wanted, found)
        elif not wanted.is_optional:
            raise ArrayError(f"{name} is missing")
    return found


def _check_array(name: str, array: np.ndarray, wanted: Expected, sizes: dict[str, int]) -> None:
    """Check one array; axes of unknown length are added to `sizes`."""
    if not isinstance(array, np.ndarray) or array.dtype not in wanted.dtypes:
        kinds = " or ".join(dtype.name for dtype in wanted.dtypes)
        raise ArrayError(f"{name} is {getattr(array, 'dtype', type(array).__name__)}, expected {kinds}")
    if array.ndim == len(wanted.shape):
        for letter, length in zip(wanted.shape, array.shape, strict=True):
            sizes.setdefault(letter, length)
    shape = tuple(sizes.get(letter) for letter in wanted.shape)
    if array.shape != shape:
        told = ", ".join("any" if length is None else str(length) for length in shape)
        raise ArrayError(f"{name} has shape {array.shape}, expected ({told})")
    if wanted.is_finite and not np.isfinite(array).all():
        raise ArrayError(f"{name} holds numbers that are not finite")
