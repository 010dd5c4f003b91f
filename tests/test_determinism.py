"""Results are bitwise identical whatever the threads, forks, copies and memory layouts; inputs are left unchanged."""

from __future__ import annotations

import io
import itertools
import multiprocessing
import os
import pickle
from concurrent.futures import ThreadPoolExecutor

import joblib
import numpy as np
import pytest
import skops.io
from scipy import sparse
from sklearn.base import clone
from threadpoolctl import threadpool_info

from helpers import PATIENCE, Estimators, correlated_signals, fitted_bytes
from rkdl import DL, FourierDL, KDLOutlierDetector, config_context, sparse_encode, sparse_encode_gram

ESTIMATORS = Estimators(
    *(
        "DL-lasso",
        "DL-positive",
        "DL",
        "DL-aksvd-omp",
        "FourierDL",
        "KDL",
        "KDL-aksvd",
        "RKDL-poly",
        "RKDL-kmeans-aksvd",
        "RKDL-rpcholesky",
    ),
    *("ORKDL", "ORKDL-gd", "MORKDL-poly", "MORKDL-gd-tolerance"),
)
SIMPLE = ["DL", "FourierDL", "KDL", "RKDL-poly", "ORKDL", "MORKDL-gd-tolerance"]

each_estimator = ESTIMATORS.each()
one_of_each = pytest.mark.parametrize("name", SIMPLE)


@pytest.fixture(scope="module")
def X():
    """Signals enough for several chunks."""
    return correlated_signals(1500)


@pytest.fixture(scope="module")
def small(X):
    """Signals of one chunk, where threads are not the point."""
    return X[:200].copy()


def outcome(model, X):
    """Everything that an estimator makes of signals, as bytes."""
    model.fit(X)
    return {
        **fitted_bytes(model),
        "transform": model.transform(X).tobytes(),
        "reconstruction_error": model.reconstruction_error(X).tobytes(),
        "score": np.float64(model.score(X)).tobytes(),
    }


def differences(first, second):
    """Names of what differs."""
    assert first.keys() == second.keys()
    return [name for name in first if first[name] != second[name]]


@pytest.mark.parametrize("name", ["FourierDL", "RKDL-poly", "ORKDL", "MORKDL-gd-tolerance"])
def test_cached_features(X, name):
    """Features cached between passes are bitwise those that would be computed again."""
    cached = outcome(clone(ESTIMATORS[name]), X)
    with config_context(kept_bytes=0):
        assert differences(cached, outcome(clone(ESTIMATORS[name]), X)) == []


@pytest.mark.parametrize("kept_bytes", [-1, 1.5, "64"])
def test_kept_bytes_are_a_number(kept_bytes):
    with pytest.raises(ValueError, match=f"kept_bytes={kept_bytes!r} must be a number of bytes"):
        config_context(kept_bytes=kept_bytes).__enter__()


