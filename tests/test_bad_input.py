"""Bad and awkward input: a clear error, or a warning with a finite result, in fit and after it."""

from __future__ import annotations

import functools
import itertools
import re
import warnings
from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial.distance import pdist
from sklearn.metrics.pairwise import polynomial_kernel, rbf_kernel

import helpers
from helpers import CLASSES, KERNEL, OPTIMIZED, REDUCED, atoms_of, by_class, cover, poor_models, share
from rkdl import DL, KDL, MORKDL, ORKDL, RKDL, FourierDL, KDLOutlierDetector, sparse_encode, sparse_encode_gram

pytestmark = poor_models

SIZES = {"n_components": 5, "n_nonzero_coefs": 2, "n_kernel_vectors": 8, "n_fourier_features": 16, "max_iter": 3}
make = partial(helpers.make, tol=1e-4, **SIZES)
METHODS = ["transform", "reconstruction_error", "score"]
CHOICES = ["dictionary", "random", "kmeans", "rpcholesky"]
X = np.random.default_rng(0).standard_normal((40, 6))
X.setflags(write=False)
DICTIONARY = np.random.default_rng(1).standard_normal((5, 6))
OTHER_FORMATS = ["csc", "coo", "bsr", "lil", "dok", "dia"]
THIN = np.where(X > 0.5, X, 0.0)

every, every_kernel, every_reduced, every_optimized = map(by_class, (CLASSES, KERNEL, REDUCED, OPTIMIZED))
full_and_reduced = by_class([KDL, RKDL])
each_pursuit = pytest.mark.parametrize("pursuit", ["ols", "omp"])


@functools.cache
def fitted(kind):
    """A small model of a class; no test may change it."""
    return make(kind).fit(X)


def calls(kind):
    """Everything that takes signals: a new fit, and the methods of a fitted model."""
    model = fitted(kind)
    found = [make(kind).fit, *(getattr(model, method) for method in METHODS)]
    return [*found, model.partial_fit, model.denoise] if kind is DL else found


def changed(row, column, value):
    """The signals with some of their values replaced."""
    signals = X.copy()
    signals[row, column] = value
    return signals


def assert_finite(model, X):
    """No fitted attribute and no answer is infinite or NaN; returns the codes, the errors and the score."""
    for name, value in vars(model).items():
        if name.endswith("_") and isinstance(value, (np.ndarray, float, int)):
            assert np.isfinite(value).all(), name
    codes, errors, score = model.transform(X), model.reconstruction_error(X), model.score(X)
    assert np.isfinite(codes).all()
    assert np.isfinite(errors).all()
    assert (errors >= 0.0).all()
    assert np.isfinite(score)
    assert score <= 1.0
    assert (codes != 0).sum(axis=1).max() <= min(model.n_nonzero_coefs, model.n_components)
    return codes, errors, score


def fit_finite(model, X):
    """Fit with no warning but the library's own, which speak to the user."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        return model.fit(X), *assert_finite(model, X)


def assert_speaks(match, call):
    """`call` ends in an error, or gives a warning, that says `match`."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        said = []
        try:
            call()
        except ValueError as error:
            said = [str(error)]
    said = said or [str(one.message) for one in caught]
    assert any(re.search(match, words) for words in said), f"nothing says {match!r}: {said}"


def spoiled(form, spoil):
    """A sparse matrix of the signals of which one part is wrong."""
    matrix = sparse.csr_array(THIN).asformat(form)
    spoil(matrix)
    return matrix


# Signals that everything refuses, and what it says.
REFUSED = {
    "nan": (changed(7, 3, np.nan), "contains NaN"),
    "infinity": (changed(7, 3, np.inf), "infinity"),
    "minus infinity": (changed(7, 3, -np.inf), "infinity"),
    "sparse nan": (sparse.csr_array(changed(7, 3, np.nan)), "contains NaN"),
    "sparse infinity": (sparse.csr_array(changed(7, 3, np.inf)), "infinity"),
    "complex": (X + 1j, "Complex data not supported"),
    "masked": (
        np.ma.array(X, mask=X > 1.5),
        rf"X is a masked array, and {(X > 1.5).sum()} of its .* masked: fill .* or",
    ),
    "strings": ([["cat"] * 6] * 40, "could not convert string to float: 'cat'"),
    "objects": (np.full((40, 6), {}, dtype=object), "must be a string or a real number, not 'dict'"),
    "no signals": (X[:0], r"0 sample\(s\) \(shape=\(0, 6\)\)"),
    "one axis": (X[0], "Expected 2D array, got 1D array"),
    "three axes": (X.reshape(40, 3, 2), r"dim 3, .* Flatten every signal to one row: X\.reshape\(len\(X\), -1\)"),
    "sparse index": (
        spoiled("csr", lambda S: S.indices.__setitem__(3, 10**8)),
        "malformed CSR matrix of shape .* column index 100000000, outside 0 to 5",
    ),
}

