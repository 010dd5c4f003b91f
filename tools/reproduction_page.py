"""Print docs/reproduction.md for a results.json: ``python -m tools.reproduction_page results.json``.

Every statement about agreement is computed here from the results; fixed text lives in `tools.reproduction_prose`.
"""

from __future__ import annotations

import argparse
import html
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rkdl._reproduction import claims as _claims
from rkdl._reproduction.paper import GAMMA, N_NONZERO_COEFS, PAPER_METHODS, PRINTED_ERRORS, PRINTED_SECONDS
from rkdl._reproduction.store import read_results
from rkdl._reproduction.summary import Summary, core_count, ordered, relative_change, round_count, show_error, times
from rkdl._reproduction.tables import (
    NOT_THE_PAPERS,
    Summaries,
    Table,
    as_markdown,
    claim_matrix,
    error_table,
    printed_heading,
    printed_name,
    settings_table,
    time_table,
)
from rkdl._reproduction.terminal import complain
from rkdl._utils.text import shown
from tools import reproduction_prose as _prose

_NEAR = 0.01
_SCATTER = (
    'By means over rounds. "Within scatter": the deciding errors differ by less than twice their standard error. '
    '"One round": there is no estimate of the scatter.'
)

Datasets = dict[str, tuple[dict[str, Any], Summaries]]


def document(content: dict[str, Any]) -> str:
    """Render the page in Markdown from the content of results.json."""
    content = _escaped(content)
    datasets = ordered(content)
    if not datasets:
        raise ValueError("the results hold no finished run")
    parts = [
        _prose.OPENING,
        "## What was run\n",
        _what_was_run(content, datasets),
        _prose.PRESETS_TEXT,
        "## Summary\n",
        as_markdown(claim_matrix({name: summaries for name, (_, summaries) in datasets.items()})),
        f"\n{_SCATTER}\n",
        *_in_short(datasets),
    ]
    for name, (entry, summaries) in datasets.items():
        parts += _section(name, entry, summaries)
    parts += ["\n## Agreement with the paper\n", *_agreement(datasets)]
    parts.append(_prose.ERRORS_OPENING)
    for where, printed, errors in (
        ("text", "printed", _prose.ERRORS_IN_TEXT),
        ("code", "coded", _prose.ERRORS_IN_CODE),
    ):
        table = Table("", ("where", f"what is {printed}", "what is meant or correct"), list(errors))
        parts += [f"In the {where}:\n", as_markdown(table), ""]
    parts += _settings(datasets)
    parts.append(_prose.CLOSING.format(version=content["versions"]["rkdl"]))
    return "\n".join(parts)


def _escaped(value: Any) -> Any:
    """Escape all text of the content for Markdown, which may contain HTML."""
    if isinstance(value, str):
        return html.escape(shown(value), quote=False)
    if isinstance(value, list):
        return [_escaped(item) for item in value]
    if isinstance(value, dict):
        return {_escaped(key): _escaped(item) for key, item in value.items()}
    return value


