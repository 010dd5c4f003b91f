"""Messages on the terminal."""

from __future__ import annotations

import sys
from typing import TextIO

from rkdl._utils.text import shown


def say(text: str, stream: TextIO | None = None) -> None:
    """Print with control characters escaped, in ASCII if the terminal's encoding requires it."""
    stream = stream or sys.stdout
    if stream is None:  # closed before Python started
        return
    text = shown(text, keep="\n")
    encoding = getattr(stream, "encoding", None) or "ascii"
    try:
        text.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        text = text.replace("±", "+-").encode("ascii", "replace").decode()
    print(text, file=stream, flush=True)


def complain(text: str) -> None:
    """Print to stderr, if there is one."""
    if sys.stderr is not None:
        say(text, sys.stderr)
