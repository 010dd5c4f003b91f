"""Colours, labels of axes, and images side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from rkdl.plotting._display import ImageShape

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage
    from matplotlib.lines import Line2D

Style = dict[str, Any]  # Options of a function of matplotlib.
# Okabe and Ito's colours, which colour-blind people can tell apart; black is left for boundaries.
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
# Pre-images of nonnegative images may be slightly negative, relative to the largest value.
SLIGHTLY = 0.2
# Share of the pixels within the range of colours, at each end.
SHOWN = 0.998
# Largest numbers of rows, and of features by name, that are labelled along an axis.
MAX_ROWS, MAX_NAMES = 25, 40
SIGNED_MAP, UNSIGNED_MAP = "RdBu_r", "gray"


def color_of(index: int) -> str:
    """The colour of a class, or of a line."""
    return COLORS[index % len(COLORS)]


def can_name(names: ArrayLike | None, n_features: int) -> bool:
    """Whether features have names, and are few enough to show them."""
    return names is not None and n_features <= MAX_NAMES


def label_features(ax: Axes, names: ArrayLike | None, n_features: int) -> None:
    """Name the features along the horizontal axis if they have names and are few."""
    if can_name(names, n_features):
        ax.set_xticks(np.arange(n_features), [str(name) for name in np.asarray(names)], rotation=90)
    else:
        ax.set_xlabel("feature")


def label_rows(ax: Axes, positions: np.ndarray, numbers: np.ndarray, what: str) -> None:
    """Number rows that are drawn one above the other; if there are many, only some of them."""
    step = -(-len(numbers) // MAX_ROWS) or 1
    ax.set_yticks(positions[::step], [str(number) for number in numbers[::step]])
    ax.set_ylabel(what)


def draw_lines(ax: Axes, *curves: tuple[np.ndarray, Style]) -> tuple[list[Line2D], np.ndarray]:
    """Rows one above the other, of one or more matrices with their styles: the lines, and the middles of the rows."""
    together = np.concatenate([rows for rows, _ in curves], axis=1)
    distance = 1.1 * float(np.ptp(together, axis=1).max(initial=0.0)) or 1.0
    offsets = -distance * np.arange(len(together))
    lines = []
    for number, offset in enumerate(offsets):
        for rows, style in curves:
            lines += ax.plot(rows[number] + offset, **(style if number == 0 else style | {"label": None}))
    return lines, offsets + 0.5 * (together.max(axis=1) + together.min(axis=1))


def draw_curve(ax: Axes, values: np.ndarray, options: Style, **style: object) -> Line2D:
    """Values at 1, 2, 3 and so on; each curve that is added to the same axes has the next colour."""
    color = color_of(sum(line.get_linestyle() == "-" for line in ax.lines))
    ax.locator_params(axis="x", integer=True)
    together: Style = {"color": color, "marker": "o", "markersize": 4, **style, **options}
    return ax.plot(1 + np.arange(len(values)), values, **together)[0]


def draw_matrix(ax: Axes, matrix: np.ndarray, label: str, options: Style, **style: object) -> tuple:
    """A matrix as an image with its colour bar; without smoothing, which would hide zeros."""
    image = ax.imshow(matrix, **{"interpolation": "nearest", **style, **options})
    return image, ax.figure.colorbar(image, ax=ax, label=label)


def signed_style(largest: float) -> Style:
    """Red for positive and blue for negative numbers, around white."""
    return {"cmap": SIGNED_MAP, "vmin": -largest, "vmax": largest}


def check_image_shape(image_shape: ImageShape, n_features: int) -> ImageShape:
    """The shape of an image as a tuple, if it fits the signals."""
    if image_shape is None:
        return None
    shape = tuple(int(size) for size in image_shape)
    if len(shape) not in (2, 3) or int(np.prod(shape)) != n_features or (len(shape) == 3 and shape[2] not in (3, 4)):
        raise ValueError(
            f"image_shape={image_shape!r} does not fit signals of {n_features} features: give (height, width), or "
            f"(height, width, 3) for colours, whose product is {n_features}."
        )
    return shape


def draw_images(ax: Axes, images: np.ndarray, n_columns: int, options: Style, is_signed: bool = False) -> AxesImage:
    """Draw images side by side in grey, or in red and blue around white if their negative values matter."""
    style: Style = {}
    if images.ndim == 3:
        style = _color_scale(images, is_signed)
    else:
        # Colours are between 0 and 1.
        low, high = float(images.min()), float(images.max())
        if low < 0.0 or high > 1.0:
            images = (images - low) / ((high - low) or 1.0)
    ax.set_axis_off()
    return ax.imshow(_tile(images, n_columns), **{**style, **options})


def _tile(images: np.ndarray, n_columns: int) -> np.ndarray:
    """Images (n, height, width) or (n, height, width, channels) side by side, row by row, a pixel apart.

    The gaps are NaN, which is drawn transparent, or white between colour images.
    """
    n_images, height, width, *channels = images.shape
    n_rows = -(-n_images // n_columns)
    tiles = np.full((n_rows * n_columns, height + 1, width + 1, *channels), 1.0 if channels else np.nan)
    tiles[:n_images, :height, :width] = images
    rows = tiles.reshape(n_rows, n_columns, height + 1, width + 1, *channels).swapaxes(1, 2)
    return rows.reshape(n_rows * (height + 1), n_columns * (width + 1), *channels)[:-1, :-1]


def _color_scale(values: np.ndarray, is_signed: bool) -> Style:
    """Colour map and limits: symmetric around zero if `is_signed`, or if some values are clearly negative."""
    # A few extreme pixels would leave the others pale.
    low, high = (float(limit) for limit in np.quantile(values, [1.0 - SHOWN, SHOWN]))
    low, high = min(low, 0.0), max(high, 0.0)
    if low == high:
        low, high = float(values.min(initial=0.0)), float(values.max(initial=0.0)) or 1.0
    largest = max(-low, high)
    if is_signed or low < -SLIGHTLY * largest:
        return signed_style(largest)
    return {"cmap": UNSIGNED_MAP, "vmin": low, "vmax": high}
