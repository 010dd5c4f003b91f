"""The paper's claims as a table, each judged by quantities that are measured once per round.

Every claim is made up of parts, such as "ORKDL-D ends below RKDL-D". A part is one number per round, positive where it
is true; methods are paired by round, since they share the seed, D and the first atoms.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Callable, Sequence
from typing import NamedTuple

from scipy.special import stdtrit

from paper.runs import Run, Runs
from paper.settings import PAPER_METHODS, UNTIMED

HOLDS, FAILS, SCATTER, UNTESTED = "holds", "fails", "within scatter", "not tested"

REDUCED, OPTIMISED = PAPER_METHODS[1:], PAPER_METHODS[2:]
NEAR, LEAST_SPEEDUP, LEAST_SAVING = 0.01, 6.0, 0.2

Methods = dict[str, dict[int, Run]]
#: What a part says, and its number for every round.
Part = tuple[str, list[float]]


class Interval(NamedTuple):
    """Mean over rounds and half of its 95 % confidence interval by Student's t, which is None for one round."""

    mean: float
    half: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Interval:
        """Interval of one value per round."""
        mean = statistics.fmean(values)
        if len(values) == 1 or not math.isfinite(mean):
            return cls(mean, None)
        quantile = float(stdtrit(len(values) - 1, 0.975))
        return cls(mean, quantile * statistics.stdev(values) / math.sqrt(len(values)))

    def percent(self) -> str:
        """``-1.2 ± 0.3 %``."""
        if not math.isfinite(self.mean):
            return "diverged"
        return f"{100 * self.mean:+.1f}" + ("" if self.half is None else f" ± {100 * self.half:.1f}") + " %"


class Verdict(NamedTuple):
    """One of the four verdicts, the number of rounds behind it, and the figures that decide it."""

    verdict: str
    n_rounds: int = 0
    evidence: str = ""

    def __str__(self) -> str:
        return f"{self.verdict}, 1 round" if self.n_rounds == 1 and self.verdict != UNTESTED else self.verdict


def common_rounds(methods: Methods, names: Sequence[str]) -> list[int]:
    """Rounds that all named methods have."""
    return sorted(set.intersection(*(set(methods.get(name, {})) for name in names)))


def gap(methods: Methods, name: str, base: str, key: str = "error") -> list[float]:
    """How far a method's error is above another's, relative to it, by round; `key` may be "best_error"."""

    def value(run: Run) -> float:
        found = run["errors"][-1] if key == "error" else run[key]
        return math.nan if found is None else found

    rounds = common_rounds(methods, (name, base))
    return [value(methods[name][number]) / value(methods[base][number]) - 1.0 for number in rounds]


def _below(methods: Methods, names: Sequence[str], base: str, allowed: float = 0.0) -> list[Part]:
    parts = []
    for name in names:
        gaps = gap(methods, name, base)
        parts.append((f"{name} {Interval.of(gaps).percent()} against {base}", [allowed - value for value in gaps]))
    return parts


def _from_second_iteration(methods: Methods) -> list[Part]:
    rounds = common_rounds(methods, PAPER_METHODS)
    length = max(len(methods[name][number]["errors"]) for name in PAPER_METHODS for number in rounds)

    def error(name: str, number: int, step: int) -> float:
        curve = methods[name][number]["errors"]
        return curve[min(step, len(curve) - 1)]  # a fit that has converged keeps its last error

    parts = []
    for name in REDUCED:
        steps = [
            [1.0 - error(name, number, step) / error("KDL", number, step) for number in rounds]
            for step in range(1, length)
        ]
        n_below = sum(statistics.fmean(values) > 0.0 for values in steps)
        text = f"{name} below KDL in {n_below} of {length - 1} iterations"
        parts += [(text if number == 0 else "", values) for number, values in enumerate(steps)]
    return parts


def _less(methods: Methods, names: Sequence[str], key: str, least: float = 1.0) -> list[Part]:
    """KDL needs at least so many times as much time or memory."""
    parts = []
    for name in (name for name in names if name in methods):
        rounds = common_rounds(methods, ("KDL", name))
        ratios = [methods["KDL"][number][key] / methods[name][number][key] for number in rounds]
        text = f"{key.replace('_', ' ')} of KDL / {name}: {statistics.median(ratios):.2f}"
        parts.append((text, [math.log(ratio / least) for ratio in ratios]))
    return parts


