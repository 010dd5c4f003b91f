"""Figures: errors per iteration, learned kernel vectors, and the composition of atoms."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rkdl._persistence.files import open_regular
from rkdl._persistence.npz import read_npz
from rkdl._reproduction.data import slug
from rkdl._reproduction.paper import COMPARABLE, N_COMPONENTS, N_KERNEL_VECTORS, PAPER_METHODS, PRINTED_ERRORS
from rkdl._reproduction.store import Results, figure_names, model_name
from rkdl._reproduction.summary import Summary, ordered
from rkdl._reproduction.tables import printed_name
from rkdl._utils.text import shown

# Okabe and Ito's colour-blind safe palette; markers distinguish methods in grey.
_STYLES = {
    "KDL": ("#333333", "s"),
    "RKDL-D": ("#0072B2", "o"),
    "ORKDL-D": ("#D55E00", "^"),
    "MORKDL-D": ("#009E73", "v"),
    "Nystrom": ("#CC79A7", "x"),
}
_PLUS, _MINUS = (0.0, 0.447, 0.698), (0.835, 0.369, 0.0)
_TITLES = {"paper": "paper (the text)", "published": "published (the code, dense codes)", "rkdl": "rkdl (defaults)"}
_DPI = 150
_N_STRONGEST = 5


class Figure(NamedTuple):
    """Path of a figure's PNG (with an SVG of the same name) and its caption."""

    path: Path
    caption: str


def draw_figures(results: Results) -> tuple[dict[str, list[Figure]], list[Path]]:
    """Draw all figures of results.json into the sub-folder ``figures``.

    Returns
    -------
    figures : dict
        The figures of each data set. Raises ImportError without matplotlib.
    unreadable : list of Path
        Models left out because their files are damaged.
    """
    import matplotlib

    drawn: dict[str, list[Figure]] = {}
    unreadable: list[Path] = []
    # A fixed hash salt makes SVG files reproducible.
    look: Any = {"font.size": 9, "svg.hashsalt": "rkdl", "axes.spines.top": False, "axes.spines.right": False}
    with matplotlib.rc_context(look):
        for name, (entry, summaries) in ordered(results.content).items():
            drawn[name] = list(_figures_of(name, entry, summaries, results, unreadable))
    return drawn, unreadable


def _figures_of(
    name: str,
    entry: dict[str, Any],
    summaries: dict[str, dict[str, Summary]],
    results: Results,
    unreadable: list[Path],
) -> Iterator[Figure]:
    stem = slug(name)
    figure = _draw_curves(name, entry, summaries)
    if figure is not None:
        caption = (
            "Error after every iteration: mean over rounds, with a band of one standard deviation. A round that "
            "converged early keeps its last error. DL and Fourier are left out: their errors are not comparable."
        )
        if printed_name(entry):
            caption += f" Open diamonds and the dashed line: the figures printed for {printed_name(entry)}."
        yield _save(figure, results, f"{stem}-errors", caption)
    if not entry["image_shape"]:
        return
    shape = tuple(entry["image_shape"])
    for preset, methods in summaries.items():
        models = {}
        for method in methods:
            path = results.folder / model_name(name, preset, method)
            if not path.exists():
                continue
            model = _read_model(path, shape)
            if model is None:
                unreadable.append(path)
            else:
                models[method] = model
        if not models:
            continue
        yield _save(
            _draw_kernel_vectors(models, shape),
            results,
            f"{stem}-{preset}-kernel-vectors",
            f"{preset}: kernel vectors of the first round, each scaled from its minimum to its maximum.",
        )
        method = next(method for method in ("MORKDL-D", "ORKDL-D", "RKDL-D", "Nystrom") if method in models)
        yield _save(
            _draw_atoms(models[method], shape),
            results,
            f"{stem}-{preset}-atoms",
            f"{preset}: the atoms of {method} in the first round, as their {_N_STRONGEST} kernel vectors of largest "
            f"weight. Blue frames and + mark positive weights, orange frames and - negative ones.",
        )


def _read_model(path: Path, shape: tuple[int, ...]) -> dict[str, np.ndarray] | None:
    """Read kernel vectors and atoms; None if the file is damaged or holds something else."""
    largest = 8 * N_KERNEL_VECTORS * (math.prod(shape) + N_COMPONENTS) + 4096
    try:
        with open_regular(path) as stream:
            vectors, dual = read_npz(stream, ["kernel_vectors", "dual_components"], largest).values()
    # zipfile, zlib and NumPy raise many kinds of exceptions on damaged files.
    except Exception:
        return None
    numbers = vectors.dtype.kind == dual.dtype.kind == "f"
    if not numbers or vectors.ndim != 2 or dual.ndim != 2 or not dual.size or dual.shape[1] != len(vectors):
        return None
    return {"kernel_vectors": vectors, "dual_components": dual} if vectors.shape[1] == np.prod(shape) else None