def main(argv: Sequence[str] | None = None) -> int:
    """Print the page; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.reproduction_page", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("results", type=Path, help="results.json of rkdl reproduce")
    options = parser.parse_args(argv)
    try:
        text = document(read_results(options.results))
    except ValueError as error:
        complain(f"{parser.prog}: error: {error}")
        return 2
    sys.stdout.buffer.write(text.encode())
    return 0


def _what_was_run(content: dict[str, Any], datasets: Datasets) -> str:
    rows: list[tuple[str, ...]] = []
    for name, (entry, summaries) in datasets.items():
        printed = entry["printed"]
        column = "none" if printed is None else printed["column"] + ("" if printed["same_data"] else " (other data)")
        rows.append((name, entry["description"], round_count(summaries), ", ".join(summaries), column))
    table = Table("", ("name", "signals, of unit norm", "rounds", "presets", "column of the paper"), rows)
    versions = ", ".join(f"{package} {number}" for package, number in content["versions"].items())
    machine, settings = content["machine"], content["settings"]
    remarks = [f"{name}: {remark}" for name, (entry, _) in datasets.items() for remark in entry["remarks"]]
    if not any(entry["printed"] and entry["printed"]["column"] == "Digits" for entry, _ in datasets.values()):
        remarks.append(_prose.DIGITS_NOTE)
    elif "mnist-5000" in datasets:
        remarks = [remark for remark in remarks if not remark.startswith("mnist-5000")]
        remarks.append(_prose.DIGITS_NOTE)
    return "\n".join(
        [
            as_markdown(table),
            "",
            f"Machine: {machine['processor']}, {core_count(content)}, {machine['system']}. Versions: {versions}. "
            f"Kernel: `exp(-{GAMMA:g} |x - y|²)`. Signals in {settings['dtype']}; `published` computes in float64. "
            f"Seeds from {settings['seed']}.",
            "",
            *(line for remark in remarks for line in (remark, "")),
        ]
    )


def _in_short(datasets: Datasets) -> list[str]:
    """One sentence per preset and data set of the paper, all from the results."""
    lines = []
    for name, (entry, summaries) in datasets.items():
        if not _is_same_data(entry):
            continue
        column = entry["printed"]["column"]
        for preset, methods in summaries.items():
            best = _best(methods)
            if best is None:
                continue
            gap = methods[best].error.mean / min(PRINTED_ERRORS[column].values()) - 1.0
            side = "below" if gap < 0 else "above"
            ratio = times(PRINTED_SECONDS[column][best], methods[best].seconds.mean)
            lines.append(
                f"- {name}, {preset}: lowest error {show_error(methods[best].error.mean)} ({best}), "
                f"{abs(gap) * 100:.1f} % {side} the lowest printed one, with {_nonzero_text(methods[best])} non-zeros "
                f"per signal and {methods[best].iterations.mean:.0f} iterations, in "
                f"{methods[best].seconds.mean:.2f} s ({ratio:.0f} times less than printed for {best})."
            )
    return [*lines, ""] if lines else []


def _section(name: str, entry: dict[str, Any], summaries: Summaries) -> list[str]:
    parts = [f"\n## {name}\n", f"{entry['description']}, {round_count(summaries)}.\n"]
    if not _is_same_data(entry):
        parts.append(f"{NOT_THE_PAPERS}\n")
    for table in (error_table(entry, summaries), time_table(entry, summaries)):
        parts += [f"**{table.title}**\n", as_markdown(table), ""]
    parts.append("**The paper's claims**\n")
    for position, claim in enumerate(_claims.CLAIMS.values()):
        parts.append(f"- {claim[0].upper() + claim[1:]}.")
        for preset, claims in _claims.verdicts(summaries).items():
            parts.append(f"    - {preset}: **{claims[position].shown}**. {claims[position].evidence}")
    column = printed_name(entry)
    if column is not None:
        parts.append(f"\n**{printed_heading(entry)}**\n")
        for preset, methods in summaries.items():
            parts.append(f"- {preset}")
            parts += [f"    - {sentence}" for sentence in _claims.against_printed(column, methods)]
    return parts


def _agreement(datasets: Datasets) -> list[str]:
    """The table of differences, then the explanations whose conditions the results meet."""
    columns = [
        (name, preset, methods, entry["printed"]["column"])
        for name, (entry, summaries) in datasets.items()
        if _is_same_data(entry)
        for preset, methods in summaries.items()
    ]
    if not columns:
        return ["None of these data sets is one of the paper's: no figure can be compared with a printed one.\n"]
    gaps = {(name, preset): _claims.gap_to_printed(column, methods) for name, preset, methods, column in columns}
    rows: list[tuple[str, ...]] = [
        (method, *(_claims.percent(found[method]) if method in found else "" for found in gaps.values()))
        for method in PAPER_METHODS
    ]
    header = ("method", *(f"{name}, {preset}" for name, preset in gaps))
    parts = [
        "Relative difference between the mean error and the printed one:\n",
        as_markdown(Table("", header, rows)),
        "",
    ]
    for preset in dict.fromkeys(preset for _, preset in gaps):
        cells = {
            (name, method): gap
            for (name, its_preset), found in gaps.items()
            if its_preset == preset
            for method, gap in found.items()
        }
        near = [f"{method} on {name}" for (name, method), gap in cells.items() if abs(gap) <= _NEAR]
        parts.append(f"- {preset}: {len(near)} of {len(cells)} within 1 % ({', '.join(near) or 'none'}).")
    return [*parts, "", *_reasons(columns, gaps)]


def _reasons(columns: list[tuple[str, str, dict[str, Summary], str]], gaps: dict[tuple[str, str], dict]) -> list[str]:
    reasons = []
    dense = [
        summary.nonzeros
        for _, preset, methods, _ in columns
        if preset == "published"
        for method, summary in methods.items()
        if method != "KDL" and summary.nonzeros is not None and summary.nonzeros > N_NONZERO_COEFS
    ]
    if dense:
        text = " to ".join(dict.fromkeys(f"{count:.0f}" for count in (min(dense), max(dense))))
        reasons.append(_prose.REASONS["dense"].format(nonzeros=text))
    behind, gains = [], []
    for name, preset, methods, _ in columns:
        if preset != "paper" or any(method not in methods for method in PAPER_METHODS):
            continue
        full, fixed = methods["KDL"].error.mean, methods["RKDL-D"].error.mean
        above = {method: relative_change(methods[method].error.mean, full) for method in PAPER_METHODS[1:]}
        cells = [f"{method} {_claims.percent(gap)}" for method, gap in above.items() if gap >= 0.0]
        if cells:
            behind.append(f"on {name} {', '.join(cells)}")
        gains.append(f"{_claims.percent(relative_change(methods['ORKDL-D'].error.mean, fixed))} on {name}")
    if behind:
        text = _prose.REASONS["order"]
        reasons.append(text.format(cells="; ".join(behind), gains=" and ".join(gains)))
    reasons += _default_reasons(columns, gaps)
    slow = any(
        claim.key in ("six", "saving") and claim.verdict == _claims.NOT_HELD
        for _, _, methods, _ in columns
        for claim in _claims.judge(methods)
    )
    if slow:
        reasons.append(_prose.REASONS["time"])
    far = [
        f"{method} on {name} {_claims.percent(gap)}"
        for (name, preset), found in gaps.items()
        if preset == "published"
        for method, gap in found.items()
        if not abs(gap) <= _NEAR
    ]
    if far:
        reasons.append(_prose.REASONS["gap"].format(cells=", ".join(far)))
    return [line for reason in reasons for line in (reason, "")]


def _default_reasons(
    columns: list[tuple[str, str, dict[str, Summary], str]], gaps: dict[tuple[str, str], dict]
) -> list[str]:
    """The library's preset against its own KDL, and the claims that do not hold for it."""
    cells, steps, shared = [], [], []
    missed: dict[str, list[str]] = {}
    is_beaten = False
    for name, preset, methods, _ in columns:
        errors = {method: methods[method].error.mean for method in PAPER_METHODS if method in methods}
        if preset != "rkdl" or len(errors) < len(PAPER_METHODS) or not all(map(math.isfinite, errors.values())):
            continue
        against = [f"{method} {_side(relative_change(errors[method], errors['KDL']))}" for method in PAPER_METHODS[1:]]
        cells.append(f"On {name}, against KDL's {show_error(errors['KDL'])}: {', '.join(against)}")
        steps.append(f"{_claims.percent(relative_change(errors['ORKDL-D'], errors['RKDL-D']))} on {name}")
        shared.append(f"{_claims.percent(gaps[name, preset]['KDL'])} on {name}")
        not_held = [claim.key for claim in _claims.judge(methods) if claim.verdict == _claims.NOT_HELD]
        is_beaten |= errors["ORKDL-D"] < errors["MORKDL-D"]
        for key in not_held:
            missed.setdefault(key, []).append(name)
    if not cells:
        return []
    share = _prose.REASONS["shared"].format(cells=" and ".join(shared))
    text = _prose.REASONS["default"].format(cells=". ".join(cells), shared=share, steps=" and ".join(steps))
    reasons = [text]
    if missed:
        why = _prose.REASONS["missed_error"] if "reduced" in missed else ""
        why += _prose.REASONS["missed_best"] if is_beaten else ""
        why += _prose.REASONS["missed_time"] if missed.keys() & {"six", "saving"} else ""
        listed = "; ".join(f'"{_claims.CLAIMS[key]}" ({", ".join(names)})' for key, names in missed.items())
        reasons.append(_prose.REASONS["missed"].format(cells=listed, why=why.strip()))
    return reasons


