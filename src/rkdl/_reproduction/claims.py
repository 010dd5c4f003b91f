"""Checks of the paper's claims, and comparison with its printed figures."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

from rkdl._reproduction.paper import PAPER_METHODS, PRINTED_ERRORS, PRINTED_SECONDS
from rkdl._reproduction.summary import Spread, Summary, relative_change, show_error, times

HELD, NOT_HELD, UNTESTED = "held", "not held", "not tested"

#: The claims by key, in the order of tables.
CLAIMS = {
    "order": "the error falls from KDL to RKDL-D to ORKDL-D to MORKDL-D",
    "reduced": "all reduced methods end below full KDL",
    "best": "MORKDL-D has the lowest error of the four",
    "six": "RKDL-D is at least six times faster than KDL",
    "saving": "ORKDL-D and MORKDL-D save 20 % of KDL's time or more (in the paper 20 to 45 %)",
}

_LEAST_SPEEDUP, _LEAST_SAVING = 6.0, 0.20
_NEAR = 0.01
_FRACTION_OF_TIME = 20.0


@dataclass(frozen=True)
class Claim:
    """One claim of the paper, checked for one preset on one data set.

    Parameters
    ----------
    key : str
        Key of `CLAIMS`.
    verdict : {"held", "not held", "not tested"}
        By the means over rounds.
    evidence : str
        The figures that decide it.
    is_clear : bool
        Whether the deciding errors differ by more than twice their standard error.
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
        if self.is_one_round:
            return f"{self.verdict}, one round"
        return self.verdict if self.is_clear else f"{self.verdict}, within scatter"


def judge(methods: dict[str, Summary]) -> list[Claim]:
    """Check all claims for one preset on one data set."""
    missing = [method for method in PAPER_METHODS if method not in methods]
    if missing:
        return [Claim(key, UNTESTED, f"no run of {', '.join(missing)}") for key in CLAIMS]
    diverged = [method for method in PAPER_METHODS if not math.isfinite(methods[method].error.mean)]
    errors = {method: methods[method].error for method in PAPER_METHODS}
    seconds = {method: methods[method].seconds.mean for method in PAPER_METHODS}
    if diverged:
        evidence = f"{', '.join(diverged)} diverged"
        quality = [Claim(key, NOT_HELD, evidence) for key in ("order", "reduced", "best")]
    else:
        quality = [_order(errors), _reduced(errors), _best(errors)]
    is_one_round = min(errors[method].count for method in PAPER_METHODS) == 1
    return [replace(claim, is_one_round=is_one_round) for claim in (*quality, _six(seconds), _saving(seconds))]


def against_printed(column: str, methods: dict[str, Summary]) -> list[str]:
    """Sentences that compare one preset's figures with a printed column."""
    here = [method for method in PAPER_METHODS if method in methods and math.isfinite(methods[method].error.mean)]
    if not here:
        return []
    gaps = gap_to_printed(column, methods)
    near = [method for method in here if abs(gaps[method]) <= _NEAR]
    lowest = min(PRINTED_ERRORS[column].values())
    below = [method for method in here if methods[method].error.mean < lowest]
    share = [times(PRINTED_SECONDS[column][method], methods[method].seconds.mean) for method in here]
    fast = [method for method, ratio in zip(here, share, strict=True) if ratio > _FRACTION_OF_TIME]
    return [
        f"error against the printed one: {', '.join(f'{method} {percent(gaps[method])}' for method in here)}",
        f"within 1 % of the printed error: {_listed(near, here)}",
        f"below every printed error ({show_error(lowest)}): {_listed(below, here)}",
        f"in less than a twentieth of the printed time: {_listed(fast, here)} "
        f"({min(share):.0f} to {max(share):.0f} times faster)",
    ]


def gap_to_printed(column: str, methods: dict[str, Summary]) -> dict[str, float]:
    """Relative difference between each error and the printed one."""
    return {
        method: relative_change(methods[method].error.mean, PRINTED_ERRORS[column][method])
        for method in PAPER_METHODS
        if method in methods
    }


