"""Figures: differences from KDL, errors per iteration, kernel vectors, error and time against their number."""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rkdl._reproduction.data import slug
from rkdl._reproduction.own import NAMES, SWEPT, floor_of, sweep
from rkdl._reproduction.paper import COMPARABLE, OWN, PAPER_METHODS, PRINTED_ERRORS
from rkdl._reproduction.store import SUMMARY_FIGURE, Results, figure_names, model_name
from rkdl._reproduction.summary import Summaries, Summary, columns, difference, ordered
from rkdl._utils.text import shown

# Okabe and Ito's colour-blind safe palette; markers distinguish methods in grey. KDL has the colour of the text.
_STYLES = {
    "KDL": ("", "s"),
    "RKDL-D": ("#0072B2", "o"),
    "ORKDL-D": ("#D55E00", "^"),
    "MORKDL-D": ("#009E73", "v"),
    "Nystrom": ("#CC79A7", "x"),
}
# The palette's other blue, which is easier to see on a dark page.
_LIGHTER = {"#0072B2": "#56B4E9"}
_THEMES = {"light": ("#ffffff", "#1d2329", "#dddddd"), "dark": ("#14181c", "#e4e8ec", "#3a434c")}
_TITLES = {
    "paper": "paper (the text)",
    "published": "published (the code)",
    "restricted": "restricted (one line changed)",
    "rkdl": "rkdl (defaults)",
}
_DPI = 150
_NARROW, _DARK = "(max-width: 40rem)", "(prefers-color-scheme: dark)"

Draw = Callable[[str, bool], Any]


class Figure(NamedTuple):
    """A drawn figure.

    Parameters
    ----------
    path : Path
        Its PNG in the folder, with an SVG of the same name.
    alt, caption : str
        What it shows, in a few words and in full.
    variants : tuple of (str, bytes)
        PNGs for other screens, by their media query; the first that matches is shown.
    """

    path: Path
    alt: str
    caption: str
    variants: tuple[tuple[str, bytes], ...]


def draw_figures(results: Results) -> tuple[dict[str, Figure], list[Path]]:
    """Draw all figures of results.json into the sub-folder ``figures``.

    Returns
    -------
    figures : dict
        Figures by name. Raises ImportError without matplotlib.
    unreadable : list of Path
        Models left out because their files are damaged.
    """
    drawn: dict[str, Figure] = {}
    unreadable: list[Path] = []
    with _look():
        for name, alt, caption, draw in _plan(results.content, partial(_kernel_vectors, results, unreadable)):
            drawn[name] = _save(draw, results, name, alt, caption)
    return drawn, unreadable


def draw_pngs(results: Results) -> dict[str, tuple[bytes, str, str]]:
    """PNG for a wide, light page, short and full description of each figure, by name; nothing is written."""
    with _look():
        return {
            name: (_png(draw, "light", False), alt, caption)
            for name, alt, caption, draw in _plan(results.content, partial(_kernel_vectors, results, []))
        }


@contextmanager
def _look() -> Iterator[None]:
    import matplotlib
    from matplotlib import style

    # A fixed hash salt makes SVG files reproducible.
    with style.context("rkdl.figures"), matplotlib.rc_context({"svg.hashsalt": "rkdl"}):
        yield


