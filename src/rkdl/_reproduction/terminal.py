"""The report on the terminal, at most 100 columns wide."""

from __future__ import annotations

import sys
import textwrap
from typing import Any, TextIO

from rkdl._reproduction import claims as _claims
from rkdl._reproduction.paper import GAMMA, PRESETS
from rkdl._reproduction.summary import ordered, round_count
from rkdl._reproduction.tables import NOT_THE_PAPERS, as_text, error_table, printed_heading, printed_name, time_table
from rkdl._utils.text import shown

WIDTH = 100


def report_text(content: dict[str, Any]) -> str:
    """Tables and claims for all of results.json."""
    parts = []
    for name, (entry, summaries) in ordered(content).items():
        title = shown(f"{name}: {entry['description']}, gamma {GAMMA:g}, {round_count(summaries)}")
        parts.append(f"{title}\n{'=' * min(len(title), WIDTH)}")
        if not (entry["printed"] and entry["printed"]["same_data"]):
            parts.append("\n".join(_hanging(NOT_THE_PAPERS, 0)))
        parts.append("\n".join(f"{preset}: {PRESETS[preset]}" for preset in summaries))
        parts.append(as_text(error_table(entry, summaries), WIDTH))
        parts.append(as_text(time_table(entry, summaries), WIDTH))
        parts.append(_claim_lines(summaries))
        column = printed_name(entry)
        if column is not None:
            parts.append(f"{printed_heading(entry)}\n{_printed_lines(column, summaries)}")
    return "\n\n".join(parts)


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


def _claim_lines(summaries: dict) -> str:
    verdicts = _claims.verdicts(summaries)
    lines = ["The paper's claims"]
    for position, claim in enumerate(_claims.CLAIMS.values()):
        lines += ["", f"  {claim}"]
        for preset, claims in verdicts.items():
            found = claims[position]
            lines += _hanging(f"    {preset:<9}  {found.shown}: {found.evidence}", 15)
    return "\n".join(lines)


def _printed_lines(column: str, summaries: dict) -> str:
    lines = []
    for preset, methods in summaries.items():
        lines += ["", f"  {preset}"]
        for sentence in _claims.against_printed(column, methods):
            lines += _hanging(f"    {sentence}", 6)
    return "\n".join(lines)


def _hanging(text: str, indent: int) -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent=" " * indent, drop_whitespace=True)
