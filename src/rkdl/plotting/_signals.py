"""Atoms, kernel vectors and reconstructions, as images, as signals or in the plane."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from rkdl._utils.types import MatrixLike
from rkdl.plotting._display import Display, Fitted, ImageShape, dense
from rkdl.plotting._drawing import (
    Style,
    can_name,
    check_image_shape,
    color_of,
    draw_images,
    draw_lines,
    draw_matrix,
    label_features,
    label_rows,
    signed_style,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D


class _RowsDisplay(Display):
    """Rows drawn as images, as signals one above the other, or as points of the plane."""

    _what = "signal"

    def __init__(
        self,
        signals: ArrayLike,
        *,
        image_shape: ImageShape = None,
        numbers: ArrayLike | None = None,
        X: MatrixLike = None,
        feature_names: ArrayLike | None = None,
    ) -> None:
        self.signals = np.asarray(signals)
        self.image_shape = check_image_shape(image_shape, self.signals.shape[1])
        self.numbers = np.arange(len(self.signals)) if numbers is None else np.asarray(numbers)
        self.X = None if X is None else dense(X)
        self.feature_names = feature_names

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        *,
        numbers: ArrayLike | None = None,
        image_shape: ImageShape = None,
        X: MatrixLike = None,
        ax: Axes | None = None,
        **kwargs: Any,
    ) -> Self:
        """Draw what was learned, or the rows of these numbers."""
        fitted = Fitted(estimator)
        signals = fitted.backward(cls._rows_of(fitted))
        signals, names = signals if numbers is None else signals[np.asarray(numbers)], fitted.feature_names
        return cls(signals, image_shape=image_shape, numbers=numbers, X=X, feature_names=names).plot(ax, **kwargs)

    @staticmethod
    def _rows_of(fitted: Fitted) -> np.ndarray:
        """All rows that can be drawn."""
        raise NotImplementedError

    def plot(self, ax: Axes | None = None, *, n_columns: int | None = None, **kwargs: Any) -> Self:
        """Draw the display."""
        ax = self._start(ax)
        self.image_: Any = None
        self.points_: Any = None
        self.lines_: list[Line2D] = []
        n_features = self.signals.shape[1]
        if self.image_shape is not None:
            images = self.signals.reshape(-1, *self.image_shape)
            columns = int(np.ceil(np.sqrt(len(images)))) if n_columns is None else n_columns
            self.image_ = draw_images(ax, images, columns, kwargs)
        elif n_features == 2:
            self._draw_points(ax, kwargs)
        else:
            if can_name(self.feature_names, n_features):
                middles = self._draw_heat_map(ax, kwargs)
            else:
                style = {"color": color_of(0), "linewidth": 1.0, **kwargs}
                self.lines_, middles = draw_lines(ax, (self.signals, style))
            label_rows(ax, middles, self.numbers, self._what)
            label_features(ax, self.feature_names, n_features)
        return self

    def _draw_points(self, ax: Axes, options: Style) -> None:
        if self.X is not None:
            ax.scatter(self.X[:, 0], self.X[:, 1], s=6, color="#999999", alpha=0.6, label="signals")
        marks: Style = {"s": 50, "marker": "D", "color": color_of(5), "edgecolors": "white", "zorder": 3}
        first, second = self.signals.T
        self.points_ = ax.scatter(first, second, **{**marks, "label": f"{self._what}s", **options})
        names = ("first feature", "second feature") if self.feature_names is None else self.feature_names
        ax.set(xlabel=str(np.asarray(names)[0]), ylabel=str(np.asarray(names)[1]))
        ax.legend()

    def _draw_heat_map(self, ax: Axes, options: Style) -> np.ndarray:
        # Columns of a table may have different units; differences below the rounding of a column are ignored.
        spread, sizes = self.signals.std(axis=0), np.abs(self.signals).max(axis=0)
        deviations = (self.signals - self.signals.mean(axis=0)) / np.where(spread > 1e-6 * sizes, spread, np.inf)
        style = {"aspect": "auto", **signed_style(float(np.abs(deviations).max(initial=0.0)) or 1.0)}
        label = f"standardised over the {self._what}s"
        self.image_, self.colorbar_ = draw_matrix(ax, deviations, label, options, **style)
        return np.arange(len(deviations))


class AtomsDisplay(_RowsDisplay):
    """Atoms: as images, in the plane if signals have two features, as a heat map if features have names, else as lines.

    The estimator is DL, a kernel method or KDLClassifier, whose atoms are numbered class by class. Atoms of kernel
    methods are shown by their pre-images, as the estimators' `atom_preimages` finds them. All images
    share one colour scale: grey, or, if some values are clearly negative, red for positive and blue for negative ones.
    In a heat map red is above and blue below the mean of the atoms, in standard deviations of each column.

    Attributes
    ----------
    image_ : matplotlib AxesImage or None
        All images side by side, or the heat map.
    lines_ : list of matplotlib Line2D
        One line per row, if they are drawn as signals.
    points_ : matplotlib PathCollection or None
        The rows as points of the plane.
    colorbar_ : matplotlib Colorbar
        Scale of the heat map, if there is one.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from rkdl import RKDL
    >>> from rkdl.plotting import AtomsDisplay
    >>> X, _ = load_digits(return_X_y=True)
    >>> model = RKDL(n_components=16, random_state=0).fit(X)
    >>> display = AtomsDisplay.from_estimator(model, image_shape=(8, 8))
    >>> display.image_.get_array().shape
    (35, 35)
    """

    _what = "atom"

    @staticmethod
    def _rows_of(fitted: Fitted) -> np.ndarray:
        found = fitted.get("atom_preimages", "give DL, a kernel method or KDLClassifier")()
        return np.concatenate(found) if isinstance(found, list) else found


class KernelVectorsDisplay(_RowsDisplay):
    """Kernel vectors, drawn as `AtomsDisplay` draws atoms, with the same attributes.

    The estimator is KDL, RKDL, ORKDL, MORKDL, KDLClassifier or KDLRegressor.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from rkdl import ORKDL
    >>> from rkdl.plotting import KernelVectorsDisplay
    >>> X, _ = make_moons(500, noise=0.05, random_state=0)
    >>> model = ORKDL(n_components=8, n_kernel_vectors=12, random_state=0).fit(X)
    >>> display = KernelVectorsDisplay.from_estimator(model, X=X)
    >>> display.points_.get_offsets().shape
    (12, 2)
    """

    _what = "kernel vector"

    @staticmethod
    def _rows_of(fitted: Fitted) -> np.ndarray:
        who = "give KDL, RKDL, ORKDL, MORKDL, KDLClassifier or KDLRegressor"
        found: np.ndarray = fitted.get("kernel_vectors_", who)
        model = fitted.model
        if np.ndim(found) != 2:
            raise ValueError(f"{type(model).__name__} does not have one set of kernel vectors here: {who}.")
        return found


class ReconstructionDisplay(Display):
    """Signals beside what their codes represent: images one above the other, or two lines per signal.

    Attributes
    ----------
    image_ : matplotlib AxesImage or None
        Images in three rows: signals, what their codes represent, and the difference. With colours, the first two.
    lines_ : list of matplotlib Line2D
        Two lines per signal, it and what its code represents, if they are not images.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from rkdl import ORKDL
    >>> from rkdl.plotting import ReconstructionDisplay
    >>> X, _ = load_digits(return_X_y=True)
    >>> model = ORKDL(n_components=32, n_kernel_vectors=64, random_state=0).fit(X)
    >>> display = ReconstructionDisplay.from_estimator(model, X[:10], image_shape=(8, 8))
    >>> display.image_.get_array().shape
    (26, 89)
    """

    def __init__(
        self,
        signals: ArrayLike,
        reconstructions: ArrayLike,
        *,
        image_shape: ImageShape = None,
        feature_names: ArrayLike | None = None,
    ) -> None:
        self.signals = np.asarray(signals)
        self.reconstructions = np.asarray(reconstructions)
        if self.signals.shape != self.reconstructions.shape:
            raise ValueError(
                f"There are signals of shape {self.signals.shape} and reconstructions of shape "
                f"{self.reconstructions.shape}: both must have the same shape."
            )
        self.image_shape = check_image_shape(image_shape, self.signals.shape[1])
        self.feature_names = feature_names

    def plot(self, ax: Axes | None = None, **kwargs: object) -> Self:
        """Draw the display."""
        ax = self._start(ax)
        self.image_ = None
        self.lines_: list[Line2D] = []
        if self.image_shape is None:
            signal = {"color": "#999999", "linewidth": 1.0, "label": "signal"}
            found = {"color": color_of(5), "linewidth": 1.4, "label": "representation", **kwargs}
            self.lines_, middles = draw_lines(ax, (self.signals, signal), (self.reconstructions, found))
            label_rows(ax, middles, np.arange(len(middles)), "signal")
            label_features(ax, self.feature_names, self.signals.shape[1])
            ax.legend()
            return self
        parts = [self.signals, self.reconstructions]
        if len(self.image_shape) == 2:
            parts.append(self.signals - self.reconstructions)
        images = np.concatenate([part.reshape(-1, *self.image_shape) for part in parts])
        self.image_ = draw_images(ax, images, len(self.signals), kwargs, is_signed=len(parts) == 3)
        # Names of the rows, beside the images rather than ticks, as there are no axes.
        for row, name in enumerate(("signal", "representation", "difference")[: len(parts)]):
            middle = row * (self.image_shape[0] + 1) + 0.5 * (self.image_shape[0] - 1)
            ax.text(-1.0, middle, name, ha="right", va="center")
        return self

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        X: MatrixLike,
        *,
        noise: float | None = None,
        image_shape: ImageShape = None,
        ax: Axes | None = None,
        **kwargs: object,
    ) -> Self:
        """Draw signals beside what their codes by DL or a kernel method represent."""
        fitted = Fitted(estimator)
        denoise = fitted.get("denoise", "give DL or a kernel method")
        found = fitted.backward(denoise(fitted.forward(X), noise=noise))
        display = cls(dense(X), found, image_shape=image_shape, feature_names=fitted.feature_names)
        return display.plot(ax, **kwargs)
