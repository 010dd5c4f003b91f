"""Displays of codes, residuals, and decisions over the plane."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator as Estimator
from sklearn.base import is_classifier, is_outlier_detector

from rkdl._utils.types import MatrixLike
from rkdl.plotting._display import Display, Fitted, dense, group_rows
from rkdl.plotting._drawing import RESIDUAL_MAP, SCORE_MAP, Style, color_of, draw_matrix, label_plane, signed_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection


class _SignalsDisplay(Display):
    """Results of an estimator for signals."""

    # Makes the display from signals that the estimator takes, and their labels.
    _of: Callable[..., Any]

    @classmethod
    def from_estimator(
        cls, estimator: Estimator, X: MatrixLike, y: ArrayLike | None = None, *, ax: Axes | None = None, **kwargs: Any
    ) -> Self:
        """Draw the display for signals; displays of classes need a KDLClassifier, others DL or a kernel method."""
        fitted = Fitted(estimator)
        return cls._of(fitted, fitted.forward(X), y).plot(ax, **kwargs)


class CodesDisplay(_SignalsDisplay):
    """Codes of signals: a row per signal, a column per atom, in red and blue around white.

    Attributes
    ----------
    image_ : matplotlib AxesImage
        The codes, in the order in which they are drawn.
    colorbar_ : matplotlib Colorbar
        Scale of the coefficients.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from rkdl import RKDL
    >>> from rkdl.plotting import CodesDisplay
    >>> X, y = load_digits(return_X_y=True)
    >>> model = RKDL(n_components=20, random_state=0).fit(X)
    >>> display = CodesDisplay.from_estimator(model, X, y)
    >>> display.image_.get_array().shape
    (1797, 20)
    """

    def __init__(self, codes: MatrixLike, *, y: ArrayLike | None = None) -> None:
        self.codes = dense(codes)
        self.y = y

    def plot(self, ax: Axes | None = None, **kwargs: object) -> Self:
        """Draw the display."""
        groups = group_rows(len(self.codes), self.y)
        ax = self._start(ax)
        codes = self.codes[np.concatenate([rows for _, rows in groups])]
        style = {"aspect": "auto", **signed_style(float(np.abs(codes).max(initial=0.0)) or 1.0)}
        self.image_, self.colorbar_ = draw_matrix(ax, codes, "coefficient", kwargs, **style)
        ax.set(xlabel="atom", ylabel="signal")
        if self.y is not None:
            edges = np.cumsum([0, *(len(rows) for _, rows in groups)]) - 0.5
            for edge in edges[1:-1]:
                ax.axhline(edge, color="black", linewidth=0.6)
            ax.set_yticks(0.5 * (edges[1:] + edges[:-1]), [str(label) for label, _ in groups])
            ax.set_ylabel("signals by label")
        return self

    @classmethod
    def _of(cls, fitted: Fitted, X: MatrixLike, y: ArrayLike | None) -> Self:
        return cls(fitted.get("transform", "give DL or a kernel method")(X), y=y)


class ResidualsDisplay(_SignalsDisplay):
    """Histogram of the residuals of signals in feature space, as shares of the signals, or of those of each label.

    Attributes
    ----------
    shares_ : list of ndarray of shape (n_bins,)
        Share of the signals in each bin, one array per label.
    edges_ : ndarray of shape (n_bins + 1,)
        Edges of the bins.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from rkdl import RKDL
    >>> from rkdl.plotting import ResidualsDisplay
    >>> X, y = load_digits(return_X_y=True)
    >>> model = RKDL(n_components=20, random_state=0).fit(X[y == 0])
    >>> display = ResidualsDisplay.from_estimator(model, X, y == 0)
    >>> len(display.shares_), len(display.edges_)
    (2, 41)
    """

    def __init__(self, residuals: ArrayLike, *, y: ArrayLike | None = None) -> None:
        self.residuals = np.asarray(residuals)
        self.y = y

    def plot(self, ax: Axes | None = None, *, bins: int = 40, **kwargs: object) -> Self:
        """Draw the display."""
        groups = group_rows(len(self.residuals), self.y)
        ax = self._start(ax)
        self.edges_ = np.histogram_bin_edges(self.residuals, bins)
        self.shares_: list[np.ndarray] = []
        for number, (label, rows) in enumerate(groups):
            style: Style = {"bins": self.edges_, "color": color_of(number), "alpha": 0.6, "label": str(label)}
            style["weights"] = np.full(len(rows), 1.0 / len(rows))
            self.shares_.append(np.asarray(ax.hist(self.residuals[rows], **{**style, **kwargs})[0]))
        ax.set(xlabel="norm of the residual in feature space", ylabel="share of the signals")
        if self.y is not None:
            ax.legend()
        return self

    @classmethod
    def _of(cls, fitted: Fitted, X: MatrixLike, y: ArrayLike | None) -> Self:
        return cls(fitted.get("reconstruction_error", "give DL or a kernel method")(X), y=y)


class ClassResidualsDisplay(_SignalsDisplay):
    """Mean residual of the signals of each class (rows) under the dictionary of each class (columns).

    The classifier is right where the smallest residual of a row is on the diagonal; small residuals elsewhere show
    classes that are confused.

    Attributes
    ----------
    image_ : matplotlib AxesImage
        The matrix.
    text_ : ndarray of shape (n_rows, n_classes), dtype=matplotlib Text
        Its numbers, or None without them.
    colorbar_ : matplotlib Colorbar
        Scale of the residuals.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from rkdl import KDLClassifier
    >>> from rkdl.plotting import ClassResidualsDisplay
    >>> X, y = load_digits(return_X_y=True)
    >>> model = KDLClassifier(random_state=0).fit(X[::2], y[::2])
    >>> display = ClassResidualsDisplay.from_estimator(model, X[1::2], y[1::2])
    >>> bool((display.residuals.argmin(axis=1) == range(10)).all())
    True
    """

    def __init__(self, residuals: ArrayLike, *, classes: ArrayLike, labels: ArrayLike | None = None) -> None:
        self.residuals = np.asarray(residuals)
        self.classes = np.asarray(classes)
        self.labels = self.classes if labels is None else np.asarray(labels)

    def plot(
        self, ax: Axes | None = None, *, include_values: bool = True, values_format: str = ".2f", **kwargs: Any
    ) -> Self:
        """Draw the display."""
        ax = self._start(ax)
        label, style = "mean squared residual", {"cmap": RESIDUAL_MAP, "vmin": 0.0}
        self.image_, self.colorbar_ = draw_matrix(ax, self.residuals, label, kwargs, **style)
        texts = np.empty(self.residuals.shape, dtype=object)
        middle = 0.5 * sum(self.image_.get_clim())
        for (row, column), value in np.ndenumerate(self.residuals) if include_values else ():
            color = "black" if value > middle else "white"
            place: Style = {"ha": "center", "va": "center", "color": color, "fontsize": "small"}
            texts[row, column] = ax.text(column, row, format(value, values_format), **place)
        self.text_ = texts if include_values else None
        ax.set_xticks(range(len(self.classes)), [str(label) for label in self.classes])
        ax.set_yticks(range(len(self.labels)), [str(label) for label in self.labels])
        ax.set(xlabel="dictionary of class", ylabel="true class")
        return self

    @classmethod
    def _of(cls, fitted: Fitted, X: MatrixLike, y: ArrayLike | None) -> Self:
        residuals = fitted.get("class_residuals", "give a KDLClassifier")(X)
        if y is None:
            raise ValueError("y is missing: give the true label of every signal.")
        groups = group_rows(len(residuals), y)
        means = np.stack([residuals[rows].mean(axis=0) for _, rows in groups])
        return cls(means, classes=fitted.model.classes_, labels=[label for label, _ in groups])


class DecisionContourDisplay(Display):
    """Contours over the plane: regions of classes, scores of a detector, or residuals of a dictionary.

    Yellow marks what is represented badly: a large residual, or the low score of an outlier.

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
        known, drawn = [] if self.classes is None else self.classes.tolist(), []
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
        estimator: Estimator,
        X: MatrixLike,
        y: ArrayLike | None = None,
        *,
        grid_resolution: int = 150,
        eps: float = 0.15,
        show_signals: bool = True,
        ax: Axes | None = None,
        **kwargs: object,
    ) -> Self:
        """Draw the contours of an estimator that was fitted on two features, in the plane around signals.

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
