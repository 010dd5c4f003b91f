"""The report: tables from the runs, put into the one template, report.md.j2."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import jinja2

from paper import claims
from paper.claims import CLAIMS, FAILS, HOLDS, REDUCED, SCATTER, UNTESTED, Interval, Methods, Verdict, judge
from paper.data import Data
from paper.figures import draw_all
from paper.runs import Run, Runs, provenance, slug
from paper.settings import COLUMNS, METHODS, PRINTED_ERRORS, PRINTED_SECONDS, UNTIMED, printed_column

Found = dict[str, tuple[Data, Runs]]
Verdicts = dict[str, dict[str, list[Verdict]]]


def write_report(folder: Path, found: Found) -> tuple[Path, str]:
    """Write report.md and its figures; returns its path and its beginning, for the terminal."""
    found = {name: (data, runs) for name, (data, runs) in found.items() if runs}
    if not found:
        raise SystemExit(f"no runs in {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    draw_all(folder, found)
    verdicts = {
        name: {column: [judge(claim, column, runs) for claim in CLAIMS] for column in COLUMNS if column in runs}
        for name, (_, runs) in found.items()
    }
    kinds = [verdict.verdict for columns in verdicts.values() for own in columns.values() for verdict in own]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent), undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    text = environment.get_template("report.md.j2").render(
        columns={column: text for column, text in COLUMNS.items() if any(column in runs for _, runs in found.values())},
        claims=CLAIMS,
        counts={kind: kinds.count(kind) for kind in (HOLDS, FAILS, SCATTER, UNTESTED)},
        agreed={verdict: _agreed(verdicts, verdict) for verdict in (HOLDS, FAILS)},
        ablation=_ablation(found),
        starts=_starts(found),
        work=_work(found),
        sections=[_section(name, *found[name], verdicts[name]) for name in found],
        made_with=provenance(),
    )
    page = folder / "report.md"
    page.write_text(text.rstrip() + "\n")
    return page, text.partition("\n![")[0].strip()


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table with aligned columns; the empty text if it has no rows."""
    lines = [[cell.replace("|", "\\|") for cell in row] for row in (header, *rows)]
    if len(lines) == 1:
        return ""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = ["| " + " | ".join(map(str.ljust, line, widths)) + " |" for line in lines]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([padded[0], rule, *padded[1:]])


def _agreed(verdicts: Verdicts, kind: str) -> list[str]:
    """Claims that have a verdict on every data set, with the columns where they do."""
    found = []
    for i, claim in enumerate(CLAIMS):
        places = []
        for column in COLUMNS:
            own = [columns[column][i] for columns in verdicts.values() if column in columns]
            if len(own) == len(verdicts) and all(verdict.verdict == kind for verdict in own):
                places.append(column + (" in one round" if any(verdict.n_rounds == 1 for verdict in own) else ""))
        if places:
            found.append(f"{claim.short} ({', '.join(places)})")
    return found


def _section(name: str, data: Data, runs: Runs, verdicts: dict[str, list[Verdict]]) -> dict[str, Any]:
    columns = {column: runs[column] for column in COLUMNS if column in runs}
    timed = {column: runs[column] for column in (*COLUMNS, "literal") if column in runs and column not in UNTIMED}
    printed = printed_column(name)
    printed_errors = PRINTED_ERRORS[printed] if printed else None
    tables = {
        "verdicts": table(
            ["claim", *verdicts],
            [[claim.short, *(str(own[i]) for own in verdicts.values())] for i, claim in enumerate(CLAIMS)],
        ),
        "errors": _by_method(columns, _error, printed_errors, show_error, ("DL", "Fourier")),
        "printed": _against_printed(columns, printed_errors) if printed_errors else "",
        "best": _by_method(columns, _best),
        "seconds": _by_method(timed, _seconds, PRINTED_SECONDS[printed] if printed else None, "{:.1f}".format),
        "memory": _by_method(columns, _memory),
    }
    n_rounds = max(len(rounds) for methods in columns.values() for rounds in methods.values())
    return {
        "name": slug(name),
        "data": data,
        "n_rounds": n_rounds,
        "n_literal_rounds": max(map(len, runs.get("literal", {"": {}}).values())),
        "printed": printed,
        "tables": tables,
        "verdicts": verdicts,
    }