def percent(share: float) -> str:
    """Format a signed percentage, with an extra digit for small values."""
    if not math.isfinite(share):
        return "diverged" if math.isnan(share) else "above 0"
    text = f"{100 * share:+.{1 if abs(share) >= 0.0005 else 2}f}"
    return f"{text} %" if float(text) else "0.0 %"


def verdicts(summaries: dict[str, dict[str, Summary]]) -> dict[str, list[Claim]]:
    """Check all claims for every preset that has run."""
    return {preset: judge(methods) for preset, methods in summaries.items()}


def _order(errors: dict[str, Spread]) -> Claim:
    pairs = list(itertools.pairwise(PAPER_METHODS))
    falls = [errors[after].mean < errors[before].mean for before, after in pairs]
    parts = [show_error(errors["KDL"].mean)]
    for (before, after), does_fall in zip(pairs, falls, strict=True):
        sign = ">" if does_fall else "=" if errors[after].mean == errors[before].mean else "<"
        parts.append(f"{sign} {show_error(errors[after].mean)}")
    wrong = [pair for pair, does_fall in zip(pairs, falls, strict=True) if not does_fall]
    # A failed claim is as clear as its clearest violation, a held one as its narrowest margin.
    if wrong:
        return Claim("order", NOT_HELD, " ".join(parts), any(_is_clear(errors[b], errors[a]) for b, a in wrong))
    return Claim("order", HELD, " ".join(parts), all(_is_clear(errors[b], errors[a]) for b, a in pairs))


def _reduced(errors: dict[str, Spread]) -> Claim:
    full = errors["KDL"]
    gaps = {method: relative_change(errors[method].mean, full.mean) for method in PAPER_METHODS[1:]}
    evidence = ", ".join(f"{method} {percent(gap)}" for method, gap in gaps.items())
    above = [method for method, gap in gaps.items() if gap >= 0.0]
    if above:
        return Claim("reduced", NOT_HELD, evidence, any(_is_clear(errors[method], full) for method in above))
    return Claim("reduced", HELD, evidence, all(_is_clear(errors[method], full) for method in gaps))


def _best(errors: dict[str, Spread]) -> Claim:
    ranked = sorted(PAPER_METHODS, key=lambda method: errors[method].mean)
    lowest, second = ranked[:2]
    if lowest == "MORKDL-D":
        evidence = f"{show_error(errors[lowest].mean)}, next {second} {show_error(errors[second].mean)}"
        return Claim("best", HELD, evidence, _is_clear(errors[lowest], errors[second]))
    evidence = f"{show_error(errors['MORKDL-D'].mean)}, lowest {lowest} {show_error(errors[lowest].mean)}"
    return Claim("best", NOT_HELD, evidence, _is_clear(errors[lowest], errors["MORKDL-D"]))


def _six(seconds: dict[str, float]) -> Claim:
    ratio = times(seconds["KDL"], seconds["RKDL-D"])
    evidence = f"{seconds['RKDL-D']:.3g} s against {seconds['KDL']:.3g} s, {ratio:.1f} times"
    return Claim("six", HELD if ratio >= _LEAST_SPEEDUP else NOT_HELD, evidence)


def _saving(seconds: dict[str, float]) -> Claim:
    savings = {method: -relative_change(seconds[method], seconds["KDL"]) for method in ("ORKDL-D", "MORKDL-D")}
    evidence = ", ".join(f"{method} {_less_or_more(saving)}" for method, saving in savings.items())
    return Claim("saving", HELD if min(savings.values()) >= _LEAST_SAVING else NOT_HELD, evidence)


def _less_or_more(saving: float) -> str:
    return f"{100 * saving:.0f} % less" if saving >= 0 else f"{1.0 - saving:.1f} times as long"


def _is_clear(one: Spread, other: Spread) -> bool:
    """Whether two means differ by more than twice their standard error; True for single rounds."""
    if one.deviation is None or other.deviation is None:
        return True
    variance = one.deviation**2 / one.count + other.deviation**2 / other.count
    return abs(one.mean - other.mean) > 2.0 * math.sqrt(variance)


def _listed(chosen: list[str], among: list[str]) -> str:
    if not chosen:
        return "none"
    return "all" if len(chosen) == len(among) and len(among) > 1 else ", ".join(chosen)
