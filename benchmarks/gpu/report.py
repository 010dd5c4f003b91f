"""The results in the output folder, and the tables made from them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.gpu import CASES, long_codes, steps
from benchmarks.gpu.machine import Machine
from benchmarks.gpu.rows import Row
from benchmarks.pages import put

# Cases with a table of their own: the part of docs/gpu.md, and the function that makes its lines.
OWN_TABLES = {"long": ("many non-zeros", long_codes.table), "steps": ("steps", steps.table)}


class Report:
    """The rows of all runs on one machine with the same output folder, by case.

    Parameters
    ----------
    machine : Machine
        The device. Rows in the folder that were measured on another machine, or with inputs of another size, are
        dropped.
    folder : Path
        The output folder.
    """

    def __init__(self, machine: Machine, folder: Path) -> None:
        self.machine = machine
        self.folder = folder
        self._head = {"machine": machine.describe(), "small": machine.small}
        saved = _read(folder / "gpu.json")
        is_same = all(saved.get(key) == value for key, value in self._head.items())
        self.had_others = bool(saved) and not is_same
        cases = saved["cases"] if is_same else {}
        self._rows = {case: {item["what"]: Row(**item) for item in cases.get(case, ())} for case in CASES}

    def add(self, case: str, row: Row) -> None:
        """Add a row, or replace the row of the same name, and save everything."""
        self._rows[case][row.what] = row
        self.save()

    def finish(self, case: str, rows: list[Row]) -> None:
        """Keep only these rows of a case, and save everything."""
        self._rows[case] = {row.what: row for row in rows}
        self.save()

    def rows(self) -> list[Row]:
        """Rows of all cases."""
        return [row for rows in self._rows.values() for row in rows.values()]

    def parts(self) -> dict[str, list[str]]:
        """Lines of the tables, by part of docs/gpu.md; parts without rows are left out."""
        rows = {case: list(rows.values()) for case, rows in self._rows.items() if rows}
        shared = [row for case, found in rows.items() if case not in OWN_TABLES for row in found]
        parts = {"measured": self._shared_table(shared)} if shared else {}
        for case, (part, table) in OWN_TABLES.items():
            if case in rows:
                parts[part] = table(rows[case])
        return parts

    def text(self) -> str:
        """All tables."""
        return "\n\n".join("\n".join(lines) for lines in self.parts().values())

    def targets(self) -> str:
        """Targets met and missed, for the terminal."""
        judged = [row for row in self.rows() if row.is_met is not None]
        return "\n".join(f"target {row.goal}: {'met' if row.is_met else 'MISSED'}, {row.what}" for row in judged)

    def save(self) -> None:
        """Write gpu.md and gpu.json."""
        cases = {case: [asdict(row) for row in rows.values()] for case, rows in self._rows.items() if rows}
        _write(self.folder / "gpu.json", json.dumps({**self._head, "cases": cases}, indent=1))
        _write(self.folder / "gpu.md", self.text() + "\n")

    def write_page(self, page: Path) -> None:
        """Put the tables between their marks in a page, except the speed at neighbouring sizes."""
        for part, lines in self.parts().items():
            if part != "steps":
                put(page, part, lines)

    def _shared_table(self, rows: list[Row]) -> list[str]:
        return [
            f"{self.machine.describe()}. A copy moves {self.machine.bandwidth() / 1e12:.2f} TB/s, a float32 matrix "
            f"product runs at {self.machine.arithmetic() / 1e12:.1f} TFLOP/s.",
            "",
            "| case | measured | |",
            "|---|---|---|",
            *("| " + " | ".join(row.cells) + " |" for row in rows),
        ]


def _read(path: Path) -> dict[str, Any]:
    """Saved results; none if there are no results by case."""
    saved = json.loads(path.read_text()) if path.exists() else {}
    return saved if isinstance(saved, dict) else {}


def _write(path: Path, text: str) -> None:
    """Replace a file at once, so that a run that is stopped leaves a complete file."""
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)
