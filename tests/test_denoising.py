"""From codes back to signals: pre-images that are the best there are, decoders from sums, and cleaned signals."""

from __future__ import annotations

import itertools
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.decomposition import PCA, KernelPCA
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.metrics.pairwise import laplacian_kernel, rbf_kernel
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import helpers
import rkdl
from helpers import CLASSES, KERNEL, REDUCED, by_class, cover, poor_models
from rkdl import DL, KDL, MORKDL, ORKDL, RKDL, FourierDL, config_context
from rkdl._coding.preimages import (
    NOISE_GAIN,
    DecoderSums,
    FixedPoint,
    learn_decoder,
    solve_decoder,
    squared_residual_of_noise,
)

pytestmark = poor_models

SIZES = {"n_components": 12, "n_nonzero_coefs": 4, "n_kernel_vectors": 20, "n_fourier_features": 64, "max_iter": 3}
DECODED = [*KERNEL, FourierDL]

every, every_decoded, every_streamed = map(by_class, (CLASSES, DECODED, [*REDUCED, FourierDL]))


def make(kind, **changes):
    if kind is DL:
        changes.pop("fit_inverse_transform", None)
    return helpers.make(kind, **{**SIZES, "tol": 1e-4, **changes})


@pytest.fixture(scope="module")
def X(digits):
    return digits[:300] / 16.0


@pytest.fixture(scope="module")
def X_new(digits):
    return digits[300:360] / 16.0


def loss(x, weights, vectors, gamma):
    """``|phi(x) - sum_i c_i phi(d_i)|^2`` and its gradient, in the plainest NumPy."""

    def kernel(a, b):
        return np.exp(-gamma * np.sum((a - b) ** 2))

    value = 1.0
    for c, d in zip(weights, vectors, strict=True):
        for e, f in zip(weights, vectors, strict=True):
            value += c * e * kernel(d, f)
    gradient = np.zeros_like(x)
    for c, d in zip(weights, vectors, strict=True):
        value -= 2.0 * c * kernel(x, d)
        gradient += 4.0 * gamma * c * kernel(x, d) * (x - d)
    return value, gradient


def best_by_force(weights, vectors, gamma):
    """The smallest loss that BFGS finds from every kernel vector and from the mean."""
    starts = [*vectors, vectors.mean(axis=0)]
    runs = [minimize(loss, start, (weights, vectors, gamma), jac=True, options={"gtol": 1e-9}) for start in starts]
    return min(runs, key=lambda run: run.fun)


def random_problem(seed, gamma, positive):
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((6, 3))
    weights = rng.standard_normal(6)
    heights = np.exp(-gamma * ((vectors[:, None] - vectors) ** 2).sum(axis=2)) @ weights
    if positive:
        weights = np.abs(weights)
    elif heights.max() <= 0.0:
        # A point that no signal's image is near has its nearest one at infinity.
        weights = -weights
    return weights, vectors, gamma


def iterate(weights, vectors, gamma, dtype=np.float64):
    """The library's pre-image of one combination of kernel vectors."""
    fixed_point = FixedPoint.prepare(gamma, weights[None], vectors, np.dtype(dtype))
    return fixed_point(np.ones((1, 1), dtype=dtype))[0]


