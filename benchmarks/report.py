"""Render a run as tables on the terminal, as JSON and as Markdown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.pages import put
from benchmarks.rows import OK, YES_NO, Comparison, Figure, Row

_COMPARISON_HEAD = (
    "case",
    "inputs",
    "setting",
    "peer",
    "dtype",
    "rkdl, ms",
    "peer, ms",
    "ratio",
    "target",
    "met",
    "agreement",
    "rkdl, MB",
    "peer, MB",
    "limit",
    "note",
)
_FIGURE_HEAD = ("case", "what", "value", "target", "met", "note")
# The README's rows: task, inputs, setting and peer.
_README = (
    ("sparse coding by OLS", "patches 200,000 x 64, 256 atoms, s = 6", "OLS", "SPAMS"),
    ("sparse coding by OMP", "patches 200,000 x 64, 256 atoms, s = 6", "OMP", "scikit-learn"),
    (
        "dictionary learning by AK-SVD",
        "patches 100,000 x 64, 256 atoms, s = 6, 10 iterations",
        "OMP and AK-SVD in both",
        "dictlearn",
    ),
    (
        "kernel dictionary learning",
        "MNIST digit 4, N = 5,842, 20 atoms, s = 4, 10 iterations",
        "OMP and AK-SVD in both",
        "dictlearn",
    ),
    (
        "reduced kernel dictionary learning, 50 kernel vectors",
        "all MNIST, N = 60,000, 20 atoms, s = 4, 10 iterations",
        "RKDL, p = 50, kernel vectors: random signals",
        "rkdl's KDL",
    ),
)
# Shown on the terminal and in JSON only: targets are for maintainers.
_MAINTAINERS = ("target", "met")
# The page has two tables of comparisons, because one would be too wide.
_TIMES = ("rkdl, ms", "peer, ms", "ratio")
_DETAILS = ("dtype", "agreement", "rkdl, MB", "peer, MB", "limit", "note")


def number(value: float | None) -> str:
    """Format with three significant digits; None is a dash."""
    if value is None:
        return "-"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:#.3g}".rstrip(".")


def verdict(met: bool | None) -> str:
    """Format as yes, NO or a dash."""
    return {True: "yes", False: "NO", None: "-"}[met]


def comparison_cells(row: Comparison) -> list[str]:
    """Cells of a comparison's table row."""
    ours, theirs = row.ours, row.theirs
    best = [None if side.best is None else side.best * 1e3 for side in (ours, theirs)]
    if row.agrees is None:
        agreement = "-"
    else:
        agreement = f"{'yes' if row.agrees else 'NO'} ({number(ours.measure)}, {number(theirs.measure)})"
    limit = "-"
    if "product_s" in row.limits and ours.best:
        share = row.limits["arithmetic_s"] / ours.best
        limit = f"product {number(row.limits['product_s'] * 1e3)} ms; {share:.0%} of arithmetic"
    note = row.note if row.status == OK else f"{row.status}: {row.reason}"
    return [
        row.case,
        row.what,
        row.setting,
        theirs.library,
        row.dtype,
        number(best[0]),
        number(best[1]) if row.status == OK else row.status,
        "-" if row.ratio is None else f"{number(row.ratio)}x",
        "-" if row.target is None else f"{row.target:g}x",
        verdict(row.met),
        agreement,
        number(ours.memory_mb),
        number(theirs.memory_mb),
        limit,
        note,
    ]


def figure_cells(row: Figure) -> list[str]:
    """Cells of a figure's table row."""
    value, bound = f"{number(row.value)} {row.unit}".strip(), f"{row.sense} {row.bound or 0:.3g}"
    if row.unit == YES_NO:
        value, bound = "yes" if row.value else "no", "yes"
    return [
        row.case,
        row.what,
        value if row.status == OK else row.status,
        "-" if row.bound is None else bound,
        verdict(row.met),
        row.note if row.status == OK else row.reason,
    ]


