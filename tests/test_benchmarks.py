"""The benchmark on tiny inputs: it must run with whatever peers are there; nothing here asserts seconds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
if not (ROOT / "benchmarks").is_dir():
    pytest.skip("the benchmark is not part of an installed package", allow_module_level=True)
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks import data, memory, peers, race, report, rows, tasks  # noqa: E402
from benchmarks.cases import CASES, common, encode, growth  # noqa: E402
from benchmarks.settings import Settings  # noqa: E402

pytestmark = pytest.mark.slow

PEERS = {"SPAMS", "scikit-learn", "dictlearn"}
# Coders must find the same codes; learners start alike and may end a little apart after a few iterations.
# Other sizes of a case that is run.
SIZES = {"encode-b", "encode-d", "encode-b-dense", "encode-s4-mnist", "encode-s16", "encode-s32", "encode-s128"}
CODED = {*(name for name in CASES if name.startswith("encode")), "small"} - SIZES
STATUSES = {rows.OK, rows.SKIPPED, rows.NOT_AVAILABLE, rows.FAILED}


@pytest.fixture(scope="module")
def tiny_run(tmp_path_factory) -> tuple[dict, str, str]:
    """The JSON, the Markdown and what is printed of a run of all cases but other sizes of the same."""
    folder = tmp_path_factory.mktemp("benchmarks") / "new folder"
    cases = [name for name in CASES if name not in SIZES]
    command = [sys.executable, "-m", "benchmarks", "--tiny", "--out", str(folder), *cases]
    done = subprocess.run(command, cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    content = json.loads((folder / "benchmarks.json").read_text())
    return content, (folder / "benchmarks.md").read_text(), done.stdout


def check_tables(markdown: str) -> int:
    """Every table's rows have as many cells as its head; returns how many rows there are."""
    width, count = None, 0
    for line in markdown.splitlines():
        if not line.startswith("|"):
            width = None
            continue
        cells = line.replace("\\|", "").count("|")
        assert width is None or cells == width, line
        width, count = cells, count + 1
    return count


@pytest.mark.xdist_group("tiny benchmark")
def test_every_case_runs_on_tiny_inputs(tiny_run):
    content, markdown, printed = tiny_run
    comparisons, figures = content["comparisons"], content["figures"]

    assert content["tiny"] is True
    assert content["cases"] == [name for name in CASES if name not in SIZES]
    assert {"python", "rkdl", "numpy"} <= set(content["versions"])
    assert all(content["limits"][name] > 0 for name in ("sgemm_gflops", "dgemm_gflops", "copy_gbytes_per_s"))
    found = {row["case"] for row in comparisons + figures}
    assert found == {*CODED, "dl", "kdl", "rkdl", "orkdl", "growth", "shares", "latency", "startup"}
    for row in comparisons + figures:
        assert row["status"] in STATUSES
        assert row["status"] != rows.FAILED, row
        assert (row["reason"] == "") == (row["status"] == rows.OK), row

    for case in CODED:
        expected = {"SPAMS"} if case in encode.SIZES and encode.SIZES[case].peers == encode.SPAMS else PEERS
        assert {row["theirs"]["library"] for row in comparisons if row["case"] == case} == expected
    peers_of_latency = {row["theirs"]["library"] for row in comparisons if row["case"] == "latency"}
    assert peers_of_latency == {"SPAMS", "scikit-learn's PCA", "scikit-learn's SVC"}
    for row in comparisons:
        if row["status"] == rows.NOT_AVAILABLE:
            assert not content["peers"][{"SPAMS": "spams", "dictlearn": "dictlearn"}[row["theirs"]["library"]]][
                "available"
            ]
            assert row["ours"]["best"] > 0
            assert row["ratio"] is None
            continue
        assert row["ratio"] == pytest.approx(row["theirs"]["best"] / row["ours"]["best"])
        assert row["target"] is None, "tiny inputs have no targets"
        if row["case"] in CODED:
            assert row["agrees"] is True, row
        elif row["setting"] == "OMP and AK-SVD in both" and row["case"] == "dl":
            assert row["ours"]["measure"] == pytest.approx(row["theirs"]["measure"], rel=1e-3)
    assert all(row["value"] is not None for row in figures if row["status"] == rows.OK)

    assert check_tables(markdown) >= len(comparisons) + len(figures) + 4
    assert "its figures mean nothing" in markdown
    assert "benchmarks.json" in printed


