"""The README's example prints what the README says."""

import contextlib
import io
import re
from pathlib import Path

import pytest

README = Path(__file__).resolve().parent.parent / "README.md"


def test_example():
    text = README.read_text()
    found = re.search(r"```python\n(.*?)```\n\nprints\n\n```\n(.*?)```", text, re.DOTALL)
    assert found is not None
    code, printed = found.groups()
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        exec(compile(code, str(README), "exec"), {})
    # Rounding differs from machine to machine, and decides between atoms that serve a signal equally well.
    error = re.compile(r"\d\.\d+e[-+]\d+")
    assert error.sub("error", told.getvalue()) == error.sub("error", printed)
    assert [*map(float, error.findall(told.getvalue()))] == pytest.approx(
        [*map(float, error.findall(printed))], rel=2e-3
    )


def test_no_placeholder_is_left():
    assert not re.search(r"@[A-Z]+@", README.read_text())
