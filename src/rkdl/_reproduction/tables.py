"""Tables of a reproduction, shared by the terminal, the HTML page and the documentation."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from rkdl._reproduction import claims as _claims
from rkdl._reproduction.paper import COMPARABLE, METHODS, PRESETS, PRINTED_ERRORS, PRINTED_SECONDS
from rkdl._reproduction.summary import Spread, Summary, show_error
from rkdl._utils.text import shown

Summaries = dict[str, dict[str, Summary]]

OWN_SPACE = (
    "* The error of DL is in signal space and that of Fourier in the space of its random features: neither is "
    "comparable with the other errors, which are in the kernel's feature space."
)
DENSE = "published: its reduced methods overwrite the codes of all signals and so violate the sparsity limit of 4."
TIMED = (
    "Seconds of a fit from signals in memory to the learned model, kernel matrices included; D is the time to train "
    "the kernel vectors beforehand, which is included."
)
FASTER_ROUTE = (
    "published: times of the same arithmetic by a faster route (no N x N residual, products in the cheaper order), not "
    "of the authors' program."
)
NOT_THE_PAPERS = "This is not one of the paper's data sets: the paper's claims are tested on other data here."
OTHER_MACHINE = "The printed times are from another machine, with 16 cores."


@dataclass(frozen=True)
class Table:
    """Text cells; the first column names rows."""

    title: str
    header: tuple[str, ...]
    rows: list[tuple[str, ...]]
    notes: list[str] = field(default_factory=list)


def error_table(entry: dict[str, Any], summaries: Summaries) -> Table:
    """Final errors, iterations and non-zeros, next to the printed errors."""
    column = printed_name(entry)
    rows = [
        (
            method if method in COMPARABLE else f"{method} *",
            *(_error_cell(methods.get(method)) for methods in summaries.values()),
            *_printed_cell(PRINTED_ERRORS, column, method, show_error),
        )
        for method in _present(summaries)
    ]
    blank = ("",) if column else ()
    rows.append(("iterations", *(_iterations(methods.values()) for methods in summaries.values()), *blank))
    rows.append(("non-zeros", *(_nonzeros(methods.values()) for methods in summaries.values()), *blank))
    notes = []
    if any(method not in COMPARABLE for method in _present(summaries)):
        notes.append(OWN_SPACE)
    if "published" in summaries:
        notes.append(DENSE)
    notes += entry["remarks"]
    for preset, methods in summaries.items():
        for method, summary in methods.items():
            for text, count in summary.warnings.items():
                notes.append(f"{preset} {method}, in {count} of {summary.error.count} rounds: {text}")
    title = "Error sqrt(f / (m N)) after the last iteration, mean ± deviation over rounds"
    return Table(title, _header(summaries, column), rows, notes)


def time_table(entry: dict[str, Any], summaries: Summaries) -> Table:
    """Times, next to the printed ones."""
    column = printed_name(entry)
    rows = [
        (
            method,
            *(_time_cell(methods.get(method)) for methods in summaries.values()),
            *_printed_cell(PRINTED_SECONDS, column, method, lambda seconds: f"{seconds:.1f}"),
        )
        for method in _present(summaries)
    ]
    title = "Time in seconds, mean ± deviation over rounds"
    notes = [TIMED]
    if "published" in summaries:
        notes.append(FASTER_ROUTE)
    if column:
        notes.append(OTHER_MACHINE)
    return Table(title, _header(summaries, column), rows, notes)


def claim_matrix(by_dataset: dict[str, Summaries]) -> Table:
    """Verdicts: one row per claim, one column per data set and preset."""
    columns = [
        (f"{name}, {preset}", claims)
        for name, summaries in by_dataset.items()
        for preset, claims in _claims.verdicts(summaries).items()
    ]
    rows = [
        (claim, *(claims[position].shown for _, claims in columns))
        for position, claim in enumerate(_claims.CLAIMS.values())
    ]
    return Table("The paper's claims", ("claim", *(title for title, _ in columns)), rows)


def settings_table(summaries: Summaries, preset: str) -> Table:
    """Settings of a preset: one row per setting, one column per method."""
    methods = summaries[preset]
    names = list(dict.fromkeys(name for summary in methods.values() for name in summary.settings))
    rows = [
        (name, *(_setting(summary.settings[name]) if name in summary.settings else "" for summary in methods.values()))
        for name in names
    ]
    return Table(f"{preset}: {PRESETS[preset]}", ("setting", *methods), rows)


def printed_name(entry: dict[str, Any]) -> str | None:
    """The paper's column for a data set."""
    return entry["printed"]["column"] if entry["printed"] else None


