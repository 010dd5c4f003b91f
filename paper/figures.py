"""The figures: errors relative to KDL, and errors per iteration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import style
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from paper.claims import REDUCED, Interval, Methods, common_rounds, gap
from paper.data import Data
from paper.runs import Runs, slug
from paper.settings import COLUMNS, PAPER_METHODS, PRINTED_ERRORS, printed_column

# Okabe and Ito's palette, which is safe for colour-blind readers; markers distinguish methods in grey.
STYLES = {
    "KDL": ("#1d2329", "s"),
    "RKDL-D": ("#0072B2", "o"),
    "ORKDL-D": ("#D55E00", "^"),
    "MORKDL-D": ("#009E73", "v"),
    "Nystrom": ("#CC79A7", "x"),
}


def draw_all(folder: Path, found: dict[str, tuple[Data, Runs]]) -> None:
    """Draw all figures into the sub-folder ``figures``."""
    (folder / "figures").mkdir(exist_ok=True)
    with style.context("rkdl.figures"):
        _save(_draw_gaps(found), folder, "against-kdl")
        for name, (_, runs) in found.items():
            _save(_draw_curves(runs, printed_column(name)), folder, f"{slug(name)}-errors")


def _save(figure: Figure, folder: Path, name: str) -> None:
    FigureCanvasAgg(figure).print_figure(folder / "figures" / f"{name}.png", dpi=150)


def _draw_gaps(found: dict[str, tuple[Data, Runs]]) -> Figure:
    figure = Figure(figsize=(6.0, 0.6 + 1.6 * len(found)), layout="constrained")
    grid = figure.subplots(len(found), 1, sharex=True, squeeze=False)[:, 0]
    handles: dict[str, Any] = {}
    for axes, (name, (_, runs)) in zip(grid, found.items(), strict=True):
        columns = [column for column in COLUMNS if column in runs]
        for row, column in enumerate(columns):
            for offset, method in enumerate(REDUCED):
                if not common_rounds(runs[column], (method, "KDL")):
                    continue
                interval = Interval.of(gap(runs[column], method, "KDL"))
                place, half = row + 0.26 * (offset - 1), 100 * (interval.half or 0.0)
                look = dict(zip(("color", "marker"), STYLES[method], strict=True)) | {"linestyle": "none", "capsize": 2}
                handles[method] = axes.errorbar(100 * interval.mean, place, xerr=half, **look)
        axes.axvline(0.0, color="#1d2329", linewidth=1)
        axes.set_yticks(range(len(columns)), columns)
        axes.set_ylim(len(columns) - 0.5, -0.5)
        axes.grid(axis="x", color="#dddddd")
        axes.set_title(Path(name).name, parse_math=False)
    grid[-1].set_xlabel("error relative to KDL of the same column, %")
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3, frameon=False)
    return figure


def _draw_curves(runs: Runs, printed: str | None) -> Figure:
    columns = [column for column in COLUMNS if column in runs]
    n_rows = -(-len(columns) // 2)
    figure = Figure(figsize=(6.4, 0.6 + 2.4 * n_rows), layout="constrained")
    grid = figure.subplots(n_rows, 2, sharey=True, squeeze=False)
    handles: dict[str, Any] = {}
    for axes, column in zip(grid.flat, columns, strict=False):
        for method, (colour, marker) in STYLES.items():
            if method not in runs[column]:
                continue
            mean, deviation = _band(runs[column], method)
            steps = np.arange(1, len(mean) + 1)
            axes.fill_between(steps, mean - deviation, mean + deviation, color=colour, alpha=0.2, linewidth=0)
            (handles[method],) = axes.plot(
                steps, mean, color=colour, marker=marker, markersize=4, markevery=max(1, len(mean) // 10)
            )
        if printed is not None and column != "rkdl":
            end = axes.get_xlim()[1]
            for method in PAPER_METHODS:
                (mark,) = axes.plot(end, PRINTED_ERRORS[printed][method], "D", mfc="none", color=STYLES[method][0])
            handles["printed"] = mark
        axes.set_title(column)
        axes.set_yscale("log")
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.yaxis.set_major_locator(MaxNLocator(6))
        axes.yaxis.set_major_formatter(lambda value, _: f"{1000 * value:.3g}")
        axes.minorticks_off()
        axes.grid(axis="y", color="#dddddd")
    for axes in grid.flat[len(columns) :]:
        axes.axis("off")
    for axes in grid[:, 0]:
        axes.set_ylabel("error x 1000")
    for axes in grid[-1]:
        axes.set_xlabel("iteration")
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=6, frameon=False)
    return figure


def _band(methods: Methods, method: str) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation after every iteration; a round that has converged keeps its last error."""
    curves = [run["errors"] for run in methods[method].values()]
    length = max(map(len, curves))
    rows = np.array([curve + [curve[-1]] * (length - len(curve)) for curve in curves])
    return rows.mean(axis=0), rows.std(axis=0, ddof=1) if len(rows) > 1 else np.zeros(length)
