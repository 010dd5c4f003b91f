"""What users of the neighbouring libraries complain about."""

from __future__ import annotations

import pickle
import tracemalloc
import warnings
from functools import partial

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics.pairwise import polynomial_kernel, rbf_kernel

import helpers
from helpers import CLASSES, REDUCED, atoms_of, by_class, poor_models
from rkdl import DL, KDL, MORKDL, ORKDL, RKDL, FourierDL, sparse_encode, sparse_encode_gram

pytestmark = poor_models

SIZES = {"n_components": 5, "n_nonzero_coefs": 2, "n_kernel_vectors": 12, "n_fourier_features": 32, "max_iter": 5}
make = partial(helpers.make, **SIZES)
every = by_class(CLASSES)
# Shapes of the first atoms.
START = {DL: (5, 6), KDL: (5, 60), FourierDL: (5, 32), **dict.fromkeys(REDUCED, (5, 12))}


def signals(count, seed=0):
    return np.random.default_rng(seed).standard_normal((count, 6))


@pytest.fixture
def X():
    return signals(60)


def unit_norms(model, X):
    """Norms of the fitted atoms in the method's own space."""
    if hasattr(model, "components_"):
        return np.linalg.norm(model.components_, axis=1)
    vectors = model.kernel_vectors_
    kernels = {
        "rbf": lambda: rbf_kernel(vectors, gamma=model.gamma_),
        "poly": lambda: polynomial_kernel(vectors, degree=model.degree, gamma=model.gamma_, coef0=model.coef0),
        "linear": lambda: vectors @ vectors.T,
    }
    dual = model.dual_components_
    return np.sqrt(np.einsum("ij,ij->i", dual @ kernels[model.kernel](), dual))


class TestInitIgnored:
    """An init argument is ignored unless another is given too."""

    @every
    def test_given_atoms_are_where_the_fit_starts(self, kind, X):
        given = {}
        if kind in REDUCED:
            given["kernel_vectors"] = X[:12]
        cold = make(kind, max_iter=30, init="random", **given).fit(X)
        if kind in REDUCED:
            given["kernel_vectors"] = cold.kernel_vectors_
        warm = make(kind, max_iter=1, init=atoms_of(cold), **given).fit(X)
        assert cold.errors_[0] > 1.02 * cold.errors_[-1]
        assert warm.errors_[0] < 1.01 * cold.errors_[-1]

    @by_class([DL, KDL])
    def test_given_atoms_leave_nothing_to_chance(self, kind, X):
        start = np.random.default_rng(1).standard_normal((5, 6 if kind is DL else 60))
        one, other = (make(kind, init=start, random_state=seed).fit(X) for seed in (1, 2))
        np.testing.assert_array_equal(atoms_of(one), atoms_of(other))
        third = make(kind, init=start[::-1] + 0.5, random_state=1).fit(X)
        assert not np.allclose(atoms_of(one), atoms_of(third))

    @by_class(REDUCED)
    def test_given_kernel_vectors_need_no_count(self, kind, X):
        """The default count does not agree with the array, and need not."""
        model = kind(5, kernel_vectors=X[:7], n_nonzero_coefs=2, max_iter=2, random_state=0).fit(X)
        assert model.kernel_vectors_.shape == (7, 6)
        if kind is RKDL:
            np.testing.assert_array_equal(model.kernel_vectors_, X[:7])


class TestDeadAtoms:
    """Dead atoms stay dead."""

    @every
    def test_signals_on_a_line(self, kind, X):
        """They need one atom of many; there is nothing to revive the others from, and nothing breaks."""
        line = np.outer(np.linspace(0.5, 2.0, 40), X[0])
        model = make(kind, gamma=0.1).fit(line) if kind is not DL else make(kind).fit(line)
        assert np.isfinite(model.errors_).all()
        if kind is DL:
            assert model.reconstruction_error(line).max() < 1e-6

    @every
    def test_a_good_start_revives_none(self, kind, X):
        assert make(kind).fit(X).n_revived_ == 0


