"""Print the oldest dependencies that pyproject.toml allows, as constraints for pip: one ``name==version`` per line."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def oldest(extras: list[str], text: str) -> list[str]:
    """Pins of the dependencies, and of those of some extras, at their lower bounds."""
    project = tomllib.loads(text)["project"]
    requirements = list(project["dependencies"])
    for extra in extras:
        requirements += project["optional-dependencies"][extra]
    pins = []
    for requirement in requirements:
        found = re.fullmatch(r"([A-Za-z0-9._-]+)(?:\[[^\]]*\])?>=([0-9.]+)(?:,<.*)?", requirement)
        if found is None:
            raise ValueError(f"{requirement!r} has no lower bound: write name>=version.")
        pins.append(f"{found[1]}=={found[2]}")
    return pins


if __name__ == "__main__":
    print("\n".join(oldest(sys.argv[1:], PYPROJECT.read_text())))
