"""Summaries over rounds, from the content of results.json, and comparisons of two methods round by round."""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from scipy.special import stdtrit

from rkdl._reproduction.paper import METHODS, OWN, PRESETS, STUDIES

ByRound = dict[int, float]
Summaries = dict[str, dict[str, "Summary"]]


@dataclass(frozen=True)
class Spread:
    """A middle value, its scatter (None for one value) and the number of values."""

    middle: float
    scatter: float | None
    count: int

    @classmethod
    def of_errors(cls, values: Iterable[float]) -> Spread:
        """Mean and standard deviation; NaN if any value is not finite."""
        numbers = list(values)
        if not numbers or not all(map(math.isfinite, numbers)):
            return cls(math.nan, None, len(numbers))
        return cls(statistics.fmean(numbers), statistics.stdev(numbers) if len(numbers) > 1 else None, len(numbers))

    @classmethod
    def of_times(cls, values: Iterable[float]) -> Spread:
        """Median and half the distance between the smallest and the largest value."""
        numbers = list(values)
        if not numbers:
            return cls(math.nan, None, 0)
        half = (max(numbers) - min(numbers)) / 2 if len(numbers) > 1 else None
        return cls(statistics.median(numbers), half, len(numbers))


class Margin(NamedTuple):
    """A quantity that decides a claim by its sign, measured once per round.

    Parameters
    ----------
    centre : float
        Mean or median over rounds.
    half_width : float or None
        Half of the 95 % confidence interval of the mean by Student's t; None for one round.
    is_clear : bool
        Whether the interval excludes zero, on the side of the centre.
    """

    centre: float
    half_width: float | None
    is_clear: bool

    @classmethod
    def of(cls, values: Sequence[float], by_median: bool = False) -> Margin:
        """Margin of one value per round."""
        if not values or not all(map(math.isfinite, values)):
            return cls(math.nan, None, True)
        mean = statistics.fmean(values)
        centre = statistics.median(values) if by_median else mean
        if len(values) == 1:
            return cls(centre, None, True)
        quantile = float(stdtrit(len(values) - 1, 0.975))
        half = quantile * statistics.stdev(values) / math.sqrt(len(values))
        return cls(centre, half, abs(mean) > half and mean * centre > 0.0)


@dataclass(frozen=True)
class Summary:
    """One method of a preset on a data set; values by round.

    Parameters
    ----------
    curves : dict of list
        Errors after every iteration; NaN after a divergence.
    seconds, dictionary_seconds : dict
        Total time, and the part of it in which D was trained.
    best_errors : dict
        Errors of the final codes with the best atoms for them; NaN if unknown.
    nonzeros : float or None
        Non-zeros per signal of these codes, mean over signals and rounds.
    peak_bytes : int or None
        Peak memory of a fit.
    settings : dict
        As recorded.
    warnings : dict
        Warnings, and the number of rounds in which they occurred.
    """

    curves: dict[int, list[float]]
    seconds: ByRound
    dictionary_seconds: ByRound
    best_errors: ByRound
    nonzeros: float | None
    peak_bytes: int | None
    settings: dict[str, Any]
    warnings: dict[str, int]

    @property
    def n_rounds(self) -> int:
        """Number of rounds."""
        return len(self.curves)

    @cached_property
    def errors(self) -> ByRound:
        """Errors after the last iteration."""
        return {number: curve[-1] for number, curve in self.curves.items()}

    @cached_property
    def error(self) -> Spread:
        """Their mean and standard deviation."""
        return Spread.of_errors(self.errors.values())

    @cached_property
    def best_error(self) -> Spread:
        """Mean and standard deviation with the best atoms."""
        return Spread.of_errors(self.best_errors.values())

    @cached_property
    def time(self) -> Spread:
        """Median and half range of the total time."""
        return Spread.of_times(self.seconds.values())

    @cached_property
    def dictionary_time(self) -> Spread | None:
        """The same of the training of D; None if there is none."""
        values = self.dictionary_seconds.values()
        return Spread.of_times(values) if any(values) else None

    @cached_property
    def iterations(self) -> float:
        """Mean number of iterations."""
        return statistics.fmean(map(len, self.curves.values()))

    def curve_of(self, number: int, length: int) -> list[float]:
        """A round's curve; one that converged early keeps its last error."""
        curve = self.curves[number]
        return [*curve, *[curve[-1]] * (length - len(curve))]


def common_rounds(*summaries: Summary) -> list[int]:
    """Rounds that all methods have."""
    return sorted(set.intersection(*(set(summary.curves) for summary in summaries)))


def difference(lower: Summary, upper: Summary, factor: float = 1.0, by_best_atoms: bool = False) -> Margin:
    """By how much the first error is below `factor` times the second, as a share of the second's mean."""
    rounds = common_rounds(lower, upper)
    low, high = (found.best_errors if by_best_atoms else found.errors for found in (lower, upper))
    base = statistics.fmean(high[number] for number in rounds) if rounds else math.nan
    return Margin.of([share(factor * high[number] - low[number], base) for number in rounds])


