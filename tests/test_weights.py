"""Weights of signals: two is as the same signal twice, zero as its absence, for the same start."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

from helpers import poor_models
from rkdl import DL, KDL, MORKDL, ORKDL, RKDL, FourierDL

pytestmark = [poor_models, pytest.mark.usefixtures("one_thread")]

RNG = np.random.default_rng(0)
X = RNG.standard_normal((150, 6))
WEIGHTS = RNG.integers(0, 4, 150).astype(float)
REPEATED = np.repeat(X, WEIGHTS.astype(int), axis=0)
COMMON = {"n_components": 5, "n_nonzero_coefs": 2, "max_iter": 5, "tol": 0.0, "random_state": 0}
KERNEL = {**COMMON, "gamma": 0.2, "kernel_vectors": X[:10], "init": RNG.standard_normal((5, 10))}
METHODS = {
    "DL": DL(**COMMON, init=np.eye(5, 6)),
    "FourierDL": FourierDL(**COMMON, gamma=0.2, n_fourier_features=40, init=RNG.standard_normal((5, 40))),
    "RKDL": RKDL(**KERNEL),
    "ORKDL": ORKDL(**KERNEL),
    "ORKDL-gd": ORKDL(**KERNEL, solver="gd"),
    "MORKDL": MORKDL(**KERNEL),
}
each_method = pytest.mark.parametrize("name", METHODS)


def agree(first, second):
    for name in ("errors_", "update_errors_"):
        np.testing.assert_allclose(getattr(first, name), getattr(second, name), rtol=1e-9)
    np.testing.assert_allclose(first.reconstruction_error(X), second.reconstruction_error(X), rtol=1e-6)


@each_method
def test_two_is_twice(name):
    expected = clone(METHODS[name]).fit(REPEATED)
    agree(clone(METHODS[name]).fit(X, sample_weight=WEIGHTS), expected)
    halves = clone(METHODS[name]).fit(X, sample_weight=0.5 * WEIGHTS)
    np.testing.assert_allclose(halves.errors_, expected.errors_, rtol=1e-6)


@each_method
def test_a_stream(name):
    weighted, twice = clone(METHODS[name]), clone(METHODS[name])
    for half in (slice(75), slice(75, 150)):
        weighted.partial_fit(X[half], sample_weight=WEIGHTS[half])
        twice.partial_fit(np.repeat(X[half], WEIGHTS[half].astype(int), axis=0))
    agree(weighted, twice)


@each_method
def test_on_a_cluster(name):
    """Threads of Dask; with weights of zero too, whose signals stay where they are."""
    dask = pytest.importorskip("dask.array")
    found = clone(METHODS[name]).fit(dask.from_array(X, chunks=(40, 6)), sample_weight=WEIGHTS)
    agree(found, clone(METHODS[name]).fit(REPEATED))


@each_method
def test_on_tensors(name):
    torch = pytest.importorskip("torch")
    found = clone(METHODS[name]).fit(torch.tensor(X), sample_weight=torch.tensor(WEIGHTS))
    np.testing.assert_allclose(found.errors_, clone(METHODS[name]).fit(REPEATED).errors_, rtol=1e-8)


@pytest.mark.parametrize("is_precomputed", [False, True])
def test_full_kdl(is_precomputed):
    options = {**COMMON, "gamma": 0.2}
    kept = WEIGHTS > 0.0
    start = RNG.standard_normal((5, 150)) * kept
    twice = KDL(**options, init=np.repeat(start / np.maximum(WEIGHTS, 1.0), WEIGHTS.astype(int), axis=1)).fit(REPEATED)
    if is_precomputed:
        squares = ((X[:, None] - X) ** 2).sum(2)
        found = KDL(**COMMON, kernel="precomputed", init=start).fit(np.exp(-0.2 * squares), sample_weight=WEIGHTS)
        # Relative to as many numbers as a signal has: 150 kernel values.
        found.errors_ = found.errors_ * np.sqrt(150 / 6)
    else:
        found = KDL(**options, init=start[:, kept]).fit(X, sample_weight=WEIGHTS)
    np.testing.assert_allclose(found.errors_, twice.errors_, rtol=1e-9)


@pytest.mark.parametrize("zeros", [False, True])
def test_the_error_of_signals_far_off(zeros):
    """Sums over signals have no digits for it."""
    weights = WEIGHTS if zeros else WEIGHTS + 0.3
    far = X * 3.0 + 1e8
    model = DL(5, n_nonzero_coefs=4, max_iter=3, random_state=0).fit(far, sample_weight=weights)
    expected = np.sqrt(weights @ model.reconstruction_error(far) ** 2 / (weights.sum() * X.shape[1]))
    assert model.errors_[-1] == pytest.approx(expected, rel=1e-6)


def test_refusals(tmp_path):
    with pytest.raises(ValueError, match="use 'gram' with sample_weight"):
        DL(4, atom_update="aksvd").fit(X, sample_weight=WEIGHTS)
    with pytest.raises(ValueError, match="checkpoint does not hold weights"):
        DL(4).fit(X, sample_weight=WEIGHTS, checkpoint=tmp_path / "fit.rkdl")
    with pytest.raises(ValueError, match="do not wait for others"):
        RKDL(**COMMON).partial_fit(X[:5], sample_weight=WEIGHTS[:5] + 1.0)
    with pytest.raises(ValueError, match="Negative"):
        DL(4).fit(X, sample_weight=-WEIGHTS)
    with pytest.raises(ValueError, match=r"inconsistent|shape"):
        DL(4).fit(X, sample_weight=WEIGHTS[1:])