def _plan(content: dict[str, Any], read_vectors: Callable) -> Iterator[tuple[str, str, str, Draw]]:
    """Name, texts and drawing function of each figure that has something to show."""
    datasets = ordered(content)
    gaps = {name: found for name, (_, summaries) in datasets.items() if (found := _gaps(columns(summaries)))}
    if gaps:
        yield (
            SUMMARY_FIGURE,
            "Errors of the reduced methods relative to KDL in each column",
            "Error after the last iteration relative to KDL of the same column, in per cent: below zero is better "
            "than KDL. Bars are 95 % confidence intervals of the differences within rounds.",
            partial(_draw_gaps, gaps),
        )
    for name, (entry, summaries) in datasets.items():
        stem = slug(name)
        panels = _panels(columns(summaries))
        if panels:
            column = entry["printed"]["column"] if entry["printed"] else None
            caption = (
                f"{name}: error after every iteration, mean over rounds with a band of one standard deviation, on a "
                f"logarithmic axis. A round that converged early keeps its last error."
            )
            if column:
                caption += f" Open diamonds and the dashed line: the errors printed for {column}."
            yield f"{stem}-errors", f"Errors per iteration on {name}", caption, partial(_draw_curves, panels, column)
        if OWN in summaries and any(sweep(summaries[OWN], base) for base in SWEPT):
            yield (
                f"{stem}-sizes",
                f"Error and time against the number of kernel vectors on {name}",
                f"{name}: error and time against the number p of kernel vectors. Bars are one standard deviation of "
                f"the errors over rounds and half the range of the times. KDL, which uses all signals, is the floor.",
                partial(_draw_sizes, summaries[OWN]),
            )
        if entry["image_shape"]:
            shape = tuple(entry["image_shape"])
            vectors = read_vectors(name, columns(summaries), shape)
            if vectors:
                yield (
                    f"{stem}-kernel-vectors",
                    f"Kernel vectors of {name}",
                    f"{name}: 20 kernel vectors of the first round, each scaled from its minimum to its maximum. "
                    "Those of the text (paper) start as atoms of a linear dictionary, the library's (rkdl) "
                    f"as centres of k-means.{_moved(vectors)}",
                    partial(_draw_kernel_vectors, vectors, shape),
                )


def _save(draw: Draw, results: Results, name: str, alt: str, caption: str) -> Figure:
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    files = figure_names(name)
    with results.writing(files[0]) as stream:
        stream.write(_png(draw, "light", False))
    with results.writing(files[1]) as stream:
        FigureCanvasSVG(draw("light", False)).print_figure(stream, dpi=_DPI, format="svg", metadata={"Date": None})
    variants = (
        (f"{_DARK} and {_NARROW}", _png(draw, "dark", True)),
        (_NARROW, _png(draw, "light", True)),
        (_DARK, _png(draw, "dark", False)),
    )
    return Figure(results.folder / files[0], alt, caption, variants)


def _png(draw: Draw, theme: str, is_narrow: bool) -> bytes:
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    ground, ink, _ = _THEMES[theme]
    colours: Any = dict.fromkeys(
        ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), ink
    ) | dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), ground)
    with matplotlib.rc_context(colours):
        stream = io.BytesIO()
        FigureCanvasAgg(draw(theme, is_narrow)).print_figure(stream, dpi=_DPI, format="png")
    return stream.getvalue()


def _new_figure(width: float, height: float) -> Any:
    from matplotlib.figure import Figure as Canvas
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    # Avoid pyplot, which needs a display and global state.
    return Canvas(figsize=(width, height), layout=ConstrainedLayoutEngine(wspace=0.04, hspace=0.04))