class TestFixedPoint:
    @pytest.mark.slow
    @pytest.mark.parametrize("positive", [True, False])
    @pytest.mark.parametrize("gamma", [0.01, 0.1, 0.5, 2.0])
    def test_agrees_with_minimisation_by_force(self, gamma, positive):
        reached = 0
        for seed in range(10):
            problem = random_problem(seed, gamma, positive)
            found = iterate(*problem)
            value, gradient = loss(found, *problem)
            force = best_by_force(*problem)
            assert value >= force.fun - 1e-9
            reached += value <= force.fun + 1e-6
            if problem[0] @ np.exp(-gamma * ((found - problem[1]) ** 2).sum(axis=1)) > 1e-3:
                # A stationary point, whether or not it is the lowest.
                assert np.abs(gradient).max() < 1e-5
        # A greedy start may end in another valley of a loss that has several; mostly it does not.
        assert reached >= 8

    def test_a_signal_that_is_a_kernel_vector_is_found(self):
        vectors = np.random.default_rng(0).standard_normal((5, 4))
        for i in range(5):
            np.testing.assert_allclose(iterate(np.eye(5)[i], vectors, 1.0), vectors[i], atol=1e-6)

    def test_does_not_depend_on_the_length_of_the_code(self):
        weights, vectors, gamma = random_problem(3, 0.3, positive=False)
        for factor in (1e-60, 1e-3, 1e60):
            np.testing.assert_allclose(
                iterate(weights * factor, vectors, gamma), iterate(weights, vectors, gamma), rtol=1e-5
            )

    def test_moves_with_the_kernel_vectors(self):
        weights, vectors, gamma = random_problem(3, 0.3, positive=False)
        shifted = iterate(weights, vectors + 1000.0, gamma)
        np.testing.assert_allclose(shifted - 1000.0, iterate(weights, vectors, gamma), atol=1e-5)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("gamma", [1e-30, 1e-6, 1.0, 1e6, 1e30])
    def test_never_gives_what_is_not_finite(self, gamma, dtype):
        vectors = np.array([[0.0, 1.0], [0.0, 1.0 + 1e-6], [30.0, 0.0]])
        signs = [[1, 1, 1], [1, -1, 1], [-1, -1, -1], [1, -1, 0], [0, 0, 0], [1e-30, 1e30, -1e30]]
        codes = np.array(signs, dtype=dtype)
        fixed_point = FixedPoint.prepare(gamma, np.eye(3), vectors, np.dtype(dtype))
        with np.errstate(all="raise", under="ignore"):
            found = fixed_point(codes)
        assert found.dtype == dtype
        assert np.isfinite(found).all()

    def test_weights_that_cancel_do_not_run_away(self):
        # The plain iteration divides by a sum that changes its sign on the way.
        vectors = np.array([[0.0], [1.0], [2.0]])
        for weight in np.linspace(-1.2, -0.4, 30):
            found = iterate(np.array([1.0, weight, 0.3]), vectors, 0.2)
            value, _ = loss(found, np.array([1.0, weight, 0.3]), vectors, 0.2)
            nearest = min(loss(vector, np.array([1.0, weight, 0.3]), vectors, 0.2)[0] for vector in vectors)
            assert value <= nearest + 1e-12

    def test_a_code_of_zeros_is_the_centre(self):
        vectors = np.array([[0.0, 1.0], [4.0, 3.0]])
        fixed_point = FixedPoint.prepare(1.0, np.eye(2), vectors, np.dtype(float))
        np.testing.assert_array_equal(fixed_point(np.zeros((1, 2))), [[2.0, 2.0]])

    def test_one_point_for_all_kernel_vectors(self):
        vectors = np.ones((3, 2))
        np.testing.assert_allclose(iterate(np.array([1.0, 2.0, -1.0]), vectors, 1.0), [1.0, 1.0])


def sums_of(codes, signals):
    sums = codes.T @ codes, codes.T @ signals, codes.sum(axis=0), signals.sum(axis=0), float(len(codes))
    return DecoderSums(*sums)