# Sparse matrices that are none: checked before any conversion, which would read or write out of bounds.
MALFORMED = [
    ("csr", lambda S: S.indices.__setitem__(3, -1), "column index -1, outside 0 to 5"),
    ("csc", lambda S: S.indices.__setitem__(3, 40), "row index 40, outside 0 to 39"),
    ("coo", lambda S: S.col.__setitem__(3, 40), "column index 40, outside 0 to 5"),
    ("bsr", lambda S: S.indices.__setitem__(0, 40), "column index 40, outside 0 to"),
    ("lil", lambda S: (S.rows.__setitem__(5, [-1]), S.data.__setitem__(5, [1.0])), "column index -1, outside 0 to 5"),
    ("coo", lambda S: setattr(S, "data", S.data[:-1]), "indices are not as many integers as"),
    ("dia", lambda S: setattr(S, "offsets", S.offsets[:-1]), "its offsets do not fit its data"),
    (
        "dia",
        lambda S: setattr(S, "offsets", S.offsets.astype(np.int64) + 2**40),
        "it has the offset .*, outside -39 to 5",
    ),
    ("bsr", lambda S: setattr(S, "data", np.ones((len(S.data), 0, 0))), "its indices cannot be read"),
    ("bsr", lambda S: S.indptr.__setitem__(3, 10**8), "do not fit each other"),
    ("csr", lambda S: S.indptr.__setitem__(2, -(2**31)), "do not fit each other"),
    ("csr", lambda S: S.indptr.__setitem__(-1, S.nnz + 50), "do not fit each other"),
    ("csr", lambda S: setattr(S, "indptr", S.indptr[:-1]), "do not fit each other"),
    ("csr", lambda S: setattr(S, "data", S.data[:-2]), "do not fit each other"),
    ("csr", lambda S: setattr(S, "data", S.data[:, None]), "do not fit each other"),
]


class TestRefused:
    @pytest.mark.parametrize("bad", REFUSED)
    @every
    def test_signals(self, kind, bad):
        signals, words = REFUSED[bad]
        for call in calls(kind):
            with pytest.raises((ValueError, TypeError), match=words):
                call(signals)

    @every
    def test_numbers_of_features(self, kind):
        with pytest.raises(ValueError, match=r"0 feature\(s\) \(shape=\(40, 0\)\)"):
            make(kind).fit(X[:, :0])
        for method in METHODS:
            with pytest.raises(ValueError, match=rf"X has 5 features, but {kind.__name__} is expecting 6 features"):
                getattr(fitted(kind), method)(X[:, :5])

    @pytest.mark.parametrize(("form", "spoil", "words"), MALFORMED)
    def test_malformed_sparse_matrices(self, form, spoil, words):
        for call in calls(DL):
            with pytest.raises(ValueError, match=f"malformed {form.upper()} matrix of shape .*{words}"):
                call(spoiled(form, spoil))

    @by_class([DL, RKDL])
    def test_infinity_among_positive_signals(self, kind):
        """Where all kernel vectors are positive, infinity must not pass for a signal that is merely far."""
        positive = np.abs(X) + 0.5
        model = make(kind).fit(positive)
        positive[1, 2] = np.inf
        for method in METHODS:
            with pytest.raises(ValueError, match="infinity"):
                getattr(model, method)(positive)

    def test_messages_name_the_columns(self):
        broken = changed([3, 7], [1, 4], np.nan)
        for model in (ORKDL(), KDLOutlierDetector()):
            with pytest.raises(ValueError, match=r"X contains NaN\. It is in columns 1, 4\. Impute missing values"):
                model.fit(broken)
        with pytest.raises(ValueError, match=r"infinity .* columns 0, 1, 2, 3, 4 and 1 more. Replace such"):
            ORKDL().fit(changed(0, slice(None), np.inf))

    def test_messages_name_the_columns_of_a_data_frame(self):
        pd = pytest.importorskip("pandas")
        table = pd.DataFrame(X, columns=[f"pixel {number}" for number in range(6)])
        with pytest.raises(ValueError, match=r"X contains NaN\. It is in column 'pixel 2'\."):
            ORKDL().fit(table.assign(**{"pixel 2": np.nan}))
        # The check of the names comes first: a table with other columns may be empty.
        with pytest.raises(ValueError, match="feature names should match those that were passed during fit"):
            ORKDL(max_iter=1).fit(table).transform(pd.DataFrame(table, columns=[f"other {n}" for n in range(6)]))
        for text in (["red", "blue"] * 20, pd.Categorical(["red", "blue"] * 20)):
            with pytest.raises(ValueError, match=r"float: 'red'\. Not numeric: column 'colour'\. Encode text"):
                KDLOutlierDetector().fit(table.assign(colour=text))
        with pytest.raises(ValueError, match=r"could not convert string to float: 'cat'$"):
            ORKDL().fit(["cat", "dog"])

    @every
    def test_a_failed_fit_leaves_the_earlier_one(self, kind):
        model = make(kind).fit(X)
        with pytest.raises(ValueError, match="NaN"):
            model.fit(np.full((10, 3), np.nan))
        np.testing.assert_array_equal(model.transform(X), fitted(kind).transform(X))

    @by_class([DL, RKDL])
    def test_a_fit_that_runs_out_of_memory_leaves_the_earlier_one(self, kind):
        """The error comes through as it is."""

        class Source:
            shape, dtype, n_left = X.shape, X.dtype, 3

            def __getitem__(self, rows):
                Source.n_left -= 1
                if Source.n_left < 0:
                    raise MemoryError("Unable to allocate 9 TiB")
                return X[rows]

        model = make(kind, random_state=1).fit(X)
        before = {name: np.copy(value) for name, value in vars(model).items() if name.endswith("_")}
        with pytest.raises(MemoryError, match="9 TiB"):
            model.fit(Source())
        assert all(np.array_equal(vars(model)[name], value) for name, value in before.items())