def _grid(count: int, n_columns: int, width: float, height: float, **options: Any) -> tuple[Any, Any]:
    """A figure and its panels in rows of `n_columns`; sizes are of one panel."""
    n_rows = -(-count // n_columns)
    figure = _new_figure(width * n_columns, 0.6 + height * n_rows)
    return figure, figure.subplots(n_rows, n_columns, squeeze=False, **options)


def _style(method: str, theme: str) -> tuple[str, str]:
    colour, marker = _STYLES[method]
    if theme == "dark":
        colour = _LIGHTER.get(colour, colour)
    return colour or _THEMES[theme][1], marker


def _title(axes: Any, text: str) -> None:
    # Do not parse dollar signs in a file name as a formula.
    axes.set_title(textwrap.fill(shown(text), 38), parse_math=False)


Gaps = dict[str, dict[str, tuple[float, float]]]


def _gaps(summaries: Summaries) -> Gaps:
    """By preset and method: difference from KDL in per cent, and half of its interval."""
    found: Gaps = {}
    for preset, methods in summaries.items():
        for method in PAPER_METHODS[1:]:
            if {"KDL", method} <= methods.keys():
                margin = difference(methods[method], methods["KDL"])
                if math.isfinite(margin.centre):
                    half = 100 * (margin.half_width or 0.0)
                    found.setdefault(preset, {})[method] = -100 * margin.centre, half
    return found


def _draw_gaps(by_dataset: dict[str, Gaps], theme: str, is_narrow: bool) -> Any:
    presets = list(dict.fromkeys(preset for gaps in by_dataset.values() for preset in gaps))
    figure, grid = _grid(len(by_dataset), 1, 4.0 if is_narrow else 5.8, 0.45 + 0.3 * len(presets), sharex=True)
    handles: dict[str, Any] = {}
    for axes, (name, gaps) in zip(grid.flat, by_dataset.items(), strict=True):
        axes.axvline(0.0, color=_THEMES[theme][1], linewidth=1)
        for row, preset in enumerate(presets):
            for offset, method in enumerate(PAPER_METHODS[1:]):
                if method in gaps.get(preset, {}):
                    value, half = gaps[preset][method]
                    colour, marker = _style(method, theme)
                    place = row + 0.26 * (offset - 1)
                    handles[method] = axes.errorbar(
                        value,
                        place,
                        xerr=half,
                        color=colour,
                        marker=marker,
                        linestyle="none",
                        elinewidth=1.2,
                        capsize=2,
                    )
        axes.set_yticks(range(len(presets)), presets)
        axes.set_ylim(len(presets) - 0.5, -0.5)
        axes.grid(axis="x", color=_THEMES[theme][2], linewidth=0.6)
        axes.set_axisbelow(True)
        _title(axes, name)
    grid[-1, 0].set_xlabel("error relative to KDL of the same column, %")
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=3, frameon=False)
    return figure


Curves = dict[str, tuple[np.ndarray, np.ndarray]]


def _panels(summaries: Summaries) -> dict[str, Curves]:
    """Curves by preset and method; those that diverged, and presets without any other, are left out."""
    panels = {
        preset: {
            method: band
            for method in COMPARABLE
            if method in methods and np.isfinite((band := _band(methods[method]))[0]).all() and (band[0] > 0).all()
        }
        for preset, methods in summaries.items()
    }
    return {preset: curves for preset, curves in panels.items() if curves}


