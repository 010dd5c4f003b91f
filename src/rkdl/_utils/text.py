"""Escaping of external text (file names, file contents) for terminals."""

from __future__ import annotations

import os


def shown(text: object) -> str:
    """A text or path with all characters escaped that a terminal would interpret or not show."""
    plain = os.fspath(text) if isinstance(text, os.PathLike) else str(text)
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in str(plain))
