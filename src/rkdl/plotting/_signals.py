"""Atoms and kernel vectors, as images, as signals or in the plane."""

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
    get_axes,
    label_features,
    label_plane,
    label_rows,
    needs_method,
    split_pipeline,
)


class _RowsDisplay:
    """Rows drawn as images, as signals one above the other, or as points of the plane."""

    _what = "signal"

    def __init__(
        self,
        signals: ArrayLike,
        *,
        image_shape: tuple[int, ...] | None = None,
        numbers: ArrayLike | None = None,
        X: Any = None,
        feature_names: ArrayLike | None = None,
    ) -> None:
        self.signals = np.asarray(signals)
        self.image_shape = check_image_shape(image_shape, self.signals.shape[1])
        self.numbers = np.arange(len(self.signals)) if numbers is None else np.asarray(numbers)
        self.X = None if X is None else dense(X)
        self.feature_names = feature_names

    def plot(self, ax: Any = None, *, n_columns: int | None = None, **kwargs: Any) -> Self:
        """Draw the display.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw on; None for those of a new figure.
        n_columns : int, default=None
            Number of images in a row; None for about as many as there are rows.
        **kwargs : dict
            Passed to matplotlib's `imshow` for images, `plot` for signals, and `scatter` in the plane.

        Returns
        -------
        display : object
            The display itself, with `ax_`, `figure_`, `image_`, `lines_` and `points_`.
        """
        self.ax_ = get_axes(ax)
        self.figure_ = self.ax_.figure
        self.image_ = self.points_ = None
        self.lines_: list[Any] = []
        if self.image_shape is not None:
            images = self.signals.reshape(-1, *self.image_shape)
            columns = int(np.ceil(np.sqrt(len(images)))) if n_columns is None else n_columns
            self.image_ = draw_images(self.ax_, images, columns, kwargs)
        elif self.signals.shape[1] == 2:
            self._draw_points(kwargs)
        else:
            self._draw_lines(kwargs)
        return self

    def _draw_points(self, options: dict[str, Any]) -> None:
        if self.X is not None:
            self.ax_.scatter(*self.X.T, s=6, color="#999999", alpha=0.6, label="signals")
        marks = {"s": 50, "marker": "D", "color": color_of(5), "edgecolors": "white", "zorder": 3}
        self.points_ = self.ax_.scatter(*self.signals.T, **{**marks, "label": f"{self._what}s", **options})
        label_plane(self.ax_, self.feature_names)
        self.ax_.legend()

    def _draw_lines(self, options: dict[str, Any]) -> None:
        distance = 1.1 * float(np.ptp(self.signals, axis=1).max(initial=0.0)) or 1.0
        offsets = -distance * np.arange(len(self.signals))
        style = {"color": color_of(0), "linewidth": 1.0, **options}
        for signal, offset in zip(self.signals, offsets, strict=True):
            self.lines_ += self.ax_.plot(signal + offset, **style)
        middles = offsets + 0.5 * (self.signals.max(axis=1) + self.signals.min(axis=1))
        label_rows(self.ax_, middles, self.numbers)
        label_features(self.ax_, self.feature_names, self.signals.shape[1])
        self.ax_.set_ylabel(self._what)


