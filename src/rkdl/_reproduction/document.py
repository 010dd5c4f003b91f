"""Parts of a report, without a format."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Paragraph:
    """A paragraph; `lead` is set off from its text."""

    text: str
    lead: str = ""
    kind: str = "paragraph"


@dataclass(frozen=True)
class Note:
    """A remark on what stands before it."""

    text: str
    kind: str = "note"


@dataclass(frozen=True)
class Items:
    """A list; every item has a text and items below it."""

    items: Sequence[tuple[str, Sequence[str]]]
    kind: str = "items"


@dataclass(frozen=True)
class Code:
    """Lines for a shell."""

    lines: Sequence[str]
    kind: str = "code"


@dataclass(frozen=True)
class Table:
    """Text cells; the first column names rows."""

    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    title: str = ""
    notes: Sequence[str] = ()
    is_prose: bool = False
    kind: str = "table"


@dataclass(frozen=True)
class Picture:
    """The place of a figure, by its name."""

    name: str
    kind: str = "picture"


@dataclass(frozen=True)
class Details:
    """Blocks that a page shows on demand."""

    title: str
    blocks: Sequence[Block]
    kind: str = "details"


Block = Paragraph | Note | Items | Code | Table | Picture | Details


@dataclass(frozen=True)
class Section:
    """Blocks under a heading; the terminal leaves out sections that are not `is_brief`."""

    title: str
    blocks: Sequence[Block]
    is_brief: bool = True


@dataclass(frozen=True)
class Document:
    """The report: the leads (three sentences for each subject), the picture, sections."""

    title: str
    leads: Sequence[Sequence[str]]
    opening: Sequence[Block] = ()
    sections: Sequence[Section] = field(default_factory=list)
