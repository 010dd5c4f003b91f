"""What the displays share: axes, colours, pipelines, images side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

# Okabe and Ito's colours, which the colour-blind tell apart; black is left for boundaries.
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
# Pre-images of nonnegative images may be slightly negative, relative to the largest value.
SLIGHTLY = 0.2
# Share of the pixels within the range of colours, at each end.
SHOWN = 0.998
# Largest numbers of rows, and of features by name, that are labelled along an axis.
MAX_ROWS, MAX_NAMES = 25, 40
SIGNED_MAP, UNSIGNED_MAP, HEIGHT_MAP = "RdBu_r", "gray", "cividis"


def get_axes(ax: Any) -> Any:
    """The given axes, or those of a new figure."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "rkdl.plotting draws with matplotlib, which is not installed: pip install 'rkdl[plots]'."
        ) from error
    return plt.subplots(layout="constrained")[1] if ax is None else ax


def color_of(index: int) -> str:
    """The colour of a class, or of a line."""
    return COLORS[index % len(COLORS)]


def split_pipeline(estimator: Any) -> tuple[Any, Any]:
    """The steps of a pipeline before its last one, None if there are none, and the estimator itself."""
    if not isinstance(estimator, Pipeline):
        check_is_fitted(estimator)
        return None, estimator
    check_is_fitted(estimator[-1])
    return (estimator[:-1] if len(estimator.steps) > 1 else None), estimator[-1]


def forward(steps: Any, X: Any) -> Any:
    """Signals as the last step of a pipeline sees them."""
    return X if steps is None else steps.transform(X)


def backward(steps: Any, signals: np.ndarray) -> np.ndarray:
    """Signals of the last step in the units of the pipeline's input."""
    if steps is None:
        return signals
    if not hasattr(steps, "inverse_transform"):
        names = ", ".join(type(step).__name__ for _, step in steps.steps)
        raise ValueError(
            f"What was learned cannot be shown in the units of the pipeline's input, because not all of its steps "
            f"({names}) have an inverse_transform: give its last step, pipeline[-1]."
        )
    return np.asarray(steps.inverse_transform(signals))


def feature_names_of(estimator: Any) -> Any:
    """Names of the features that an estimator or a pipeline was fitted on; None if they have none."""
    return getattr(estimator, "feature_names_in_", None)


def label_features(ax: Any, names: ArrayLike | None, n_features: int) -> None:
    """Name the features along the horizontal axis if they have names and are few."""
    if names is None or n_features > MAX_NAMES:
        ax.set_xlabel("feature")
    else:
        ax.set_xticks(np.arange(n_features), [str(name) for name in np.asarray(names)], rotation=90)


def label_plane(ax: Any, names: ArrayLike | None) -> None:
    """Name the two features of points in the plane."""
    first, second = ("first feature", "second feature") if names is None else np.asarray(names)
    ax.set(xlabel=str(first), ylabel=str(second))


def label_rows(ax: Any, positions: np.ndarray, numbers: np.ndarray) -> None:
    """Number rows that are drawn one above the other; if there are many, only some of them."""
    step = -(-len(numbers) // MAX_ROWS) or 1
    ax.set_yticks(positions[::step], [str(number) for number in numbers[::step]])


def needs_method(estimator: Any, name: str, what: str) -> Any:
    """A method or a fitted attribute of an estimator, or an error that says who has it."""
    found = getattr(estimator, name, None)
    if found is None:
        raise ValueError(f"{type(estimator).__name__} has no {name}: {what}.")
    return found


def dense(X: Any) -> np.ndarray:
    """Signals in memory, one per row."""
    return np.asarray(X.toarray() if hasattr(X, "toarray") else X)


def check_image_shape(image_shape: tuple[int, ...] | None, n_features: int) -> tuple[int, ...] | None:
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


def tile(images: np.ndarray, n_columns: int) -> np.ndarray:
    """Images (n, height, width) or (n, height, width, channels) side by side, row by row, a pixel apart.

    What is between them is NaN, which is drawn transparent; white between images with colours.
    """
    n_images, height, width, *channels = images.shape
    n_rows = -(-n_images // n_columns)
    gap = np.nan if not channels else 1.0
    tiled = np.full((n_rows * (height + 1) - 1, n_columns * (width + 1) - 1, *channels), gap)
    for number, image in enumerate(images):
        row, column = divmod(number, n_columns)
        top, left = row * (height + 1), column * (width + 1)
        tiled[top : top + height, left : left + width] = image
    return tiled


def draw_images(ax: Any, images: np.ndarray, n_columns: int, options: dict[str, Any], is_signed: bool = False) -> Any:
    """Draw images side by side in grey, or in red and blue around white if their negative values matter."""
    if images.ndim == 4:
        # Colours are between 0 and 1.
        low, high = float(images.min()), float(images.max())
        if low < 0.0 or high > 1.0:
            images = (images - low) / ((high - low) or 1.0)
        image = ax.imshow(tile(images, n_columns), **options)
    else:
        image = ax.imshow(tile(images, n_columns), **{**_color_scale(images, is_signed), **options})
    ax.set_axis_off()
    return image


def _color_scale(values: np.ndarray, is_signed: bool) -> dict[str, Any]:
    """Colour map and limits: symmetric around zero if `is_signed`, or if some values are clearly negative."""
    # A few extreme pixels would leave the others pale.
    low, high = (float(limit) for limit in np.quantile(values, [1.0 - SHOWN, SHOWN]))
    low, high = min(low, 0.0), max(high, 0.0)
    if low == high:
        low, high = float(values.min(initial=0.0)), float(values.max(initial=0.0)) or 1.0
    largest = max(-low, high)
    if is_signed or low < -SLIGHTLY * largest:
        return {"cmap": SIGNED_MAP, "vmin": -largest, "vmax": largest}
    return {"cmap": UNSIGNED_MAP, "vmin": low, "vmax": high}


def group_rows(n_rows: int, y: ArrayLike | None) -> list[tuple[Any, np.ndarray]]:
    """Labels and the rows that have them, in the order of the labels; all rows under None without labels."""
    if y is None:
        return [(None, np.arange(n_rows))]
    labels = np.asarray(y)
    if labels.shape != (n_rows,):
        raise ValueError(f"y has shape {labels.shape}, and there are {n_rows} signals: give one label per signal.")
    return [(label, np.flatnonzero(labels == label)) for label in np.unique(labels)]
