"""Decisions, scores and residuals over the plane."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, is_classifier, is_outlier_detector

from rkdl._utils.types import MatrixLike
from rkdl.plotting._display import Display, Fitted, dense, group_rows
from rkdl.plotting._drawing import RESIDUAL_MAP, SCORE_MAP, Style, color_of, label_plane

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection


class DecisionContourDisplay(Display):
    """What an estimator makes of the plane: regions of classes, scores of a detector, residuals of a dictionary.

    Yellow is what is represented badly: a large residual, or the low score of an outlier.

    Attributes
    ----------
    surface_ : matplotlib QuadContourSet
        The filled contours.
    boundary_ : matplotlib QuadContourSet or None
        Boundaries between classes, or of the outliers.
    points_ : list of matplotlib PathCollection
        The signals, a collection per label.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from rkdl import KDLClassifier
    >>> from rkdl.plotting import DecisionContourDisplay
    >>> X, y = make_moons(400, noise=0.2, random_state=0)
    >>> model = KDLClassifier(random_state=0).fit(X, y)
    >>> display = DecisionContourDisplay.from_estimator(model, X, y)
    >>> display.response.shape, len(display.points_)
    ((150, 150), 2)
    """

    def __init__(
        self,
        *,
        xx0: np.ndarray,
        xx1: np.ndarray,
        response: np.ndarray,
        classes: ArrayLike | None = None,
        level: float | None = None,
        name: str | None = None,
        feature_names: ArrayLike | None = None,
    ) -> None:
        self.xx0, self.xx1, self.response = xx0, xx1, response
        self.classes = None if classes is None else np.asarray(classes)
        self.level = level
        self.name = name
        self.feature_names = feature_names

    def plot(self, ax: Axes | None = None, *, X: MatrixLike = None, y: ArrayLike | None = None, **kwargs: Any) -> Self:
        """Draw the display."""
        ax = self._start(ax)
        grid = self.xx0, self.xx1, self.response
        self.boundary_ = None
        if self.classes is not None:
            edges = np.arange(len(self.classes) + 1) - 0.5
            colors = [color_of(index) for index in range(len(self.classes))]
            style: Style = {"levels": edges, "colors": colors, "alpha": 0.35}
            self.surface_ = ax.contourf(*grid, **{**style, **kwargs})
            self.boundary_ = ax.contour(*grid, levels=edges[1:-1], colors="black", linewidths=0.8)
        else:
            style = {"levels": 12, "cmap": RESIDUAL_MAP if self.level is None else SCORE_MAP}
            self.surface_ = ax.contourf(*grid, **{**style, **kwargs})
            ax.figure.colorbar(self.surface_, ax=ax, label=self.name)
            if self.level is not None:
                self.boundary_ = ax.contour(*grid, levels=[self.level], colors="black", linewidths=1.5)
        self.points_ = [] if X is None else self._draw_points(ax, dense(X), y)
        label_plane(ax, self.feature_names)
        return self

    def _draw_points(self, ax: Axes, X: np.ndarray, y: ArrayLike | None) -> list[PathCollection]:
        known = [] if self.classes is None else self.classes.tolist()
        drawn = []
        for number, (label, rows) in enumerate(group_rows(len(X), y)):
            color = "white" if label is None else color_of(known.index(label) if label in known else number)
            style: Style = {"s": 14, "color": color, "edgecolors": "black", "linewidths": 0.4, "zorder": 3}
            drawn.append(ax.scatter(X[rows, 0], X[rows, 1], label=str(label), **style))
        if y is not None:
            ax.legend()
        return drawn

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        X: MatrixLike,
        y: ArrayLike | None = None,
        *,
        grid_resolution: int = 150,
        eps: float = 0.15,
        show_signals: bool = True,
        ax: Axes | None = None,
        **kwargs: object,
    ) -> Self:
        """Draw what an estimator that was fitted on signals of two features makes of the plane around signals.

        For classifiers these are the regions that `predict` assigns to the classes; for outlier detectors
        `decision_function`, with the boundary of the outliers in black; otherwise `reconstruction_error`.
        """
        fitted, signals = Fitted(estimator), dense(X)
        if signals.ndim != 2 or signals.shape[1] != 2:
            raise ValueError(f"X has shape {signals.shape}: contours are drawn for signals with two features.")
        margins = eps * np.ptp(signals, axis=0)
        xx0, xx1 = np.meshgrid(
            *np.linspace(signals.min(axis=0) - margins, signals.max(axis=0) + margins, grid_resolution).T
        )
        grid = np.column_stack([xx0.ravel(), xx1.ravel()]).astype(np.result_type(signals.dtype, np.float32))
        options: Style = {"feature_names": fitted.feature_names}
        if type(X).__module__.startswith("pandas"):
            # Estimators that were fitted on a data frame warn about signals without column names.
            grid = type(X)(grid, columns=X.columns)
        if is_classifier(fitted.model):
            options["classes"] = fitted.model.classes_
            response = np.searchsorted(fitted.model.classes_, estimator.predict(grid))
        elif is_outlier_detector(fitted.model):
            options |= {"level": 0.0, "name": "decision_function"}
            response = estimator.decision_function(grid)
        else:
            options["name"] = "norm of the residual in feature space"
            residuals = fitted.get("reconstruction_error", "give a dictionary, a classifier or a detector")
            response = residuals(fitted.forward(grid))
        display = cls(xx0=xx0, xx1=xx1, response=np.asarray(response).reshape(xx0.shape), **options)
        return display.plot(ax, X=signals if show_signals else None, y=y, **kwargs)