class TestThreads:
    @pytest.mark.parametrize(
        ("name", "dtype"),
        [(name, np.float64) for name in ESTIMATORS] + [(name, np.float32) for name in ("DL", "ORKDL")],
    )
    def test_n_jobs(self, X, name, dtype):
        X = X.astype(dtype)
        alone = outcome(clone(ESTIMATORS[name]).set_params(n_jobs=1), X)
        for n_jobs in (2, 5) if name in SIMPLE else (3,):
            assert differences(alone, outcome(clone(ESTIMATORS[name]).set_params(n_jobs=n_jobs), X)) == []

    @pytest.mark.parametrize("chunk_rows", [37, (400, 100)])
    def test_chunks_of_the_user(self, X, chunk_rows):
        """The dictionaries of a detector are learned from some of the signals, in whichever thread."""
        detector = KDLOutlierDetector(n_members=2, max_iter=3, random_state=0)
        with config_context(chunk_rows=chunk_rows):
            found = [clone(detector).set_params(n_jobs=n_jobs).fit(X[:500]).score_samples(X) for n_jobs in (1, 2)]
        assert found[0].tobytes() == found[1].tobytes()

    @pytest.mark.parametrize("sparse_output", [False, True])
    def test_functions(self, X, sparse_output):
        dictionary = np.random.default_rng(1).standard_normal((30, 20))
        gram, correlations = dictionary @ dictionary.T, X @ dictionary.T
        for function, inputs in ((sparse_encode, (X, dictionary)), (sparse_encode_gram, (gram, correlations))):
            codes = [
                function(*inputs, n_nonzero_coefs=4, n_jobs=n_jobs, sparse_output=sparse_output) for n_jobs in (1, 2, 5)
            ]
            if sparse_output:
                codes = [np.column_stack([part.data, part.indices]) for part in codes]
            assert codes[0].tobytes() == codes[1].tobytes() == codes[2].tobytes()

    @pytest.mark.slow
    def test_fits_at_the_same_time(self, X):
        """Four at once, of all kinds, each with threads of its own: none sees the others."""
        alone = {name: outcome(clone(model), X) for name, model in ESTIMATORS.items() if name in SIMPLE}
        jobs = [(name, n_jobs) for n_jobs in (1, 2) for name in alone]
        with ThreadPoolExecutor(4) as pool:
            together = list(pool.map(lambda job: outcome(clone(ESTIMATORS[job[0]]).set_params(n_jobs=job[1]), X), jobs))
        wrong = {job: differences(alone[job[0]], found) for job, found in zip(jobs, together, strict=True)}
        assert {job: names for job, names in wrong.items() if names} == {}

    def test_blas_is_given_back(self, small):
        """Whatever number of fits there were at the same time."""
        before = blas_threads()
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda name: clone(ESTIMATORS[name]).fit(small), SIMPLE))
        assert blas_threads() == before


def blas_threads():
    """Threads that each BLAS library of this process may use."""
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


def _fit_in_child(connection, name, X):
    connection.send(outcome(clone(ESTIMATORS[name]).set_params(n_jobs=2), X))
    connection.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("name", ["DL", "MORKDL-poly"])
def test_fork_after_a_fit(X, name):
    expected = outcome(clone(ESTIMATORS[name]).set_params(n_jobs=2), X)
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_fit_in_child, args=(sender, name, X))
    child.start()
    try:
        assert receiver.poll(PATIENCE), "the child hangs"
        assert differences(expected, receiver.recv()) == []
    finally:
        child.join(5)
        if child.is_alive():
            child.kill()
            child.join()
    assert child.exitcode == 0


def _pickled(model):
    return pickle.loads(pickle.dumps(model))


def _joblibbed(model):
    buffer = io.BytesIO()
    joblib.dump(model, buffer)
    buffer.seek(0)
    return joblib.load(buffer)


def _skopsed(model):
    data = skops.io.dumps(model)
    # Nothing but the estimator itself is to be trusted.
    assert skops.io.get_untrusted_types(data=data) == [f"{type(model).__module__}.{type(model).__name__}"]
    return skops.io.loads(data, trusted=skops.io.get_untrusted_types(data=data))


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    ("name", "copied"),
    [*itertools.product(SIMPLE, [_pickled, _skopsed]), ("RKDL-rpcholesky", _joblibbed)],
)
def test_round_trip(small, name, copied):
    model = clone(ESTIMATORS[name]).fit(small)
    copy = copied(model)
    assert differences(fitted_bytes(model), fitted_bytes(copy)) == []
    assert copy.get_params() == model.get_params()
    assert copy.transform(small).tobytes() == model.transform(small).tobytes()
    assert copy.reconstruction_error(small).tobytes() == model.reconstruction_error(small).tobytes()


@pytest.mark.usefixtures("one_thread")
@one_of_each
def test_random_state(small, name):
    first, again = (outcome(clone(ESTIMATORS[name]), small) for _ in range(2))
    assert differences(first, again) == []
    # A second fit of the same object starts anew.
    model = clone(ESTIMATORS[name]).fit(small[:150])
    assert differences(first, outcome(model, small)) == []
    other = outcome(clone(ESTIMATORS[name]).set_params(random_state=1), small)
    assert {"errors_", "transform"} <= set(differences(first, other))
    # An object's own generator moves on, so that two fits from it differ.
    generator = np.random.RandomState(0)
    model = clone(ESTIMATORS[name]).set_params(random_state=generator)
    errors = [model.fit(small).errors_.tobytes() for _ in range(2)]
    assert errors[0] == first["errors_"] != errors[1]


