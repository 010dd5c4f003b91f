"""What all displays share: their axes, their docstrings, and what they read from an estimator or a pipeline."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from rkdl._utils.types import Array, MatrixLike

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ImageShape = tuple[int, ...] | None
SHAPE_TEXT = "Shape of an image: (height, width), or (height, width, 3) with colours. None: signals are not images."
ROWS = "array-like of shape (n_signals, n_features)"
DICTIONARY = "array-like of shape (n_atoms, n_features) or fitted estimator"
# Types and descriptions of the parameters of the displays and of their methods.
PARAMETERS = {
    "signals": (ROWS, "Signals, kernel vectors or atoms, or their pre-images."),
    "reconstructions": (ROWS, "What the codes of the signals represent."),
    "codes": ("array-like or sparse matrix of shape (n_signals, n_components)", "Codes."),
    "relevance": ("array-like of shape (n_features,)", "Relevance of each feature, or its gain."),
    "max_features": ("int", "Most features to draw; None draws all."),
    "residuals": ("array-like", "Norms of the residuals of signals (n_signals,)."),
    "errors": ("array-like of shape (n_iter,)", "Error after each iteration, up to that of the returned model."),
    "update_errors": ("array-like of shape (n_updates,)", "Errors right after each update, with the codes before it."),
    "cosines": ("array-like of shape (n_atoms,)", "Absolute cosines between true atoms and their matches."),
    "threshold": ("float", "Cosine above which an atom was found."),
    "true": (DICTIONARY, "True dictionary."),
    "learned": (DICTIONARY, "Learned dictionary."),
    "numbers": ("array-like of int", "Numbers of the rows, of an estimator those to draw; None for 0, 1, 2 and so on."),
    "feature_names": ("array-like of str", "Names of the features for the axes; None if they have none."),
    "estimator": ("estimator or Pipeline", "Fitted estimator, or a pipeline that ends with one."),
    "X": (ROWS, "Signals; of two features where they are drawn as points."),
    "y": ("array-like of shape (n_signals,)", "Labels of the signals; None if they have none."),
    "ax": ("matplotlib Axes", "Axes to draw on, for instance of another display; None for those of a new figure."),
    "image_shape": ("tuple of int", SHAPE_TEXT),
    "n_columns": ("int", "Number of images in a row; None for about as many as there are rows."),
    "noise": ("float", "Standard deviation of the noise per feature, as for the estimators' `denoise`."),
    "bins": ("int", "Number of bins."),
    "show_updates": ("bool", "Whether to draw `update_errors_` too, where the estimator has them."),
    "name": ("str", "Name in the legend; for an estimator None is the name of its class."),
    "kwargs": ("dict", "Options of `plot`; others are passed to matplotlib's function that draws the values."),
}


class Display:
    """A picture, with the axes and the figure on which it was drawn last, `ax_` and `figure_`."""

    def __init_subclass__(cls, **options: object) -> None:
        """Complete the docstrings of a display and of its methods with what `PARAMETERS` says."""
        super().__init_subclass__(**options)
        text = inspect.cleandoc(cls.__doc__ or "")
        head, title, tail = text.partition("Attributes\n" if "Attributes\n" in text else "Examples\n")
        if title:
            cls.__doc__ = f"{head}{_parameters_of(cls.__init__)}\n{title}{tail}\n"
        for name in {"plot", "from_estimator", "from_dictionaries"} & set(vars(cls)):
            method = getattr(vars(cls)[name], "__func__", vars(cls)[name])
            returns = "Returns\n-------\ndisplay : object\n    The display, with `ax_`, `figure_` and more.\n"
            method.__doc__ = f"{inspect.cleandoc(method.__doc__)}\n\n{_parameters_of(method)}\n{returns}"

    def _start(self, ax: Axes | None) -> Axes:
        """Set `ax_` and `figure_`: the given axes, or those of a new figure."""
        try:
            import matplotlib.pyplot as plt
        except ImportError as error:
            raise ImportError(
                "rkdl.plotting draws with matplotlib, which is not installed: pip install 'rkdl[plots]'."
            ) from error
        self.ax_: Axes = plt.subplots(layout="constrained")[1] if ax is None else ax
        self.figure_ = self.ax_.figure
        return self.ax_


def _parameters_of(function: Callable) -> str:
    """The section of a docstring about the parameters of a method."""
    lines = ["Parameters", "----------"]
    for name, parameter in list(inspect.signature(function).parameters.items())[1:]:
        kind, text = PARAMETERS[name]
        default = "" if parameter.default is parameter.empty else f", default={parameter.default!r}"
        stars = "**" if parameter.kind is parameter.VAR_KEYWORD else ""
        lines += [f"{stars}{name} : {kind}{default}", f"    {text}"]
    return "\n".join([*lines, ""])


class Fitted:
    """A fitted estimator, or the last step of a pipeline and the steps before it."""

    def __init__(self, estimator: BaseEstimator) -> None:
        is_pipeline = isinstance(estimator, Pipeline)
        self.model = estimator[-1] if is_pipeline else estimator
        self.steps = estimator[:-1] if is_pipeline and len(estimator.steps) > 1 else None
        check_is_fitted(self.model)
        self.feature_names = getattr(estimator, "feature_names_in_", None)

    def get(self, name: str, remedy: str) -> Any:
        """A method or a fitted attribute of the estimator, or an error with a remedy."""
        found = getattr(self.model, name, None)
        if found is None:
            raise ValueError(f"{type(self.model).__name__} has no {name}: {remedy}.")
        return found

    def forward(self, X: MatrixLike) -> MatrixLike:
        """Signals as the last step of a pipeline sees them."""
        return X if self.steps is None else self.steps.transform(X)

    def backward(self, signals: np.ndarray) -> np.ndarray:
        """Signals of the last step in the units of the pipeline's input."""
        if self.steps is None:
            return signals
        if not hasattr(self.steps, "inverse_transform"):
            names = ", ".join(type(step).__name__ for _, step in self.steps.steps)
            raise ValueError(
                f"The model cannot be shown in the units of the pipeline's input, because not all of its steps "
                f"({names}) have an inverse_transform: give its last step, pipeline[-1]."
            )
        return np.asarray(self.steps.inverse_transform(signals))


def dense(X: Array) -> np.ndarray:
    """Signals in memory, one per row."""
    return np.asarray(X.toarray() if hasattr(X, "toarray") else X)


def group_rows(n_rows: int, y: ArrayLike | None) -> list[tuple[Any, np.ndarray]]:
    """Labels and the rows that have them, in the order of the labels; all rows under None without labels."""
    if y is None:
        return [(None, np.arange(n_rows))]
    labels = np.asarray(y)
    if labels.shape != (n_rows,):
        raise ValueError(f"y has shape {labels.shape}, and there are {n_rows} signals: give one label per signal.")
    return [(label, np.flatnonzero(labels == label)) for label in np.unique(labels)]
