"""The README's snippets print what the README says, in one session from top to bottom."""

import contextlib
import io
import re
from pathlib import Path

import pytest

from helpers import assert_prints

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"


@pytest.mark.usefixtures("one_thread")
@pytest.mark.slow
def test_snippets():
    found = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", README.read_text(), re.DOTALL)
    assert found
    names: dict = {}
    for code, printed in found:
        printed_now = io.StringIO()
        with contextlib.redirect_stdout(printed_now):
            exec(compile(code, str(README), "exec"), names)
        assert_prints(printed_now.getvalue(), printed)


def test_links_and_pictures_exist():
    for target in re.findall(r"\]\(([^)#]+)\)", README.read_text()):
        assert (ROOT / target).exists(), target


def test_speed_rows_are_those_of_the_benchmark():
    """`python -m benchmarks --write` fills the table, so every row of it has its place there."""
    from benchmarks import report

    text = README.read_text().split("<!-- benchmarks -->")[1].split("<!-- end of benchmarks -->")[0]
    rows = [line.split(" | ")[:3] for line in text.splitlines() if line.startswith("| ")][2:]
    assert [[cell.removeprefix("| ") for cell in row] for row in rows] == [
        [task, inputs, peer] for task, inputs, _, peer in report._README
    ]