def _read_only(X):
    X = X.copy()
    X.setflags(write=False)
    return X


LAYOUTS = {
    "C": lambda X: X.copy(),
    "Fortran": np.asfortranarray,
    "read-only": _read_only,
    "rows strided": lambda X: np.repeat(X, 2, axis=0)[::2],
    "columns strided": lambda X: np.repeat(X, 3, axis=1)[:, ::3],
    "backwards": lambda X: X[::-1, ::-1].copy()[::-1, ::-1],
    "CSR": sparse.csr_array,
}


def memory(X):
    """The bytes behind an array, gaps of a strided one included."""
    if sparse.issparse(X):
        return X.data.tobytes() + X.indices.tobytes() + X.indptr.tobytes()
    while X.base is not None:
        X = X.base
    return X.tobytes(order="A")


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize(
    ("name", "layout"),
    [*itertools.product(["DL", "KDL", "ORKDL"], LAYOUTS), ("FourierDL", "Fortran"), ("FourierDL", "CSR")],
)
def test_input_is_left_as_it_was(small, name, layout):
    model = clone(ESTIMATORS[name]).fit(small)
    given = LAYOUTS[layout](small)
    before = memory(given)
    found = clone(ESTIMATORS[name]).fit(given)
    codes, errors = found.transform(given), found.reconstruction_error(given)
    assert memory(given) == before
    # And the layout does not show in the result, but for the roundings of products of another order.
    np.testing.assert_allclose(found.errors_, model.errors_, rtol=1e-10)
    np.testing.assert_allclose(codes, model.transform(small), rtol=0, atol=1e-8 * np.abs(codes).max())
    np.testing.assert_allclose(errors, model.reconstruction_error(small), rtol=0, atol=1e-7)


@pytest.mark.usefixtures("one_thread")
@one_of_each
def test_given_start_is_left_as_it_was(small, name):
    """Arrays given as first atoms and kernel vectors are read, not written; nor are the fitted ones by transform."""
    rng = np.random.default_rng(0)
    model = clone(ESTIMATORS[name])
    if "n_kernel_vectors" in model.get_params():
        model.set_params(kernel_vectors=_read_only(rng.standard_normal((12, 20))))
    attribute = "components_" if isinstance(model, DL | FourierDL) else "dual_components_"
    shape = getattr(clone(model).fit(small), attribute).shape
    model.set_params(init=_read_only(rng.standard_normal(shape)))
    given = {key: value.copy() for key, value in model.get_params().items() if isinstance(value, np.ndarray)}
    model.fit(small)
    after = fitted_bytes(model)
    model.transform(small)
    model.score(small)
    assert differences(after, fitted_bytes(model)) == []
    for key, value in given.items():
        np.testing.assert_array_equal(getattr(model, key), value)


@pytest.mark.usefixtures("one_thread")
@one_of_each
def test_misaligned_signals(small, name):
    """As they come from a cluster: products that do not use BLAS have other bits."""
    own = small.astype(np.float32)
    room = np.empty(own.nbytes + 1, dtype=np.uint8)
    moved = room[1:].view(np.float32).reshape(own.shape)
    moved[:] = own
    assert not moved.flags.aligned
    assert not differences(
        outcome(ESTIMATORS.copy_of(name).fit(moved), moved), outcome(ESTIMATORS.copy_of(name).fit(own), own)
    )


@pytest.mark.parametrize("function", [sparse_encode, sparse_encode_gram])
@pytest.mark.parametrize("layout", ["Fortran", "read-only", "columns strided"])
def test_functions_leave_their_input(small, function, layout):
    dictionary = np.random.default_rng(1).standard_normal((30, 20))
    inputs = (small, dictionary) if function is sparse_encode else (dictionary @ dictionary.T, small @ dictionary.T)
    given = [LAYOUTS[layout](part) for part in inputs]
    before = [memory(part) for part in given]
    codes = function(*given, n_nonzero_coefs=4)
    assert [memory(part) for part in given] == before
    np.testing.assert_allclose(codes, function(*inputs, n_nonzero_coefs=4), rtol=0, atol=1e-10)