class TestDecoder:
    def test_is_the_ridge_regression_in_feature_space(self):
        rng = np.random.default_rng(0)
        codes, signals, atoms = rng.standard_normal((50, 5)), rng.standard_normal((50, 3)), rng.standard_normal((5, 8))
        points = codes @ atoms
        alpha = 0.02
        penalty = alpha * np.trace(points.T @ points) / 5
        matrix = np.linalg.solve(points.T @ points + penalty * np.eye(8), points.T @ signals)
        found = solve_decoder(codes.T @ codes, codes.T @ signals, atoms @ atoms.T, alpha)
        np.testing.assert_allclose(codes @ found, points @ matrix, atol=1e-10)

    def test_with_an_intercept_is_the_ridge_regression_of_scikit_learn(self):
        rng = np.random.default_rng(0)
        codes, atoms = rng.standard_normal((50, 5)) + 1.0, rng.standard_normal((5, 8))
        signals = rng.standard_normal((50, 3)) + 100.0
        points = codes @ atoms
        away = points - points.mean(axis=0)
        alpha = 0.02
        expected = Ridge(alpha * np.trace(away.T @ away) / 5).fit(points, signals).predict(points)
        matrix, intercept = learn_decoder(sums_of(codes, signals), atoms @ atoms.T, alpha, unit_length=False)
        np.testing.assert_allclose(codes @ matrix + intercept, expected, atol=1e-9)

    @cover("dtype", DECODED, [np.float64, np.float32], base=[RKDL])
    def test_an_offset_of_the_signals_is_that_of_what_is_decoded(self, kind, dtype, X, X_new):
        sizes = {"n_components": 30, "n_nonzero_coefs": 8, "gamma": 0.1, "fit_inverse_transform": True}
        errors = []
        for offset in (0.0, 10.0, 1000.0):
            own = {"kernel_vectors": X[:40] + offset} if kind in (RKDL, ORKDL, MORKDL) else {}
            model = make(kind, **sizes, **own).fit((X + offset).astype(dtype))
            errors.append(np.mean((model.denoise((X_new + offset).astype(dtype)) - offset - X_new) ** 2))
        assert errors[1] < 1.1 * errors[0]
        assert errors[2] < 1.1 * errors[0]

    @pytest.mark.parametrize("offset", [0.0, 10.0])
    def test_a_linear_kernel_is_decoded_no_worse_than_by_its_atoms(self, offset, X):
        rows = X + offset
        model = make(RKDL, kernel="linear").fit(rows)
        exact = np.sum((model.denoise(rows) - rows) ** 2)
        model.set_params(decoder_alpha=0.0).fit_decoder(rows)
        assert np.sum((model.denoise(rows) - rows) ** 2) <= exact * (1.0 + 1e-9)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("factor", [1e-30, 1e-12, 1e12, 1e30])
    def test_the_length_of_a_code_does_not_matter(self, factor, dtype, X):
        model = make(RKDL, fit_inverse_transform=True).fit(X.astype(dtype))
        codes = model.transform(X.astype(dtype))
        expected = model.inverse_transform(codes)
        for given in (codes * dtype(factor), sparse.csr_array(codes * dtype(factor))):
            np.testing.assert_allclose(model.inverse_transform(given), expected, atol=1e-5)

    @pytest.mark.parametrize("kernel", [laplacian_kernel, partial(rbf_kernel, gamma=0.1)], ids=["laplacian", "rbf"])
    def test_functions_whose_signals_have_one_length(self, kernel, X, X_new):
        sizes = {"n_components": 30, "n_kernel_vectors": 60, "n_nonzero_coefs": 8, "fit_inverse_transform": True}
        model = make(RKDL, kernel=kernel, **sizes).fit(X)
        assert model._space.has_unit_norms
        np.testing.assert_allclose(model.inverse_transform(np.zeros((1, 30)))[0], X.mean(axis=0), atol=1e-12)
        noisy = X_new + np.random.default_rng(0).normal(scale=0.25, size=X_new.shape)
        assert np.mean((model.denoise(noisy) - X_new) ** 2) < 0.6 * 0.25**2
        assert not make(RKDL, kernel=lambda A, B: (1.0 + A @ B.T) ** 2).fit(X)._space.has_unit_norms

    @every_decoded
    def test_codes_from_elsewhere(self, kind, X, tmp_path):
        model = make(kind, fit_inverse_transform=True).fit(X)
        codes = model.transform(X)
        stored = np.memmap(tmp_path / "codes", dtype=np.float64, mode="w+", shape=codes.shape)
        stored[:] = codes
        expected = model.inverse_transform(codes)
        np.testing.assert_allclose(model.inverse_transform(stored), expected, atol=1e-12)
        dask = pytest.importorskip("dask.array")
        lazy = model.inverse_transform(dask.from_array(codes, chunks=(100, 5)))
        assert isinstance(lazy, dask.Array)
        assert lazy.shape == X.shape
        np.testing.assert_allclose(lazy.compute(), expected, atol=1e-12)
        with pytest.raises(ValueError, match="12 atoms"):
            model.inverse_transform(dask.from_array(X))

    def test_a_decoder_is_forgotten(self, X):
        model = make(RKDL, random_state=0).fit(X)
        expected = model.denoise(X)
        assert not np.allclose(model.fit_decoder(X).denoise(X), expected)
        np.testing.assert_array_equal(model.forget_decoder().denoise(X), expected)
        assert not hasattr(model, "decoder_intercept_")

    @every_decoded
    def test_a_code_of_zeros_is_the_mean(self, kind, X):
        model = make(kind, fit_inverse_transform=True).fit(X)
        np.testing.assert_allclose(model.inverse_transform(np.zeros((1, 12)))[0], X.mean(axis=0), atol=1e-12)

    def test_atoms_that_are_equal_and_codes_that_are_zero(self):
        rng = np.random.default_rng(0)
        codes = rng.standard_normal((30, 3))
        codes[:, 2] = 0.0
        signals = codes @ np.array([[1.0, 2.0], [1.0, 2.0], [5.0, 5.0]])
        gram = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
        found = solve_decoder(codes.T @ codes, codes.T @ signals, gram, 0.0)
        np.testing.assert_allclose(codes @ found, signals, atol=1e-8)
        zeros = solve_decoder(np.zeros((3, 3)), np.zeros((3, 2)), gram, 0.1)
        np.testing.assert_array_equal(zeros, np.zeros((3, 2)))

    @every_decoded
    def test_fit_learns_what_fit_decoder_learns(self, kind, X):
        model = make(kind, fit_inverse_transform=True).fit(X)
        other = make(kind).fit(X)
        assert not hasattr(other, "decoder_")
        np.testing.assert_allclose(other.fit_decoder(X).decoder_, model.decoder_, atol=1e-10)
        codes = model.transform(X)
        gram = model._encoder(np.dtype(float)).gram
        codes /= np.sqrt(np.diag(codes @ gram @ codes.T))[:, None]
        expected, mean = learn_decoder(sums_of(codes, X), gram, 1e-3, unit_length=True)
        np.testing.assert_allclose(mean, X.mean(axis=0), atol=1e-12)
        np.testing.assert_allclose(model.decoder_, expected, atol=1e-8)
        np.testing.assert_allclose(model.decoder_intercept_, mean, atol=1e-10)
        signals = model.inverse_transform(7.0 * model.transform(X))
        np.testing.assert_allclose(signals, mean + codes @ expected, atol=1e-8)

    @every_decoded
    def test_learning_is_the_same_with_and_without(self, kind, X):
        plain, decoded = make(kind).fit(X), make(kind, fit_inverse_transform=True).fit(X)
        np.testing.assert_array_equal(plain.errors_, decoded.errors_)
        np.testing.assert_array_equal(plain.transform(X), decoded.transform(X))

    @every_decoded
    def test_another_fit_forgets_the_decoder(self, kind, X):
        model = make(kind).fit(X).fit_decoder(X)
        assert hasattr(model, "decoder_")
        model.fit(X)
        assert not hasattr(model, "decoder_")
        assert not hasattr(model, "decoder_intercept_")

    @every_decoded
    def test_reconstructs_better_than_the_mean(self, kind, X, X_new):
        model = make(kind, fit_inverse_transform=True, max_iter=10, n_components=30, n_nonzero_coefs=8).fit(X)
        error = np.mean((model.inverse_transform(model.transform(X_new)) - X_new) ** 2)
        assert error < 0.45 * np.mean((X_new - X.mean(axis=0)) ** 2)

    @pytest.mark.parametrize("kernel", ["poly", lambda X, Y: (1.0 + X @ Y.T) ** 2])
    def test_any_kernel(self, kernel, X, X_new):
        model = make(RKDL, kernel=kernel, gamma=0.1, n_components=30, n_nonzero_coefs=8).fit(X)
        with pytest.raises(NotFittedError, match=r"fit_inverse_transform=True before fit, or call fit_decoder"):
            model.inverse_transform(model.transform(X_new))
        error = np.mean((model.fit_decoder(X).denoise(X_new) - X_new) ** 2)
        assert error < 0.45 * np.mean((X_new - X.mean(axis=0)) ** 2)

    @every_decoded
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_the_number_of_threads_changes_no_bit(self, kind, dtype, X):
        rows = np.tile(X, (4, 1)).astype(dtype)
        found = []
        for n_jobs in (1, 3):
            with config_context(chunk_rows=170):
                model = make(kind, fit_inverse_transform=True, n_jobs=n_jobs).fit(rows)
            found.append((model.decoder_.tobytes(), model.denoise(rows).tobytes()))
        assert found[0] == found[1]

    @every_decoded
    def test_memory_maps(self, kind, X, tmp_path):
        stored = np.memmap(tmp_path / "signals", dtype=np.float64, mode="w+", shape=X.shape)
        stored[:] = X
        model = make(kind).fit(X)
        expected = model.fit_decoder(X)
        signals = expected.denoise(X)
        np.testing.assert_allclose(model.fit_decoder(stored).decoder_, expected.decoder_, atol=1e-12)
        np.testing.assert_allclose(model.denoise(stored), signals, atol=1e-12)

    def test_a_precomputed_kernel_has_no_signals(self, X):
        kernel = X @ X.T
        with pytest.raises(ValueError, match="cannot be turned back into signals"):
            make(KDL, kernel="precomputed", fit_inverse_transform=True).fit(kernel)
        model = make(KDL, kernel="precomputed").fit(kernel)
        for method, given in (
            ("fit_decoder", kernel),
            ("inverse_transform", model.transform(kernel)),
            ("denoise", kernel),
        ):
            with pytest.raises(ValueError, match="cannot be turned back into signals"):
                getattr(model, method)(given)


