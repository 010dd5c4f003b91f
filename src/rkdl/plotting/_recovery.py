"""How well the atoms of a known dictionary were found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike

from rkdl._utils.types import MatrixLike
from rkdl.metrics import match_atoms
from rkdl.plotting._display import Display
from rkdl.plotting._drawing import Style, color_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D


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
        # Each dictionary that is added to the same axes has the next colour.
        color = color_of(sum(line.get_linestyle() == "-" for line in ax.lines))
        found = f"{np.mean(self.cosines > self.threshold):.0%} found".replace("%", " %")
        style: Style = {"color": color, "marker": "o", "markersize": 4, "clip_on": False}
        style["label"] = f"{self.name}: {found}" if self.name else found
        largest_first = np.sort(self.cosines)[::-1]
        self.line_: Line2D = ax.plot(1 + np.arange(len(largest_first)), largest_first, **{**style, **kwargs})[0]
        self.threshold_line_: Line2D = ax.axhline(self.threshold, color="black", linestyle=":", linewidth=1.0)
        ax.locator_params(axis="x", integer=True)
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
