"""The report in index.html: one self-contained page."""

from __future__ import annotations

import base64
from pathlib import Path

from rkdl._reproduction.plots import Figure, draw_figures
from rkdl._reproduction.render import RenderedPicture, as_html
from rkdl._reproduction.report import build_report
from rkdl._reproduction.store import PAGE, Results
from rkdl._utils.text import shown

NO_FIGURES = 'Figures were skipped because matplotlib is missing: pip install "rkdl[plots]"'


def write_page(results: Results) -> tuple[Path, list[str]]:
    """Write figures and page; returns the page's path and remarks on what is missing."""
    notes = []
    figures: dict[str, Figure] = {}
    try:
        figures, unreadable = draw_figures(results)
        if unreadable:
            names = ", ".join(shown(path.name) for path in unreadable)
            notes.append(f"Left out of the figures because they cannot be read: {names}")
    except ImportError:
        notes.append(NO_FIGURES)
    report = build_report(results.content, figures, notes)
    page = as_html(report, {name: _embedded(figure) for name, figure in figures.items()})
    with results.writing(PAGE) as stream:
        # A file name that is not valid UTF-8 must not prevent the page from being written.
        stream.write(page.encode(errors="replace"))
    return results.folder / PAGE, notes


def _embedded(figure: Figure) -> RenderedPicture:
    variants = tuple((media, _url(png)) for media, png in figure.variants)
    return RenderedPicture(_url(figure.path.read_bytes()), figure.alt, figure.caption, variants)


def _url(png: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"
