"""Properties of the pursuit: what must hold for any signals and atoms, and what must not break it."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from scipy import sparse
from sklearn.linear_model import orthogonal_mp_gram

import reference
from rkdl import sparse_encode, sparse_encode_gram
from rkdl._backends.cpu.backend import BACKEND as CPU

GREEDY = ("ols", "omp")
# Options of every kind of codes.
CODERS = {
    "ols": {"n_nonzero_coefs": 4},
    "omp": {"residual_tol": 3.0, "pursuit": "omp"},
    "ols-relative": {"rtol": 0.4},
    "ols-positive": {"n_nonzero_coefs": 4, "positive_code": True},
    "omp-positive": {"residual_tol": 3.0, "pursuit": "omp", "positive_code": True},
    "lasso": {"pursuit": "lasso", "alpha": 0.5},
    "lasso-positive": {"pursuit": "lasso", "alpha": 0.5, "l2": 0.1, "positive_code": True},
}
each_pursuit = pytest.mark.parametrize("pursuit", GREEDY)
each_coder = pytest.mark.parametrize("options", CODERS.values(), ids=CODERS.keys())
each_dtype = pytest.mark.parametrize("dtype", [np.float32, np.float64])


@st.composite
def general(draw):
    """Signals and atoms in general position, of norms that differ, fewer or more atoms than features."""
    n_features, n_atoms = draw(st.integers(1, 12)), draw(st.integers(1, 40))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    X = rng.standard_normal((draw(st.integers(1, 6)), n_features))
    dictionary = rng.standard_normal((n_atoms, n_features)) * rng.uniform(0.1, 10.0, (n_atoms, 1))
    return X, dictionary


@st.composite
def degenerate(draw):
    """Small integers: ties, zero signals, zero atoms, atoms that are equal, opposite or dependent."""
    n_features, n_atoms = draw(st.integers(1, 5)), draw(st.integers(1, 8))
    numbers = st.integers(-2, 2).map(float)
    X = draw(npst.arrays(np.float64, (draw(st.integers(1, 4)), n_features), elements=numbers))
    dictionary = draw(npst.arrays(np.float64, (n_atoms, n_features), elements=numbers))
    return X, dictionary


problems = st.one_of(general(), degenerate())


def encode(X, dictionary, n_nonzero_coefs=None, **options):
    """sparse_encode with the sparsity clipped to the number of atoms."""
    if n_nonzero_coefs is not None:
        n_nonzero_coefs = min(n_nonzero_coefs, len(dictionary))
    return sparse_encode(X, dictionary, n_nonzero_coefs=n_nonzero_coefs, **options)


def squared_residuals(X, dictionary, codes):
    return np.sum((X - codes @ dictionary) ** 2, axis=1)


class TestProperties:
    @each_pursuit
    @given(problem=problems, s=st.integers(1, 6))
    def test_sparse_and_least_squares(self, pursuit, problem, s):
        X, dictionary = problem
        codes = encode(X, dictionary, s, pursuit=pursuit)
        assert np.isfinite(codes).all()
        assert (np.count_nonzero(codes, axis=1) <= s).all()
        residuals = X - codes @ dictionary
        for x, code, residual in zip(X, codes, residuals, strict=True):
            chosen = dictionary[code != 0]
            slack = 1e-9 * (1.0 + np.linalg.norm(x))
            cosines = chosen @ residual / np.linalg.norm(chosen, axis=1)
            np.testing.assert_allclose(cosines, 0.0, atol=slack)
            best = np.linalg.lstsq(chosen.T, x, rcond=None)[0]
            np.testing.assert_allclose(np.linalg.norm(residual), np.linalg.norm(x - best @ chosen), atol=slack)

    @each_pursuit
    @given(problem=problems)
    def test_residual_never_grows_with_s(self, pursuit, problem):
        X, dictionary = problem
        before = np.sum(X**2, axis=1)
        for s in range(1, min(len(dictionary), 8) + 1):
            after = squared_residuals(X, dictionary, encode(X, dictionary, s, pursuit=pursuit))
            assert (after <= before * (1 + 1e-9) + 1e-12).all()
            before = after

    @each_pursuit
    @given(problem=problems, share=st.floats(0.0, 1.2))
    def test_tolerance(self, pursuit, problem, share):
        """Every signal reaches the tolerance, or nothing that is left of it correlates with an atom."""
        X, dictionary = problem
        tol = share * float(np.mean(np.sum(X**2, axis=1)))
        codes = encode(X, dictionary, residual_tol=tol, pursuit=pursuit)
        residuals = X - codes @ dictionary
        slack = 1e-9 * (1.0 + np.sum(X**2, axis=1))
        reached = np.sum(residuals**2, axis=1) <= tol + slack
        correlations = np.abs(residuals @ dictionary.T).max(axis=1)
        assert (reached | (correlations <= 1e-7 * (1.0 + np.abs(dictionary).max()))).all()
        # It stops as soon as it may: with one atom fewer the tolerance is not met.
        counts = np.count_nonzero(codes, axis=1)
        for count in np.unique(counts[counts > 0]):
            shorter = encode(X, dictionary, int(count) - 1, pursuit=pursuit) if count > 1 else np.zeros_like(codes)
            left = squared_residuals(X, dictionary, shorter)
            assert (left > tol - slack)[counts == count].all()

    @each_pursuit
    @given(problem=general(), s=st.integers(1, 5))
    def test_gram_gives_the_same(self, pursuit, problem, s):
        X, dictionary = problem
        s = min(s, *dictionary.shape)
        expected = encode(X, dictionary, s, pursuit=pursuit)
        codes = sparse_encode_gram(dictionary @ dictionary.T, X @ dictionary.T, n_nonzero_coefs=s, pursuit=pursuit)
        np.testing.assert_allclose(codes @ dictionary, expected @ dictionary, rtol=1e-5, atol=1e-5)

    @each_pursuit
    @given(problem=problems, s=st.integers(1, 5))
    def test_scale_of_atoms_and_signals(self, pursuit, problem, s):
        """Powers of two change no digit: atoms of any length are chosen as soon, and the codes follow."""
        X, dictionary = problem
        factors = 2.0 ** (np.arange(len(dictionary)) % 7 - 3)
        codes = encode(X, dictionary, s, pursuit=pursuit)
        scaled = encode(4.0 * X, dictionary * factors[:, None], s, pursuit=pursuit)
        np.testing.assert_array_equal(scaled * factors, 4.0 * codes)


class TestAgainstScikitLearn:
    @pytest.fixture
    def problem(self):
        rng = np.random.default_rng(0)
        dictionary = rng.standard_normal((50, 30))
        dictionary /= np.linalg.norm(dictionary, axis=1, keepdims=True)
        return rng.standard_normal((40, 30)), dictionary

    @pytest.mark.parametrize("s", [1, 2, 5, 12])
    def test_omp(self, problem, s):
        X, dictionary = problem
        expected = orthogonal_mp_gram(dictionary @ dictionary.T, dictionary @ X.T, n_nonzero_coefs=s).T
        np.testing.assert_allclose(
            sparse_encode(X, dictionary, n_nonzero_coefs=s, pursuit="omp"), expected, rtol=0, atol=1e-10
        )

    @pytest.mark.parametrize("tol", [10.0, 5.0, 0.5])
    def test_tolerance(self, problem, tol):
        X, dictionary = problem
        # scikit-learn gives even a signal below the tolerance an atom.
        assert np.sum(X**2, axis=1).min() > tol
        gram, correlations, squares = dictionary @ dictionary.T, X @ dictionary.T, np.sum(X**2, axis=1)
        expected = orthogonal_mp_gram(gram, correlations.T, tol=tol, norms_squared=squares).T
        codes = sparse_encode_gram(gram, correlations, squared_norms=squares, residual_tol=tol, pursuit="omp")
        assert len(np.unique(np.count_nonzero(codes, axis=1))) > 2
        np.testing.assert_allclose(codes, expected, rtol=0, atol=1e-9)


class TestManyAtoms:
    """The factor has columns in blocks of several vectors and in single ones."""

    @each_pursuit
    @each_dtype
    @pytest.mark.parametrize("n_atoms", [64, 90, 150])
    def test_many_nonzeros(self, pursuit, dtype, n_atoms):
        rng = np.random.default_rng(1)
        dictionary = rng.standard_normal((n_atoms, 60))
        dictionary /= np.linalg.norm(dictionary, axis=1, keepdims=True)
        X = rng.standard_normal((3, 60))
        expected = reference.encode(X, dictionary, np.eye(60), np.sum(X**2, axis=1), 24, kind=pursuit)
        codes = sparse_encode(X.astype(dtype), dictionary.astype(dtype), n_nonzero_coefs=24, pursuit=pursuit)
        np.testing.assert_array_equal(codes != 0.0, expected != 0.0)
        np.testing.assert_allclose(codes, expected, rtol=0, atol=1e-9 if dtype == np.float64 else 1e-3)


@pytest.mark.parametrize("pursuit", ["ols", "omp"])
class TestEdges:
    """Inputs that a greedy choice could stumble over."""

    def test_ties_go_to_the_first_atom(self, pursuit):
        codes = encode(np.ones((1, 70)), np.eye(70), 40, pursuit=pursuit)
        np.testing.assert_array_equal(codes[0], np.arange(70) < 40)

    @each_dtype
    @pytest.mark.parametrize("n_atoms", [1, 7, 8, 15, 16, 17, 40, 64, 83])
    def test_any_number_of_atoms_in_any_layout(self, pursuit, dtype, n_atoms):
        """Rows that end within a vector, in Fortran order, and with numbers beside them that are not read."""
        rng = np.random.default_rng(n_atoms)
        atoms = rng.standard_normal((n_atoms, 90)).astype(dtype)
        atoms /= np.linalg.norm(atoms, axis=1, keepdims=True)
        around = np.full((22, n_atoms + 40), np.nan, dtype=dtype)
        inside = around[1:21, 20 : n_atoms + 20]
        inside[:] = rng.standard_normal((20, 90)).astype(dtype) @ atoms.T
        rest = atoms @ atoms.T, np.full(20, np.inf, dtype=dtype), min(3, n_atoms), -1.0, pursuit
        expected = CPU.pursue(inside.copy(), *rest)[0]
        assert (expected.counts == min(3, n_atoms)).all()
        for correlations in (inside, np.asfortranarray(inside)):
            for gram in (rest[0], CPU.padded_gram(rest[0]), np.asfortranarray(rest[0])):
                for found, part in zip(CPU.pursue(correlations, gram, *rest[1:])[0], expected, strict=True):
                    np.testing.assert_array_equal(found, part)

    @pytest.mark.parametrize("sign", [1.0, -1.0])
    def test_equal_atoms(self, pursuit, sign):
        """Of atoms of one direction one is used, and the others add nothing to it."""
        rng = np.random.default_rng(0)
        few = rng.standard_normal((3, 8))
        dictionary = np.repeat(few, 25, axis=0)
        dictionary[1::25] *= 2.0 * sign
        X = rng.standard_normal((20, 8))
        codes = encode(X, dictionary, 6, pursuit=pursuit)
        assert (np.count_nonzero(codes.reshape(20, 3, 25), axis=2) == 1).all()
        np.testing.assert_allclose(codes @ dictionary, encode(X, few, 3, pursuit=pursuit) @ few, atol=1e-12)

    @each_dtype
    @pytest.mark.parametrize("gap", [1e-3, 1e-4, 1e-5, 1e-6, 1e-7])
    def test_nearly_equal_atoms_stay_bounded(self, pursuit, dtype, gap):
        """Close atoms may share a signal; what they do to its residual is no worse than without the second."""
        rng = np.random.default_rng(1)
        first = rng.standard_normal((4, 10))
        dictionary = np.vstack([first, first + gap * rng.standard_normal((4, 10))]).astype(dtype)
        X = rng.standard_normal((30, 10)).astype(dtype)
        codes = encode(X, dictionary, 8, pursuit=pursuit).astype(float)
        alone = encode(X, dictionary[:4], 4, pursuit=pursuit).astype(float)
        assert np.isfinite(codes).all()
        actual = squared_residuals(X.astype(float), dictionary.astype(float), codes)
        bound = squared_residuals(X.astype(float), dictionary[:4].astype(float), alone)
        assert (actual <= bound * (1 + 1e-3)).all()

    def test_zero_atoms_and_zero_signals(self, pursuit):
        rng = np.random.default_rng(0)
        dictionary, X = rng.standard_normal((6, 4)), rng.standard_normal((5, 4))
        dictionary[[0, 3]] = 0.0
        X[2] = 0.0
        codes = encode(X, dictionary, 4, pursuit=pursuit)
        assert not codes[:, [0, 3]].any()
        assert not codes[2].any()
        assert np.count_nonzero(codes) == 4 * 4
        assert not encode(X, np.zeros((3, 4)), 2, pursuit=pursuit).any()

    def test_one_feature(self, pursuit):
        codes = encode([[3.0], [-4.0], [0.0]], [[0.0], [2.0], [-5.0]], 2, pursuit=pursuit)
        np.testing.assert_allclose(codes, [[0.0, 1.5, 0.0], [0.0, -2.0, 0.0], [0.0, 0.0, 0.0]])

    @each_dtype
    @pytest.mark.parametrize(("n_features", "n_atoms"), [(6, 40), (64, 256)])
    def test_more_atoms_than_features(self, pursuit, dtype, n_features, n_atoms):
        """As many atoms as features represent every signal, and what is allowed beyond that is not used."""
        rng = np.random.default_rng(0)
        X = rng.standard_normal((50, n_features)).astype(dtype)
        dictionary = rng.standard_normal((n_atoms, n_features)).astype(dtype)
        codes = encode(X, dictionary, n_features + 10, pursuit=pursuit)
        residuals = np.linalg.norm(X - codes.astype(float) @ dictionary, axis=1) / np.linalg.norm(X, axis=1)
        # The difference of squares, which the pursuit goes by, has half the digits.
        half = np.sqrt(np.finfo(dtype).eps)
        singular = [np.linalg.svd(dictionary[row != 0.0].astype(float), compute_uv=False) for row in codes]
        is_independent = np.array([values[-1] > half * values[0] for values in singular])
        assert (residuals[is_independent] < 4 * half).all()
        # Atoms that are dependent to half the digits are dependent to inner products; in float32 some signal in two
        # or three hundred ends at such a set.
        assert is_independent.all() if dtype == np.float64 else is_independent.mean() > 0.9
        assert np.count_nonzero(codes, axis=1).max() <= n_features

    @each_dtype
    @pytest.mark.parametrize("n_features", [20, 100, 2000])
    def test_exact_representation_has_no_junk(self, pursuit, dtype, n_features):
        """A signal of three atoms gets three coefficients, however many are allowed."""
        rng = np.random.default_rng(n_features)
        orthonormal = np.linalg.qr(rng.standard_normal((n_features, 12)))[0].T
        dictionary = (orthonormal + 0.05 * np.roll(orthonormal, 1, axis=0)).astype(dtype)
        truth = np.zeros((200, 12))
        for row in truth:
            row[rng.choice(12, 3, replace=False)] = rng.choice([-1, 1], 3) * rng.uniform(1.0, 2.0, 3)
        X = (truth @ dictionary.astype(float)).astype(dtype)
        codes = encode(X, dictionary, 10, pursuit=pursuit)
        np.testing.assert_array_equal(codes != 0, truth != 0)
        np.testing.assert_allclose(codes, truth, rtol=0, atol=100 * np.finfo(dtype).eps)


class TestOutput:
    @pytest.fixture
    def problem(self):
        rng = np.random.default_rng(0)
        return rng.standard_normal((900, 12)), rng.standard_normal((35, 12))

    @each_coder
    @each_dtype
    def test_csr_is_dense(self, problem, options, dtype):
        X, dictionary = (part.astype(dtype) for part in problem)
        dense = sparse_encode(X, dictionary, **options)
        codes = sparse_encode(X, dictionary, sparse_output=True, **options)
        assert isinstance(codes, sparse.csr_array)
        assert dense.dtype == codes.dtype == dtype
        np.testing.assert_array_equal(codes.toarray(), dense)
        rows = np.repeat(np.arange(len(X)), np.diff(codes.indptr))
        assert (np.diff(rows * 35 + codes.indices) > 0).all()
        assert codes.has_canonical_format
        assert codes.nnz == np.count_nonzero(dense)

    @each_coder
    @each_dtype
    def test_dtype_follows_the_signals(self, problem, options, dtype):
        X, dictionary = problem
        squares = np.sum(X**2, axis=1)
        codes = sparse_encode(X.astype(dtype), dictionary, **options)
        products = (X @ dictionary.T).astype(dtype)
        from_gram = sparse_encode_gram(dictionary @ dictionary.T, products, squared_norms=squares, **options)
        assert codes.dtype == from_gram.dtype == dtype
        expected = squared_residuals(X, dictionary, sparse_encode(X, dictionary, **options))
        for found in (codes, from_gram):
            actual = squared_residuals(X, dictionary, found.astype(float))
            np.testing.assert_allclose(
                actual, expected, rtol=1e3 * np.finfo(dtype).eps, atol=1e-4 * (dtype == np.float32)
            )

    @each_pursuit
    def test_integers_are_float64(self, pursuit):
        codes = sparse_encode(np.array([[2, 0, 1]]), np.eye(3, dtype=int), n_nonzero_coefs=2, pursuit=pursuit)
        assert codes.dtype == np.float64
        np.testing.assert_array_equal(codes, [[2.0, 0.0, 1.0]])

    @each_coder
    def test_sparse_signals_and_tensors(self, problem, options):
        torch = pytest.importorskip("torch")
        X, dictionary = problem
        X = X * (np.abs(X) > 0.5)
        expected = sparse_encode(X, dictionary, **options)
        np.testing.assert_array_equal(sparse_encode(sparse.csr_array(X), dictionary, **options), expected)
        codes = sparse_encode(torch.from_numpy(X), torch.from_numpy(dictionary), **options)
        np.testing.assert_allclose(codes.numpy(), expected, rtol=0, atol=1e-12)

    @each_coder
    def test_chunks_do_not_show(self, problem, options):
        """A signal's code does not depend on the signals around it, up to the rounding of products."""
        X, dictionary = problem
        together = sparse_encode(X, dictionary, **options)
        alone = np.vstack([sparse_encode(x[None], dictionary, **options) for x in X[::50]])
        np.testing.assert_allclose(together[::50], alone, rtol=0, atol=1e-12)

    @each_coder
    def test_missing_numbers_are_columns_left_out(self, problem, options):
        torch = pytest.importorskip("torch")
        X, dictionary = problem[0][:60], problem[1]
        known = np.random.default_rng(1).permuted(np.tile(np.arange(12) > 4, (60, 1)), axis=1)
        expected = [sparse_encode(x[None, own], dictionary[:, own], **options) for x, own in zip(X, known, strict=True)]
        given = np.where(known, X, np.nan)
        codes = sparse_encode(given, dictionary, missing="ignore", **options)
        np.testing.assert_allclose(codes, np.vstack(expected), rtol=0, atol=1e-8)
        for other in (torch.from_numpy(given), given[::-1][::-1].tolist()):
            same = sparse_encode(other, dictionary, missing="ignore", **options)
            np.testing.assert_allclose(np.asarray(same), codes, rtol=0, atol=1e-12)

    def test_more_nonzeros_than_atoms_are_clipped(self, problem):
        X, dictionary = problem
        with pytest.warns(UserWarning, match="n_nonzero_coefs=40 exceeds the number of atoms, 35"):
            codes = sparse_encode(X, dictionary, n_nonzero_coefs=40)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            np.testing.assert_array_equal(codes, sparse_encode(X, dictionary, n_nonzero_coefs=35))
