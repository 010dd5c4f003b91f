"""Signals beside what their codes represent."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from rkdl.plotting._common import (
    backward,
    check_image_shape,
    color_of,
    dense,
    draw_images,
    feature_names_of,
    forward,
    get_axes,
    label_features,
    label_rows,
    needs_method,
    split_pipeline,
)


class ReconstructionDisplay:
    """Signals beside what their codes represent: images one above the other, or two lines per signal.

    Parameters
    ----------
    signals : array-like of shape (n_signals, n_features)
        Signals.
    reconstructions : array-like of shape (n_signals, n_features)
        What their codes represent.
    image_shape : tuple of int, default=None
        Shape of an image: (height, width), or (height, width, 3) with colours. None means that signals are not images.
    feature_names : array-like of shape (n_features,), default=None
        Names of the features for the axes; None if they have none.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the signals.
    figure_ : matplotlib Figure
        Figure of the axes.
    image_ : matplotlib AxesImage or None
        Images in three rows: signals, what their codes represent, and the difference. With colours, the first two.
    lines_ : list of matplotlib Line2D
        Two lines per signal, it and what its code represents, if they are not images.

    See Also
    --------
    ResidualsDisplay : Residuals of many signals in feature space.

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
        image_shape: tuple[int, ...] | None = None,
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

    def plot(self, ax: Any = None, **kwargs: Any) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on; None for those of a new figure.
        **kwargs : dict
            Passed to matplotlib's `imshow` for images, and to `plot` for what codes represent of signals.

        Returns
        -------
        display : object
            The display itself, with `ax_`, `figure_`, `image_` and `lines_`.
        """
        self.ax_ = get_axes(ax)
        self.figure_ = self.ax_.figure
        self.image_ = None
        self.lines_: list[Any] = []
        if self.image_shape is None:
            self._draw_lines(kwargs)
            return self
        parts = [self.signals, self.reconstructions]
        if len(self.image_shape) == 2:
            parts.append(self.signals - self.reconstructions)
        images = np.concatenate([part.reshape(-1, *self.image_shape) for part in parts])
        self.image_ = draw_images(self.ax_, images, len(self.signals), kwargs, is_signed=len(parts) == 3)
        # Names of the rows, beside the images rather than ticks, as there are no axes.
        for row, name in enumerate(("signal", "representation", "difference")[: len(parts)]):
            middle = row * (self.image_shape[0] + 1) + 0.5 * (self.image_shape[0] - 1)
            self.ax_.text(-1.0, middle, name, ha="right", va="center")
        return self

    def _draw_lines(self, options: dict[str, Any]) -> None:
        both = np.concatenate([self.signals, self.reconstructions], axis=1)
        distance = 1.1 * float(np.ptp(both, axis=1).max(initial=0.0)) or 1.0
        style = {"color": color_of(5), "linewidth": 1.4, **options}
        for number, (signal, found) in enumerate(zip(self.signals, self.reconstructions, strict=True)):
            names: tuple = ("signal", "representation") if number == 0 else (None, None)
            self.lines_ += self.ax_.plot(signal - number * distance, color="#999999", linewidth=1.0, label=names[0])
            self.lines_ += self.ax_.plot(found - number * distance, **{"label": names[1], **style})
        middles = 0.5 * (both.max(axis=1) + both.min(axis=1)) - distance * np.arange(len(both))
        label_rows(self.ax_, middles, np.arange(len(both)))
        label_features(self.ax_, self.feature_names, self.signals.shape[1])
        self.ax_.set_ylabel("signal")
        self.ax_.legend()

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        *,
        noise: float | None = None,
        image_shape: tuple[int, ...] | None = None,
        ax: Any = None,
        **kwargs: Any,
    ) -> ReconstructionDisplay:
        """Draw signals beside what the codes of a fitted estimator represent.

        Parameters
        ----------
        estimator : estimator or Pipeline
            Fitted DL, KDL, RKDL, ORKDL, MORKDL or FourierDL, or a pipeline that ends with one.
        X : array-like or sparse matrix of shape (n_signals, n_features)
            Signals, a few.
        noise : float, default=None
            Standard deviation of the noise per feature, as for the estimators' `denoise`.
        image_shape : tuple of int, default=None
            Shape of an image: (height, width), or (height, width, 3) with colours. None means that signals are not
            images.
        ax : matplotlib Axes, default=None
            Axes to draw on; None for those of a new figure.
        **kwargs : dict
            Passed to matplotlib's `imshow` for images, and to `plot` for what codes represent of signals.

        Returns
        -------
        display : ReconstructionDisplay
            The display.
        """
        steps, model = split_pipeline(estimator)
        denoise = needs_method(model, "denoise", "give DL or a kernel method")
        found = backward(steps, denoise(forward(steps, X), noise=noise))
        names = feature_names_of(estimator)
        return cls(dense(X), found, image_shape=image_shape, feature_names=names).plot(ax, **kwargs)