class TestStreams:
    @every_streamed
    def test_an_epoch_with_still_atoms_learns_the_decoder_of_all(self, kind, X):
        model = make(kind, fit_inverse_transform=True)
        for batch in (X[:100], X[100:130], X[130:]):
            model.partial_fit(batch, update=False)
        whole = clone(model).partial_fit(X[:100], update=False).fit_decoder(X)
        np.testing.assert_allclose(model.decoder_, whole.decoder_, atol=1e-8)

    @every_streamed
    def test_a_saved_stream_continues(self, kind, X, tmp_path):
        model = make(kind, fit_inverse_transform=True, half_life=100.0).partial_fit(X[:150])
        model.save(tmp_path / "model")
        loaded = rkdl.load(tmp_path / "model")
        np.testing.assert_array_equal(loaded.decoder_, model.decoder_)
        for stream in (model, loaded):
            stream.partial_fit(X[150:])
        np.testing.assert_allclose(loaded.decoder_, model.decoder_, rtol=1e-6, atol=1e-9)
        np.testing.assert_allclose(loaded.decoder_intercept_, model.decoder_intercept_, rtol=1e-9)

    def test_the_old_fades(self, X):
        still = {"kernel_vectors": X[:20], "init": np.eye(12, 20), "gamma": 0.1, "fit_inverse_transform": True}
        forgetful = make(RKDL, half_life=1e-3, **still)
        for batch in (X[:150] + 5.0, X[150:]):
            forgetful.partial_fit(batch, update=False)
        fresh = make(RKDL, **still).partial_fit(X[150:], update=False)
        np.testing.assert_allclose(forgetful.decoder_, fresh.decoder_, atol=1e-8)
        np.testing.assert_allclose(forgetful.decoder_intercept_, fresh.decoder_intercept_, atol=1e-8)

    @every_streamed
    def test_partial_fit_forgets_a_decoder_that_is_not_learned_on(self, kind, X):
        model = make(kind).fit(X).fit_decoder(X)
        assert not hasattr(model.partial_fit(X), "decoder_")


