"""Every estimator keeps scikit-learn's manners: its checks, pipelines, searches, outputs, dtypes and kernels."""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.gaussian_process import kernels as gaussian_process
from sklearn.linear_model import LogisticRegression
from sklearn.metrics.pairwise import linear_kernel, pairwise_kernels, polynomial_kernel, rbf_kernel
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import helpers
from helpers import CLASSES, REDUCED, by_class, cover, poor_models
from rkdl import DL, KDL, MORKDL, ORKDL, RKDL, FourierDL

pytestmark = poor_models

SIZES = {"n_components": 3, "n_nonzero_coefs": 2, "n_kernel_vectors": 4, "n_fourier_features": 16, "max_iter": 3}
make = partial(helpers.make, tol=1e-4, **SIZES)
every = by_class(CLASSES)


@pytest.fixture(scope="module")
def X():
    return np.random.default_rng(0).standard_normal((40, 6))


@pytest.fixture(scope="module")
def X_new():
    return np.random.default_rng(1).standard_normal((15, 6))


def expected_failures(estimator):
    kinds, weights = ("dense", "sparse"), "sample_weight"
    found = {f"check_{weights}_equivalence_on_{kind}_data": "the start depends on the number of rows" for kind in kinds}
    if estimator.atom_update == "aksvd":
        forms = ("pandas_series", "not_an_array", "list", "shape", "not_overwritten")
        found |= {f"check_{weights}s_{form}": "AK-SVD refuses weights" for form in forms}
    if getattr(estimator, "kernel", None) != "precomputed":
        return found
    return found | {
        "check_positive_only_tag_during_fit": "it takes the mean from a kernel matrix, which is indefinite then",
        "check_estimators_dtypes": "it rounds a kernel matrix to integers, which is indefinite then",
    }


