"""Streams whose first batch is poor: zeros, copies of one signal, one signal, signals of another scale."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
from rkdl._learning.reservoir import Reservoir, distinct_rows, some_distinct, typical_rows
from scipy import sparse
from sklearn.base import clone

import rkdl
from helpers import Estimators, fitted_bytes, poor_models, rms_error
from rkdl._data.signals import Signals
from rkdl._learning.stream import StreamLearning
from rkdl._persistence.shapes import ArrayError

pytestmark = poor_models

SIZES = {"n_components": 20, "n_nonzero_coefs": 4, "n_kernel_vectors": 40, "n_fourier_features": 128}
ESTIMATORS = Estimators("DL", "FourierDL", "RKDL", "RKDL-random", "ORKDL", "MORKDL", max_iter=30, tol=1e-4, **SIZES)
ESTIMATORS["RKDL-random"].set_params(init="data")
ESTIMATORS["RKDL-scale"] = ESTIMATORS.copy_of("RKDL", gamma="scale")
ESTIMATORS["RKDL-number"] = ESTIMATORS.copy_of("RKDL", gamma=4e-4)
KINDS = ["zeros", "copies", "one", "smaller", "larger"]
each_estimator = ESTIMATORS.each()


@pytest.fixture(scope="module")
def X(digits):
    return digits[np.random.default_rng(0).permutation(len(digits))]


def poor_batch(kind, X):
    return {
        "zeros": np.zeros_like(X[:200]),
        "copies": np.tile(X[:1], (200, 1)),
        "one": X[:1],
        "smaller": 1e-3 * X[:200],
        "larger": 1e3 * X[:200],
    }[kind]


def ordinary_batches(X):
    return np.array_split(X[200:], 10)


@pytest.fixture(scope="module")
def references(X):
    """Error and gamma of the streams that saw the ordinary batches alone."""
    known = {}

    def reference(name, half_life):
        if (name, half_life) not in known:
            stream = clone(ESTIMATORS[name]).set_params(half_life=half_life)
            for batch in ordinary_batches(X):
                stream.partial_fit(batch)
            known[name, half_life] = rms_error(stream, X[200:]), getattr(stream, "gamma_", 1.0)
        return known[name, half_life]

    return reference


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "half_life", "kind"),
    [
        *itertools.product(["DL", "FourierDL", "RKDL", "RKDL-scale", "ORKDL"], [None], KINDS),
        *itertools.product(["RKDL"], [500.0], KINDS),
        *itertools.product(["RKDL-number", "MORKDL"], [None, 500.0], ["smaller"]),
        *itertools.product(["RKDL-random"], [None], ["zeros", "copies"]),
    ],
)
@pytest.mark.filterwarnings("ignore:The kernel is nearly")
def test_a_poor_first_batch_is_overcome(name, half_life, kind, X, references):
    """After ten ordinary batches the stream is much as one that never saw it."""
    stream = clone(ESTIMATORS[name]).set_params(half_life=half_life).partial_fit(poor_batch(kind, X))
    for batch in ordinary_batches(X):
        assert np.isfinite(stream.transform(batch)).all()
        stream.partial_fit(batch)
    expected, gamma = references(name, half_life)
    assert rms_error(stream, X[200:]) == pytest.approx(expected, rel=0.15)
    assert getattr(stream, "gamma_", 1.0) == pytest.approx(gamma, rel=0.4)
    assert np.isfinite(stream.errors_).all()
    assert stream.n_iter_ == len(stream.errors_) == 11


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind"),
    [("DL", "zeros"), ("FourierDL", "smaller"), ("MORKDL", "one"), *(("RKDL", kind) for kind in KINDS)],
)
def test_saved_and_pickled_streams_continue(name, kind, X, tmp_path):
    """Saved after every batch, those from which the start is chosen anew included."""
    model = clone(ESTIMATORS[name]).set_params(half_life=800.0)
    other, third = clone(model), clone(model)
    for batch in (poor_batch(kind, X), *ordinary_batches(X)[:4]):
        model.partial_fit(batch)
        other.partial_fit(batch).save(tmp_path / "model.rkdl")
        rkdl.load(tmp_path / "model.rkdl").save(tmp_path / "again.rkdl")
        other = rkdl.load(tmp_path / "again.rkdl")
        third = pickle.loads(pickle.dumps(third.partial_fit(batch)))
        assert fitted_bytes(model) == fitted_bytes(other) == fitted_bytes(third)


def count_starts(monkeypatch):
    """A list that gets the number of signals of every start that is chosen anew."""
    found = []
    begin_anew = StreamLearning._begin_anew

    def counted(self, stream, rows, like):
        found.append(len(rows))
        return begin_anew(self, stream, rows, like)

    monkeypatch.setattr(StreamLearning, "_begin_anew", counted)
    return found


@pytest.mark.parametrize(
    ("name", "half_life"), [*((name, None) for name in ESTIMATORS), ("RKDL", 300.0), ("ORKDL", 300.0)]
)
def test_an_ordinary_stream_keeps_its_start(name, half_life, X, monkeypatch):
    found = count_starts(monkeypatch)
    stream = clone(ESTIMATORS[name]).set_params(half_life=half_life)
    for first, last in itertools.pairwise([0, 50, 100, 105, 400, 401, 900, 1797]):
        stream.partial_fit(X[first:last])
    assert found == []
    # Neither DL nor a start that is given needs to know more.
    assert (stream._stream.seen is None) == (name == "DL")


def test_single_extreme_signals_change_nothing(X, monkeypatch):
    """Whatever the rule: the scale of most signals counts."""
    found = count_starts(monkeypatch)
    for gamma in ("median", "scale"):
        stream = clone(ESTIMATORS["RKDL"]).set_params(gamma=gamma).partial_fit(X[:100])
        expected = stream.gamma_
        for batch in np.array_split(X[100:600], 5):
            stream.partial_fit(np.concatenate([batch, 1e5 * batch[:3]]))
        assert stream.gamma_ == expected
    assert found == []


def test_a_given_start_stays(X, monkeypatch):
    found = count_starts(monkeypatch)
    model = clone(ESTIMATORS["RKDL"]).fit(X)
    start = {"init": model.dual_components_, "kernel_vectors": model.kernel_vectors_, "gamma": model.gamma_}
    fourier = {"init": np.eye(20, 128), "gamma": 4e-4}
    for stream in (
        clone(model).set_params(**start),
        clone(ESTIMATORS["FourierDL"]).set_params(**fourier),
        clone(ESTIMATORS["DL"]).set_params(init="random"),
        model,
    ):
        for batch in (np.zeros((3, 64)), 1e-3 * X[:100], X[:100], X[100:900]):
            stream.partial_fit(batch)
        assert stream._stream.seen is None
    assert found == []


@pytest.mark.slow
@pytest.mark.parametrize("name", ["DL", "FourierDL", "RKDL", "ORKDL", "MORKDL"])
def test_signals_one_by_one_from_the_first(name, X, monkeypatch, references):
    """Each start from twice as many signals as the last, until there are enough."""
    found = count_starts(monkeypatch)
    stream = clone(ESTIMATORS[name])
    for signal in X[:60]:
        stream.partial_fit(signal[None])
    assert found == ([2, 4, 8, 16, 20] if name in ("DL", "FourierDL") else [2, 4, 8, 16, 32, 40])
    for batch in ordinary_batches(X):
        stream.partial_fit(batch)
    assert rms_error(stream, X[200:]) == pytest.approx(references(name, None)[0], rel=0.1)


def test_few_different_signals_for_ever(X, monkeypatch):
    """Fewer than kernel vectors: the start is not chosen anew for nothing."""
    found = count_starts(monkeypatch)
    few, rng = X[:8], np.random.default_rng(0)
    stream = clone(ESTIMATORS["RKDL"])
    for _ in range(10):
        stream.partial_fit(few[rng.integers(8, size=30)])
    assert len(found) <= 1
    assert rms_error(stream, few) < 1e-3


@pytest.mark.filterwarnings("ignore:The kernel is nearly")
@pytest.mark.parametrize("name", ["FourierDL", "RKDL", "RKDL-number", "ORKDL", "MORKDL"])
def test_a_stream_whose_scale_drifts(name, X):
    """With a half-life the start follows; without, it stays until most of what was seen has the other scale."""
    for half_life, follows in ((150.0, True), (None, False)):
        stream = clone(ESTIMATORS[name]).set_params(half_life=half_life)
        for batch in ordinary_batches(X):
            stream.partial_fit(batch)
        gamma = getattr(stream, "gamma_", 1.0)
        for batch in ordinary_batches(X)[:5]:
            stream.partial_fit(100.0 * batch)
        if name != "RKDL-number":
            ratio = stream.gamma_ / gamma
            assert ratio == pytest.approx(1e-4, rel=0.5) if follows else ratio == 1.0
        norms = np.linalg.norm(getattr(stream, "kernel_vectors_", X[:1]), axis=1)
        if follows and name != "FourierDL":
            assert np.median(norms) > 1e3


@pytest.mark.parametrize("name", ["RKDL", "ORKDL", "MORKDL"])
def test_a_poor_first_batch_that_waits(name, X, references):
    """With update=False, held or not: the first update's start is chosen from more."""
    stream = clone(ESTIMATORS[name]).partial_fit(np.zeros((30, 64)), update=False)
    stream.partial_fit(X[:1], update=False)
    assert np.isfinite(stream.transform(X[:5])).all()
    for batch in ordinary_batches(X):
        stream.partial_fit(batch, update=len(batch) % 2 == 0)
    stream.partial_fit(X[:200])
    assert rms_error(stream, X[200:]) == pytest.approx(references(name, None)[0], rel=0.1)
    assert stream._stream.running.weight == pytest.approx(31 + 1597 + 200)