def printed_heading(entry: dict[str, Any]) -> str:
    """Heading of the comparison with the printed figures."""
    other = "" if entry["printed"]["same_data"] else ", which are of another data set"
    return f"Comparison with the figures printed for {entry['printed']['column']}{other}"


def as_text(table: Table, width: int = 100) -> str:
    """Render a table in aligned columns under its title, with wrapped notes."""
    lines = [tuple(map(shown, row)) for row in (table.header, *table.rows)]
    widths = [max(len(row[i]) for row in lines) for i in range(len(table.header))]
    out = [table.title, ""]
    for row in lines:
        out.append("  " + "  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip())
    out.insert(3, "  " + "  ".join("-" * size for size in widths))
    for note in table.notes:
        out += textwrap.wrap(note, width - 2, initial_indent="  ", subsequent_indent="    ")
    return "\n".join(out)


def as_markdown(table: Table) -> str:
    """Render a table in Markdown, with one paragraph per note."""
    escaped = [[cell.replace("|", "\\|").replace("*", "\\*") for cell in row] for row in (table.header, *table.rows)]
    out = ["| " + " | ".join(row) + " |" for row in escaped]
    out.insert(1, "|" + "---|" * len(table.header))
    out += [line for note in table.notes for line in ("", note.replace("*", "\\*", 1) if note[0] == "*" else note)]
    return "\n".join(out)


def as_html(table: Table) -> str:
    """Render a table in HTML that scrolls on narrow screens."""
    head = "".join(f'<th scope="col">{html.escape(cell)}</th>' for cell in table.header)
    body = "\n".join(
        f'<tr><th scope="row">{html.escape(row[0])}</th>'
        + "".join(f"<td{_verdict_class(cell)}>{html.escape(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in table.rows
    )
    notes = "".join(f'<p class="note">{html.escape(note)}</p>' for note in table.notes)
    table_html = f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n</table>"
    return f'<div class="scroll">{table_html}</div>\n{notes}'


def _verdict_class(cell: str) -> str:
    for verdict in (_claims.NOT_HELD, _claims.HELD):
        if cell.startswith(verdict):
            return f' class="{verdict.replace(" ", "-")}"'
    return ""


def _header(summaries: Summaries, column: str | None) -> tuple[str, ...]:
    return ("method", *summaries, *((f"printed ({column})",) if column else ()))


def _present(summaries: Summaries) -> list[str]:
    return [method for method in METHODS if any(method in methods for methods in summaries.values())]


def _printed_cell(figures: dict, column: str | None, method: str, show: Any) -> tuple[str, ...]:
    if column is None:
        return ()
    return (show(figures[column][method]) if method in figures[column] else "",)


def _error_cell(summary: Summary | None) -> str:
    return "" if summary is None else _plus_minus(summary.error, show_error, lambda value: show_error(value, 1))


def _time_cell(summary: Summary | None) -> str:
    if summary is None:
        return ""
    digits = _digits(summary.seconds.mean)
    text = _plus_minus(summary.seconds, _seconds, lambda value: f"{value:.{digits}f}")
    part = summary.dictionary_seconds
    return text if part is None else f"{text} (D {_seconds(part.mean)})"


def _plus_minus(spread: Spread, show: Any, show_deviation: Any) -> str:
    return (
        show(spread.mean) if spread.deviation is None else f"{show(spread.mean)} ± {show_deviation(spread.deviation)}"
    )


def _seconds(value: float) -> str:
    return f"{value:.{_digits(value)}f}"


def _digits(seconds: float) -> int:
    return 1 if seconds >= 10 else 2 if seconds >= 1 else 3


def _iterations(methods: Iterable[Summary]) -> str:
    return _range([method.iterations.mean for method in methods], 0)


def _nonzeros(methods: Iterable[Summary]) -> str:
    return _range([method.nonzeros for method in methods if method.nonzeros is not None], 1)


def _range(values: list[float], digits: int) -> str:
    shown = list(dict.fromkeys(f"{value:.{digits}f}" for value in sorted(values)))
    return "" if not shown else shown[0] if len(shown) == 1 else f"{shown[0]} to {shown[-1]}"


def _setting(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
