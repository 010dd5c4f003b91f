"""Numba's compiler: without the lock, and with a cache wherever one can be kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba


def compiled(**options: Any) -> Callable[[Callable], Any]:
    """Compile a function over one chunk; threads are outside, so never ``parallel=True``.

    The cache goes beside the module, or where Numba puts it for a user who cannot write there. Where nothing can be
    written at all, every process compiles anew.
    """

    def decorate(function: Callable) -> Any:
        try:
            return numba.njit(nogil=True, cache=True, **options)(function)
        except RuntimeError:
            return numba.njit(nogil=True, **options)(function)

    return decorate
