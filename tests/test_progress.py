"""What a fit shows and how it ends: the bar, Ctrl-C, steps that never go uphill, atoms that come back."""

from __future__ import annotations

import itertools
import pickle
import signal
import subprocess
import sys
import threading
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from helpers import PATIENCE, RowSlices, atoms_of, is_interrupted, moments
from rkdl import DL, KDL, MORKDL, ORKDL, RKDL, FourierDL, KDLOutlierDetector

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
each_solver = pytest.mark.parametrize("solver", ["lbfgs", "gd"])


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


class InterruptedSignals(RowSlices):
    """Signals on disk; reading them a further time after `n_left` is Ctrl-C."""

    def __init__(self, data, n_left):
        super().__init__(data)
        self.n_left = n_left

    def __getitem__(self, rows):
        self.n_left -= 1
        if self.n_left < 0:
            raise KeyboardInterrupt
        return super().__getitem__(rows)


@pytest.mark.slow
class TestInterrupt:
    """Ctrl-C goes on to the caller and leaves what the last whole iteration left."""

    @pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
    @pytest.mark.parametrize("name", ESTIMATORS)
    def test_at_whatever_moment(self, X, name):
        start = clone(ESTIMATORS[name])
        if name == "RKDL":
            start.set_params(fit_inverse_transform=True)
        fitted = pickle.dumps(clone(start).fit(X[::-1] + 1.0))
        before = pickle.loads(fitted).transform(X)
        counts = set()
        for moment in moments(lambda: clone(start).fit(X), spread=20):
            # Without an earlier fit, the estimator is not fitted until something is learned.
            fresh = clone(start)
            if is_interrupted(lambda: fresh.fit(X), moment) and not hasattr(fresh, "n_iter_"):  # noqa: B023
                with pytest.raises(NotFittedError):
                    fresh.transform(X)
            model = pickle.loads(fitted)
            if not is_interrupted(lambda: model.fit(X), moment):  # noqa: B023
                continue
            codes = model.transform(X)
            if np.array_equal(codes, before):
                continue
            counts.add(len(model.update_errors_))
            whole = clone(start).set_params(max_iter=len(model.update_errors_)).fit(X)
            np.testing.assert_array_equal(atoms_of(model), atoms_of(whole))
            np.testing.assert_array_equal(model.errors_, whole.errors_)
            np.testing.assert_array_equal(codes, whole.transform(X))
        assert len(counts) >= 4

    @pytest.mark.parametrize("n_jobs", [1, 2])
    def test_in_a_pipeline_and_a_thread(self, X, capsys, n_jobs):
        """The message says after how many iterations, the bar is closed, threads are, and a stream continues."""
        n_threads = threading.active_count()
        signals, counts = np.tile(X, (20, 1)), []
        reading = InterruptedSignals(signals, 10**9)
        DL(**COMMON).set_params(max_iter=3, n_jobs=n_jobs).fit(reading)
        n_left = 10**9 - reading.n_left
        model = DL(**COMMON).set_params(verbose=1, n_jobs=n_jobs)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(KeyboardInterrupt, match=r"DL was interrupted after ([1-3]) of 6 iterations"):
                model.fit(InterruptedSignals(signals, n_left))
        counts = len(model.update_errors_)
        shown = capsys.readouterr().err
        assert f"{counts}/6" in shown
        assert shown.endswith("\n")
        assert threading.active_count() <= n_threads + n_jobs
        assert np.isfinite(make_pipeline(StandardScaler().fit(X), model).transform(X)).all()
        assert len(model.partial_fit(X[:100]).update_errors_) == counts + 1

    def test_detector(self, X):
        """Dictionaries of a detector that are not all learned are of no use."""
        fitted = KDLOutlierDetector(n_members=2, max_iter=1, random_state=0, n_jobs=1).fit(X[:60])
        scores = fitted.score_samples(X)
        for moment in moments(lambda: clone(fitted).fit(X[60:120]), spread=6):
            model = pickle.loads(pickle.dumps(fitted))
            if is_interrupted(lambda: model.fit(X[60:120]), moment):  # noqa: B023
                np.testing.assert_array_equal(model.score_samples(X), scores)