class TestInterface:
    @every
    @pytest.mark.parametrize("fit_inverse_transform", [False, True])
    def test_pipeline(self, kind, fit_inverse_transform, X, X_new):
        if kind is FourierDL and not fit_inverse_transform:
            pytest.skip("needs a decoder")
        model = make(kind, n_components=30, n_nonzero_coefs=10, fit_inverse_transform=fit_inverse_transform)
        # Pixels that are always zero have no deviation.
        line = make_pipeline(StandardScaler(), model).fit(X)
        signals = line.inverse_transform(line.transform(X_new))
        assert signals.shape == X_new.shape
        assert np.mean((signals - X_new) ** 2) < 0.9 * np.mean((X_new - X.mean(axis=0)) ** 2)

    @cover(
        "learned dtype",
        CLASSES,
        list(itertools.product([True, False], [np.float32, np.float64])),
        base=[DL, RKDL],
    )
    def test_dense_and_sparse_codes_and_dtypes(self, kind, dtype, learned, X, X_new):
        model = make(kind, fit_inverse_transform=learned).fit(X.astype(dtype))
        given = X_new.astype(dtype)
        codes = model.transform(given)
        before = codes.copy()
        dense = model.inverse_transform(codes)
        compressed = model.inverse_transform(sparse.csr_array(codes))
        cleaned = model.denoise(given)
        np.testing.assert_array_equal(codes, before)
        assert dense.dtype == compressed.dtype == cleaned.dtype == dtype
        tolerance = 1e-4 if dtype == np.float32 else 1e-9
        np.testing.assert_allclose(compressed, dense, atol=tolerance)
        np.testing.assert_allclose(cleaned, dense, atol=tolerance)
        assert isinstance(dense, np.ndarray)

    @every
    def test_sparse_signals(self, kind, X, X_new):
        model = make(kind, fit_inverse_transform=True).fit(X)
        np.testing.assert_allclose(model.denoise(sparse.csr_array(X_new)), model.denoise(X_new), atol=1e-10)

    @every
    def test_save_and_load(self, kind, X, X_new, tmp_path):
        model = make(kind, fit_inverse_transform=True).fit(X)
        model.save(tmp_path / "model")
        np.testing.assert_array_equal(rkdl.load(tmp_path / "model").denoise(X_new), model.denoise(X_new))

    @every
    def test_not_fitted(self, kind, X):
        for method in ("inverse_transform", "denoise"):
            with pytest.raises(NotFittedError, match=kind.__name__):
                getattr(make(kind), method)(X)

    @every
    def test_bad_input(self, kind, X):
        model = make(kind, fit_inverse_transform=True).fit(X)
        spoiled = X.copy()
        spoiled[7, 3] = np.nan
        with pytest.raises(ValueError, match="NaN"):
            model.denoise(spoiled)
        with pytest.raises(ValueError, match="64 features"):
            model.denoise(X[:, :5])
        for codes in (np.full((2, 12), np.nan), np.full((2, 12), np.inf)):
            with pytest.raises(ValueError, match="Input X contains"):
                model.inverse_transform(codes)
        with pytest.raises(ValueError, match="12 atoms"):
            model.inverse_transform(np.zeros((2, 5)))

    @cover("noise", CLASSES, [-1.0, np.nan, np.inf, "much", True], base=[RKDL])
    def test_bad_noise(self, kind, noise, X):
        with pytest.raises(ValueError, match="standard deviation"):
            make(kind, fit_inverse_transform=True).fit(X).denoise(X, noise=noise)

    def test_bad_parameters(self, X):
        with pytest.raises(ValueError, match="decoder_alpha"):
            make(RKDL, decoder_alpha=-1.0).fit(X)
        with pytest.raises(ValueError, match="fit_inverse_transform"):
            make(RKDL, fit_inverse_transform="yes").fit(X)

    def test_a_search_chooses_the_way_back(self, X):
        def closeness(model, rows, labels=None):
            return -float(np.mean((model.denoise(rows) - rows) ** 2))

        options = {"fit_inverse_transform": [False, True], "decoder_alpha": [1e-4, 1e3]}
        search = GridSearchCV(make(ORKDL), options, scoring=closeness, cv=2, error_score="raise").fit(X)
        scores = dict(zip(map(str, search.cv_results_["params"]), search.cv_results_["mean_test_score"], strict=True))
        ways = {way: {score for name, score in scores.items() if way in name} for way in ("False", "True")}
        assert len(ways["False"]) == 1
        assert len(ways["True"]) == 2
        assert search.best_score_ == max(ways["False"] | ways["True"])

    # The linear term of MORKDL has the scale of the signals.
    @cover(
        "learned dtype scale",
        [KDL, RKDL, ORKDL],
        list(itertools.product([True, False], [np.float64, np.float32], [1e-12, 1e12])),
        base=[RKDL],
    )
    def test_signals_of_any_size(self, kind, scale, dtype, learned, X):
        plain = make(kind, fit_inverse_transform=learned).fit(X.astype(dtype))
        scaled = make(kind, fit_inverse_transform=learned).fit((X * scale).astype(dtype))
        expected, found = plain.denoise(X.astype(dtype)), scaled.denoise((X * scale).astype(dtype)) / dtype(scale)
        if dtype == np.float64:
            np.testing.assert_allclose(found, expected, atol=1e-5)
        # Rounding may lead to other codes in float32, to none that are worse.
        assert abs(np.mean((found - X) ** 2) / np.mean((expected - X) ** 2) - 1.0) < 0.05

    @pytest.mark.parametrize("kind", [RKDL, KDL])
    @pytest.mark.parametrize("scale", [1.0, 1e-30])
    def test_a_linear_kernel_is_inverted_exactly(self, kind, scale, X):
        model = make(kind, kernel="linear", n_components=20, n_nonzero_coefs=5).fit(X * scale)
        atoms = model.dual_components_ @ model.kernel_vectors_
        residual = X * scale - model.inverse_transform(model.transform(X * scale))
        np.testing.assert_allclose(
            np.linalg.norm(residual, axis=1), model.reconstruction_error(X * scale), atol=1e-6 * scale
        )
        np.testing.assert_allclose(np.linalg.norm(atoms, axis=1), 1.0, rtol=1e-6)


