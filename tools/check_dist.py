"""Check built distributions as a stranger would meet them.

``python tools/check_dist.py dist`` looks into the wheel and the sdist in the folder, installs the wheel into an empty
environment, and runs the README's Python snippets and the command line there, outside this repository.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def check_contents(wheel: Path, sdist: Path) -> None:
    """Refuse a wheel with anything but the package, and an sdist that lacks what tests and docs need."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    strangers = [name for name in names if not re.match(r"rkdl(-[^/]*\.dist-info)?/", name)]
    missing = [name for name in ("rkdl/__init__.py", "rkdl/py.typed", "rkdl/plotting/__init__.py") if name not in names]
    if strangers or missing:
        raise SystemExit(f"{wheel.name} holds {strangers or 'nothing else'} and lacks {missing or 'nothing'}")
    with tarfile.open(sdist) as tar:
        files = {member.name.partition("/")[2] for member in tar.getmembers()}
    needed = {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "Makefile", "tests/conftest.py"}
    if needed - files:
        raise SystemExit(f"{sdist.name} lacks {sorted(needed - files)}")


def snippets_of(text: str) -> list[str]:
    """The Python blocks of a Markdown page."""
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def run_installed(wheel: Path, snippets: list[str]) -> None:
    """Install the wheel into an empty environment and run the snippets there, in one session in an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        environment = Path(folder, "environment")
        venv.create(environment, with_pip=True)
        binaries = environment / ("Scripts" if os.name == "nt" else "bin")
        python = str(binaries / "python")
        place = Path(folder, "elsewhere")
        place.mkdir()
        clean = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}

        def run(*command: str, text: str | None = None) -> None:
            subprocess.run(command, input=text, text=True, check=True, cwd=place, env=clean)

        run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{wheel}[plots]")
        run(python, "-m", "pip", "check")
        run(str(binaries / "rkdl"), "--version")
        print(f"README, {len(snippets)} Python snippets:", flush=True)
        run(python, "-W", "error::FutureWarning", "-", text="\n".join(snippets))


def main(folder: str) -> None:
    """Check the only wheel and the only sdist of a folder."""
    (wheel,) = Path(folder).resolve().glob("*.whl")
    (sdist,) = Path(folder).resolve().glob("*.tar.gz")
    check_contents(wheel, sdist)
    snippets = snippets_of((ROOT / "README.md").read_text())
    if not snippets:
        raise SystemExit("README.md has no Python snippet")
    run_installed(wheel, snippets)
    print(f"{wheel.name} and {sdist.name} are fine")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python tools/check_dist.py FOLDER")
    main(sys.argv[1])
