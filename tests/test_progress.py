"""What a fit shows and how it ends: the bar, Ctrl-C, steps that never go uphill, atoms that come back."""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from helpers import PATIENCE, atoms_of, interrupt_after
from rkdl import DL, KDL, MORKDL, ORKDL, RKDL, FourierDL, KDLOutlierDetector
from rkdl._backends.cpu.backend import CPU
from rkdl._estimators import denoising as _denoising
from rkdl._estimators import reduced as _reduced
from rkdl._features import kernels as _kernels
from rkdl._features.maps import KernelMap
from rkdl._learning import full as _full
from rkdl._learning import kernel_vector_choice, kernel_vector_updates, loop
from rkdl._learning.reduced import ReducedProblem

COMMON = {"n_components": 6, "n_nonzero_coefs": 2, "max_iter": 6, "tol": 0.0, "random_state": 0, "n_jobs": 1}
REDUCED = {**COMMON, "n_kernel_vectors": 10, "kernel_vectors": "random"}
# From atoms that are given the kernel vectors move at once.
GIVEN = {"init": np.random.default_rng(1).standard_normal((6, 10))}
ESTIMATORS = {
    "DL": DL(**COMMON),
    "FourierDL": FourierDL(n_fourier_features=16, **COMMON),
    "KDL": KDL(**COMMON),
    "RKDL": RKDL(**REDUCED),
    "ORKDL-lbfgs": ORKDL(**REDUCED, **GIVEN),
    "ORKDL-gd": ORKDL(solver="gd", **REDUCED),
    "MORKDL-lbfgs": MORKDL(**REDUCED, **GIVEN),
    "MORKDL-gd": MORKDL(solver="gd", **REDUCED),
}
KERNELS = {
    "rbf": {"kernel": "rbf", "gamma": 0.3},
    "narrow": {"kernel": "rbf", "gamma": 3.0},
    "wide": {"kernel": "rbf", "gamma": 1e-4},
    "poly": {"kernel": "poly", "gamma": 0.5, "degree": 3},
    "linear": {"kernel": "linear"},
}

each_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(0)
    return rng.standard_normal((300, 8)) @ rng.standard_normal((8, 8)) / 3.0


class TestBar:
    @pytest.mark.parametrize("name", ["DL", "KDL", "ORKDL-gd"])
    def test_verbose(self, X, capsys, name):
        model = clone(ESTIMATORS[name]).set_params(verbose=1, max_iter=3).fit(X)
        shown = capsys.readouterr()
        assert shown.out == ""
        assert shown.err.startswith(f"\r{type(model).__name__}: ")
        assert "3/3" in shown.err
        assert f"error {model.errors_[-1]:.4e}" in shown.err

    def test_silent(self, X, capsys):
        for estimator in ESTIMATORS.values():
            model = clone(estimator).fit(X)
            model.transform(X)
            model.score(X)
        assert capsys.readouterr() == ("", "")

    def test_stops_at_tol(self, X, capsys):
        """The bar ends where the fit does, and showing it changes nothing."""
        options = {**COMMON, "max_iter": 200, "tol": 1e-3}
        model = DL(verbose=1, **options).fit(X)
        n_updates = len(model.update_errors_)
        assert model.n_iter_ <= n_updates < 200
        assert f"{n_updates}/200" in capsys.readouterr().err
        np.testing.assert_array_equal(model.errors_, DL(**options).fit(X).errors_)


def fit_interrupted(model, X, count):
    """Fit, and see to it that the interrupt ends the program with what was learned, without a warning besides."""
    words = f"{type(model).__name__} was interrupted after {count} of 6 iterations"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(KeyboardInterrupt, match=words):
            model.fit(X)


