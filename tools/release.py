"""Check that a version is ready to be released, and print its part of the changelog.

``python tools/release.py 0.1.0`` fails with a message unless the package, CITATION.cff and CHANGELOG.md all name it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def find_problems(version: str, root: Path = ROOT) -> list[str]:
    """What has to be changed before this version can be released."""
    expected = {
        "src/rkdl/__init__.py": rf'^__version__ = "{re.escape(version)}"$',
        "CITATION.cff": rf"^version: {re.escape(version)}$",
        "CHANGELOG.md": rf"^## \[{re.escape(version)}\] - \d{{4}}-\d{{2}}-\d{{2}}$",
    }
    return [
        f"{name} does not name version {version}: a line should match {pattern}"
        for name, pattern in expected.items()
        if not re.search(pattern, (root / name).read_text(), re.MULTILINE)
    ]


def notes_of(version: str, root: Path = ROOT) -> str:
    """What the changelog says of a version."""
    found = re.search(
        rf"^## \[{re.escape(version)}\][^\n]*\n(.*?)(?=^## |^\[|\Z)",
        (root / "CHANGELOG.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )
    return found[1].strip() if found else ""


def main(version: str) -> int:
    """Print the notes, or the problems on stderr; returns the exit code."""
    problems = find_problems(version)
    print("\n".join(problems), file=sys.stderr) if problems else print(notes_of(version))
    return int(bool(problems))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python tools/release.py VERSION")
    sys.exit(main(sys.argv[1]))
