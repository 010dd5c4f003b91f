"""Types of options that commands share."""

from __future__ import annotations

import argparse
from typing import Any


def positive(text: str) -> int:
    """An integer of at least 1."""
    return _integer(text, "an integer of at least 1", lambda number: number >= 1)


def seed(text: str) -> int:
    """A seed."""
    return _integer(text, "an integer from 0 to 2**31 - 1", lambda number: 0 <= number < 2**31)


def jobs(text: str) -> int:
    """A number of threads."""
    return _integer(text, "an integer other than 0", lambda number: number != 0)


def _integer(text: str, expected: str, is_valid: Any) -> int:
    try:
        number = int(text)
    except ValueError:
        number = None
    if number is None or not is_valid(number):
        raise argparse.ArgumentTypeError(f"{text!r} is not {expected}")
    return number