@pytest.mark.xdist_group("tiny benchmark")
def test_startup_runs(tiny_run):
    figures = [row for row in tiny_run[0]["figures"] if row["case"] == "startup"]
    assert len(figures) == 6
    assert all(row["status"] == rows.OK for row in figures), figures
    (in_home,) = [row for row in figures if row["what"] == "works where the package folder is read-only"]
    assert in_home["value"] == 1.0, in_home
    assert "the cache went to" in in_home["note"]


def test_missing_data_is_a_row_that_says_so(tmp_path):
    from benchmarks.cli import _rows

    settings = Settings(data_dir=str(tmp_path))
    for case in ("encode-a", "kdl", "reduced", "growth", "shares"):
        (row,) = _rows(case, settings)
        assert row.status == rows.SKIPPED
        assert "RKDL_DATA" in row.reason
    text = report.as_text([row])
    assert "Skipped" in text


def test_a_peer_that_cannot_be_imported_is_not_available(monkeypatch):
    monkeypatch.setitem(sys.modules, "spams", None)
    peer = peers.find.__wrapped__("spams")
    assert not peer.available
    assert "cannot be imported" in peer.reason
    row = common.compare("case", "what", "OLS", peer, race.Lap([1.0]), None, check=rows.same)
    assert (row.status, row.ratio, row.met) == (rows.NOT_AVAILABLE, None, None)
    assert report.comparison_cells(row).count(rows.NOT_AVAILABLE) == 1


def test_a_peer_that_does_not_work_is_not_available(monkeypatch):
    def broken(*args, **kwargs):
        raise TypeError("numpy.dtype size changed")

    monkeypatch.setattr(tasks, "encode", broken)
    peer = peers.find.__wrapped__("sklearn")
    assert "does not work here: TypeError: numpy.dtype size changed" in peer.reason


def test_a_race_takes_turns_and_survives_a_contender_that_fails():
    turns = []

    def fail():
        raise RuntimeError("no")

    contenders = [
        race.Contender("a", lambda: turns.append("a"), judge=lambda result: 1.0, scale=2.0),
        race.Contender("bad", fail),
        race.Contender("b", lambda: turns.append("b"), warm=lambda: None),
    ]
    laps = race.race(contenders, 3, pause=0.0)
    assert turns == ["a", "a", "b", "a", "b", "a", "b"]
    assert [len(lap.seconds) for lap in laps.values()] == [3, 0, 3]
    assert laps["a"].measure == 1.0
    assert laps["bad"].error == "RuntimeError: no"
    peer = peers.Peer("x", "X", "1")
    row = common.compare("case", "what", "", peer, laps["a"], laps["bad"], check=rows.same)
    assert (row.status, row.reason) == (rows.FAILED, "X: RuntimeError: no")


def test_a_target_is_met_only_by_a_solution_as_good():
    peer, peaks = peers.Peer("x", "X", "1"), (lambda: 1.0, lambda: 2.0)
    slow = race.Lap([3.0, 2.0], measure=0.5)
    met = []
    for measure in (0.5, 0.5004, 0.6, 0.4):
        fast = race.Lap([1.0, 1.5], measure=measure)
        row = common.compare("c", "w", "", peer, fast, slow, check=rows.same, peaks=peaks, target=2.0)
        assert row.ratio == 2.0
        assert (row.ours.memory_mb, row.theirs.memory_mb) == (1.0, 2.0)
        met.append(row.met)
    assert met == [True, True, False, False]
    assert [rows.no_worse(value, 0.5) for value in (0.4, 0.5, 0.5004, 0.51)] == [True, True, True, False]
    cells = report.comparison_cells(row)
    assert "NO" in cells
    assert "**no**" in report._markdown_row(cells)
    assert any(line.startswith("Target missed: c") for line in report.summary([row]))


def test_documents_take_over_a_run(tmp_path):
    (tmp_path / "docs").mkdir()
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- benchmarks -->\nold\n<!-- end of benchmarks -->\nafter\n")
    head = {
        "machine": {"processor": "P", "threads": 2, "cores": 2, "load_1min": 0.0},
        "limits": {"sgemm_gflops": 200.0, "dgemm_gflops": 100.0, "copy_gbytes_per_s": 40.0},
        "versions": {},
        "repeat": 5,
        "tiny": False,
    }
    found = [rows.Figure("c", "what", 2.0, "s", bound=1.0), rows.Figure("c", "other", 0.5, "s", bound=1.0)]
    task, what, setting, peer = report._README[0]
    sides = rows.Side("rkdl", [0.1]), rows.Side(peer, [0.3])
    compared = rows.Comparison("encode", what, setting, *sides, dtype="float32")
    for _ in range(2):
        report.write_documents([*found, compared], head, tmp_path)
    text = readme.read_text()
    assert text.startswith("before\n<!-- benchmarks -->\n| task | inputs |")
    assert text.endswith("<!-- end of benchmarks -->\nafter\n")
    assert f"| {task} | {what} | {peer} | 100 | 300 | 3.00x |" in text
    assert "old" not in text
    page = (tmp_path / "docs" / "benchmarks.md").read_text()
    assert "| c | what | 2.00 s |" in page
    assert f"| encode | {what} | {setting} | {peer} | 100 | 300 | 3.00x |\n" in page
    assert f"| encode | {what} | {setting} | {peer} | float32 | - | - | - | - |  |\n" in page
    assert "target" not in text + page
    assert report.summary(found)[:2] == ["1 of 2 targets met.", "Target missed: c, what."]


