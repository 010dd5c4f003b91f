"""BLAS runs with one thread wherever the library computes."""

import sys
import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from rkdl import (
    DL,
    KDL,
    MORKDL,
    RKDL,
    FourierDL,
    KDLClassifier,
    KDLOutlierDetector,
    SparseCoder,
    sparse_encode,
    sparse_encode_gram,
)
from rkdl._execution import blas

SMALL = {"n_components": 5, "n_nonzero_coefs": 2, "max_iter": 2, "random_state": 0, "n_jobs": 2}
FEW = {**SMALL, "n_kernel_vectors": 8}
MODELS = {
    "DL": DL(**SMALL),
    "FourierDL": FourierDL(n_fourier_features=16, gamma="scale", **SMALL),
    "KDL": KDL(**SMALL, fit_inverse_transform=True),
    "RKDL": RKDL(**FEW, kernel_vectors="rpcholesky"),
    "RKDL-dictionary": RKDL(**FEW, kernel="poly", kernel_vectors="dictionary", init="data"),
    "MORKDL": MORKDL(**FEW),
    "KDLClassifier": KDLClassifier(random_state=0),
    "KDLOutlierDetector": KDLOutlierDetector(n_members=2, max_iter=2, random_state=0),
    "SparseCoder": SparseCoder(n_nonzero_coefs=2),
}
METHODS = ("fit", "partial_fit", "transform", "score", "reconstruction_error", "fit_decoder", "denoise", "predict")
METHODS += ("predict_proba", "decision_function", "score_samples", "fit_predict")

# Where the library computes; what is around that, such as the checks of a fit that fails, changes nothing.
PLACES = ("rkdl._backends.cpu.", "rkdl._backends.torch.", "rkdl._coding.passes", "rkdl._learning.loop")


@pytest.fixture
def X():
    return np.random.default_rng(0).standard_normal((400, 6)).astype(np.float32)


def counted(function, *arguments, **options):
    """Functions of the library that were entered, here or in its threads, while BLAS might use several threads."""
    found, entered = set(), set()

    def profile(frame, event, argument):
        name = frame.f_globals.get("__name__", "")
        if event != "call" or not name.startswith(PLACES):
            return
        entered.add(name)
        if max(filter(None, blas._allowed_threads())) > 1:
            found.add(f"{name}.{frame.f_code.co_name}")

    with threadpool_limits(2, user_api="blas"):
        threading.setprofile(profile)
        sys.setprofile(profile)
        try:
            function(*arguments, **options)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
        assert max(filter(None, blas._allowed_threads())) == 2
    assert entered
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MODELS)
def test_one_thread_in_every_public_method(name, X):
    """A fork during a product of several threads, by another thread of the program, hangs OpenBLAS."""
    model, y = MODELS[name], np.arange(len(X)) % 2
    for method in METHODS:
        if hasattr(model, method):
            given = (
                (X, y) if method in ("fit", "score") or (name == "KDLClassifier" and method == "partial_fit") else (X,)
            )
            found = counted(getattr(model, method), *given)
            assert not found, (method, sorted(found))
    if hasattr(model, "inverse_transform"):
        assert not counted(model.inverse_transform, model.transform(X))


def test_one_thread_in_functions(X):
    atoms = np.random.default_rng(1).standard_normal((9, 6))
    assert not counted(sparse_encode, X, atoms, n_nonzero_coefs=3)
    assert not counted(sparse_encode_gram, atoms @ atoms.T, X @ atoms.T, n_nonzero_coefs=3)