@pytest.mark.parametrize("half_life", [None, 300.0])
def test_what_was_seen_keeps_its_weight(half_life, X):
    """In the sums of the atoms and of the decoder; a sample stands for the signals that are gone."""
    stream = clone(ESTIMATORS["RKDL"]).set_params(fit_inverse_transform=True, half_life=half_life)
    batches = [np.zeros((1200, 64)), X[:30], X[30:300], X[300:]]
    for batch in batches:
        stream.partial_fit(batch)
    ages = np.arange(1200 + len(X))
    expected = len(ages) if half_life is None else np.sum(0.5 ** (ages / half_life))
    assert stream._stream.running.weight == pytest.approx(expected, rel=1e-9)
    assert stream._stream.running.statistics.energy == pytest.approx(expected, rel=1e-9)
    assert stream._stream.decoder_sums.n_signals == pytest.approx(expected, rel=1e-9)
    assert np.isfinite(stream.decoder_).all()


@pytest.mark.parametrize(
    ("name", "kind"), [("DL", "zeros"), ("FourierDL", "smaller"), ("ORKDL", "one"), *(("RKDL", kind) for kind in KINDS)]
)
def test_a_bad_batch_after_a_poor_one_changes_nothing(name, kind, X):
    """Nor what a generator gives next."""
    ends = []
    bad = X[200:500].copy()
    bad[7, 3] = np.nan
    for batches in ([X[200:600]], [bad, X[200:600]]):
        model = clone(ESTIMATORS[name]).set_params(random_state=np.random.RandomState(3))
        model.partial_fit(poor_batch(kind, X))
        for batch in batches:
            if batch is bad:
                with pytest.raises(ValueError, match="Input X contains NaN"):
                    model.partial_fit(batch)
            else:
                model.partial_fit(batch)
        ends.append(fitted_bytes(model))
    assert ends[0] == ends[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kind", "poor"),
    [
        *itertools.product(["RKDL"], ["tensor", "device", "dask", "csr", "file"], ["smaller"]),
        *itertools.product(["ORKDL"], ["tensor", "dask"], ["zeros"]),
    ],
)
def test_every_kind_of_signals(name, kind, poor, X, tmp_path):
    model = clone(ESTIMATORS[name])
    expected = clone(model)
    as_given = sparse.csr_array
    if kind == "tensor":
        as_given = pytest.importorskip("torch").from_numpy
    elif kind == "device":
        pytest.importorskip("torch")
        model.set_params(device="cpu")
        as_given = np.asarray
    elif kind == "dask":
        as_given = pytest.importorskip("dask.array").from_array
    elif kind == "file":

        def as_given(rows):
            stored = np.memmap(tmp_path / "signals", dtype=rows.dtype, mode="w+", shape=rows.shape)
            stored[:] = rows
            return stored

    for batch in (poor_batch(poor, X), *ordinary_batches(X)[:4]):
        model.partial_fit(as_given(batch))
        expected.partial_fit(batch)
    assert model.gamma_ == pytest.approx(expected.gamma_, rel=1e-6)
    assert rms_error(model, X) == pytest.approx(rms_error(expected, X), rel=0.02)


