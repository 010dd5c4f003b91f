"""Streams: an epoch of batches is an iteration of fit, sizes of batches do not matter, and the old is forgotten."""

from __future__ import annotations

import itertools
import pickle
import sys
import warnings

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.datasets import load_digits

import rkdl
from helpers import Estimators, fitted_bytes, poor_models, rms_error
from rkdl import DL, KDL, RKDL, config_context
from rkdl._learning import stream as _stream
from rkdl._learning.kernel_vector_replacement import keep_kernel_vectors
from rkdl._learning.stream_problem import StreamProblem

pytestmark = poor_models

SIZES = {"n_components": 12, "n_kernel_vectors": 15, "n_fourier_features": 64, "max_iter": 1}
ESTIMATORS = Estimators("DL", "FourierDL", "RKDL", "RKDL-poly", "ORKDL", "ORKDL-gd", "MORKDL", "MORKDL-gd", **SIZES)
ESTIMATORS["FourierDL"].set_params(gamma=0.1)
ESTIMATORS["RKDL-poly"].set_params(degree=2)
FIXED = ["DL", "FourierDL", "RKDL", "RKDL-poly"]
MOVED = [name for name in ESTIMATORS if name not in FIXED]

each_estimator, copy_of = ESTIMATORS.each(), ESTIMATORS.copy_of
one_per_class = pytest.mark.parametrize("name", ["DL", "FourierDL", "RKDL", "ORKDL", "MORKDL"])


@pytest.fixture(scope="module")
def X(unit_digits):
    return unit_digits


def learned(model):
    """Fitted attributes as bytes; `errors_` of a fit is of codes that a stream has not made."""
    return fitted_bytes(model, left_out=["errors_"])


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


def fit_in_batches(estimator, X):
    """Fit with the batches of the streams below for chunks."""
    with config_context(chunk_rows=tuple(np.diff(EDGES).tolist())):
        return clone(estimator).fit(X)


@pytest.mark.parametrize("n_components", [12, 150])
@pytest.mark.parametrize("name", FIXED)
def test_an_epoch_is_one_iteration(name, n_components, X):
    """Bitwise, with the batches for chunks; unused atoms are replaced by the same signals."""
    start = start_of(name, X) if n_components == 12 else copy_of(name, init="random", n_nonzero_coefs=1)
    if n_components > 12:
        # Kernel vectors and frequencies must not come from the first batch.
        start.set_params(n_components=n_components)
        if hasattr(start, "kernel_vectors"):
            start.set_params(kernel_vectors=X[:30], gamma=0.5)
    batch, stream = fit_in_batches(start, X), clone(start)
    for first, last in itertools.pairwise(EDGES):
        with config_context(chunk_rows=len(X)):
            stream.partial_fit(X[first:last], update=last == len(X))
    assert learned(stream) == learned(batch)
    assert (batch.n_revived_ > 0) == (n_components > 12)


@pytest.mark.parametrize("chosen", [False, True])
@pytest.mark.parametrize("name", MOVED)
def test_an_epoch_is_one_iteration_where_kernel_vectors_move(name, chosen, X):
    """Bitwise too: the batches are buffered until the update, which chooses the start where none is given."""
    start = copy_of(name) if chosen else start_of(name, X)
    batch, stream = fit_in_batches(start, X), clone(start)
    for first, last in itertools.pairwise(EDGES):
        with config_context(chunk_rows=len(X)):
            stream.partial_fit(X[first:last], update=last == len(X))
        assert stream.n_iter_ == (last == len(X))
        assert stream.transform(X[:3]).shape == (3, 12)
    assert learned(stream) == learned(batch)
    assert not chosen or not np.array_equal(stream.kernel_vectors_, clone(start).fit(X[:100]).kernel_vectors_)


