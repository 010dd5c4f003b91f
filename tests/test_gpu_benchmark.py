"""The GPU benchmark on the CPU: it must run on small inputs, and keep the rows of earlier and of stopped runs."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
if not (ROOT / "benchmarks").is_dir():
    pytest.skip("the benchmark is not part of an installed package", allow_module_level=True)
torch = pytest.importorskip("torch")
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks.gpu import CASES, cli, long_codes, steps  # noqa: E402
from benchmarks.gpu.machine import Machine  # noqa: E402
from benchmarks.gpu.report import Report  # noqa: E402
from benchmarks.gpu.rows import Row, measured  # noqa: E402

SMALL = ["--small", "--device", "cpu", "--no-tests"]


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Runs of the command line into one folder, with cases that only return the given rows; returns the table."""

    def start(*options, **found):
        for case, rows in found.items():
            monkeypatch.setitem(CASES, case, lambda machine, out, rows=rows: iter(rows))
        chosen = [part for case in found for part in ("--only", case)]
        assert cli.main([*SMALL, "--out", str(tmp_path), *chosen, *options]) == 0
        return (tmp_path / "gpu.md").read_text()

    return start


def names(folder):
    """Names of the saved rows, by case."""
    cases = json.loads((folder / "gpu.json").read_text())["cases"]
    return {case: [row["what"] for row in rows] for case, rows in cases.items()}


def test_later_runs_keep_the_other_cases(run, tmp_path):
    first = run(kdl=[measured("KDL, exact", 1.0, "s", "a note")], encode=[measured("encode", 5.0, "M signals/s")])
    assert "| KDL, exact | 1 s | a note |" in first
    second = run(kdl=[measured("KDL, exact", 2.0, "s")], paper=[measured("the paper's problem", 3.0, "s")])
    lines = second.splitlines()
    # In the order of the cases, whatever the order of the runs.
    assert lines[4:] == ["| encode | 5 M signals/s |  |", "| KDL, exact | 2 s |  |", "| the paper's problem | 3 s |  |"]
    # A row that the case no longer has is dropped.
    assert "KDL, exact" not in run(kdl=[measured("KDL, other", 2.0, "s")])
    assert names(tmp_path) == {"encode": ["encode"], "kdl": ["KDL, other"], "paper": ["the paper's problem"]}


@pytest.mark.parametrize("key", ["machine", "small"])
def test_rows_of_another_machine_are_dropped(key, run, tmp_path, capsys):
    run(kdl=[measured("KDL, exact", 1.0, "s")])
    saved = json.loads((tmp_path / "gpu.json").read_text())
    assert "another machine" not in capsys.readouterr().err
    (tmp_path / "gpu.json").write_text(json.dumps({**saved, key: "other"}))
    run(encode=[measured("encode", 5.0, "M signals/s")])
    assert names(tmp_path) == {"encode": ["encode"]}
    assert "another machine" in capsys.readouterr().err


def test_a_stopped_run_keeps_its_rows(run, monkeypatch, tmp_path, capsys):
    run(kdl=[measured("one", 1.0, "s"), measured("two", 2.0, "s")])

    def stopped(machine, out):
        yield measured("one", 3.0, "s")
        raise KeyboardInterrupt

    monkeypatch.setitem(CASES, "kdl", stopped)
    with pytest.raises(KeyboardInterrupt):
        cli.main([*SMALL, "--out", str(tmp_path), "--only", "kdl"])
    assert (tmp_path / "gpu.md").read_text().splitlines()[4:] == ["| one | 3 s |  |", "| two | 2 s |  |"]
    assert "one | 3 s |" in capsys.readouterr().err


def test_write_replaces_the_parts_that_were_measured(run, monkeypatch, tmp_path):
    page = tmp_path / "page.md"
    shutil.copy(ROOT / "docs" / "gpu.md", page)
    monkeypatch.setattr(cli, "PAGE", page)
    before = page.read_text()
    run(kdl=[measured("KDL, exact", 1.0, "s")])
    assert page.read_text() == before
    rates = [measured(f"n = {n}, s = 20", 3.0, "M signals/s") for n in (256, 257)]
    run("--write", steps=rates)
    text = page.read_text()
    # Of both runs.
    assert "| KDL, exact | 1 s |  |\n<!-- end of measured -->" in text
    assert "257: 3 (1.00)" not in text
    assert "257: 3 (1.00)" in (tmp_path / "gpu.md").read_text()
    kept = "<!-- many non-zeros -->"
    assert text.split(kept)[1] == before.split(kept)[1]


def test_steps_compare_neighbours_only():
    speeds = {(256, 20): 10.0, (257, 20): 4.0, (320, 20): 1.0, (512, 20): 3.0, (513, 20): 2.0, (1024, 128): 0.25}
    rows = [measured(f"n = {n}, s = {s}", rate, "M signals/s") for (n, s), rate in speeds.items()]
    assert steps.table(rows)[4:] == [
        "| n, with s = 20 | 256: 10, 257: 4 (2.50), 320: 1, 512: 3, 513: 2 (1.50) | 2.50, from 256 to 257 |",
        "| s, with n = 1024 | 128: 0.25 |  |",
    ]


def test_long_codes_with_and_without_the_peer():
    alone, beside = (Row("64, 256", {}, ["64, 256", "1", "2", *more]) for more in ([], ["3", "4", "5", "6", "7"]))
    assert long_codes.table([alone])[2:] == [
        "| m, n, s, signals | OLS | OMP |",
        "| --- | --- | --- |",
        "| 64, 256 | 1 | 2 |",
    ]
    assert [line.count("|") for line in long_codes.table([alone, beside])[2:]] == [9] * 4


def test_results_without_cases_are_replaced(tmp_path):
    (tmp_path / "gpu.json").write_text('[{"what": "KDL, exact"}]')
    assert Report(Machine("cpu", True), tmp_path).rows() == []


@pytest.mark.slow
def test_runs_on_small_inputs(tmp_path):
    assert cli.main([*SMALL, "--out", str(tmp_path)]) == 0
    cases = json.loads((tmp_path / "gpu.json").read_text())["cases"]
    assert list(cases) == list(CASES)
    values = {row["what"]: row["figures"]["value"] for case in set(cases) - {"long"} for row in cases[case]}
    expected = {"encode, n = 256", "KDL, exact", "ORKDL, the paper's problem", "the same from host memory"}
    assert expected <= set(values)
    assert np.isfinite(list(values.values())).all()
    text = (tmp_path / "gpu.md").read_text()
    assert all(heading in text for heading in ("| case | measured | |", "| m, n, s, signals |", "| sizes |"))


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu(tmp_path, capsys):
    assert cli.main(["--out", str(tmp_path)]) == 2
    assert "--device cpu" in capsys.readouterr().err