@pytest.mark.parametrize(
    "forged", [None, {}, {"n_seen": "x"}, {"n_distinct": -1}, {"gamma": 0.0}, {"age": float("nan")}, {"stranger": 1}]
)
def test_forged_counts_of_what_was_seen(forged, X):
    saved = clone(ESTIMATORS["RKDL"]).partial_fit(X[:100])._stream.state()
    saved.check({"m": 64, "n": 20, "p": 40, "s": 40})
    saved.numbers["seen"] = {**saved.numbers["seen"], **forged} if forged else forged
    with pytest.raises(ArrayError, match="'seen' in the stream"):
        saved.check({"m": 64, "n": 20, "p": 40, "s": 40})


def test_the_sample_does_not_depend_on_the_cut(X):
    for half_life in (None, 200.0):
        found = []
        for edges in ([0, 1797], [0, 1, 300, 301, 900, 1797], list(range(0, 1798, 3))):
            sample = Reservoir.empty(64, X.dtype, 0, 1.0)
            for first, last in itertools.pairwise(edges):
                sample = sample.add(Signals(X[first:last], X.dtype), 100, half_life)
            found.append(sample.rows)
        assert len(found[0]) == 100
        assert np.array_equal(found[0], found[1])
        assert np.array_equal(found[0], found[2])


