"""Warnings that point to the user's code."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_OURS = {"rkdl", "sklearn", "joblib", "contextlib", "concurrent", "threading"}
_is_quiet: ContextVar[bool] = ContextVar("is_quiet", default=False)
# Warnings that were shown, by place and text.
shown: set[tuple[str, int, str]] = set()


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the innermost frame outside this library and the libraries around it, once at each place in the code.

    Python's own record of what was shown is lost whenever a filter changes, as in every fold of a cross-validation.
    """
    if _is_quiet.get():
        return
    level = 2
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _OURS:
        frame = frame.f_back
        level += 1
    place = frame.f_code.co_filename, frame.f_lineno, message
    # Filters of the user decide instead, for example to show or to ignore all warnings.
    if not any(kind != "default" and issubclass(category, of) and not text for kind, text, of, *_ in warnings.filters):
        if place in shown:
            return
        shown.add(place)
    warnings.warn(message, category, stacklevel=level)


@contextmanager
def quiet() -> Iterator[None]:
    """Suppress warnings from `warn`, for a fit inside another one that issues its own."""
    token = _is_quiet.set(True)
    try:
        yield
    finally:
        _is_quiet.reset(token)
