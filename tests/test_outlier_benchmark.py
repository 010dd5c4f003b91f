"""The outlier benchmark's own parts: its protocol, its problems, and runs that are cut into pieces."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.model_selection import train_test_split

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import outlier_problems, outliers, threshold

pytestmark = pytest.mark.slow

SMALL = ("wine class 0", "iris class 1", "cancer cluster", "blobs 400 5 global", "shifted (600, 20, 5, 2.5)")


def test_problems_are_the_same_at_every_call_and_hold_both_kinds():
    first, second = (list(outlier_problems.development_problems(SMALL)) for _ in range(2))
    assert [name for name, _, _ in first] == list(SMALL)
    for (_, X, y), (_, again, labels) in zip(first, second, strict=True):
        np.testing.assert_array_equal(X, again)
        np.testing.assert_array_equal(y, labels)
        assert np.isfinite(X).all()
        assert 0.0 < y.mean() <= 0.36
        # In random order, not the outliers last.
        assert y[: len(y) // 2].any()


def test_every_kind_of_planted_outliers():
    rng = np.random.default_rng(0)
    inliers = rng.standard_normal((200, 4))
    for kind in outlier_problems.KINDS:
        X, y = outlier_problems.planted(inliers, kind, 0.1, rng)
        assert y.sum() == round(0.1 / 0.9 * 200)
        assert len(X) == 200 + y.sum()


def test_protocol_of_the_split():
    rng = np.random.default_rng(0)
    X, y = 5.0 + 3.0 * rng.standard_normal((100, 3)), rng.integers(0, 2, 100)
    X_train, X_test, y_train, y_test = outliers.split(X, y, 3)
    assert (len(X_train), len(X_test)) == (60, 40)
    np.testing.assert_allclose(X_train.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(X_train.std(axis=0), 1.0)
    raw = train_test_split(X, y, test_size=0.4, random_state=np.random.RandomState(3))
    np.testing.assert_array_equal(y_train, raw[2])
    np.testing.assert_array_equal(y_test, raw[3])
    np.testing.assert_allclose(X_test, (raw[1] - raw[0].mean(axis=0)) / raw[0].std(axis=0))


def test_a_run_in_pieces_measures_each_figure_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(outliers, "problems", lambda suite: outlier_problems.development_problems(SMALL[:2]))
    path = tmp_path / "figures.jsonl"
    command = ["--suite", "development", "--seeds", "2", "--detectors", outliers.OURS, "--out", str(path)]
    assert outliers.main([*command, "--limit", "-1"]) == 3
    assert path.read_text() == ""
    assert outliers.main(command) == 0
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(records) == 4
    assert {(r["problem"], r["seed"]) for r in records} == {(name, seed) for name in SMALL[:2] for seed in range(2)}
    assert all(0.0 <= r["roc"] <= 1.0 for r in records)
    before = path.read_text()
    capsys.readouterr()
    assert outliers.main(command) == 0
    assert path.read_text() == before
    mean = np.mean([r["roc"] for r in records])
    assert f"| {outliers.OURS} | {mean:.4f} | 1.00 |" in capsys.readouterr().out


def test_ranks_share_ties():
    records = [
        {"problem": "a", "detector": name, "roc": roc, "fit_seconds": 1.0, "score_seconds": 0.5}
        for name, roc in ((outliers.OURS, 0.9), ("KNN", 0.9), ("LOF", 0.5))
    ]
    report = outliers.report(records, "odds")
    assert f"| {outliers.OURS} | 0.9000 | 1.50 | 1.5 |" in report
    assert "| LOF | 0.5000 | 3.00 | 1.5 |" in report
    assert "| a | 0.900 | 0.900 | 0.500 |" in report


def test_real_and_planted_problems_are_distinguished():
    assert [outlier_problems.is_real(name) for name in SMALL] == [True, True, False, False, False]
    assert sum(map(outlier_problems.is_real, outlier_problems.NAMES)) == 27


@pytest.mark.parametrize("name", outliers.PEERS)
def test_peers_have_their_defaults_and_the_share_of_outliers(name):
    pytest.importorskip("pyod", reason="PyOD is not installed: pip install 'rkdl[pyod]'")
    detector = outliers.make_detector(name, 0.2, 5)
    parameters = detector.get_params()
    assert parameters.pop("contamination") == 0.2
    assert parameters.pop("random_state", 5) == 5
    defaults = type(detector)().get_params()
    assert parameters == {key: defaults[key] for key in parameters}


def test_table_of_thresholds(capsys):
    threshold.main(["--seeds", "1", "--sizes", "40", "--widths", "3"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + len(threshold.DISTRIBUTIONS)
    assert all(line.count("|") == lines[0].count("|") for line in lines)
    assert lines[2].startswith("| normal | 3 | 40 | ")