def tables(rows: Sequence[Row]) -> list[tuple[str, tuple[str, ...], list[list[str]]]]:
    """Titles, headers and cells of the comparisons, the figures and the growth series."""
    comparisons = [comparison_cells(row) for row in rows if isinstance(row, Comparison)]
    figures = [figure_cells(row) for row in rows if isinstance(row, Figure)]
    found = []
    if comparisons:
        found.append(("Comparison with other libraries", _COMPARISON_HEAD, comparisons))
    if figures:
        found.append(("Further measurements of rkdl", _FIGURE_HEAD, figures))
    series = [
        [
            row.what.split(":")[0],
            f"{point['n_signals']:,}",
            number(point["seconds"]),
            number(point["us_per_signal"]),
            number(point.get("memory_mb")),
        ]
        for row in rows
        if isinstance(row, Figure)
        for point in row.series
        if "us_per_signal" in point
    ]
    if series:
        found.append(
            (
                "Growth with the number of signals",
                ("method", "signals", "seconds", "microseconds per signal", "MB"),
                series,
            )
        )
    return found


def summary(rows: Sequence[Row]) -> list[str]:
    """Lines for the terminal: targets met and missed, then `remarks`."""
    judged = [row for row in rows if row.met is not None]
    lines = [f"{sum(bool(row.met) for row in judged)} of {len(judged)} targets met."] if judged else []
    for row in judged:
        if not row.met:
            lines.append(f"Target missed: {_name(row)}.")
    return lines + remarks(rows)


def remarks(rows: Sequence[Row]) -> list[str]:
    """Lines on solutions that disagree and on cases that did not run."""
    lines = [f"No agreement: {_name(row)}." for row in rows if isinstance(row, Comparison) and row.agrees is False]
    lines += [f"{row.status.capitalize()}: {_name(row)}: {row.reason}" for row in rows if row.status != OK]
    return lines


def _name(row: Row) -> str:
    if isinstance(row, Figure):
        return f"{row.case}, {row.what}"
    return ", ".join(filter(None, [row.case, row.what, row.setting, f"against {row.theirs.library}"]))


def as_text(rows: Sequence[Row]) -> str:
    """Tables for a terminal, in aligned columns, without the longest ones."""
    parts = []
    for title, head, cells in tables(rows):
        keep = [i for i, name in enumerate(head) if name not in ("limit", "note", "inputs")]
        lines = [[row[i] for i in keep] for row in [list(head), *cells]]
        widths = [max(len(line[i]) for line in lines) for i in range(len(keep))]
        body = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
        parts.append("\n".join([title, *body]))
    return "\n\n".join(filter(None, [*parts, "\n".join(summary(rows))]))


