"""What the owner of signals asks: which method, and how many kernel vectors."""

from __future__ import annotations

import math
from typing import Any

from rkdl._reproduction.document import Block, Paragraph, Section, Table
from rkdl._reproduction.paper import FLOOR, N_COMPONENTS, N_NONZERO_COEFS, OWN_SIZES
from rkdl._reproduction.summary import (
    Spread,
    Summary,
    in_words,
    percent,
    round_count,
    share,
    show_error,
    show_seconds,
    times,
)

Methods = dict[str, Summary]
#: The methods that are run for several numbers of kernel vectors.
SWEPT = ("ORKDL-D", "RKDL-D", "Nystrom")
NAMES = {
    "ORKDL-D": "ORKDL",
    "RKDL-D": "RKDL",
    "MORKDL-D": "MORKDL",
    "Nystrom": "Nyström sampling",
    "Fourier": "FourierDL",
}
_NEAR = 0.01
_FLOOR_TEXT = (
    "For fixed codes the best atoms are combinations of all signals in feature space, and those are KDL's: KDL is the "
    "floor that methods with p kernel vectors approach as p grows. Here it codes the signals as often as ORKDL does at "
    "its defaults. A method may end slightly below the floor where it finds better codes. The time of KDL grows with "
    "the square of the number of signals, that of the other methods in proportion to it."
)


def sweep(methods: Methods, base: str) -> dict[int, Summary]:
    """Summaries of a method by its number of kernel vectors."""
    return {p: methods[f"{base}, p = {p}"] for p in OWN_SIZES if f"{base}, p = {p}" in methods}


def floor_of(methods: Methods) -> Summary | None:
    """KDL with as many codings as ORKDL, otherwise at its defaults; None if neither has run."""
    return methods.get(FLOOR, methods.get("KDL"))


def own_lead(name: str, entry: dict[str, Any], methods: Methods) -> list[str]:
    """Three sentences: what was run, which method, how many kernel vectors."""
    scaling = (
        "scaled to unit norm (--no-scaling leaves them as they are)"
        if entry["is_scaled"]
        else "as they are, not scaled"
    )
    run = (
        f"What was run: the methods of this library on the signals of {name} ({entry['n_signals']} x "
        f"{entry['n_features']}), {scaling}, with {N_COMPONENTS} atoms, at most {N_NONZERO_COEFS} non-zeros per "
        f"signal, defaults otherwise and the kernel exp(-gamma |x - y|²), gamma = {entry['gamma']:.3g}"
        f"{' (one over their median squared distance)' if entry['printed'] is None else ''}, in "
        f"{round_count({'own': methods})}."
    )
    return [run, _which_method(methods), _how_many(methods, entry["n_signals"])]


def _usable(methods: Methods) -> Methods:
    return {name: found for name, found in methods.items() if math.isfinite(found.best_error.middle)}


def _which_method(methods: Methods) -> str:
    usable = _usable(methods)
    if not usable:
        return "No method gave a finite error."
    best = min(usable, key=lambda name: usable[name].best_error.middle)
    floor = usable[best].best_error.middle
    near = [name for name, found in usable.items() if found.best_error.middle <= (1.0 + _NEAR) * floor]
    quick = min(near, key=lambda name: usable[name].time.middle)
    text = (
        f"Which method: on one scale, the error of the codes with the best atoms for them, {label(best)} has the "
        f"lowest error, {show_error(floor)} in {show_seconds(usable[best].time.middle)} s"
    )
    if quick == best:
        return f"{text}, and no method within 1 % of it is faster."
    ratio = times(usable[best].time.middle, usable[quick].time.middle)
    gap = share(usable[quick].best_error.middle - floor, floor)
    return (
        f"{text}; the fastest method within 1 % of it is {label(quick)}, with {percent(gap)} in "
        f"{show_seconds(usable[quick].time.middle)} s ({ratio:.1f} times faster)."
    )