def _band(summary: Summary) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation over rounds after every iteration."""
    length = max(map(len, summary.curves.values()))
    rows = np.array([summary.curve_of(number, length) for number in summary.curves])
    return rows.mean(axis=0), rows.std(axis=0, ddof=1) if len(rows) > 1 else np.zeros(length)


def _draw_curves(panels: dict[str, Curves], column: str | None, theme: str, is_narrow: bool) -> Any:
    from matplotlib.ticker import LogLocator, MaxNLocator

    # One, two, three or two times two panels leave no place empty.
    n_columns = 1 if is_narrow else 2 if len(panels) == 4 else len(panels)
    figure, grid = _grid(len(panels), n_columns, 4.0 if is_narrow or len(panels) == 1 else 3.0, 2.4, sharey=True)
    handles: dict[str, Any] = {}
    for axes, (preset, curves) in zip(grid.flat, panels.items(), strict=True):
        for method, (mean, deviation) in curves.items():
            colour, marker = _style(method, theme)
            steps = np.arange(1, len(mean) + 1)
            lower = np.maximum(mean - deviation, mean / 10)
            axes.fill_between(steps, lower, mean + deviation, color=colour, alpha=0.2, linewidth=0)
            (handles[method],) = axes.plot(
                steps,
                mean,
                color=colour,
                marker=marker,
                markersize=4,
                markevery=max(1, len(mean) // 10),
                linewidth=1.5,
                linestyle="--" if method == "Nystrom" else "-",
            )
        if column is not None:
            _add_printed(axes, column, handles, preset, 1.06 * max(len(mean) for mean, _ in curves.values()), theme)
        _title(axes, _TITLES.get(preset, preset))
        axes.set_yscale("log")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(axis="y", color=_THEMES[theme][2], linewidth=0.6)
        axes.set_axisbelow(True)
    low, high = grid[0, 0].get_ylim()
    for axes in grid.flat:
        # The ticks of a logarithmic axis are too far apart for less than half a decade.
        axes.yaxis.set_major_locator(
            MaxNLocator(6, steps=[1, 2, 5, 10]) if high < 3.0 * low else LogLocator(subs=(1.0, 2.0, 3.0, 5.0))
        )
        axes.yaxis.set_major_formatter(lambda value, _: f"{1000 * value:.3g}")
        axes.minorticks_off()
    for axes in grid[:, 0]:
        axes.set_ylabel("error x 1000")
    for axes in grid[-1]:
        axes.set_xlabel("iteration")
    figure.legend(
        handles.values(), handles.keys(), loc="outside lower center", ncols=3 if is_narrow else 4, frameon=False
    )
    return figure


def _add_printed(axes: Any, column: str, handles: dict[str, Any], preset: str, end: float, theme: str) -> None:
    printed = PRINTED_ERRORS[column]
    if preset == "rkdl":
        lowest = min(printed.values())
        handles["lowest printed"] = axes.axhline(lowest, color="#888888", linewidth=1, linestyle=(0, (4, 3)), zorder=1)
        return
    look = {"marker": "D", "markersize": 5, "markerfacecolor": "none", "linestyle": "none", "zorder": 4}
    for method in PAPER_METHODS:
        axes.plot(end, printed[method], color=_style(method, theme)[0], **look)
    handles["printed"] = axes.lines[-len(PAPER_METHODS)]


def _draw_sizes(methods: dict[str, Summary], theme: str, is_narrow: bool) -> Any:
    figure, grid = _grid(2, 1 if is_narrow else 2, 4.0 if is_narrow else 3.0, 2.6)
    left, right = grid.flat
    handles: dict[str, Any] = {}
    for base in SWEPT:
        sizes = {p: found for p, found in sweep(methods, base).items() if math.isfinite(found.error.middle)}
        if not sizes:
            continue
        colour, marker = _style(base, theme)
        look = {"color": colour, "marker": marker, "markersize": 5, "linewidth": 1.5, "capsize": 2}
        errors = [found.error.middle for found in sizes.values()]
        scatter = [found.error.scatter or 0.0 for found in sizes.values()]
        handles[NAMES[base]] = left.errorbar(list(sizes), errors, yerr=scatter, **look)
        times = [found.time.middle for found in sizes.values()]
        right.errorbar(list(sizes), times, yerr=[found.time.scatter or 0.0 for found in sizes.values()], **look)
    full = floor_of(methods)
    if full is not None and math.isfinite(full.error.middle):
        look = {"color": _THEMES[theme][1], "linewidth": 1.2, "linestyle": (0, (4, 3))}
        handles["KDL, all signals"] = left.axhline(full.error.middle, **look)
        right.axhline(full.time.middle, **look)
    for axes, text in ((left, "error"), (right, "seconds")):
        axes.set_xscale("log")
        ticks = sorted({p for base in SWEPT for p in sweep(methods, base)})
        axes.set_xticks(ticks, [str(p) for p in ticks])
        axes.minorticks_off()
        axes.set_xlabel("kernel vectors, p")
        axes.set_ylabel(text)
        axes.grid(axis="y", color=_THEMES[theme][2], linewidth=0.6)
        axes.set_axisbelow(True)
    right.set_yscale("log")
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=2, frameon=False)
    return figure


def _kernel_vectors(
    results: Results, unreadable: list[Path], name: str, summaries: Summaries, shape: tuple[int, ...]
) -> dict[str, np.ndarray]:
    """Kernel vectors of saved models, by preset and method."""
    found = {}
    full_name = next(key for key in results.content["datasets"] if Path(key).name == name or key == name)
    for preset, methods in summaries.items():
        for method in ("RKDL-D", "ORKDL-D", "MORKDL-D"):
            path = results.folder / model_name(full_name, preset, method)
            if method not in methods or not path.exists():
                continue
            vectors = _read_kernel_vectors(path, shape)
            if vectors is None:
                unreadable.append(path)
            else:
                found[f"{preset}, {method}"] = vectors
    return found


def _read_kernel_vectors(path: Path, shape: tuple[int, ...]) -> np.ndarray | None:
    """Kernel vectors of a saved model; None if the file is damaged or holds something else."""
    from rkdl import load

    try:
        vectors = load(path).kernel_vectors_
    # Damaged files raise many kinds of exceptions.
    except Exception:
        return None
    return vectors if vectors.ndim == 2 and vectors.shape[1] == math.prod(shape) else None


def _moved(vectors: dict[str, np.ndarray]) -> str:
    """How far ORKDL-D has moved the kernel vectors of RKDL-D, from which it starts."""
    shares = []
    for preset in dict.fromkeys(label.partition(",")[0] for label in vectors):
        before, after = (vectors.get(f"{preset}, {method}") for method in ("RKDL-D", "ORKDL-D"))
        if before is not None and after is not None and before.shape == after.shape:
            lengths = np.linalg.norm(before, axis=1)
            if lengths.all():
                share = float(np.median(np.linalg.norm(after - before, axis=1) / lengths))
                shares.append(f"{100 * share:.0f} % in {preset}")
    return f" Relative to their norm, ORKDL-D moves them by {' and '.join(shares)} (median)." if shares else ""


def _draw_kernel_vectors(vectors: dict[str, np.ndarray], shape: tuple[int, ...], theme: str, is_narrow: bool) -> Any:
    mosaics = {
        label: _mosaic([_tile(vector, shape) for vector in found[:20]], 5, gap=max(1, shape[0] // 12))
        for label, found in vectors.items()
    }
    n_columns = min(3, len(mosaics))
    n_rows = -(-len(mosaics) // n_columns)
    height, width = next(iter(mosaics.values())).shape[:2]
    panel = (4.0 if is_narrow else 6.0) / n_columns
    figure = _new_figure(panel * n_columns, (panel * height / width + 0.25) * n_rows)
    all_axes = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
    for axes in all_axes:
        axes.axis("off")
    for axes, (label, mosaic) in zip(all_axes, mosaics.items(), strict=False):
        axes.imshow(mosaic, interpolation="nearest")
        axes.set_title(label, fontsize=7 if is_narrow else 9)
    return figure


def _tile(vector: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Convert a vector to an RGB image from 0 to 1."""
    image = vector.reshape(shape).astype(float)
    low, high = float(np.nanmin(image)), float(np.nanmax(image))
    image = np.nan_to_num((image - low) / (high - low or 1.0))
    return np.repeat(image[:, :, None], 3, axis=2) if image.ndim == 2 else image[:, :, :3]


def _mosaic(tiles: list[np.ndarray], n_columns: int, gap: int) -> np.ndarray:
    """Arrange tiles in rows, with gaps that are transparent."""
    height, width = tiles[0].shape[:2]
    n_columns = min(n_columns, len(tiles))
    n_rows = -(-len(tiles) // n_columns)
    mosaic = np.zeros((n_rows * (height + gap) - gap, n_columns * (width + gap) - gap, 4))
    for number, tile in enumerate(tiles):
        row, column = divmod(number, n_columns)
        place = mosaic[row * (height + gap) :, column * (width + gap) :][:height, :width]
        place[..., :3], place[..., 3] = tile, 1.0
    return mosaic
