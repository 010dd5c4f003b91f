"""What is fitted depends on fitted attributes alone: parameters set afterwards wait for the next fit."""

from __future__ import annotations

import contextlib
import pickle
import threading
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

import rkdl
from helpers import poor_models
from rkdl import DL, KDL, MORKDL, ORKDL, RKDL, FourierDL, KDLClassifier, KDLOutlierDetector, KDLRegressor, SparseCoder

pytestmark = [poor_models, pytest.mark.usefixtures("one_thread")]

X = np.random.default_rng(0).standard_normal((60, 6))
Y = X[:, 0] > 0.0
SMALL = {"n_components": 8, "max_iter": 2, "random_state": 0}
ESTIMATORS = [
    DL(**SMALL),
    FourierDL(n_fourier_features=16, fit_inverse_transform=True, **SMALL),
    KDL(**SMALL),
    RKDL(n_kernel_vectors=10, **SMALL),
    ORKDL(n_kernel_vectors=10, **SMALL),
    MORKDL(n_kernel_vectors=10, kernel="poly", degree=2, fit_inverse_transform=True, **SMALL),
    SparseCoder(X[:10]),
    KDLClassifier(random_state=0),
    KDLRegressor(random_state=0),
    KDLOutlierDetector(n_members=2, random_state=0),
]
# Parameters that may be changed between two calls; they say how signals are coded and returned.
CODING = {
    "n_nonzero_coefs": [None, 1, 50],
    "residual_tol": [0.1, 0.0],
    "rtol": [0.5],
    "pursuit": ["omp", "lasso"],
    "alpha": [0.5],
    "l2": [0.1],
    "positive_code": [True],
    "missing": ["ignore"],
    "sparse_output": [True],
    "device": ["cpu"],
    "n_jobs": [2],
    "verbose": [0],
    "decoder_alpha": [0.1],
}
METHODS = (
    *("transform", "reconstruction_error", "score", "denoise", "predict", "predict_proba", "decision_function"),
    *("score_samples", "class_residuals"),
)
PARTS = {"components_", "dual_components_", "kernel_vectors_", "frequencies_", "gram_", "grams_", "decoder_"}
# Other values for parameters, valid or not.
OTHERS = {
    "n_components": [3, 40],
    "linear_n_nonzero_coefs": [1, 50, None],
    "kernel": ["linear", rkdl.kernels.Matern()],
    "dictionary": [X[:3], X[:30]],
}


def name_of(estimator):
    return type(estimator).__name__


def results(model):
    """What every method returns."""
    found = {}
    for method in METHODS:
        if hasattr(model, method):
            arguments = (X, Y) if method == "score" else (X,)
            found[method] = getattr(model, method)(*arguments)
    if hasattr(model, "inverse_transform"):
        found["inverse_transform"] = model.inverse_transform(np.eye(model.get_feature_names_out().size))
        found["atom_preimages"] = model.atom_preimages()
    return found


def assert_equal(first, second):
    assert first.keys() == second.keys()
    for method, value in first.items():
        for one, other in zip(np.atleast_1d(value), np.atleast_1d(second[method]), strict=True):
            np.testing.assert_array_equal(one, other, err_msg=method)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=name_of)
def test_parameters_wait_for_the_next_fit(estimator, tmp_path):
    model = clone(estimator).fit(X, Y)
    expected = results(model)
    for name, value in model.get_params(deep=False).items():
        if name in ("device", "sparse_output", "n_jobs", "verbose"):
            continue
        if name in CODING and not isinstance(model, KDLClassifier | KDLRegressor | KDLOutlierDetector):
            continue
        for other in OTHERS.get(name, [1, "other"]):
            model.set_params(**{name: other})
            for same in (model, pickle.loads(pickle.dumps(model))):
                assert_equal(results(same), expected)
            # A value that no estimator takes is not saved.
            with contextlib.suppress(ValueError):
                model.save(tmp_path / "model")
                assert_equal(results(rkdl.load(tmp_path / "model")), expected)
        model.set_params(**{name: value})


