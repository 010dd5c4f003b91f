"""Packages of rkdl import downwards only: what a room needs lies below it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "src" / "rkdl"

# From the top; rooms of one floor may use each other. "rkdl" is the package's own namespace, which users import from.
FLOORS = [
    ["_cli", "__main__"],
    ["rkdl", "datasets", "kernels", "metrics", "plotting", "pyod"],
    ["_estimators"],
    ["_applications"],
    ["_learning"],
    ["_persistence"],
    ["_coding"],
    ["_features"],
    ["_execution"],
    ["_data"],
    ["_backends"],
    ["_utils"],
]
FLOOR = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}

# Folders that use less than all that lies below them.
ONLY = {
    "datasets": ["datasets", "_persistence", "_execution", "_utils"],
    "_backends.cpu": ["_backends.cpu", "_backends.base", "_utils"],
}


def imported_names(path):
    """What a file imports from rkdl, by its name there: at its top, inside a function, or by a name in a string."""
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = [node.value] if re.fullmatch(r"rkdl(\.\w+)+", node.value) else []
        for top, *rest in (name.split(".") for name in names):
            if top == "rkdl":
                yield ".".join(rest)


def room_of(name):
    """The room that a name lies in."""
    room = name.split(".")[0]
    return room if room in FLOOR else "rkdl"


def test_every_room_has_its_floor():
    found = {path.stem for path in ROOT.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert found - {"__init__"} <= set(FLOOR)


def test_imports_point_downwards():
    upwards = set()
    for path in ROOT.rglob("*.py"):
        place = path.relative_to(ROOT)
        here = place.parts[0].removesuffix(".py").replace("__init__", "rkdl")
        for room in {room_of(name) for name in imported_names(path)}:
            if FLOOR[room] < FLOOR[here]:
                upwards.add(f"{place} imports from {room}")
    assert not sorted(upwards)


@pytest.mark.parametrize("folder", ONLY)
def test_folders_that_use_less(folder):
    paths = list((ROOT / folder.replace(".", "/")).rglob("*.py"))
    assert paths
    others = {
        f"{path.relative_to(ROOT)} imports {name}"
        for path in paths
        for name in imported_names(path)
        if not any(f"{name}.".startswith(f"{allowed}.") for allowed in ONLY[folder])
    }
    assert not sorted(others)


def test_no_room_above_the_backends_knows_which_one_it_uses():
    found = {
        f"{path.relative_to(ROOT)} imports {name}"
        for path in ROOT.rglob("*.py")
        if path.relative_to(ROOT).parts[0] != "_backends"
        for name in imported_names(path)
        if name.startswith(("_backends.cpu", "_backends.torch"))
    }
    assert not sorted(found)
