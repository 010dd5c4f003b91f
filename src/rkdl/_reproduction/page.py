"""The report index.html: one self-contained page without JavaScript."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rkdl._reproduction import claims as _claims
from rkdl._reproduction.paper import GAMMA, PRESETS
from rkdl._reproduction.plots import Figure, draw_figures
from rkdl._reproduction.store import PAGE, Results
from rkdl._reproduction.summary import ordered, round_count
from rkdl._reproduction.tables import (
    NOT_THE_PAPERS,
    as_html,
    claim_matrix,
    error_table,
    printed_heading,
    printed_name,
    settings_table,
    time_table,
)

_STYLE = """
:root { --ink: #1d2329; --soft: #5b6570; --line: #d9dee3; --good: #00664b; --bad: #a34000; --wash: #f6f8f9 }
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 68rem; padding: 1.5rem 1.25rem 4rem; color: var(--ink); background: #fff;
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif }
h1 { font-size: 1.7rem; line-height: 1.2; margin: .5rem 0 }
h2 { font-size: 1.35rem; margin: 3rem 0 .5rem; padding-top: 1rem; border-top: 2px solid var(--ink) }
h3 { font-size: 1.05rem; margin: 2rem 0 .5rem }
p { max-width: 46rem; margin: .6rem 0 }
.lead { font-size: 1.08rem }
.note { color: var(--soft); font-size: .88rem; margin: .45rem 0 }
.scroll { overflow-x: auto; margin: .75rem 0 }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums }
th, td { padding: .35rem .8rem .35rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line) }
td { white-space: nowrap }
tbody th { font-weight: 600; white-space: nowrap }
thead th { border-bottom: 2px solid var(--ink); vertical-align: bottom }
.claims td, .claims th { white-space: normal }
.claims tbody th { font-weight: 400; min-width: 12rem }
.claims td { min-width: 5rem }
.held { color: var(--good); font-weight: 600 }
.not-held { color: var(--bad); font-weight: 600 }
figure { margin: 1.25rem 0 }
figure .scroll { margin: 0 }
figure img { display: block; max-width: 100%; height: auto; border: 1px solid var(--line) }
figcaption { color: var(--soft); font-size: .88rem; max-width: 46rem; margin-top: .4rem }
details { margin: .6rem 0 }
summary { cursor: pointer; font-weight: 600 }
ul { max-width: 46rem; padding-left: 1.2rem }
nav a { margin-right: 1rem; white-space: nowrap }
a { color: #00527f }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; font-size: .92rem }
dt { color: var(--soft) } dd { margin: 0; overflow-wrap: anywhere }
@media (max-width: 40rem) { body { padding: 1rem .9rem 3rem } h1 { font-size: 1.4rem } th, td { font-size: .84rem }
  figure img { max-width: none; max-height: 19rem } .claims tbody th { min-width: 9rem } }
"""


def write_page(results: Results) -> tuple[bool, Path, list[Path]]:
    """Write figures and page; returns whether there are figures, the page's path, and unreadable models."""
    try:
        figures, unreadable = draw_figures(results)
        has_figures = True
    except ImportError:
        figures, unreadable, has_figures = {}, [], False
    page = page_html(results.content, figures, has_figures, unreadable)
    with results.writing(PAGE) as stream:
        # A file name that is not valid UTF-8 must not prevent the page from being written.
        stream.write(page.encode(errors="replace"))
    return has_figures, results.folder / PAGE, unreadable


def page_html(
    content: dict[str, Any], figures: dict[str, list[Figure]], has_figures: bool, unreadable: Sequence[Path] = ()
) -> str:
    """Render the page."""
    datasets = ordered(content)
    parts = [_opening(content, datasets, has_figures)]
    if unreadable:
        names = html.escape(", ".join(path.name for path in unreadable))
        parts.append(f'<p class="note">Left out of the figures because they cannot be read: {names}.</p>')
    for name, (entry, summaries) in datasets.items():
        parts.append(_section(name, entry, summaries, figures.get(name, [])))
    parts.append(_settings(content, datasets))
    body = "\n".join(parts)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<title>Reduced kernel dictionary learning: a reproduction</title>\n"
        f"<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _opening(content: dict[str, Any], datasets: dict[str, Any], has_figures: bool) -> str:
    presets = [preset for preset in PRESETS if any(preset in summaries for _, summaries in datasets.values())]
    links = "".join(f'<a href="#{_anchor(name)}">{html.escape(name)}</a>' for name in datasets)
    meanings = "".join(f"<dt>{preset}</dt><dd>{html.escape(PRESETS[preset])}</dd>" for preset in presets)
    matrix = as_html(claim_matrix({name: summaries for name, (_, summaries) in datasets.items()}))
    missing = (
        "" if has_figures else '<p class="note">Figures were skipped because matplotlib is missing (rkdl[plots]).</p>'
    )
    return (
        "<h1>Reduced kernel dictionary learning: a reproduction</h1>\n"
        '<p class="lead">The experiments of Ilie-Ablachim and Dumitrescu, <cite>Reduced Kernel Dictionary '
        "Learning</cite>, repeated on this machine, with a check of the paper's claims.</p>\n"
        f"<dl>{meanings}</dl>\n{missing}"
        f'<nav>{links}<a href="#settings">settings</a></nav>\n'
        f'<h3>Claims of the paper</h3>\n<div class="claims">{matrix}</div>\n'
        '<p class="note">By means over rounds. "Within scatter": the deciding errors differ by less than twice '
        'their standard error. "One round": there is no estimate of the scatter.</p>'
    )


def _section(name: str, entry: dict[str, Any], summaries: dict[str, Any], figures: list[Figure]) -> str:
    title = f"{html.escape(entry['description'])}, gamma {GAMMA:g}, {round_count(summaries)}"
    errors, times = error_table(entry, summaries), time_table(entry, summaries)
    parts = [
        f'<h2 id="{_anchor(name)}">{html.escape(name)}</h2>\n<p>{title}</p>',
        f"<h3>{html.escape(errors.title)}</h3>\n{as_html(errors)}",
        *(_figure(figure) for figure in figures[:1]),
        f"<h3>{html.escape(times.title)}</h3>\n{as_html(times)}",
        f"<h3>The paper's claims on these data</h3>\n{_claim_list(summaries)}",
    ]
    if not (entry["printed"] and entry["printed"]["same_data"]):
        parts.insert(1, f"<p><strong>{html.escape(NOT_THE_PAPERS)}</strong></p>")
    column = printed_name(entry)
    if column is not None:
        parts.append(f"<h3>{html.escape(printed_heading(entry))}</h3>")
        for preset, methods in summaries.items():
            items = "".join(f"<li>{html.escape(text)}</li>" for text in _claims.against_printed(column, methods))
            if items:
                parts.append(f"<p>{preset}</p>\n<ul>{items}</ul>")
    if figures[1:]:
        parts.append("<h3>Kernel vectors and atoms</h3>")
        parts += [_figure(figure) for figure in figures[1:]]
    return "\n".join(parts)


def _claim_list(summaries: dict[str, Any]) -> str:
    parts = []
    for position, text in enumerate(_claims.CLAIMS.values()):
        items = []
        for preset, claims in _claims.verdicts(summaries).items():
            claim = claims[position]
            kind = claim.verdict.replace(" ", "-")
            verdict = f'<strong class="{kind}">{claim.shown}</strong>'
            items.append(f"<li>{preset}: {verdict}. {html.escape(claim.evidence)}</li>")
        parts.append(f"<p>{html.escape(text[0].upper() + text[1:])}.</p>\n<ul>{''.join(items)}</ul>")
    return "\n".join(parts)


def _figure(figure: Figure) -> str:
    data = base64.b64encode(figure.path.read_bytes()).decode()
    caption = html.escape(figure.caption)
    return (
        f'<figure><div class="scroll"><img alt="{caption}" src="data:image/png;base64,{data}"></div>'
        f"<figcaption>{caption} ({html.escape(figure.path.name)})</figcaption></figure>"
    )


def _settings(content: dict[str, Any], datasets: dict[str, Any]) -> str:
    facts = {**content["versions"], **content["machine"], **content["settings"]}
    shown = "".join(
        f"<dt>{html.escape(str(key))}</dt><dd>{html.escape('default' if value is None else str(value))}</dd>"
        for key, value in facts.items()
    )
    parts = [f'<h2 id="settings">Settings</h2>\n<dl>{shown}</dl>']
    for name, (entry, summaries) in datasets.items():
        parts.append(
            f"<h3>{html.escape(name)}</h3>\n<p class='note'>SHA-256 of the signals: "
            f"{html.escape(entry['sha256'][:16])}…</p>"
        )
        for preset in summaries:
            table = settings_table(summaries, preset)
            parts.append(f"<details><summary>{html.escape(table.title)}</summary>{as_html(table)}</details>")
    return "\n".join(parts)


def _anchor(name: str) -> str:
    return "data-" + "".join(sign if sign.isalnum() else "-" for sign in name)
