"""Decisions, scores and residuals over the plane."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import is_classifier, is_outlier_detector

from rkdl.plotting._common import (
    COLORS,
    HEIGHT_MAP,
    dense,
    feature_names_of,
    forward,
    get_axes,
    group_rows,
    label_plane,
    needs_method,
    split_pipeline,
)


class DecisionContourDisplay:
    """What an estimator makes of the plane: regions of classes, scores of a detector, residuals of a dictionary.

    Parameters
    ----------
    xx0 : ndarray of shape (grid_resolution, grid_resolution)
        First feature at the points of the grid.
    xx1 : ndarray of shape (grid_resolution, grid_resolution)
        Second feature there.
    response : ndarray of shape (grid_resolution, grid_resolution)
        Response there: the index of a class, a score or a residual.
    classes : array-like of shape (n_classes,), default=None
        Labels of the classes, if the response is the index of a class.
    level : float, default=None
        Value of the response to draw a boundary at.
    name : str, default=None
        What the response is, for the colour bar.
    feature_names : array-like of shape (2,), default=None
        Names of the features for the axes; None if they have none.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the contours.
    figure_ : matplotlib Figure
        Figure of the axes.
    surface_ : matplotlib QuadContourSet
        The filled contours.
    boundary_ : matplotlib QuadContourSet or None
        Boundaries between classes, or of the outliers.
    points_ : list of matplotlib PathCollection
        The signals, a collection per label.

    See Also
    --------
    ClassResidualsDisplay : Residuals by class, in any dimension.

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
        self.xx0 = xx0
        self.xx1 = xx1
        self.response = response
        self.classes = None if classes is None else np.asarray(classes)
        self.level = level
        self.name = name
        self.feature_names = feature_names

    def plot(self, ax: Any = None, *, X: Any = None, y: ArrayLike | None = None, **kwargs: Any) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on; None for those of a new figure.
        X : array-like of shape (n_signals, 2), default=None
            Signals to draw too.
        y : array-like of shape (n_signals,), default=None
            Their labels.
        **kwargs : dict
            Passed to matplotlib's `contourf`.

        Returns
        -------
        display : object
            The display itself, with `ax_`, `figure_`, `surface_`, `boundary_` and `points_`.
        """
        self.ax_ = get_axes(ax)
        self.figure_ = self.ax_.figure
        grid = self.xx0, self.xx1, self.response
        self.boundary_ = None
        if self.classes is not None:
            edges = np.arange(len(self.classes) + 1) - 0.5
            colors = [COLORS[index % len(COLORS)] for index in range(len(self.classes))]
            style: dict[str, Any] = {"levels": edges, "colors": colors, "alpha": 0.35}
            self.surface_ = self.ax_.contourf(*grid, **{**style, **kwargs})
            self.boundary_ = self.ax_.contour(*grid, levels=edges[1:-1], colors="black", linewidths=0.8)
        else:
            self.surface_ = self.ax_.contourf(*grid, **{"levels": 12, "cmap": HEIGHT_MAP, **kwargs})
            self.figure_.colorbar(self.surface_, ax=self.ax_, label=self.name)
            if self.level is not None:
                self.boundary_ = self.ax_.contour(*grid, levels=[self.level], colors="black", linewidths=1.5)
        self.points_ = [] if X is None else self._draw_points(dense(X), y)
        label_plane(self.ax_, self.feature_names)
        return self

    def _draw_points(self, X: np.ndarray, y: ArrayLike | None) -> list[Any]:
        known = [] if self.classes is None else self.classes.tolist()
        drawn = []
        for number, (label, rows) in enumerate(group_rows(len(X), y)):
            index = known.index(label) if label in known else number
            color = "white" if label is None else COLORS[index % len(COLORS)]
            style: dict[str, Any] = {"color": color, "edgecolors": "black", "linewidths": 0.4}
            drawn.append(self.ax_.scatter(*X[rows].T, s=14, label=str(label), zorder=3, **style))
        if y is not None:
            self.ax_.legend()
        return drawn

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike | None = None,
        *,
        grid_resolution: int = 150,
        eps: float = 0.15,
        show_signals: bool = True,
        ax: Any = None,
        **kwargs: Any,
    ) -> DecisionContourDisplay:
        """Draw what a fitted estimator makes of the plane around signals.

        For classifiers these are the regions that `predict` assigns to the classes; for outlier detectors
        `decision_function`, with the boundary of the outliers in black; otherwise `reconstruction_error`.

        Parameters
        ----------
        estimator : estimator or Pipeline
            Fitted on signals of two features; or a pipeline.
        X : array-like of shape (n_signals, 2)
            Signals, which say what part of the plane is drawn.
        y : array-like of shape (n_signals,), default=None
            Their labels.
        grid_resolution : int, default=150
            Number of points of the grid along each feature.
        eps : float, default=0.15
            Margin around the signals, relative to their range.
        show_signals : bool, default=True
            Whether to draw the signals too.
        ax : matplotlib Axes, default=None
            Axes to draw on; None for those of a new figure.
        **kwargs : dict
            Passed to matplotlib's `contourf`.

        Returns
        -------
        display : DecisionContourDisplay
            The display.
        """
        steps, model = split_pipeline(estimator)
        signals = dense(X)
        if signals.ndim != 2 or signals.shape[1] != 2:
            raise ValueError(f"X has shape {signals.shape}: contours are drawn for signals with two features.")
        margins = eps * np.ptp(signals, axis=0)
        starts, stops = signals.min(axis=0) - margins, signals.max(axis=0) + margins
        axes = [np.linspace(start, stop, grid_resolution) for start, stop in zip(starts, stops, strict=True)]
        xx0, xx1 = np.meshgrid(*axes)
        grid = np.column_stack([xx0.ravel(), xx1.ravel()]).astype(np.result_type(signals.dtype, np.float32))
        options: dict[str, Any] = {"feature_names": feature_names_of(estimator)}
        if type(X).__module__.startswith("pandas"):
            # Estimators that were fitted on a data frame warn about signals without column names.
            grid = type(X)(grid, columns=X.columns)
        if is_classifier(model):
            options["classes"] = model.classes_
            response = np.searchsorted(model.classes_, estimator.predict(grid))
        elif is_outlier_detector(model):
            options |= {"level": 0.0, "name": "decision_function"}
            response = estimator.decision_function(grid)
        else:
            options["name"] = "norm of the residual in feature space"
            residuals = needs_method(model, "reconstruction_error", "give a dictionary, a classifier or a detector")
            response = residuals(forward(steps, grid))
        display = cls(xx0=xx0, xx1=xx1, response=np.asarray(response).reshape(xx0.shape), **options)
        return display.plot(ax, X=signals if show_signals else None, y=y, **kwargs)
