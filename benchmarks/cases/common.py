"""Build table rows from timings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.peers import Peer
from benchmarks.race import Lap
from benchmarks.rows import FAILED, NOT_AVAILABLE, Comparison, Side

Peak = Callable[[], float | None]


def compare(
    case: str,
    what: str,
    setting: str,
    peer: Peer,
    ours: Lap,
    theirs: Lap | None,
    *,
    check: Callable[[float | None, float | None], bool | None],
    peaks: tuple[Peak, Peak] | None = None,
    **fields: Any,
) -> Comparison:
    """Build the row that compares rkdl with a peer.

    Parameters
    ----------
    case, what, setting, peer : str, str, str, Peer
        What is compared.
    ours, theirs : Lap
        The timings; `theirs` is None where the peer is not available.
    check : callable
        Whether the two measures agree.
    peaks : tuple of two callables, default=None
        Measure the peak memory of each; called only if both ran.
    **fields
        Further fields of the row.
    """
    row = Comparison(case, what, setting, ours.side("rkdl"), Side(peer.name), **fields)
    if ours.error:
        row.status, row.reason = FAILED, f"rkdl: {ours.error}"
    elif not peer.available:
        row.status, row.reason = NOT_AVAILABLE, f"{peer.name} {peer.version} {peer.reason}".replace("  ", " ")
    elif theirs is None or theirs.error:
        row.status, row.reason = FAILED, f"{peer.name}: {theirs.error if theirs else 'was not run'}"
    else:
        row.theirs = theirs.side(peer.name)
        row.agrees = check(ours.measure, theirs.measure)
        if peaks is not None:
            row.ours.memory_mb, row.theirs.memory_mb = peaks[0](), peaks[1]()
    return row


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """Least-squares slope of log(seconds) against log(N)."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def thousands(number: int) -> str:
    """Format a count with thousands separators."""
    return f"{number:,}"
