"""What the commands print: results on stdout; warnings and progress on stderr."""

from __future__ import annotations

import io
import sys
import time
import warnings
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from rkdl._utils.text import shown

# Seconds between two lines of progress in a file or a pipe.
_SECONDS = 10.0


def say(options: Namespace, text: str) -> None:
    """Print a result, unless --quiet is given."""
    if not options.quiet:
        print(shown(text))


def say_aside(text: str) -> None:
    """Print a remark on stderr."""
    if sys.stderr is not None:  # None if closed before Python started; print would then use stdout
        print(shown(f"rkdl: {text}"), file=sys.stderr)


@contextmanager
def readable_stderr() -> Iterator[None]:
    """Show warnings on one line without the place in the code, and progress as lines where there is no terminal."""

    def show(message: Warning | str, *rest: object, **more: object) -> None:
        say_aside(f"warning: {' '.join(str(message).split())}")

    original = sys.stderr
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        for own in (DeprecationWarning, PendingDeprecationWarning, FutureWarning, ResourceWarning):
            warnings.simplefilter("ignore", own)
        # Columns are matched by name when a file is read.
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        warnings.showwarning = show
        if original is not None and not original.isatty():
            sys.stderr = _ProgressLines(original)
        try:
            yield
        finally:
            sys.stderr = original


class _ProgressLines(io.TextIOBase):
    """Passes text on; a progress bar, which overwrites itself, becomes one line every ten seconds."""

    def __init__(self, stream: TextIO, seconds: float = _SECONDS) -> None:
        self._stream, self._seconds, self._last, self._is_bar = stream, seconds, time.monotonic(), False

    def write(self, text: str) -> int:
        if text.startswith("\r"):
            self._is_bar = True
            if time.monotonic() - self._last >= self._seconds:
                self._last = time.monotonic()
                self._stream.write(f"{text.strip()}\n")
        elif not (self._is_bar and text in ("", "\n")):
            # The end of the line of a bar is left out too.
            self._is_bar = False
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        self._stream.flush()
