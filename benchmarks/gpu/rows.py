"""Rows of the tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Row:
    """A measurement: its name, unique in its case; its figures, for gpu.json; its cells, for the table."""

    what: str
    figures: dict[str, Any]
    cells: list[str]
    goal: str = ""
    is_met: bool | None = None


def measured(what: str, value: float, unit: str, note: str = "", goal: str = "", is_met: bool | None = None) -> Row:
    """A row with one value, its unit and a note."""
    is_met = None if is_met is None else bool(is_met)
    figures = {"value": float(value), "unit": unit}
    return Row(what, figures, [what, f"{value:.3g} {unit}", note], goal, is_met)


def markdown(headings: list[str], lines: Iterable[list[str]]) -> list[str]:
    """Lines of a Markdown table."""
    return ["| " + " | ".join(cells) + " |" for cells in (headings, ["---"] * len(headings), *lines)]
