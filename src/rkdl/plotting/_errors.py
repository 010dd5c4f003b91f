"""The error over the iterations of a fit."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from rkdl.plotting._common import color_of, get_axes, needs_method, split_pipeline


class ErrorCurveDisplay:
    """Error of the representation over the iterations of a fit.

    Parameters
    ----------
    errors : array-like of shape (n_iter,)
        Error after each iteration, up to that of the returned model.
    update_errors : array-like of shape (n_updates,), default=None
        Error right after each update, with the codes that the update was computed for.
    name : str, default=None
        Name of the estimator, for the legend.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the curve.
    figure_ : matplotlib Figure
        Figure of the axes.
    line_ : matplotlib Line2D
        Errors after each iteration.
    update_line_ : matplotlib Line2D or None
        Errors right after each update.

    See Also
    --------
    ResidualsDisplay : Residuals of single signals.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from rkdl import RKDL
    >>> from rkdl.plotting import ErrorCurveDisplay
    >>> X, _ = load_digits(return_X_y=True)
    >>> model = RKDL(n_components=20, max_iter=10, random_state=0).fit(X)
    >>> display = ErrorCurveDisplay.from_estimator(model)
    >>> bool((display.line_.get_ydata() == model.errors_).all())
    True
    """

    def __init__(self, errors: ArrayLike, *, update_errors: ArrayLike | None = None, name: str | None = None) -> None:
        self.errors = np.asarray(errors)
        self.update_errors = None if update_errors is None else np.asarray(update_errors)
        self.name = name

    def plot(self, ax: Any = None, **kwargs: Any) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on, for instance those of another estimator's curve; None for those of a new figure.
        **kwargs : dict
            Passed to matplotlib's `plot` for the errors after each iteration.

        Returns
        -------
        display : object
            The display itself, with `ax_`, `figure_`, `line_` and `update_line_`.
        """
        self.ax_ = get_axes(ax)
        self.figure_ = self.ax_.figure
        # Each curve that is added to the same axes has the next colour.
        n_drawn = sum(line.get_linestyle() == "-" for line in self.ax_.lines)
        style = {"color": color_of(n_drawn), "marker": "o", "markersize": 4, "label": self.name or "after coding again"}
        (self.line_,) = self.ax_.plot(1 + np.arange(len(self.errors)), self.errors, **{**style, **kwargs})
        self.update_line_ = None
        if self.update_errors is not None:
            label = f"{self.name}, right after the update" if self.name else "right after the update"
            (self.update_line_,) = self.ax_.plot(
                1 + np.arange(len(self.update_errors)),
                self.update_errors,
                linestyle=":",
                color=self.line_.get_color(),
                label=label,
            )
        self.ax_.xaxis.get_major_locator().set_params(integer=True)
        self.ax_.set(xlabel="iteration", ylabel=r"error $\sqrt{f\,/\,(m N)}$")
        self.ax_.legend()
        return self

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        show_updates: bool = True,
        name: str | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> ErrorCurveDisplay:
        """Draw the errors of a fitted estimator.

        Parameters
        ----------
        estimator : estimator or Pipeline
            Fitted DL, KDL, RKDL, ORKDL, MORKDL, FourierDL or KDLClassifier, or a pipeline that ends with one.
        show_updates : bool, default=True
            Whether to draw `update_errors_` too, where the estimator has them.
        name : str, default=None
            Name in the legend; None for that of the class.
        ax : matplotlib Axes, default=None
            Axes to draw on, for instance those of another estimator's curve; None for those of a new figure.
        **kwargs : dict
            Passed to matplotlib's `plot` for the errors after each iteration.

        Returns
        -------
        display : ErrorCurveDisplay
            The display.
        """
        _, model = split_pipeline(estimator)
        errors = needs_method(model, "errors_", "only single dictionaries and KDLClassifier record their errors")
        updates = getattr(model, "update_errors_", None) if show_updates else None
        display = cls(errors, update_errors=updates, name=type(model).__name__ if name is None else name)
        return display.plot(ax, **kwargs)
