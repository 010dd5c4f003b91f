"""Results of a run: comparisons with a peer, and stand-alone figures."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

# Largest relative difference of residuals or errors between solutions that agree.
AGREEMENT = 1e-3

# Unit of a figure that is 1 for yes and 0 for no.
YES_NO = "yes/no"

OK, SKIPPED, NOT_AVAILABLE, FAILED = "ok", "skipped", "not available", "failed"


@dataclass
class Side:
    """One library's part of a comparison.

    Attributes
    ----------
    library : str
        Its name.
    seconds : list of float
        Every timing, in the order taken.
    measure : float or None
        Mean residual norm or error of its solution.
    memory_mb : float or None
        Peak memory of a fresh process above that with the inputs loaded.
    """

    library: str
    seconds: list[float] = field(default_factory=list)
    measure: float | None = None
    memory_mb: float | None = None

    @property
    def best(self) -> float | None:
        """The shortest time."""
        return min(self.seconds, default=None)


@dataclass
class Comparison:
    """rkdl and a peer on one case.

    Attributes
    ----------
    case, what, setting : str
        The case, its inputs in words, and rkdl's settings.
    ours, theirs : Side
        The two libraries.
    dtype : str
        Of the signals, for both.
    target : float or None
        Target for the ratio of the times.
    agrees : bool or None
        Whether rkdl's solution is as good as the peer's; None where they are not comparable.
    status, reason : str
        "ok", "skipped", "not available" or "failed", and why.
    limits : dict
        The hardware's limits for this case, in seconds.
    note : str
        Remarks for the reader.
    """

    case: str
    what: str
    setting: str
    ours: Side
    theirs: Side
    dtype: str = "float32"
    target: float | None = None
    agrees: bool | None = None
    status: str = OK
    reason: str = ""
    limits: dict[str, float] = field(default_factory=dict)
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """The peer's time over rkdl's."""
        if self.ours.best is None or self.theirs.best is None:
            return None
        return self.theirs.best / self.ours.best

    @property
    def met(self) -> bool | None:
        """Whether the target is reached with an equally good solution; None without a target."""
        if self.target is None or self.ratio is None:
            return None
        return self.ratio >= self.target and self.agrees is not False

    def to_dict(self) -> dict[str, Any]:
        """Convert to a dict for JSON."""
        ours, theirs = asdict(self.ours), asdict(self.theirs)
        ours["best"], theirs["best"] = self.ours.best, self.theirs.best
        return {**asdict(self), "ours": ours, "theirs": theirs, "ratio": self.ratio, "met": self.met}


@dataclass
class Figure:
    """A stand-alone figure of rkdl, and the bound it should satisfy.

    Attributes
    ----------
    case, what : str
        The case and what was measured.
    value, unit : float or None, str
        The number.
    bound, sense : float or None, {"at most", "at least"}
        The target.
    status, reason : str
        As in `Comparison`.
    note : str
        Remarks for the reader.
    series : list of dict
        The points behind the number, for instance seconds for every N.
    """

    case: str
    what: str
    value: float | None = None
    unit: str = ""
    bound: float | None = None
    sense: str = "at most"
    status: str = OK
    reason: str = ""
    note: str = ""
    series: list[dict[str, Any]] = field(default_factory=list)

    @property
    def met(self) -> bool | None:
        """Whether the bound is satisfied; None without a bound."""
        if self.bound is None or self.value is None:
            return None
        return self.value <= self.bound if self.sense == "at most" else self.value >= self.bound

    def to_dict(self) -> dict[str, Any]:
        """Convert to a dict for JSON."""
        return {**asdict(self), "met": self.met}


Row = Comparison | Figure


def same(ours: float | None, theirs: float | None) -> bool | None:
    """Whether two residuals are equal to `AGREEMENT`."""
    if ours is None or theirs is None:
        return None
    return abs(ours - theirs) <= AGREEMENT * max(abs(ours), abs(theirs))


def no_worse(ours: float | None, theirs: float | None) -> bool | None:
    """Whether our error is the same to `AGREEMENT`, or lower."""
    if ours is None or theirs is None:
        return None
    return ours <= theirs * (1.0 + AGREEMENT)