class TestNoise:
    def test_what_noise_leaves(self):
        rng = np.random.default_rng(0)
        clean, gamma, noise = rng.standard_normal(400), 1e-3, 0.5
        noisy = clean + NOISE_GAIN * noise * rng.standard_normal((200, 400))
        distances = ((noisy - clean) ** 2).sum(axis=1)
        # The squared distance of phi(y) from the line through phi(x), |phi(y)| being one.
        left = 1.0 - np.exp(-gamma * distances) ** 2
        assert abs(squared_residual_of_noise("rbf", noise, 400, gamma) / left.mean() - 1.0) < 0.02
        assert abs(squared_residual_of_noise("linear", noise, 400, None) / distances.mean() - 1.0) < 0.02

    @pytest.mark.parametrize("kind", [DL, KDL, RKDL, ORKDL, MORKDL, FourierDL], ids=lambda kind: kind.__name__)
    def test_residuals_are_at_most_the_noise(self, kind, X, X_new):
        model = make(kind, fit_inverse_transform=True).fit(X)
        tolerance = model._noise_tolerance(0.2)
        same = clone(model).set_params(n_nonzero_coefs=None, residual_tol=tolerance)
        vars(same).update({name: value for name, value in vars(model).items() if name.endswith("_")})
        np.testing.assert_array_equal(model.denoise(X_new, noise=0.2), same.denoise(X_new))
        codes = same.transform(X_new)
        held = same.reconstruction_error(X_new) ** 2 <= tolerance * (1 + 1e-6)
        assert (held | ((codes != 0).sum(axis=1) == 12)).all()
        assert held.any()

    @pytest.mark.parametrize("kind", [DL, KDL, ORKDL, FourierDL], ids=lambda kind: kind.__name__)
    def test_noise_is_removed(self, kind, X, X_new):
        noise = np.random.default_rng(0).normal(0.0, 0.2, X_new.shape)
        sizes = {"n_components": 40, "n_nonzero_coefs": 5, "max_iter": 10}
        kernel = {} if kind is DL else {"gamma": 0.05}
        if kind is FourierDL:
            kernel["n_fourier_features"] = 1000
        model = make(kind, fit_inverse_transform=True, **sizes, **kernel).fit(X)
        cleaned = model.denoise(X_new + noise, noise=0.2)
        assert np.mean((cleaned - X_new) ** 2) < 0.8 * np.mean(noise**2)

    def test_a_kernel_whose_noise_is_not_known(self, X):
        model = make(RKDL, kernel="poly", fit_inverse_transform=True).fit(X)
        with pytest.raises(ValueError, match=r"kernel='poly': set residual_tol"):
            model.denoise(X, noise=0.1)

    def test_more_noise_than_signal(self, X):
        model = make(ORKDL, fit_inverse_transform=False).fit(X)
        assert np.isfinite(model.denoise(X, noise=1e6)).all()
        assert np.isfinite(model.denoise(1e3 * X, noise=0.0)).all()


