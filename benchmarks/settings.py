"""Options of a run, as given on the command line."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.peers import Peer, find
from benchmarks.race import PAUSE


@dataclass(frozen=True)
class Settings:
    """Options of a run.

    Attributes
    ----------
    tiny : bool
        Small inputs, to check that the benchmark works; its figures mean nothing, so targets are dropped.
    repeat : int
        Timings of every contender.
    data_dir : str or None
        Folder of MNIST; None for ``RKDL_DATA``.
    """

    tiny: bool = False
    repeat: int = 5
    data_dir: str | None = None

    @property
    def pause(self) -> float:
        """Seconds between timings."""
        return 0.0 if self.tiny else PAUSE

    def goal(self, value: float | None) -> float | None:
        """The target, or None in a tiny run."""
        return None if self.tiny else value

    def peer(self, key: str) -> Peer:
        """Find a peer."""
        return find(key)
