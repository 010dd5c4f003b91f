"""gamma="scale": the variance of all numbers, wherever the signals are."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.svm import SVC

from helpers import Estimators, RowSlices, poor_models
from rkdl import RKDL, KDLClassifier, KDLOutlierDetector, load

pytestmark = poor_models

ESTIMATORS = Estimators("FourierDL", "KDL", "KDL-poly", "RKDL", "ORKDL", "MORKDL", n_components=4, gamma="scale")
each_estimator, fresh = ESTIMATORS.each(), ESTIMATORS.copy_of


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(0)
    return (rng.standard_normal((300, 8)) * (rng.random((300, 8)) > 0.5) + 0.3 * rng.random(8)) * (np.arange(8) > 1)


def expected(X):
    return 1.0 / (X.shape[1] * X.astype(np.float64).var())


@each_estimator
def test_gamma_is_that_of_scikit_learn(name, X):
    for signals in (X, X.astype(np.float32), np.round(5.0 * X).astype(np.int64)):
        found = fresh(name).fit(signals).gamma_
        np.testing.assert_allclose(found, expected(signals), rtol=1e-12)
        support = SVC(gamma="scale").fit(signals.astype(np.float64), np.arange(len(X)) % 2)
        np.testing.assert_allclose(found, support._gamma, rtol=1e-6)


@pytest.mark.slow
@each_estimator
def test_every_kind_of_signals(name, X):
    torch, da = pytest.importorskip("torch"), pytest.importorskip("dask.array")
    twice = sparse.coo_array((np.tile(0.5 * X.ravel(), 2), np.tile(np.indices(X.shape).reshape(2, -1), 2)), X.shape)
    for form in (
        sparse.csr_array(X),
        sparse.csc_array(X),
        twice.tocsr(),
        RowSlices(X),
        da.from_array(X, chunks=(77, 3)),
        da.from_array(X, chunks=(77, 8)).map_blocks(sparse.csr_array),
        torch.from_numpy(X),
    ):
        if name.startswith("KDL") and not isinstance(form, (RowSlices, torch.Tensor)) and not sparse.issparse(form):
            continue
        np.testing.assert_allclose(fresh(name).fit(form).gamma_, expected(X), rtol=1e-12, err_msg=str(type(form)))
    np.testing.assert_allclose(fresh(name).set_params(device="cpu").fit(X).gamma_, expected(X), rtol=1e-12)


def test_duplicates_of_a_sparse_matrix_are_summed(X):
    indptr, columns = 16 * np.arange(301), np.tile(np.repeat(np.arange(8), 2), 300)
    twice = sparse.csr_array((np.repeat(0.5 * X.ravel(), 2), columns, indptr), X.shape)
    assert not twice.has_canonical_format
    np.testing.assert_allclose(fresh("RKDL").fit(twice).gamma_, expected(X), rtol=1e-12)
    assert twice.nnz == 2 * X.size


def test_scale_and_offset(X):
    for scale, offset in ((1e-30, 0.0), (1e30, 1e6), (1e60, 0.0), (1.0, 1e6)):
        found = fresh("RKDL").fit((X + offset) * scale).gamma_
        np.testing.assert_allclose(found * scale * scale, expected(X + offset), rtol=1e-6)


def test_all_numbers_equal():
    model = fresh("RKDL").set_params(n_kernel_vectors=4)
    assert model.fit(np.full((50, 3), 2.0)).gamma_ == 1.0


@pytest.mark.parametrize("name", ["FourierDL", "RKDL", "ORKDL"])
def test_a_stream_keeps_its_first_gamma(name, X, tmp_path):
    model = fresh(name).partial_fit(X[:150]).partial_fit(1.5 * X[150:])
    np.testing.assert_allclose(model.gamma_, expected(X[:150]), rtol=1e-12)
    model.save(tmp_path / "model.rkdl")
    assert load(tmp_path / "model.rkdl").partial_fit(1.5 * X).gamma_ == model.gamma_
    waiting = fresh(name).partial_fit(X[:150], update=False).partial_fit(X[150:])
    whole = X if name == "ORKDL" else X[:150]
    np.testing.assert_allclose(waiting.gamma_, expected(whole), rtol=1e-12)


def test_classifier_and_detector(X):
    model = KDLClassifier(gamma="scale", random_state=0).fit(X, np.arange(300) % 3)
    np.testing.assert_allclose(model.gamma_, expected(X), rtol=1e-12)
    detector = KDLOutlierDetector(gamma="scale", standardize=False, n_members=2, random_state=0).fit(X)
    gamma = expected(X - np.median(X, axis=0))
    np.testing.assert_allclose(detector.gamma_, gamma * 0.1, rtol=1e-12)


def test_a_checkpoint_and_a_search(X, tmp_path):
    path = tmp_path / "fit.rkdl"
    fresh("RKDL").set_params(max_iter=1).fit(X, checkpoint=path)
    resumed, whole = fresh("RKDL").fit(X, checkpoint=path), fresh("RKDL").fit(X)
    np.testing.assert_array_equal(resumed.dual_components_, whole.dual_components_)
    with pytest.raises(ValueError, match="'gamma' parameter of RKDL must be"):
        fresh("RKDL").set_params(gamma="auto").fit(X)


@pytest.mark.parametrize(("factor", "n_warnings"), [(8.0, 0), (13.0, 1), (1e4, 1)])
def test_one_column_on_another_scale(factor, n_warnings, monkeypatch):
    """Of columns whose spreads differ tenfold a warning tells, once at each place."""
    monkeypatch.setattr("rkdl._utils.warnings.shown", set())
    X = np.random.default_rng(0).standard_normal((2000, 12)) * ([1.0] * 5 + [factor] + [1.0] * 6)
    with warnings.catch_warnings(record=True) as found:
        warnings.resetwarnings()
        for end in (1000, 2000):
            RKDL(n_components=4, max_iter=1, random_state=0).fit(X[:end])
        KDLClassifier(n_components=2, n_kernel_vectors=20, random_state=0).fit(X[:100], X[:100, 0] > 0)
    told = [str(each.message).partition(" varies")[0] for each in found]
    assert told == n_warnings * 2 * ["The columns of X have different scales: column 5 (counted from 0)"]