class AtomsDisplay(_RowsDisplay):
    """Atoms: as images, as signals one above the other, or in the plane if signals have two features.

    Atoms of kernel methods are shown by their pre-images, as the estimators' `atom_preimages` finds them. All images
    share one colour scale: grey, or, if some values are clearly negative, red for positive and blue for negative ones.

    Parameters
    ----------
    signals : array-like of shape (n_atoms, n_features)
        Atoms, or their pre-images.
    image_shape : tuple of int, default=None
        Shape of an image: (height, width), or (height, width, 3) with colours. None means that signals are not images.
    numbers : array-like of shape (n_atoms,), default=None
        Numbers of the atoms; None for 0, 1, 2 and so on.
    X : array-like of shape (n_signals, 2), default=None
        Signals to draw behind the atoms in the plane.
    feature_names : array-like of shape (n_features,), default=None
        Names of the features for the axes; None if they have none.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the atoms.
    figure_ : matplotlib Figure
        Figure of the axes.
    image_ : matplotlib AxesImage or None
        All images side by side.
    lines_ : list of matplotlib Line2D
        One line per atom, if they are drawn as signals.
    points_ : matplotlib PathCollection or None
        The atoms in the plane.

    See Also
    --------
    KernelVectorsDisplay : The kernel vectors.

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

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        atoms: ArrayLike | None = None,
        image_shape: tuple[int, ...] | None = None,
        X: Any = None,
        ax: Any = None,
        n_columns: int | None = None,
        **kwargs: Any,
    ) -> AtomsDisplay:
        """Draw the atoms of a fitted estimator.

        Parameters
        ----------
        estimator : estimator or Pipeline
            Fitted DL, KDL, RKDL, ORKDL, MORKDL, FourierDL or KDLClassifier, or a pipeline that ends with one.
        atoms : array-like of int, default=None
            Numbers of the atoms to draw, in this order; None for all. The atoms of a classifier are numbered class by
            class.
        image_shape : tuple of int, default=None
            Shape of an image: (height, width), or (height, width, 3) with colours. None means that signals are not
            images.
        X : array-like of shape (n_signals, 2), default=None
            Signals to draw behind the atoms, if they have two features.
        ax : matplotlib Axes, default=None
            Axes to draw on; None for those of a new figure.
        n_columns : int, default=None
            Number of images in a row; None for about as many as there are rows.
        **kwargs : dict
            Passed to matplotlib's `imshow` for images, `plot` for signals, and `scatter` in the plane.

        Returns
        -------
        display : AtomsDisplay
            The display.
        """
        steps, model = split_pipeline(estimator)
        found = needs_method(model, "atom_preimages", "give DL, a kernel method or KDLClassifier")()
        signals = backward(steps, np.concatenate(found) if isinstance(found, list) else found)
        numbers = np.arange(len(signals)) if atoms is None else np.asarray(atoms)
        names = feature_names_of(estimator)
        display = cls(signals[numbers], image_shape=image_shape, numbers=numbers, X=X, feature_names=names)
        return display.plot(ax, n_columns=n_columns, **kwargs)


class KernelVectorsDisplay(_RowsDisplay):
    """Kernel vectors: as images, as signals one above the other, or in the plane if signals have two features.

    Parameters
    ----------
    signals : array-like of shape (n_kernel_vectors, n_features)
        Kernel vectors.
    image_shape : tuple of int, default=None
        Shape of an image: (height, width), or (height, width, 3) with colours. None means that signals are not images.
    numbers : array-like of shape (n_kernel_vectors,), default=None
        Numbers of the kernel vectors; None for 0, 1, 2 and so on.
    X : array-like of shape (n_signals, 2), default=None
        Signals to draw behind the kernel vectors in the plane.
    feature_names : array-like of shape (n_features,), default=None
        Names of the features for the axes; None if they have none.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes with the kernel vectors.
    figure_ : matplotlib Figure
        Figure of the axes.
    image_ : matplotlib AxesImage or None
        All images side by side.
    lines_ : list of matplotlib Line2D
        One line per kernel vector, if they are drawn as signals.
    points_ : matplotlib PathCollection or None
        The kernel vectors in the plane.

    See Also
    --------
    AtomsDisplay : The atoms, which are combinations of the kernel vectors in feature space.

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

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        *,
        vectors: ArrayLike | None = None,
        image_shape: tuple[int, ...] | None = None,
        X: Any = None,
        ax: Any = None,
        n_columns: int | None = None,
        **kwargs: Any,
    ) -> KernelVectorsDisplay:
        """Draw the kernel vectors of a fitted estimator.

        Parameters
        ----------
        estimator : estimator or Pipeline
            Fitted KDL, RKDL, ORKDL, MORKDL or KDLClassifier, or a pipeline that ends with one.
        vectors : array-like of int, default=None
            Numbers of the kernel vectors to draw, in this order; None for all.
        image_shape : tuple of int, default=None
            Shape of an image: (height, width), or (height, width, 3) with colours. None means that signals are not
            images.
        X : array-like of shape (n_signals, 2), default=None
            Signals to draw behind the kernel vectors, if they have two features.
        ax : matplotlib Axes, default=None
            Axes to draw on; None for those of a new figure.
        n_columns : int, default=None
            Number of images in a row; None for about as many as there are rows.
        **kwargs : dict
            Passed to matplotlib's `imshow` for images, `plot` for signals, and `scatter` in the plane.

        Returns
        -------
        display : KernelVectorsDisplay
            The display.
        """
        steps, model = split_pipeline(estimator)
        who = "give KDL, RKDL, ORKDL, MORKDL, or a KDLClassifier of one of them"
        found = needs_method(model, "kernel_vectors_", who)
        if np.ndim(found) != 2 or type(getattr(model, "method_", model)).__name__ == "FourierDL":
            raise ValueError(f"{type(model).__name__} does not have one set of kernel vectors here: {who}.")
        found = backward(steps, found)
        numbers = np.arange(len(found)) if vectors is None else np.asarray(vectors)
        names = feature_names_of(estimator)
        display = cls(found[numbers], image_shape=image_shape, numbers=numbers, X=X, feature_names=names)
        return display.plot(ax, n_columns=n_columns, **kwargs)
