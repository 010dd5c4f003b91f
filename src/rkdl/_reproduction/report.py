"""The report as one document of sentences, tables and figures; `render` writes it as text, HTML or Markdown."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection
from typing import Any

from rkdl._reproduction import claims as _claims
from rkdl._reproduction import prose
from rkdl._reproduction.data import slug
from rkdl._reproduction.document import Block, Code, Details, Document, Items, Note, Paragraph, Picture, Section, Table
from rkdl._reproduction.own import own_lead, own_section
from rkdl._reproduction.paper import (
    COMPARABLE,
    METHODS,
    N_KERNEL_VECTORS,
    N_NONZERO_COEFS,
    OWN,
    PAPER_METHODS,
    PRESETS,
    PRINTED_ERRORS,
    PRINTED_SECONDS,
    UNTIMED,
)
from rkdl._reproduction.store import SUMMARY_FIGURE
from rkdl._reproduction.summary import (
    Spread,
    Summaries,
    Summary,
    columns,
    common_rounds,
    core_count,
    difference,
    in_words,
    ordered,
    round_count,
    show_error,
    show_seconds,
)

Datasets = dict[str, tuple[dict[str, Any], Summaries]]

#: Claims in a few words, for a sentence.
SHORT = {
    "optimised": "optimising D lowers the error",
    "similar": "the reduced methods end within 1 % of KDL or below it",
    "reduced": "all reduced methods end below KDL",
    "order": "the error falls in the printed order of the methods",
    "best": "MORKDL-D has the lowest error",
    "second": "the reduced methods are below KDL from the second iteration on",
    "memory": "the reduced methods need less memory than KDL",
    "six": "RKDL-D is at least six times faster than KDL",
    "saving": "ORKDL-D and MORKDL-D save at least 20 % of KDL's time",
}
# Claims that compare errors with KDL's.
_OF_ORDER = ("similar", "reduced", "order", "best", "second")
# What need not be said of a column once the first has been: by its meaning it has the same verdict.
_IMPLIED = {
    _claims.HELD: (("second", "reduced"), ("reduced", "similar"), ("order", "best")),
    _claims.NOT_HELD: (("similar", "reduced"), ("reduced", "second")),
}
_MAIN = "optimised"
_NUMBERS = {2: "both", 3: "all three", 4: "all four"}


def build_report(content: dict[str, Any], figures: Collection[str] = (), notes: Collection[str] = ()) -> Document:
    """The report of the content of results.json.

    Parameters
    ----------
    content : dict
        Content of results.json.
    figures : collection of str
        Names of the figures that were drawn.
    notes : collection of str
        Remarks on this report, such as on figures that were left out.
    """
    datasets = ordered(content)
    if not datasets:
        raise ValueError("the results hold no finished run")
    figures = set(figures)
    of_paper = {name: pair for name, pair in datasets.items() if columns(pair[1])}
    leads = [_lead(of_paper)] if of_paper else []
    leads += [own_lead(name, entry, found[OWN]) for name, (entry, found) in datasets.items() if OWN in found]
    first = [SUMMARY_FIGURE, *(f"{slug(name)}-sizes" for name in datasets)]
    opening: list[Block] = [Picture(name) for name in first if name in figures]
    opening += [Note(text) for text in notes]
    sections = [own_section(name, found[OWN]) for name, (_, found) in datasets.items() if OWN in found]
    if of_paper:
        sections += [_claims_section(of_paper), *_causes(of_paper)]
        sections += [
            _section(name, *pair, figures, explains=number == 0) for number, (name, pair) in enumerate(of_paper.items())
        ]
        sections += [_not_tested(of_paper), *_errors_in_paper()]
    sections += [_settings(content, datasets), _closing(content)]
    return Document(prose.TITLE if of_paper else "Which method, and how many kernel vectors", leads, opening, sections)


def _lead(datasets: Datasets) -> list[str]:
    """What was run, what holds, what does not and why."""
    meanings = {
        "paper": "as the text defines them (paper)",
        "published": "as the published code computes them (published)",
        "restricted": "as that code computes them with one line changed (restricted)",
        "rkdl": "with this library's defaults (rkdl)",
    }
    where = in_words(
        [f"{name} ({entry['n_signals']} x {entry['n_features']})" for name, (entry, _) in datasets.items()]
    )
    counts = list(dict.fromkeys(round_count(columns(found)) for _, found in datasets.values()))
    run = (
        f"What was run: the four methods of {prose.SOURCE} on {where}, in {' or '.join(counts)}, "
        f"{in_words([meanings[preset] for preset in _presets(datasets)])}."
    )
    number = len(datasets)
    scope = f" on {_NUMBERS.get(number, f'all {number}')} data sets" if number > 1 else ""
    holds, fails = (_in_columns(datasets, verdict) for verdict in (_claims.HELD, _claims.NOT_HELD))
    # One round has no scatter to be clear of.
    clearly = "" if counts == ["1 round"] else "clearly "
    main = _main_claim(datasets) if clearly else ""
    if main:
        holds.pop(_MAIN, None)
        held = f"What holds: {main}{f'; and clearly{scope}: {_sentence(holds)}' if holds else ''}."
    else:
        held = f"What {clearly}holds{scope}: {_sentence(holds)}." if holds else f"No claim {clearly}holds{scope}."
    lost = f"What {clearly}fails{scope}: {_sentence(fails)}." if fails else f"No claim {clearly}fails{scope}."
    return [run, held, " ".join([lost, *_reasons(datasets, fails)])]


def _main_claim(datasets: Datasets) -> str:
    """In how many of several columns the paper's main claim holds, if it does in most."""
    position = list(_claims.CLAIMS).index(_MAIN)
    judged = [claims[position] for _, found in datasets.values() for claims in _claims.verdicts(found).values()]
    tested = [claim for claim in judged if claim.verdict != _claims.UNTESTED]
    held = [claim for claim in tested if claim.verdict == _claims.HELD]
    if len(tested) < 2 or 2 * len(held) <= len(tested):
        return ""
    where = "columns" if len(datasets) == 1 else "columns of all data sets"
    n_clear = sum(claim.is_clear and not claim.is_one_round for claim in held)
    return f"{SHORT[_MAIN]} in {len(held)} of the {len(tested)} {where}, clearly in {n_clear or 'none'}"