@pytest.mark.parametrize("half_life", [None, 1000.0])
def test_the_sample_is_of_all_signals(half_life):
    """Each with the probability of its weight."""
    places = np.arange(20_000.0)
    sample = Reservoir.empty(1, places.dtype, 0, 1.0).add(Signals(places[:, None], places.dtype), 500, half_life)
    ages = places[-1] - sample.rows[:, 0]
    # The mean age of a uniform sample; an exponential one, a little older for being drawn without replacement.
    expected = 10_000.0 if half_life is None else half_life / np.log(2.0)
    assert np.mean(ages) == pytest.approx(expected, rel=0.1 if half_life is None else 0.5)


def test_different_rows():
    rows = np.array([[0.0, 1.0], [-0.0, 1.0], [2.0, 0.0], [0.0, 1.0], [0.0, 0.0]])
    np.testing.assert_array_equal(distinct_rows(rows), [[0.0, 1.0], [2.0, 0.0], [0.0, 0.0]])
    # Searched for among copies.
    rows = np.zeros((5000, 2))
    rows[::50, 0] = np.arange(100)
    assert len(some_distinct(Signals(rows, rows.dtype), 40)) >= 20
    mixed = np.concatenate([np.eye(6), 1e3 * np.eye(6)[:3], 1e-3 * np.eye(6)[:2]])
    np.testing.assert_array_equal(typical_rows(mixed), mixed[[0, 1, 2, 3, 4, 5, 9, 10]])
    assert len(typical_rows(np.zeros((3, 2)))) == 3
