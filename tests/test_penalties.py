"""Codes with penalties and signs: the conditions of a minimum, independent solvers, and learning with such codes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import nnls
from sklearn.linear_model import ElasticNet

import reference
from rkdl import DL, KDL, MORKDL, ORKDL, RKDL, FourierDL, SparseCoder, sparse_encode, sparse_encode_gram
from rkdl.metrics import mutual_coherence
from test_pursuit import GREEDY, general, problems, squared_residuals

each_sign = pytest.mark.parametrize("positive", [False, True], ids=["any", "positive"])
each_pursuit = pytest.mark.parametrize("pursuit", GREEDY)


def objective(X, dictionary, codes, alpha, l2=0.0):
    penalties = alpha * np.abs(codes).sum(axis=1) + 0.5 * l2 * (codes**2).sum(axis=1)
    return 0.5 * squared_residuals(X, dictionary, codes) + penalties


def relative_gaps(X, dictionary, codes, alpha, positive):
    """Duality gaps of the lasso as shares of half the signals' energy."""
    residuals = X - codes @ dictionary
    products = residuals @ dictionary.T
    largest = (products if positive else np.abs(products)).max(axis=1)
    scales = np.minimum(1.0, alpha / np.maximum(largest, 1e-300))
    energies = 0.5 * np.sum(X**2, axis=1)
    dual = energies - 0.5 * np.sum((X - scales[:, None] * residuals) ** 2, axis=1)
    return (objective(X, dictionary, codes, alpha) - dual) / np.maximum(energies, 1e-300)


class TestLasso:
    @each_sign
    @given(problem=problems, share=st.floats(0.01, 1.2))
    def test_is_the_minimum(self, positive, problem, share):
        """For atoms that are zero, equal, opposite or dependent too; zeros where the penalty is large."""
        X, dictionary = problem
        alpha = share * float(np.abs(X @ dictionary.T).max()) + 1e-3
        codes = sparse_encode(X, dictionary, pursuit="lasso", alpha=alpha, positive_code=positive)
        assert relative_gaps(X, dictionary, codes, alpha, positive).max() < 1e-9
        assert not (positive and (codes < 0.0).any())
        assert share <= 1.0 or not codes.any()

    @each_sign
    @pytest.mark.parametrize(("n_atoms", "n_features"), [(40, 60), (100, 20), (256, 64)])
    @pytest.mark.parametrize(("dtype", "gap"), [(np.float32, 1e-5), (np.float64, 1e-12)])
    def test_gap(self, rng, positive, n_atoms, n_features, dtype, gap):
        dictionary = rng.standard_normal((n_atoms, n_features)).astype(dtype)
        dictionary /= np.linalg.norm(dictionary, axis=1, keepdims=True)
        X = rng.standard_normal((50, n_features)).astype(dtype)
        for alpha in (0.05, 0.5, 1.5):
            codes = sparse_encode(X, dictionary, pursuit="lasso", alpha=alpha, positive_code=positive)
            assert codes.dtype == dtype
            wide = (part.astype(float) for part in (X, dictionary, codes))
            assert relative_gaps(*wide, alpha, positive).max() < gap

    @each_sign
    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    @given(seed=st.integers(0, 10**6), exponent=st.integers(-14, -1), near=st.floats(-9.0, -1.0))
    def test_the_gap_that_the_penalty_allows(self, positive, dtype, seed, exponent, near):
        """The docs promise this bound; with small penalties and parallel atoms it was 1e8 times the energy."""
        rng = np.random.default_rng(seed)
        dictionary = rng.standard_normal((int(rng.integers(3, 60)), int(rng.integers(2, 30))))
        dictionary[: len(dictionary) // 2] = dictionary[0] + 10.0**near * dictionary[: len(dictionary) // 2]
        X, alpha, eps = rng.standard_normal((20, dictionary.shape[1])), 10.0**exponent, float(np.finfo(dtype).eps)
        X, dictionary = ((rows / np.linalg.norm(rows, axis=1)[:, None]).astype(dtype) for rows in (X, dictionary))
        codes = sparse_encode(X, dictionary, pursuit="lasso", alpha=alpha, positive_code=positive)
        wide = (part.astype(float) for part in (X, dictionary, codes))
        assert relative_gaps(*wide, alpha, positive).max() < min(1.1, 10.0 * eps * (1.0 / alpha**2 + 100.0))

    @each_sign
    @pytest.mark.parametrize(("alpha", "l2"), [(0.3, 0.0), (0.3, 0.5), (0.1, 3.0)])
    def test_scikit_learn(self, rng, positive, alpha, l2):
        """Penalties are on the coefficients of the atoms as they are given."""
        dictionary, X = rng.standard_normal((30, 12)) * rng.uniform(0.2, 3.0, (30, 1)), rng.standard_normal((6, 12))
        options = {"pursuit": "lasso", "alpha": alpha, "l2": l2, "positive_code": positive}
        total = alpha + l2
        model = ElasticNet(
            total / 12, l1_ratio=alpha / total, fit_intercept=False, positive=positive, tol=1e-13, max_iter=10**6
        )
        expected = np.array([model.fit(dictionary.T, x).coef_ for x in X])
        for codes in (
            sparse_encode(X, dictionary, **options),
            sparse_encode_gram(dictionary @ dictionary.T, X @ dictionary.T, **options),
            SparseCoder(dictionary, **options).fit().transform(X),
        ):
            np.testing.assert_allclose(codes, expected, rtol=0, atol=1e-9)

    @given(problem=problems)
    def test_without_a_penalty_is_non_negative_least_squares(self, problem):
        X, dictionary = problem
        codes = sparse_encode(X, dictionary, pursuit="lasso", alpha=0.0, positive_code=True)
        assert (codes >= 0.0).all()
        found = np.sqrt(squared_residuals(X, dictionary, codes))
        expected = [nnls(dictionary.T, x, maxiter=10**4)[1] for x in X]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * (1.0 + np.linalg.norm(X)))