def _save(figure: Any, results: Results, stem: str, caption: str) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    png, svg = figure_names(stem)
    with results.writing(png) as stream:
        FigureCanvasAgg(figure).print_figure(stream, dpi=_DPI, format="png")
    with results.writing(svg) as stream:
        FigureCanvasSVG(figure).print_figure(stream, dpi=_DPI, format="svg", metadata={"Date": None})
    return Figure(results.folder / png, caption)


def _new_figure(width: float, height: float) -> Any:
    from matplotlib.figure import Figure as Canvas
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    # Avoid pyplot, which needs a display and global state.
    return Canvas(figsize=(width, height), layout=ConstrainedLayoutEngine(wspace=0.04, hspace=0.02))


def _draw_curves(name: str, entry: dict[str, Any], summaries: dict[str, dict[str, Summary]]) -> Any:
    panels = {
        preset: {method: _band(methods[method]) for method in COMPARABLE if method in methods}
        for preset, methods in summaries.items()
    }
    panels = {preset: curves for preset, curves in panels.items() if curves}
    if not panels:
        return None
    column = printed_name(entry)
    width = max(5.6, 1.2 + 3.1 * len(panels))
    figure = _new_figure(width, 3.9)
    all_axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    handles: dict[str, Any] = {}
    for axes, (preset, curves) in zip(all_axes, panels.items(), strict=True):
        for method, (mean, deviation) in curves.items():
            colour, marker = _STYLES[method]
            steps = np.arange(1, len(mean) + 1)
            axes.fill_between(steps, mean - deviation, mean + deviation, color=colour, alpha=0.18, linewidth=0)
            (handles[method],) = axes.plot(
                steps,
                mean,
                color=colour,
                marker=marker,
                markersize=4,
                markevery=max(1, len(mean) // 10),
                linewidth=1.5,
                linestyle="--" if method == "Nystrom" else "-",
                label=method,
            )
        if column is not None:
            end = max(len(mean) for mean, _ in curves.values())
            _add_printed(axes, column, handles, preset, 1.06 * end)
        axes.set_title(_TITLES.get(preset, preset))
        axes.set_xlabel("iteration")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.grid(axis="y", color="#dddddd", linewidth=0.6)
        axes.set_axisbelow(True)
    low, high = _limits(panels, column)
    all_axes[0].set_ylim(low, high)
    all_axes[0].set_ylabel("error sqrt(f / (m N)) x 1000")
    all_axes[0].yaxis.set_major_formatter(lambda value, _: f"{1000 * value:g}")
    title = textwrap.fill(shown(f"{name}: {entry['description']}"), round(12 * width))
    # Do not parse dollar signs in a file name as a formula.
    figure.suptitle(title, fontsize=10, parse_math=False)
    n_columns = len(handles) if width > 9 or len(handles) <= 4 else -(-len(handles) // 2)
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=n_columns, frameon=False)
    return figure


def _add_printed(axes: Any, column: str, handles: dict[str, Any], preset: str, end: float) -> None:
    printed = PRINTED_ERRORS[column]
    if preset == "rkdl":
        lowest = min(printed.values())
        handles["lowest printed"] = axes.axhline(lowest, color="#777777", linewidth=1, linestyle=(0, (4, 3)), zorder=1)
        return
    look = {"marker": "D", "markersize": 5, "markerfacecolor": "white", "linestyle": "none", "zorder": 4}
    for method in PAPER_METHODS:
        axes.plot(end, printed[method], color=_STYLES[method][0], **look)
    handles["printed"] = axes.lines[-len(PAPER_METHODS)]


def _band(summary: Summary) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation over rounds after every iteration; NaN if a round diverged."""
    length = max(len(curve) for curve in summary.curves)
    rows = np.array(
        [
            [np.nan if value is None else value for value in (*curve, *[curve[-1]] * (length - len(curve)))]
            for curve in summary.curves
        ],
        dtype=float,
    )
    deviation = rows.std(axis=0, ddof=1) if len(rows) > 1 else np.zeros(length)
    return rows.mean(axis=0), deviation


def _limits(panels: dict[str, dict[str, tuple]], column: str | None) -> tuple[float, float]:
    """Limits from the third iteration on, because the error of a random start would dominate the axis."""
    means = [mean for curves in panels.values() for mean, _ in curves.values()]
    late = np.concatenate([mean[2:] if len(mean) > 2 else mean for mean in means])
    late = late[np.isfinite(late)]
    values = [*late, *(PRINTED_ERRORS[column].values() if column else ())]
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    room = 0.06 * (high - low) or 0.05 * high or 1e-6
    return low - room, high + room


def _draw_kernel_vectors(models: dict[str, dict[str, np.ndarray]], shape: tuple[int, ...]) -> Any:
    mosaics = []
    for model in models.values():
        tiles = [_tile(vector, shape) for vector in model["kernel_vectors"]]
        mosaics.append(_mosaic(tiles, 10, gap=max(1, shape[0] // 12)))
    axes, places = _pinboard(mosaics, 2, above=0.14, below=0.0)
    for method, (left, top, size) in zip(models, places, strict=True):
        axes.text(left + size / 2, top, method, fontsize=11, ha="center", va="bottom")
    return axes.figure


def _draw_atoms(model: dict[str, np.ndarray], shape: tuple[int, ...]) -> Any:
    weights = model["dual_components"]
    frame = max(1, shape[0] // 14)
    strips = []
    strongest = [np.argsort(-np.abs(row), kind="stable")[:_N_STRONGEST] for row in weights]
    for row, chosen in zip(weights, strongest, strict=True):
        tiles = [
            _framed(_tile(model["kernel_vectors"][i], shape), frame, _PLUS if row[i] >= 0 else _MINUS) for i in chosen
        ]
        strips.append(_mosaic(tiles, _N_STRONGEST, gap=frame))
    axes, places = _pinboard(strips, 4, above=0.34, below=0.34)
    height = strips[0].shape[0]
    for number, (left, top, size) in enumerate(places):
        axes.text(left, top - 0.03 * height, f"atom {number + 1}", fontsize=8, ha="left", va="bottom")
        for position, i in enumerate(strongest[number]):
            label = f"{weights[number, i]:+.2g}".replace("e+0", "e")
            middle = left + (position + 0.5) * size / len(strongest[number])
            axes.text(middle, top + 1.05 * height, label, fontsize=6, ha="center", va="top")
    return axes.figure


def _pinboard(
    images: list[np.ndarray], n_columns: int, above: float, below: float
) -> tuple[Any, list[tuple[float, float, float]]]:
    """Arrange images of one size in a figure, with room for text above and below, in shares of their height.

    They are drawn as one image on one axes, because laying out dozens of axes takes seconds.

    Returns
    -------
    axes
        In units of pixels of the images.
    places : list of (left, top, width)
        Position of each image.
    """
    from matplotlib.figure import Figure as Canvas

    height, width = images[0].shape[:2]
    n_columns = min(n_columns, len(images))
    n_rows = -(-len(images) // n_columns)
    head, gap = round(above * height), max(2, round(0.03 * width))
    step = head + height + max(2, round(below * height))
    board = np.ones((n_rows * step, n_columns * (width + gap) + gap, 3))
    places = []
    for number, image in enumerate(images):
        row, column = divmod(number, n_columns)
        top, left = row * step + head, gap + column * (width + gap)
        board[top : top + height, left : left + width] = image
        places.append((left - 0.5, top - 0.5, float(width)))
    size = 10.0 if n_columns > 1 else 5.0
    figure = Canvas(figsize=(size, size * board.shape[0] / board.shape[1]))
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.axis("off")
    axes.imshow(board, interpolation="nearest", aspect="auto")
    return axes, places


def _tile(vector: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Convert a vector to an RGB image from 0 to 1."""
    image = vector.reshape(shape).astype(float)
    low, high = float(np.nanmin(image)), float(np.nanmax(image))
    image = np.nan_to_num((image - low) / (high - low or 1.0))
    return np.repeat(image[:, :, None], 3, axis=2) if image.ndim == 2 else image[:, :, :3]


def _framed(tile: np.ndarray, width: int, colour: tuple[float, float, float]) -> np.ndarray:
    height, length = tile.shape[:2]
    framed = np.empty((height + 2 * width, length + 2 * width, 3))
    framed[:] = colour
    framed[width:-width, width:-width] = tile
    return framed


def _mosaic(tiles: list[np.ndarray], n_columns: int, gap: int) -> np.ndarray:
    """Arrange tiles in rows with white gaps."""
    height, width = tiles[0].shape[:2]
    n_columns = min(n_columns, len(tiles))
    n_rows = -(-len(tiles) // n_columns)
    mosaic = np.ones((n_rows * (height + gap) - gap, n_columns * (width + gap) - gap, 3))
    for number, tile in enumerate(tiles):
        row, column = divmod(number, n_columns)
        mosaic[row * (height + gap) :, column * (width + gap) :][:height, :width] = tile
    return mosaic
