"""Streams: an epoch of batches is an iteration of fit, sizes of batches do not matter, and the old is forgotten."""

from __future__ import annotations

import itertools
import pickle

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits

import rkdl
from helpers import Estimators, fitted_bytes, is_interrupted, moments, poor_models, rms_error
from rkdl import DL, KDL, config_context

pytestmark = [poor_models, pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")]

SIZES = {"n_components": 12, "n_kernel_vectors": 15, "n_fourier_features": 64, "max_iter": 1}
ESTIMATORS = Estimators(
    "DL",
    "DL-lasso",
    "DL-positive",
    "FourierDL",
    "RKDL",
    "RKDL-poly",
    "ORKDL",
    "ORKDL-gd",
    "MORKDL",
    "MORKDL-gd",
    **SIZES,
)
ESTIMATORS["FourierDL"].set_params(gamma=0.1)
ESTIMATORS["RKDL-poly"].set_params(degree=2)
FIXED = ["DL", "FourierDL", "RKDL", "RKDL-poly"]
MOVED = [name for name in ESTIMATORS if "ORKDL" in name]
ONE_PER_CLASS = ["DL", "FourierDL", "RKDL", "ORKDL", "MORKDL"]

each_estimator, copy_of = ESTIMATORS.each(), ESTIMATORS.copy_of
one_per_class = pytest.mark.parametrize("name", ONE_PER_CLASS)


@pytest.fixture(scope="module")
def X(unit_digits):
    return unit_digits


def learned(model):
    """Fitted attributes as bytes; `errors_` of a fit is of codes that a stream has not made."""
    return fitted_bytes(model, left_out=["errors_"])


def atoms_and_errors(model):
    return [getattr(model, "components_", getattr(model, "dual_components_", None)), model.update_errors_]


def start_of(name, X):
    """The estimator with its first atoms and kernel vectors given, so that no batch chooses them."""
    model = copy_of(name).fit(X[:200])
    if hasattr(model, "components_"):
        return copy_of(name, init=model.components_)
    return copy_of(name, init=model.dual_components_, kernel_vectors=model.kernel_vectors_, gamma=model.gamma_)


def feed(stream, X, edges, update_at=None):
    """Give a stream the signals between the edges as batches, with an update after some of them or after all."""
    for first, last in itertools.pairwise(edges):
        stream.partial_fit(X[first:last], update=update_at is None or last in update_at)
    return stream


def continued(model, tmp_path):
    """The same stream after pickling, and after it was saved and loaded twice."""
    model.save(tmp_path / "model.rkdl")
    rkdl.load(tmp_path / "model.rkdl").save(tmp_path / "again.rkdl")
    return pickle.loads(pickle.dumps(model)), rkdl.load(tmp_path / "again.rkdl")


class TestEpochs:
    """Bitwise an iteration of `fit`, with the batches for chunks."""

    EDGES = (0, 100, 650, 700, 1300, 1797)

    def fit(self, estimator, X):
        with config_context(chunk_rows=tuple(np.diff(self.EDGES).tolist())):
            return clone(estimator).fit(X)

    def stream(self, estimator, X):
        with config_context(chunk_rows=len(X)):
            return feed(clone(estimator), X, self.EDGES, [len(X)])

    @each_estimator
    def test_one_batch(self, name, X):
        """Kernel vectors included."""
        assert learned(copy_of(name).partial_fit(X)) == learned(copy_of(name).fit(X))

    @pytest.mark.parametrize("n_components", [12, 150])
    @pytest.mark.parametrize("name", FIXED)
    def test_kernel_vectors_that_stay(self, name, n_components, X):
        """Unused atoms are replaced by the same signals."""
        start = start_of(name, X)
        if n_components > 12:
            # Kernel vectors and frequencies must not come from the first batch.
            start = copy_of(name, init="random", n_nonzero_coefs=1, n_components=n_components)
            if hasattr(start, "kernel_vectors"):
                start.set_params(kernel_vectors=X[:30], gamma=0.5)
        batch = self.fit(start, X)
        assert learned(self.stream(start, X)) == learned(batch)
        assert (batch.n_revived_ > 0) == (n_components > 12)

    @pytest.mark.parametrize("chosen", [False, True])
    @pytest.mark.parametrize("name", MOVED)
    def test_kernel_vectors_that_move(self, name, chosen, X):
        """The batches are buffered until the update, which chooses the start where none is given."""
        start = copy_of(name) if chosen else start_of(name, X)
        stream = self.stream(start, X)
        assert learned(stream) == learned(self.fit(start, X))
        assert not chosen or not np.array_equal(stream.kernel_vectors_, clone(start).fit(X[:100]).kernel_vectors_)

    @pytest.mark.parametrize("name", MOVED)
    def test_a_later_epoch_moves_by_all_of_its_signals(self, name, X):
        """What was learned before it is known by its sums; held batches are as one batch."""
        ends = []
        for edges in ([0, 600], [0, 100, 150, 600]):
            stream = start_of(name, X).partial_fit(X[600:])
            with config_context(chunk_rows=50):
                ends.append(learned(feed(stream, X, edges, [600])))
        assert ends[0] == ends[1]

    def test_kinds_of_held_batches(self, X, tmp_path):
        """Memory maps, CSR matrices and integers wait like arrays do, and what the caller does to his array is his."""
        whole = np.round(255.0 * X[:600]).astype(np.uint8)
        stored = np.memmap(tmp_path / "signals.dat", dtype=np.uint8, mode="w+", shape=whole.shape)
        stored[:] = whole
        given = whole[:100].copy()
        stream = copy_of("MORKDL", fit_inverse_transform=True).partial_fit(given, update=False)
        given[:] = 0
        stream.partial_fit(sparse.csr_array(whole[100:200]), update=False)
        stream.partial_fit(stored[200:450], update=False).partial_fit(stored[450:])
        with config_context(chunk_rows=(100, 100, 250, 150)):
            batch = copy_of("MORKDL", fit_inverse_transform=True).fit(whole.astype(np.float64))
        assert learned(stream) == learned(batch)

    @pytest.mark.slow
    @pytest.mark.parametrize(("name", "given"), [("ORKDL", "tensor"), ("MORKDL", "tensor"), ("ORKDL", "device")])
    def test_on_a_device(self, name, given, X):
        torch = pytest.importorskip("torch")
        start = copy_of(name, device="cpu" if given == "device" else None, fit_inverse_transform=True)
        rows = X if given == "device" else torch.from_numpy(X)
        assert learned(self.stream(start, rows)) == learned(self.fit(start, rows))


class TestWeights:
    CUTS = ([0, 1000], [0, 900, 1000], [0, 1, 300, 301, 900, 1000], list(range(0, 1001, 10)))

    @pytest.mark.parametrize("name", FIXED)
    def test_signals_weigh_the_same_in_batches_of_any_size(self, name, X):
        """What is learned does not depend on how the signals were cut."""
        start = start_of(name, X).set_params(n_jobs=1)
        found = [atoms_and_errors(feed(clone(start), X, edges, [1000])) for edges in self.CUTS]
        for values in found[1:]:
            for one, first in zip(values, found[0], strict=True):
                np.testing.assert_allclose(one, first, rtol=1e-8, atol=1e-10)

    def test_the_old_fades(self, X):
        start = start_of("RKDL", X).set_params(half_life=1e-2)
        faded = clone(start).partial_fit(-X[:300], update=False).partial_fit(X[300:600])
        alone = clone(start).set_params(half_life=1e-2).partial_fit(X[300:600])
        np.testing.assert_allclose(atoms_and_errors(faded)[0], atoms_and_errors(alone)[0], atol=1e-8)

    @each_estimator
    def test_an_epoch_in_random_batches(self, name, X):
        """No more than 2 % above the error of a fit of as many iterations over the signals."""
        start, rng = start_of(name, X), np.random.default_rng(0)
        stream = clone(start)
        for epoch in (1, 2):
            for batch in random_batches(X, rng):
                stream.partial_fit(batch)
            assert rms_error(stream, X) <= 1.02 * rms_error(clone(start).set_params(max_iter=epoch).fit(X), X)
        assert len(stream.errors_) == stream.n_iter_ > 4
        assert np.isfinite(stream.errors_).all()

    @pytest.mark.slow
    @one_per_class
    def test_a_stream_that_changes(self, name, X):
        """With a half-life it follows; without, it stays with what it saw first."""
        labels, rng, errors = load_digits().target, np.random.default_rng(0), {}
        early, late = X[labels < 5], X[labels >= 5]
        for half_life in (None, 300.0):
            stream = copy_of(name, half_life=half_life)
            for signals in (early, late):
                for _ in range(3):
                    for batch in random_batches(signals, rng):
                        stream.partial_fit(batch)
                errors[half_life, signals is late] = rms_error(stream, late)
        best = rms_error(clone(stream).set_params(max_iter=20).fit(late), late)
        assert errors[300.0, True] < min(errors[300.0, False], errors[None, True])
        if name != "RKDL":  # whose kernel vectors stay
            assert errors[300.0, True] - best < 0.5 * (errors[300.0, False] - best)

    def test_batches_of_one_signal(self, X):
        stream = copy_of("RKDL").partial_fit(X[:200])
        before = rms_error(stream, X)
        for signal in X[200:260]:
            stream.partial_fit(signal[None])
        assert np.isfinite(stream.errors_).all()
        assert rms_error(stream, X) < 1.05 * before


def random_batches(X, rng):
    order, first = rng.permutation(len(X)), 0
    while first < len(X):
        size = int(rng.integers(20, 400))
        yield X[order[first : first + size]]
        first += size


class TestKernelVectors:
    def test_those_of_rkdl_stay(self, X):
        stream = copy_of("RKDL", half_life=200.0).partial_fit(X[:300])
        first = stream.kernel_vectors_
        np.testing.assert_array_equal(feed(stream, X, range(300, 1300, 100)).kernel_vectors_, first)

    def test_the_radius_outlives_the_batch(self, X):
        model = copy_of("MORKDL").fit(X)
        radius = np.linalg.norm(model.kernel_vectors_, axis=1)
        model.partial_fit(1.5 * X[:300])
        np.testing.assert_allclose(np.linalg.norm(model.kernel_vectors_, axis=1), radius)


class TestContinuing:
    @each_estimator
    def test_after_fit(self, name, X):
        model = copy_of(name, max_iter=3).fit(X[:900])
        before = rms_error(model, X[900:])
        expected = getattr(model, "gamma_", None)
        model.partial_fit(X[900:])
        assert rms_error(model, X[900:]) < before
        assert getattr(model, "gamma_", None) == expected
        assert len(model.errors_) == 4
        # And fit starts from scratch.
        assert learned(model.fit(X)) == learned(copy_of(name, max_iter=3).fit(X))

    @each_estimator
    def test_pickled_and_saved(self, name, X, tmp_path):
        """In the first epoch, whose start is not yet chosen, and later; with signals that wait for an update."""
        model = copy_of(name, half_life=None if name in MOVED else 500.0)
        for edges in ([0, 100, 650, 700], [700, 800, 1300, 1797]):
            for first, last in itertools.pairwise(edges):
                others = continued(model, tmp_path) if hasattr(model, "n_iter_") else ()
                model.partial_fit(X[first:last], update=last == edges[-1])
                expected = learned(model) if others else None
                for other in others:
                    assert learned(other.partial_fit(X[first:last], update=last == edges[-1])) == expected
        assert model.n_iter_ == 2

    CHANGES = {
        "DL": {"n_nonzero_coefs": 5, "pursuit": "omp", "half_life": 100.0},
        "FourierDL": {"residual_tol": 0.5, "fit_inverse_transform": True},
        "ORKDL": {"n_inner_iter": 1, "n_nonzero_coefs": 2},
        "ORKDL-gd": {"learning_rate": 1e-4, "half_life": 50.0},
        "MORKDL": {"solver": "gd", "linear_weight": 3.0, "linear_n_nonzero_coefs": 2},
    }

    @pytest.mark.parametrize("waits", [False, True])
    @pytest.mark.parametrize("name", CHANGES)
    def test_changed_parameters_apply_from_the_next_batch_on(self, name, waits, X, tmp_path):
        """In the living stream as in one that was saved."""
        model = copy_of(name).partial_fit(X[:500])
        if waits:
            model.partial_fit(X[500:700], update=False)
        unchanged = learned(pickle.loads(pickle.dumps(model)).partial_fit(X[700:]))
        model.set_params(**self.CHANGES[name]).save(tmp_path / "model.rkdl")
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

    @pytest.mark.parametrize(("name", "begin"), [*((name, "load") for name in REFUSED), ("RKDL", "fit")])
    def test_changed_sizes_and_kernels_are_refused(self, name, begin, X, tmp_path):
        """With the value, and set back they are taken."""
        model, other = (getattr(copy_of(name), begin.replace("load", "partial_fit"))(X[:500]) for _ in range(2))
        if begin == "load":
            model.save(tmp_path / "model.rkdl")
            model = rkdl.load(tmp_path / "model.rkdl")
        for parameter, value in self.REFUSED[name].items():
            earlier = model.get_params()[parameter]
            told = f"{parameter}={value!r} was {earlier!r}"
            if parameter == "kernel_vectors":
                told = "n_kernel_vectors=16 was 15"
            with pytest.raises(ValueError, match=f"{told} when .* set it back, or start again"):
                model.set_params(**{parameter: value}).partial_fit(X[500:])
            model.set_params(**{parameter: earlier})
        assert learned(model.partial_fit(X[500:])) == learned(other.partial_fit(X[500:]))
        parameter = "kernel_vectors" if hasattr(model, "kernel_vectors") else "half_life"
        with pytest.raises(ValueError, match=f"The '{parameter}' parameter"):
            model.set_params(**{parameter: -1.0}).partial_fit(X)

    def test_the_start_matters_to_the_first_batch_alone(self, X, tmp_path):
        model = copy_of("MORKDL").partial_fit(X[:500])
        expected = learned(pickle.loads(pickle.dumps(model)).partial_fit(X[500:]))
        model.set_params(init=np.eye(3), kernel_vectors="random", random_state=5).save(tmp_path / "model.rkdl")
        for stream in (model, rkdl.load(tmp_path / "model.rkdl")):
            assert learned(stream.partial_fit(X[500:])) == expected


class TestBatchesThatFail:
    """They leave neither attributes, nor the decoder, nor what the next batch ends at."""

    @pytest.mark.parametrize("update", [True, False])
    @one_per_class
    def test_bad_signals(self, name, update, X, tmp_path):
        model, other = (copy_of(name, half_life=400.0).partial_fit(X[:500]) for _ in range(2))
        bad = X[500:600].copy()
        bad[7, 3] = np.nan
        for stream in (model, *continued(model, tmp_path)):
            for _ in range(2):
                with pytest.raises(ValueError, match="Input X contains NaN"):
                    stream.partial_fit(bad, update=update)
            with pytest.raises(ValueError, match="features"):
                stream.partial_fit(X[:, :9], update=update)
            expected = learned(pickle.loads(pickle.dumps(other)).partial_fit(X[600:]))
            assert learned(stream.partial_fit(X[600:])) == expected

    @pytest.mark.parametrize("name", ["ORKDL", "MORKDL"])
    def test_bad_signals_among_held_ones(self, name, X):
        """Refused when they are given, those whose features overflow too, so that the update is not lost to them."""
        ends, X = [], X.astype(np.float32)
        for bad in (None, np.nan, 1e25):
            model = copy_of(name, kernel="poly", gamma=1.0, init="random", kernel_vectors="random")
            model.partial_fit(X[:300]).partial_fit(X[300:400], update=False)
            if bad is not None:
                batch = X[400:500].copy()
                batch[3, 5] = bad
                with pytest.raises(ValueError, match=r"contains NaN|not finite|[Rr]escale"):
                    model.partial_fit(batch, update=False)
            ends.append(learned(model.partial_fit(X[500:600])))
        assert ends[0] == ends[1] == ends[2]

    @pytest.mark.slow
    @pytest.mark.parametrize(("name", "update"), [("DL", True), ("RKDL", True), ("ORKDL", False), ("MORKDL-gd", True)])
    def test_an_interrupted_batch(self, name, update, X):
        """At whatever moment."""
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
    @pytest.mark.parametrize("name", ["FourierDL", "MORKDL"])
    def test_an_interrupted_first_batch(self, name, X):
        """Nor what a generator gives next."""
        start = copy_of(name, n_jobs=1)
        expected = learned(clone(start).set_params(random_state=np.random.RandomState(3)).partial_fit(X[300:]))
        for moment in moments(lambda: clone(start).partial_fit(X[:300])):
            model = clone(start).set_params(random_state=np.random.RandomState(3))
            before = set(vars(model))
            if is_interrupted(lambda: model.partial_fit(X[:300]), moment):  # noqa: B023
                assert set(vars(model)) == before
                assert learned(model.partial_fit(X[300:])) == expected


def test_where_there_is_no_stream():
    assert not hasattr(KDL(), "partial_fit")
    assert not hasattr(DL(atom_update="aksvd"), "partial_fit")
    with pytest.raises(AttributeError, match="no attribute 'partial_fit'") as caught:
        DL(atom_update="aksvd").partial_fit([[1.0]])
    assert "Use atom_update='gram'" in str(caught.value.__cause__)
