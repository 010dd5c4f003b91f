"""The paper's experiments: the published procedure, what is measured, verdicts, and one tiny run from start to end."""

from __future__ import annotations

import json
import math
import re

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.preprocessing import normalize

import reference

pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")

from paper import __main__ as command
from paper import measure, runs
from paper.claims import CLAIMS, FAILS, HOLDS, SCATTER, UNTESTED, judge
from paper.data import Data
from paper.literal import run_literal
from paper.published import METHODS, Settings, run_published, train_dictionary
from paper.report import write_report
from paper.settings import settings_of
from rkdl import KDL, RKDL

SMALL = Settings(n_components=6, n_nonzero_coefs=2, n_iter=4, n_kernel_vectors=10)
OPTIMISED, NEAR, BELOW, ORDER, LOWEST, SECOND, MEMORY, SIX, SAVING = range(9)


@pytest.fixture(scope="module")
def signals():
    return normalize(load_digits().data[:120])


class TestPublished:
    @pytest.mark.parametrize("method", ["KDL", "RKDL-D"])
    def test_one_iteration_is_that_of_the_reference(self, signals, method):
        """With atoms of unit norm in the metric, the pursuit is exact."""
        vectors = signals if method == "KDL" else signals[:10]
        dual = np.eye(6, len(vectors))
        settings = SMALL._replace(n_iter=1)
        errors, codes = run_published(method, signals, vectors, settings, dense=False, initial_dual=dual)
        F, M = reference.kernel(signals, vectors, gamma=0.1), reference.kernel(vectors, vectors, gamma=0.1)
        Z = reference.encode(F, dual, M, np.ones(len(signals)), 2, kind="omp")
        A, Z = reference.kdl_aksvd_update(Z, dual, M) if method == "KDL" else reference.aksvd_update(Z, F, dual, M)
        expected = reference.error(reference.objective(len(signals), Z, F, A, M), *signals.shape)
        assert errors == pytest.approx([expected], rel=1e-6)
        np.testing.assert_allclose(codes, Z, atol=1e-6)

    @pytest.mark.parametrize("method", METHODS)
    def test_dense_codes_are_the_published_ones(self, signals, method):
        vectors = None if method == "KDL" else train_dictionary(signals, SMALL)
        (dense, many), (sparse, few) = (run_published(method, signals, vectors, SMALL, dense=d) for d in (True, False))
        assert len(dense) == SMALL.n_iter
        assert np.count_nonzero(few) <= 2 * len(signals)
        if method == "KDL":
            assert dense == sparse
        else:
            assert np.count_nonzero(many) > 3 * len(signals)
            assert dense[-1] < sparse[-1]

    @pytest.mark.parametrize("method", METHODS[:3])
    def test_literal_program_has_the_same_errors(self, signals, method):
        vectors = None if method == "KDL" else train_dictionary(signals, SMALL, seed=3)
        errors, seconds, codes = run_literal(method, signals, vectors, SMALL, 3)
        expected, expected_codes = run_published(method, signals, vectors, SMALL, 3)
        assert errors == pytest.approx(expected, rel=1e-7)
        np.testing.assert_allclose(codes, expected_codes, atol=1e-5)
        assert seconds > 0

    def test_divergence_gives_nan(self, signals):
        vectors = train_dictionary(signals, SMALL)
        errors, _ = run_published("ORKDL-D", signals, vectors, SMALL._replace(learning_rate=1e200))
        assert len(errors) == SMALL.n_iter
        assert math.isnan(errors[-1])


class TestMeasures:
    def test_best_atoms_by_least_squares(self, signals):
        """The feature space made explicit by a square root of the kernel matrix; unused atoms change nothing."""
        codes = RKDL(20, n_nonzero_coefs=4, n_kernel_vectors=30, gamma=0.1, random_state=0).fit_transform(signals)
        values, vectors = np.linalg.eigh(reference.kernel(signals, signals, gamma=0.1))
        features = vectors * np.sqrt(np.maximum(values, 0.0))
        atoms, *_ = np.linalg.lstsq(codes, features, rcond=None)
        expected = np.sqrt(np.sum((features - codes @ atoms) ** 2) / signals.size)
        best = measure.BestAtoms(signals, 0.1)
        assert best.error(codes) == pytest.approx(expected, rel=1e-6)
        assert best.error(np.column_stack([codes, np.zeros(len(codes))])) == pytest.approx(expected, rel=1e-6)


def made_up(errors, seconds=(1, 1, 1, 1), n_rounds=3, noise=0.0, column="rkdl"):
    """Runs of the four methods with given errors in the last iteration, that vary by `noise` from round to round."""
    rng = np.random.default_rng(0)
    found = {}
    for method, error, duration in zip(METHODS, errors, seconds, strict=True):
        last = error * (1 + noise * rng.standard_normal(n_rounds))
        found[method] = {
            i: {
                "errors": [2 * e, e, e],
                "best_error": e,
                "seconds": duration,
                "peak_bytes": 100 if method == "KDL" else 10,
                "nonzeros": 4.0,
                "warnings": [],
                "made_with": runs.provenance(),
            }
            for i, e in enumerate(map(float, last))
        }
    return {column: found}