class TestNonNegativePursuit:
    @each_pursuit
    @given(problem=problems, s=st.integers(1, 6))
    def test_least_squares_on_the_support(self, pursuit, problem, s):
        X, dictionary = problem
        s = min(s, len(dictionary))
        codes = sparse_encode(X, dictionary, n_nonzero_coefs=s, pursuit=pursuit, positive_code=True)
        assert (codes >= 0.0).all()
        assert (np.count_nonzero(codes, axis=1) <= s).all()
        for x, code in zip(X, codes, strict=True):
            chosen = dictionary[code > 0.0]
            left = np.linalg.norm(x - code[code > 0.0] @ chosen)
            best = nnls(chosen.T, x)[1] if len(chosen) else np.linalg.norm(x)
            np.testing.assert_allclose(left, best, atol=1e-8 * (1.0 + np.linalg.norm(x)))

    @each_pursuit
    @given(problem=general(), s=st.integers(1, 6), share=st.floats(0.0, 1.0))
    def test_the_plain_algorithm(self, pursuit, problem, s, share):
        X, dictionary = problem
        squares = np.sum(X**2, axis=1)
        tol = share * float(squares.mean())
        gram, products = dictionary @ dictionary.T, X @ dictionary.T
        options = {"n_nonzero_coefs": min(s, len(dictionary)), "residual_tol": tol, "pursuit": pursuit}
        codes = sparse_encode_gram(gram, products, squared_norms=squares, positive_code=True, **options)
        for row, square, code in zip(products, squares, codes, strict=True):
            expected = reference.pursuit(gram, row, square, min(s, len(dictionary)), tol, pursuit, positive=True)
            np.testing.assert_allclose(code @ gram @ code, expected @ gram @ expected, rtol=1e-5, atol=1e-7 * square)


