"""The benchmark cases by name; each maps the settings to an iterator of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from benchmarks import recovery
from benchmarks.cases import dl, encode, growth, kdl, latency, penalties, reduced, shares, small, startup
from benchmarks.rows import Row
from benchmarks.settings import Settings

CASES: dict[str, Callable[[Settings], Iterable[Row]]] = {
    **{name: partial(encode.run, name) for name in encode.SIZES},
    **{name: partial(penalties.run, name) for name in penalties.SIZES},
    "dl": dl.run,
    "kdl": kdl.run,
    "reduced": reduced.run,
    "growth": growth.run,
    "shares": shares.run,
    "small": small.run,
    "latency": latency.run,
    "startup": startup.run,
    "recovery": recovery.run,
}

ALIASES = {"encode": list(encode.SIZES), "lasso": list(penalties.SIZES), "rkdl": ["reduced"], "orkdl": ["reduced"]}
