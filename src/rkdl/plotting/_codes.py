"""Displays of codes and residuals."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator as Estimator

from rkdl._utils.types import MatrixLike
from rkdl.plotting._display import Display, Fitted, dense, group_rows
from rkdl.plotting._drawing import Style, color_of, draw_matrix, signed_style

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
