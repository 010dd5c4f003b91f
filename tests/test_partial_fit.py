"""Streams: an epoch of batches is an iteration of fit, sizes of batches do not matter, and the old is forgotten."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits

import rkdl
from rkdl import DL, KDL, MORKDL, ORKDL, RKDL, FourierDL, config_context

COMMON = {"n_components": 12, "n_nonzero_coefs": 3, "max_iter": 1, "tol": 0.0, "random_state": 0}
REDUCED = {**COMMON, "n_kernel_vectors": 15}
ESTIMATORS = {
    "DL": DL(**COMMON),
    "FourierDL": FourierDL(n_fourier_features=64, gamma=0.1, **COMMON),
    "RKDL": RKDL(**REDUCED),
    "RKDL-poly": RKDL(kernel="poly", degree=2, **REDUCED),
    "ORKDL": ORKDL(**REDUCED),
    "ORKDL-gd": ORKDL(solver="gd", **REDUCED),
    "MORKDL": MORKDL(**REDUCED),
    "MORKDL-gd": MORKDL(solver="gd", **REDUCED),
}
FIXED = ["DL", "FourierDL", "RKDL", "RKDL-poly"]
MOVED = [name for name in ESTIMATORS if name not in FIXED]

each_estimator = pytest.mark.parametrize("name", ESTIMATORS)


@pytest.fixture(scope="module")
def X():
    signals = load_digits().data
    return signals / np.linalg.norm(signals, axis=1, keepdims=True)


def learned(model):
    found = {name: value for name, value in vars(model).items() if name.endswith("_") and not name.startswith("_")}
    return {name: np.asarray(value).tobytes() for name, value in found.items()}


def error(model, X):
    return float(np.sqrt(np.mean(model.reconstruction_error(X) ** 2)))


def copy_of(name, **changes):
    return clone(ESTIMATORS[name]).set_params(**changes)


def start_of(name, X):
    """The estimator with its first atoms and kernel vectors given, so that no batch chooses them."""
    model = copy_of(name).fit(X[:200])
    if hasattr(model, "components_"):
        return copy_of(name, init=model.components_)
    return copy_of(name, init=model.dual_components_, kernel_vectors=model.kernel_vectors_, gamma=model.gamma_)


@each_estimator
def test_one_batch_is_one_iteration(name, X):
    """Kernel vectors included."""
    assert learned(copy_of(name).partial_fit(X)) == learned(copy_of(name).fit(X))


EDGES = [0, 100, 650, 700, 1300, 1797]


@pytest.mark.parametrize("n_components", [12, 150])
@pytest.mark.parametrize("name", FIXED)
def test_an_epoch_is_one_iteration(name, n_components, X):
    """To the last bit, with the batches for chunks; unused atoms are revived by the same signals."""
    start = start_of(name, X) if n_components == 12 else copy_of(name, init="random", n_nonzero_coefs=1)
    if n_components > 12:
        # Kernel vectors and frequencies must not come from the first batch.
        start.set_params(n_components=n_components)
        if hasattr(start, "kernel_vectors"):
            start.set_params(kernel_vectors=X[:30], gamma=0.5)
    with config_context(chunk_rows=tuple(np.diff(EDGES).tolist())):
        batch = clone(start).fit(X)
    stream = clone(start)
    for first, last in itertools.pairwise(EDGES):
        with config_context(chunk_rows=len(X)):
            stream.partial_fit(X[first:last], update=last == len(X))
    assert learned(stream) == learned(batch)
    assert (batch.n_revived_ > 0) == (n_components > 12)


@pytest.mark.parametrize("name", MOVED)
def test_an_epoch_is_nearly_one_iteration_where_kernel_vectors_move(name, X):
    """They move by the signals of the last batch, and by what the kernel vectors represent of the others."""
    start = start_of(name, X)
    batch = clone(start).fit(X)
    stream = clone(start)
    for first, last in itertools.pairwise(EDGES):
        stream.partial_fit(X[first:last], update=last == len(X))
    assert not np.array_equal(stream.kernel_vectors_, start.kernel_vectors)
    assert error(stream, X) == pytest.approx(error(batch, X), rel=0.04)
    held = clone(start).set_params(n_inner_iter=0)
    expected = clone(held).fit(X)
    for first, last in itertools.pairwise(EDGES):
        held.partial_fit(X[first:last], update=last == len(X))
    np.testing.assert_allclose(held.dual_components_, expected.dual_components_, rtol=1e-6, atol=1e-9)


def random_batches(X, rng):
    order, first = rng.permutation(len(X)), 0
    while first < len(X):
        size = int(rng.integers(20, 400))
        yield X[order[first : first + size]]
        first += size


@each_estimator
@pytest.mark.parametrize("seed", [0, 1])
def test_an_epoch_in_random_batches(name, seed, X):
    """No more than 2 % above the error of a fit of as many iterations over the signals."""
    rng = np.random.default_rng(seed)
    start = start_of(name, X)
    stream = clone(start)
    for epoch in (1, 2):
        for batch in random_batches(X, rng):
            stream.partial_fit(batch)
        assert error(stream, X) <= 1.02 * error(clone(start).set_params(max_iter=epoch).fit(X), X)
    assert len(stream.errors_) == stream.n_iter_ > 4
    assert np.isfinite(stream.errors_).all()


@pytest.mark.parametrize("name", FIXED)
def test_signals_weigh_the_same_in_batches_of_any_size(name, X):
    """What was accumulated does not depend on how the signals were cut."""
    start = start_of(name, X)
    for half_life in (None, 500.0):
        atoms = []
        for edges in ([0, 900, 1000], [0, 1, 300, 301, 900, 1000]):
            stream = clone(start).set_params(half_life=half_life)
            for first, last in itertools.pairwise(edges):
                stream.partial_fit(X[first:last], update=last == 1000)
            atoms.append(stream._stream.problem.memory)
        if half_life is None:
            np.testing.assert_allclose(atoms[0].products, atoms[1].products, rtol=1e-9, atol=1e-9)
            np.testing.assert_allclose(atoms[0].projections, atoms[1].projections, rtol=1e-9, atol=1e-9)
            assert atoms[0].weight == atoms[1].weight == 1000.0


def test_half_life_counts_signals(X):
    stream = copy_of("DL", half_life=100.0).partial_fit(X[:50])
    assert stream._stream.problem.memory.weight == 50.0
    stream.partial_fit(X[:200])
    assert stream._stream.problem.memory.weight == pytest.approx(200.0 + 50.0 / 4.0)


@pytest.mark.parametrize("name", ["DL", "RKDL", "ORKDL", "MORKDL"])
def test_a_stream_that_changes(name, X):
    """With a half-life it follows; without, it stays with what it saw first."""
    digits = load_digits().target
    rng = np.random.default_rng(0)
    early, late = X[digits < 5], X[digits >= 5]
    errors = {}
    for half_life in (None, 300.0):
        stream = copy_of(name, half_life=half_life)
        if name == "RKDL":
            # These do not move, so they must suit the late signals too.
            stream.set_params(kernel_vectors=X[::60])
        for signals in (early, late):
            for _ in range(3):
                for batch in random_batches(signals, rng):
                    stream.partial_fit(batch)
            errors[half_life, signals is late] = error(stream, late)
    best = error(clone(stream).set_params(max_iter=20).fit(late), late)
    assert errors[300.0, True] < errors[300.0, False]
    assert errors[300.0, True] < errors[None, True]
    gap = errors[300.0, False] - best
    assert errors[300.0, True] - best < 0.5 * gap


@each_estimator
def test_goes_on_after_fit(name, X):
    model = copy_of(name, max_iter=3).fit(X[:900])
    before = error(model, X[900:])
    expected = model.gamma_ if hasattr(model, "gamma_") else None
    model.partial_fit(X[900:])
    assert error(model, X[900:]) < before
    assert getattr(model, "gamma_", None) == expected
    assert len(model.errors_) == 4


def test_fit_begins_anew(X):
    model = copy_of("RKDL").partial_fit(X[:300]).partial_fit(X[300:600])
    assert learned(model.fit(X)) == learned(copy_of("RKDL").fit(X))
    assert not hasattr(model, "_stream")


@each_estimator
def test_a_pickle_goes_on(name, X):
    model = copy_of(name).partial_fit(X[:500])
    again = pickle.loads(pickle.dumps(model))
    assert learned(again.partial_fit(X[500:])) == learned(model.partial_fit(X[500:]))


@each_estimator
def test_a_file_goes_on(name, X, tmp_path):
    """The statistics are in it, those that wait for an update too."""
    model = copy_of(name, half_life=500.0).partial_fit(X[:500]).partial_fit(X[500:700], update=False)
    model.save(tmp_path / "model.rkdl")
    rkdl.load(tmp_path / "model.rkdl").save(tmp_path / "again.rkdl")
    again = rkdl.load(tmp_path / "again.rkdl")
    expected = learned(model.partial_fit(X[700:]))
    assert learned(again.partial_fit(X[700:])) == expected


def test_the_radius_outlives_the_batch(X):
    model = copy_of("MORKDL").fit(X)
    radius = np.linalg.norm(model.kernel_vectors_, axis=1)
    model.partial_fit(3.0 * X[:300])
    np.testing.assert_allclose(np.linalg.norm(model.kernel_vectors_, axis=1), radius)


@pytest.mark.parametrize("update", [True, False])
@pytest.mark.parametrize("value", [np.nan, np.inf])
@each_estimator
def test_a_bad_batch_changes_nothing(name, value, update, X):
    model, other = copy_of(name).partial_fit(X[:500]), copy_of(name).partial_fit(X[:500])
    bad = X[500:600].copy()
    bad[7, 3] = value
    with pytest.raises(ValueError, match="Input X contains"):
        model.partial_fit(bad, update=update)
    with pytest.raises(ValueError, match="features"):
        model.partial_fit(X[:, :9], update=update)
    assert learned(model.partial_fit(X[600:])) == learned(other.partial_fit(X[600:]))


@each_estimator
def test_a_bad_batch_after_loading_and_with_a_half_life(name, X, tmp_path):
    """Neither what a file told of the stream nor the weight of what was seen is lost, and nothing holds the batch."""
    bad = X[500:600].copy()
    bad[7, 3] = np.nan
    ends = []
    for batches in ([X[600:]], [bad, bad, X[600:]]):
        copy_of(name, half_life=400.0).partial_fit(X[:500]).save(tmp_path / "model")
        model = rkdl.load(tmp_path / "model")
        for batch in batches:
            if batch is bad:
                with pytest.raises(ValueError, match="Input X contains NaN"):
                    model.partial_fit(batch)
            else:
                model.partial_fit(batch)
        ends.append(learned(pickle.loads(pickle.dumps(model))))
        with pytest.raises(ValueError, match="Input X contains NaN"):
            model.partial_fit(bad)
        assert learned(pickle.loads(pickle.dumps(model))) == ends[-1]
    assert ends[0] == ends[1]


def test_batches_of_one_signal(X):
    stream = copy_of("RKDL").partial_fit(X[:200])
    for signal in X[200:260]:
        stream.partial_fit(signal[None])
    assert np.isfinite(stream.errors_).all()
    assert error(stream, X) < 1.05 * error(copy_of("RKDL").partial_fit(X[:200]), X)


def test_where_there_is_no_stream():
    assert not hasattr(KDL(), "partial_fit")
    assert not hasattr(DL(atom_update="aksvd"), "partial_fit")
    with pytest.raises(AttributeError, match="no attribute 'partial_fit'") as caught:
        DL(atom_update="aksvd").partial_fit([[1.0]])
    assert "Use atom_update='gram'" in str(caught.value.__cause__)