def test_dask_blocks(X):
    array = pytest.importorskip("dask.array")
    lazy = array.from_array(X, chunks=(100, -1))
    with config_context(chunk_rows=100):
        local = make(ORKDL, fit_inverse_transform=True).fit(X)
    spread = make(ORKDL, fit_inverse_transform=True).fit(lazy)
    np.testing.assert_array_equal(spread.decoder_, local.decoder_)
    cleaned = local.denoise(lazy, noise=0.1)
    assert cleaned.chunks == lazy.chunks
    np.testing.assert_allclose(cleaned.compute(), local.denoise(X, noise=0.1), atol=1e-10)


@pytest.mark.slow
class TestBenchmark:
    """The benchmark's code on tiny inputs."""

    @pytest.fixture(scope="class")
    def benchmark(self):
        root = Path(__file__).resolve().parent.parent
        if not (root / "benchmarks").is_dir():
            pytest.skip("the benchmark is not part of an installed package")
        if str(root) not in sys.path:
            sys.path.insert(0, str(root))
        from benchmarks import denoising

        return denoising

    def test_kernel_pca_is_that_of_scikit_learn(self, benchmark, X, X_new):
        best = benchmark.best_kernel_pca(X, X_new, [0.05], [10], [0.3], lambda cleaned: 1.0)
        own = KernelPCA(
            10, kernel="rbf", gamma=0.05, alpha=0.3, fit_inverse_transform=True, eigen_solver="dense", random_state=0
        ).fit(X)
        np.testing.assert_allclose(best[2], own.inverse_transform(own.transform(X_new)), atol=1e-6)

    def test_pca_is_that_of_scikit_learn(self, benchmark, X, X_new):
        own = PCA(7).fit(X)
        found = benchmark.best_pca(X, X_new, [7], lambda cleaned: 1.0)[2]
        np.testing.assert_allclose(found, own.inverse_transform(own.transform(X_new)), atol=1e-8)

    def test_total_variation_is_the_minimiser(self, benchmark):
        rng = np.random.default_rng(0)
        noisy = rng.standard_normal((6, 5))

        def cost(image):
            across, along = np.zeros((2, 6, 5))
            across[:-1], along[:, :-1] = np.diff(image, axis=0), np.diff(image, axis=1)
            return 0.5 * np.sum((image - noisy) ** 2) + 0.3 * np.sum(np.sqrt(across**2 + along**2))

        found = benchmark.total_variation(noisy, 0.3, 3000)
        for _ in range(50):
            assert cost(found) <= cost(found + 1e-3 * rng.standard_normal(noisy.shape)) + 1e-9
        assert cost(found) < 0.9 * cost(noisy)

    def test_patches_are_cut_and_joined(self, benchmark):
        digits = benchmark.Digits(small=True)
        rows = digits.test[:3]
        np.testing.assert_allclose(digits.joined(digits.patches(rows)), rows, atol=1e-6)

    @pytest.mark.parametrize("part", ["digits", "patches", "confirm", "images", "choices"])
    def test_every_part_runs_and_is_written(self, benchmark, part, tmp_path, monkeypatch):
        if part == "images":
            pytest.importorskip("PIL")
        pytest.importorskip("matplotlib")
        page = tmp_path / "page.md"
        page.write_text(f"before\n<!-- {part} -->\nold\n<!-- end of {part} -->\nafter\n")
        for name in ("DIGITS_PLOT", "PATCHES_PLOT", "IMAGES_PLOT"):
            monkeypatch.setattr(benchmark, name, tmp_path / f"{name}.png")
        lines = list(benchmark.PARTS[part](True, True))
        benchmark.put(page, part, ["", *lines, ""])
        text = page.read_text()
        assert text.startswith("before")
        assert text.endswith("after\n")
        assert "old" not in text
        widths = {line.count("|") for line in lines}
        assert len(widths) == 1
        assert "nan" not in text
        assert part in ("confirm", "choices") or list(tmp_path.glob("*.png"))
