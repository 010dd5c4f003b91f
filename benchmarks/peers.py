"""The peer libraries: which of them work here, and their versions."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version

import numpy as np

from benchmarks import tasks

NAMES = {"spams": "SPAMS", "sklearn": "scikit-learn", "dictlearn": "dictlearn"}
_PACKAGES = {"spams": "spams-bin", "sklearn": "scikit-learn", "dictlearn": "dictlearn"}


@dataclass(frozen=True)
class Peer:
    """A library to compare with: its version, or why it cannot be used."""

    key: str
    name: str
    version: str = ""
    reason: str = ""

    @property
    def available(self) -> bool:
        """Whether it can be used."""
        return not self.reason


@lru_cache
def find(key: str) -> Peer:
    """Import a peer and code a few signals with it, to find out here whether it works."""
    name, package = NAMES[key], _PACKAGES[key]
    try:
        importlib.import_module(key)
    except Exception as error:
        return Peer(key, name, reason=f"cannot be imported: {type(error).__name__}: {error}")
    try:
        found = version(package)
    except PackageNotFoundError:
        found = "unknown version"
    try:
        dtype = tasks.DTYPES[key]
        signals = np.array([[3, -4, 0.5], [0.1, 2, 5]], dtype=dtype)
        codes = tasks.encode(key, {"X": signals, "D": np.eye(3, dtype=dtype)}, s=2, n_jobs=1)
        codes = codes.toarray() if hasattr(codes, "toarray") else codes
        if not np.allclose(codes, [[3, -4, 0], [0, 2, 5]], atol=1e-5):
            return Peer(key, name, found, f"codes {signals.tolist()} as {codes.tolist()}")
    except Exception as error:
        return Peer(key, name, found, f"does not work here: {type(error).__name__}: {error}")
    if key == "dictlearn" and not importlib.import_module("dictlearn._coders._numba").HAVE_NUMBA:
        found += " without Numba"
    return Peer(key, name, found)


def find_all() -> dict[str, Peer]:
    """Find all peers."""
    return {key: find(key) for key in NAMES}