LONG_FIT = """
import signal, sys, warnings
import numpy as np

# Where the tests run in the background, children are born deaf to SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)
from rkdl import DL, ORKDL, config_context

class Signals:
    data = np.random.default_rng(0).standard_normal((4000, 20))
    shape, dtype, n_left = data.shape, data.dtype, 100 * len(data)

    def __getitem__(self, rows):
        found = self.data[rows]
        if 0 < Signals.n_left <= len(found):
            print("running", flush=True)
        Signals.n_left -= len(found)
        return found

X = Signals.data
model = {model}.set_params(n_components=20, max_iter=10**7, tol=0.0, random_state=0)
warnings.simplefilter("error")
try:
    with config_context(kept_bytes=0):
        model.fit(Signals())
except KeyboardInterrupt as error:
    finite = bool(np.isfinite(model.transform(X)).all())
    made = len(model.update_errors_)
    print("ended", f"after {{made}} of" in str(error), made >= 1, finite, flush=True)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX signals")
@pytest.mark.parametrize("model", ["DL(n_jobs=1)", "ORKDL(kernel_vectors='random', init=X[:20] @ X[:50].T, n_jobs=2)"])
def test_signal(model):
    """A real SIGINT ends a fit that would never end, and leaves what it learned."""
    code, pipes = LONG_FIT.format(model=model), {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    child = subprocess.Popen([sys.executable, "-c", code], text=True, **pipes)
    killer = threading.Timer(PATIENCE, child.kill)
    killer.start()
    try:
        assert child.stdout.readline() == "running\n", child.stderr.read()
        child.send_signal(signal.SIGINT)
        out, err = child.communicate()
    finally:
        killer.cancel()
        child.kill()
        child.wait()
    assert out == "ended True True True\n", err
    assert child.returncode == 0


class TestDescent:
    @pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
    @each_solver
    def test_never_uphill(self, X, solver, kernel):
        """An update ends below the error of the codes that it started from, and moving vectors pays."""
        options = {**REDUCED, "n_kernel_vectors": 6, "init": GIVEN["init"][:, :6], **kernel}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", message="The kernel is nearly")
            model = ORKDL(solver=solver, n_inner_iter=4, **options).fit(X)
            fixed = RKDL(**options).fit(X)
        assert np.isfinite(model.update_errors_).all()
        assert (model.update_errors_[1 : model.n_iter_] <= model.errors_[:-1] * (1 + 1e-6)).all()
        assert model.errors_[-1] <= fixed.errors_[-1]

    @pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
    @each_solver
    def test_vectors_of_one_norm_keep_it(self, X, solver, kernel):
        options = {**REDUCED, "kernel_vector_norm": "shared", **kernel}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.filterwarnings("ignore", message="The kernel is nearly")
            model = MORKDL(solver=solver, n_inner_iter=4, **options).fit(X)
        radius = np.sqrt(np.mean(np.sum(X**2, axis=1)))
        np.testing.assert_allclose(np.linalg.norm(model.kernel_vectors_, axis=1), radius)
        assert np.isfinite(model.errors_).all()

    @pytest.mark.parametrize(
        ("estimator", "kernel", "rate", "dtype"),
        [
            *itertools.product([ORKDL], ["rbf", "poly", "linear"], [1.0, 1e300], [np.float64]),
            *((MORKDL, "rbf", 1.0, np.float64), (ORKDL, "poly", 1e10, np.float32)),
        ],
    )
    def test_rate_that_is_too_large(self, X, dtype, estimator, kernel, rate):
        """The warning names it, and the result is finite."""
        options = {**REDUCED, **KERNELS[kernel], "kernel_vectors": X[:10], "max_iter": 3}
        model = estimator(solver="gd", learning_rate=rate, n_inner_iter=2, **options)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit(X.astype(dtype))
        assert {item.category for item in caught} == {ConvergenceWarning}
        assert any(
            f"learning_rate={rate} raised the objective" in message or f"learning_rate={rate} would make" in message
            for message in (str(item.message) for item in caught)
        )
        assert np.isfinite(model.errors_).all()
        assert np.isfinite(model.transform(X.astype(dtype))).all()


class TestRevival:
    """Atoms that no signal uses come back as signals that nothing represents."""

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
        first = clone(model).set_params(max_iter=1).fit(X)
        atoms = atoms_of(first).copy()
        assert first.n_revived_ == 0
        # Half of the first atoms are of no use.
        atoms[3:] = {"zero": 0.0, "equal": atoms[0], "opposite": -2.0 * atoms[:3]}[spoil]
        model.set_params(init=atoms).fit(X)
        assert model.n_revived_ >= 3
        assert np.isfinite(model.errors_).all()
        codes = model.transform(X)
        assert (np.count_nonzero(codes, axis=0) > 0).all()
        assert (np.count_nonzero(codes, axis=1) <= 2).all()
        # What came back is of use: the error ends below that of the atoms that were left.
        assert model.errors_[-1] < 0.98 * model.errors_[0]