@pytest.mark.parametrize("estimator", ESTIMATORS[:7], ids=name_of)
def test_parameters_of_coding_take_effect_at_once(estimator):
    fitted = clone(estimator).fit(X)
    shape = fitted.transform(X).shape
    for name in CODING.keys() & estimator.get_params().keys():
        for value in CODING[name]:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                codes = fitted.set_params(**{name: value}).transform(X)
            assert codes.shape == shape
            dense = codes.toarray() if name == "sparse_output" else np.asarray(codes)
            assert np.isfinite(dense).all()
            if name == "n_nonzero_coefs" and value == 1:
                assert (np.count_nonzero(dense, axis=1) <= 1).all()
        fitted.set_params(**{name: estimator.get_params()[name]})


@pytest.mark.slow
@pytest.mark.parametrize("estimator", [ESTIMATORS[number] for number in (0, 3, -2, -1)], ids=name_of)
def test_refitting_while_others_use_the_model(estimator):
    """A result comes from one model: atoms, classes, threshold and dictionaries of the same fit."""
    first, second = clone(estimator).fit(X, Y), clone(estimator).fit(X[:40], np.arange(40) % 3)
    expected = [results(model) for model in (first, second)]
    model, is_done, wrong = clone(first).fit(X, Y), threading.Event(), []

    def read(method):
        arguments = (X, Y) if method == "score" else (X,)
        while not is_done.is_set():
            found = getattr(model, method)(*arguments)
            if not any(np.array_equal(found, known[method]) for known in expected):
                wrong.append(method)

    methods = expected[0].keys() - {"inverse_transform", "atom_preimages"}
    threads = [threading.Thread(target=read, args=(method,)) for method in methods]
    for thread in threads:
        thread.start()
    for _ in range(3):
        model.fit(X[:40], np.arange(40) % 3).fit(X, Y)
    is_done.set()
    for thread in threads:
        thread.join()
    assert not wrong


def test_what_cannot_be_loaded_is_not_saved(tmp_path):
    model = DL(tol=np.longdouble(0), **SMALL).fit(X)
    model.save(tmp_path / "model")
    assert rkdl.load(tmp_path / "model").tol == 0.0
    for call in (lambda model: model.save(tmp_path / "model"), lambda model: model.transform(X)):
        for name, value in (("n_nonzero_coefs", -1), ("positive_code", "no")):
            with pytest.raises(ValueError, match=name):
                call(clone(model).fit(X).set_params(**{name: value}))


def test_a_kernel_set_to_precomputed_waits_for_the_next_fit():
    model, given = KDL(**SMALL).fit(X), sparse.csr_array(X)
    expected, decoder = model.transform(given), clone(model).fit(X).fit_decoder(X).decoder_
    model.set_params(kernel="precomputed")
    np.testing.assert_array_equal(model.transform(given), expected)
    np.testing.assert_array_equal(model.fit_decoder(X).decoder_, decoder)
    model = KDL(kernel="precomputed", **SMALL).fit(X @ X.T).set_params(kernel="linear")
    with pytest.raises(ValueError, match="signals, which are not known"):
        model.fit_decoder(X @ X.T)


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=name_of)
def test_fitted_arrays_that_do_not_fit_together_are_an_error(estimator):
    """Compiled code read out of bounds where inner products of fewer atoms, or zeros, were set."""
    model = clone(estimator).fit(X, Y)
    method = getattr(model, "transform" if hasattr(model, "transform") else "score_samples")
    arrays = {name: value for name, value in vars(model).items() if name in PARTS and np.ndim(value) > 1}
    assert arrays
    for name, array in arrays.items():
        expected = method(X)
        setattr(model, name, array.astype(np.float32))
        np.testing.assert_allclose(method(X), expected, rtol=1e-3, atol=1e-3)
        shapes = array[..., :-1], array[:0], array.ravel()
        for part in (*shapes, array * np.nan, array.astype(complex), array.tolist(), np.ma.array(array)):
            setattr(model, name, part)
            with pytest.raises(ValueError, match="were changed and cannot be used"):
                model.partial_fit(X, Y) if isinstance(model, KDLRegressor) else method(X)
        setattr(model, name, array * 0.0)
        method(X)
        setattr(model, name, array)