class TestTaken:
    """The same numbers in another form are the same signals."""

    @every
    def test_what_is_no_array_of_numbers_at_first_sight(self, kind):
        """A mask that hides nothing, and objects that are numbers."""
        for form in (np.ma.array(X), X.astype(object)):
            np.testing.assert_array_equal(make(kind).fit(form).transform(form), fitted(kind).transform(X))
        with pytest.raises(ValueError, match="init is a masked array"):
            make(kind, init=np.ma.masked_less(np.full(atoms_of(fitted(kind)).shape, -1.0), 0.0)).fit(X)

    @every
    def test_duplicates_and_order_of_sparse_indices(self, kind):
        rows, columns = np.divmod(np.arange(X.size), 6)
        order = np.random.default_rng(0).permutation(X.size)
        twice = [np.concatenate([part[order]] * 2) for part in (0.5 * X.ravel(), rows, columns)]
        sums = sparse.coo_array((twice[0], (twice[1], twice[2])), shape=X.shape)
        np.testing.assert_allclose(make(kind).fit(sums).transform(sums), fitted(kind).transform(X), atol=1e-9)

    @pytest.mark.parametrize(
        ("kind", "form", "dtype"),
        [
            *itertools.product(CLASSES, [sparse.csr_array], [np.float64]),
            (DL, sparse.csr_matrix, np.float32),
            *(
                (DL, getattr(sparse, f"{form}_array"), np.float64)
                for form in ("csc", "coo", "bsr", "lil", "dok", "dia")
            ),
        ],
    )
    def test_sparse_input_is_the_dense_one(self, kind, form, dtype):
        dense = np.where(np.abs(X) > 0.5, X, 0.0).astype(dtype)
        dense[3] = 0.0
        model, expected = make(kind).fit(form(dense)), make(kind).fit(dense)
        near = {"rtol": 1e-10, "atol": 1e-10} if dtype == np.float64 else {"rtol": 1e-4, "atol": 1e-4}
        for method in METHODS:
            np.testing.assert_allclose(getattr(model, method)(form(dense)), getattr(expected, method)(dense), **near)
        assert model.transform(form(dense)).dtype == dtype


# Signals that carry little or no information, and whether a few atoms represent all of them.
AWKWARD = {
    "one signal": (X[:1], True),
    "three signals": (X[:3], False),
    "one feature": (X[:, :1], False),
    "zero rows": (np.where(np.arange(40)[:, None] % 3, X, 0.0), False),
    "zeros": (np.zeros((20, 6)), True),
    "constant features": (np.where(np.arange(6) < 3, [0.0, 1.0, -7.0, 0, 0, 0], X), False),
    "all equal": (np.repeat(X[:1], 20, axis=0), True),
    "all equal and far": (np.repeat(X[:1] + 1e8, 20, axis=0), True),
    "integers": ((X > 0.5).astype(np.int32), False),
    "booleans": (X > -1.0, False),
    "far in float64": (X + 1e8, False),
    "far in float32": ((1e3 * X + 1e8).astype(np.float32), False),
}


