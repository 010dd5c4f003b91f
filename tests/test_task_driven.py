"""The classifier and the regressor on data that breaks things: outliers, scales, weights, other parameters."""

from __future__ import annotations

import importlib.util
import pickle

import numpy as np
import pytest
from scipy import sparse

from helpers import poor_models
from rkdl import DL, RKDL, KDLClassifier, KDLRegressor, load

pytestmark = [poor_models, pytest.mark.usefixtures("one_thread")]

RNG = np.random.default_rng(0)
X, X_NEW = RNG.standard_normal((2, 300, 5))
SIZES = {"n_kernel_vectors": 40, "random_state": 0}


def targets(rows):
    return rows[:, 0] * rows[:, 1]


def saved_and_loaded(model, path):
    model.save(path)
    return load(path)


def classifier(**options):
    return KDLClassifier(**{**SIZES, **options})


def regressor(**options):
    return KDLRegressor(**{**SIZES, **options})


KNOWN = {classifier: {"classes": [False, True]}, regressor: {}}


@pytest.mark.parametrize("size", [1e5, 1e15])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_one_gross_outlier_spoils_nothing(size, dtype):
    rows = X.astype(dtype)
    expected = classifier().fit(rows, targets(X) > 0.0).score(X_NEW.astype(dtype), targets(X_NEW) > 0.0)
    rows[0, 0] = size
    model = classifier().fit(rows, targets(X) > 0.0)
    assert model.score(X_NEW.astype(dtype), targets(X_NEW) > 0.0) > expected - 0.03
    assert np.isfinite(model.predict_proba(rows)).all()
    assert np.isfinite(model.transform(rows)).all()
    found = regressor().fit(rows, targets(X))
    assert found.score(X_NEW.astype(dtype), targets(X_NEW)) > 0.7
    assert np.isfinite(found.partial_fit(rows * dtype(1e3), targets(X)).predict(rows)).all()


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize(("dtype", "size", "gamma"), [(np.float32, 1e38, "median"), (np.float64, 1e60, 1e180)])
@pytest.mark.parametrize("make", [classifier, regressor], ids=["classifier", "regressor"])
def test_one_huge_column_and_gammas_off_by_orders(make, dtype, size, gamma):
    rows = X.clip(-3.0, 3.0).astype(dtype) * np.array([1.0, size / 4.0, 1.0, 1.0, 1.0], dtype)
    rows[5, 0] = np.nan
    for given in (gamma, 1e-200):
        model = make(gamma=given).partial_fit(rows[:150], X[:150, 0] > 0.0, **KNOWN[make])
        model.partial_fit(rows[150:], X[150:, 0] > 0.0)
        for method in ("predict", "transform"):
            assert np.isfinite(getattr(model, method)(rows)).all()
    if dtype == np.float64:
        with pytest.raises(ValueError, match="float64"):
            model.predict(X.astype(np.float32))


def test_missing_values_of_float32_far_off():
    rows = (RNG.standard_normal((20_000, 3)) * 3.0 + 1e6).astype(np.float32)
    rows[RNG.random(rows.shape) < 0.1] = np.nan
    model = classifier(n_kernel_vectors=10).fit(rows, np.nan_to_num(rows[:, 0]) > 1e6)
    np.testing.assert_allclose(model.feature_means_, np.nanmean(rows.astype(np.float64), axis=0), atol=0.1)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_far_cluster_is_told_apart(dtype):
    rows, y = np.r_[X, X[:25] + 1e9].astype(dtype), np.repeat([0, 1], [300, 25])
    assert classifier().fit(rows, y).score(rows, y) == 1.0
    assert classifier().fit(np.c_[rows[:25], np.full(25, 1e30)], rows[:25, 0] > 0.0).gamma_ > 0.01
    assert regressor().fit(rows, y).score(rows, y) > 0.8


def test_sparse_float32_signals_of_some_weights_may_leave_its_range():
    rows, weights = sparse.csr_array((X * 1e20).astype(np.float32)), np.arange(300) % 2
    assert classifier().fit(rows, X[:, 0] > 0.0, sample_weight=weights).score(rows, X[:, 0] > 0.0) > 0.9


@pytest.mark.parametrize("make", [classifier, regressor])
def test_missing_and_infinite_values_later_in_a_stream(make):
    """They made all that was learned NaN."""
    y, classes = (targets(X) > 0.0).astype(int), [[0, 1]] if make is classifier else []
    rows = np.where(X > 1.5, np.nan, X)
    rows[:, 4] = np.nan
    model = make().partial_fit(X + 5.0, y, *classes).partial_fit(rows + 5.0, y)
    expected = model.predict(X + 5.0)
    assert np.mean(expected.round() == y) > 0.8
    with pytest.raises(ValueError, match="infinity"):
        model.partial_fit(np.where(X > 1.5, np.inf, X), y)
    np.testing.assert_array_equal(model.predict(X + 5.0), expected)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_missing_values_where_kernel_vectors_are_far_off(dtype):
    """Two factors were multiplied of which one was zero and the other infinite."""
    rows = np.r_[X, X[:100] + 1e3 * np.eye(5)[0]].astype(dtype)
    model = classifier(gamma=1.0).fit(rows, np.repeat([0, 1], [300, 100]))
    rows[::2, 0] = np.nan
    assert np.isfinite(model.predict_proba(rows)).all()
    assert np.isfinite(regressor(gamma=1.0).fit(rows, rows[:, 1]).predict(rows)).all()