class TestInterrupt:
    """Ctrl-C goes on to the caller and leaves what the last whole iteration left."""

    @pytest.mark.parametrize(
        ("name", "attribute", "count"),
        [
            *itertools.product(ESTIMATORS, ["update", "replace_unused_atoms"], [3]),
            ("DL", "update", 1),
            ("KDL", "replace_unused_atoms", 1),
        ],
    )
    def test_state(self, X, monkeypatch, name, attribute, count):
        model = clone(ESTIMATORS[name])
        for problem in (ReducedProblem, _full.FullProblem):
            interrupt_after(monkeypatch, count, problem, attribute)
        fit_interrupted(model, X, count)
        monkeypatch.undo()
        assert model.n_iter_ == len(model.errors_) <= len(model.update_errors_) == count
        codes = model.transform(X)
        assert np.isfinite(codes).all()
        assert codes.any()
        assert np.isfinite(model.reconstruction_error(X)).all()
        whole = clone(model).set_params(max_iter=count).fit(X)
        np.testing.assert_array_equal(atoms_of(model), atoms_of(whole))
        np.testing.assert_array_equal(model.errors_, whole.errors_)
        np.testing.assert_array_equal(codes, whole.transform(X))

    @pytest.mark.parametrize("name", ["DL", "KDL", "RKDL", "ORKDL-lbfgs"])
    @pytest.mark.parametrize("attribute", ["update", "replace_unused_atoms"], ids=["between", "within"])
    def test_before_anything_is_learned(self, X, monkeypatch, name, attribute):
        """What an earlier fit learned stays; without one, the estimator is not fitted."""
        fitted, fresh = clone(ESTIMATORS[name]).fit(X), clone(ESTIMATORS[name])
        codes = fitted.transform(X)
        for problem in (ReducedProblem, _full.FullProblem):
            interrupt_after(monkeypatch, 0, problem, attribute)
        for model in (fitted, fresh):
            with pytest.raises(KeyboardInterrupt):
                model.fit(X[::-1] + 1.0)
        monkeypatch.undo()
        np.testing.assert_array_equal(fitted.transform(X), codes)
        with pytest.raises(NotFittedError):
            fresh.transform(X)

    @pytest.mark.parametrize("name", ["DL", "KDL", "RKDL"])
    def test_searches_and_pipelines_end(self, X, monkeypatch, name):
        """In the middle of the second of many fits; nothing is fitted after it."""
        fits = []
        original = type(ESTIMATORS[name]).fit

        def counted(self, *args, **kwargs):
            fits.append(None)
            return original(self, *args, **kwargs)

        model = make_pipeline(StandardScaler(), clone(ESTIMATORS[name]))
        key = f"{name.lower()}__n_components"
        search = GridSearchCV(model, {key: [4, 5, 6]}, cv=3, error_score=0.0)
        monkeypatch.setattr(type(ESTIMATORS[name]), "fit", counted)
        for problem in (ReducedProblem, _full.FullProblem):
            interrupt_after(monkeypatch, 8, problem, "update")
        with pytest.raises(KeyboardInterrupt):
            search.fit(X)
        assert len(fits) == 2
        with pytest.raises(KeyboardInterrupt):
            cross_val_score(model, X, cv=3)
        assert len(fits) == 3

    def test_a_pipeline_keeps_what_its_last_step_learned(self, X, monkeypatch):
        model = make_pipeline(StandardScaler(), clone(ESTIMATORS["RKDL"]))
        interrupt_after(monkeypatch, 3, ReducedProblem, "update")
        with pytest.raises(KeyboardInterrupt, match="after 3 of 6 iterations"):
            model.fit(X)
        monkeypatch.undo()
        assert len(model[-1].update_errors_) == 3
        assert np.isfinite(model.transform(X)).all()

    @pytest.mark.parametrize("before", [False, True])
    def test_while_a_decoder_is_learned(self, X, monkeypatch, before):
        """The atoms stay, and the decoder of an earlier fit goes."""
        model = clone(ESTIMATORS["RKDL"]).set_params(fit_inverse_transform=True)
        if before:
            model.fit(X)
        interrupt_after(monkeypatch, 0, _denoising.Decoding, "_decoder_sums")
        fit_interrupted(model, 2.0 * X, 6)
        monkeypatch.undo()
        assert not hasattr(model, "decoder_")
        plain = clone(ESTIMATORS["RKDL"]).fit(2.0 * X)
        np.testing.assert_array_equal(model.transform(X), plain.transform(X))

    @pytest.mark.parametrize("name", ["DL", "KDL"])
    def test_between_the_lines_of_the_loop(self, name, X, monkeypatch):
        """Errors and model belong together whatever line of the loop Ctrl-C meets."""
        model = clone(ESTIMATORS[name])
        interrupt_after(monkeypatch, 3, loop, "_has_settled")
        with pytest.raises(KeyboardInterrupt):
            model.fit(X)
        error = np.sqrt((model.reconstruction_error(X).astype(np.float64) ** 2).sum() / X.size)
        np.testing.assert_allclose(model.errors_[-1], error, rtol=1e-5)

    def test_a_stream_continues(self, X, monkeypatch):
        model = clone(ESTIMATORS["RKDL"])
        interrupt_after(monkeypatch, 3, ReducedProblem, "update")
        fit_interrupted(model, X, 3)
        monkeypatch.undo()
        assert len(model.partial_fit(X[:100]).update_errors_) == 4

    def test_detector(self, X, monkeypatch):
        """Dictionaries of a detector that are not all learned are of no use."""
        model = KDLOutlierDetector(n_members=2, random_state=0, n_jobs=1).fit(X)
        scores = model.score_samples(X)
        interrupt_after(monkeypatch, 5, ReducedProblem, "update")
        with pytest.raises(KeyboardInterrupt):
            model.fit(X + 1.0)
        monkeypatch.undo()
        np.testing.assert_array_equal(model.score_samples(X), scores)

    @pytest.mark.parametrize("n_jobs", [1, 2])
    @pytest.mark.parametrize(
        ("name", "owner", "attribute"),
        [
            ("DL", CPU, "pursue_and_sum"),
            ("KDL", _full, "pursue"),
            ("ORKDL-lbfgs", kernel_vector_updates.Objective, "at"),
            ("ORKDL-gd", kernel_vector_updates.GradientDescent, "sweep"),
        ],
    )
    def test_in_the_depth(self, X, monkeypatch, name, owner, attribute, n_jobs):
        """From a chunk, in a thread or not, and from the middle of a search."""
        model = clone(ESTIMATORS[name]).set_params(n_jobs=n_jobs)
        n_threads = len(sys._current_frames())
        interrupt_after(monkeypatch, 13, owner, attribute)
        fit_interrupted(model, np.tile(X, (3, 1)), "[1-5]")
        monkeypatch.undo()
        assert 0 < model.n_iter_ == len(model.errors_) < 6
        assert np.isfinite(model.transform(X)).all()
        deadline = time.monotonic() + 60
        while len(sys._current_frames()) > n_threads and time.monotonic() < deadline:
            time.sleep(1e-3)
        assert len(sys._current_frames()) <= n_threads

    @pytest.mark.parametrize(
        ("method", "owner", "attribute"),
        [
            ("kmeans", kernel_vector_choice._Assign, "__call__"),
            ("rpcholesky", _kernels.RBF, "__call__"),
            ("dictionary", ReducedProblem, "update"),
        ],
    )
    def test_while_kernel_vectors_are_chosen(self, X, monkeypatch, method, owner, attribute):
        """Nothing was learned yet, so the estimator is as it was."""
        model = RKDL(**{**REDUCED, "kernel_vectors": method})
        interrupt_after(monkeypatch, 2, owner, attribute)

        def chosen(*args, **kwargs):
            try:
                return choose(*args, **kwargs)
            finally:
                monkeypatch.undo()

        choose = kernel_vector_choice.choose_kernel_vectors
        monkeypatch.setattr(_reduced, "choose_kernel_vectors", chosen)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X)
        assert not hasattr(model, "n_iter_")

    def test_bar_is_closed(self, X, monkeypatch, capsys):
        interrupt_after(monkeypatch, 2, ReducedProblem, "update")
        fit_interrupted(DL(verbose=1, **COMMON), X, 2)
        shown = capsys.readouterr().err
        assert "2/6" in shown
        assert shown.endswith("\n")

    def test_other_errors_are_not_swallowed(self, X, monkeypatch):
        def fail(self):
            raise RuntimeError("not an interrupt")

        monkeypatch.setattr(ReducedProblem, "update", fail)
        with pytest.raises(RuntimeError, match="not an interrupt"):
            DL(**COMMON).fit(X)