class TestDegenerateSignals:
    @pytest.mark.filterwarnings("ignore:n_kernel_vectors=8 exceeds", "ignore:n_components=5 exceeds")
    @pytest.mark.parametrize("name", AWKWARD)
    @every
    def test_result_is_finite(self, kind, name):
        signals, is_represented = AWKWARD[name]
        _, codes, errors, score = fit_finite(make(kind), signals)
        if is_represented:
            assert score == pytest.approx(1.0, abs=1e-6)
            assert errors.max() < 1e-6 * max(1.0, np.abs(signals).max())
            np.testing.assert_allclose(codes, np.repeat(codes[:1], len(codes), axis=0), rtol=1e-6)
        if kind is DL and name == "zero rows":
            assert not codes[::3].any()
            assert not errors[::3].any()
        if kind is DL and "far" in name:
            # The offset itself is one atom.
            assert errors.max() < 1e-3 * 1e8

    def test_vectors_of_zeros_have_no_norm_to_share(self):
        assert_speaks("zero", lambda: make(MORKDL, kernel_vector_norm="shared").fit(np.zeros((20, 6))))

    @every
    def test_one_signal_after_fit(self, kind):
        model = fitted(kind)
        np.testing.assert_allclose(model.transform(X[5:6])[0], model.transform(X)[5], atol=1e-10)

    @cover("choice", REDUCED, CHOICES, base=[RKDL])
    def test_zero_rows_may_be_drawn_as_kernel_vectors(self, kind, choice):
        fit_finite(make(kind, kernel_vectors=choice), np.where(np.arange(40)[:, None] % 2, X, 0.0))

    @cover("choice", REDUCED, CHOICES, base=[RKDL])
    @pytest.mark.filterwarnings("ignore:Number of distinct clusters")
    def test_equal_signals_leave_one_kernel_vector(self, kind, choice):
        model, _, _, score = fit_finite(make(kind, kernel_vectors=choice), np.repeat(X[:1], 20, axis=0))
        assert model.rank_ == 1
        assert score == pytest.approx(1.0)

    @every_reduced
    def test_duplicated_kernel_vectors(self, kind):
        model, *_ = fit_finite(make(kind, kernel_vectors=np.repeat(X[:3], 4, axis=0)), X)
        assert kind is not RKDL or model.rank_ == 3

    @pytest.mark.parametrize("kernel", ["rbf", "poly", "linear"])
    def test_duplicated_kernel_vectors_change_nothing(self, kernel):
        start = np.random.default_rng(2).standard_normal((5, 3))
        options = {"kernel": kernel, "gamma": 0.1, "tol": 0.0}
        once = make(RKDL, kernel_vectors=X[:3], init=start, **options).fit(X)
        twice = make(RKDL, kernel_vectors=np.vstack([X[:3]] * 2), init=np.hstack([start] * 2) / 2, **options).fit(X)
        assert twice.rank_ == once.rank_ == 3
        np.testing.assert_allclose(twice.transform(X), once.transform(X), rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(twice.errors_, once.errors_, rtol=1e-8)


class WithBadDiagonal:
    """An RBF kernel whose diagonal has a function of its own, which no kernel matrix shows."""

    def __init__(self, bad):
        self.bad = bad

    def __call__(self, A, B):
        return rbf_kernel(A, B, gamma=0.1)

    def diag(self, A):
        return np.where(A[:, 0] == X[7, 0], self.bad, 1.0)


def not_finite_on_one_pair(A, B):
    """No sample of the signals finds it out."""
    values = rbf_kernel(A, B, gamma=0.1)
    for one, other in ((1, 2), (2, 1)):
        values[(A[:, 0] == X[one, 0])[:, None] & (B[:, 0] == X[other, 0])] = np.nan
    return values


NO_KERNEL_AT_ALL = r"kernel=.* does not return a \(len\(X\), len\(Y\)\) array .*pairwise_kernels"
BAD_KERNELS = {
    "negative": (lambda A, B: -(A @ B.T), "positive|negative"),
    "not symmetric": (lambda A, B: A @ np.triu(np.ones((6, 6))) @ B.T, "symmetric"),
    "nan": (lambda A, B: A @ B.T + np.nan, "finite|overflow"),
    "infinity": (lambda A, B: A @ B.T + np.inf, "finite|overflow"),
    "nan on one pair": (not_finite_on_one_pair, "finite"),
    "nan on the diagonal": (WithBadDiagonal(np.nan), r"gives k\(x, x\) = nan for 1 of 40 signals"),
    "infinity on the diagonal": (WithBadDiagonal(np.inf), r"gives k\(x, x\) = inf for 1 of 40 signals"),
    "negative on the diagonal": (WithBadDiagonal(-1.0), r"gives k\(x, x\) = -1.0 for 1 of 40 signals"),
    "complex": (lambda A, B: rbf_kernel(A, B) + 0.1j, "returns complex numbers, .* return the real part"),
    "no imaginary part": (lambda A, B: rbf_kernel(A, B) + 0j, "returns complex numbers, .* return the real part"),
    "of rows": (lambda x, y: float(x @ y), NO_KERNEL_AT_ALL),
    "masked": (lambda A, B: np.ma.masked_less(rbf_kernel(A, B), 0.1), "the kernel's value is a masked array"),
    "vector": (lambda A, B: np.ones(len(A)), NO_KERNEL_AT_ALL),
    "shape": (lambda A, B: np.ones((len(B) + 1, len(A))), NO_KERNEL_AT_ALL),
    "nothing": (lambda A, B: None, NO_KERNEL_AT_ALL),
    "text": (lambda A, B: "number", NO_KERNEL_AT_ALL),
    "one argument": (lambda A: A, NO_KERNEL_AT_ALL),
}


class TestKernelValues:
    """A gamma that makes all signals one or all orthogonal, polynomials that overflow, kernels that are none."""

    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    @by_class([*KERNEL, FourierDL])
    def test_gamma_so_small_that_all_signals_are_one(self, kind, dtype):
        for gamma in (1e-20, 1e-300):
            _, codes, errors, _ = fit_finite(make(kind, gamma=gamma), X.astype(dtype))
            assert errors.max() < 1e-3
            assert (codes != 0).any(axis=1).all()

    @pytest.mark.parametrize("gamma", [1e10, 1e20])
    @by_class([*KERNEL, FourierDL])
    def test_gamma_so_large_that_the_kernel_is_the_identity(self, kind, gamma):
        fit_finite(make(kind, gamma=gamma), X.astype(np.float32))

    @pytest.mark.parametrize("gamma", [1e4, 1e20])
    @by_class([KDL, RKDL, ORKDL])
    def test_an_atom_represents_one_signal_where_the_kernel_is_the_identity(self, kind, gamma):
        """Five orthonormal atoms hold five of forty orthonormal signals, whatever they are."""
        model, _, errors, _ = fit_finite(make(kind, gamma=gamma, **({} if kind is KDL else {"kernel_vectors": X})), X)
        assert share(model, X) == pytest.approx(5 / 40, abs=1e-2)
        assert (errors < 0.3).sum() == 5
        assert model.errors_[-1] == pytest.approx(np.sqrt(35 / (40 * 6)), rel=1e-2)

    @every_kernel
    def test_polynomial_overflow(self, kind):
        with pytest.raises(ValueError, match=r"overflow|not finite") as caught:
            make(kind, kernel="poly", gamma=1.0, degree=901).fit(10.0 * X)
        assert re.search("gamma|degree", str(caught.value))
        assert re.search("scale", str(caught.value))
        model = make(kind, kernel="poly", gamma=1.0, degree=9).fit(X)
        for method in METHODS:
            with pytest.raises(ValueError, match=r"overflow|not finite"):
                getattr(model, method)(X * 1e60)

    @pytest.mark.parametrize("kind", [KDL, RKDL])
    def test_squares_times_gamma_overflow(self, kind):
        """The kernel of a signal with itself is one, or the kernel is refused; it is never zero."""
        rows = 100.0 * np.random.default_rng(0).random((300, 12))
        with pytest.raises(ValueError, match=r"not finite|overflows"), np.errstate(all="ignore"):
            kind(300, n_nonzero_coefs=1, max_iter=3, gamma=np.finfo(float).max / 1e3).fit(rows)

    @every_kernel
    def test_odd_degrees_keep_the_sign(self, kind):
        kernel = {"gamma": 0.5, "degree": 3, "coef0": 0.0}
        model, _, errors, _ = fit_finite(make(kind, kernel="poly", **kernel), X)
        matrix = polynomial_kernel(X, **kernel)
        assert (matrix < 0.0).any()
        assert (errors <= np.sqrt(matrix.diagonal()) * (1 + 1e-9)).all()
        if kind is KDL:
            given = make(KDL, kernel="precomputed").fit(matrix)
            np.testing.assert_allclose(model.dual_components_, given.dual_components_, rtol=1e-6, atol=1e-12)

    @every_kernel
    def test_a_polynomial_that_is_no_kernel(self, kind):
        model = make(kind, kernel="poly", gamma=0.1, degree=3, coef0=-10.0)
        assert_speaks("positive|negative", lambda: assert_finite(model.fit(X), X))

    @pytest.mark.parametrize("name", BAD_KERNELS)
    @full_and_reduced
    def test_functions_that_are_no_kernels(self, kind, name):
        kernel, words = BAD_KERNELS[name]
        vectors = {} if kind is KDL else {"kernel_vectors": X[2:10]}
        assert_speaks(words, lambda: assert_finite(make(kind, kernel=kernel, **vectors).fit(X), X))

    def test_a_bad_diagonal_after_fit(self):
        def kernel(A, B):
            values = rbf_kernel(A, B, gamma=0.1)
            values[(A[:, None] == B).all(axis=2) & (A[:, :1] > 50.0)] = np.nan
            return values

        model = make(RKDL, kernel=kernel).fit(X)
        for method in ("reconstruction_error", "score"):
            with pytest.raises(ValueError, match=r"gives k\(x, x\) = nan"):
                getattr(model, method)(np.vstack([X, np.full((1, 6), 60.0)]))

    @every_optimized
    def test_a_function_has_no_derivative(self, kind):
        words = rf"{kind.__name__} moves .* derivative.*'rbf', 'poly' or 'linear', or use RKDL"
        with pytest.raises(ValueError, match=words):
            make(kind, kernel=rbf_kernel).fit(X)


class TestPrecomputed:
    """A kernel matrix that is none, and what cannot be told from kernel values alone."""

    @pytest.fixture
    def K(self):
        return rbf_kernel(X, gamma=0.1)

    @pytest.fixture
    def model(self, K):
        return make(KDL, kernel="precomputed").fit(K)

    def test_matrices_that_are_refused(self, K):
        skew, broken = K.copy(), K.copy()
        skew[3, 4] += 0.5
        broken[2, 2] = np.nan
        values, vectors = np.linspace(1.0, 40.0, 40), np.linalg.eigh(K)[1]
        values[0] = -0.01
        for matrix, words in (
            (K[:5], r"X has shape \(5, 40\), which is not square"),
            (skew, r"not symmetric: entries differ by up to 0.5 .* Use \(K \+ K.T\) / 2"),
            (broken, "contains NaN"),
            (sparse.csr_array(K), "dense data is required"),
            # One small negative eigenvalue of many.
            (vectors * values @ vectors.T, "not positive semidefinite"),
        ):
            with pytest.raises((ValueError, TypeError), match=words):
                make(KDL, kernel="precomputed").fit(matrix)

    @pytest.mark.parametrize("size", [1, 2, 3, 5, 40])
    def test_not_positive_semidefinite(self, size):
        # The constant vector is an eigenvector of the largest eigenvalue; all others are -1.
        matrix = 2.0 * np.ones((size, size)) - np.eye(size) * (1 if size > 1 else 3)
        with pytest.raises(ValueError, match=r"not positive semidefinite: .* about -1\. .* add 1 to its diagonal"):
            make(KDL, kernel="precomputed").fit(matrix)

    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    def test_rounding_is_forgiven(self, dtype):
        low_rank = (X @ X.T).astype(dtype)
        assert np.linalg.eigvalsh(low_rank)[0] < 0.0
        assert np.isfinite(make(KDL, kernel="precomputed").fit(low_rank).errors_).all()

    @pytest.mark.parametrize("size", [1, 2, 5])
    @pytest.mark.parametrize("matrix", [np.zeros, np.ones, lambda shape: np.eye(shape[0])], ids=["0", "1", "I"])
    def test_degenerate_matrices(self, matrix, size):
        K = matrix((size, size))
        # Most of five signals that share nothing with one another have no code.
        is_poor = size == 5 and np.linalg.matrix_rank(K) == 5
        with warnings.catch_warnings(), pytest.warns(match="60% of the signals") if is_poor else nullcontext():
            if not is_poor:
                warnings.simplefilter("error")
            model = make(KDL, kernel="precomputed", n_components=2).fit(K)
        assert np.isfinite(model.dual_components_).all()
        assert model.errors_[-1] == pytest.approx(np.sqrt(max(0, np.linalg.matrix_rank(K) - 2)) / size, abs=1e-6)

    def test_any_number_of_rows_after_fit(self, K, model):
        expected = model.transform(K)
        for count in (1, 3, 9, 17, 40):
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                np.testing.assert_allclose(model.transform(K[:count]), expected[:count], atol=1e-10)
        with pytest.raises(ValueError, match="X has 5 features, but KDL is expecting 40"):
            model.transform(K[:, :5])

    def test_errors_of_new_rows_are_unknown(self, K, model):
        for method in ("reconstruction_error", "score"):
            # The matrix of the training signals tells their norms; other rows do not.
            assert np.isfinite(getattr(model, method)(K)).all()
            with pytest.raises(ValueError, match=r"k\(x, x\).* precomputed|precomputed.* training signals alone"):
                getattr(model, method)(K[:5])
        for limit in ({"residual_tol": 0.1}, {"rtol": 0.6}):
            model = make(KDL, kernel="precomputed", n_nonzero_coefs=5, **limit).fit(K)
            counts = np.count_nonzero(model.transform(K), axis=1)
            assert counts.min() < counts.max()
            with pytest.raises(ValueError, match=r"or rtol, .* kernel='precomputed' .* set n_nonzero_coefs"):
                model.transform(K[:5])


class TestOffsets:
    """An offset changes what the mathematics says, and nothing else."""

    @by_class([KDL, RKDL, ORKDL, FourierDL])
    def test_the_rbf_kernel_does_not_see_it(self, kind):
        vectors = {"kernel_vectors": "random"} if kind in REDUCED else {}
        far = X + 1e8
        near = far - 1e8
        model, codes, errors, _ = fit_finite(make(kind, **vectors), far)
        expected = make(kind, **vectors).fit(near)
        assert model.gamma_ == pytest.approx(expected.gamma_, rel=1e-6)
        np.testing.assert_allclose(errors, expected.reconstruction_error(near), atol=1e-5)
        np.testing.assert_allclose(codes, expected.transform(near), atol=1e-4)

    @by_class([KDL, RKDL, ORKDL, FourierDL])
    def test_nor_a_constant_feature_however_large(self, kind):
        """The sum of many was rounded, and the mean was so far off that all signals seemed to be one."""
        given = np.c_[X, np.full(40, 1.1e25)]
        if kind is FourierDL:
            with pytest.raises(ValueError, match="subtract the mean of every feature"):
                make(kind).fit(given)
            return
        model = make(kind, kernel_vectors="random") if kind in REDUCED else make(kind)
        expected = make(kind).set_params(**model.get_params()).fit(np.c_[X, np.zeros(40)])
        np.testing.assert_allclose(model.fit(given).errors_, expected.errors_, rtol=1e-9)

    @pytest.mark.parametrize(("dtype", "spread"), [(np.float64, 1.0), (np.float32, 1e3)])
    def test_it_does_not_end_the_learning(self, dtype, spread):
        """The sums know the error to their rounding, which is no reason to take it for zero."""
        far = (np.random.default_rng(0).standard_normal((400, 6)) * spread + 1e8).astype(dtype)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model = make(DL, max_iter=5, tol=0.0).fit(far)
        assert len(model.update_errors_) == 5

    @pytest.mark.parametrize("choice", CHOICES[1:])
    @by_class([RKDL, ORKDL])
    def test_kernel_vectors_are_chosen_as_well(self, kind, choice):
        far = X + 1e8
        model = fit_finite(make(kind, kernel_vectors=choice), far)[0]
        near = make(kind, kernel_vectors=choice).fit(far - 1e8)
        assert share(model, far) == pytest.approx(share(near, far - 1e8), abs=0.05)


class TestSizes:
    """More of one thing than there is of another."""

    @every
    def test_more_nonzeros_than_atoms(self, kind):
        message = r"n_nonzero_coefs=9 exceeds the number of atoms, 5: 5 is used"
        with pytest.warns(UserWarning, match=message):
            model = make(kind, n_nonzero_coefs=9).fit(X)
        with pytest.warns(UserWarning, match=message):
            codes = model.transform(X)
        np.testing.assert_array_equal(codes, make(kind, n_nonzero_coefs=5).fit(X).transform(X))

    @cover("choice", REDUCED, CHOICES, base=[RKDL])
    def test_more_kernel_vectors_than_signals(self, kind, choice):
        """The signals and points between them."""
        model, *_ = fit_finite(make(kind, n_kernel_vectors=20, kernel_vectors=choice), X[:12])
        assert model.kernel_vectors_.shape == (20, 6)
        # Atoms of a linear dictionary may be alike.
        assert choice == "dictionary" or pdist(model.kernel_vectors_).min() > 0.0

    @every_reduced
    def test_more_of_anything_than_kernel_vectors(self, kind):
        assert fit_finite(make(kind, kernel_vectors=X), X[:12])[0].kernel_vectors_.shape == (40, 6)
        assert fit_finite(make(kind, kernel="linear", n_kernel_vectors=20), X)[0].rank_ == 6
        with pytest.warns(UserWarning, match="n_components=5 exceeds the number of kernel vectors, 2"):
            model = make(kind, n_kernel_vectors=2).fit(X)
        assert_finite(model, X)
        assert model.dual_components_.shape == (5, 2)
        assert model.rank_ == 2

    def test_more_linear_nonzeros_than_kernel_vectors(self):
        fit_finite(make(MORKDL, n_kernel_vectors=3, linear_n_nonzero_coefs=10), X)

    @every
    def test_one_atom(self, kind):
        fit_finite(make(kind, n_components=1, n_nonzero_coefs=1), X)


class TestStarts:
    """First atoms and kernel vectors that are given."""

    @cover("which", CLASSES, ["one zero", "all zero", "all equal", "opposite", "tiny", "huge"], base=[DL, KDL, RKDL])
    def test_directions_of_the_first_atoms(self, kind, which):
        start = np.random.default_rng(3).standard_normal(atoms_of(fitted(kind)).shape)
        if which == "one zero":
            start[2] = 0.0
        elif which == "all zero":
            start[:] = 0.0
        elif which == "all equal":
            start[:] = start[0]
        elif which == "opposite":
            start[1::2] = -start[0]
        else:
            start *= 1e-100 if which == "tiny" else 1e100
        model, codes, _, _ = fit_finite(make(kind, init=start, max_iter=5), X)
        # No atom stays without a direction, and none stays unused.
        assert (codes != 0).any(axis=0).all()
        if which not in ("tiny", "huge"):
            assert model.n_revived_ >= {"one zero": 1, "all zero": 5, "all equal": 1, "opposite": 2}[which]

    @every
    def test_first_atoms_that_are_refused(self, kind):
        rows, columns = atoms_of(fitted(kind)).shape
        attribute = "components_" if kind in (DL, FourierDL) else "dual_components_"
        for shape in ((rows - 1, columns), (rows, columns + 1), (columns, rows)):
            message = rf"init has shape \({shape[0]}, {shape[1]}\), expected .*{attribute}, \({rows}, {columns}\)"
            with pytest.raises(ValueError, match=message):
                make(kind, init=np.ones(shape)).fit(X)
        with pytest.raises(ValueError, match="Expected 2D array, got 1D"):
            make(kind, init=np.ones(columns)).fit(X)
        with pytest.raises(ValueError, match="Input init contains"):
            make(kind, init=np.full((rows, columns), np.nan)).fit(X)

    @every_reduced
    def test_kernel_vectors_that_are_refused(self, kind):
        for vectors, words in (
            (X[:8, :5], r"kernel_vectors has 5 features and X has 6: they must agree"),
            (X[0], "Expected 2D array, got 1D"),
            (X[:0], "0 sample"),
            (np.full((8, 6), np.inf), "Input kernel_vectors contains"),
            ({}, "not 'dict'"),
        ):
            for method in ("fit", "partial_fit"):
                with pytest.raises((ValueError, TypeError), match=words):
                    getattr(make(kind, kernel_vectors=vectors), method)(X)

    def test_a_zero_kernel_vector_has_no_direction(self):
        vectors = changed(1, slice(None), 0.0)[:8]
        with pytest.raises(ValueError, match="norm zero, and MORKDL holds all of them to one norm"):
            make(MORKDL, kernel_vectors=vectors, kernel_vector_norm="shared").fit(X)
        for kind in REDUCED:
            fit_finite(make(kind, kernel_vectors=vectors), X)


OUT_OF_RANGE = {
    "n_components": [0, 2.5],
    "n_nonzero_coefs": [0, -1, 1.5],
    "residual_tol": [-1.0, np.nan],
    "rtol": [-0.1],
    "coherence_max": [0.0, 1.5],
    "max_iter": [0],
    "tol": [-1e-3, np.nan],
    "gamma": [0.0, -1.0, np.nan, np.inf],
    "degree": [0, 2.5],
    "coef0": [np.nan],
    "n_kernel_vectors": [0],
    "n_fourier_features": [0],
    "n_inner_iter": [-1],
    "learning_rate": [0.0, np.inf],
    "linear_weight": [-1.0],
    "linear_n_nonzero_coefs": [0],
    "sparse_output": ["yes"],
    "n_jobs": [1.5],
    "random_state": ["seed"],
}
UNKNOWN = {
    "kernel": ("rbg", ["rbf", "poly", "linear"]),
    "gamma": ("auto", ["median"]),
    "pursuit": ("greedy", ["ols", "omp", "lasso"]),
    "atom_update": ("ksvd", ["momentum", "gram", "aksvd"]),
    "init": ("k-means++", ["auto", "gradient", "rpcholesky", "data", "random"]),
    "kernel_vectors": ("nystrom", CHOICES),
    "solver": ("adam", ["lbfgs", "gd"]),
}


class TestOptions:
    @every
    def test_unknown_and_out_of_range(self, kind):
        def refuse(name, bad):
            words = rf"'{name}' parameter of {kind.__name__} must be .*Got {re.escape(repr(bad))} instead"
            with pytest.raises(ValueError, match=words) as caught:
                make(kind, **{name: bad}).fit(X)
            return str(caught.value)

        names = kind().get_params().keys()
        for name in OUT_OF_RANGE.keys() & names:
            for bad in OUT_OF_RANGE[name]:
                refuse(name, bad)
        for name in UNKNOWN.keys() & names:
            bad, valid = UNKNOWN[name]
            message = refuse(name, bad)
            for option in valid + (["precomputed"] if kind is KDL and name == "kernel" else []):
                assert (repr(option) in message) == (kind is not KDL or option != "gradient")
        if kind in REDUCED:
            refuse("kernel", "precomputed")
        with pytest.raises(ValueError, match="n_jobs"):
            make(kind, n_jobs=0).fit(X)

    @cover("scale", OPTIMIZED, [1.0, 1e-3, 1e3], base=[ORKDL])
    @pytest.mark.parametrize("kernel", ["rbf", "poly", "linear"])
    def test_the_default_rate_never_raises_the_error(self, kind, kernel, scale):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model = make(kind, kernel=kernel, solver="gd").fit(X * scale)
        assert model.errors_[-1] <= model.errors_[0] * (1 + 1e-6)


def encode_signals(X, dictionary, **options):
    return sparse_encode(X, dictionary, **options)


def encode_products(X, dictionary, **options):
    return sparse_encode_gram(
        dictionary @ dictionary.T, X @ dictionary.T, squared_norms=np.sum(X**2, axis=1), **options
    )


class TestSparseEncode:
    @pytest.mark.parametrize("bad", REFUSED)
    def test_signals(self, bad):
        signals, words = REFUSED[bad]
        # NaN and infinity are found even where no atom looks.
        for dictionary in (DICTIONARY, np.where(np.arange(6) == 3, 0.0, DICTIONARY)):
            with pytest.raises((ValueError, TypeError), match=words.split(r", .* Flatten")[0]) as caught:
                sparse_encode(signals, dictionary)
        assert "gamma" not in str(caught.value)

    def test_dictionaries(self):
        for dictionary, words in (
            (np.where(DICTIONARY > 1.0, np.nan, DICTIONARY), "Input dictionary contains NaN"),
            (np.ma.masked_greater(DICTIONARY, 0.5), "dictionary is a masked array"),
            (DICTIONARY[:0], "0 sample"),
            (DICTIONARY[0], "Expected 2D array, got 1D"),
            (DICTIONARY + 1j, "Complex data not supported"),
            (DICTIONARY[:, :5], r"X has 6 features and the atoms of dictionary have 5: they must agree"),
        ):
            with pytest.raises(ValueError, match=words):
                sparse_encode(X, dictionary)

    @each_pursuit
    def test_layouts(self, pursuit):
        options = {"n_nonzero_coefs": 2, "pursuit": pursuit}
        expected = sparse_encode(X, DICTIONARY, **options)
        for form in (np.asfortranarray, sparse.csr_array, sparse.csc_array, np.ndarray.tolist):
            np.testing.assert_array_equal(sparse_encode(form(X), DICTIONARY, **options), expected)
        strided = np.repeat(DICTIONARY, 2, axis=1)[:, ::2]
        np.testing.assert_array_equal(sparse_encode(X, strided, **options), expected)

    @each_pursuit
    def test_offset(self, pursuit):
        codes = sparse_encode(X + 1e8, DICTIONARY, n_nonzero_coefs=5, pursuit=pursuit)
        np.testing.assert_allclose(codes, np.linalg.lstsq(DICTIONARY.T, (X + 1e8).T, rcond=None)[0].T, rtol=1e-6)

    @pytest.mark.parametrize("encode", [encode_signals, encode_products])
    def test_options(self, encode):
        """What both functions refuse, and where they warn."""
        for name, values in {
            "n_nonzero_coefs": [0, -1, 2.5, "two", np.nan],
            "residual_tol": [-1.0, np.nan, "small", [1.0], [-1.0] * len(X), [np.nan] * len(X)],
            "rtol": [-1.0, "small"],
            "pursuit": ["greedy", None, 1],
            "n_jobs": [0, "all"],
            "alpha": [-1.0, np.nan, np.inf],
            "l2": [-1.0, "small"],
        }.items():
            for bad in values:
                with pytest.raises((ValueError, TypeError), match=name):
                    encode(X, DICTIONARY, **{name: bad})
        with pytest.raises(ValueError, match=r"pursuit='greedy' is unknown; choose one of 'ols', 'omp', 'lasso'"):
            encode(X, DICTIONARY, pursuit="greedy")
        with pytest.raises(ValueError, match=r"residual_tol=0.1 has no effect with pursuit='lasso'.* choose alpha"):
            encode(X, DICTIONARY, pursuit="lasso", residual_tol=0.1)
        with pytest.warns(UserWarning, match=r"n_nonzero_coefs=9 exceeds the number of atoms, 5: 5 is used"):
            codes = encode(X, DICTIONARY, n_nonzero_coefs=9)
        np.testing.assert_array_equal(codes, encode(X, DICTIONARY, n_nonzero_coefs=5))
        codes = encode(X, DICTIONARY, residual_tol=1.0)
        squares = np.sum((X - codes @ DICTIONARY) ** 2, axis=1)
        assert ((squares <= 1.0 + 1e-9) | ((codes != 0).sum(axis=1) == 5)).all()
        assert (squares <= 1.0 + 1e-9).any()


class TestSparseEncodeGram:
    def test_products_that_are_refused(self):
        eye, row = np.eye(2), np.ones((1, 2))
        for gram, correlations, words in (
            (np.ones((2, 3)), row, r"gram has shape \(2, 3\): it must be square"),
            (np.eye(3), row, r"correlations has 2 columns and gram 3 atoms"),
            (eye, np.ones((0, 2)), "0 sample"),
            (eye, np.ones(2), "Expected 2D array, got 1D"),
            (np.ones(2), row, "Expected 2D array, got 1D"),
            (eye, np.ones((1, 2, 2)), "dim 3"),
            (np.full((2, 2), np.nan), row, "Input gram contains NaN"),
            (eye, [[1.0, np.inf]], "Input correlations contains infinity"),
            (eye * 1j, row, "Complex data not supported"),
            (eye, row * 1j, "Complex data not supported"),
            (eye, [["cat", "dog"]], "could not convert string to float: 'cat'"),
            (eye, np.ma.masked_greater(row, 0.5), "correlations is a masked array"),
            (np.ma.masked_greater(eye, 0.5), row, "gram is a masked array"),
            ([[1.0, 0.5], [0.0, 1.0]], row, r"gram is not symmetric: give inner products .* A @ A.T"),
            (-eye, row, r"negative diagonal entry, -1.0"),
            (eye, sparse.csr_array(row), "dense data is required"),
        ):
            with pytest.raises((ValueError, TypeError), match=words):
                sparse_encode_gram(gram, correlations)
        assert_speaks(
            "positive semidefinite",
            lambda: sparse_encode_gram([[1.0, 2.0], [2.0, 1.0]], [[1.0, -1.0]], n_nonzero_coefs=2),
        )

    def test_squared_norms(self):
        with pytest.raises(ValueError, match="residual_tol and rtol need squared_norms"):
            sparse_encode_gram(np.eye(2), [[1.0, 1.0]], rtol=0.1)
        for bad, words in (
            ([1.0, 2.0], r"squared_norms has shape .*, expected \(1,\)"),
            ([[1.0]], r"squared_norms has shape .*, expected \(1,\)"),
            ([-1.0], "squared_norms .*-1"),
            ([np.nan], "Input squared_norms contains NaN"),
        ):
            with pytest.raises(ValueError, match=words):
                sparse_encode_gram(np.eye(2), [[1.0, 1.0]], squared_norms=bad)

    @each_pursuit
    def test_degenerate_grams(self, pursuit):
        options = {"n_nonzero_coefs": 3, "pursuit": pursuit}
        np.testing.assert_array_equal(sparse_encode_gram(np.ones((3, 3)), [[1.0, 1.0, 1.0]], **options), [[1, 0, 0]])
        np.testing.assert_array_equal(sparse_encode_gram(np.zeros((3, 3)), [[0.0, 0.0, 0.0]], **options), [[0, 0, 0]])
        np.testing.assert_array_equal(sparse_encode_gram(np.diag([1.0, 0, 1]), [[2.0, 0, 3]], **options), [[2, 0, 3]])
