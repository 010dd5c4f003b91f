"""The benchmark on data of many kinds: its sets, its runs and what it prints of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import issparse

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import any_data, any_data_sets
from benchmarks.data import MissingDataError

pytestmark = pytest.mark.slow


def run(name, method, seed, error, **others):
    """A stored run with two errors, the first of them 1."""
    figures = {"errors": [1.0, error], "recoded": error, "zero_codes": 0.0, "seconds": 0.1, "warnings": []}
    return {"set": name, "method": method, "seed": seed, **figures, **others}


def stored(runs, dense_runs=()):
    """Stored runs of the sets that they name."""
    sets = {r["set"]: [100, 2] for r in runs}
    defaults = {"RKDL": "kmeans", "ORKDL": "kmeans", "MORKDL": "dictionary"}
    own = {"version": "1", "seeds": 1, "left_out": {}, "sets": sets, "defaults": defaults}
    return any_data.Results({**own, "runs": list(runs), "dense_runs": list(dense_runs)})


def test_sets_are_many_small_finite_and_the_same_at_every_call():
    assert len(any_data_sets.NAMES) >= 28
    assert set(any_data_sets.QUICK_NAMES) < set(any_data_sets.NAMES)
    loaded = []
    for name in any_data_sets.NAMES:
        try:
            X, again = any_data_sets.load_set(name), any_data_sets.load_set.__wrapped__(name)
        except MissingDataError:
            continue
        loaded.append(name)
        assert 30 <= X.shape[0] <= 2000, name
        assert X.dtype == np.float64, name
        values, other = (X.data, again.data) if issparse(X) else (X, again)
        assert np.isfinite(values).all(), name
        np.testing.assert_array_equal(values, other)
    # Those that need no data folder are enough.
    assert len(loaded) >= 28


def test_sets_of_the_data_folder_are_skipped_with_a_message_without_it(monkeypatch):
    monkeypatch.delenv("RKDL_DATA", raising=False)
    for name in ("wilt", "glass-standardised", "mnist-four"):
        with pytest.raises(MissingDataError, match="RKDL_DATA"):
            any_data_sets.load_set.__wrapped__(name)


def test_methods_by_name():
    methods = any_data.all_methods()
    assert methods[0] == "KDL"
    assert len(methods) == len(set(methods))
    assert {any_data.full_name(name) for name in any_data.REDUCED} < set(methods)
    assert any_data.full_name("ORKDL-random") == "ORKDL-random"
    for name in ("DL", "KDL-random"):
        with pytest.raises(ValueError, match="is not a method"):
            any_data.full_name(name)


def test_measure_stores_and_prints(tmp_path, capsys):
    file = tmp_path / "runs.json"
    command = ["--sets", "iris,30-signals", "--methods", "RKDL-kmeans", "--seeds", "2", "--jobs", "1", "--check"]
    any_data.main([*command, "--json", str(file)])
    printed = capsys.readouterr().out
    found = json.loads(file.read_text())
    assert len(found["runs"]) == 8
    assert len(found["dense_runs"]) == 4
    for one in found["runs"]:
        assert "failed" not in one
        assert np.isfinite(one["errors"]).all()
        assert one["recoded"] == pytest.approx(one["errors"][-1], rel=0.05)
    assert "| iris (150 x 4) |" in printed
    assert "(d) with n_nonzero_coefs" in printed
    any_data.main(["--load", str(file), "--check"])
    assert capsys.readouterr().out == printed


def test_a_fit_that_raises_is_reported(monkeypatch):
    monkeypatch.setattr(any_data, "make_estimator", lambda *arguments, **options: 1 / 0)
    part = any_data.measure_set("iris", ["KDL"], 0, dense=False)
    assert part["runs"][0]["failed"] == "ZeroDivisionError: division by zero"
    results = stored(part["runs"])
    assert any_data.percent(results.above_kdl("iris", "KDL")) == "fails"
    assert list(any_data.failures(results)) == ["iris, KDL, seed 0: ZeroDivisionError: division by zero"]


def test_claims_that_fail_are_listed():
    runs = [
        run("a", "KDL", 0, 0.1),
        run("a", "RKDL-kmeans", 0, 0.105, recoded=0.106),
        run("a", "ORKDL-kmeans", 0, 0.12, recoded=0.1),
        run("b", "KDL", 0, 0.1),
        run("b", "RKDL-kmeans", 0, 0.1),
        run("b", "ORKDL-kmeans", 0, 0.09),
    ]
    dense = [run("a", "RKDL-kmeans", 0, 1.0 + 1e-5), run("b", "RKDL-kmeans", 0, 1.0)]
    results = stored(runs, dense)
    assert list(any_data.orkdl_above_rkdl(results)) == ["a, ORKDL-kmeans: +14.3 % (seed 0)"]
    assert list(any_data.defaults_above_kdl(results)) == ["a, ORKDL-kmeans: +20.0 %"]
    assert list(any_data.recoded_off(results, True)) == ["a, RKDL-kmeans: +1.0 % (1 of 1 seeds)"]
    assert list(any_data.recoded_off(results, False)) == ["a, ORKDL-kmeans: -16.7 % (1 of 1 seeds)"]
    assert list(any_data.objective_rises(results)) == ["a, RKDL-kmeans: by up to 1.0e-05 (1 of 1 seeds)"]


def test_tables_are_put_between_the_marks(tmp_path):
    page = tmp_path / "any-data.md"
    page.write_text("# Page\n<!-- any-data -->\nold\n<!-- end of any-data -->\nrest\n")
    results = stored([run("a", "KDL", 0, 0.1), run("a", "RKDL-kmeans", 0, 0.105)])
    any_data.write(results, page)
    text = page.read_text()
    assert "old" not in text
    assert "| data | KDL | RKDL |\n|---|---|---|\n| a (100 x 2) | 0.1 | +5 |\n" in text
    assert "| data | KDL | RKDL kmeans |" in text
    assert text.endswith("<!-- end of any-data -->\nrest\n")