class Claim(NamedTuple):
    """A claim: a few words for tables, the sentence, its parts, and whether it is about time."""

    short: str
    sentence: str
    parts: Callable[[Methods], list[Part]]
    of_time: bool = False


CLAIMS = (
    Claim(
        "optimising D lowers the error",
        "Optimising D lowers the error: ORKDL-D and MORKDL-D end below RKDL-D.",
        lambda methods: _below(methods, OPTIMISED, "RKDL-D"),
    ),
    Claim(
        f"reduced at most {100 * NEAR:.0f} % above KDL",
        'With far fewer kernel vectors than signals, the reduced methods have a "similar" error, here at most '
        f"{100 * NEAR:.0f} % above KDL's.",
        lambda methods: _below(methods, REDUCED, "KDL", NEAR),
    ),
    Claim("reduced below KDL", "All reduced methods end below KDL.", lambda methods: _below(methods, REDUCED, "KDL")),
    Claim(
        "error falls in the printed order",
        "The error falls from KDL to RKDL-D to ORKDL-D to MORKDL-D.",
        lambda methods: [p for a, b in itertools.pairwise(PAPER_METHODS) for p in _below(methods, [b], a)],
    ),
    Claim(
        "MORKDL-D has the lowest error",
        "MORKDL-D has the lowest error of the four.",
        lambda methods: [part for name in PAPER_METHODS[:-1] for part in _below(methods, ["MORKDL-D"], name)],
    ),
    Claim(
        "reduced below KDL from iteration 2 on",
        "The reduced methods are below KDL from the second iteration on (figures 1 to 3 of the paper).",
        _from_second_iteration,
    ),
    Claim(
        "reduced need less memory than KDL",
        "The reduced methods need less memory than KDL.",
        lambda methods: _less(methods, REDUCED, "peak_bytes"),
    ),
    Claim(
        f"RKDL-D {LEAST_SPEEDUP:.0f} times faster than KDL",
        f"RKDL-D is at least {LEAST_SPEEDUP:.0f} times faster than KDL.",
        lambda methods: _less(methods, ["RKDL-D"], "seconds", LEAST_SPEEDUP),
        of_time=True,
    ),
    Claim(
        f"optimised save {100 * LEAST_SAVING:.0f} % of KDL's time",
        f"ORKDL-D and MORKDL-D save at least {100 * LEAST_SAVING:.0f} % of KDL's time (20 to 45 % in the paper).",
        lambda methods: _less(methods, OPTIMISED, "seconds", 1.0 / (1.0 - LEAST_SAVING)),
        of_time=True,
    ),
)


def judge(claim: Claim, column: str, runs: Runs) -> Verdict:
    """The verdict on a claim for a column of one data set.

    It holds if the confidence intervals of all parts are positive, fails if that of any part is negative, and is within
    scatter otherwise. With one round there is no interval: the sign decides, and the verdict says so. The times of the
    published code are those of `literal`, its program product by product.
    """
    methods: Methods = runs.get(column, {})
    needed: tuple[str, ...] = PAPER_METHODS
    if claim.of_time and column in UNTIMED:
        return Verdict(UNTESTED, 0, "run for its errors only")
    if claim.of_time and column == "published":
        methods, needed = runs.get("literal", {}), PAPER_METHODS[:3]
    if not common_rounds(methods, needed):
        return Verdict(UNTESTED, 0, "no round with all methods")
    parts = claim.parts({name: methods[name] for name in needed})
    evidence = "; ".join(text for text, _ in parts if text)
    n_rounds = min(len(values) for _, values in parts)
    intervals = [Interval.of(values) for _, values in parts]
    if not all(math.isfinite(interval.mean) for interval in intervals):
        return Verdict(FAILS, n_rounds, evidence)
    if all(interval.mean > (interval.half or 0.0) for interval in intervals):
        return Verdict(HOLDS, n_rounds, evidence)
    if n_rounds == 1 or any(interval.mean < -(interval.half or 0.0) for interval in intervals):
        return Verdict(FAILS, n_rounds, evidence)
    return Verdict(SCATTER, n_rounds, evidence)
