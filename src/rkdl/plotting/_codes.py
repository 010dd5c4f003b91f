"""Display of codes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator as Estimator

from rkdl._utils.types import MatrixLike
from rkdl.plotting._display import Display, Fitted, dense, group_rows
from rkdl.plotting._drawing import draw_matrix, signed_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class CodesDisplay(Display):
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
    def from_estimator(
        cls, estimator: Estimator, X: MatrixLike, y: ArrayLike | None = None, *, ax: Axes | None = None, **kwargs: Any
    ) -> Self:
        """Draw the codes of signals by DL or a kernel method."""
        fitted = Fitted(estimator)
        codes = fitted.get("transform", "give DL or a kernel method")(fitted.forward(X))
        return cls(codes, y=y).plot(ax, **kwargs)