def _in_columns(datasets: Datasets, verdict: str) -> dict[str, str]:
    """Claims that clearly have a verdict on all data sets, each with the columns in which they have it."""
    judged = [_claims.verdicts(summaries) for _, summaries in datasets.values()]
    presets = _presets(datasets)
    agreed: dict[str, dict[str, bool]] = {}
    for position, key in enumerate(_claims.CLAIMS):
        for preset in presets:
            own = [claims[preset][position] for claims in judged if preset in claims]
            if all(claim.verdict == verdict and claim.is_clear for claim in own):
                agreed.setdefault(key, {})[preset] = any(claim.is_one_round for claim in own)
    for stronger, weaker in reversed(_IMPLIED[verdict]):
        for preset in agreed.get(stronger, {}):
            agreed.get(weaker, {}).pop(preset, None)
    return {key: _place(found, presets) for key, found in agreed.items() if found}


def _place(is_one_round: dict[str, bool], presets: list[str]) -> str:
    """``paper and rkdl``, ``paper, and published in one round`` or ``every column``."""
    if len(is_one_round) == len(presets) > 1 and len(set(is_one_round.values())) == 1:
        return "every column in one round" if any(is_one_round.values()) else "every column"
    several = [preset for preset, once in is_one_round.items() if not once]
    single = [preset for preset, once in is_one_round.items() if once]
    parts = [in_words(several)] if several else []
    return ", and ".join([*parts, f"{in_words(single)} in one round"] if single else parts)


def _sentence(places: dict[str, str]) -> str:
    """Claims with their columns; neighbours with the same columns share them, except those of time."""
    groups = itertools.groupby(places.items(), lambda pair: (pair[1], pair[0] if pair[0] in _claims.OF_TIME else ""))
    return "; ".join(f"{in_words([SHORT[key] for key, _ in pairs])} ({place})" for (place, _), pairs in groups)


def _reasons(datasets: Datasets, fails: Collection[str]) -> list[str]:
    """Why claims fail, where the results show it."""
    reasons = _reason_for_errors(datasets) if any(key in fails for key in _OF_ORDER) else []
    return reasons + (_reason_for_times(datasets) if any(key in fails for key in _claims.OF_TIME) else [])