def _side(gap: float) -> str:
    text = _claims.percent(gap)
    return text if text[0] not in "+-" else f"{text[1:]} {'below' if text[0] == '-' else 'above'}"


def _settings(datasets: Datasets) -> list[str]:
    """Settings of the first data set of each preset, and differences on others."""
    parts = ["## Settings\n"]
    shown: dict[str, dict[str, Summary]] = {}
    for name, (_, summaries) in datasets.items():
        for preset, methods in summaries.items():
            first = shown.setdefault(preset, methods)
            if first is methods:
                parts += [f"**{preset}**\n", as_markdown(settings_table(summaries, preset)), ""]
                continue
            differing = {
                f"{setting} {value:g}" if isinstance(value, float) else f"{setting} {value}"
                for method, summary in methods.items()
                if method in first
                for setting, value in summary.settings.items()
                if first[method].settings.get(setting) != value
            }
            if differing:
                parts.append(f"**{preset}** on {name}: the same except {', '.join(sorted(differing))}.\n")
    return parts


def _best(methods: dict[str, Summary]) -> str | None:
    finite = [name for name in PAPER_METHODS if name in methods and math.isfinite(methods[name].error.mean)]
    return min(finite, key=lambda name: methods[name].error.mean) if finite else None


def _is_same_data(entry: dict[str, Any]) -> bool:
    return bool(entry["printed"]) and entry["printed"]["same_data"]


def _nonzero_text(summary: Summary) -> str:
    return "an unknown number of" if summary.nonzeros is None else f"{summary.nonzeros:.1f}"


if __name__ == "__main__":
    sys.exit(main())