@pytest.mark.parametrize("name", MOVED)
def test_a_later_epoch_moves_by_all_of_its_signals(name, X):
    """What was learned before it is known by its sums; held batches are as one batch."""
    ends = []
    for edges in ([0, 600], [0, 100, 150, 600]):
        stream = start_of(name, X).partial_fit(X[600:])
        for first, last in itertools.pairwise(edges):
            with config_context(chunk_rows=50):
                stream.partial_fit(X[first:last], update=last == 600)
        ends.append(learned(stream))
    assert ends[0] == ends[1]


@pytest.mark.parametrize("name", ["ORKDL", "MORKDL"])
def test_kinds_of_held_batches(name, X, tmp_path):
    """Memory maps, CSR matrices and integers wait like arrays do, and what the caller does to his array is his."""
    whole = np.round(255.0 * X[:600]).astype(np.uint8)
    stored = np.memmap(tmp_path / "signals.dat", dtype=np.uint8, mode="w+", shape=whole.shape)
    stored[:] = whole
    given = whole[:100].copy()
    stream = copy_of(name, fit_inverse_transform=True).partial_fit(given, update=False)
    given[:] = 0
    stream.partial_fit(sparse.csr_array(whole[100:200]), update=False)
    stream.partial_fit(stored[200:450], update=False).partial_fit(stored[450:])
    with config_context(chunk_rows=(100, 100, 250, 150)):
        batch = copy_of(name, fit_inverse_transform=True).fit(whole.astype(np.float64))
    assert learned(stream) == learned(batch)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "given"), [*((name, "tensor") for name in MOVED), ("ORKDL", "device"), ("ORKDL", "both")]
)
def test_held_tensors(name, given, X):
    """An epoch on a device is an iteration there."""
    torch = pytest.importorskip("torch")
    start = copy_of(name, device="cpu" if given == "device" else None, fit_inverse_transform=True)
    as_given = {"tensor": (torch.from_numpy,), "device": (np.asarray,), "both": (np.asarray, torch.from_numpy)}[given]
    with config_context(chunk_rows=tuple(np.diff(EDGES).tolist())):
        batch = clone(start).fit(as_given[-1](X))
    stream = clone(start)
    for number, (first, last) in enumerate(itertools.pairwise(EDGES)):
        rows = as_given[number % len(as_given)] if last < len(X) else as_given[-1]
        with config_context(chunk_rows=len(X)):
            stream.partial_fit(rows(X[first:last]), update=last == len(X))
    assert learned(stream) == learned(batch)


def test_held_batches_and_a_dask_array(X, monkeypatch):
    """Its signals stay where they are, so the others become sums, as if none could be held."""
    blocks = pytest.importorskip("dask.array")
    start = start_of("ORKDL", X)
    with config_context(chunk_rows=300):
        stream = clone(start).partial_fit(X[:300], update=False)
        stream.partial_fit(blocks.from_array(X[300:600], chunks=(300, -1)), update=False).partial_fit(X[600:900])
        monkeypatch.setattr(_stream, "BUFFER_BYTES", 0)
        with pytest.warns(UserWarning, match="Update more often"):
            other = clone(start).partial_fit(X[:300], update=False)
        other.partial_fit(X[300:600], update=False).partial_fit(X[600:900])
    assert learned(stream) == learned(other)


