"""Checks of the paper's claims, round by round, and comparison with its printed figures."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from rkdl._reproduction.paper import PAPER_METHODS, PRINTED_ERRORS, PRINTED_SECONDS
from rkdl._reproduction.summary import (
    Margin,
    Summaries,
    Summary,
    columns,
    common_rounds,
    difference,
    percent,
    share,
    show_error,
    show_seconds,
    times,
)

HELD, NOT_HELD, UNTESTED = "held", "not held", "not tested"

#: The claims by key, in the order of tables.
CLAIMS = {
    "optimised": "optimising D lowers the error: ORKDL-D and MORKDL-D end below RKDL-D",
    "similar": "with far fewer kernel vectors than signals, the reduced methods end within 1 % of KDL or below it",
    "reduced": "all reduced methods end below KDL",
    "order": "the error falls from KDL to RKDL-D to ORKDL-D to MORKDL-D",
    "best": "MORKDL-D has the lowest error of the four",
    "second": "the reduced methods are below KDL from the second iteration on (figures 1 to 3 of the paper)",
    "memory": "the reduced methods need less memory than KDL",
    "six": "RKDL-D is at least six times faster than KDL",
    "saving": "ORKDL-D and MORKDL-D save at least 20 % of KDL's time (20 to 45 % in the paper)",
}
OF_TIME = ("six", "saving")

_LEAST_SPEEDUP, _LEAST_SAVING = 6.0, 0.20
_NEAR = 0.01
_REDUCED = PAPER_METHODS[1:]
_OPTIMISED = PAPER_METHODS[2:]

_NO_TIMES = {
    "published": "the arithmetic takes a faster route here than in the authors' program, which was not run",
    "restricted": "run for its errors alone",
}


@dataclass(frozen=True)
class Claim:
    """One claim of the paper, checked for one preset on one data set.

    Parameters
    ----------
    key : str
        Key of `CLAIMS`.
    verdict : {"held", "not held", "not tested"}
        By the mean of the differences within rounds; for times by the median of the ratios.
    evidence : str
        The figures that decide it.
    is_clear : bool
        Whether the 95 % confidence intervals of these differences exclude the opposite.
    is_one_round : bool
        Whether it rests on a single round.
    """

    key: str
    verdict: str
    evidence: str
    is_clear: bool = True
    is_one_round: bool = False

    @property
    def shown(self) -> str:
        """The verdict, qualified if chance may have decided it."""
        if self.verdict == UNTESTED:
            return self.verdict
        if self.is_one_round:
            return f"{self.verdict}, one round"
        return self.verdict if self.is_clear else f"{self.verdict}, within scatter"


def judge(preset: str, summaries: Summaries) -> list[Claim]:
    """Check all claims for one preset on one data set."""
    methods = summaries[preset]
    missing = [method for method in PAPER_METHODS if method not in methods]
    if missing or not common_rounds(*(methods[method] for method in PAPER_METHODS)):
        evidence = f"no run of {', '.join(missing)}" if missing else "no round of all four methods"
        return [Claim(key, UNTESTED, evidence) for key in CLAIMS]
    diverged = [method for method in PAPER_METHODS if not math.isfinite(methods[method].error.middle)]
    judges = {
        "optimised": _optimised,
        "similar": _similar,
        "reduced": _reduced,
        "order": _order,
        "best": _best,
        "second": _second,
        "memory": _memory,
    }
    found = []
    n_rounds = len(common_rounds(*(methods[method] for method in PAPER_METHODS)))
    for key, check in judges.items():
        if diverged and key != "memory":
            found.append(Claim(key, NOT_HELD, f"{', '.join(diverged)} diverged", True, n_rounds == 1))
        else:
            found.append(check(methods, n_rounds))
    return [*found, *_times(preset, summaries)]


def verdicts(summaries: Summaries) -> dict[str, list[Claim]]:
    """Check all claims for every column that has run."""
    return {preset: judge(preset, summaries) for preset in columns(summaries)}


def against_printed(column: str, methods: dict[str, Summary], is_timed: bool = True) -> list[str]:
    """Lines that compare one preset's figures with a printed column, times only if they were measured with care."""
    here = [method for method in PAPER_METHODS if method in methods and math.isfinite(methods[method].error.middle)]
    if not here:
        return []
    gaps = gap_to_printed(column, methods)
    near = [method for method in here if abs(gaps[method]) <= _NEAR]
    lowest = min(PRINTED_ERRORS[column].values())
    below = [method for method in here if methods[method].error.middle < lowest]
    lines = [
        f"error against the printed one: {', '.join(f'{method} {percent(gaps[method])}' for method in here)}",
        f"within 1 % of the printed error: {_listed(near, here)}",
        f"below every printed error ({show_error(lowest)}): {_listed(below, here)}",
    ]
    if is_timed:
        ratios = {method: times(PRINTED_SECONDS[column][method], methods[method].time.middle) for method in here}
        shown = ", ".join(f"{method} {ratio:.0f}" for method, ratio in ratios.items())
        lines.append(f"printed time, of another machine, divided by the time here: {shown}")
    return lines