def as_markdown(rows: Sequence[Row], head: dict[str, Any]) -> str:
    """Render the whole run for docs/benchmarks.md."""
    machine = head["machine"]
    installed = ", ".join(f"{name} {version}" for name, version in head["versions"].items())
    lines = [
        "# Benchmarks",
        "",
        "This page compares rkdl with SPAMS, scikit-learn and dictlearn on the same inputs, with the same settings and "
        "the same number of threads. `make bench` repeats the measurements.",
        "",
        f"- Machine: {machine['processor']}, {machine['threads']} threads on {machine['cores']} cores; "
        f"{_limits(head['limits'])}; system load at the start {machine['load_1min']}.",
        f"- Versions: {installed}.",
        f"- Times: best of {head['repeat']} runs, with the libraries interleaved; best of three on all of MNIST and "
        "for growth; a single run if it takes more than ten seconds.",
        "",
        "In the tables,",
        "",
        "- **ratio** is the peer's time divided by rkdl's.",
        "- **agreement** says whether the solutions are equally good, followed by rkdl's value and the peer's: mean "
        "residual norms of codes must be equal within 1e-3, and the error of a learned model must be equal within 1e-3 "
        "or lower for rkdl. ORKDL codes the signals twice per iteration and KDL once, so after the same number of "
        "iterations the error of ORKDL may be below that of KDL.",
        "- **MB** is the peak memory of a fresh process, not counting its loaded inputs.",
        "- **limit** gives the time of the matrix product alone, and a lower bound as a percentage of rkdl's time. The "
        "bound is the number of operations, without those on zeros of the signals, at the speed of a large matrix "
        "product.",
        "- **dense** cases add noise to every pixel. Otherwise, four in five pixels of MNIST are zero, and rkdl skips "
        "zeros.",
        "",
    ]
    if head["tiny"]:
        lines += ["**Tiny inputs: this run checks the benchmark, its figures mean nothing.**", ""]
    for title, names, cells in tables(rows):
        parts = {title: _MAINTAINERS}
        if names == _COMPARISON_HEAD:
            parts = {title: (*_MAINTAINERS, *_DETAILS), "Agreement, memory and limits": (*_MAINTAINERS, *_TIMES)}
        for heading, hidden in parts.items():
            lines += [f"## {heading}", "", *_markdown_table(*_without(hidden, names, cells)), ""]
    if found := remarks(rows):
        lines += ["## Remarks", "", *(f"- {line}" for line in found), ""]
    return "\n".join(lines)


def as_excerpt(rows: Sequence[Row]) -> list[str]:
    """Render the README's few rows of times and ratios; those that did not run are left out."""
    found = {(row.what, row.setting, row.theirs.library): row for row in rows if isinstance(row, Comparison)}
    cells = [
        [task, what, peer, *comparison_cells(found[what, setting, peer])[5:8]]
        for task, what, setting, peer in _README
        if (what, setting, peer) in found
    ]
    return _markdown_table(("task", "inputs", "compared with", "rkdl, ms", "peer, ms", "ratio"), cells)


def write_documents(rows: Sequence[Row], head: dict[str, Any], root: Path) -> None:
    """Write docs/benchmarks.md, and the excerpt between the README's marks."""
    (root / "docs" / "benchmarks.md").write_text(as_markdown(rows, head))
    put(root / "README.md", "benchmarks", as_excerpt(rows))


def _limits(limits: dict[str, float]) -> str:
    return (
        f"sgemm {limits['sgemm_gflops']:.0f} and dgemm {limits['dgemm_gflops']:.0f} GFLOP/s, copy "
        f"{limits['copy_gbytes_per_s']:.1f} GB/s"
    )


def _without(
    hidden: Sequence[str], names: Sequence[str], cells: Sequence[Sequence[str]]
) -> tuple[list[str], list[list[str]]]:
    """Drop the named columns of a table."""
    shown = [i for i, name in enumerate(names) if name not in hidden]
    return [names[i] for i in shown], [[row[i] for i in shown] for row in cells]


def _markdown_table(names: Sequence[str], cells: Sequence[Sequence[str]]) -> list[str]:
    return [_markdown_row(names), _markdown_row(["---"] * len(names)), *(_markdown_row(row) for row in cells)]


def _markdown_row(cells: Sequence[str]) -> str:
    marked = ["**no**" if cell == "NO" else cell.replace("NO (", "**no** (") for cell in cells]
    return "| " + " | ".join(" ".join(cell.split()).replace("|", "\\|") for cell in marked) + " |"


def save(rows: Sequence[Row], head: dict[str, Any], folder: Path) -> tuple[Path, Path]:
    """Write ``benchmarks.json`` and ``benchmarks.md``; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    content = {
        **head,
        "comparisons": [row.to_dict() for row in rows if isinstance(row, Comparison)],
        "figures": [row.to_dict() for row in rows if isinstance(row, Figure)],
        "summary": summary(rows),
    }
    as_json, markdown = folder / "benchmarks.json", folder / "benchmarks.md"
    as_json.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n")
    markdown.write_text(as_markdown(rows, head))
    return as_json, markdown
