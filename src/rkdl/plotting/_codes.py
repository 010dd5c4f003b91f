"""Codes of signals, and what they leave of them."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from rkdl.plotting._common import (
    SIGNED_MAP,
    color_of,
    dense,
    forward,
    get_axes,
    group_rows,
    needs_method,
    split_pipeline,
)


class CodesDisplay:
    """Codes of signals: a row per signal, a column per atom, in red and blue around white.

    Parameters
    ----------
    codes : array-like or sparse matrix of shape (n_signals, n_components)
        Codes.
    y : array-like of shape (n_signals,), default=None
        Labels to group the signals by; None leaves them in their order.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the codes.
    figure_ : matplotlib Figure
        Figure of the axes.
    image_ : matplotlib AxesImage
        The codes, in the order in which they are drawn.
    colorbar_ : matplotlib Colorbar
        Scale of the coefficients.

    See Also
    --------
    ResidualsDisplay : What the codes leave of the signals.

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

    def __init__(self, codes: Any, *, y: ArrayLike | None = None) -> None:
        self.codes = dense(codes)
        self.y = y

    def plot(self, ax: Any = None, **kwargs: Any) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on; None for those of a new figure.
        **kwargs : dict
            Passed to matplotlib's `imshow`.

        Returns
        -------
        display : object
            The display itself, with `ax_`, `figure_`, `image_` and `colorbar_`.
        """
        groups = group_rows(len(self.codes), self.y)
        self.ax_ = get_axes(ax)
        self.figure_ = self.ax_.figure
        order = np.concatenate([rows for _, rows in groups])
        largest = float(np.abs(self.codes).max(initial=0.0)) or 1.0
        # Without smoothing, which would hide that most coefficients are zero.
        style = {"cmap": SIGNED_MAP, "vmin": -largest, "vmax": largest, "aspect": "auto", "interpolation": "nearest"}
        self.image_ = self.ax_.imshow(self.codes[order], **{**style, **kwargs})
        self.colorbar_ = self.figure_.colorbar(self.image_, ax=self.ax_, label="coefficient")
        self.ax_.set(xlabel="atom", ylabel="signal")
        if self.y is not None:
            edges = np.cumsum([0, *(len(rows) for _, rows in groups)]) - 0.5
            for edge in edges[1:-1]:
                self.ax_.axhline(edge, color="black", linewidth=0.6)
            self.ax_.set_yticks(0.5 * (edges[1:] + edges[:-1]), [str(label) for label, _ in groups])
            self.ax_.set_ylabel("signals by label")
        return self

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: ArrayLike | None = None, *, ax: Any = None, **kwargs: Any
    ) -> CodesDisplay:
        """Draw the codes that a fitted estimator gives to signals.

        Parameters
        ----------
        estimator : estimator or Pipeline
            Fitted DL, KDL, RKDL, ORKDL, MORKDL or FourierDL, or a pipeline that ends with one.
        X : array-like or sparse matrix of shape (n_signals, n_features)
            Signals.
        y : array-like of shape (n_signals,), default=None
            Labels to group the signals by; None leaves them in their order.
        ax : matplotlib Axes, default=None
            Axes to draw on; None for those of a new figure.
        **kwargs : dict
            Passed to matplotlib's `imshow`.

        Returns
        -------
        display : CodesDisplay
            The display.
        """
        steps, model = split_pipeline(estimator)
        transform = needs_method(model, "transform", "give DL or a kernel method")
        return cls(transform(forward(steps, X)), y=y).plot(ax, **kwargs)


class ResidualsDisplay:
    """Histogram of the residuals of signals in feature space, as shares of the signals, or of those of each label.

    Parameters
    ----------
    residuals : array-like of shape (n_signals,)
        Norms of the residuals.
    y : array-like of shape (n_signals,), default=None
        Labels; signals of each have a histogram of their own.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the histograms.
    figure_ : matplotlib Figure
        Figure of the axes.
    shares_ : list of ndarray of shape (n_bins,)
        Share of the signals in each bin, one array per label.
    edges_ : ndarray of shape (n_bins + 1,)
        Edges of the bins.

    See Also
    --------
    CodesDisplay : The codes.

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

    def plot(self, ax: Any = None, *, bins: int = 40, **kwargs: Any) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on; None for those of a new figure.
        bins : int, default=40
            Number of bins.
        **kwargs : dict
            Passed to matplotlib's `hist`.

        Returns
        -------
        display : object
            The display itself, with `ax_`, `figure_`, `shares_` and `edges_`.
        """
        groups = group_rows(len(self.residuals), self.y)
        self.ax_ = get_axes(ax)
        self.figure_ = self.ax_.figure
        self.edges_ = np.histogram_bin_edges(self.residuals, bins)
        self.shares_ = []
        for number, (label, rows) in enumerate(groups):
            style: dict[str, Any] = {"color": color_of(number), "alpha": 0.6, "label": str(label)}
            style["weights"] = np.full(len(rows), 1.0 / len(rows))
            shares, _, _ = self.ax_.hist(self.residuals[rows], bins=self.edges_, **{**style, **kwargs})
            self.shares_.append(shares)
        self.ax_.set(xlabel="norm of the residual in feature space", ylabel="share of the signals")
        if self.y is not None:
            self.ax_.legend()
        return self

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike | None = None,
        *,
        bins: int = 40,
        ax: Any = None,
        **kwargs: Any,
    ) -> ResidualsDisplay:
        """Draw what a fitted estimator leaves of signals.

        Parameters
        ----------
        estimator : estimator or Pipeline
            Fitted DL, KDL, RKDL, ORKDL, MORKDL or FourierDL, or a pipeline that ends with one.
        X : array-like or sparse matrix of shape (n_signals, n_features)
            Signals.
        y : array-like of shape (n_signals,), default=None
            Labels; signals of each have a histogram of their own.
        bins : int, default=40
            Number of bins.
        ax : matplotlib Axes, default=None
            Axes to draw on; None for those of a new figure.
        **kwargs : dict
            Passed to matplotlib's `hist`.

        Returns
        -------
        display : ResidualsDisplay
            The display.
        """
        steps, model = split_pipeline(estimator)
        residuals = needs_method(model, "reconstruction_error", "give DL or a kernel method")
        return cls(residuals(forward(steps, X)), y=y).plot(ax, bins=bins, **kwargs)
