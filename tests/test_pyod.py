"""The adapter keeps PyOD's conventions: what PyOD asks of its own detectors."""

from __future__ import annotations

import doctest
import subprocess
import sys

import numpy as np
import pytest
from numpydoc.validate import validate
from sklearn.base import clone
from sklearn.metrics import roc_auc_score

pytest.importorskip("pyod", reason="PyOD is not installed: pip install 'rkdl[pyod]'")

from pyod.models.base import BaseDetector
from pyod.utils.data import generate_data

import rkdl.pyod
from rkdl import KDLOutlierDetector
from rkdl.pyod import KDLOD

# One worker for all, so that what they share is made once.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("pyod")]

CONTAMINATION = 0.1


@pytest.fixture(scope="module")
def data():
    return generate_data(n_train=200, n_test=100, n_features=2, contamination=CONTAMINATION, random_state=42)


@pytest.fixture(scope="module")
def detector(data):
    return KDLOD(contamination=CONTAMINATION, random_state=42).fit(data[0])


def within(values, low, high):
    return bool(low <= np.min(values) and np.max(values) <= high)


def test_fitted_attributes(detector, data):
    X_train, _, y_train, _ = data
    scores, labels = detector.decision_scores_, detector.labels_
    assert isinstance(detector, BaseDetector)
    assert scores.shape == labels.shape == (len(X_train),)
    assert scores.dtype == np.float64
    assert np.isscalar(detector.threshold_)
    assert (detector._mu, detector._sigma) == pytest.approx((scores.mean(), scores.std()))
    assert detector._classes == 2
    assert set(labels) == {0, 1}
    assert labels.sum() == CONTAMINATION * len(X_train)
    assert (labels[scores > detector.threshold_] == 1).all()
    assert roc_auc_score(y_train, scores) > 0.9
    np.testing.assert_array_equal(detector.decision_function(X_train), scores)


def test_new_signals(detector, data):
    X_train, X_test, _, y_test = data
    scores, labels = detector.decision_function(X_test), detector.predict(X_test)
    assert scores.shape == labels.shape == (len(X_test),)
    assert roc_auc_score(y_test, scores) > 0.9
    np.testing.assert_array_equal(labels, scores > detector.threshold_)
    other = KDLOutlierDetector(random_state=42).fit(X_train)
    np.testing.assert_array_equal(scores, -other.score_samples(X_test))


@pytest.mark.parametrize("method", ["linear", "unify"])
def test_probabilities(detector, data, method):
    _, X_test, _, y_test = data
    probabilities, confidence = detector.predict_proba(X_test, method=method, return_confidence=True)
    assert probabilities.shape == (len(X_test), 2)
    assert within(probabilities, 0.0, 1.0)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0)
    assert roc_auc_score(y_test, probabilities[:, 1]) > 0.8
    assert confidence.shape == (len(X_test),)


def test_confidence_and_rejection(detector, data):
    X_test = data[1]
    labels, confidence = detector.predict(X_test, return_confidence=True)
    np.testing.assert_array_equal(labels, detector.predict(X_test))
    for values in (confidence, detector.predict_confidence(X_test)):
        assert values.shape == (len(X_test),)
        assert within(values, 0.0, 1.0)
    labels, (expected, bound, cost) = detector.predict_with_rejection(X_test, return_stats=True)
    assert set(labels) <= {0, 1, -2}
    assert within([expected, bound], 0.0, 1.0)
    assert cost >= 0.0


def test_threshold_of_few_signals():
    """Labels are of the training signals, the threshold is for new ones."""
    rng = np.random.default_rng(0)
    X, fresh = rng.standard_normal((100, 20)), rng.standard_normal((1000, 20))
    detector = KDLOD(contamination=0.1, random_state=0).fit(X)
    assert detector.labels_.sum() == 10
    assert 0.03 < detector.predict(fresh).mean() < 0.2


@pytest.mark.filterwarnings("ignore")
def test_fit_predict(detector, data):
    X_train, _, y_train, _ = data
    fresh = KDLOD(contamination=CONTAMINATION, random_state=42)
    np.testing.assert_array_equal(fresh.fit_predict(X_train), detector.labels_)
    assert fresh.fit_predict_score(X_train, y_train) > 0.9
    assert fresh.fit_predict_score(X_train, y_train, scoring="prc_n_score") > 0.5


@pytest.mark.parametrize("bad", [0.0, -0.1, 0.6, "auto"])
def test_bad_contamination(bad):
    with pytest.raises(ValueError, match="KDLOutlierDetector knows 'auto'" if bad == "auto" else "contamination"):
        KDLOD(contamination=bad)


def test_parameters(detector):
    copy = clone(detector)
    assert not hasattr(copy, "decision_scores_")
    assert copy.get_params() == detector.get_params()
    assert copy.set_params(n_members=3).n_members == 3
    assert {**KDLOutlierDetector().get_params(), "contamination": 0.1} == KDLOD().get_params()


def test_a_fit_that_fails_leaves_the_earlier_one(data):
    X = data[0]
    model = KDLOD(n_members=2, random_state=0).fit(X)
    expected = model.decision_function(X)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(X * np.nan)
    np.testing.assert_array_equal(model.decision_function(X), expected)


def test_without_pyod():
    """The library does not import PyOD, and the adapter says what is missing."""
    code = "import sys; sys.modules['pyod'] = None\nimport rkdl; rkdl.KDLOutlierDetector\nimport rkdl.pyod"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode != 0
    assert "pip install 'rkdl[pyod]'" in done.stderr


def test_documentation():
    for name in ("KDLOD", "KDLOD.fit", "KDLOD.decision_function"):
        errors = {code for code, _ in validate(f"rkdl.pyod.{name}")["errors"]}
        assert errors <= {"ES01", "SS05", "SA01", "EX01", "RT02"}
    result = doctest.testmod(rkdl.pyod)
    assert result.attempted >= 5
    assert result.failed == 0