class TestLearning:
    @pytest.fixture
    def X(self, digits):
        return digits[:400] / 16.0

    @each_sign
    @pytest.mark.parametrize("kind", [DL, FourierDL, KDL, RKDL, ORKDL, MORKDL])
    def test_errors_are_the_objective(self, X, kind, positive):
        options = {"pursuit": "lasso", "alpha": 0.1, "l2": 0.05, "positive_code": positive}
        model = kind(8, max_iter=4, tol=0.0, random_state=0, **options).fit(X)
        codes = model.transform(X)
        total = np.sum(model.reconstruction_error(X) ** 2) + 0.2 * np.abs(codes).sum() + 0.05 * (codes**2).sum()
        np.testing.assert_allclose(model.errors_[-1], np.sqrt(total / X.size), rtol=1e-6)
        assert not (positive and (codes < 0.0).any())

    @pytest.mark.parametrize("kind", [DL, KDL, RKDL])
    def test_objective_falls(self, X, kind):
        """The atom update lowers it for fixed codes, and so does coding, which is exact."""
        model = kind(8, pursuit="lasso", alpha=0.1, atom_update="gram", max_iter=6, tol=0.0, random_state=0).fit(X)
        steps = np.column_stack([model.update_errors_, model.errors_]).ravel()
        assert (np.diff(steps) <= 1e-9).all()

    @pytest.mark.parametrize("options", [{}, {"pursuit": "lasso", "alpha": 0.1}, {"positive_dict": True}])
    def test_missing_numbers(self, X, rng, tmp_path, options):
        """The error falls with penalties, and predictions are better than means; streams, files and weights."""
        known = rng.random(X.shape) < 0.7
        given = np.where(known, X, np.nan).astype(np.float32)
        options = {"missing": "ignore", "random_state": 0, "atom_update": "gram", "tol": 0.0, **options}
        model = DL(16, **options).fit(given)
        steps = np.column_stack([model.update_errors_, model.errors_]).ravel()
        assert "alpha" not in options or (np.diff(steps) <= 1e-6).all()
        predicted, means = model.denoise(given), np.nanmean(given, axis=0)
        assert predicted.dtype == np.float32
        assert np.isfinite(predicted).all()
        assert ((predicted - X)[~known] ** 2).mean() < 0.7 * ((means - X)[~known] ** 2).mean()
        rows = np.memmap(tmp_path / "rows", np.float32, "w+", shape=given.shape)
        rows[:] = given
        np.testing.assert_array_equal(DL(16, **options).fit(rows).components_, model.components_)
        stream = DL(16, **options)
        for start in (0, 200):
            stream.partial_fit(given[start : start + 200])
        assert np.isfinite(stream.components_).all()
        weights = np.arange(400) % 3
        start = {**options, "init": X[:8], "max_iter": 3}
        weighted = DL(8, **start).fit(given, sample_weight=weights)
        repeated = DL(8, **start).fit(np.repeat(given, weights, axis=0))
        np.testing.assert_allclose(weighted.errors_, repeated.errors_, rtol=1e-4)

    @pytest.mark.parametrize("init", ["rpcholesky", "random", "gradient"])
    @pytest.mark.parametrize("atom_update", ["gram", "momentum"])
    def test_non_negative_atoms(self, X, atom_update, init):
        options = {"positive_code": True, "positive_dict": True, "random_state": 0, "max_iter": 8}
        model = DL(12, init=init, atom_update=atom_update, **options).fit(X)
        assert (model.components_ >= 0.0).all()
        np.testing.assert_allclose(np.linalg.norm(model.components_, axis=1), 1.0)
        stream = DL(12, init=init, atom_update=atom_update, **options)
        for start in range(0, 400, 100):
            stream.partial_fit(X[start : start + 100])
        assert (stream.components_ >= 0.0).all()
        if atom_update == "gram":
            model = DL(12, init=init, atom_update="gram", pursuit="lasso", alpha=0.1, **options, tol=0.0).fit(X)
            assert (np.diff(np.column_stack([model.update_errors_, model.errors_]).ravel()) <= 1e-9).all()

    @pytest.mark.parametrize("kind", [DL, RKDL])
    @pytest.mark.parametrize("atom_update", ["momentum", "gram", "aksvd"])
    def test_incoherent_atoms(self, X, kind, atom_update):
        """From first atoms that are equal too; the error is that of the atoms that are returned."""
        options = {"atom_update": atom_update, "random_state": 0, "max_iter": 5, "tol": 0.0}
        free = kind(40, **options).fit(X)
        for bound in (0.7, 0.4):
            model = kind(40, coherence_max=bound, **options).fit(X)
            assert mutual_coherence(model) < min(bound + 1e-9, mutual_coherence(free))
            total = np.sum(model.reconstruction_error(X) ** 2)
            np.testing.assert_allclose(model.errors_[-1], np.sqrt(total / X.size), rtol=1e-6)
        if kind is DL:
            model = DL(8, coherence_max=0.5, init=np.ones((8, 64)), **options).fit(X.astype(np.float32))
            assert mutual_coherence(model) < 0.5 + 1e-6
            with pytest.raises(ValueError, match=r"coherence_max=0.1 is out of reach: of 200 atoms in 64 dimensions"):
                DL(200, coherence_max=0.1, init="random", **options).fit(X)

    def test_weights_are_repetitions(self, X):
        weights = np.arange(400) % 3
        options = {"pursuit": "lasso", "alpha": 0.1, "init": X[:8], "max_iter": 3, "tol": 0.0}
        weighted = DL(8, **options).fit(X, sample_weight=weights)
        repeated = DL(8, **options).fit(np.repeat(X, weights, axis=0))
        np.testing.assert_allclose(weighted.errors_, repeated.errors_)

    def test_refusals(self, X):
        for options in ({"pursuit": "lasso"}, {"positive_code": True}, {"positive_dict": True}):
            with pytest.raises(ValueError, match=r"atom_update='aksvd' refits codes by least squares.* use 'momentum'"):
                DL(4, atom_update="aksvd", **options).fit(X)
        given = np.where(X[0, 2] == X, np.nan, X)
        with pytest.raises(ValueError, match="aksvd' refits codes of complete signals: use 'gram'"):
            DL(4, atom_update="aksvd", missing="ignore").fit(given)
        with pytest.raises(ValueError, match=r"coherence_max=0.5 would make atoms negative"):
            DL(4, positive_dict=True, coherence_max=0.5).fit(X)
        with pytest.raises(ValueError, match="missing='ignore' is for dense signals"):
            DL(4, missing="ignore").fit(sparse.csr_array(X))
        with pytest.raises(ValueError, match="noise does not allow for missing numbers"):
            DL(4, missing="ignore", random_state=0).fit(given).denoise(given, noise=0.1)
        with pytest.raises(ValueError, match="contains NaN"):
            DL(4).fit(given)
        with pytest.warns(UserWarning, match=r"code of zeros: alpha=1000.0 is not below .*: lower it"):
            DL(4, pursuit="lasso", alpha=1000.0).fit(X)