def test_numbers_that_leave_the_range_are_an_error():
    with pytest.raises(ValueError, match=r"leaves? the range of float32"):
        classifier().fit((X * 1e-40).astype(np.float32), targets(X) > 0.0)
    with pytest.raises(ValueError, match=r"leaves? the range of float32"):
        regressor().fit(X.astype(np.float32), targets(X) * 1e40)
    for scale in (1e-300, 1e160, 1e300):
        with pytest.raises(ValueError, match="scale y"):
            regressor().fit(X, targets(X) * scale)
    constant = regressor().fit(X, np.full(300, 2.5))
    np.testing.assert_allclose(constant.predict(X), 2.5)


@pytest.mark.parametrize("make", [classifier, regressor])
@pytest.mark.parametrize("begins", ["fit", "partial_fit", "load"])
def test_sizes_of_a_stream_stay(make, begins, tmp_path):
    """Broadcast errors, or a setting that a stream ignored and a loaded model did not."""
    model, y = make(), (targets(X) > 0.0).astype(int)
    first = {"classes": [0, 1]} if make is classifier and begins == "partial_fit" else {}
    getattr(model, "partial_fit" if begins == "partial_fit" else "fit")(X, y, **first)
    if begins == "load":
        model.save(tmp_path / "model")
        model = load(tmp_path / "model")
    expected = model.predict(X)
    changes = {"n_kernel_vectors": 3, "gamma": 5.0}
    if make is classifier:
        changes |= {"n_components": 3, "n_nonzero_coefs": 1}
    for name, value in changes.items():
        before = getattr(model, name)
        with pytest.raises(ValueError, match=f"{name}={value} was {before!r} when this KDL"):
            model.set_params(**{name: value}).partial_fit(X, y)
        np.testing.assert_array_equal(model.predict(X), expected)
        model.set_params(**{name: before})
    model.set_params(n_jobs=2).partial_fit(X, y)


def test_classes_of_a_stream_stay():
    y = (targets(X) > 0.0).astype(int)
    model = classifier().partial_fit(X, y, classes=[1, 0])
    assert model.partial_fit(X, y, classes=[0, 1]).classes_.tolist() == [0, 1]
    with pytest.raises(ValueError, match="not the same as on last call"):
        model.partial_fit(X, y, classes=[0, 1, 2])
    # A fit finds classes of its own.
    assert model.fit(X, y + 5).classes_.tolist() == [5, 6]


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
@pytest.mark.parametrize("make", [classifier, regressor])
def test_a_stream_that_changes_its_device(make):
    y = (targets(X) > 0.0).astype(int)
    model = make().partial_fit(X, y, *([[0, 1]] if make is classifier else []))
    for device in ("cpu", None, "cpu"):
        model.set_params(device=device).partial_fit(X, y)
        assert np.isfinite(model.transform(X)).all()


@pytest.mark.parametrize("far", [np.float64(1e66), np.float64(1e300), np.float32(3e38)])
def test_signals_far_off_have_predictions(far):
    model, rows = classifier().fit(X, targets(X) > 0.0), np.full((2, 5), far)
    rows[1, 2:] = np.nan, 0.0, -far
    for method in (model.predict_proba, model.class_residuals, model.transform, regressor().fit(X, X[:, 0]).predict):
        found = method(rows)
        assert np.isfinite(found).all()
        assert found.dtype == far.dtype


@pytest.mark.parametrize("make", [classifier, regressor])
@pytest.mark.parametrize("restore", [lambda model, path: pickle.loads(pickle.dumps(model)), saved_and_loaded])
def test_what_is_fitted_is_read_only_or_takes_effect(make, restore, tmp_path):
    model = restore(make().fit(X, targets(X) > 0.0), tmp_path / "model")
    for name in model._parts:
        value = vars(model).get(name)
        if isinstance(value, np.ndarray):
            with pytest.raises(ValueError, match="read-only"):
                value[...] = 0.0
            before = model.predict(X)
            setattr(model, name, value * 1.5)
            np.testing.assert_array_equal(model.predict(X), pickle.loads(pickle.dumps(model)).predict(X))
            setattr(model, name, value)
            np.testing.assert_array_equal(model.predict(X), before)


@pytest.mark.parametrize("weight", [1e307, 1e20, 1e-30, 1e-310])
def test_weights_whose_sums_leave_the_range(weight):
    weights = np.full(300, weight)
    for model in (DL(4), RKDL(4, n_kernel_vectors=10)):
        for method in (model.fit, model.partial_fit):
            with pytest.raises(ValueError, match="weights of the signals sum up to"):
                method(X, sample_weight=weights)
    for model in (classifier(), regressor()):
        with pytest.raises(ValueError, match="weights of the signals sum up to"):
            model.fit(X, targets(X) > 0.0, sample_weight=weights)


@pytest.mark.parametrize("model", [DL(4), classifier(), regressor()])
def test_masked_weights_are_refused(model):
    with pytest.raises(ValueError, match="sample_weight is a masked array, and 5 of its 300 entries"):
        model.fit(X, X[:, 0] > 0.0, sample_weight=np.ma.masked_array(np.ones(300), np.arange(300) < 5))


@pytest.mark.parametrize(
    ("weight", "words"), [(np.nan, "NaN"), (np.inf, "infinity"), (-1.0, "Negative"), (0.0, "at least one non-zero")]
)
def test_class_weights_are_checked_as_weights_are(weight, words):
    with pytest.raises(ValueError, match=words):
        classifier(class_weight={False: weight, True: weight}).fit(X, targets(X) > 0.0)


@pytest.mark.parametrize("labels", [["a", "b"], [3, 4]])
def test_class_weights_are_saved(labels, tmp_path):
    model = classifier(class_weight={labels[0]: 2.0, np.array(labels)[1]: 1}).fit(X, np.where(X[:, 0] > 0, *labels))
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert again.class_weight == {labels[0]: 2.0, labels[1]: 1}
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    with pytest.raises(ValueError, match="contains Python objects"):
        model.set_params(class_weight={("a",): 1.0}).save(tmp_path / "model")
