"""Numba's cache: code that a caller holds of another file is compiled anew when that file changes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from helpers import PATIENCE
from rkdl._backends.cpu import jit

pytestmark = pytest.mark.slow

HELPER = "from rkdl._backends.cpu.jit import compiled\n\n@compiled()\ndef helper(x):\n    return x + {added}\n"
CALLER = (
    "from rkdl._backends.cpu.helper import helper\nfrom rkdl._backends.cpu.jit import compiled\n\n"
    "@compiled()\ndef caller(x):\n    return 2.0 * helper(x)\n"
)
PROGRAM = (
    "from rkdl._backends.cpu.caller import caller\n"
    "print(caller(1.0), sum(caller.stats.cache_hits.values()), sum(caller.stats.cache_misses.values()))"
)


@pytest.mark.parametrize("elsewhere", [False, True], ids=["in the tree", "NUMBA_CACHE_DIR"])
def test_a_changed_helper_recompiles_its_callers(elsewhere, tmp_path):
    """In a package with two compiled functions, one of which calls the other."""
    folder = tmp_path / "rkdl" / "_backends" / "cpu"
    folder.mkdir(parents=True)
    for package in (folder, folder.parent, folder.parent.parent):
        (package / "__init__.py").touch()
    shutil.copy(jit.__file__, folder / "jit.py")
    (folder / "caller.py").write_text(CALLER)
    environment = {key: value for key, value in os.environ.items() if key != "NUMBA_CACHE_DIR"}
    environment["PYTHONPATH"] = str(tmp_path)
    if elsewhere:
        environment["NUMBA_CACHE_DIR"] = str(tmp_path / "cache")

    def run(added):
        (folder / "helper.py").write_text(HELPER.format(added=added))
        command = [sys.executable, "-c", PROGRAM]
        done = subprocess.run(
            command, env=environment, check=True, capture_output=True, text=True, timeout=PATIENCE, cwd=tmp_path
        )
        value, hits, misses = done.stdout.split()
        return float(value), int(hits), int(misses)

    assert run(1.0) == (4.0, 0, 1)
    assert run(1.0) == (4.0, 1, 0)
    n_files = len(list(tmp_path.rglob("*.nb?")))
    assert run(2.0) == (6.0, 0, 1)
    # What is stale is written over.
    assert len(list(tmp_path.rglob("*.nb?"))) == n_files == 4
    assert elsewhere == (tmp_path / "cache").exists()
