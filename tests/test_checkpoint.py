"""Checkpoints and saved models: resumed fits are bitwise identical, files are never half written and hold no code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import zipfile
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

import rkdl
from helpers import PATIENCE, Estimators, RowSlices, correlated_signals, fitted_bytes, make, poor_models
from rkdl import DL, RKDL, config_context, kernels

pytestmark = poor_models

ESTIMATORS = Estimators(
    *("DL-lasso", "DL-positive", "DL", "DL-aksvd", "FourierDL", "KDL", "KDL-aksvd", "RKDL", "RKDL-poly-kmeans"),
    *("ORKDL", "ORKDL-gd", "MORKDL", "MORKDL-gd"),
    max_iter=5,
)
ESTIMATORS["RKDL-many-atoms"] = make(RKDL, n_components=60, n_nonzero_coefs=1, max_iter=5)
each_estimator, copy_of = ESTIMATORS.each(), ESTIMATORS.copy_of


def advanced(state, method, *arguments):
    getattr(state, method)(*arguments)
    return state


def signals():
    return correlated_signals(700)


@pytest.fixture(scope="module")
def X():
    return signals()


@each_estimator
def test_a_resumed_fit_is_bitwise_identical(name, X, tmp_path):
    path = tmp_path / "fit.rkdl"
    expected = fitted_bytes(copy_of(name).fit(X))
    for made in (1, 3, 5, 5):
        model = copy_of(name, max_iter=made).fit(X, checkpoint=path)
        assert model.n_iter_ == made
    assert fitted_bytes(model) == expected
    assert [file.name for file in tmp_path.iterdir()] == ["fit.rkdl"]


@pytest.mark.parametrize("make_state", [lambda: None, lambda: np.random.RandomState(3)])
def test_randomness_is_spent_once(make_state, X, tmp_path):
    """What was drawn before the checkpoint is in it."""
    path = tmp_path / "fit.rkdl"
    first, second = (
        copy_of("RKDL", kernel_vectors="random", max_iter=made, random_state=make_state()).fit(X, checkpoint=path)
        for made in (2, 3)
    )
    assert np.array_equal(first.kernel_vectors_, second.kernel_vectors_)
    assert np.array_equal(first.errors_, second.errors_[:2])


def test_a_fit_that_had_settled_stays_so(X, tmp_path):
    path = tmp_path / "fit.rkdl"
    model = copy_of("RKDL", tol=0.01, max_iter=50).fit(X, checkpoint=path)
    assert model.n_iter_ < 50
    assert fitted_bytes(copy_of("RKDL", tol=0.01, max_iter=80).fit(X, checkpoint=path)) == fitted_bytes(model)


def test_out_of_core_and_other_threads(X, tmp_path):
    stored = np.memmap(tmp_path / "X.dat", dtype=X.dtype, mode="w+", shape=X.shape)
    stored[:] = X
    path = str(tmp_path / "fit.rkdl")
    copy_of("ORKDL", max_iter=2, n_jobs=1).fit(stored, checkpoint=path)
    assert fitted_bytes(copy_of("ORKDL", n_jobs=2).fit(X, checkpoint=path)) == fitted_bytes(copy_of("ORKDL").fit(X))


class TestRefusals:
    @pytest.fixture
    def path(self, X, tmp_path):
        copy_of("RKDL", max_iter=2).fit(X, checkpoint=tmp_path / "fit.rkdl")
        return tmp_path / "fit.rkdl"

    def refuse(self, path, words, X, model=None):
        before = path.read_bytes()
        with pytest.raises(ValueError, match=words) as caught:
            (model or copy_of("RKDL")).fit(X, checkpoint=path)
        assert str(path) in str(caught.value)
        assert "delete it" in str(caught.value)
        assert path.read_bytes() == before

    def test_broken_and_foreign(self, path, X):
        whole = path.read_bytes()
        for content in (*(whole[:size] for size in (0, 40, len(whole) // 2, len(whole) - 1)), b"something else " * 100):
            path.write_bytes(content)
            self.refuse(path, "not a file of rkdl", X)
        damaged = bytearray(whole)
        damaged[len(whole) // 3] ^= 0xFF
        path.write_bytes(damaged)
        self.refuse(path, "truncated or not a file of rkdl", X)
        # Objects are never unpickled.
        for header in (np.zeros(3), np.array([print], dtype=object)):
            np.savez(path.open("wb"), header=header, other=np.ones(2))
            self.refuse(path, "not a file of rkdl", X)
        copy_of("RKDL").fit(X).save(path)
        self.refuse(path, "'checkpoint' but 'estimator'", X)

    def test_other_settings(self, path, X):
        self.refuse(path, "n_components is 8 there and 9 here", X, copy_of("RKDL", n_components=9))
        self.refuse(path, "estimator is RKDL there and ORKDL here", X, copy_of("ORKDL"))
        self.refuse(path, "random_state is 0 there and 1 here", X, copy_of("RKDL", random_state=1))
        self.refuse(path, "kernel_vectors is kmeans there", X, copy_of("RKDL", kernel_vectors=X[:12]))
        self.refuse(path, "iteration 2, and max_iter is 1", X, copy_of("RKDL", max_iter=1))

    def test_other_kernels(self, X, tmp_path):
        """A function is known by its values, whatever it is made of."""

        class Held:
            def __init__(self, gamma):
                self.gamma = gamma

            def __call__(self, A, B):
                return np.exp(-self.gamma * ((A[:, None] - B) ** 2).sum(axis=-1))

        kinds = {
            "object": Held,
            "method": lambda gamma: Held(gamma).__call__,
            "closure": lambda gamma: lambda A, B: Held(gamma)(A, B),
        }
        for name, kernel in kinds.items():
            path = tmp_path / name
            copy_of("RKDL", kernel=kernel(0.1), max_iter=1).fit(X[:60], checkpoint=path)
            self.refuse(path, "kernel is a function with the values", X[:60], copy_of("RKDL", kernel=kernel(5.0)))
            model = copy_of("RKDL", kernel=kernel(0.1), max_iter=2).fit(X[:60], checkpoint=path)
            assert model.n_iter_ == 2

    def test_refused_before_any_pass_over_the_data(self, path, X):
        class Source(RowSlices):
            n_read = 0

            def __getitem__(self, rows):
                found = super().__getitem__(rows)
                Source.n_read += len(found)
                return found

        path.write_bytes(b"nothing of ours")
        with pytest.raises(ValueError, match="not a file of rkdl"):
            copy_of("RKDL").fit(Source(X), checkpoint=path)
        assert Source.n_read < len(X)
        with pytest.raises(FileNotFoundError, match="does not exist: make it first"):
            copy_of("RKDL").fit(X, checkpoint=path.parent / "nowhere" / "fit.rkdl")

    def test_other_signals(self, path, X):
        """Any other number in any row, too."""
        self.refuse(path, "shape of X", X[:-1])
        self.refuse(path, "dtype of X is float64 there and float32 here", X.astype(np.float32))
        with config_context(chunk_rows=100):
            self.refuse(path, "chunks", X)
        next_number = X.copy()
        next_number[350, 3] = np.nextafter(X[350, 3], np.inf)
        swapped, without_last = X[np.r_[1, 0, 2 : len(X)]], np.where(np.arange(len(X))[:, None] == 699, 0.0, X)
        for other in (next_number, X[::-1], swapped, X[:, ::-1], sparse.csr_array(without_last), X + 1.0):
            self.refuse(path, "digest of all numbers in X", other)

    @pytest.mark.parametrize("kind", ["memory map", "dask", "tensor", "precomputed", "function"])
    def test_other_numbers_of_every_source(self, kind, X, tmp_path):
        path, model = tmp_path / "fit.rkdl", copy_of("RKDL", max_iter=2)
        stored = np.memmap(tmp_path / "X.dat", dtype=X.dtype, mode="w+", shape=X.shape)
        stored[:] = X
        given = lambda: stored  # noqa: E731
        if kind == "dask":
            array = pytest.importorskip("dask.array")
            given = lambda: array.from_array(np.array(stored), chunks=(100, -1))  # noqa: E731
        elif kind == "tensor":
            torch = pytest.importorskip("torch")
            given = lambda: torch.from_numpy(np.array(stored))  # noqa: E731
        elif kind == "precomputed":
            model = copy_of("KDL", kernel="precomputed", max_iter=2)
            given = lambda: np.array(stored[:200] @ stored[:200].T)  # noqa: E731
        elif kind == "function":
            model = copy_of("RKDL", kernel=lambda A, B: (1.0 + A @ B.T) ** 2, max_iter=2)
        clone(model).fit(given(), checkpoint=path)
        clone(model).fit(given(), checkpoint=path)
        # On disk, between two runs.
        stored[123, 4] += 1e-9
        self.refuse(path, "digest of all numbers in X", given(), clone(model))

    @pytest.mark.parametrize(
        "other",
        [
            lambda: np.random.RandomState(4),
            lambda: np.random.RandomState(np.random.PCG64(3)),
            lambda: advanced(np.random.RandomState(3), "randint", 2),
            lambda: advanced(np.random.RandomState(3), "standard_normal"),
            lambda: 3,
            lambda: None,
        ],
    )
    def test_other_generators(self, other, X, tmp_path):
        path, state = tmp_path / "fit.rkdl", np.random.RandomState(3)
        copy_of("RKDL", max_iter=2, random_state=state).fit(X, checkpoint=path)
        self.refuse(path, "random_state is RandomState", X, copy_of("RKDL", random_state=other()))
        # It has advanced.
        self.refuse(path, "random_state is RandomState", X, copy_of("RKDL").set_params(random_state=state))

    @pytest.mark.parametrize(
        ("version", "words"), [(1, "earlier version. Fit again"), (2, "earlier version"), (99, "later version. Update")]
    )
    def test_other_format(self, path, X, version, words):
        with np.load(path) as stored:
            arrays = dict(stored)
        header = json.loads(arrays.pop("header").tobytes())
        header["format"] = version
        np.savez(path.open("wb"), header=np.frombuffer(json.dumps(header).encode(), dtype=np.uint8), **arrays)
        self.refuse(path, f"format {version} .*{words}", X)


CHILD = """
import os, sys
sys.path.insert(0, {tests!r})
import numpy as np
from helpers import RowSlices
from test_checkpoint import SLOW, signals

