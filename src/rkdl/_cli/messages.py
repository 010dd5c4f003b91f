"""What the commands print: results on stdout; warnings and progress on stderr."""

from __future__ import annotations

import sys
import warnings
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager

from rkdl._utils import warnings as own_warnings
from rkdl._utils.text import shown


def say(options: Namespace, text: str) -> None:
    """Print a result, unless --quiet is given."""
    if not options.quiet:
        print(shown(text))


def say_aside(text: str) -> None:
    """Print a remark on stderr."""
    if sys.stderr is not None:  # None if closed before Python started; print would then use stdout
        print(shown(f"rkdl: {text}"), file=sys.stderr)


@contextmanager
def readable_warnings() -> Iterator[None]:
    """Show warnings on one line without the place in the code."""

    def show(message: Warning | str, *rest: object, **more: object) -> None:
        say_aside(f"warning: {' '.join(str(message).split())}")

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        for own in (DeprecationWarning, PendingDeprecationWarning, FutureWarning, ResourceWarning):
            warnings.simplefilter("ignore", own)
        # Columns are matched by name when a file is read.
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        warnings.showwarning = show
        own_warnings.shown.clear()
        yield