class TestSingularKernel:
    """A singular kernel divides by zero."""

    @pytest.mark.parametrize("atom_update", ["momentum", "gram", "aksvd"])
    @pytest.mark.parametrize("pursuit", ["ols", "omp"])
    def test_more_kernel_vectors_than_dimensions_are_linear_dictionary_learning(self, pursuit, atom_update, X):
        """K(D, D) of 20 kernel vectors has rank 6; the method on it is DL itself."""
        vectors = signals(20, seed=1)
        dual = np.random.default_rng(2).standard_normal((5, 20))
        options = {"pursuit": pursuit, "atom_update": atom_update}
        reduced = make(RKDL, kernel="linear", kernel_vectors=vectors, init=dual, **options).fit(X)
        linear = make(DL, init=dual @ vectors, **options).fit(X)
        assert reduced.rank_ == 6
        np.testing.assert_allclose(reduced.errors_, linear.errors_, rtol=1e-8)
        np.testing.assert_allclose(reduced.transform(X), linear.transform(X), atol=1e-6)
        np.testing.assert_allclose(reduced.dual_components_ @ vectors, linear.components_, atol=1e-6)

    def test_the_full_method_of_a_singular_kernel_is_linear_dictionary_learning(self, X):
        dual = np.random.default_rng(2).standard_normal((5, 60))
        full = make(KDL, kernel="linear", init=dual).fit(X)
        linear = make(DL, init=dual @ X).fit(X)
        np.testing.assert_allclose(full.errors_, linear.errors_, rtol=1e-8)
        np.testing.assert_allclose(full.transform(X), linear.transform(X), atol=1e-6)

    @by_class(REDUCED)
    @pytest.mark.parametrize("kernel", ["rbf", "poly", "linear"])
    def test_nearly_equal_kernel_vectors(self, kind, kernel, X):
        X = X.astype(np.float32)
        vectors = np.repeat(X[:4], 3, axis=0) * (1.0 + 1e-7 * signals(12, seed=3))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            # That most of them add nothing is said.
            warnings.filterwarnings("ignore", message=".*are independent in float")
            model = make(kind, kernel=kernel, kernel_vectors=vectors).fit(X)
            codes = model.transform(X)
        # Coefficients that grow without bound are the other way to divide by nothing.
        assert np.isfinite(model.dual_components_).all()
        assert np.abs(codes).max() < 1e3 * np.sqrt(max(1.0, np.abs(X @ X.T).max() ** 3))
        assert model.errors_[-1] <= model.errors_[0] * (1 + 1e-3)
        error = np.sqrt(np.sum(model.reconstruction_error(X).astype(float) ** 2) / X.size)
        assert error == pytest.approx(model.errors_[-1], rel=0.1)


class Recorder:
    """A callable kernel that records the shapes it is called with."""

    def __init__(self):
        self.shapes = []

    def __call__(self, A, B):
        self.shapes.append((len(A), len(B)))
        return rbf_kernel(A, B, gamma=0.1)


class TestDiagonalOfTheKernel:
    """Memory grows as N x N only to read a diagonal."""

    def test_no_square_of_the_signals(self):
        kernel = Recorder()
        X = signals(3000)
        model = make(RKDL, kernel=kernel, max_iter=2, n_jobs=1).fit(X)
        model.reconstruction_error(X)
        # One side has the kernel vectors, or both are a small block of the signals.
        assert max(min(shape) for shape in kernel.shapes) <= 256
        assert max(rows * columns for rows, columns in kernel.shapes) <= 3000 * 64

    @by_class([KDL, RKDL])
    def test_errors_of_new_signals(self, kind, X):
        model = make(kind, kernel=Recorder()).fit(X)
        new = signals(2000, seed=1)
        model.reconstruction_error(new[:300])
        model.kernel.shapes.clear()
        peak = peak_of(lambda: model.reconstruction_error(new))
        assert max(min(shape) for shape in model.kernel.shapes) <= 64
        assert peak < 2000 * 2000 * 8 / 8