def _reason_for_errors(datasets: Datasets) -> list[str]:
    """The ablation, if it has an effect everywhere."""
    before, after, nonzeros = [], [], []
    for _, summaries in datasets.values():
        if not {"published", "restricted"} <= summaries.keys():
            continue
        dense, sparse = summaries["published"], summaries["restricted"]
        if not {"KDL", "RKDL-D"} <= dense.keys() & sparse.keys():
            continue
        before.append(-difference(dense["RKDL-D"], dense["KDL"]).centre)
        after.append(-difference(sparse["RKDL-D"], sparse["KDL"]).centre)
        nonzeros.append(dense["RKDL-D"].nonzeros or 0.0)
    if not before or not all(b < a for b, a in zip(before, after, strict=True)) or not all(map(math.isfinite, after)):
        return []
    return [
        f"Why: one line of the published code lets codes leave their support "
        f"({_span([f'{count:.0f}' for count in nonzeros])} non-zeros per signal instead of {N_NONZERO_COEFS}), and by "
        f"that line alone RKDL-D ends {_sides(before)} KDL instead of {_sides(after)} it; for given codes, no atoms "
        f"are better than combinations of all signals, which are KDL's."
    ]


def _reason_for_times(datasets: Datasets) -> list[str]:
    """KDL by the authors' program and by a faster route, if both have run."""
    slow, fast = [], []
    for _, summaries in datasets.values():
        if "KDL" in summaries.get("literal", {}) and "KDL" in summaries.get("published", {}):
            slow.append(summaries["literal"]["KDL"].time.middle)
            fast.append(summaries["published"]["KDL"].time.middle)
    if not slow or not all(f < s for f, s in zip(fast, slow, strict=True)):
        return []
    return [
        f"As for time, a faster route takes {_span(list(map(_rough, fast)))} s for what takes the authors' KDL "
        f"{_span(list(map(_rough, slow)))} s, which leaves little time to save."
    ]


def _rough(seconds: float) -> str:
    return f"{seconds:.0f}" if seconds >= 10.0 else f"{seconds:.2g}"


def _sides(gaps: list[float]) -> str:
    """``1.2 to 2.2 % below``, or ``1.2 % below to 6.6 % above``."""
    low, high = min(gaps), max(gaps)
    if (low < 0.0) != (high < 0.0):
        return f"{-100 * low:.1f} % below to {100 * high:.1f} % above"
    small, large = sorted((f"{100 * abs(low):.1f}", f"{100 * abs(high):.1f}"), key=float)
    return f"{small if small == large else f'{small} to {large}'} % {'below' if low < 0.0 else 'above'}"


def _claims_section(datasets: Datasets) -> Section:
    blocks: list[Block] = [
        Paragraph(prose.PAPER),
        Items([(f"{preset}: {PRESETS[preset]}", ()) for preset in _presets(datasets)]),
        Paragraph(prose.ERROR),
    ]
    for name, (entry, summaries) in datasets.items():
        judged = _claims.verdicts(summaries)
        rows = [
            (text[0].upper() + text[1:], *(claims[position].shown for claims in judged.values()))
            for position, text in enumerate(_claims.CLAIMS.values())
        ]
        notes = [] if _is_same_data(entry) else [prose.NOT_THE_PAPERS]
        blocks.append(Table(("claim", *judged), rows, name, notes, is_prose=True))
    blocks.append(Note(prose.VERDICTS))
    return Section("The paper's claims", blocks)


def _causes(datasets: Datasets) -> list[Section]:
    """What decides the order: the ablation, the starts, KDL at equal work."""
    sections = []
    blocks: list[Block] = []
    ablation = _ablation_table(datasets)
    if ablation is not None:
        blocks += [Paragraph(prose.ABLATION), ablation]
    starts = _starts_table(datasets)
    if starts is not None:
        blocks += [Paragraph(prose.STARTS), starts]
    if blocks:
        sections.append(Section("What decides the order", blocks))
    work = _work_table(datasets)
    if work is not None:
        blocks = [Paragraph(prose.BOUND), Paragraph(prose.WORK), work]
        sections.append(Section("Against KDL at equal work", blocks))
    return sections


def _ablation_table(datasets: Datasets) -> Table | None:
    chosen = [
        (name, preset, found[preset])
        for name, (_, found) in datasets.items()
        if {"published", "restricted"} <= found.keys()
        for preset in ("published", "restricted")
        if "KDL" in found[preset]
    ]
    if not chosen:
        return None
    reduced = PAPER_METHODS[1:]
    rows = [
        (
            f"{name}, {preset}",
            *(_gap(methods, method, "KDL") for method in reduced),
            _span([_nonzeros(methods.get(method)) for method in reduced]),
        )
        for name, preset, methods in chosen
    ]
    return Table(("column", *reduced, "non-zeros per signal"), rows)


