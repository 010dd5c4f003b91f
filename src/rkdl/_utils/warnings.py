"""Warnings that point to the user's code."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_OURS = {"rkdl", "sklearn", "joblib", "contextlib", "concurrent", "threading"}
_is_quiet: ContextVar[bool] = ContextVar("is_quiet", default=False)


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the innermost frame outside this library and the libraries around it."""
    if _is_quiet.get():
        return
    level = 2
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _OURS:
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress warnings from `warn`, for a fit inside another one that issues its own."""
    token = _is_quiet.set(True)
    try:
        yield
    finally:
        _is_quiet.reset(token)
