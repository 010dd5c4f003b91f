"""The regressor: scikit-learn's checks, accuracy beside others, weights, streams, missing values, saving."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, make_friedman1, make_friedman3
from sklearn.kernel_ridge import KernelRidge
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR
from sklearn.utils.estimator_checks import parametrize_with_checks

from helpers import poor_models
from rkdl import KDLRegressor, load

pytestmark = [poor_models, pytest.mark.slow, pytest.mark.usefixtures("one_thread")]


@parametrize_with_checks([KDLRegressor(random_state=0)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def friedman():
    X, y = make_friedman1(700, noise=0.5, random_state=0)
    return X[:400], y[:400], X[400:], y[400:]


@pytest.fixture(scope="module")
def plain(friedman):
    return KDLRegressor(random_state=0).fit(*friedman[:2])


@pytest.mark.parametrize(
    "load_signals",
    [
        lambda: make_friedman1(600, noise=1.0, random_state=1),
        lambda: make_friedman3(600, noise=0.1, random_state=1),
        lambda: load_diabetes(return_X_y=True),
    ],
)
def test_as_good_as_others(load_signals):
    X, y = load_signals()
    X, y = StandardScaler().fit_transform(X), StandardScaler().fit_transform(y[:, None])[:, 0]
    train, test = np.arange(len(X)) % 2 == 0, np.arange(len(X)) % 2 == 1
    scores = [
        model.fit(X[train], y[train]).score(X[test], y[test])
        for model in (KDLRegressor(random_state=0), SVR(), KernelRidge(kernel="rbf"))
    ]
    assert scores[0] > max(scores[1:]) - 0.01


def test_relevance(plain):
    """Five of ten features have nothing to do with the target."""
    assert plain.feature_relevance_[:5].min() > plain.feature_relevance_[5:].max()


def test_predictions_are_the_readout_of_the_kernel(friedman, plain):
    X_new = friedman[2][:20]
    values = np.exp(-(((X_new[:, None] - plain.kernel_vectors_) ** 2) @ plain.gammas_))
    expected = (values @ plain.dual_coef_ + plain.intercept_)[:, 0]
    np.testing.assert_allclose(plain.predict(X_new), expected, atol=1e-3)


def test_several_targets(friedman):
    X, y, X_new, y_new = friedman
    model = KDLRegressor(random_state=0).fit(X, np.c_[y, -100.0 * y])
    assert model.predict(X_new).shape == (300, 2)
    assert model.score(X_new, np.c_[y_new, -100.0 * y_new]) > 0.85
    with pytest.raises(ValueError, match="y has 1 targets, and the regressor learns 2"):
        model.partial_fit(X, y)


def test_missing_values(friedman, plain):
    X, _, X_new, y_new = friedman
    is_missing = np.random.default_rng(0).random(X_new.shape) < 0.2
    imputed = plain.score(np.where(is_missing, X.mean(axis=0), X_new), y_new)
    assert plain.score(np.where(is_missing, np.nan, X_new), y_new) > imputed - 0.01


def test_streams(friedman):
    X, y, X_new, y_new = friedman
    model = KDLRegressor(random_state=0, n_kernel_vectors=60)
    for start in range(0, 400, 100):
        model.partial_fit(X[start : start + 100], y[start : start + 100])
    assert model.score(X_new, y_new) > 0.7
    assert model.n_iter_ == 4


def test_weights(friedman):
    X, y, X_new, _ = friedman
    weights = np.repeat([0.0, 1.0], 200)
    wrong = np.where(weights == 0.0, 0.0, y)
    weighted, without = KDLRegressor(random_state=0).fit(X, wrong, weights), KDLRegressor(random_state=0)
    np.testing.assert_array_equal(weighted.predict(X_new), without.fit(X[200:], y[200:]).predict(X_new))
    lazy = pytest.importorskip("dask.array").from_array(np.repeat(X, 1 + (y > 15.0), axis=0), chunks=100)
    twice = KDLRegressor(random_state=0).fit(lazy, np.repeat(y, 1 + (y > 15.0))).predict(lazy)
    expected = KDLRegressor(random_state=0).fit(X, y, 1.0 + (y > 15.0)).predict(lazy.compute())
    np.testing.assert_allclose(twice.compute(), expected, rtol=1e-12)


def test_saved_and_loaded(friedman, plain, tmp_path):
    plain.save(tmp_path / "model.rkdl")
    again = load(tmp_path / "model.rkdl")
    np.testing.assert_array_equal(again.predict(friedman[2]), plain.predict(friedman[2]))
    again.partial_fit(friedman[2], friedman[3])
    assert again.score(friedman[2], friedman[3]) > plain.score(friedman[2], friedman[3]) - 0.02