@parametrize_with_checks([make(kind) for kind in CLASSES], expected_failed_checks=expected_failures)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.slow
@parametrize_with_checks(
    [
        make(KDL, kernel="precomputed"),
        make(RKDL, kernel_vectors="kmeans", sparse_output=True),
        make(MORKDL, solver="gd", kernel_vectors="dictionary", atom_update="aksvd", fit_inverse_transform=True),
    ],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_checks_with_other_settings(estimator, check):
    check(estimator)


@every
def test_search_in_a_pipeline_survives_more_nonzeros_than_atoms(kind, X):
    search = GridSearchCV(
        Pipeline([("scale", StandardScaler()), ("codes", make(kind))]),
        {"codes__n_nonzero_coefs": [1, 2, 9]},
        cv=2,
        error_score="raise",
    )
    with pytest.warns(UserWarning, match=r"n_nonzero_coefs=9 exceeds the number of atoms, 3: 3 is used"):
        search.fit(X)
    scores = search.cv_results_["mean_test_score"]
    assert np.isfinite(scores).all()
    assert scores.min() > -1.0
    assert scores.max() <= 1.0
    assert search.best_params_["codes__n_nonzero_coefs"] > 1


@every
def test_codes_feed_a_classifier(kind, X):
    labels = (X[:, 0] > 0).astype(int)
    model = make_pipeline(make(kind, n_components=6), LogisticRegression(C=100.0)).fit(X, labels)
    assert model.score(X, labels) > 0.6
    assert model[:-1].get_feature_names_out().tolist() == [f"{kind.__name__.lower()}{i}" for i in range(6)]


def test_a_precomputed_kernel_is_split_by_cross_validation(X):
    labels = (X[:, 0] > 0).astype(int)
    named = make_pipeline(make(KDL, gamma=0.1), LogisticRegression())
    given = make_pipeline(make(KDL, kernel="precomputed"), LogisticRegression())
    expected = cross_val_score(named, X, labels, cv=3, error_score="raise")
    found = cross_val_score(given, rbf_kernel(X, gamma=0.1), labels, cv=3, error_score="raise")
    np.testing.assert_allclose(found, expected)


@every
def test_pandas_output(kind, X):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcdef"), index=np.arange(100, 140))
    model = make(kind).set_output(transform="pandas").fit(frame)
    codes = model.transform(frame)
    assert isinstance(codes, pandas.DataFrame)
    assert codes.columns.tolist() == model.get_feature_names_out().tolist()
    assert codes.index.tolist() == frame.index.tolist()
    assert model.feature_names_in_.tolist() == list("abcdef")
    np.testing.assert_allclose(codes.to_numpy(), make(kind).fit(X).transform(X), atol=1e-12)
    with pytest.raises(ValueError, match="feature names"):
        model.transform(frame[list("fedcba")])


@cover("dtype", CLASSES, [np.float32, np.float64], base=[DL])
def test_sparse_output_is_the_same_codes_as_csr(kind, dtype, X, X_new):
    model = make(kind, sparse_output=True).fit(X.astype(dtype))
    codes = model.transform(X_new.astype(dtype))
    assert sparse.issparse(codes)
    assert codes.format == "csr"
    assert codes.dtype == dtype
    assert codes.has_sorted_indices
    assert np.diff(codes.indptr).max() <= 2
    np.testing.assert_array_equal(codes.toarray(), model.set_params(sparse_output=False).transform(X_new.astype(dtype)))


@cover("sparse_output", CLASSES, [False, True], base=[RKDL])
def test_fit_transform_is_fit_then_transform(kind, sparse_output, X):
    at_once = make(kind, sparse_output=sparse_output).fit_transform(X)
    in_turn = make(kind, sparse_output=sparse_output).fit(X).transform(X)
    assert type(at_once) is type(in_turn)
    np.testing.assert_array_equal(*(c.toarray() if sparse_output else c for c in (at_once, in_turn)))


@pytest.mark.parametrize("make_sparse", [False, True])
def test_inverse_transform(make_sparse, X, X_new):
    model = make(DL, n_components=12, n_nonzero_coefs=6).fit(X)
    codes = model.set_params(sparse_output=make_sparse).transform(X_new)
    signals = model.inverse_transform(codes)
    assert isinstance(signals, np.ndarray)
    np.testing.assert_allclose(signals, codes @ model.components_, atol=1e-12)
    # Six atoms of general position span the six features.
    np.testing.assert_allclose(signals, X_new, atol=1e-8)
    np.testing.assert_allclose(
        model.set_params(n_nonzero_coefs=2).reconstruction_error(X_new),
        np.linalg.norm(X_new - model.inverse_transform(model.transform(X_new)), axis=1),
        atol=1e-10,
    )


def test_inverse_transform_refuses_codes_of_another_dictionary(X):
    model = make(DL).fit(X)
    with pytest.raises(ValueError, match=r"5 columns and the dictionary 3 atoms"):
        model.inverse_transform(np.zeros((2, 5)))


@every
def test_score_rises_with_the_atoms(kind, X):
    size = {"n_kernel_vectors": 30} if kind in REDUCED else {}
    size |= {} if kind is DL else {"fit_inverse_transform": True}
    scores = [make(kind, n_components=n, n_nonzero_coefs=1, max_iter=10, **size).fit(X).score(X) for n in (1, 4, 16)]
    assert scores[0] < scores[1] < scores[2] <= 1.0


@every
def test_score_is_the_share_of_energy(kind, X, X_new):
    model = make(kind, **({} if kind is DL else {"fit_inverse_transform": True})).fit(X)
    expected = 1.0 - np.sum((X_new - model.denoise(X_new)) ** 2) / np.sum(X_new**2)
    assert model.score(X_new) == pytest.approx(expected, rel=1e-10)


def test_a_search_over_gamma_does_not_choose_the_smallest():
    signals = load_digits().data[:600] / 16.0
    gammas = np.array([1e-4, 1e-2, 1.0]) * ORKDL(max_iter=1).fit(signals).gamma_
    model = ORKDL(n_components=20, max_iter=5, fit_inverse_transform=True, random_state=0)
    assert GridSearchCV(model, {"gamma": gammas}, cv=3).fit(signals).best_params_["gamma"] > gammas[0]
    with pytest.warns(UserWarning, match="set fit_inverse_transform=True"):
        FourierDL(max_iter=1).fit(signals).score(signals)


# Inner products of the atoms and error figures are a few numbers of float64, whatever the signals are.
ALWAYS_DOUBLE = {"gram_", "errors_", "update_errors_"}


@cover("n_jobs dtype", CLASSES, [(2, np.float32), (1, np.float64)], base=[DL])
def test_dtype_is_kept(kind, n_jobs, dtype, X, X_new):
    model = make(kind, n_jobs=n_jobs).fit(X.astype(dtype))
    assert model.transform(X_new.astype(dtype)).dtype == dtype
    assert model.reconstruction_error(X_new.astype(dtype)).dtype == dtype
    found = {
        name: value.dtype
        for name, value in vars(model).items()
        if isinstance(value, np.ndarray) and name not in ALWAYS_DOUBLE
    }
    assert found
    assert found == dict.fromkeys(found, np.dtype(dtype))


@every
def test_float32_agrees_with_float64(kind, X, X_new):
    single, double = (make(kind).fit(X.astype(dtype)) for dtype in (np.float32, np.float64))
    np.testing.assert_allclose(
        single.reconstruction_error(X_new.astype(np.float32)), double.reconstruction_error(X_new), rtol=1e-3, atol=1e-3
    )
    np.testing.assert_allclose(single.errors_, double.errors_, rtol=1e-3)


@cover("dtype", CLASSES, [np.int64, np.uint8, np.bool_, np.float16], base=[DL])
def test_other_numbers_are_taken_as_float64(kind, dtype, X):
    numbers = (np.abs(X) * 3).astype(dtype)
    model = make(kind).fit(numbers)
    expected = make(kind).fit(numbers.astype(np.float64))
    codes = model.transform(numbers)
    assert codes.dtype == np.float64
    np.testing.assert_array_equal(codes, expected.transform(numbers.astype(np.float64)))


@every
def test_lists_are_taken(kind, X):
    np.testing.assert_array_equal(make(kind).fit(X.tolist()).transform(X.tolist()), make(kind).fit(X).transform(X))


@every
def test_fit_has_no_side_effects(kind, X):
    before, random = X.copy(), np.random.get_state()[1].copy()
    model = make(kind)
    parameters = model.get_params()
    model.fit(X).transform(X)
    np.testing.assert_array_equal(X, before)
    np.testing.assert_array_equal(np.random.get_state()[1], random)
    assert model.get_params() == parameters


@every
def test_the_model_does_not_change_with_the_users_array(kind, X, X_new):
    array = X.copy()
    model = make(kind).fit(array)
    before = model.transform(X_new)
    array[:] = 0.0
    np.testing.assert_array_equal(model.transform(X_new), before)


GAMMA, DEGREE, COEF0 = 0.1, 3, 0.5
NAMED = {
    "rbf": lambda X, Y: rbf_kernel(X, Y, gamma=GAMMA),
    "poly": lambda X, Y: polynomial_kernel(X, Y, gamma=GAMMA, degree=DEGREE, coef0=COEF0),
    "linear": linear_kernel,
}
OF_ROWS = {"poly": lambda X, Y: pairwise_kernels(X, Y, metric=lambda x, y: (GAMMA * np.dot(x, y) + COEF0) ** DEGREE)}
OBJECTS = {
    "rbf": gaussian_process.RBF(length_scale=1.0 / np.sqrt(2.0 * GAMMA)),
    "poly": (GAMMA * gaussian_process.DotProduct(sigma_0=np.sqrt(COEF0 / GAMMA))) ** DEGREE,
    "linear": gaussian_process.DotProduct(sigma_0=0.0),
}
KERNEL = {"gamma": GAMMA, "degree": DEGREE, "coef0": COEF0}


def assert_same_model(found, expected, X_new):
    np.testing.assert_allclose(found.transform(X_new), expected.transform(X_new), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(
        found.reconstruction_error(X_new), expected.reconstruction_error(X_new), rtol=1e-6, atol=1e-6
    )
    np.testing.assert_allclose(found.errors_, expected.errors_, rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "name", "kernels"),
    [*((kind, "poly", kernels) for kind in (KDL, RKDL) for kernels in (NAMED, OF_ROWS, OBJECTS)), (RKDL, "rbf", NAMED)],
)
def test_a_callable_kernel_is_the_named_one(kind, name, kernels, X, X_new):
    if name == "poly" and kernels is OBJECTS:
        # DotProduct is sigma_0^2 + x'y, so gamma stands before the bracket.
        assert np.allclose(OBJECTS["poly"](X, X_new), NAMED["poly"](X, X_new))
    # k-means goes by the distances of a named kernel's feature space.
    vectors = {} if kind is KDL else {"kernel_vectors": "random"}
    expected = make(kind, kernel=name, **KERNEL, **vectors).fit(X)
    assert_same_model(make(kind, kernel=kernels[name], **vectors).fit(X), expected, X_new)


@pytest.mark.parametrize(("name", "dtype"), [*((name, np.float64) for name in NAMED), ("poly", np.float32)])
def test_a_precomputed_kernel_is_the_named_one(name, dtype, X, X_new):
    X, X_new = X.astype(dtype), X_new.astype(dtype)
    named = make(KDL, kernel=name, **KERNEL).fit(X)
    given = make(KDL, kernel="precomputed").fit(NAMED[name](X, X))
    tolerance = 1e-8 if dtype == np.float64 else 1e-3
    np.testing.assert_allclose(given.dual_components_, named.dual_components_, rtol=tolerance, atol=tolerance)
    codes = given.transform(NAMED[name](X_new, X))
    assert codes.dtype == dtype
    np.testing.assert_allclose(codes, named.transform(X_new), rtol=tolerance, atol=tolerance)
    # The error is per feature, and a precomputed kernel has as many as signals.
    np.testing.assert_allclose(
        given.errors_ * np.sqrt(len(X)), named.errors_ * np.sqrt(X.shape[1]), rtol=max(tolerance, 1e-6)
    )


@pytest.mark.parametrize("kind", [KDL, *REDUCED])
def test_gamma_median_is_one_over_the_median_squared_distance(kind, X):
    squares = np.sum((X[:, None] - X) ** 2, axis=2)[np.triu_indices(len(X), k=1)]
    assert make(kind).fit(X).gamma_ == pytest.approx(1.0 / np.median(squares), rel=1e-10)


def test_fourier_features_approximate_the_rbf_kernel(X):
    model = make(FourierDL, n_fourier_features=20_000, gamma=GAMMA, max_iter=1).fit(X)
    assert model.gamma_ == GAMMA
    phases = X @ model.frequencies_.T
    waves = np.hstack([np.cos(phases), np.sin(phases)]) / np.sqrt(len(model.frequencies_))
    # Ten thousand frequencies: a standard error of about 0.007.
    np.testing.assert_allclose(waves @ waves.T, NAMED["rbf"](X, X), atol=0.04)


def test_fourier_dictionary_approaches_the_kernel_one(X):
    """With atoms started at the same signals, learning on many features is KDL."""
    start = np.eye(4, len(X))
    full = KDL(4, n_nonzero_coefs=2, gamma=GAMMA, init=start, max_iter=3, tol=0.0).fit(X)
    probe = FourierDL(4, n_fourier_features=20_000, gamma=GAMMA, max_iter=1, random_state=0, n_nonzero_coefs=1).fit(X)
    phases = X @ probe.frequencies_.T
    waves = np.hstack([np.cos(phases), np.sin(phases)]) / np.sqrt(len(probe.frequencies_))
    fourier = FourierDL(
        4,
        n_fourier_features=20_000,
        gamma=GAMMA,
        n_nonzero_coefs=2,
        init=waves[:4],
        max_iter=3,
        tol=0.0,
        random_state=0,
    ).fit(X)
    np.testing.assert_allclose(fourier.errors_, full.errors_, rtol=0.03)


@every
def test_good_input_gives_no_warning(kind, X):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(kind).fit(X).transform(X)
