"""Escaping of external text (file names, file contents) for terminals."""

from __future__ import annotations

import os
import unicodedata

# Control and format characters (escape sequences, line breaks, bidirectional marks), surrogates, and line and
# paragraph separators.
_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")


def shown(text: object, keep: str = "") -> str:
    """A text or path with all characters escaped that a terminal would interpret or not show; not those to `keep`."""
    plain = os.fspath(text) if isinstance(text, os.PathLike) else str(text)
    return "".join(sign if sign in keep or not _is_hidden(sign) else _number(sign) for sign in str(plain))


def _is_hidden(sign: str) -> bool:
    return not (" " <= sign <= "~") and unicodedata.category(sign) in _HIDDEN


def _number(sign: str) -> str:
    code = ord(sign)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
