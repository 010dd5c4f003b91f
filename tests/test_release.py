"""What a release needs agrees: version, changelog, citation, classifiers, workflows, bounds of dependencies."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

import rkdl

ROOT = Path(__file__).resolve().parent.parent
if not (ROOT / "tools").is_dir():
    pytest.skip("the maintainers' tools are not part of an installed package", allow_module_level=True)
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tools import check_dist, oldest, release  # noqa: E402

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = ROOT / ".github" / "workflows"
CHANGES = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")


def test_the_citation_names_the_version():
    assert f"version: {rkdl.__version__}\n" in (ROOT / "CITATION.cff").read_text()


def test_changelog_has_its_form():
    lines = (ROOT / "CHANGELOG.md").read_text().splitlines()
    versions = [line for line in lines if line.startswith("## ")]
    assert versions
    for line in versions:
        assert re.fullmatch(r"## \[(Unreleased|\d+\.\d+\.\d+\] - \d{4}-\d{2}-\d{2})\]?", line), line
    assert [line for line in lines if line.startswith("### ") and line.removeprefix("### ") not in CHANGES] == []
    assert versions[0] == "## [Unreleased]" or rkdl.__version__ in versions[0]


def test_python_versions_are_tested():
    """Classifiers, requires-python and the workflow name the same versions."""
    named = set(re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"])))
    assert PROJECT["requires-python"] == f">={min(named, key=lambda name: int(name[2:]))}"
    if not WORKFLOWS.is_dir():
        pytest.skip("the workflows are not part of the sdist")
    (tested,) = re.findall(r"^        python: \[(.*)\]$", (WORKFLOWS / "ci.yml").read_text(), re.MULTILINE)
    assert {name.strip(' "') for name in tested.split(",")} == named


def test_oldest_dependencies():
    assert len(oldest.oldest([], oldest.PYPROJECT.read_text())) == len(PROJECT["dependencies"])


def test_this_version_has_a_section_or_is_unreleased():
    problems = release.find_problems(rkdl.__version__, ROOT)
    assert problems == [] or "## [Unreleased]" in (ROOT / "CHANGELOG.md").read_text()
    assert release.notes_of("Unreleased", ROOT)


def test_snippets_are_found():
    text = "Text\n\n```python\na = 1\n```\n\n```\nno Python\n```\n\n```python\nb = 2\n```\n"
    assert check_dist.snippets_of(text) == ["a = 1\n", "b = 2\n"]
    assert check_dist.snippets_of((ROOT / "README.md").read_text())


@pytest.mark.parametrize("path", sorted(WORKFLOWS.glob("*.yml")), ids=lambda path: path.stem)
def test_workflows(path):
    """They are YAML with bounded jobs, and every file, target and extra that they name exists."""
    yaml = pytest.importorskip("yaml")
    text = path.read_text()
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {"contents": "read"}, "jobs ask for more where they need it"
    for name, job in workflow["jobs"].items():
        assert job["timeout-minutes"] <= 120, name
        assert all("uses" in step or "run" in step for step in job["steps"]), name
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"run: make (\S+)", text):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for tool in re.findall(r"python (tools/\S+\.py)", text):
        assert (ROOT / tool).is_file(), tool
    for extra in re.findall(r"-e \"\.\[(\w+)\]\"", text):
        assert extra in PROJECT["optional-dependencies"], extra
