"""The report as text, HTML or Markdown, from one document and a template for each."""

from __future__ import annotations

import html
import textwrap
from typing import Any, NamedTuple

from rkdl._reproduction.claims import HELD, NOT_HELD, UNTESTED
from rkdl._reproduction.document import Document, Table
from rkdl._utils.text import shown

WIDTH = 100
MISSING = 'rkdl reproduce writes its report with Jinja2, which is missing: pip install "rkdl[plots]"'


class RenderedPicture(NamedTuple):
    """A figure in a report: its file or data URL, those for certain screens, and its texts."""

    source: str
    alt: str
    caption: str
    variants: tuple[tuple[str, str], ...] = ()


def check_engine() -> None:
    """Raise a ValueError that says what to install if the template engine is missing."""
    try:
        import jinja2  # noqa: F401
    except ImportError as error:
        raise ValueError(MISSING) from error


def as_text(report: Document) -> str:
    """Text of at most 100 columns, control characters escaped."""
    filters = {"wrapped": _wrapped, "aligned": _aligned}
    return _render("report.txt.j2", _mapped(report, shown), {}, filters).strip("\n")


def as_html(report: Document, pictures: dict[str, RenderedPicture]) -> str:
    """One self-contained page without JavaScript."""
    return _render("report.html.j2", report, pictures, {"verdict_class": _verdict_class}, escapes=True)


def as_markdown(report: Document, pictures: dict[str, RenderedPicture]) -> str:
    """Markdown; whatever could be HTML is escaped."""
    filters = {"cell": lambda text: text.replace("|", "\\|").replace("*", "\\*")}
    return _render("report.md.j2", _mapped(report, _plain), pictures, filters)


def _render(
    name: str, report: Any, pictures: dict[str, RenderedPicture], filters: dict[str, Any], escapes: bool = False
) -> str:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("rkdl._reproduction"),
        autoescape=escapes,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    environment.filters.update(filters)
    return environment.get_template(name).render(report=report, pictures=pictures)


def _mapped(value: Any, change: Any) -> Any:
    """The document with every text changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list | tuple):
        return type(value)(_mapped(item, change) for item in value) if not hasattr(value, "_fields") else value
    if hasattr(value, "__dataclass_fields__"):
        return type(value)(**{name: _mapped(getattr(value, name), change) for name in value.__dataclass_fields__})
    return value


def _plain(text: str) -> str:
    return html.escape(shown(text), quote=False)


def _wrapped(text: str, indent: str = "") -> str:
    first = text[: len(text) - len(text.lstrip())]
    return textwrap.fill(text.strip(), WIDTH, initial_indent=first, subsequent_indent=indent)


# The narrowest columns that a table too wide for the terminal is wrapped to.
_NARROWEST_NAME, _NARROWEST_CELL = 24, 11


def _aligned(table: Table) -> str:
    """Aligned columns; cells are wrapped if the table is too wide, and listed if there are too many."""
    rows = [table.header, *table.rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(table.header))]
    n_cells = len(widths) - 1
    spare = WIDTH - 2 * len(widths)
    if sum(widths) > spare and n_cells:
        widths[0] = min(widths[0], max(_NARROWEST_NAME, spare - sum(widths[1:])))
        most = (spare - widths[0]) // n_cells
        if most < min(_NARROWEST_CELL, max(widths[1:])):
            return _listed(table)
        widths[1:] = [min(width, most) for width in widths[1:]]
    lines = []
    for row in rows:
        cells = [textwrap.wrap(cell, width) or [""] for cell, width in zip(row, widths, strict=True)]
        for number in range(max(map(len, cells))):
            parts = [cell[number] if number < len(cell) else "" for cell in cells]
            line = "  ".join(part.ljust(width) for part, width in zip(parts, widths, strict=True))
            lines.append(f"  {line}".rstrip())
        if row is table.header:
            lines.append("  " + "  ".join("-" * width for width in widths))
    return "\n".join(lines)


def _listed(table: Table) -> str:
    """One paragraph per row, for tables with too many columns."""
    lines = []
    for row in table.rows:
        lines.append(_wrapped(f"  {row[0]}", "  "))
        for name, cell in zip(table.header[1:], row[1:], strict=True):
            if cell:
                lines.append(_wrapped(f"      {name}: {cell}", "        "))
    return "\n".join(lines)


def _verdict_class(cell: str) -> Any:
    from markupsafe import Markup

    for verdict in (NOT_HELD, UNTESTED, HELD):
        if cell.startswith(verdict):
            chance = " by-chance" if cell.endswith("within scatter") else ""
            return Markup(f' class="{verdict.replace(" ", "-")}{chance}"')
    return ""
