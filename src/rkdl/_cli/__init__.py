"""The command ``rkdl``; subcommands import what they need when they run, so that --help is fast."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence

from rkdl._cli.messages import readable_warnings, say_aside
from rkdl._cli.parsers import make_parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with arguments, by default those of the process.

    Returns 0 on success, 2 for invalid options, files or data and missing libraries, 130 after Ctrl-C.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Text that the terminal cannot show must not end a command whose result is written.
            stream.reconfigure(errors="backslashreplace")
    try:
        options = make_parser().parse_args(argv)
    except SystemExit as end:
        return int(end.code or 0)
    try:
        with readable_warnings():
            from rkdl._cli import commands

            return getattr(commands, options.command)(options)
    except KeyboardInterrupt:
        say_aside("interrupted")
        return 130
    except BrokenPipeError:
        # The pipe's reader has gone; avoid a second error when Python flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ValueError, TypeError, OSError, MemoryError, ImportError) as error:
        say_aside(f"error: {_one_line(error)}")
        return 2


def _one_line(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return "not enough memory; use fewer signals, or a method other than KDL"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__