def _how_many(methods: Methods, n_signals: int) -> str:
    full = floor_of(methods)
    if full is None or not math.isfinite(full.error.middle):
        return "How many kernel vectors: there is no run of KDL to compare with."
    near, far = [], []
    for base in SWEPT:
        sizes = sweep(methods, base)
        if not sizes:
            continue
        enough = [p for p, found in sizes.items() if found.error.middle <= (1.0 + _NEAR) * full.error.middle]
        if enough:
            near.append(f"{NAMES[base]} with p = {enough[0]}")
        else:
            largest = max(sizes)
            gap = share(sizes[largest].error.middle - full.error.middle, full.error.middle)
            far.append(f"{NAMES[base]} ({percent(gap)} with p = {largest})")
    if not near and not far:
        return "How many kernel vectors: no method with kernel vectors was run."
    parts = [f"{in_words(near)} {'come' if len(near) > 1 else 'comes'} within 1 % of it"] if near else []
    parts += (
        [f"{in_words(far)} {'do' if len(far) > 1 else 'does'} not{'' if near else ' come within 1 % of it'}"]
        if far
        else []
    )
    return (
        f"How many kernel vectors: KDL, which uses all {n_signals} signals, ends at {show_error(full.error.middle)}; "
        f"{', but '.join(parts)}."
    )


def label(method: str) -> str:
    """The library's name of a method, with its number of kernel vectors."""
    base, _, rest = method.partition(",")
    return NAMES.get(base, base) + (f" with{rest}" if rest else "")


def own_section(name: str, methods: Methods) -> Section:
    """Tables of a user's signals."""
    blocks: list[Block] = []
    bases = [base for base in SWEPT if sweep(methods, base)]
    if bases:
        blocks.append(_size_table(methods, bases))
    blocks.append(_method_table(methods))
    if floor_of(methods) is not None:
        blocks.append(Paragraph(_FLOOR_TEXT))
    return Section(name, blocks)


def _size_table(methods: Methods, bases: list[str]) -> Table:
    sizes = sorted({p for base in bases for p in sweep(methods, base)})
    rows = []
    for p in sizes:
        found = [sweep(methods, base).get(p) for base in bases]
        rows.append((f"p = {p}", *map(_error, found), *map(_time, found)))
    full = floor_of(methods)
    if full is not None:
        blank = [""] * (len(bases) - 1)
        rows.append(("KDL, all signals", _error(full), *blank, _time(full), *blank))
    names = [NAMES[base] for base in bases]
    header = ("kernel vectors", *(f"error, {name}" for name in names), *(f"seconds, {name}" for name in names))
    note = (
        "Error sqrt(f / (m N)): root mean square distance between a signal and its representation in feature space, "
        "per entry of a signal; mean ± standard deviation over rounds. Seconds: median over rounds, without "
        "compilation."
    )
    return Table(header, rows, "Error and time against the number of kernel vectors", [note])


def _method_table(methods: Methods) -> Table:
    usable = _usable(methods)
    rows = [
        (
            label(name),
            _spread(usable[name].best_error),
            "" if usable[name].nonzeros is None else f"{usable[name].nonzeros:.1f}",
            _time(usable[name]),
        )
        for name in sorted(usable, key=lambda name: usable[name].best_error.middle)
    ]
    note = (
        "For the codes Z of each method: sqrt((tr K - tr((Z'Z)^-1 Z'KZ)) / (m N)), the error with the best atoms for "
        "them in feature space, so that linear and Fourier methods can be compared with the others."
    )
    return Table(("method", "error", "non-zeros", "seconds"), rows, "All methods on one scale", [note])


def _error(summary: Summary | None) -> str:
    return "" if summary is None else _spread(summary.error)


def _spread(spread: Spread) -> str:
    if spread.scatter is None:
        return show_error(spread.middle)
    return f"{show_error(spread.middle)} ± {show_error(spread.scatter, 0)}"


def _time(summary: Summary | None) -> str:
    return "" if summary is None else show_seconds(summary.time.middle)
