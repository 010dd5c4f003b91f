"""Numba's compiler: functions release the GIL and are cached wherever a cache can be written."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba.extending

# Callers of an intrinsic pass values, not the types that its own parameters stand for.
intrinsic: Callable[[Callable], Any] = numba.extending.intrinsic


def compiled(**options: Any) -> Callable[[Callable], Any]:
    """Compile a function that processes one chunk; threads run chunks, so never ``parallel=True``.

    The cache goes to the module's folder, to NUMBA_CACHE_DIR, or to the user's cache where the folder is read-only. It
    becomes stale when any file of this folder changes. If nothing can be written, every process compiles anew.
    """

    def decorate(function: Callable) -> Any:
        try:
            dispatcher = numba.njit(nogil=True, cache=True, **options)(function)
        except RuntimeError:
            return numba.njit(nogil=True, **options)(function)
        _watch_sources(dispatcher)
        return dispatcher

    return decorate


def _watch_sources(dispatcher: Any) -> None:
    """Make the function's cache depend on all sources of this folder.

    Numba watches a function's own file only, although compiled callers contain the code that they call. If a later
    Numba stores its stamp elsewhere, its own rule applies.
    """
    index = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if index is not None and hasattr(index, "_source_stamp"):
        index._source_stamp = (index._source_stamp, _hash_of_sources())


@cache
def _hash_of_sources() -> str:
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
