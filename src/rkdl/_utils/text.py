"""Escaping of external text (file names, file contents) for terminals."""

from __future__ import annotations

import os
import unicodedata

# Control and format characters (escape sequences, line breaks, bidirectional marks), surrogates, and line and
# paragraph separators.
_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")


def shown(text: object, keep: str = "") -> str:
    """Escape all characters that a terminal would interpret or not show.

    Parameters
    ----------
    text : object
        The text, or a path.
    keep : str, default=""
        Characters to leave unescaped: "\\n" for text of several lines.
    """
    plain = os.fspath(text) if isinstance(text, os.PathLike) else str(text)
    return "".join(sign if sign in keep or not _is_hidden(sign) else _number(sign) for sign in str(plain))


def _is_hidden(sign: str) -> bool:
    return not (" " <= sign <= "~") and unicodedata.category(sign) in _HIDDEN


def _number(sign: str) -> str:
    code = ord(sign)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
