"""Named arrays in files, and checks when they are read: compiled code does not check bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any, NamedTuple

import numpy as np

from rkdl._backends.arrays import host

DOUBLE = (np.dtype(np.float64),)
INTEGERS = (np.dtype(np.int64), np.dtype(np.int32))
FLAGS = (np.dtype(np.bool_),)
POSITIVE = float(np.nextafter(0.0, 1.0))
# Axes that have at least one element: atoms, features, kernel vectors, frequencies, iterations.
NEVER_EMPTY = "nmpqi"


class Expected(NamedTuple):
    """Shape and content that an array must have; a number is an array without axes.

    The shape has one letter per axis; axes with the same letter have the same length, also in other arrays. Arrays of
    one group are all there or all missing; those without a group must be there.
    """

    shape: str = ""
    dtypes: tuple[np.dtype, ...] = DOUBLE
    group: str = ""
    is_finite: bool = True
    least: float = -np.inf
    most: str = ""  # letter of the axis whose length no number exceeds


class ArrayError(ValueError):
    """An array is missing, or has the wrong shape, dtype or content."""


def check_arrays(
    arrays: Mapping[str, object], expected: Mapping[str, Expected], sizes: Mapping[str, int]
) -> dict[str, int]:
    """Raise an ArrayError unless the arrays are those that are expected; lengths of axes go in and out by letter."""
    found = dict(sizes)
    unknown = sorted(set(arrays) - set(expected))
    if unknown:
        raise ArrayError(f"{unknown[0]} is not expected")
    groups = {"", *(expected[name].group for name in arrays)}
    for name, wanted in expected.items():
        if name in arrays:
            if wanted.shape and type(arrays[name]) not in (np.ndarray, np.memmap):
                raise ArrayError(f"{name} is a {type(arrays[name]).__name__}, expected an array of NumPy")
            _check_array(name, np.asarray(arrays[name]), wanted, found)
        elif wanted.group in groups:
            raise ArrayError(f"{name} is missing")
    return found


def _check_array(name: str, array: np.ndarray, wanted: Expected, sizes: dict[str, int]) -> None:
    """Check one array; lengths of new axes are added to `sizes`."""
    if array.dtype not in wanted.dtypes:
        kinds = " or ".join(dtype.name for dtype in wanted.dtypes)
        raise ArrayError(f"{name} is {array.dtype}, expected {kinds}")
    if array.ndim == len(wanted.shape):
        for letter, length in zip(wanted.shape, array.shape, strict=True):
            sizes.setdefault(letter, length)
    shape = tuple(sizes.get(letter) for letter in wanted.shape)
    if array.shape != shape:
        message = ", ".join("any" if length is None else str(length) for length in shape)
        raise ArrayError(f"{name} has shape {array.shape}, expected ({message})")
    if any(letter in NEVER_EMPTY and length == 0 for letter, length in zip(wanted.shape, array.shape, strict=True)):
        raise ArrayError(f"{name} is empty")
    if wanted.is_finite and array.dtype.kind in "fc" and not np.isfinite(array).all():
        raise ArrayError(f"{name} holds numbers that are not finite")
    if wanted.is_finite and array.ndim and array.dtype == np.float64 and (abs(array) > 1e154).any():
        raise ArrayError(f"{name} holds {abs(array).max():.3g}, whose square leaves the range of float64")
    if np.isfinite(wanted.least) and (array < wanted.least).any():
        least = "a number above 0" if wanted.least == POSITIVE else f"{wanted.least:g} or more"
        raise ArrayError(f"{name} holds {array.min()}, expected {least}")
    if wanted.most and (array > sizes[wanted.most]).any():
        raise ArrayError(f"{name} holds {array.max()}, expected {sizes[wanted.most]} or less")


def flattened(parts: Mapping[str, Any], prefix: str = "") -> dict[str, np.ndarray]:
    """Numbers and arrays of parts, and of their parts, by names ``part.of_part``; None is left out."""
    found: dict[str, np.ndarray] = {}
    for name, value in parts.items():
        if hasattr(value, "_asdict"):
            value = value._asdict()
        elif is_dataclass(value):
            value = vars(value)
        if isinstance(value, Mapping):
            found |= flattened(value, f"{prefix}{name}.")
        elif value is not None:
            array = np.asarray(host(value))
            found[prefix + name] = array.astype(np.float64) if array.ndim == 0 and array.dtype.kind == "f" else array
    return found


def part_of(arrays: Mapping[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    """The arrays of one part, by their names in it."""
    start = f"{name}."
    return {key.removeprefix(start): array for key, array in arrays.items() if key.startswith(start)}


def nested(arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """The parts that were flattened, as dictionaries; arrays without axes become numbers of Python."""
    found: dict[str, Any] = {}
    for name, array in arrays.items():
        *parents, last = name.split(".")
        place = found
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = array if array.ndim else array.item()
    return found
