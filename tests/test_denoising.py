"""From codes back to signals: pre-images that are the best there are, decoders from sums, and cleaned signals."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import minimize
from sklearn.base import clone
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


def mean_square(signals):
    return float(np.mean(signals**2))


def loss(x, weights, vectors, gamma):
    """``|phi(x) - sum_i c_i phi(d_i)|^2`` and its gradient."""
    near = weights * np.exp(-gamma * np.sum((x - vectors) ** 2, axis=1))
    value = 1.0 + weights @ rbf_kernel(vectors, gamma=gamma) @ weights - 2.0 * near.sum()
    return value, 4.0 * gamma * near @ (x - vectors)


def best_by_force(weights, vectors, gamma):
    """The smallest loss that BFGS finds from every kernel vector and from the mean."""
    starts = [*vectors, vectors.mean(axis=0)]
    runs = [minimize(loss, start, (weights, vectors, gamma), jac=True, options={"gtol": 1e-9}) for start in starts]
    return min(run.fun for run in runs)


class TestPreImages:
    """Of codes of the RBF kernel, without a decoder."""

    @pytest.fixture
    def model(self):
        """A small model whose atoms are its kernel vectors."""
        signals = np.random.default_rng(0).standard_normal((60, 3))
        options = {"kernel_vectors": signals[:6], "init": np.eye(6), "n_components": 6, "max_iter": 1}
        return make(RKDL, gamma=0.5, **options).fit(signals)

    @pytest.mark.parametrize("gamma", [0.01, 0.5, 2.0])
    def test_agrees_with_minimisation_by_force(self, model, gamma):
        signals = np.random.default_rng(0).standard_normal((60, 3))
        model = clone(model).set_params(gamma=gamma).fit(signals)
        codes, reached = np.random.default_rng(1).standard_normal((12, 6)), 0
        codes[::2] = np.abs(codes[::2])
        weights = codes @ model.dual_components_
        # A point that no signal's image is near has its nearest one at infinity.
        signs = np.where(rbf_kernel(model.kernel_vectors_, gamma=gamma) @ weights.T > 0.0, 1.0, -1.0).max(axis=0)
        codes, weights = codes * signs[:, None], weights * signs[:, None]
        found = model.inverse_transform(codes)
        for point, own in zip(found, weights, strict=True):
            value, gradient = loss(point, own, model.kernel_vectors_, gamma)
            force = best_by_force(own, model.kernel_vectors_, gamma)
            assert value >= force - 1e-9
            reached += value <= force + 1e-6
            if own @ rbf_kernel(model.kernel_vectors_, [point], gamma=gamma)[:, 0] > 1e-3:
                # A stationary point, whether or not it is the lowest.
                assert np.abs(gradient).max() < 1e-5 * max(1.0, np.abs(own).max())
        # A greedy start may end in another valley of a loss that has several; mostly it does not.
        assert reached >= 9

    def test_what_is_known(self, model):
        """A kernel vector is its own pre-image whatever the length of its code, and a code of zeros is the centre."""
        codes = np.linalg.inv(model.dual_components_)
        for factor in (1e-100, 1.0, 1e100):
            np.testing.assert_allclose(model.inverse_transform(factor * codes), model.kernel_vectors_, atol=1e-5)
        centre = model.kernel_vectors_.mean(axis=0)
        np.testing.assert_allclose(model.inverse_transform(np.zeros((1, 6)))[0], centre)
        np.testing.assert_allclose(model.atom_preimages(), model.inverse_transform(np.eye(6)), atol=1e-10)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @pytest.mark.parametrize("gamma", [1e-30, 1e-6, 1.0, 1e6, 1e30])
    def test_never_gives_what_is_not_finite(self, gamma, dtype):
        vectors = np.array([[0.0, 1.0], [0.0, 1.0 + 1e-6], [30.0, 0.0]], dtype=dtype)
        options = {"kernel_vectors": vectors, "init": np.eye(3), "n_components": 3, "max_iter": 1, "gamma": gamma}
        model = make(RKDL, **options).fit(vectors)
        signs = [[1, 1, 1], [1, -1, 1], [-1, -1, -1], [1, -1, 0], [0, 0, 0], [1e-30, 1e30, -1e30]]
        found = model.inverse_transform(np.array(signs, dtype=dtype))
        assert found.dtype == dtype
        assert np.isfinite(found).all()

    @pytest.mark.parametrize("kind", [RKDL, KDL])
    def test_a_linear_kernel_is_inverted_exactly(self, kind, X):
        model = make(kind, kernel="linear", n_components=20, n_nonzero_coefs=5).fit(X)
        residual = X - model.inverse_transform(model.transform(X))
        np.testing.assert_allclose(np.linalg.norm(residual, axis=1), model.reconstruction_error(X), atol=1e-6)
        atoms = model.dual_components_ @ model.kernel_vectors_
        np.testing.assert_allclose(np.linalg.norm(atoms, axis=1), 1.0, rtol=1e-6)


class TestDecoder:
    @pytest.mark.parametrize("kernel", ["rbf", "poly"])
    @pytest.mark.parametrize("kind", [KDL, RKDL])
    def test_is_the_ridge_regression_of_scikit_learn(self, kind, kernel, X):
        """In feature space; codes of the RBF kernel have unit length and the intercept is the mean."""
        model = make(kind, kernel=kernel, gamma=0.1, fit_inverse_transform=True, decoder_alpha=0.02).fit(X)
        values, vectors = np.linalg.eigh(model.gram_)
        points = model.transform(X) @ (vectors * np.sqrt(values.clip(min=0.0)))
        if kernel == "rbf":
            points /= np.linalg.norm(points, axis=1, keepdims=True)
            np.testing.assert_allclose(model.decoder_intercept_, X.mean(axis=0), atol=1e-10)
        away = points if kernel == "rbf" else points - points.mean(axis=0)
        ridge = Ridge(0.02 * np.sum(away**2) / 12, fit_intercept=kernel != "rbf")
        targets = X - X.mean(axis=0) if kernel == "rbf" else X
        expected = ridge.fit(points, targets).predict(points) + (X - targets)
        np.testing.assert_allclose(model.denoise(X), expected, atol=1e-7)

    @every_decoded
    def test_fit_learns_what_fit_decoder_learns(self, kind, X):
        model, other = make(kind, fit_inverse_transform=True).fit(X), make(kind).fit(X)
        assert not hasattr(other, "decoder_")
        # Learning is the same with and without.
        np.testing.assert_array_equal(other.errors_, model.errors_)
        np.testing.assert_array_equal(other.transform(X), model.transform(X))
        np.testing.assert_allclose(other.fit_decoder(X).decoder_, model.decoder_, atol=1e-10)
        np.testing.assert_allclose(model.inverse_transform(np.zeros((1, 12)))[0], X.mean(axis=0), atol=1e-12)
        # Another fit forgets it.
        other.fit(X)
        assert not hasattr(other, "decoder_")
        assert not hasattr(other, "decoder_intercept_")

    def test_a_decoder_is_forgotten(self, X):
        model = make(RKDL).fit(X)
        expected = model.denoise(X)
        assert not np.allclose(model.fit_decoder(X).denoise(X), expected)
        del model.decoder_, model.decoder_intercept_
        np.testing.assert_array_equal(model.denoise(X), expected)
        assert not hasattr(model, "decoder_intercept_")

    @every_decoded
    def test_reconstructs_better_than_the_mean(self, kind, X, X_new):
        """Wherever the signals are."""
        own = {"kernel_vectors": X[:40]} if kind in REDUCED else {}
        sizes = {"max_iter": 5, "n_components": 30, "n_nonzero_coefs": 8, "gamma": 0.1, "fit_inverse_transform": True}
        model = make(kind, **sizes, **own).fit(X)
        error = mean_square(model.denoise(X_new) - X_new)
        assert error < 0.45 * mean_square(X_new - X.mean(axis=0))
        if own:
            own = {"kernel_vectors": X[:40] + 1000.0}
        far = make(kind, **sizes, **own).fit(X + 1000.0)
        assert mean_square(far.denoise(X_new + 1000.0) - 1000.0 - X_new) < 1.1 * error

    def test_a_linear_kernel_is_decoded_no_worse_than_by_its_atoms(self, X):
        model = make(RKDL, kernel="linear").fit(X + 10.0)
        exact = mean_square(model.denoise(X + 10.0) - X - 10.0)
        model.set_params(decoder_alpha=0.0).fit_decoder(X + 10.0)
        assert mean_square(model.denoise(X + 10.0) - X - 10.0) <= exact * (1.0 + 1e-9)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_the_length_of_a_code_does_not_matter(self, dtype, X):
        model = make(RKDL, fit_inverse_transform=True).fit(X.astype(dtype))
        codes = model.transform(X.astype(dtype))
        expected = model.inverse_transform(codes)
        for factor in (1e-12, 1e12):
            for given in (codes * dtype(factor), sparse.csr_array(codes * dtype(factor))):
                np.testing.assert_allclose(model.inverse_transform(given), expected, atol=1e-5)

    @pytest.mark.parametrize("kernel", [laplacian_kernel, partial(rbf_kernel, gamma=0.1)], ids=["laplacian", "rbf"])
    def test_functions_whose_signals_have_one_length(self, kernel, X, X_new):
        sizes = {"n_components": 30, "n_kernel_vectors": 60, "n_nonzero_coefs": 8, "fit_inverse_transform": True}
        model = make(RKDL, kernel=kernel, **sizes).fit(X)
        np.testing.assert_allclose(model.inverse_transform(np.zeros((1, 30)))[0], X.mean(axis=0), atol=1e-12)
        noisy = X_new + np.random.default_rng(0).normal(scale=0.25, size=X_new.shape)
        assert mean_square(model.denoise(noisy) - X_new) < 0.6 * 0.25**2

    @pytest.mark.parametrize("kernel", ["poly", lambda X, Y: (1.0 + X @ Y.T) ** 2])
    def test_any_kernel(self, kernel, X, X_new):
        model = make(RKDL, kernel=kernel, gamma=0.1, n_components=30, n_nonzero_coefs=8).fit(X)
        with pytest.raises(NotFittedError, match=r"fit_inverse_transform=True before fit, or call fit_decoder"):
            model.inverse_transform(model.transform(X_new))
        error = mean_square(model.fit_decoder(X).denoise(X_new) - X_new)
        assert error < 0.45 * mean_square(X_new - X.mean(axis=0))

    @every_decoded
    def test_the_number_of_threads_changes_no_bit(self, kind, X):
        rows, found = np.tile(X, (2, 1)), []
        for n_jobs in (1, 3):
            with config_context(chunk_rows=170):
                model = make(kind, fit_inverse_transform=True, n_jobs=n_jobs).fit(rows)
            found.append((model.decoder_.tobytes(), model.denoise(rows).tobytes()))
        assert found[0] == found[1]

    def test_a_precomputed_kernel_has_no_signals(self, X):
        kernel = X @ X.T
        model = make(KDL, kernel="precomputed").fit(kernel)
        for call, given in (
            (make(KDL, kernel="precomputed", fit_inverse_transform=True).fit, kernel),
            (model.fit_decoder, kernel),
            (model.inverse_transform, model.transform(kernel)),
            (model.denoise, kernel),
        ):
            with pytest.raises(ValueError, match="cannot be turned back into signals"):
                call(given)


class TestStreams:
    @every_streamed
    def test_an_epoch_with_still_atoms_learns_the_decoder_of_all(self, kind, X):
        if kind in (ORKDL, MORKDL):
            pytest.skip("their batches wait for the update")
        model = make(kind, fit_inverse_transform=True)
        for batch in (X[:100], X[100:130], X[130:]):
            model.partial_fit(batch, update=False)
        whole = clone(model).partial_fit(X[:100], update=False).fit_decoder(X)
        np.testing.assert_allclose(model.decoder_, whole.decoder_, atol=1e-8)
        # One that is not learned on is forgotten.
        assert not hasattr(make(kind).fit(X).fit_decoder(X).partial_fit(X), "decoder_")

    def test_the_old_fades(self, X):
        still = {"kernel_vectors": X[:20], "init": np.eye(12, 20), "gamma": 0.1, "fit_inverse_transform": True}
        forgetful = make(RKDL, half_life=1e-3, **still)
        for batch in (X[:150] + 5.0, X[150:]):
            forgetful.partial_fit(batch, update=False)
        fresh = make(RKDL, **still).partial_fit(X[150:], update=False)
        np.testing.assert_allclose(forgetful.decoder_, fresh.decoder_, atol=1e-8)
        np.testing.assert_allclose(forgetful.decoder_intercept_, fresh.decoder_intercept_, atol=1e-8)


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
        assert mean_square(signals - X_new) < 0.9 * mean_square(X_new - X.mean(axis=0))

    @cover("learned dtype", CLASSES, [(True, np.float64), (False, np.float32), (True, np.float32)], base=[DL, RKDL])
    def test_kinds_of_codes_and_signals(self, kind, learned, dtype, X, X_new, tmp_path):
        model = make(kind, fit_inverse_transform=learned).fit(X.astype(dtype))
        given = X_new.astype(dtype)
        codes = model.transform(given)
        before, dense = codes.copy(), model.inverse_transform(codes)
        stored = np.memmap(tmp_path / "codes", dtype=dtype, mode="w+", shape=codes.shape)
        stored[:] = codes
        model.save(tmp_path / "model")
        found = {
            "CSR codes": model.inverse_transform(sparse.csr_array(codes)),
            "memory map": model.inverse_transform(stored),
            "signals": model.denoise(given),
            "CSR signals": model.denoise(sparse.csr_array(given)),
            "loaded": rkdl.load(tmp_path / "model").denoise(given),
        }
        np.testing.assert_array_equal(codes, before)
        assert isinstance(dense, np.ndarray)
        for name, signals in found.items():
            assert signals.dtype == dense.dtype == dtype, name
            tolerance = 1e-3 if dtype == np.float32 else 1e-9
            np.testing.assert_allclose(signals, dense, atol=tolerance, err_msg=name)

    @every
    def test_bad_input(self, kind, X):
        for method in ("inverse_transform", "denoise"):
            with pytest.raises(NotFittedError, match=kind.__name__):
                getattr(make(kind), method)(X)
        model = make(kind, fit_inverse_transform=True).fit(X)
        for method, given, words in (
            (model.denoise, np.where(X > 0.9, np.nan, X), "NaN"),
            (model.denoise, X[:, :5], "64 features"),
            (model.inverse_transform, np.full((2, 12), np.nan), "Input X contains"),
            (model.inverse_transform, np.full((2, 12), np.inf), "Input X contains"),
            (model.inverse_transform, np.zeros((2, 5)), "12 atoms"),
        ):
            with pytest.raises(ValueError, match=words):
                method(given)
        for noise in (-1.0, np.nan, np.inf, "much", True):
            with pytest.raises(ValueError, match="standard deviation"):
                model.denoise(X, noise=noise)
        for name, bad in {"decoder_alpha": -1.0, "fit_inverse_transform": "yes"}.items():
            if kind is not DL:
                with pytest.raises(ValueError, match=name):
                    make(kind, **{name: bad}).fit(X)
        with pytest.raises(ValueError, match="decoder_alpha"):
            model.set_params(decoder_alpha=-1.0).fit_decoder(X)

    def test_a_search_chooses_the_way_back(self, X):
        def closeness(model, rows, labels=None):
            return -mean_square(model.denoise(rows) - rows)

        options = {"fit_inverse_transform": [False, True], "decoder_alpha": [1e-4, 1e3]}
        search = GridSearchCV(make(ORKDL), options, scoring=closeness, cv=2, error_score="raise").fit(X)
        scores = dict(zip(map(str, search.cv_results_["params"]), search.cv_results_["mean_test_score"], strict=True))
        ways = {way: {score for name, score in scores.items() if way in name} for way in ("False", "True")}
        assert len(ways["False"]) == 1
        assert len(ways["True"]) == 2
        assert search.best_score_ == max(ways["False"] | ways["True"])

    def test_dask_blocks(self, X):
        array = pytest.importorskip("dask.array")
        lazy = array.from_array(X, chunks=(100, -1))
        with config_context(chunk_rows=100):
            local = make(ORKDL, fit_inverse_transform=True).fit(X)
        spread = make(ORKDL, fit_inverse_transform=True).fit(lazy)
        np.testing.assert_array_equal(spread.decoder_, local.decoder_)
        cleaned = local.denoise(lazy, noise=0.1)
        assert cleaned.chunks == lazy.chunks
        np.testing.assert_allclose(cleaned.compute(), local.denoise(X, noise=0.1), atol=1e-10)
        codes = local.transform(X)
        signals = local.inverse_transform(array.from_array(codes, chunks=(100, 5)))
        assert signals.shape == X.shape
        np.testing.assert_allclose(signals.compute(), local.inverse_transform(codes), atol=1e-12)
        with pytest.raises(ValueError, match="12 atoms"):
            local.inverse_transform(array.from_array(X))


class TestNoise:
    @every
    def test_no_noise_and_nothing_but_noise(self, kind, X, X_new):
        model = make(kind, fit_inverse_transform=True).fit(X)
        for rows in (X_new, X_new.astype(np.float32), sparse.csr_array(X_new)):
            np.testing.assert_allclose(model.denoise(rows, noise=0.0), X_new, atol=1e-6)
        assert model.denoise(X_new, noise=100.0).var(axis=0).sum() < 0.5 * model.denoise(X_new).var(axis=0).sum()

    @by_class([DL, KDL, ORKDL, FourierDL])
    def test_noise_is_removed(self, kind, X, X_new):
        noise = np.random.default_rng(0).normal(0.0, 0.2, X_new.shape)
        sizes = {"n_components": 40, "n_nonzero_coefs": 5, "max_iter": 10}
        kernel = {} if kind is DL else {"gamma": 0.05}
        if kind is FourierDL:
            kernel["n_fourier_features"] = 1000
        model = make(kind, fit_inverse_transform=True, **sizes, **kernel).fit(X)
        assert mean_square(model.denoise(X_new + noise, noise=0.2) - X_new) < 0.8 * mean_square(noise)

    @pytest.mark.parametrize("has_decoder", [False, True])
    @by_class([DL, KDL, ORKDL])
    def test_the_level_of_the_noise_helps(self, kind, has_decoder, X):
        for noise in (0.1, 0.25, 0.5):
            given = X + np.random.default_rng(0).normal(0.0, noise, X.shape)
            model = make(kind, n_components=40, n_nonzero_coefs=4, fit_inverse_transform=has_decoder).fit(given)
            errors = [mean_square(model.denoise(given, noise=known) - X) for known in (None, noise)]
            assert errors[1] < errors[0]

    @pytest.mark.parametrize("kernel", ["poly", "rbf"])
    def test_any_kernel_and_any_noise(self, kernel, X):
        model = make(RKDL, kernel=kernel, fit_inverse_transform=True).fit(X)
        for noise in (0.1, 1e6, 1e-300, 1e300):
            assert np.isfinite(model.denoise(1e3 * X, noise=noise)).all()
        linear = make(DL).fit(X)
        for scale in (1e-30, 1e30):
            found = linear.denoise(scale * X, noise=scale) / scale
            np.testing.assert_allclose(found, linear.denoise(X, noise=1.0), atol=1e-9)