def _starts_table(datasets: Datasets) -> Table | None:
    chosen = {
        name: found["starts"] for name, (_, found) in datasets.items() if "KDL, A Gaussian" in found.get("starts", {})
    }
    labels = list(dict.fromkeys(method for methods in chosen.values() for method in methods))
    if len(labels) < 2:
        return None

    def cell(methods: dict[str, Summary], method: str) -> str:
        if method.startswith("KDL"):
            return _error_cell(methods.get(method))
        return _gap(methods, method, f"KDL, {method.rpartition(', ')[2]}")

    rows = [
        (
            method.replace(" Gaussian", " from noise").replace(" signals", " from signals"),
            *(cell(methods, method) for methods in chosen.values()),
        )
        for method in labels
    ]
    return Table(("start", *chosen), rows)


def _work_table(datasets: Datasets) -> Table | None:
    pairs = [("KDL, 70 iterations", "ORKDL-D, 30 iterations"), ("KDL, 130 iterations", "ORKDL-D, 60 iterations")]
    needed = {method for pair in pairs for method in pair}
    chosen = {name: found["work"] for name, (_, found) in datasets.items() if needed <= found.get("work", {}).keys()}
    if not chosen:
        return None
    rows = []
    for full, reduced in pairs:
        for method in (full, reduced):
            rows.append((method, *(_error_cell(methods[method]) for methods in chosen.values())))
        rows.append(("ORKDL-D against KDL", *(_gap(methods, reduced, full) for methods in chosen.values())))
        best = [_claims.gap_text(methods[reduced], methods[full], by_best_atoms=True) for methods in chosen.values()]
        rows.append(("the same, with the best atoms for the codes of each", *best))
    rounds = _span([str(count) for count in sorted({len(common_rounds(*found.values())) for found in chosen.values()})])
    note = (
        f"KDL and ORKDL-D code all signals 71 times in the first pair and 131 times in the second. {N_KERNEL_VECTORS} "
        f"kernel vectors, the settings of rkdl with tol = 0, {rounds} {'round' if rounds == '1' else 'rounds'}."
    )
    return Table(("method", *chosen), rows, "", [note])


def _section(name: str, entry: dict[str, Any], summaries: Summaries, figures: set[str], explains: bool) -> Section:
    """One data set; the first explains the tables of all."""
    main = columns(summaries)
    scaling = "signals scaled to unit norm" if entry["is_scaled"] else "signals not scaled"
    kernel = f"kernel exp(-gamma |x - y|²), gamma {entry['gamma']:.3g}"
    opening = f"{entry['description']}, {scaling}, {round_count(main)}, {kernel}."
    blocks: list[Block] = [Paragraph(opening), error_table(entry, main, explains)]
    stem = slug(name)
    if f"{stem}-errors" in figures:
        blocks.insert(1, Picture(f"{stem}-errors"))
    blocks += [one_scale_table(main, explains), time_table(entry, summaries, explains)]
    memory = _memory_table(main)
    if memory is not None:
        blocks.append(memory)
    judged = _claims.verdicts(summaries)
    items = [
        (
            text[0].upper() + text[1:],
            [f"{preset}: {own[position].shown} ({own[position].evidence})" for preset, own in judged.items()],
        )
        for position, text in enumerate(_claims.CLAIMS.values())
    ]
    evidence: list[Block] = [Items(items)]
    if entry["printed"]:
        column = entry["printed"]["column"]
        other = "" if entry["printed"]["same_data"] else ", which are of another data set"
        printed = [
            (preset, _claims.against_printed(column, methods, preset not in UNTIMED))
            for preset, methods in main.items()
        ]
        evidence += [Paragraph("", f"Against the figures printed for {column}{other}"), Items(printed)]
    blocks.append(Details("The figures behind each verdict", evidence))
    if f"{stem}-kernel-vectors" in figures:
        blocks.append(Picture(f"{stem}-kernel-vectors"))
    return Section(name, blocks)