def share(part: float, whole: float) -> float:
    """``part / whole``; 0 or infinite if the whole is 0."""
    return part / whole if whole else math.nan if math.isnan(part) else math.copysign(math.inf, part) if part else 0.0


def summarize(entry: dict[str, Any]) -> Summaries:
    """Summaries of a data set by preset or study and method, in the order of tables; only those that have run."""
    found: Summaries = {}
    for preset in (*PRESETS, *STUDIES, OWN):
        methods = entry["presets"].get(preset, {})
        order = {method: position for position, method in enumerate(METHODS)}
        for method in sorted(methods, key=lambda name: order.get(name.partition(",")[0], len(order))):
            if methods[method]["rounds"]:
                place = methods[method]
                found.setdefault(preset, {})[method] = _summarize(place["rounds"], place["settings"])
    return found


def columns(summaries: Summaries) -> Summaries:
    """The presets that are columns of tables, without the studies."""
    return {preset: methods for preset, methods in summaries.items() if preset in PRESETS}


def ordered(content: dict[str, Any]) -> dict[str, tuple[dict[str, Any], Summaries]]:
    """Entry and summaries of every data set that has run: the paper's in its order, then files by name."""
    known = {name: position for position, name in enumerate(("digits", "mnist-5000", "mnist", "cifar10"))}
    names = sorted(content["datasets"], key=lambda name: (known.get(name, len(known)), name))
    entries = {os.path.basename(name): content["datasets"][name] for name in names}
    found = {name: (entry, summarize(entry)) for name, entry in entries.items()}
    return {name: pair for name, pair in found.items() if pair[1]}


def round_count(summaries: Summaries) -> str:
    """Number of rounds in words; a range if a run is incomplete. Studies may have fewer."""
    main = {preset: methods for preset, methods in summaries.items() if preset not in STUDIES} or summaries
    counts = sorted({summary.n_rounds for methods in main.values() for summary in methods.values()})
    if counts[0] == counts[-1]:
        return "1 round" if counts[0] == 1 else f"{counts[0]} rounds"
    return f"{counts[0]} to {counts[-1]} rounds"


def show_error(value: float, digits: int = 3) -> str:
    """Format an error as in the paper: 8.081e-3."""
    if not math.isfinite(value):
        return "diverged"
    mantissa, _, exponent = f"{value:.{digits}e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def show_seconds(value: float, like: float | None = None) -> str:
    """Format a time; with the digits that another one would have, if it is given."""
    size = value if like is None else like
    return f"{value:.{1 if size >= 10 else 2 if size >= 1 else 3}f}"


def percent(value: float) -> str:
    """Format a share as a signed percentage, with an extra digit for small values."""
    if not math.isfinite(value):
        return "diverged" if math.isnan(value) else "above 0"
    text = f"{100 * value:+.{1 if abs(value) >= 0.0005 else 2}f}"
    return f"{text} %" if float(text) else "0.0 %"


def in_words(parts: Sequence[str]) -> str:
    """``a, b and c``."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def times(number: float, unit: float) -> float:
    """Ratio of two numbers; infinite if the second is 0."""
    return number / unit if unit else math.inf


def core_count(content: dict[str, Any]) -> str:
    """Number of cores in words; resumed runs may have had different numbers."""
    counts = {
        record.get("made_with", content["machine"]).get("cores", content["machine"]["cores"])
        for entry in content["datasets"].values()
        for methods in entry["presets"].values()
        for place in methods.values()
        for record in place["rounds"]
    } or {content["machine"]["cores"]}
    return " or ".join(map(str, sorted(counts))) + (" core" if counts == {1} else " cores")


def _summarize(rounds: list[dict[str, Any]], settings: dict[str, Any]) -> Summary:
    noted: dict[str, int] = {}
    for record in rounds:
        # Numbers differ between rounds: warnings that differ in numbers alone count as one.
        for text in {_gist(text): text for text in record["warnings"]}.values():
            first = next((known for known in noted if _gist(known) == _gist(text)), text)
            noted[first] = noted.get(first, 0) + 1
    nonzeros = [record["mean_nonzeros"] for record in rounds if record["mean_nonzeros"] is not None]
    peaks = [record["peak_bytes"] for record in rounds if record["peak_bytes"]]
    return Summary(
        curves={record["round"]: [_number(error) for error in record["errors"]] for record in rounds},
        seconds={record["round"]: record["seconds"] + record["dictionary_seconds"] for record in rounds},
        dictionary_seconds={record["round"]: record["dictionary_seconds"] for record in rounds},
        best_errors={record["round"]: _number(record["best_error"]) for record in rounds},
        nonzeros=statistics.fmean(nonzeros) if nonzeros else None,
        peak_bytes=max(peaks) if peaks else None,
        settings=settings,
        warnings=noted,
    )


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _gist(text: str) -> str:
    return " ".join(word for word in text.split() if not any(sign.isdigit() for sign in word))
