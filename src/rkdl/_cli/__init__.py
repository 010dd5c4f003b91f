"""The command ``rkdl``; subcommands import what they need when they run, so that --help is fast."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from rkdl import __version__
from rkdl._cli.messages import readable_stderr, say_aside
from rkdl._cli.parsers import add_commands
from rkdl._utils.text import shown


class _Parser(argparse.ArgumentParser):
    """A parser that prints errors on one line."""

    def error(self, message: str) -> NoReturn:
        text = shown(" ".join(message.split()))
        if text.endswith("required: DATA"):
            # As in `rkdl fit --drop id data.csv`, where the file counts as a column to drop.
            text += "; give it before --drop and --keep, which take all names that follow them"
        self.exit(2, f"{self.prog}: error: {text} (see {self.prog} --help)\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command with arguments, by default those of the process.

    Returns 0 on success, 2 for invalid options, files or data and missing libraries, 130 after Ctrl-C.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Text that the terminal cannot show must not end a command whose result is written.
            stream.reconfigure(errors="backslashreplace")
    try:
        options = _parser().parse_args(argv)
    except SystemExit as end:
        return int(end.code or 0)
    try:
        with readable_stderr():
            return getattr(import_module(f"rkdl._cli.{options.module}"), options.command)(options)
    except KeyboardInterrupt:
        say_aside("interrupted")
        return 130
    except BrokenPipeError:
        # The pipe's reader has gone; avoid a second error when Python flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (ValueError, OSError, MemoryError, ImportError) as error:
        say_aside(f"error: {_one_line(error)}")
        return 2


def _one_line(error: BaseException) -> str:
    if isinstance(error, MemoryError):
        return "not enough memory; use fewer signals, or a method other than KDL"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split()) or type(error).__name__


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="rkdl", description="Reduced kernel dictionary learning.")
    parser.add_argument("--version", action="version", version=f"rkdl {__version__}", help="print the version and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    add_commands(commands)
    return parser