class TestVerdicts:
    @pytest.mark.parametrize(
        ("claim", "errors", "expected"),
        [
            (OPTIMISED, (1, 0.9, 0.8, 0.8), HOLDS),
            (OPTIMISED, (1, 0.9, 0.8, 0.95), FAILS),
            (NEAR, (1, 1.005, 1.005, 1.005), HOLDS),
            (NEAR, (1, 1.005, 1.005, 1.02), FAILS),
            (BELOW, (1, 0.9, 0.9, 0.9), HOLDS),
            (BELOW, (1, 0.9, 1.1, 0.9), FAILS),
            (ORDER, (1, 0.9, 0.8, 0.7), HOLDS),
            (ORDER, (1, 0.9, 0.95, 0.7), FAILS),
            (LOWEST, (1, 0.9, 0.95, 0.7), HOLDS),
            (SECOND, (1, 0.9, 0.9, 0.9), HOLDS),
            (SECOND, (1, 0.9, 0.9, 1.1), FAILS),
            (MEMORY, (1, 1, 1, 1), HOLDS),
            (BELOW, (1, math.nan, 0.9, 0.9), FAILS),
        ],
    )
    def test_clear(self, claim, errors, expected):
        assert str(judge(CLAIMS[claim], "rkdl", made_up(errors))) == expected
        one = judge(CLAIMS[claim], "rkdl", made_up(errors, n_rounds=1))
        assert str(one) == f"{expected}, 1 round"

    def test_scatter(self):
        errors = (1, 0.99, 0.98, 0.97)
        assert str(judge(CLAIMS[BELOW], "rkdl", made_up(errors, noise=0.2))) == SCATTER
        assert str(judge(CLAIMS[BELOW], "rkdl", made_up(errors, noise=1e-4))) == HOLDS
        assert str(judge(CLAIMS[BELOW], "rkdl", made_up((1, 1, 1, 1)))) == SCATTER

    def test_times(self):
        errors = (1, 1, 1, 1)
        assert str(judge(CLAIMS[SIX], "rkdl", made_up(errors, (7, 1, 1, 1)))) == HOLDS
        assert str(judge(CLAIMS[SIX], "rkdl", made_up(errors, (5, 1, 1, 1)))) == FAILS
        assert str(judge(CLAIMS[SAVING], "rkdl", made_up(errors, (10, 1, 7, 7)))) == HOLDS
        assert str(judge(CLAIMS[SAVING], "rkdl", made_up(errors, (10, 1, 7, 9)))) == FAILS

    def test_not_tested(self):
        assert judge(CLAIMS[BELOW], "rkdl", {}).verdict == UNTESTED
        found = made_up((1, 0.9, 0.8, 0.7), column="restricted")
        assert judge(CLAIMS[SIX], "restricted", found).verdict == UNTESTED
        del found["restricted"]["MORKDL-D"]
        assert judge(CLAIMS[BELOW], "restricted", found).verdict == UNTESTED

    def test_times_of_the_published_code_are_literal(self):
        found = made_up((1, 1, 1, 1), (1, 1, 1, 1), column="published")
        assert judge(CLAIMS[SIX], "published", found).verdict == UNTESTED
        found |= made_up((1, 1, 1, 1), (10, 1, 2, 2), n_rounds=1, column="literal")
        del found["literal"]["MORKDL-D"]
        assert str(judge(CLAIMS[SIX], "published", found)) == "holds, 1 round"
        assert str(judge(CLAIMS[SAVING], "published", found)) == "holds, 1 round"


def test_sentences_agree_with_the_table(tmp_path):
    data = Data(np.zeros((5, 64)), (8, 8), "made up")
    found = {
        "one": (data, made_up((1, 0.9, 0.95, 0.7), (7, 1, 9, 9))),
        "two": (data, made_up((1, 0.9, 0.8, 1.1), (7, 1, 9, 9))),
    }
    page, summary = write_report(tmp_path, found)
    text = page.read_text()
    assert text.index("| claim ") < text.index("Holds on every data set") < text.index("## ")
    assert text.startswith(summary)
    rows = [line.strip("| ").split("|") for line in summary.splitlines() if line.startswith("| ")]
    verdicts: dict[str, list[str]] = {}
    for claim, verdict in rows:
        verdicts.setdefault(claim.strip(), []).append(verdict.strip())
    for sentence, kind in (("Holds", HOLDS), ("Fails", FAILS)):
        line = re.search(rf"^{sentence} on every data set: (.*)\.$", summary, re.M)[1]
        told = {part.rpartition(" (")[0] for part in line.split("; ")} - {""}
        assert told == {claim for claim, own in verdicts.items() if all(text.startswith(kind) for text in own)}
        assert "one round" not in line


@pytest.mark.slow
def test_run_resume_and_report(tmp_path, monkeypatch, capsys):
    """Two methods in one round on some digits; what is there already is not run again."""
    data = Data(normalize(load_digits().data[:200]).astype(np.float32), (8, 8), "some digits")
    monkeypatch.setattr(command, "load", lambda name, home: data)
    arguments = ["--rounds", "1", "--columns", "rkdl", "--methods", "KDL", "RKDL-D", "--out", str(tmp_path)]
    assert command.main(arguments) == 0
    printed = capsys.readouterr().out
    assert printed.index("| reduced below KDL ") < printed.index("Of 9 verdicts")
    report = (tmp_path / "report.md").read_text()
    for name in re.findall(r"!\[.*\]\((.*)\)", report):
        assert (tmp_path / name).stat().st_size > 1000
    first = tmp_path / "runs" / "digits" / "rkdl-KDL-0.json"
    model = KDL(**settings_of("rkdl", "KDL", "digits"), random_state=0).fit(data.signals)
    assert json.loads(first.read_text())["errors"] == pytest.approx(list(model.update_errors_))

    # The command resumes with what is missing.
    kept = first.stat().st_mtime_ns
    (tmp_path / "runs" / "digits" / "rkdl-RKDL-D-0.json").unlink()
    assert command.main([*arguments, "--quiet"]) == 0
    assert first.stat().st_mtime_ns == kept
