"""How a stream starts: signals wait until there are enough distinct ones to choose from, then they are learned."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

import rkdl
from helpers import Estimators, fitted_bytes, poor_models, rms_error

pytestmark = poor_models

SIZES = {"n_components": 20, "n_nonzero_coefs": 4, "n_kernel_vectors": 40, "n_fourier_features": 128}
ESTIMATORS = Estimators("DL", "FourierDL", "RKDL", "ORKDL", "MORKDL", **SIZES)
each_estimator = ESTIMATORS.each()


@pytest.fixture(scope="module")
def X(digits):
    return digits[np.random.default_rng(0).permutation(len(digits))]


def poor_batches(kind, X):
    return {"zeros": [np.zeros((200, 64))], "copies": [np.tile(X[:1], (200, 1))], "one by one": X[:60, None]}[kind]


def fed(stream, batches):
    for batch in batches:
        stream.partial_fit(batch)
    return stream


@pytest.mark.parametrize("kind", ["zeros", "copies", "one by one"])
@each_estimator
def test_a_poor_beginning_does_no_harm(name, kind, X):
    """After ordinary batches the stream is much as one that never saw it."""
    ordinary = np.array_split(X[200:], 10)
    expected = fed(clone(ESTIMATORS[name]), ordinary)
    stream = fed(clone(ESTIMATORS[name]), [*poor_batches(kind, X), *ordinary])
    assert np.isfinite(stream.errors_).all()
    assert rms_error(stream, X[200:]) < 1.15 * rms_error(expected, X[200:])
    assert getattr(stream, "gamma_", 1.0) == pytest.approx(getattr(expected, "gamma_", 1.0), rel=0.4)


@each_estimator
def test_once_chosen_the_start_stays(name, X):
    """However different the batches that follow."""
    stream = clone(ESTIMATORS[name]).partial_fit(X[:200])
    start = {"gamma_": getattr(stream, "gamma_", None)}
    if name == "RKDL":
        start["kernel_vectors_"] = stream.kernel_vectors_
    for batch in (X[200:201], np.zeros((300, 64)), X[201:800]):
        stream.partial_fit(batch)
    for attribute, value in start.items():
        assert value is None or np.array_equal(getattr(stream, attribute), value)


@each_estimator
def test_few_distinct_signals_for_ever(name, X):
    """What waits is bounded, and what there is, is learned in the end."""
    rng = np.random.default_rng(0)
    stream = clone(ESTIMATORS[name])
    for _ in range(20):
        stream.partial_fit(X[rng.integers(8, size=300)])
    stream.partial_fit(X[200:500])
    assert np.isfinite(stream.transform(X)).all()


@pytest.mark.parametrize("factor", [1e-3, 1e3])
@each_estimator
def test_a_batch_of_another_scale_warns(name, factor, X):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stream = clone(ESTIMATORS[name]).partial_fit(X[:400]).partial_fit(X[400:600])
    with pytest.warns(UserWarning, match="scale"):
        stream.partial_fit(factor * X[600:900])
    assert np.isfinite(stream.transform(X)).all()


@each_estimator
def test_waiting_signals_are_kept(name, X, tmp_path):
    """In a pickle and in a file, and a bad batch among them changes nothing."""
    model = clone(ESTIMATORS[name])
    other = clone(model)
    bad = np.where(X[:5] > 10.0, np.nan, X[:5])
    for batch in (X[:1], np.zeros((3, 64)), X[1:30], X[30:200], X[200:600]):
        with pytest.raises(ValueError, match="Input X contains NaN"):
            other.partial_fit(bad)
        other = pickle.loads(pickle.dumps(other.partial_fit(batch)))
        model.partial_fit(batch)
        if hasattr(model, "n_iter_"):
            other.save(tmp_path / "model.rkdl")
            other = rkdl.load(tmp_path / "model.rkdl")
    assert fitted_bytes(other) == fitted_bytes(model)


@each_estimator
def test_while_all_signals_wait_nothing_is_fitted(name, X, tmp_path):
    model = clone(ESTIMATORS[name]).partial_fit(X[:3])
    for call in (
        lambda: model.transform(X[:3]),
        lambda: model.score(X[:3]),
        lambda: model.inverse_transform(np.eye(model.n_components)),
        lambda: model.get_feature_names_out(),
        lambda: model.save(tmp_path / "model.rkdl"),
        lambda: check_is_fitted(model),
    ):
        with pytest.raises(NotFittedError):
            call()
    check_is_fitted(model.partial_fit(X[3:300]))


@pytest.mark.parametrize("factor", [1e-30, 1e22])
@each_estimator
def test_signals_out_of_the_range_of_float32(name, factor, X):
    """The batch that a stream starts from is processed in float64 like the signals of a fit, whose result it gives."""
    signals = (X[:300] * factor).astype(np.float32)
    fitted = clone(ESTIMATORS[name]).set_params(max_iter=1).fit(signals)
    stream = clone(ESTIMATORS[name]).partial_fit(signals)
    assert stream.computes_in_float64_
    np.testing.assert_array_equal(stream.update_errors_, fitted.update_errors_)