def test_growth_is_judged_by_its_worst_climb():
    seconds = [4.0, 4.0, 12.0]
    series = [{"n_signals": n, "seconds": t, "us_per_signal": t / n} for n, t in zip((1, 2, 4), seconds, strict=True)]
    signals = np.zeros((4, 10), dtype=np.float32)
    measured = [(2, 1.0), (4, 1.0001)]
    climb, memory_growth = growth._figures("RKDL", series, measured, 4, signals, Settings())
    assert climb.value == pytest.approx(1.5)
    assert climb.met is False
    # Features that are kept are worth their memory; without them codes are all there is.
    assert memory_growth.value == pytest.approx(50.0)
    assert memory_growth.met is None
    (frugal,) = growth._memory_figures("RKDL", measured, 4, signals, Settings())
    assert frugal.bound == 2 * (4 * 8 + 8)
    assert frugal.met is True


def test_peak_memory_is_that_of_the_task_alone():
    """The correlations of 4,000 signals and 2,000 atoms are 64 MB, whatever this process holds."""
    ballast = np.ones(40_000_000)
    inputs = {"X": np.ones((4000, 8)), "D": np.ones((2000, 8))}
    with memory.MemoryLab() as lab:
        peak = lab.peak("product", "numpy", inputs)
        assert lab.peak("no such task", "numpy", inputs) is None
    assert ballast[0] == 1.0
    assert len(lab.problems) == 1
    assert 0.7 * 64 < peak < 1.5 * 64


def test_patches_are_distinct_and_dictionaries_have_unit_norm():
    pytest.importorskip("PIL")
    signals, atoms = data.encode_inputs("patches", 500, 64, None, True)
    assert signals.shape == (500, 64)
    assert signals.dtype == atoms.dtype == np.float32
    assert np.abs(signals.mean(axis=1)).max() < 1e-6
    np.testing.assert_allclose(np.linalg.norm(atoms, axis=1), 1.0, rtol=1e-5)
    gram = np.abs(atoms @ atoms.T) - np.eye(64)
    assert gram.max() < 0.995
    again, _ = data.encode_inputs("patches", 500, 64, None, True)
    np.testing.assert_array_equal(signals, again)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks and limits of Linux")
def test_chaos_on_a_few_trials(tmp_path):
    """Every trial passes; trials that need a cluster or minutes are left to the command."""
    command = [sys.executable, "-m", "benchmarks.chaos", "--small", "--only", "kills", "flips", "cuts", "disk", "forks"]
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert check_tables(done.stdout) == 4 + 8 + 8 + 4 + 1
    assert "no data lost, no wrong result, no crash" in done.stdout


def test_chaos_says_what_went_wrong(capsys, monkeypatch):
    chaos = pytest.importorskip("benchmarks.chaos", reason="needs Linux")
    trial = chaos.Trial("fit")
    trial.outcomes.update([chaos.SAME, chaos.WRONG, f"{chaos.CRASHED} (STATUS 9)"])
    assert trial.n_bad == 2
    assert trial.line() == "| fit | 3 | 1 bitwise identical; 1 WRONG; 1 CRASHED (STATUS 9) |"
    monkeypatch.setattr(chaos, "FAULTS", {"kills": lambda folder, rng, is_small: iter([trial])})
    assert chaos.main(["--only", "kills"]) == 1
    assert "**2 failed**" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        chaos.main(["--small", "--write"])


@pytest.mark.parametrize("arguments", [["no-such-case"], ["--repeat", "0"]])
def test_the_command_refuses_what_it_does_not_know(arguments, capsys):
    from benchmarks.cli import run

    with pytest.raises(SystemExit):
        run(arguments)
    assert "error" in capsys.readouterr().err
