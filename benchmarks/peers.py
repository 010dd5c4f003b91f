"""The peers: which of them work here, and the versions of those that do."""

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
    """A library to compare with: its version, or the reason why it cannot be used."""

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
    """Import a peer and let it code a few signals, so that one that does not work is found out here."""
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
        signals = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)
        inputs = {"X": signals.astype(tasks.DTYPES[key]), "D": np.eye(6, dtype=tasks.DTYPES[key])}
        codes = tasks.encode(key, inputs, s=2, n_jobs=1)
        if codes.shape != (4, 6):
            return Peer(key, name, found, f"returns codes of shape {codes.shape}, expected (4, 6)")
    except Exception as error:
        return Peer(key, name, found, f"does not work here: {type(error).__name__}: {error}")
    if key == "dictlearn" and not importlib.import_module("dictlearn._coders._numba").HAVE_NUMBA:
        found += " without Numba"
    return Peer(key, name, found)


def find_all() -> dict[str, Peer]:
    """All peers."""
    return {key: find(key) for key in NAMES}