def gap_to_printed(column: str, methods: dict[str, Summary]) -> dict[str, float]:
    """Relative difference between each error and the printed one."""
    return {
        method: share(methods[method].error.middle - PRINTED_ERRORS[column][method], PRINTED_ERRORS[column][method])
        for method in PAPER_METHODS
        if method in methods
    }


def _decide(key: str, margins: Sequence[Margin], evidence: str, n_rounds: int) -> Claim:
    """A claim holds if all margins are positive; it is as clear as its narrowest margin, or its clearest violation."""
    wrong = [margin for margin in margins if not margin.centre > 0.0]
    if wrong:
        return Claim(key, NOT_HELD, evidence, any(margin.is_clear for margin in wrong), n_rounds == 1)
    return Claim(key, HELD, evidence, all(margin.is_clear for margin in margins), n_rounds == 1)


def _gaps(methods: dict[str, Summary], base: str, names: Sequence[str]) -> str:
    """Differences from a method in per cent, with half of their confidence intervals."""
    return ", ".join(f"{name} {gap_text(methods[name], methods[base])}" for name in names)


def gap_text(summary: Summary, base: Summary, by_best_atoms: bool = False) -> str:
    """How far a method ends above another (below, if negative), paired by round: ``-1.2 ± 0.3 %``."""
    margin = difference(summary, base, by_best_atoms=by_best_atoms)
    if margin.half_width is None:
        return percent(-margin.centre)
    digits = 1 if max(abs(margin.centre), margin.half_width) >= 0.0005 else 2
    centre = f"{-100 * margin.centre:+.{digits}f}"
    return f"{centre if float(centre) else centre[1:]} ± {100 * margin.half_width:.{digits}f} %"


def _optimised(methods: dict[str, Summary], n_rounds: int) -> Claim:
    margins = [difference(methods[name], methods["RKDL-D"]) for name in _OPTIMISED]
    return _decide("optimised", margins, f"against RKDL-D: {_gaps(methods, 'RKDL-D', _OPTIMISED)}", n_rounds)


def _similar(methods: dict[str, Summary], n_rounds: int) -> Claim:
    margins = [difference(methods[name], methods["KDL"], 1.0 + _NEAR) for name in _REDUCED]
    return _decide("similar", margins, f"against KDL: {_gaps(methods, 'KDL', _REDUCED)}", n_rounds)


def _reduced(methods: dict[str, Summary], n_rounds: int) -> Claim:
    margins = [difference(methods[name], methods["KDL"]) for name in _REDUCED]
    return _decide("reduced", margins, f"against KDL: {_gaps(methods, 'KDL', _REDUCED)}", n_rounds)


def _order(methods: dict[str, Summary], n_rounds: int) -> Claim:
    pairs = list(itertools.pairwise(PAPER_METHODS))
    margins = [difference(methods[after], methods[before]) for before, after in pairs]
    parts = [show_error(methods["KDL"].error.middle)]
    for (_, after), margin in zip(pairs, margins, strict=True):
        sign = ">" if margin.centre > 0 else "<" if margin.centre < 0 else "="
        parts.append(f"{sign} {show_error(methods[after].error.middle)}")
    return _decide("order", margins, " ".join(parts), n_rounds)


def _best(methods: dict[str, Summary], n_rounds: int) -> Claim:
    margins = [difference(methods["MORKDL-D"], methods[name]) for name in PAPER_METHODS[:-1]]
    lowest, second = sorted(PAPER_METHODS, key=lambda name: methods[name].error.middle)[:2]
    other = f"next {second}" if lowest == "MORKDL-D" else f"lowest {lowest}"
    error = methods[second if lowest == "MORKDL-D" else lowest].error.middle
    evidence = f"{show_error(methods['MORKDL-D'].error.middle)}, {other} {show_error(error)}"
    return _decide("best", margins, evidence, n_rounds)