class TestNormOfTheAtoms:
    """Atoms that are not of unit norm silently give wrong codes."""

    @pytest.mark.parametrize(("pursuit", "dtype"), [("ols", np.float64), ("omp", np.float32)])
    def test_codes_are_those_of_the_atoms_as_given(self, pursuit, dtype, X):
        unit = signals(9, seed=1)
        unit /= np.linalg.norm(unit, axis=1, keepdims=True)
        lengths = 10.0 ** np.linspace(-4, 4, 9)
        options = {"n_nonzero_coefs": 3, "pursuit": pursuit}
        expected = sparse_encode(X.astype(dtype), unit, **options)
        atoms = unit * lengths[:, None]
        tolerance = 1e-10 if dtype == np.float64 else 1e-4
        codes = sparse_encode(X.astype(dtype), atoms, **options)
        np.testing.assert_allclose(codes * lengths, expected, rtol=tolerance, atol=tolerance)
        codes = sparse_encode_gram(atoms @ atoms.T, (X @ atoms.T).astype(dtype), **options)
        np.testing.assert_allclose(codes * lengths, expected, rtol=tolerance, atol=tolerance)
        assert codes.dtype == dtype

    @every
    def test_the_length_of_first_atoms_means_nothing(self, kind, X):
        start = np.random.default_rng(1).standard_normal(START[kind])
        one, other = (make(kind, init=array).fit(X) for array in (start, 1e3 * start))
        np.testing.assert_allclose(other.errors_, one.errors_, rtol=1e-5)

    @pytest.mark.parametrize(
        ("kind", "options"),
        [
            (DL, {}),
            (FourierDL, {}),
            *((kind, {"kernel": kernel}) for kind in (KDL, *REDUCED) for kernel in ("rbf", "poly", "linear")),
        ],
    )
    def test_fitted_atoms_have_unit_norm(self, kind, options, X):
        model = make(kind, **options).fit(3.0 * X)
        np.testing.assert_allclose(unit_norms(model, X), 1.0, rtol=1e-6)
        if hasattr(model, "gram_"):
            np.testing.assert_allclose(model.gram_.diagonal(), 1.0, rtol=1e-6)

    @every
    def test_codes_are_least_squares_on_their_support(self, kind, X):
        """The error that is reported is the one that the codes have."""
        model = make(kind).fit(X)
        codes, errors = model.transform(X), model.reconstruction_error(X)
        if kind is DL:
            features, atoms = X, model.components_
        elif kind is FourierDL:
            phases = X @ model.frequencies_.T
            features = np.hstack([np.cos(phases), np.sin(phases)]) / np.sqrt(len(model.frequencies_))
            atoms = model.components_
        else:
            cross = rbf_kernel(X, model.kernel_vectors_, gamma=model.gamma_)
            inner = rbf_kernel(model.kernel_vectors_, gamma=model.gamma_)
            dual = codes @ model.dual_components_
            squares = 1.0 - 2.0 * np.sum(cross * dual, axis=1) + np.sum((dual @ inner) * dual, axis=1)
            np.testing.assert_allclose(errors, np.sqrt(np.maximum(squares, 0.0)), atol=1e-6)
            return
        np.testing.assert_allclose(errors, np.linalg.norm(features - codes @ atoms, axis=1), atol=1e-6)


