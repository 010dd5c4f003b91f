"""Means and standard deviations over rounds, from the content of results.json."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rkdl._reproduction.paper import METHODS, PRESETS


@dataclass(frozen=True)
class Spread:
    """Mean, standard deviation (None for one value) and number of values."""

    mean: float
    deviation: float | None
    count: int

    @classmethod
    def of(cls, values: Sequence[float | None]) -> Spread | None:
        """None without values; NaN if any value is None or not finite."""
        if not values:
            return None
        numbers = [math.nan if value is None else float(value) for value in values]
        if not all(map(math.isfinite, numbers)):
            return cls(math.nan, None, len(numbers))
        deviation = statistics.stdev(numbers) if len(numbers) > 1 else None
        return cls(statistics.fmean(numbers), deviation, len(numbers))


@dataclass(frozen=True)
class Summary:
    """Summary of one method of a preset on a data set.

    Parameters
    ----------
    error : Spread
        After the last iteration.
    seconds : Spread
        Total time: the fit and, if the method has one, the training of D.
    dictionary_seconds : Spread or None
        Training of D alone.
    iterations : Spread
        Number of iterations.
    nonzeros : float or None
        Non-zeros per signal, mean over signals and rounds.
    curves : list of list
        Errors after every iteration, one list per round; None after a divergence.
    settings : dict
        As recorded.
    warnings : dict
        Warnings, and the number of rounds in which they occurred.
    """

    error: Spread
    seconds: Spread
    dictionary_seconds: Spread | None
    iterations: Spread
    nonzeros: float | None
    curves: list[list[float | None]]
    settings: dict[str, Any]
    warnings: dict[str, int]


def summarize(entry: dict[str, Any]) -> dict[str, dict[str, Summary]]:
    """Summaries of a data set by preset and method, in the order of tables; only those that have run."""
    found: dict[str, dict[str, Summary]] = {}
    for preset in PRESETS:
        methods = entry["presets"].get(preset, {})
        for method in METHODS:
            rounds = methods.get(method, {}).get("rounds", [])
            if rounds:
                found.setdefault(preset, {})[method] = _summarize(rounds, methods[method]["settings"])
    return found


def ordered(content: dict[str, Any]) -> dict[str, tuple[dict[str, Any], dict[str, dict[str, Summary]]]]:
    """Entry and summaries of every data set that has run: the paper's in its order, then files by name."""
    known = {name: position for position, name in enumerate(("digits", "mnist-5000", "mnist", "cifar10"))}
    names = sorted(content["datasets"], key=lambda name: (known.get(name, len(known)), name))
    entries = {os.path.basename(name): content["datasets"][name] for name in names}
    found = {name: (entry, summarize(entry)) for name, entry in entries.items()}
    return {name: pair for name, pair in found.items() if pair[1]}


def round_count(summaries: dict[str, dict[str, Summary]]) -> str:
    """Number of rounds in words; a range if a run is incomplete."""
    counts = sorted({summary.error.count for methods in summaries.values() for summary in methods.values()})
    if not counts:
        return "no round"
    if counts[0] == counts[-1]:
        return "1 round" if counts[0] == 1 else f"{counts[0]} rounds"
    return f"{counts[0]} to {counts[-1]} rounds"


def show_error(value: float, digits: int = 3) -> str:
    """Format an error as in the paper: 8.081e-3."""
    if not math.isfinite(value):
        return "diverged"
    mantissa, _, exponent = f"{value:.{digits}e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def times(number: float, unit: float) -> float:
    """Ratio of two numbers; infinite if the second is 0."""
    return number / unit if unit else math.inf


def relative_change(value: float, base: float) -> float:
    """``value / base - 1``; 0 or infinite if the base is 0."""
    return value / base - 1.0 if base else math.nan if math.isnan(value) else math.inf if value else 0.0


def core_count(content: dict[str, Any]) -> str:
    """Number of cores in words; resumed runs may have had different numbers."""
    counts = {
        record.get("made_with", content["machine"]).get("cores", content["machine"]["cores"])
        for entry in content["datasets"].values()
        for methods in entry["presets"].values()
        for place in methods.values()
        for record in place["rounds"]
    } or {content["machine"]["cores"]}
    return " or ".join(map(str, sorted(counts))) + " cores"


def _summarize(rounds: list[dict[str, Any]], settings: dict[str, Any]) -> Summary:
    training = [record["dictionary_seconds"] for record in rounds]
    totals = [record["seconds"] + record["dictionary_seconds"] for record in rounds]
    nonzeros = [record["mean_nonzeros"] for record in rounds if record["mean_nonzeros"] is not None]
    noted: dict[str, int] = {}
    for record in rounds:
        # Numbers differ between rounds: warnings that differ in numbers alone count as one.
        for text in {_gist(text): text for text in record["warnings"]}.values():
            first = next((known for known in noted if _gist(known) == _gist(text)), text)
            noted[first] = noted.get(first, 0) + 1
    return Summary(
        error=_known(Spread.of([record["errors"][-1] for record in rounds])),
        seconds=_known(Spread.of(totals)),
        dictionary_seconds=Spread.of(training) if any(training) else None,
        iterations=_known(Spread.of([len(record["errors"]) for record in rounds])),
        nonzeros=statistics.fmean(nonzeros) if nonzeros else None,
        curves=[record["errors"] for record in rounds],
        settings=settings,
        warnings=noted,
    )


def _known(spread: Spread | None) -> Spread:
    assert spread is not None
    return spread


def _gist(text: str) -> str:
    return " ".join(word for word in text.split() if not any(sign.isdigit() for sign in word))