LONG_FIT = """
import signal, sys, warnings
import numpy as np

# Where the tests run in the background, children are born deaf to SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)
from rkdl import DL, ORKDL
from rkdl._learning.reduced import ReducedProblem

update, calls = ReducedProblem.update, []

def reporting(self):
    update(self)
    calls.append(None)
    if len(calls) == 3:
        print("running", flush=True)

ReducedProblem.update = reporting
X = np.random.default_rng(0).standard_normal((4000, 20))
model = {model}.set_params(n_components=20, max_iter=10**7, tol=0.0, random_state=0)
warnings.simplefilter("error")
try:
    model.fit(X)
except KeyboardInterrupt as error:
    finite = bool(np.isfinite(model.transform(X)).all())
    made = len(model.update_errors_)
    print("ended", f"after {{made}} of" in str(error), made >= 2, finite, flush=True)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
@pytest.mark.parametrize("model", ["DL(n_jobs=1)", "ORKDL(kernel_vectors='random', init=X[:20] @ X[:50].T, n_jobs=2)"])
def test_signal(model):
    """A real SIGINT ends a fit that would never end, and leaves what it learned."""
    child = subprocess.Popen(
        [sys.executable, "-c", LONG_FIT.format(model=model)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    killer = threading.Timer(PATIENCE, child.kill)
    killer.start()
    try:
        assert child.stdout.readline() == "running\n", child.stderr.read()
        time.sleep(0.1)
        child.send_signal(signal.SIGINT)
        out, err = child.communicate()
    finally:
        killer.cancel()
        child.kill()
        child.wait()
    assert out == "ended True True True\n", err
    assert child.returncode == 0


@pytest.fixture
def moves(monkeypatch):
    """Points before and after every move of the kernel vectors."""
    found = []
    for vector_update in (kernel_vector_updates.VariableProjection, kernel_vector_updates.GradientDescent):

        def recorded(self, objective, start, original=vector_update.minimize):
            end = original(self, objective, start)
            found.append((start, end))
            return end

        monkeypatch.setattr(vector_update, "minimize", recorded)
    return found


class TestDescent:
    @each_kernel
    @pytest.mark.parametrize("solver", ["lbfgs", "gd"])
    @pytest.mark.parametrize("estimator", [ORKDL, MORKDL])
    def test_never_uphill(self, X, moves, estimator, solver, kernel):
        options = {**REDUCED, "n_kernel_vectors": 6, "init": GIVEN["init"][:, :6], **kernel}
        if estimator is MORKDL:
            options["kernel_vector_norm"] = "shared"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", message="The kernel is nearly")
            model = estimator(solver=solver, n_inner_iter=4, **options).fit(X)
        assert len(moves) == 6
        assert np.isfinite(model.errors_).all()
        for start, end in moves:
            assert np.isfinite(end.value)
            assert end.value <= start.value
        # Where the vectors moved, they did so for a reason.
        assert any(end.value < start.value for start, end in moves)
        if estimator is MORKDL:
            radius = np.sqrt(np.mean(np.sum(X**2, axis=1)))
            np.testing.assert_allclose(np.linalg.norm(model.kernel_vectors_, axis=1), radius)

    @pytest.mark.parametrize(
        ("estimator", "kernel", "rate", "dtype"),
        [
            *itertools.product([ORKDL, MORKDL], ["rbf", "poly", "linear"], [1.0, 1e300], [np.float64]),
            *itertools.product([ORKDL], ["rbf", "poly", "linear"], [1e10], [np.float32]),
        ],
    )
    def test_rate_that_is_too_large(self, X, dtype, estimator, kernel, rate):
        """The warning names it, and the result is finite."""
        options = {**REDUCED, **KERNELS[kernel], "kernel_vectors": X[:10], "max_iter": 3}
        model = estimator(solver="gd", learning_rate=rate, n_inner_iter=2, **options)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit(X.astype(dtype))
        messages = [str(item.message) for item in caught if item.category is ConvergenceWarning]
        assert [item.category for item in caught if item.category is not ConvergenceWarning] == []
        assert any(
            f"learning_rate={rate} raised the objective" in message or f"learning_rate={rate} would make" in message
            for message in messages
        )
        assert np.isfinite(model.errors_).all()
        assert np.isfinite(model.transform(X.astype(dtype))).all()

    @pytest.mark.parametrize("estimator", [ORKDL, MORKDL])
    def test_small_rate_is_silent_and_descends(self, X, moves, estimator):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            estimator(solver="gd", learning_rate=1e-4, gamma=0.3, **REDUCED).fit(X)
        assert all(end.value < start.value for start, end in moves)


class TestRevival:
    """Atoms that no signal uses come back as signals that nothing represents."""

    @staticmethod
    def start(model, X, spoil):
        """First atoms of which half are of no use."""
        first = clone(model).set_params(max_iter=1).fit(X)
        atoms = atoms_of(first).copy()
        assert first.n_revived_ == 0
        if spoil == "zero":
            atoms[3:] = 0.0
        elif spoil == "equal":
            atoms[3:] = atoms[0]
        else:
            atoms[3:] = -2.0 * atoms[:3]
        return atoms

    @pytest.mark.parametrize(
        ("name", "update", "spoil"),
        [
            *itertools.product(ESTIMATORS, ["gram"], ["zero"]),
            *itertools.product(["DL", "KDL", "RKDL"], ["gram"], ["equal", "opposite"]),
            *itertools.product(["DL", "KDL", "RKDL"], ["aksvd"], ["zero"]),
        ],
    )
    def test_unused_atoms(self, X, name, update, spoil):
        model = clone(ESTIMATORS[name]).set_params(atom_update=update)
        if "kernel_vectors" in model.get_params():
            model.set_params(kernel_vectors=X[:10])
        model.set_params(init=self.start(model, X, spoil)).fit(X)
        assert model.n_revived_ >= 3
        assert np.isfinite(model.errors_).all()
        codes = model.transform(X)
        assert (np.count_nonzero(codes, axis=0) > 0).all()
        assert (np.count_nonzero(codes, axis=1) <= 2).all()
        # What came back is of use: the error ends below that of the atoms that were left.
        assert model.errors_[-1] < 0.98 * model.errors_[0]

    def test_used_atoms_are_not_counted(self, X):
        assert DL(**COMMON).fit(X).n_revived_ == 0

    def test_nothing_to_revive_from(self):
        """Signals that one atom represents leave the others as they are."""
        X = np.outer(np.arange(1.0, 50.0), [1.0, 2.0, -1.0])
        model = DL(3, n_nonzero_coefs=2, random_state=0, max_iter=5).fit(X)
        assert np.isfinite(model.components_).all()
        np.testing.assert_allclose(model.inverse_transform(model.transform(X)), X, atol=1e-10)


def test_kernel_vectors_that_do_not_move_keep_their_features(X, monkeypatch):
    """Without inner iterations ORKDL computes no more kernel values than RKDL."""
    rows = []
    features = KernelMap.features

    def counted(self, signals):
        rows.append(len(signals))
        return features(self, signals)

    monkeypatch.setattr(KernelMap, "features", counted)
    totals = []
    for kind, options in ((RKDL, {}), (ORKDL, {"n_inner_iter": 0})):
        rows.clear()
        kind(4, n_kernel_vectors=8, n_nonzero_coefs=2, max_iter=4, tol=0.0, random_state=0, n_jobs=1, **options).fit(X)
        totals.append(sum(rows))
    assert totals[0] == totals[1]
