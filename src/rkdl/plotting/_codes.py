"""Displays of codes and residuals."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator as Estimator

from rkdl._utils.types import MatrixLike
from rkdl.plotting._display import Display, Fitted, dense, group_rows
from rkdl.plotting._drawing import RESIDUAL_MAP, Style, color_of, draw_matrix, signed_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