class TestDefaultSparsity:
    """A default sparsity that raises an error on its own defaults."""

    @every
    def test_defaults_fit(self, kind, X):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model = kind(random_state=0).fit(X)
            codes = model.transform(X)
        assert 1 <= (codes != 0).sum(axis=1).max() <= model.n_nonzero_coefs

    def test_functions(self, X):
        for n_atoms in (1, 9, 10, 35):
            atoms = signals(n_atoms, seed=1)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                codes = sparse_encode(X, atoms)
                from_gram = sparse_encode_gram(atoms @ atoms.T, X @ atoms.T)
            assert (codes != 0).sum(axis=1).max() == max(1, n_atoms // 10)
            np.testing.assert_allclose(from_gram, codes, atol=1e-9)


class TestDtypeAndSparsity:
    """float32 in, float64 out, and dense only."""

    @pytest.mark.parametrize(
        ("n_jobs", "sparse_output", "dtype"), [(1, False, np.float32), (2, True, np.float32), (1, True, np.float64)]
    )
    def test_functions(self, n_jobs, sparse_output, dtype):
        X, atoms = signals(1000).astype(dtype), signals(9, seed=1)
        options = {"n_nonzero_coefs": 3, "n_jobs": n_jobs, "sparse_output": sparse_output}
        for codes in (
            sparse_encode(X, atoms, **options),
            sparse_encode(sparse.csr_array(X), atoms.astype(dtype), **options),
            sparse_encode_gram(atoms @ atoms.T, X @ atoms.astype(dtype).T, **options),
        ):
            assert codes.dtype == dtype
            assert sparse.issparse(codes) == sparse_output
            if sparse_output:
                assert codes.format == "csr"
                assert codes.nnz <= 3000
                assert codes.has_sorted_indices

    @every
    def test_sparse_signals_are_not_made_dense(self, kind):
        X = sparse.random_array((3000, 400), density=0.005, format="csr", rng=np.random.default_rng(0))
        model = make(kind).fit(X[:50])
        model.transform(X[:300])
        peak = peak_of(lambda: model.transform(X))
        assert peak < 0.7 * X.shape[0] * X.shape[1] * 8


class TestSizeOfTheModel:
    """A fitted model carries the whole training set."""

    @by_class([kind for kind in CLASSES if kind is not KDL])
    def test_pickle_does_not_grow_with_the_signals(self, kind):
        few, many = (len(pickle.dumps(make(kind).fit(signals(count)))) for count in (50, 2000))
        assert many < 1.05 * few + 200

    def test_no_attribute_is_a_view_of_the_signals(self):
        for choice in ("dictionary", "random", "kmeans", "rpcholesky"):
            for name, value in vars(make(RKDL, kernel_vectors=choice).fit(signals(2000))).items():
                if isinstance(value, np.ndarray):
                    base = value if value.base is None else value.base
                    assert base.nbytes <= 2 * value.nbytes, name


def peak_of(call):
    """Peak of the memory that `call` allocates, in bytes."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# Chunks are as large as they get from sixteen of them on, that is from about 131,000 signals.
FEW, MANY = 140_000, 280_000


@pytest.fixture(scope="module")
def many():
    return np.random.default_rng(0).standard_normal((MANY, 6), dtype=np.float32)


def growth(call, many):
    """Bytes by which the peak grows with each further signal."""
    call(many[:300])
    peaks = [peak_of(lambda size=size: call(many[:size])) for size in (FEW, MANY)]
    return (peaks[1] - peaks[0]) / (MANY - FEW)


class TestMemoryOfTransform:
    """`transform` works chunk by chunk: its memory does not grow with the signals, beyond its output."""

    @every
    def test_growth(self, kind, X, many):
        model = make(kind, n_jobs=1).fit(X.astype(np.float32))
        assert growth(model.transform, many) < 1.1 * 5 * 4
        # An error and a norm.
        assert growth(model.reconstruction_error, many) < 1.5 * 2 * 4
        # A signal's output is two values, two indices and a pointer: once in chunks, once joined.
        assert growth(model.set_params(sparse_output=True).transform, many) < 2.2 * (2 * (4 + 4) + 4)

    def test_function(self, many):
        atoms = signals(5, seed=1)
        assert growth(lambda X: sparse_encode(X, atoms, n_nonzero_coefs=2, n_jobs=1), many) < 1.1 * 5 * 4


@pytest.mark.slow
class TestMemoryOfFit:
    """Features belong to the kernel vectors: when these move, one set of them is held, never an old and a new."""

    @pytest.mark.parametrize(("kind", "solver"), [(ORKDL, "lbfgs"), (MORKDL, "gd")])
    def test_features_are_held_once(self, kind, solver, many):
        model = make(kind, kernel_vectors=many[:32], gamma=0.1, solver=solver, max_iter=2, n_jobs=1)
        features, codes = 32 * 4, 2 * (4 + 4) + 4 + 4
        # Two sets of codes: before and after they are rescaled.
        assert growth(model.fit, many) < 1.5 * features + 2 * codes
