"""Text from outside (file names, content of files) made fit for a terminal."""

from __future__ import annotations

import os
import unicodedata

# Control and format characters (escape sequences, line breaks, marks that turn the direction of writing), half of a
# pair, and what separates lines and paragraphs.
_HIDDEN = ("Cc", "Cf", "Cs", "Zl", "Zp")


def shown(text: object, keep: str = "") -> str:
    """The text with everything that a terminal would obey, or not show, as a backslash and its number.

    Parameters
    ----------
    text : object
        What is to be shown; a path by its name.
    keep : str, default=""
        Characters that stay as they are: "\\n" for text of several lines.
    """
    plain = os.fspath(text) if isinstance(text, os.PathLike) else str(text)
    return "".join(sign if sign in keep or not _is_hidden(sign) else _number(sign) for sign in str(plain))


def _is_hidden(sign: str) -> bool:
    return not (" " <= sign <= "~") and unicodedata.category(sign) in _HIDDEN


def _number(sign: str) -> str:
    code = ord(sign)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
