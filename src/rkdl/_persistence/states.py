"""What is saved as arrays with dotted names: ``part.of_part``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any

import numpy as np

from rkdl._backends.arrays import host


def flattened(parts: Mapping[str, Any], prefix: str = "") -> dict[str, np.ndarray]:
    """Numbers and arrays of parts, and of their parts, by dotted names; what is None is left out."""
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