class Killed(RowSlices):
    n_left = {n_left}

    def __getitem__(self, rows):
        found = super().__getitem__(rows)
        Killed.n_left -= len(found)
        if Killed.n_left < 0:
            os.kill(os.getpid(), 9)
        return found

{before}
SLOW.fit(Killed(signals()), checkpoint={path!r})
"""
SLOW = make(DL, max_iter=20)


def run_child(path, before="", n_left=10**9):
    code = CHILD.format(tests=str(Path(__file__).parent), path=str(path), before=before, n_left=n_left)
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=PATIENCE).returncode == -signal.SIGKILL


@pytest.mark.slow
def test_killed_at_any_moment(X, tmp_path):
    """Every new process resumes, and the last result is bitwise identical."""
    path = tmp_path / "fit.rkdl"
    for n_left in (5000, 7100):
        run_child(path, n_left=n_left)
    assert path.exists()
    assert fitted_bytes(clone(SLOW).fit(X, checkpoint=path)) == fitted_bytes(clone(SLOW).fit(X))


@pytest.mark.slow
@pytest.mark.parametrize(
    "before",
    [
        # In the middle of the file, before it is on the disk, before it has its name.
        "whole = np.savez\n"
        "def savez(file, **arrays):\n"
        "    whole(file, **arrays)\n"
        "    if os.path.exists({path!r}):\n"
        "        file.truncate(file.tell() // 2); file.flush(); os.kill(os.getpid(), 9)\n"
        "np.savez = savez",
        "done = os.fsync\nos.fsync = lambda file: os.kill(os.getpid(), 9) if os.path.exists({path!r}) else done(file)",
        "done = os.replace\n"
        "os.replace = lambda *names: os.kill(os.getpid(), 9) if os.path.exists({path!r}) else done(*names)",
    ],
)
def test_killed_while_writing(before, X, tmp_path):
    """The previous checkpoint is intact, and the fit resumes from it."""
    path = tmp_path / "fit.rkdl"
    run_child(path, before.format(path=str(path)))
    (leftover,) = tmp_path.glob(".rkdl-*.part")
    os.utime(leftover, (0, 0))
    assert fitted_bytes(clone(SLOW).fit(X, checkpoint=path)) == fitted_bytes(clone(SLOW).fit(X))
    assert [file.name for file in tmp_path.iterdir()] == ["fit.rkdl"]


class TestSaving:
    @each_estimator
    def test_same_estimator(self, name, X, tmp_path):
        model = copy_of(name).fit(X)
        model.save(tmp_path / "model.rkdl")
        found = rkdl.load(tmp_path / "model.rkdl")
        assert type(found) is type(model)
        assert found.get_params() == model.get_params()
        assert fitted_bytes(found) == fitted_bytes(model)
        assert found.transform(X).tobytes() == model.transform(X).tobytes()
        assert fitted_bytes(clone(found).fit(X)) == fitted_bytes(model)

    def test_arrays_among_the_parameters(self, X, tmp_path):
        model = copy_of("RKDL", kernel_vectors=X[:12].tolist(), random_state=np.random.RandomState(1)).fit(X)
        with pytest.raises(ValueError, match="set random_state to a number, or None"):
            model.save(tmp_path / "model.rkdl")
        model.set_params(random_state=None).save(tmp_path / "model.rkdl")
        assert np.array_equal(rkdl.load(tmp_path / "model.rkdl").kernel_vectors, X[:12])

    @pytest.mark.parametrize(
        "model",
        [
            make(DL, tol=np.longdouble(0.1)),
            make(RKDL, kernel=kernels.RBF(np.longdouble(0.1))),
            make(RKDL, kernel=kernels.RBF(Fraction(1, 8))),
        ],
    )
    def test_numbers_of_any_class(self, model, X, tmp_path):
        """They are saved, and come back as numbers of Python; a checkpoint takes them too."""
        clone(model).fit(X).save(tmp_path / "model.rkdl")
        found = rkdl.load(tmp_path / "model.rkdl")
        clone(found).fit(X).save(tmp_path / "again.rkdl")
        assert (tmp_path / "again.rkdl").read_bytes() == (tmp_path / "model.rkdl").read_bytes()
        for given in (model, found):
            clone(given).fit(X, checkpoint=tmp_path / "fit.rkdl")

    def test_names_of_features(self, X, tmp_path):
        model = copy_of("DL").fit(X)
        model.feature_names_in_ = np.array([f"pixel {i}" for i in range(20)], dtype=object)
        model.save(tmp_path / "model.rkdl")
        assert list(rkdl.load(tmp_path / "model.rkdl").feature_names_in_) == list(model.feature_names_in_)

    def test_a_function_is_given_again(self, X, tmp_path):
        def kernel(X, Y):
            return (1.0 + X @ Y.T) ** 2

        model = copy_of("RKDL", kernel=kernel).fit(X)
        model.save(tmp_path / "model.rkdl")
        with pytest.raises(ValueError, match=r"load\(path, kernel="):
            rkdl.load(tmp_path / "model.rkdl")
        assert np.array_equal(rkdl.load(tmp_path / "model.rkdl", kernel=kernel).transform(X), model.transform(X))

    def test_refusals(self, X, tmp_path):
        path = tmp_path / "model.rkdl"
        with pytest.raises(FileNotFoundError):
            rkdl.load(path)
        copy_of("RKDL", max_iter=1).fit(X, checkpoint=path)
        with pytest.raises(ValueError, match="'estimator' but 'checkpoint'"):
            rkdl.load(path)
        path.write_bytes(b"no such thing")
        with pytest.raises(ValueError, match="not a file of rkdl"):
            rkdl.load(path)
        with pytest.raises(ValueError, match="not fitted"):
            DL().save(path)
        before = path.read_bytes()
        for model in (copy_of("RKDL").fit(X).set_params(tol="none"), type("Own", (DL,), {})().fit(X)):
            with pytest.raises(ValueError, match=r"'tol'|Own is not an estimator of rkdl"):
                model.save(path)
        assert path.read_bytes() == before

    def test_the_file_is_plain(self, X, tmp_path):
        """Arrays and JSON, nothing that a pickle could hide in."""
        copy_of("ORKDL").fit(X).save(tmp_path / "model.rkdl")
        with zipfile.ZipFile(tmp_path / "model.rkdl") as archive:
            assert all(name.endswith(".npy") for name in archive.namelist())
        with np.load(tmp_path / "model.rkdl", allow_pickle=False) as stored:
            assert json.loads(stored["header"].tobytes())["estimator"] == "ORKDL"

    @pytest.mark.parametrize("broken", ["parameters", "attributes", "attribute.gram_", "list"])
    def test_headers_that_do_not_fit(self, broken, X, tmp_path):
        path = tmp_path / "model.rkdl"
        copy_of("RKDL").fit(X).save(path)
        with np.load(path) as stored:
            arrays = dict(stored)
        header = json.loads(arrays.pop("header").tobytes())
        arrays.pop(broken, None)
        header = {**header, "attributes": [1]} if broken == "list" else header
        header.pop(broken, None)
        np.savez(path.open("wb"), header=np.frombuffer(json.dumps(header).encode(), dtype=np.uint8), **arrays)
        with pytest.raises(ValueError, match=r"model\.rkdl was changed"):
            rkdl.load(path)