def error_table(entry: dict[str, Any], summaries: Summaries, explains: bool = True) -> Table:
    """Final errors of the methods in the kernel's feature space, next to the printed ones."""
    column = _printed_column(entry)
    rows = [
        (
            method,
            *(_error_cell(methods.get(method)) for methods in summaries.values()),
            *_printed_cell(PRINTED_ERRORS, column, method, show_error),
        )
        for method in _present(summaries)
        if method in COMPARABLE
    ]
    blank = ("",) if column else ()
    iterations = [_span([f"{method.iterations:.0f}" for method in methods.values()]) for methods in summaries.values()]
    rows.append(("iterations", *iterations, *blank))
    notes = [prose.DENSE] if explains and "published" in summaries else []
    notes += entry["remarks"]
    for preset, methods in summaries.items():
        for method, summary in methods.items():
            for text, count in summary.warnings.items():
                notes.append(f"{preset} {method}, in {count} of {summary.n_rounds} rounds: {text}")
    title = "Error sqrt(f / (m N)) after the last iteration, mean ± standard deviation over rounds"
    return Table(_header(summaries, column), rows, title, notes)


def one_scale_table(summaries: Summaries, explains: bool = True) -> Table:
    """All methods on one scale: the error of their codes with the best atoms, and the non-zeros of these codes."""
    rows = [
        (method, *(_best_cell(methods.get(method)) for methods in summaries.values())) for method in _present(summaries)
    ]
    title = "All methods on one scale: error of their codes with the best atoms (non-zeros per signal)"
    return Table(_header(summaries, None), rows, title, [prose.ONE_SCALE] if explains else [])


def time_table(entry: dict[str, Any], summaries: Summaries, explains: bool = True) -> Table:
    """Times, next to those of the authors' program product by product and the printed ones."""
    column = _printed_column(entry)
    shown = {preset: methods for preset, methods in columns(summaries).items() if preset not in UNTIMED}
    if "literal" in summaries:
        shown["literal"] = summaries["literal"]
    rows = [
        (
            method,
            *(_time_cell(methods.get(method)) for methods in shown.values()),
            *_printed_cell(PRINTED_SECONDS, column, method, lambda seconds: f"{seconds:.1f}"),
        )
        for method in _present(shown)
    ]
    training = []
    for methods in shown.values():
        found = [summary.dictionary_time.middle for summary in methods.values() if summary.dictionary_time]
        training.append(show_seconds(found[0]) if found else "")
    if any(training):
        rows.append(("training of D", *training, *(("",) if column else ())))
    notes = [prose.TIMED] if explains else []
    if explains and "published" in summaries:
        notes.append(prose.FASTER_ROUTE)
    if explains and column:
        notes.append(prose.OTHER_MACHINE)
    return Table(_header(shown, column), rows, "Time in seconds", notes)


def _memory_table(summaries: Summaries) -> Table | None:
    rows = [
        (method, *(_bytes_cell(methods.get(method)) for methods in summaries.values()))
        for method in _present(summaries)
        if any(method in methods and methods[method].peak_bytes for methods in summaries.values())
    ]
    note = "Peak memory of a fit of two iterations, measured once, without the signals and the training of D."
    return Table(_header(summaries, None), rows, "Memory", [note]) if rows else None


def _not_tested(datasets: Datasets) -> Section:
    has_digits = any(
        entry["printed"] and entry["printed"]["column"] == "Digits" and _is_same_data(entry)
        for entry, _ in datasets.values()
    )
    items = [(text, ()) for text in prose.NOT_TESTED[1 if has_digits else 0 :]]
    return Section("Not tested", [Items(items)], is_brief=False)


def _errors_in_paper() -> list[Section]:
    blocks: list[Block] = [Paragraph(prose.ERRORS_OPENING)]
    for where, printed, errors in (("text", "printed", prose.ERRORS_IN_TEXT), ("code", "coded", prose.ERRORS_IN_CODE)):
        header = ("where", f"what is {printed}", "what is meant or correct")
        blocks.append(Table(header, errors, f"In the {where}", is_prose=True))
    return [Section("Errors in the paper's text and code", blocks, is_brief=False)]