def _by_method(
    columns: dict[str, Methods],
    cell: Callable[[list[Run]], str],
    printed: dict[str, float] | None = None,
    show: Callable[[float], str] = str,
    without: tuple[str, ...] = (),
) -> str:
    rows = []
    for method in METHODS:
        if method in without or not any(method in methods for methods in columns.values()):
            continue
        cells = [cell(list(methods[method].values())) if method in methods else "" for methods in columns.values()]
        rows.append([method, *cells, *([show(printed[method]) if method in printed else ""] if printed else [])])
    return table(["method", *columns, *(["printed"] if printed else [])], rows)


def _against_printed(columns: dict[str, Methods], printed: dict[str, float]) -> str:
    def cell(methods: Methods, method: str) -> str:
        errors = [run["errors"][-1] / printed[method] - 1.0 for run in methods.get(method, {}).values()]
        return Interval.of(errors).percent() if errors else ""

    rows = [[method, *(cell(methods, method) for methods in columns.values())] for method in printed]
    return table(["method", *columns], rows)


def show_error(value: float, digits: int = 3) -> str:
    """An error as the paper prints it: 8.081e-3."""
    if not math.isfinite(value):
        return "diverged"
    mantissa, _, exponent = f"{value:.{digits}e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def _error(runs: list[Run]) -> str:
    """Mean and standard deviation."""
    values = [run["errors"][-1] for run in runs]
    mean = statistics.fmean(values)
    if len(values) == 1 or not math.isfinite(mean):
        return show_error(mean)
    return f"{show_error(mean)} ± {show_error(statistics.stdev(values), 0)}"


def _best(runs: list[Run]) -> str:
    values = [run["best_error"] for run in runs]
    if None in values:
        return "diverged"
    return f"{show_error(statistics.fmean(values))} ({statistics.fmean(run['nonzeros'] for run in runs):.1f})"


def _seconds(runs: list[Run]) -> str:
    values = [run["seconds"] for run in runs]
    middle = statistics.median(values)
    digits = 1 if middle >= 10 else 2 if middle >= 1 else 3
    half = "" if len(values) == 1 else f" ± {(max(values) - min(values)) / 2:.{digits}f}"
    return f"{middle:.{digits}f}{half}"


def _memory(runs: list[Run]) -> str:
    return f"{statistics.median(run['peak_bytes'] for run in runs) / 1e6:.1f} MB"


def _gap(methods: Methods, name: str, base: str, key: str = "error") -> str:
    has_rounds = claims.common_rounds(methods, (name, base))
    return Interval.of(claims.gap(methods, name, base, key)).percent() if has_rounds else ""


def _ablation(found: Found) -> str:
    rows = []
    for name, (_, runs) in found.items():
        for column in ("published", "restricted"):
            methods = runs.get(column, {})
            if claims.common_rounds(methods, ("KDL", *REDUCED)):
                nonzeros = [run["nonzeros"] for method in REDUCED for run in methods[method].values()]
                gaps = [_gap(methods, method, "KDL") for method in REDUCED]
                rows.append([f"{slug(name)}, {column}", *gaps, f"{statistics.fmean(nonzeros):.1f}"])
    return table(["column", *REDUCED, "non-zeros per signal"], rows)


def _studied(found: Found, study: str) -> dict[str, Methods]:
    return {slug(name): runs[study] for name, (_, runs) in found.items() if study in runs}


def _starts(found: Found) -> str:
    studied = _studied(found, "starts")
    rows = []
    for method in next(iter(studied.values()), {}):
        if method.startswith("KDL"):
            cells = [_error(list(methods[method].values())) for methods in studied.values()]
        else:
            cells = [_gap(methods, method, f"KDL, {method.rpartition(', ')[2]}") for methods in studied.values()]
        rows.append([method, *cells])
    return table(["start", *studied], rows)


def _work(found: Found) -> str:
    studied = {name: methods for name, methods in _studied(found, "work").items() if len(methods) == 4}
    rows = []
    for k in (30, 60):
        full, reduced = f"KDL, {2 * k + 10} iterations", f"ORKDL-D, {k} iterations"
        for method in (full, reduced):
            rows.append([method, *(_error(list(methods[method].values())) for methods in studied.values())])
        for key, text in {"error": "ORKDL-D against KDL", "best_error": "the same with the best atoms"}.items():
            rows.append([text, *(_gap(methods, reduced, full, key) for methods in studied.values())])
    return table(["method", *studied], rows) if studied else ""
