"""One tiny run of every benchmark that is cheap: it runs with whatever peers are there, and its tables are tables."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
if not (ROOT / "benchmarks").is_dir():
    pytest.skip("the benchmarks are not part of an installed package", allow_module_level=True)

pytestmark = pytest.mark.slow


@pytest.fixture
def run(monkeypatch, capsys):
    """Run a benchmark with a command line; returns what it prints, whose tables have been checked."""
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(str(ROOT))

    def run(name, *arguments):
        assert not importlib.import_module(f"benchmarks.{name}").main(arguments)
        printed = capsys.readouterr().out
        check_tables(printed)
        return printed

    return run


def check_tables(text):
    """Every table's rows have as many cells as its head; returns how many rows there are."""
    width, count = None, 0
    for line in text.splitlines():
        if not line.startswith("|"):
            width = None
            continue
        cells = line.replace("\\|", "").count("|")
        assert width is None or cells == width, line
        width, count = cells, count + 1
    return count


def test_comparison_with_peers(tmp_path):
    command = [sys.executable, "-m", "benchmarks", "--tiny", "--out", str(tmp_path), "small", "dl"]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    content = json.loads((tmp_path / "benchmarks.json").read_text())
    assert content["cases"] == ["small", "dl"]
    assert {"python", "rkdl", "numpy"} <= set(content["versions"])
    for row in content["comparisons"]:
        assert row["status"] in ("ok", "not available"), row
        assert row["ours"]["best"] > 0.0
        if row["status"] == "ok":
            assert row["ratio"] == pytest.approx(row["theirs"]["best"] / row["ours"]["best"])
        if row["status"] == "ok" and row["case"] == "small":
            assert row["agrees"] is True, row
    markdown = (tmp_path / "benchmarks.md").read_text()
    assert check_tables(markdown) >= len(content["comparisons"])
    assert "its figures mean nothing" in markdown
    assert "benchmarks.json" in done.stdout


def test_data_of_many_kinds(run, tmp_path):
    file = str(tmp_path / "runs.json")
    methods = ["--sets", "30-signals", "--methods", "RKDL-kmeans", "--seeds", "1", "--jobs", "1"]
    printed = run("any_data", *methods, "--check", "--json", file)
    assert not any("failed" in one for one in json.loads(Path(file).read_text())["runs"])
    assert "| 30-signals (30 x " in printed
    assert run("any_data", "--load", file, "--check") == printed


@pytest.mark.parametrize(
    ("command", "row"),
    [
        ("threshold --seeds 1 --sizes 60", "| normal, 1 | 60 | "),
        ("explanations --seeds 1", "| wine | 13 | "),
        ("recovery --small --seeds 1", "| 8 x 12, s = 2, 300 signals, 20 dB | rkdl, DL | "),
        # A version beside itself has the same errors.
        (f"versions {ROOT} --groups kinds --small --seeds 1", "| moons | DL | +0.00% | "),
        ("denoising --only noise --small", "|"),
    ],
)
def test_tables(run, command, row):
    name, *arguments = command.split()
    assert row in run(name, *arguments)


def test_cases_of_the_gpu(tmp_path):
    """On the CPU, with small inputs."""
    pytest.importorskip("torch")
    options = ["--small", "--device", "cpu", "--no-tests", "--out", str(tmp_path)]
    command = [sys.executable, "-m", "benchmarks.gpu", *options]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=300)
    cases = json.loads((tmp_path / "gpu.json").read_text())["cases"]
    values = [row["figures"]["value"] for case in cases.keys() - {"long"} for row in cases[case]]
    assert np.isfinite(values).all()
    assert check_tables((tmp_path / "gpu.md").read_text()) > 10


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks and limits of Linux")
def test_faults(run):
    printed = run("chaos", "--small", "--only", "flips", "cuts")
    assert "no data lost, no wrong result, no crash" in printed
