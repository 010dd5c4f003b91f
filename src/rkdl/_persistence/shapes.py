"""Checks of arrays read from files, before anything computes with them: compiled code does not check bounds."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeGuard

import numpy as np

DOUBLE = (np.dtype(np.float64),)
INTEGERS = (np.dtype(np.int64), np.dtype(np.int32))


class Expected(NamedTuple):
    """Shape and dtype that an array must have.

    The shape has one letter per axis; axes with the same letter have the same length, also in other arrays. Arrays of
    one group are all there or all missing; those without a group must be there.
    """

    shape: str
    dtypes: tuple[np.dtype, ...] = DOUBLE
    group: str = ""
    is_finite: bool = True


class ArrayError(ValueError):
    """An array is missing, or has the wrong shape, dtype or content."""


def is_finite_number(value: Any) -> TypeGuard[int | float]:
    """Whether a JSON value is a finite number, and no integer too large for a float."""
    return type(value) in (int, float) and abs(value) <= sys.float_info.max


def check_arrays(
    arrays: Mapping[str, np.ndarray],
    expected: Mapping[str, Expected],
    sizes: Mapping[str, int],
    *,
    has_others: bool = False,
) -> dict[str, int]:
    """Raise an ArrayError unless all arrays are there, finite, and of consistent shapes and dtypes.

    Lengths of axes go in and come out by their letters. With `has_others`, arrays that are not expected are ignored.
    """
    unknown = sorted(set(arrays) - set(expected))
    if unknown and not has_others:
        raise ArrayError(f"{unknown[0]} is not expected")
    found = dict(sizes)
    groups = {"", *(expected[name].group for name in arrays if name in expected)}
    for name, wanted in expected.items():
        if name in arrays:
            _check_array(name, arrays[name], wanted, found)
        elif wanted.group in groups:
            raise ArrayError(f"{name} is missing")
    return found


def _check_array(name: str, array: np.ndarray, wanted: Expected, sizes: dict[str, int]) -> None:
    """Check one array; lengths of new axes are added to `sizes`."""
    if not isinstance(array, np.ndarray) or array.dtype not in wanted.dtypes:
        kinds = " or ".join(dtype.name for dtype in wanted.dtypes)
        raise ArrayError(f"{name} is {getattr(array, 'dtype', type(array).__name__)}, expected {kinds}")
    if array.ndim == len(wanted.shape):
        for letter, length in zip(wanted.shape, array.shape, strict=True):
            sizes.setdefault(letter, length)
    shape = tuple(sizes.get(letter) for letter in wanted.shape)
    if array.shape != shape:
        message = ", ".join("any" if length is None else str(length) for length in shape)
        raise ArrayError(f"{name} has shape {array.shape}, expected ({message})")
    if wanted.is_finite and not np.isfinite(array).all():
        raise ArrayError(f"{name} holds numbers that are not finite")
