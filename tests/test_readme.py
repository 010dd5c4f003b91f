"""The README's example prints what the README says."""

import contextlib
import io
import re
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"


def test_example():
    text = README.read_text()
    found = re.search(r"```python\n(.*?)```\n\nprints[^\n]*\n\n```\n(.*?)```", text, re.DOTALL)
    assert found is not None
    code, printed = found.groups()
    printed_now = io.StringIO()
    with contextlib.redirect_stdout(printed_now):
        exec(compile(code, str(README), "exec"), {})
    assert printed_now.getvalue() == printed


def test_no_placeholder_is_left():
    assert not re.search(r"@[A-Z]+@", README.read_text())