def _settings(content: dict[str, Any], datasets: Datasets) -> Section:
    versions = ", ".join(f"{package} {number}" for package, number in content["versions"].items())
    machine, settings = content["machine"], content["settings"]
    has_published = any(preset in found for _, found in datasets.values() for preset in ("published", "restricted"))
    published = "; published and restricted compute in float64" if has_published else ""
    blocks: list[Block] = [
        Paragraph(
            f"Machine: {machine['processor']}, {core_count(content)}, {machine['system']}. Versions: {versions}. "
            f"Signals in {settings['dtype']}{published}. The first seed is {settings['seed']}."
        ),
        Items(
            [(f"{name}: SHA-256 of the signals {entry['sha256'][:16]}…", ()) for name, (entry, _) in datasets.items()]
        ),
    ]
    shown: dict[str, list[tuple[str, dict[str, Summary]]]] = {}
    for name, (_, summaries) in datasets.items():
        for preset, methods in summaries.items():
            shown.setdefault(preset, []).append((name, methods))
    for preset, found in shown.items():
        (first, methods), others = found[0], found[1:]
        notes = [text for name, other in others if (text := _differing(name, methods, other))]
        blocks.append(Details(f"{preset}: settings on {first}", [_settings_table(methods, notes)]))
    return Section("Settings", blocks, is_brief=False)


def _settings_table(methods: dict[str, Summary], notes: list[str]) -> Table:
    names = list(dict.fromkeys(name for summary in methods.values() for name in summary.settings))
    rows = [
        (name, *(_setting(summary.settings[name]) if name in summary.settings else "" for summary in methods.values()))
        for name in names
    ]
    return Table(("setting", *methods), rows, "", notes)


def _differing(name: str, first: dict[str, Summary], other: dict[str, Summary]) -> str:
    differences = {
        f"{setting} {_setting(value)}"
        for method, summary in other.items()
        if method in first
        for setting, value in summary.settings.items()
        if first[method].settings.get(setting) != value
    }
    return f"On {name} the same except {', '.join(sorted(differences))}." if differences else ""


def _closing(content: dict[str, Any]) -> Section:
    blocks: list[Block] = [Code(prose.RUNNING), Paragraph(prose.RUNNING_NOTE)]
    blocks.append(Paragraph(prose.CITING.format(version=content["versions"]["rkdl"]), "How to cite."))
    return Section("Running the reproduction", blocks, is_brief=False)


def _presets(datasets: Datasets) -> list[str]:
    return [preset for preset in PRESETS if any(preset in found for _, found in datasets.values())]


def _header(summaries: Summaries, column: str | None) -> tuple[str, ...]:
    return ("method", *summaries, *((f"printed ({column})",) if column else ()))


def _present(summaries: Summaries) -> list[str]:
    return [method for method in METHODS if any(method in methods for methods in summaries.values())]


def _printed_column(entry: dict[str, Any]) -> str | None:
    return entry["printed"]["column"] if entry["printed"] else None


def _is_same_data(entry: dict[str, Any]) -> bool:
    return bool(entry["printed"]) and entry["printed"]["same_data"]


def _printed_cell(figures: dict, column: str | None, method: str, show: Any) -> tuple[str, ...]:
    if column is None:
        return ()
    return (show(figures[column][method]) if method in figures[column] else "",)


def _gap(methods: dict[str, Summary], method: str, base: str) -> str:
    return _claims.gap_text(methods[method], methods[base]) if {method, base} <= methods.keys() else ""


def _error_cell(summary: Summary | None) -> str:
    return "" if summary is None else _spread(summary.error)


def _spread(spread: Spread) -> str:
    if spread.scatter is None:
        return show_error(spread.middle)
    return f"{show_error(spread.middle)} ± {show_error(spread.scatter, 0)}"


def _best_cell(summary: Summary | None) -> str:
    if summary is None or not math.isfinite(summary.best_error.middle):
        return ""
    return f"{show_error(summary.best_error.middle)} ({_nonzeros(summary)})"


def _time_cell(summary: Summary | None) -> str:
    if summary is None:
        return ""
    middle, scatter = summary.time.middle, summary.time.scatter
    text = show_seconds(middle)
    return text if scatter is None else f"{text} ± {show_seconds(scatter, middle)}"


def _bytes_cell(summary: Summary | None) -> str:
    return "" if summary is None or not summary.peak_bytes else _claims.show_bytes(summary.peak_bytes)


def _nonzeros(summary: Summary | None) -> str:
    return "" if summary is None or summary.nonzeros is None else f"{summary.nonzeros:.1f}"


def _setting(value: Any) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def _span(texts: list[str]) -> str:
    """One text if all are equal, otherwise the first to the last in the order of their numbers."""

    def number(text: str) -> float:
        try:
            return float(text.split()[0])
        except (ValueError, IndexError):
            return math.inf

    different = sorted({text for text in texts if text}, key=number)
    return "" if not different else different[0] if len(different) == 1 else f"{different[0]} to {different[-1]}"
