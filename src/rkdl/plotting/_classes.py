"""Residuals of the signals of each class under the dictionary of each class."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from rkdl.plotting._common import HEIGHT_MAP, forward, get_axes, needs_method, split_pipeline


class ClassResidualsDisplay:
    """Mean residual of the signals of each class (rows) under the dictionary of each class (columns).

    A classifier is right where the smallest residual of a row is on the diagonal; columns with small residuals beside
    it are the classes that it is taken for.

    Parameters
    ----------
    residuals : array-like of shape (n_rows, n_classes)
        Mean relative squared residuals.
    classes : array-like of shape (n_classes,)
        Labels of the dictionaries.
    labels : array-like of shape (n_rows,), default=None
        Labels of the rows; None for `classes`.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the matrix.
    figure_ : matplotlib Figure
        Figure of the axes.
    image_ : matplotlib AxesImage
        The matrix.
    text_ : ndarray of shape (n_rows, n_classes), dtype=matplotlib Text
        Its numbers, or None without them.
    colorbar_ : matplotlib Colorbar
        Scale of the residuals.

    See Also
    --------
    ResidualsDisplay : Residuals under a single dictionary.

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

    def plot(self, ax: Any = None, *, include_values: bool = True, values_format: str = ".2f", **kwargs: Any) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on; None for those of a new figure.
        include_values : bool, default=True
            Whether to write the numbers into the matrix.
        values_format : str, default=".2f"
            Format of the numbers.
        **kwargs : dict
            Passed to matplotlib's `imshow`.

        Returns
        -------
        display : object
            The display itself, with `ax_`, `figure_`, `image_`, `text_` and `colorbar_`.
        """
        self.ax_ = get_axes(ax)
        self.figure_ = self.ax_.figure
        self.image_ = self.ax_.imshow(self.residuals, **{"cmap": HEIGHT_MAP, "vmin": 0.0, **kwargs})
        self.colorbar_ = self.figure_.colorbar(self.image_, ax=self.ax_, label="mean relative squared residual")
        self.text_ = None
        if include_values:
            self.text_ = np.empty(self.residuals.shape, dtype=object)
            low, high = self.image_.get_clim()
            for row, column in np.ndindex(*self.residuals.shape):
                value = self.residuals[row, column]
                color = "black" if value > 0.5 * (low + high) else "white"
                self.text_[row, column] = self.ax_.text(
                    column, row, format(value, values_format), ha="center", va="center", color=color, fontsize="small"
                )
        self.ax_.set_xticks(range(len(self.classes)), [str(label) for label in self.classes])
        self.ax_.set_yticks(range(len(self.labels)), [str(label) for label in self.labels])
        self.ax_.set(xlabel="dictionary of class", ylabel="true class")
        return self

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: ArrayLike,
        *,
        include_values: bool = True,
        values_format: str = ".2f",
        ax: Any = None,
        **kwargs: Any,
    ) -> ClassResidualsDisplay:
        """Draw what the dictionaries of a fitted classifier leave of labelled signals.

        Parameters
        ----------
        estimator : KDLClassifier or Pipeline
            Fitted classifier, or a pipeline that ends with one.
        X : array-like or sparse matrix of shape (n_signals, n_features)
            Signals.
        y : array-like of shape (n_signals,)
            Their true labels.
        include_values : bool, default=True
            Whether to write the numbers into the matrix.
        values_format : str, default=".2f"
            Format of the numbers.
        ax : matplotlib Axes, default=None
            Axes to draw on; None for those of a new figure.
        **kwargs : dict
            Passed to matplotlib's `imshow`.

        Returns
        -------
        display : ClassResidualsDisplay
            The display.
        """
        steps, model = split_pipeline(estimator)
        residuals = needs_method(model, "class_residuals", "give a KDLClassifier")(forward(steps, X))
        true = np.asarray(y)
        if true.shape != (len(residuals),):
            raise ValueError(f"y has shape {true.shape}, and X {len(residuals)} signals: give one label per signal.")
        labels = np.unique(true)
        means = np.stack([residuals[true == label].mean(axis=0) for label in labels])
        display = cls(means, classes=model.classes_, labels=labels)
        return display.plot(ax, include_values=include_values, values_format=values_format, **kwargs)
