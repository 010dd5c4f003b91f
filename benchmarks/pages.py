"""Replace the generated parts of a page, the lines between its marks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def put(page: Path, part: str, lines: Sequence[str]) -> None:
    """Replace the lines between ``<!-- part -->`` and ``<!-- end of part -->`` in the page."""
    text = page.read_text()
    begin, end = f"<!-- {part} -->\n", f"<!-- end of {part} -->"
    if begin not in text or end not in text:
        raise ValueError(f"{page} has no marks for {part}: put {begin.strip()} and {end} where the lines belong.")
    head, rest = text.split(begin, 1)
    _, tail = rest.split(end, 1)
    page.write_text(head + begin + "\n".join([*lines, end]) + tail)
