"""Curves: errors over the iterations of a fit, and how well the atoms of a known dictionary were found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from rkdl._utils.types import MatrixLike
from rkdl.metrics import match_atoms
from rkdl.plotting._display import Display, Fitted
from rkdl.plotting._drawing import Style, draw_curve

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class ErrorCurveDisplay(Display):
    """Error of the representation over the iterations of a fit.

    Attributes
    ----------
    line_ : matplotlib Line2D
        Errors after each iteration.
    update_line_ : matplotlib Line2D or None
        Errors right after each update.

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

    def plot(self, ax: Axes | None = None, **kwargs: object) -> Self:
        """Draw the display."""
        ax = self._start(ax)
        self.line_ = draw_curve(ax, self.errors, kwargs, label=self.name or "after coding again")
        self.update_line_ = None
        if self.update_errors is not None:
            label = f"{self.name}, right after the update" if self.name else "right after the update"
            style: Style = {"linestyle": ":", "marker": "", "color": self.line_.get_color(), "label": label}
            self.update_line_ = draw_curve(ax, self.update_errors, style)
        ax.set(xlabel="iteration", ylabel=r"error $\sqrt{f\,/\,(m N)}$")
        ax.legend()
        return self

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        *,
        show_updates: bool = True,
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: object,
    ) -> Self:
        """Draw the errors of DL or a kernel method."""
        fitted = Fitted(estimator)
        errors = fitted.get("errors_", "only single dictionaries record their errors")
        updates = getattr(fitted.model, "update_errors_", None) if show_updates else None
        name = type(fitted.model).__name__ if name is None else name
        return cls(errors, update_errors=updates, name=name).plot(ax, **kwargs)


class RecoveryDisplay(Display):
    """Absolute cosines between true and learned atoms that match, sorted; those above the threshold were found.

    Attributes
    ----------
    line_ : matplotlib Line2D
        The cosines, the largest first.
    threshold_line_ : matplotlib Line2D
        The threshold.

    Examples
    --------
    >>> import numpy as np
    >>> from rkdl.plotting import RecoveryDisplay
    >>> display = RecoveryDisplay.from_dictionaries(np.eye(3), [[0, 0, -2], [1, 0, 0], [0, 3, 4]])
    >>> display.line_.get_ydata()
    array([1. , 1. , 0.6])
    >>> display.line_.get_label()
    '67 % found'
    """

    def __init__(self, cosines: ArrayLike, *, threshold: float = 0.99, name: str | None = None) -> None:
        self.cosines = np.asarray(cosines)
        self.threshold = threshold
        self.name = name

    def plot(self, ax: Axes | None = None, **kwargs: object) -> Self:
        """Draw the display."""
        ax = self._start(ax)
        found = f"{np.mean(self.cosines > self.threshold):.0%} found".replace("%", " %")
        label = f"{self.name}: {found}" if self.name else found
        self.line_ = draw_curve(ax, np.sort(self.cosines)[::-1], kwargs, label=label, clip_on=False)
        self.threshold_line_ = ax.axhline(self.threshold, color="black", linestyle=":", linewidth=1.0)
        ax.set(xlabel="true atoms, best match first", ylabel="absolute cosine with its match", ylim=(0.0, 1.0))
        ax.legend(loc="lower left")
        return self

    @classmethod
    def from_dictionaries(
        cls,
        true: MatrixLike,
        learned: MatrixLike,
        *,
        threshold: float = 0.99,
        name: str | None = None,
        ax: Axes | None = None,
        **kwargs: object,
    ) -> Self:
        """Match the atoms as `rkdl.metrics.match_atoms` does, and draw the cosines."""
        return cls(match_atoms(true, learned)[1], threshold=threshold, name=name).plot(ax, **kwargs)


class FeatureRelevanceDisplay(Display):
    """How much each feature counts in a kernel that was learned for labels, the most relevant first.

    Attributes
    ----------
    bars_ : matplotlib BarContainer
        One bar per feature that is drawn.

    Examples
    --------
    >>> from sklearn.datasets import make_friedman1
    >>> from rkdl import KDLRegressor
    >>> from rkdl.plotting import FeatureRelevanceDisplay
    >>> X, y = make_friedman1(300, random_state=0)
    >>> display = FeatureRelevanceDisplay.from_estimator(KDLRegressor(random_state=0).fit(X, y), max_features=5)
    >>> sorted(int(number) for number in display.numbers)
    [0, 1, 2, 3, 4]
    """

    _label = "share in the squared distance"

    def __init__(
        self, relevance: ArrayLike, *, feature_names: ArrayLike | None = None, max_features: int | None = 20
    ) -> None:
        self.relevance = np.asarray(relevance)
        self.numbers = np.argsort(-self.relevance, kind="stable")[:max_features]
        self.feature_names = feature_names

    def plot(self, ax: Axes | None = None, **kwargs: Any) -> Self:
        """Draw the display."""
        ax = self._start(ax)
        names = np.arange(len(self.relevance)) if self.feature_names is None else np.asarray(self.feature_names)
        self.bars_ = ax.barh(np.arange(len(self.numbers)), self.relevance[self.numbers], **{"color": "C0", **kwargs})
        ax.set_yticks(np.arange(len(self.numbers)), [str(name) for name in names[self.numbers]])
        ax.invert_yaxis()
        ax.set(xlabel=self._label, ylabel="feature")
        return self

    @classmethod
    def from_estimator(
        cls, estimator: BaseEstimator, *, max_features: int | None = 20, ax: Axes | None = None, **kwargs: object
    ) -> Self:
        """Draw the relevance of the features of KDLClassifier or KDLRegressor."""
        fitted = Fitted(estimator)
        relevance = fitted.get("feature_relevance_", "give a KDLClassifier or a KDLRegressor")
        return cls(relevance, feature_names=fitted.feature_names, max_features=max_features).plot(ax, **kwargs)


class ExplanationDisplay(FeatureRelevanceDisplay):
    """Why a signal is an outlier: how much its score would rise if a feature were as the dictionaries represent it.

    Attributes
    ----------
    bars_ : matplotlib BarContainer
        One bar per feature that is drawn.

    Examples
    --------
    >>> import numpy as np
    >>> from rkdl import KDLOutlierDetector
    >>> from rkdl.plotting import ExplanationDisplay
    >>> X = np.random.default_rng(0).standard_normal((300, 4))
    >>> X[0, 2] = 9.0
    >>> display = ExplanationDisplay.from_estimator(KDLOutlierDetector(random_state=0).fit(X), X[:1])
    >>> int(display.numbers[0])
    2
    """

    _label = "increase of the score"

    @classmethod
    def from_estimator(  # type: ignore[override]
        cls,
        estimator: BaseEstimator,
        X: MatrixLike,
        *,
        max_features: int | None = 20,
        ax: Axes | None = None,
        **kwargs: object,
    ) -> Self:
        """Draw the gains of the features of a signal, or their means over several, as `explain` computes them."""
        fitted = Fitted(estimator)
        gains = fitted.get("explain", "give a KDLOutlierDetector")(fitted.forward(X)).mean(axis=0)
        return cls(gains, feature_names=fitted.feature_names, max_features=max_features).plot(ax, **kwargs)
