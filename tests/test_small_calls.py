"""Calls with a few signals: what depends on the model alone is computed once, nothing else differs."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from sklearn.base import clone

from helpers import CLASSES, make, poor_models
from rkdl import DL, RKDL, KDLClassifier, KDLOutlierDetector, SparseCoder

pytestmark = poor_models

MODELS = {
    **{kind.__name__: make(kind) for kind in CLASSES},
    "RKDL-tolerance": make(RKDL, residual_tol=0.1, n_nonzero_coefs=None),
    "RKDL-callable": make(RKDL, kernel=lambda X, Y: (1.0 + X @ Y.T) ** 2),
    "SparseCoder": SparseCoder(n_nonzero_coefs=3),
    "KDLClassifier": KDLClassifier(random_state=0),
    "KDLOutlierDetector": KDLOutlierDetector(n_members=3, random_state=0),
}
METHODS = ("transform", "reconstruction_error", "predict", "predict_proba", "decision_function", "score_samples")
every = pytest.mark.parametrize("name", MODELS)


@pytest.fixture(scope="module")
def X():
    return np.random.default_rng(0).standard_normal((60, 6))


@pytest.fixture(scope="module")
def fitted(X):
    return {name: clone(model).fit(X, np.arange(len(X)) % 3) for name, model in MODELS.items()}


def results(model, X):
    """Everything that a model says of signals."""
    return {method: getattr(model, method)(X) for method in METHODS if hasattr(model, method)}


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    assert found
    for method, value in found.items():
        np.testing.assert_array_equal(value, expected[method], err_msg=method)


@every
@pytest.mark.parametrize("count", [1, 5])
def test_plain_arrays_give_what_other_input_gives(name, count, fitted, X):
    """Lists go through all of scikit-learn's checks; the bits are the same."""
    model = fitted[name]
    assert_same(results(model, X[:count]), results(model, X[:count].tolist()))
    read_only = X[:count].astype(np.float32)
    read_only.flags.writeable = False
    assert_same(results(model, X[:count].astype(np.float32)), results(model, read_only))


def refusal(model, method, given):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        getattr(model, method)(given)
    return str(caught.value)


@every
def test_plain_arrays_are_refused_like_other_input(name, fitted, X):
    model = fitted[name]
    for method in results(model, X[:1]):
        for bad in (np.full((1, 6), np.nan), np.full((1, 6), np.inf), X[:1, :4], X[0], X[:0], X[None]):
            if name == "KDLClassifier" and np.isnan(bad).any():
                # It takes what is missing.
                continue
            assert refusal(model, method, bad) == refusal(model, method, bad.tolist() if bad.size else bad.astype(int))


def copy_of(model):
    """The same model with nothing prepared."""
    return pickle.loads(pickle.dumps(model))


@pytest.mark.parametrize("name", [name for name in MODELS if name != "RKDL-callable"])
def test_what_is_prepared_stays_outside_the_model(name, fitted, X):
    model = clone(fitted[name]).fit(X, np.arange(len(X)) % 3)
    before, attributes = pickle.dumps(model), dict(vars(model))
    assert_same(results(model, X[:1]), results(copy_of(model), X[:1]))
    assert pickle.dumps(model) == before
    assert vars(model) == attributes


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_changes_of_the_model_are_seen(kind, X):
    model = make(kind).fit(X)
    model.transform(X[:1])
    atoms = "components_" if hasattr(model, "components_") else "dual_components_"
    changes = [
        lambda: model.set_params(n_nonzero_coefs=1),
        lambda: model.set_params(n_nonzero_coefs=None, residual_tol=0.2),
        lambda: model.set_params(pursuit="omp", sparse_output=True),
        lambda: setattr(model, atoms, getattr(model, atoms)[::-1].copy()),
        lambda: model.set_params(random_state=1, sparse_output=False).fit(X[:40]),
        lambda: model.partial_fit(X[20:]) if hasattr(model, "partial_fit") else None,
    ]
    for change in changes:
        change()
        found, expected = model.transform(X[:2]), copy_of(model).transform(X[:2])
        if model.sparse_output:
            found, expected = found.toarray(), expected.toarray()
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_changes_in_place_are_refused(kind, X):
    """They would go unnoticed; the parameters are the user's own arrays, which stay as they are."""
    model = make(kind).fit(X)
    model.transform(X[:1])
    atoms = "components_" if hasattr(model, "components_") else "dual_components_"
    with pytest.raises(ValueError, match="read-only"):
        getattr(model, atoms)[...] = 0
    own = X.copy()
    coder = SparseCoder(own).fit()
    coder.transform(X[:1])
    own[0] = 0.0
    assert coder.components_[0].any()


def test_more_nonzeros_than_atoms_are_mentioned_at_every_call(X):
    model = make(DL).fit(X).set_params(n_nonzero_coefs=9)
    for _ in range(2):
        with pytest.warns(UserWarning, match="n_nonzero_coefs=9 exceeds the number of atoms, 8: 8 is used"):
            model.transform(X[:1])