@pytest.mark.parametrize("name", ["ORKDL", "MORKDL-gd"])
def test_more_batches_than_are_held(name, X, monkeypatch):
    """The oldest become sums, with one warning, and the others update the kernel vectors."""
    start = start_of(name, X)
    monkeypatch.setattr(_stream, "BUFFER_BYTES", X[:690].nbytes)
    stream = clone(start)
    stream.partial_fit(X[:100], update=False).partial_fit(X[100:650], update=False)
    with pytest.warns(UserWarning, match="Update more often"):
        stream.partial_fit(X[650:700], update=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stream.partial_fit(X[700:1300], update=False)
    assert [len(batch.rows) for batch in stream._stream.buffered] == [50, 600]
    assert stream._stream.running.weight == 650.0
    # A batch that is too large by itself.
    stream.partial_fit(X[:800], update=False)
    assert stream._stream.buffered == ()
    assert stream._stream.running.weight == 2100.0
    stream.partial_fit(X[1300:])
    assert rms_error(stream, X) < rms_error(clone(start).set_params(n_inner_iter=0).fit(X), X)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ORKDL", "ORKDL-gd", "MORKDL"])
def test_held_batches_are_saved(name, X, tmp_path):
    """Those of the first epoch, whose start is not yet chosen, and of a later one."""
    model = copy_of(name, fit_inverse_transform=True)
    for edges in ([0, 100, 650, 700], [700, 800, 1300, 1797]):
        for first, last in itertools.pairwise(edges):
            again = None
            if first != edges[0]:
                model.save(tmp_path / "model.rkdl")
                rkdl.load(tmp_path / "model.rkdl").save(tmp_path / "again.rkdl")
                again = rkdl.load(tmp_path / "again.rkdl")
                copy = pickle.loads(pickle.dumps(model))
            model.partial_fit(X[first:last], update=last == edges[-1])
            if again is not None:
                for other in (again, copy):
                    assert learned(other.partial_fit(X[first:last], update=last == edges[-1])) == learned(model)
    assert model.n_iter_ == 2


def test_held_batches_become_sums_where_they_cannot_wait(X):
    """With a half-life, and where kernel vectors no longer move."""
    for changes in ({"half_life": 300.0}, {"n_inner_iter": 0}):
        stream = start_of("ORKDL", X).partial_fit(X[:300], update=False).partial_fit(X[300:500], update=False)
        assert len(stream._stream.buffered) == 2
        stream.set_params(**changes).partial_fit(X[500:900])
        assert stream._stream.buffered == ()
        assert np.isfinite(stream.errors_).all()


def random_batches(X, rng):
    order, first = rng.permutation(len(X)), 0
    while first < len(X):
        size = int(rng.integers(20, 400))
        yield X[order[first : first + size]]
        first += size


@each_estimator
def test_an_epoch_in_random_batches(name, X):
    """No more than 2 % above the error of a fit of as many iterations over the signals."""
    rng = np.random.default_rng(0)
    start = start_of(name, X)
    stream = clone(start)
    for epoch in (1, 2):
        for batch in random_batches(X, rng):
            stream.partial_fit(batch)
        assert rms_error(stream, X) <= 1.02 * rms_error(clone(start).set_params(max_iter=epoch).fit(X), X)
    assert len(stream.errors_) == stream.n_iter_ > 4
    assert np.isfinite(stream.errors_).all()


CUTS = ([0, 1000], [0, 900, 1000], [0, 1, 300, 301, 900, 1000], list(range(0, 1001, 10)))


@pytest.mark.parametrize("name", FIXED)
def test_signals_weigh_the_same_in_batches_of_any_size(name, X):
    """What was accumulated does not depend on how the signals were cut."""
    start = start_of(name, X)
    found = []
    for edges in CUTS:
        stream = clone(start)
        for first, last in itertools.pairwise(edges):
            stream.partial_fit(X[first:last], update=last == 1000)
        found.append(stream._stream.running)
    for running in found[1:]:
        for ours, first in zip(running.statistics[:2], found[0].statistics[:2], strict=True):
            np.testing.assert_allclose(ours, first, rtol=1e-9, atol=1e-9)
        assert running.weight == 1000.0


@pytest.mark.parametrize("name", ["DL", "MORKDL"])
@pytest.mark.parametrize("half_life", [0.5, 100.0, 1e6])
def test_fading_signals_weigh_the_same_in_batches_of_any_size(name, half_life, X):
    """The last counts one, and each before it a little less: the sum of that, however they were cut."""
    expected = np.sum(0.5 ** (np.arange(1000) / half_life))
    for edges in CUTS:
        decodes = {} if name == "DL" else {"fit_inverse_transform": True}
        stream = start_of(name, X).set_params(half_life=half_life, **decodes)
        for first, last in itertools.pairwise(edges):
            stream.partial_fit(X[first:last], update=last in (900, 1000))
        running, sums = stream._stream.running, stream._stream.decoder_sums
        assert running.weight == pytest.approx(expected, rel=1e-10)
        # The trace of an RBF kernel and of signals of unit norm.
        assert running.statistics.energy == pytest.approx(expected, rel=1e-10)
        assert sums is None or sums.n_signals == pytest.approx(expected, rel=1e-10)


def test_sums_of_alike_signals_do_not_depend_on_the_cut(X):
    """Those of the atoms and of the decoder: where every signal is the same, nothing is left of the cut."""
    signals = np.tile(X[:1], (200, 1))
    found = []
    for edges in ([0, 200], [0, 3, 100, 200]):
        start = RKDL(n_components=2, kernel_vectors=X[:5], init=np.eye(2, 5), gamma=0.5, half_life=30.0)
        start.set_params(n_nonzero_coefs=1, fit_inverse_transform=True)
        for first, last in itertools.pairwise(edges):
            start.partial_fit(signals[first:last], update=False)
        found.append((start._stream.running, start._stream.decoder_sums))
    for ours, theirs in zip(found[0][0].statistics[:2], found[1][0].statistics[:2], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)
    np.testing.assert_allclose(found[0][1].cross_products, found[1][1].cross_products, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["DL", "FourierDL", "RKDL", "RKDL-poly", "ORKDL", "MORKDL"])
def test_a_stream_that_changes(name, X):
    """With a half-life it follows; without, it stays with what it saw first."""
    labels = load_digits().target
    rng = np.random.default_rng(0)
    early, late = X[labels < 5], X[labels >= 5]
    errors = {}
    for half_life in (None, 300.0):
        stream = copy_of(name, half_life=half_life)
        for signals in (early, late):
            for _ in range(3):
                for batch in random_batches(signals, rng):
                    stream.partial_fit(batch)
            errors[half_life, signals is late] = rms_error(stream, late)
    best = rms_error(clone(stream).set_params(max_iter=20).fit(late), late)
    assert errors[300.0, True] < errors[300.0, False]
    assert errors[300.0, True] < errors[None, True]
    gap = errors[300.0, False] - best
    assert errors[300.0, True] - best < 0.5 * gap


@pytest.mark.slow
@pytest.mark.parametrize(("half_life", "size"), [(200.0, 5), (200.0, 200), (1000.0, 40)])
def test_a_stream_that_does_not_change_loses_nothing(half_life, size, X, monkeypatch):
    """Kernel vectors of RKDL that are replaced were not missed."""
    errors = []
    for frozen in (False, True):
        if frozen:
            monkeypatch.setattr(StreamProblem, "_replace_kernel_vectors", lambda self, iterate: iterate)
        stream = RKDL(20, n_kernel_vectors=30, half_life=half_life, random_state=0).partial_fit(X[:300])
        first = stream.kernel_vectors_
        for start in range(300, len(X), size):
            stream.partial_fit(X[start : start + size])
        errors.append(rms_error(stream, X))
        assert np.array_equal(stream.kernel_vectors_, first) == frozen
    assert errors[0] < 1.01 * errors[1]


@pytest.mark.parametrize("changes", [{"half_life": None}, {"kernel": lambda x, y: np.exp(-0.5 * cdist(x, y) ** 2)}])
def test_where_kernel_vectors_of_a_stream_stay(changes, X):
    """Without a half-life, and with a kernel that is a function."""
    stream = copy_of("RKDL", **{"half_life": 200.0, **changes}).partial_fit(X[:300])
    first = stream.kernel_vectors_
    for start in range(300, len(X), 100):
        stream.partial_fit(X[start : start + 100])
    np.testing.assert_array_equal(stream.kernel_vectors_, first)


@pytest.mark.parametrize("kind", ["tensor", "dask", "file"])
def test_kernel_vectors_are_replaced_for_every_kind_of_signals(kind, X, tmp_path):
    streams = [copy_of("RKDL", half_life=200.0) for _ in range(2)]
    if kind == "dask":
        blocks = pytest.importorskip("dask.array")
    elif kind == "tensor":
        torch = pytest.importorskip("torch")
    for start in range(0, 1200, 200):
        batch = X[start : start + 200]
        with config_context(chunk_rows=100):
            streams[0].partial_fit(batch)
            if kind == "file":
                streams[1].partial_fit(batch).save(tmp_path / "model")
                streams[1] = rkdl.load(tmp_path / "model")
            else:
                streams[1].partial_fit(
                    torch.from_numpy(batch) if kind == "tensor" else blocks.from_array(batch, chunks=(100, -1))
                )
    if kind == "tensor":
        np.testing.assert_allclose(streams[1].kernel_vectors_, streams[0].kernel_vectors_, atol=1e-12)
        np.testing.assert_allclose(streams[1].dual_components_, streams[0].dual_components_, atol=1e-6)
    else:
        assert learned(streams[1]) == learned(streams[0])


def test_kernel_vectors_that_are_kept():
    """Step by step the one whose loss costs the best atoms least, found by trying each."""
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((12, 3))
    vectors[7] = vectors[2]
    matrix = np.exp(-0.2 * cdist(vectors, vectors) ** 2)
    codes, signals = rng.standard_normal((40, 5)), rng.standard_normal((40, 3))
    codes[:, 4] = 0.0
    projections = codes.T @ np.exp(-0.2 * cdist(signals, vectors) ** 2)
    products = codes.T @ codes

    def fitted(kept):
        weights = np.linalg.lstsq(matrix[np.ix_(kept, kept)], projections[:, kept].T, rcond=1e-10)[0]
        return np.sum(weights * (projections[:, kept].T @ np.linalg.pinv(products)))

    kept = list(range(12))
    while len(kept) > 6:
        kept.remove(max(kept, key=lambda i: fitted([j for j in kept if j != i])))
    found = keep_kernel_vectors(matrix, projections, products, 6, np.dtype(np.float64))
    assert {i if i != 7 else 2 for i in found.tolist()} == {i if i != 7 else 2 for i in kept}
    assert fitted(found.tolist()) == pytest.approx(fitted(kept), rel=1e-6)


@each_estimator
def test_partial_fit_continues_a_fit(name, X):
    model = copy_of(name, max_iter=3).fit(X[:900])
    before = rms_error(model, X[900:])
    expected = model.gamma_ if hasattr(model, "gamma_") else None
    model.partial_fit(X[900:])
    assert rms_error(model, X[900:]) < before
    assert getattr(model, "gamma_", None) == expected
    assert len(model.errors_) == 4


def test_fit_starts_from_scratch(X):
    model = copy_of("RKDL").partial_fit(X[:300]).partial_fit(X[300:600])
    assert learned(model.fit(X)) == learned(copy_of("RKDL").fit(X))
    assert not hasattr(model, "_stream")


@each_estimator
def test_a_pickled_stream_continues(name, X):
    model = copy_of(name).partial_fit(X[:500])
    again = pickle.loads(pickle.dumps(model))
    assert learned(again.partial_fit(X[500:])) == learned(model.partial_fit(X[500:]))


@each_estimator
def test_a_saved_stream_continues(name, X, tmp_path):
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
@one_per_class
def test_a_bad_batch_changes_nothing(name, update, X):
    model, other = copy_of(name).partial_fit(X[:500]), copy_of(name).partial_fit(X[:500])
    bad = X[500:600].copy()
    bad[7, 3] = np.nan
    with pytest.raises(ValueError, match="Input X contains"):
        model.partial_fit(bad, update=update)
    with pytest.raises(ValueError, match="features"):
        model.partial_fit(X[:, :9], update=update)
    assert learned(model.partial_fit(X[600:])) == learned(other.partial_fit(X[600:]))


@one_per_class
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


def interrupt(action, at=None):
    """Ctrl-C at the call of that number of a function of the package; returns the number of calls."""
    count = 0

    def watch(frame, event, argument):
        nonlocal count
        if event == "call" and frame.f_globals.get("__name__", "").startswith("rkdl."):
            count += 1
            if count == at:
                sys.setprofile(None)
                raise KeyboardInterrupt

    sys.setprofile(watch)
    try:
        action()
    finally:
        sys.setprofile(None)
    return count


def is_interrupted(action, at):
    """Whether KeyboardInterrupt came out; where Python runs a destructor it drops one, and the action goes on."""
    try:
        interrupt(action, at)
    except KeyboardInterrupt:
        return True
    return False


def moments(action):
    """Numbers of calls from the first to the last, closer together at the end."""
    # The first time modules are imported, which are calls too.
    action()
    count = interrupt(action)
    return sorted({*np.linspace(1, count, 12).astype(int).tolist(), *range(max(1, count - 20), count + 1, 3)})


@pytest.mark.slow
@pytest.mark.parametrize("update", [True, False])
@pytest.mark.parametrize("name", ["DL", "RKDL", "ORKDL", "MORKDL-gd"])
def test_an_interrupted_batch_changes_nothing(name, update, X):
    """At whatever moment: neither attributes, nor the decoder, nor what the next batch ends at."""
    start = copy_of(name, n_jobs=1, half_life=None if name.endswith("-gd") else 400.0)
    if name != "DL":
        start.set_params(fit_inverse_transform=True)
    stored = pickle.dumps(start.partial_fit(X[:300]).partial_fit(X[300:350], update=False))
    expected = learned(pickle.loads(stored).partial_fit(X[600:]))
    complete = learned(pickle.loads(stored).partial_fit(X[350:600], update=update))
    for moment in moments(lambda: pickle.loads(stored).partial_fit(X[350:600], update=update)):
        model = pickle.loads(stored)
        before = learned(model)
        if not is_interrupted(lambda: model.partial_fit(X[350:600], update=update), moment):  # noqa: B023
            assert learned(model) == complete
            continue
        assert learned(model) == before
        assert learned(model.partial_fit(X[600:])) == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", ["FourierDL", "RKDL", "MORKDL"])
def test_an_interrupted_first_batch_changes_nothing(name, X):
    """Nor what a generator gives next."""
    expected = learned(copy_of(name, random_state=np.random.RandomState(3)).partial_fit(X[300:]))
    complete = learned(copy_of(name, random_state=np.random.RandomState(3)).partial_fit(X[:300]))
    for moment in moments(lambda: copy_of(name, n_jobs=1).partial_fit(X[:300])):
        model = copy_of(name, n_jobs=1, random_state=np.random.RandomState(3))
        before = set(vars(model))
        if not is_interrupted(lambda: model.partial_fit(X[:300]), moment):  # noqa: B023
            assert learned(model) == complete
            continue
        assert set(vars(model)) == before
        assert learned(model.partial_fit(X[300:])) == expected


@pytest.mark.parametrize("name", ["ORKDL", "MORKDL"])
def test_a_bad_batch_among_held_ones(name, X):
    """It is refused when it is given, signals whose features overflow too, so that the update is not lost to it."""
    ends = []
    for bad in (None, np.nan, 1e25):
        model = copy_of(name, kernel="poly", gamma=1.0, init="random", kernel_vectors="random")
        model.partial_fit(X[:300].astype(np.float32)).partial_fit(X[300:400].astype(np.float32), update=False)
        if bad is not None:
            batch = X[400:500].astype(np.float32)
            batch[3, 5] = bad
            with pytest.raises(ValueError, match="contains NaN" if np.isnan(bad) else "not finite"):
                model.partial_fit(batch, update=False)
        ends.append(learned(model.partial_fit(X[500:600].astype(np.float32))))
    assert ends[0] == ends[1] == ends[2]


CHANGES = {
    "DL": {"n_nonzero_coefs": 5, "pursuit": "omp", "half_life": 100.0},
    "FourierDL": {"residual_tol": 0.5, "fit_inverse_transform": True},
    "RKDL": {"n_nonzero_coefs": 6},
    "ORKDL": {"n_inner_iter": 1, "n_nonzero_coefs": 2},
    "ORKDL-gd": {"learning_rate": 1e-4, "half_life": 50.0},
    "MORKDL": {"solver": "gd", "linear_weight": 3.0, "linear_n_nonzero_coefs": 2},
}


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_changed_parameters_apply_from_the_next_batch_on(name, waits, X, tmp_path):
    """In the living stream as in one that was saved."""
    model = copy_of(name).partial_fit(X[:500])
    if waits:
        model.partial_fit(X[500:700], update=False)
    unchanged = learned(pickle.loads(pickle.dumps(model)).partial_fit(X[700:]))
    model.set_params(**CHANGES[name]).save(tmp_path / "model.rkdl")
    again = rkdl.load(tmp_path / "model.rkdl")
    found = learned(model.partial_fit(X[700:]))
    assert found == learned(again.partial_fit(X[700:]))
    assert found != unchanged


REFUSED = {
    "DL": {"n_components": 13},
    "FourierDL": {"n_fourier_features": 32, "gamma": 0.2},
    "RKDL": {"n_components": 20, "n_kernel_vectors": 16, "kernel": "linear", "gamma": 0.3},
    "RKDL-poly": {"degree": 3, "coef0": 0.5, "kernel": "rbf"},
    "MORKDL": {"n_components": 11, "kernel_vectors": np.eye(16, 64), "gamma": 1.0},
}


@pytest.mark.parametrize(
    ("name", "begin"), [*((name, "load") for name in REFUSED), ("RKDL", "fit"), ("RKDL", "partial_fit")]
)
def test_changed_sizes_and_kernels_are_refused(name, begin, X, tmp_path):
    """Sizes and the kernel are refused with the value, and set back they are taken."""
    model, other = (getattr(copy_of(name), begin.replace("load", "partial_fit"))(X[:500]) for _ in range(2))
    if begin == "load":
        model.save(tmp_path / "model.rkdl")
        model = rkdl.load(tmp_path / "model.rkdl")
    for parameter, value in REFUSED[name].items():
        earlier = model.get_params()[parameter]
        told = (
            "n_kernel_vectors=16 was 15" if parameter == "kernel_vectors" else f"{parameter}={value!r} was {earlier!r}"
        )
        with pytest.raises(ValueError, match=f"{told} when .* set it back, or begin anew"):
            model.set_params(**{parameter: value}).partial_fit(X[500:])
        model.set_params(**{parameter: earlier})
    assert learned(model.partial_fit(X[500:])) == learned(other.partial_fit(X[500:]))


def test_the_start_matters_to_the_first_batch_alone(X, tmp_path):
    model = copy_of("MORKDL").partial_fit(X[:500])
    expected = learned(pickle.loads(pickle.dumps(model)).partial_fit(X[500:]))
    model.set_params(init=np.eye(3), kernel_vectors="random", random_state=5).save(tmp_path / "model.rkdl")
    for stream in (model, rkdl.load(tmp_path / "model.rkdl")):
        assert learned(stream.partial_fit(X[500:])) == expected


def test_batches_of_one_signal(X):
    stream = copy_of("RKDL").partial_fit(X[:200])
    for signal in X[200:260]:
        stream.partial_fit(signal[None])
    assert np.isfinite(stream.errors_).all()
    assert rms_error(stream, X) < 1.05 * rms_error(copy_of("RKDL").partial_fit(X[:200]), X)


def test_where_there_is_no_stream():
    assert not hasattr(KDL(), "partial_fit")
    assert not hasattr(DL(atom_update="aksvd"), "partial_fit")
    with pytest.raises(AttributeError, match="no attribute 'partial_fit'") as caught:
        DL(atom_update="aksvd").partial_fit([[1.0]])
    assert "Use atom_update='gram'" in str(caught.value.__cause__)