def _second(methods: dict[str, Summary], n_rounds: int) -> Claim:
    rounds = common_rounds(*(methods[name] for name in PAPER_METHODS))
    length = max(len(methods[name].curves[number]) for name in PAPER_METHODS for number in rounds)
    if length < 2:
        return Claim("second", UNTESTED, "one iteration was run")
    full = [methods["KDL"].curve_of(number, length) for number in rounds]
    margins, at_two = [], []
    for name in _REDUCED:
        own = [methods[name].curve_of(number, length) for number in rounds]
        steps = [
            Margin.of([share(a[step] - b[step], a[step]) for a, b in zip(full, own, strict=True)])
            for step in range(1, length)
        ]
        margins += steps
        n_below = sum(margin.centre > 0.0 for margin in steps)
        at_two.append(
            f"{name} {percent(-steps[0].centre)} in iteration 2, below in {n_below} of {length - 1} iterations"
        )
    return _decide("second", margins, "; ".join(at_two), n_rounds)


def _memory(methods: dict[str, Summary], n_rounds: int) -> Claim:
    peaks = {name: methods[name].peak_bytes for name in PAPER_METHODS}
    known = {name: peak for name, peak in peaks.items() if peak}
    if len(known) < len(peaks):
        return Claim("memory", UNTESTED, "memory was not measured")
    evidence = "peak: " + ", ".join(f"{name} {show_bytes(peak)}" for name, peak in known.items())
    # Allocations do not vary by chance.
    is_held = max(known[name] for name in _REDUCED) < known["KDL"]
    return Claim("memory", HELD if is_held else NOT_HELD, evidence)


def show_bytes(count: float) -> str:
    """Format a number of bytes."""
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.{1 if count < 1e7 else 0}f} MB"


def _times(preset: str, summaries: Summaries) -> list[Claim]:
    """The two claims on time; those of the published code are judged by the authors' program product by product."""
    if preset not in _NO_TIMES:
        return _judge_times(summaries[preset], _OPTIMISED, "")
    literal = summaries.get("literal", {})
    if preset == "published" and {"KDL", "RKDL-D", "ORKDL-D"} <= literal.keys():
        # MORKDL-D was published as the program of ORKDL-D, with the linear term switched off.
        return _judge_times(literal, ("ORKDL-D",), "literal, the authors' program product by product: ")
    return [Claim(key, UNTESTED, _NO_TIMES[preset]) for key in OF_TIME]


def _judge_times(methods: dict[str, Summary], optimised: Sequence[str], prefix: str) -> list[Claim]:
    full = methods["KDL"]
    by_round = {
        name: [
            share(full.seconds[number], methods[name].seconds[number]) for number in common_rounds(methods[name], full)
        ]
        for name in ("RKDL-D", *optimised)
    }
    speedups = {name: statistics.median(ratios) for name, ratios in by_round.items()}

    def margin(name: str, least: float) -> Margin:
        # "At least" includes equality.
        ratios = [ratio / least * (1.0 + 1e-12) for ratio in by_round[name]]
        return Margin.of([math.log(ratio) if ratio > 0.0 else -math.inf for ratio in ratios], True)

    n_rounds = min(map(len, by_round.values()))
    own, its = show_seconds(methods["RKDL-D"].time.middle), show_seconds(full.time.middle)
    six = f"{prefix}{speedups['RKDL-D']:.1f} times, {own} s against {its} s"
    saving = prefix + ", ".join(f"{name} {_less_or_more(times(1.0, speedups[name]))}" for name in optimised)
    if "MORKDL-D" not in optimised:
        saving += ", and MORKDL-D was published as the same program"
    return [
        _decide("six", [margin("RKDL-D", _LEAST_SPEEDUP)], six, n_rounds),
        _decide("saving", [margin(name, 1.0 / (1.0 - _LEAST_SAVING)) for name in optimised], saving, n_rounds),
    ]


def _less_or_more(ratio: float) -> str:
    """A time as a share of another: ``33 % less``, ``20 % more`` or ``3.0 times as long``."""
    if ratio >= 2.0:
        return f"{ratio:.1f} times as long"
    return f"{100 * abs(1.0 - ratio):.0f} % {'less' if ratio <= 1.0 else 'more'}"


def _listed(chosen: list[str], among: list[str]) -> str:
    if not chosen:
        return "none"
    return "all" if len(chosen) == len(among) and len(among) > 1 else ", ".join(chosen)
