"""Bad and awkward input: a clear error, or a warning with a finite result, in fit and after it."""

from __future__ import annotations

import itertools
import re
import warnings
from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial.distance import pdist
from sklearn.base import clone
from sklearn.metrics.pairwise import polynomial_kernel, rbf_kernel

import helpers
from helpers import CLASSES, KERNEL, OPTIMIZED, REDUCED, atoms_of, by_class, cover, poor_models
from rkdl import DL, KDL, MORKDL, ORKDL, RKDL, FourierDL, KDLOutlierDetector, sparse_encode, sparse_encode_gram
from rkdl._features.kernels import RBF

pytestmark = poor_models

SIZES = {"n_components": 5, "n_nonzero_coefs": 2, "n_kernel_vectors": 8, "n_fourier_features": 16, "max_iter": 3}
make = partial(helpers.make, tol=1e-4, **SIZES)
METHODS = ["transform", "reconstruction_error", "score"]


every, every_kernel, every_reduced, every_optimized = map(by_class, (CLASSES, KERNEL, REDUCED, OPTIMIZED))


FORMATS = ("csr", "csc", "coo", "bsr", "lil", "dok", "dia")


def calls(kind, model):
    """Everything that takes signals: a new fit, and the methods of a fitted model."""
    found = [make(kind).fit, *(getattr(model, method) for method in METHODS)]
    return [*found, model.partial_fit, model.denoise] if hasattr(model, "partial_fit") and kind is DL else found


def takes(kind, name):
    return name in kind().get_params()


@pytest.fixture
def X():
    return np.random.default_rng(0).standard_normal((40, 6))


@pytest.fixture
def dictionary():
    return np.random.default_rng(1).standard_normal((5, 6))


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


def check_message(error, match):
    assert re.search(match, str(error)), f"the error does not say {match!r}: {error}"


def assert_speaks(match, call):
    """`call` ends in an error, or gives a warning, that says `match`; its value, if it has one."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            value = call()
        except ValueError as error:
            check_message(error, match)
            return None
    assert any(re.search(match, str(one.message)) for one in caught), f"no error, and no warning that says {match!r}"
    return value


class TestValues:
    """NaN, infinity, and what is not a number."""

    @cover(
        "form bad match",
        CLASSES,
        [
            (form, *case)
            for form in (np.array, sparse.csr_array)
            for case in ((np.nan, "contains NaN"), (np.inf, "infinity"), (-np.inf, "infinity"))
        ],
        base=[DL],
    )
    def test_not_finite(self, kind, bad, match, form, X):
        broken = X.copy()
        broken[7, 3] = bad
        with pytest.raises(ValueError, match=match):
            make(kind).fit(form(broken))
        model = make(kind).fit(X)
        for method in METHODS:
            with pytest.raises(ValueError, match=match):
                getattr(model, method)(form(broken))

    @every
    def test_complex(self, kind, X):
        model = make(kind).fit(X)
        for call in (make(kind).fit, *(getattr(model, method) for method in METHODS)):
            with pytest.raises(ValueError, match="Complex data not supported"):
                call(X + 1j)

    @every
    def test_masked(self, kind, X):
        """What is under a mask is no number; a mask that hides nothing is none."""
        model = make(kind).fit(X)
        masked = np.ma.array(X, mask=X > 1.5)
        words = rf"X is a masked array, and {(X > 1.5).sum()} of its {X.size} entries are masked: fill .* or drop"
        for call in calls(kind, model):
            with pytest.raises(ValueError, match=words):
                call(masked)
        np.testing.assert_array_equal(model.transform(np.ma.array(X)), model.transform(X))
        np.testing.assert_array_equal(atoms_of(make(kind).fit(np.ma.array(X))), atoms_of(model))
        with pytest.raises(ValueError, match="init is a masked array"):
            make(kind, init=np.ma.masked_less(np.ones_like(atoms_of(model)) * [-1.0], 0.0)).fit(X)

    @cover(
        "form bad old",
        CLASSES,
        [
            (form, bad, old)
            for form in ("csr", "csc", "coo", "bsr", "lil", "dok")
            for bad in (10**8, 40, -1)
            for old in (False, True)
        ],
        base=[DL],
    )
    def test_sparse_indices_out_of_range(self, kind, form, bad, old, X):
        """Checked before any conversion, which would read or write out of bounds."""
        model = make(kind).fit(X)
        broken = (sparse.csr_matrix if old else sparse.csr_array)(np.where(X > 0.5, X, 0.0)).asformat(form)
        what, last = {"csc": ("row", 39), "bsr": ("block column", 5)}.get(form, ("column", 5))
        if form == "lil":
            broken.rows[5] = [bad]
            broken.data[5] = [1.0]
        elif form == "dok":
            broken._dict[0, bad] = 1.0
        elif form == "bsr":
            last = 6 // broken.blocksize[1] - 1
            broken.indices[0] = bad
        else:
            (broken.col if form == "coo" else broken.indices)[3] = bad
        words = f"malformed {form.upper()} matrix of shape .* {what} index {bad}, outside 0 to {last}"
        for call in calls(kind, model):
            with pytest.raises(ValueError, match=words):
                call(broken)

    @pytest.mark.parametrize(
        ("form", "spoil", "match"),
        [
            ("lil", lambda S: S.rows[2].append(1), "row 2 has . columns for . values"),
            ("lil", lambda S: S.rows.__setitem__(0, [0.5] * len(S.data[0])), "column indices are float64"),
            ("coo", lambda S: setattr(S, "data", S.data[:-1]), "indices for .* values"),
            ("dia", lambda S: setattr(S, "offsets", S.offsets[:-1]), "offsets for data of shape"),
            ("bsr", lambda S: S.indptr.__setitem__(3, 10**8), "indptr decreases"),
        ],
    )
    def test_sparse_parts_that_disagree(self, form, spoil, match, X):
        broken = sparse.csr_array(np.where(X > 0.5, X, 0.0)).asformat(form)
        spoil(broken)
        with pytest.raises(ValueError, match=f"malformed {form.upper()} matrix .*{match}"):
            make(DL).fit(broken)

    @cover(
        "spoil match",
        CLASSES,
        [
            (lambda S: S.indptr.__setitem__(3, S.indptr[5] + 1), "indptr decreases from"),
            (lambda S: S.indptr.__setitem__(2, -(2**31)), "indptr decreases from .* to -2147483648"),
            (lambda S: S.indptr.__setitem__(0, 1), "indptr begins with 1"),
            (lambda S: S.indptr.__setitem__(-1, S.nnz + 50), "indptr ends with"),
            (lambda S: setattr(S, "indptr", S.indptr[:-1]), "indptr has shape"),
            (lambda S: setattr(S, "data", S.data[:-2]), "indices for .* values"),
        ],
        base=[DL],
    )
    def test_sparse_pointers(self, kind, spoil, match, X):
        model = make(kind).fit(X)
        broken = sparse.random_array(X.shape, density=0.3, format="csr", rng=0)
        spoil(broken)
        for call in calls(kind, model):
            with pytest.raises(ValueError, match=f"malformed CSR matrix of shape .*{match}"):
                call(broken)

    @every
    def test_duplicates_and_order_of_sparse_indices_are_free(self, kind, X):
        rows, columns = np.divmod(np.arange(X.size), 6)
        order = np.random.default_rng(0).permutation(X.size)
        twice = [np.concatenate([part[order]] * 2) for part in (0.5 * X.ravel(), rows, columns)]
        sums = sparse.coo_array((twice[0], (twice[1], twice[2])), shape=X.shape)
        np.testing.assert_allclose(make(kind).fit(sums).transform(sums), make(kind).fit(X).transform(X), atol=1e-9)

    @every
    def test_strings(self, kind, X):
        model = make(kind).fit(X)
        for call in (make(kind).fit, *(getattr(model, method) for method in METHODS)):
            with pytest.raises(ValueError, match="could not convert string to float: 'cat'"):
                call([["cat"] * 6] * 40)

    def test_messages_name_the_columns(self, X):
        broken = X.copy()
        broken[[3, 7], [1, 4]] = np.nan
        for model in (ORKDL(), KDLOutlierDetector()):
            with pytest.raises(ValueError, match=r"X contains NaN\. It is in columns 1, 4\. Impute missing values"):
                model.fit(broken)
        broken[0] = np.inf
        with pytest.raises(ValueError, match=r"infinity .* columns 0, 1, 2, 3, 4 and 1 more. Replace such"):
            ORKDL().fit(np.nan_to_num(broken, posinf=np.inf))
        detector = KDLOutlierDetector(n_members=2).fit(X)
        with pytest.raises(ValueError, match=r"It is in column 4\."):
            detector.predict(np.where(np.arange(6) == 4, np.nan, X))

    def test_messages_name_the_columns_of_a_data_frame(self, X):
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

    def test_texts_that_are_no_table(self):
        with pytest.raises(ValueError, match=r"could not convert string to float: 'cat'$"):
            ORKDL().fit(["cat", "dog"])

    def test_images_are_flattened_by_the_user(self, X):
        with pytest.raises(ValueError, match=r"dim 3, .* Flatten every signal to one row: X\.reshape\(len\(X\), -1\)"):
            ORKDL().fit(X.reshape(40, 3, 2))

    @every
    def test_objects(self, kind, X):
        model = make(kind).fit(X)
        for call in (make(kind).fit, *(getattr(model, method) for method in METHODS)):
            with pytest.raises(TypeError, match="must be a string or a real number, not 'dict'"):
                call(np.full((40, 6), {}, dtype=object))
        # Objects that are numbers are numbers.
        np.testing.assert_array_equal(make(kind).fit(X.astype(object)).transform(X.astype(object)), model.transform(X))

    @cover("dtype", CLASSES, [np.int32, np.bool_], base=[DL])
    def test_integers_and_booleans(self, kind, dtype, X):
        numbers = (X > 0.5).astype(dtype)
        numbers[:, 0] = 1
        fit_finite(make(kind), numbers)


class TestShapes:
    """Empty, one of a kind, and the wrong number of axes or features."""

    @every
    def test_empty(self, kind, X):
        with pytest.raises(ValueError, match=r"0 sample\(s\) \(shape=\(0, 6\)\)"):
            make(kind).fit(X[:0])
        with pytest.raises(ValueError, match=r"0 feature\(s\) \(shape=\(40, 0\)\)"):
            make(kind).fit(X[:, :0])
        model = make(kind).fit(X)
        for method in METHODS:
            with pytest.raises(ValueError, match=r"0 sample\(s\) \(shape=\(0, 6\)\)"):
                getattr(model, method)(X[:0])

    @every
    @pytest.mark.filterwarnings("ignore:n_kernel_vectors=8 exceeds the number of signals, 1")
    def test_one_signal(self, kind, X):
        _, _, errors, score = fit_finite(make(kind), X[:1])
        # It is its own dictionary; kernel vectors of MORKDL too, since its norm is the only one.
        assert errors[0] == pytest.approx(0.0, abs=1e-6)
        assert score == pytest.approx(1.0)

    @every
    def test_one_signal_after_fit(self, kind, X):
        model = make(kind).fit(X)
        np.testing.assert_allclose(model.transform(X[5:6])[0], model.transform(X)[5], atol=1e-10)

    @every
    def test_one_feature(self, kind, X):
        fit_finite(make(kind), X[:, :1])

    @every
    def test_one_atom(self, kind, X):
        fit_finite(make(kind, n_components=1, n_nonzero_coefs=1), X)

    @every
    def test_wrong_number_of_axes(self, kind, X):
        model = make(kind).fit(X)
        for call in (make(kind).fit, *(getattr(model, method) for method in METHODS)):
            with pytest.raises(ValueError, match="Expected 2D array, got 1D array"):
                call(X[0])
            with pytest.raises(ValueError, match="dim 3"):
                call(X.reshape(40, 3, 2))

    @every
    def test_wrong_number_of_features(self, kind, X):
        model = make(kind).fit(X)
        for method in METHODS:
            with pytest.raises(ValueError, match=rf"X has 5 features, but {kind.__name__} is expecting 6 features"):
                getattr(model, method)(X[:, :5])


class TestLayouts:
    """The same numbers in another order of memory are the same signals."""

    @pytest.mark.parametrize(
        ("kind", "form", "dtype"),
        [
            *itertools.product(CLASSES, [sparse.csr_array], [np.float64, np.float32]),
            *itertools.product([DL], [getattr(sparse, f"{form}_array") for form in FORMATS], [np.float64]),
            *itertools.product([DL], [getattr(sparse, f"{form}_matrix") for form in FORMATS], [np.float64]),
        ],
    )
    def test_sparse_input_is_the_dense_one(self, kind, form, dtype, X):
        dense = np.where(np.abs(X) > 0.5, X, 0.0).astype(dtype)
        model, expected = make(kind).fit(form(dense)), make(kind).fit(dense)
        tolerance = 1e-10 if dtype == np.float64 else 1e-4
        for method in METHODS:
            np.testing.assert_allclose(
                getattr(model, method)(form(dense)), getattr(expected, method)(dense), rtol=tolerance, atol=tolerance
            )
        assert model.transform(form(dense)).dtype == dtype

    @every
    def test_sparse_input_without_entries(self, kind, X):
        nothing = sparse.csr_array((3, 6))
        np.testing.assert_array_equal(
            make(kind).fit(X).transform(nothing), make(kind).fit(X).transform(nothing.toarray())
        )


class TestDegenerateSignals:
    """Signals that carry little or no information."""

    @cover("seed", CLASSES, range(4), base=[RKDL])
    def test_zero_rows(self, kind, seed, X):
        X[::3] = 0.0
        _, codes, errors, _ = fit_finite(make(kind, random_state=seed), X)
        if kind is DL:
            assert not codes[::3].any()
            assert not errors[::3].any()

    @pytest.mark.parametrize(("kind", "seed"), [*itertools.product([RKDL], range(3)), (ORKDL, 0), (MORKDL, 0)])
    @pytest.mark.parametrize("method", ["dictionary", "random", "kmeans", "rpcholesky"])
    def test_zero_rows_may_be_drawn_as_kernel_vectors(self, kind, method, seed, X):
        X[::2] = 0.0
        fit_finite(make(kind, kernel_vectors=method, random_state=seed), X)

    @every
    def test_only_zero_rows(self, kind):
        zeros = np.zeros((20, 6))
        if kind is MORKDL:
            # There is no norm to hold the kernel vectors to.
            assert_speaks("zero", lambda: make(kind, kernel_vector_norm="shared").fit(zeros))
        _, _, errors, score = fit_finite(make(kind), zeros)
        assert errors.max() < 1e-6
        assert score == pytest.approx(1.0)

    @every
    def test_constant_features(self, kind, X):
        X[:, :3] = [0.0, 1.0, -7.0]
        fit_finite(make(kind), X)

    @every
    @pytest.mark.parametrize("offset", [0.0, 1e8])
    def test_all_rows_equal(self, kind, offset, X):
        same = np.repeat(X[:1] + offset, 20, axis=0)
        _, codes, errors, score = fit_finite(make(kind), same)
        assert score == pytest.approx(1.0, abs=1e-6)
        assert errors.max() < 1e-6 * max(1.0, offset)
        np.testing.assert_allclose(codes, np.repeat(codes[:1], 20, axis=0), rtol=1e-6)

    @cover("method", REDUCED, ["dictionary", "random", "kmeans", "rpcholesky"], base=[RKDL])
    def test_all_rows_equal_leave_one_kernel_vector(self, kind, method, X):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Number of distinct clusters")
            model, _, _, score = fit_finite(make(kind, kernel_vectors=method), np.repeat(X[:1], 20, axis=0))
        assert model.rank_ == 1
        assert score == pytest.approx(1.0)

    @every_reduced
    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    def test_duplicated_kernel_vectors(self, kind, dtype, X):
        vectors = np.repeat(X[:3], 4, axis=0)
        model, *_ = fit_finite(make(kind, kernel_vectors=vectors), X.astype(dtype))
        if kind is RKDL:
            assert model.rank_ == 3

    @pytest.mark.parametrize("kernel", ["rbf", "poly", "linear"])
    def test_duplicated_kernel_vectors_change_nothing(self, kernel, X):
        start = np.random.default_rng(2).standard_normal((5, 3))
        options = {"kernel": kernel, "gamma": 0.1, "tol": 0.0}
        once = make(RKDL, kernel_vectors=X[:3], init=start, **options).fit(X)
        twice = make(RKDL, kernel_vectors=np.vstack([X[:3]] * 2), init=np.hstack([start] * 2) / 2, **options).fit(X)
        assert twice.rank_ == once.rank_ == 3
        np.testing.assert_allclose(twice.transform(X), once.transform(X), rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(twice.errors_, once.errors_, rtol=1e-8)


class TestKernelValues:
    """A gamma that makes all signals one or all orthogonal, polynomials that overflow, kernels that are none."""

    @cover(
        "dtype gamma",
        [*KERNEL, FourierDL],
        list(itertools.product([np.float64, np.float32], [1e-20, 1e-65])),
        base=[RKDL, FourierDL],
    )
    def test_gamma_so_small_that_all_signals_are_one(self, kind, dtype, gamma, X):
        _, codes, errors, score = fit_finite(make(kind, gamma=gamma), X.astype(dtype))
        assert errors.max() < 1e-3
        assert score == pytest.approx(1.0, abs=1e-6)
        assert (codes != 0).any(axis=1).all()

    @cover(
        "dtype gamma",
        [*KERNEL, FourierDL],
        list(itertools.product([np.float64, np.float32], [1e10, 1e20, 1e65])),
        base=[RKDL, FourierDL],
    )
    def test_gamma_so_large_that_the_kernel_is_the_identity(self, kind, dtype, gamma, X):
        X = X.astype(dtype)
        model = make(kind, gamma=gamma)
        if gamma < np.finfo(dtype).max:
            fit_finite(model, X)
            return
        # Such a number is none of float32: a finite result, or an error.
        try:
            with np.errstate(all="ignore"):
                assert_finite(model.fit(X), X)
        except ValueError as error:
            check_message(error, "gamma")

    @cover(
        "dtype gamma",
        [KDL, RKDL, ORKDL],
        list(itertools.product([np.float64, np.float32], [1e4, 1e10, 1e20])),
        base=[KDL],
    )
    def test_an_atom_represents_one_signal_where_the_kernel_is_the_identity(self, kind, dtype, gamma, X):
        """Five orthonormal atoms hold five of forty orthonormal signals, whatever they are."""
        vectors = {} if kind is KDL else {"kernel_vectors": X.astype(dtype)}
        model, _, errors, score = fit_finite(make(kind, gamma=gamma, **vectors), X.astype(dtype))
        assert score == pytest.approx(5 / 40, abs=1e-2)
        assert (errors < 0.3).sum() == 5
        assert model.errors_[-1] == pytest.approx(np.sqrt(35 / (40 * 6)), rel=1e-2)

    @cover(
        "dtype size degree",
        KERNEL,
        [(np.float64, 10.0, 901), (np.float32, 10.0, 901), (np.float64, 1e60, 3)],
        base=[KDL],
    )
    def test_polynomial_overflow(self, kind, dtype, size, degree, X):
        model = make(kind, kernel="poly", gamma=1.0, degree=degree)
        with pytest.raises(ValueError, match=r"overflow|not finite") as caught:
            model.fit((X * size).astype(dtype))
        assert re.search("gamma|degree", str(caught.value))
        assert re.search("scale", str(caught.value))

    @every_kernel
    def test_polynomial_overflow_after_fit(self, kind, X):
        model = make(kind, kernel="poly", gamma=1.0, degree=9).fit(X)
        for method in METHODS:
            with pytest.raises(ValueError, match=r"overflow|not finite"):
                getattr(model, method)(X * 1e60)

    @cover("degree", KERNEL, [3, 1, 7], base=[RKDL])
    def test_odd_degrees_keep_the_sign(self, kind, degree, X):
        _, _, errors, _ = fit_finite(make(kind, kernel="poly", gamma=0.5, degree=degree, coef0=0.0), X)
        energy = polynomial_kernel(X, gamma=0.5, degree=degree, coef0=0.0).diagonal()
        assert (errors <= np.sqrt(energy) * (1 + 1e-9)).all()

    @pytest.mark.parametrize("degree", [3, 7])
    def test_odd_degrees_are_scikit_learns(self, degree, X):
        options = {"gamma": 0.5, "degree": degree, "coef0": 0.0}
        given = make(KDL, kernel="precomputed").fit(polynomial_kernel(X, **options))
        named = make(KDL, kernel="poly", **options).fit(X)
        assert (polynomial_kernel(X, **options) < 0.0).any()
        np.testing.assert_allclose(named.dual_components_, given.dual_components_, rtol=1e-6, atol=1e-12)

    @every_kernel
    def test_a_polynomial_that_is_no_kernel(self, kind, X):
        model = make(kind, kernel="poly", gamma=0.1, degree=3, coef0=-10.0)
        assert_speaks("positive|negative", lambda: assert_finite(model.fit(X), X))

    @by_class([KDL, RKDL])
    def test_a_function_that_is_no_kernel(self, kind, X):
        model = make(kind, kernel=lambda A, B: -(A @ B.T))
        assert_speaks("positive|negative", lambda: assert_finite(model.fit(X), X))

    @by_class([KDL, RKDL])
    def test_a_function_that_is_not_symmetric(self, kind, X):
        model = make(kind, kernel=lambda A, B: A @ np.triu(np.ones((6, 6))) @ B.T)
        assert_speaks("symmetric", lambda: assert_finite(model.fit(X), X))

    @by_class([KDL, RKDL])
    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_a_function_that_is_not_finite(self, kind, bad, X):
        with pytest.raises(ValueError, match=r"finite|overflow"):
            make(kind, kernel=lambda A, B: A @ B.T + bad).fit(X)

    @cover(
        "bad at",
        [KDL, RKDL],
        list(itertools.product([np.nan, np.inf, -1.0], ["one signal", "everywhere"])),
        base=[RKDL],
    )
    def test_a_function_with_a_bad_diagonal(self, kind, bad, at, X):
        """Where the diagonal has a function of its own, which no kernel matrix shows."""

        class Kernel:
            def __call__(self, A, B):
                return rbf_kernel(A, B, gamma=0.1)

            def diag(self, A):
                hit = np.ones(len(A), dtype=bool) if at == "everywhere" else A[:, 0] == X[7, 0]
                return np.where(hit, bad, 1.0)

        count = "1" if at == "one signal" else "40"
        with pytest.raises(ValueError, match=rf"gives k\(x, x\) = {bad} for {count} of 40 signals"):
            make(kind, kernel=Kernel()).fit(X)

    def test_a_bad_diagonal_after_fit(self, X):
        def kernel(A, B):
            values = rbf_kernel(A, B, gamma=0.1)
            values[(A[:, None] == B).all(axis=2) & (A[:, :1] > 50.0)] = np.nan
            return values

        model = make(RKDL, kernel=kernel).fit(X)
        far = np.vstack([X, np.full((1, 6), 60.0)])
        for method in ("reconstruction_error", "score"):
            with pytest.raises(ValueError, match=r"gives k\(x, x\) = nan"):
                getattr(model, method)(far)

    @by_class([KDL, RKDL])
    @pytest.mark.parametrize(
        "function",
        [
            lambda A, B: rbf_kernel(A, B) + 0.1j,
            lambda A, B: rbf_kernel(A, B) + 0j,
            lambda x, y: complex(x @ y),
        ],
        ids=["complex", "no imaginary part", "of rows"],
    )
    def test_a_complex_function(self, kind, function, X):
        with pytest.raises(ValueError, match=r"returns complex numbers, .* return the real part"):
            make(kind, kernel=function).fit(X)

    @by_class([KDL, RKDL])
    def test_a_function_of_masked_values(self, kind, X):
        with pytest.raises(ValueError, match="the kernel's value is a masked array"):
            make(kind, kernel=lambda A, B: np.ma.masked_less(rbf_kernel(A, B), 0.1)).fit(X)

    @by_class([KDL, RKDL])
    def test_a_function_that_is_not_finite_on_one_pair(self, kind):
        """No sample of the signals finds it out."""
        X = np.random.default_rng(0).standard_normal((400, 6))

        def kernel(A, B):
            values = rbf_kernel(A, B, gamma=0.1)
            values[(A[:, 0] == X[1, 0])[:, None] & (B[:, 0] == X[2, 0])] = np.nan
            values[(A[:, 0] == X[2, 0])[:, None] & (B[:, 0] == X[1, 0])] = np.nan
            return values

        with pytest.raises(ValueError, match="finite"):
            make(kind, kernel=kernel, **({} if kind is KDL else {"kernel_vectors": X[2:10]})).fit(X)

    @by_class([KDL, RKDL])
    @pytest.mark.parametrize(
        "function",
        [
            lambda A, B: np.ones(len(A)),
            lambda A, B: np.ones((len(B) + 1, len(A))),
            lambda A, B: None,
            lambda A, B: "number",
            lambda A: A,
        ],
        ids=["vector", "shape", "nothing", "text", "one argument"],
    )
    def test_a_function_of_the_wrong_shape(self, kind, function, X):
        with pytest.raises(
            ValueError, match=r"kernel=.* is neither a function of two matrices .*\(len\(X\), len\(Y\)\)"
        ):
            make(kind, kernel=function).fit(X)

    @every_optimized
    def test_a_function_has_no_derivative(self, kind, X):
        with pytest.raises(
            ValueError, match=rf"{kind.__name__} moves .* derivative.*'rbf', 'poly' or 'linear', or use RKDL"
        ):
            make(kind, kernel=rbf_kernel).fit(X)


class TestNearTheMaximum:
    @pytest.mark.parametrize("dtype", [np.float32])
    @pytest.mark.parametrize("n_features", [1, 6, 300])
    def test_score(self, dtype, n_features):
        """Norms leave the range of the dtype; what share of them is represented does not."""
        X = np.random.default_rng(0).uniform(-1.0, 1.0, (60, n_features))
        huge = (X * 0.999 * float(np.finfo(dtype).max)).astype(dtype)
        with warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)
            model = make(DL).fit(huge)
            score = model.score(huge)
        np.testing.assert_allclose(score, make(DL).fit(X).score(X), rtol=1e-4)
        assert not np.isnan(model.transform(huge)).any()
        assert not np.isnan(model.reconstruction_error(huge)).any()
        mixed = np.vstack([huge, X.astype(dtype), np.zeros((1, n_features), dtype)])
        np.testing.assert_allclose(model.score(mixed), score, rtol=1e-4)


class TestPrecomputed:
    """A kernel matrix that is none, and what cannot be told from kernel values alone."""

    @pytest.fixture
    def K(self, X):
        return rbf_kernel(X, gamma=0.1)

    def test_not_square(self, K):
        with pytest.raises(ValueError, match=r"X has shape \(5, 40\), which is not square"):
            make(KDL, kernel="precomputed").fit(K[:5])

    def test_not_symmetric(self, K):
        K[3, 4] += 0.5
        with pytest.raises(ValueError, match=r"not symmetric: entries differ by up to 0.5 .* Use \(K \+ K.T\) / 2"):
            make(KDL, kernel="precomputed").fit(K)

    @pytest.mark.parametrize(("size", "dtype"), [*itertools.product([1, 2, 3, 5, 40], [np.float64]), (5, np.float32)])
    def test_not_positive_semidefinite(self, size, dtype, X):
        # The constant vector is an eigenvector of the largest eigenvalue; all others are -1.
        matrix = 2.0 * np.ones((size, size)) - np.eye(size) * (1 if size > 1 else 3)
        with pytest.raises(ValueError, match=r"not positive semidefinite: .* about -1\. .* add 1 to its diagonal"):
            make(KDL, kernel="precomputed").fit(matrix.astype(dtype))

    def test_a_small_negative_eigenvalue_of_many(self, K):
        values, vectors = np.linalg.eigh(K)
        values[:] = np.linspace(1.0, 40.0, 40)
        values[0] = -0.01
        with pytest.raises(ValueError, match="not positive semidefinite"):
            make(KDL, kernel="precomputed").fit(vectors * values @ vectors.T)

    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    def test_rounding_is_forgiven(self, dtype, X):
        low_rank = (X @ X.T).astype(dtype)
        assert np.linalg.eigvalsh(low_rank)[0] < 0.0
        assert np.isfinite(make(KDL, kernel="precomputed").fit(low_rank).errors_).all()

    def test_not_finite_or_sparse(self, K):
        model = make(KDL, kernel="precomputed").fit(K)
        broken = K.copy()
        broken[2, 2] = np.nan
        for call in (make(KDL, kernel="precomputed").fit, model.transform):
            with pytest.raises(ValueError, match="contains NaN"):
                call(broken)
        with pytest.raises(TypeError, match="dense data is required"):
            make(KDL, kernel="precomputed").fit(sparse.csr_array(K))

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

    @pytest.mark.parametrize(
        ("count", "dtype"), [*itertools.product([1, 2, 3, 5, 9, 10, 17, 40], [np.float64]), (9, np.float32)]
    )
    def test_any_number_of_rows_after_fit(self, count, dtype, K):
        K = K.astype(dtype)
        model = make(KDL, kernel="precomputed").fit(K)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            codes = model.transform(K[:count])
        assert codes.dtype == dtype
        assert (codes != 0).any(axis=1).all()

    @pytest.mark.parametrize(
        ("dtype", "scale"),
        [(np.float64, 1e60), (np.float64, 1e-60), (np.float64, 1e65), (np.float32, 1e30), (np.float32, 1e-30)],
    )
    def test_scale_of_the_matrix(self, dtype, scale, K):
        plain = make(KDL, kernel="precomputed").fit(K)
        scaled = (K * scale).astype(dtype)
        try:
            model = make(KDL, kernel="precomputed").fit(scaled)
        except ValueError as error:
            check_message(error, "scale")
            return
        tolerance = 1e-6 if dtype == np.float64 else 1e-3
        np.testing.assert_allclose(model.errors_ / np.sqrt(scale), plain.errors_, rtol=tolerance)
        np.testing.assert_allclose(
            model.transform(scaled).astype(np.float64) / np.sqrt(scale),
            plain.transform(K),
            rtol=tolerance,
            atol=tolerance,
        )

    def test_errors_of_new_rows_are_unknown(self, K):
        model = make(KDL, kernel="precomputed").fit(K)
        for method in ("reconstruction_error", "score"):
            # The matrix of the training signals tells their norms; other rows do not.
            assert np.isfinite(getattr(model, method)(K)).all()
            with pytest.raises(ValueError, match=r"k\(x, x\).* precomputed|precomputed.* training signals alone"):
                getattr(model, method)(K[:5])
        model = make(KDL, kernel="precomputed", n_nonzero_coefs=5, residual_tol=0.1).fit(K)
        counts = np.count_nonzero(model.transform(K), axis=1)
        assert counts.min() < counts.max()
        with pytest.raises(ValueError, match=r"residual_tol .* kernel='precomputed' .* Set residual_tol=None"):
            model.transform(K[:5])

    def test_wrong_number_of_columns_after_fit(self, K):
        with pytest.raises(ValueError, match="X has 5 features, but KDL is expecting 40"):
            make(KDL, kernel="precomputed").fit(K).transform(K[:, :5])


class TestScales:
    """An offset or a factor changes what the mathematics says, and nothing else."""

    EXTREME = [(np.float64, 1e60), (np.float64, 1e-60), (np.float32, 1e30), (np.float32, 1e-30)]
    # About the same, and exact: rounding must not choose another atom.
    POWERS = [(np.float64, 2.0**199), (np.float64, 2.0**-199), (np.float32, 2.0**99), (np.float32, 2.0**-99)]

    @by_class([KDL, RKDL, ORKDL, FourierDL])
    def test_offset(self, kind, X):
        """The RBF kernel does not see an offset."""
        vectors = {"kernel_vectors": "random"} if kind in REDUCED else {}
        far = X + 1e8
        near = far - 1e8
        model, codes, errors, _ = fit_finite(make(kind, **vectors), far)
        expected = make(kind, **vectors).fit(near)
        assert model.gamma_ == pytest.approx(expected.gamma_, rel=1e-6)
        np.testing.assert_allclose(errors, expected.reconstruction_error(near), atol=1e-5)
        np.testing.assert_allclose(codes, expected.transform(near), atol=1e-4)

    @pytest.mark.parametrize(("dtype", "spread"), [(np.float64, 1.0), (np.float32, 1e3)])
    @pytest.mark.parametrize("seed", range(3))
    def test_offset_does_not_end_the_learning(self, dtype, spread, seed):
        """The sums know the error to their rounding, which is no reason to take it for zero."""
        X = np.random.default_rng(seed).standard_normal((400, 6))
        far = (X * spread + 1e8).astype(dtype)
        model = make(DL, max_iter=5, tol=0.0)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit(far)
        assert not caught
        assert len(model.update_errors_) == 5

    @by_class([RKDL, ORKDL])
    @pytest.mark.parametrize("method", ["random", "kmeans", "rpcholesky"])
    def test_offset_of_the_kernel_vectors(self, kind, method, X):
        far = X + 1e8
        _, _, _, score = fit_finite(make(kind, kernel_vectors=method), far)
        assert score == pytest.approx(make(kind, kernel_vectors=method).fit(far - 1e8).score(far - 1e8), abs=0.05)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_squares_times_gamma_overflow(self, dtype):
        """The kernel of a signal with itself is one, or the kernel is refused; it is never zero."""
        rows = np.array([[100.0, 1.0], [3.0, 4.0], [0.0, 0.0]], dtype=dtype)
        for gamma in np.finfo(dtype).max / np.array([4.0, 1e2, 1e3, 1e5, 1e7], dtype=np.float64):
            with np.errstate(over="ignore", invalid="ignore"):
                values = RBF(float(gamma))(rows, rows)
            assert (np.isnan(values.diagonal()) | (values.diagonal() == 1.0)).all()
        X = (100.0 * np.random.default_rng(0).random((300, 12))).astype(dtype)
        for kind in (KDL, RKDL):
            with pytest.raises(ValueError, match=r"not finite|overflows"):
                kind(300, n_nonzero_coefs=1, max_iter=3, gamma=float(np.finfo(dtype).max / 1e3)).fit(X)

    @every
    @pytest.mark.parametrize(("dtype", "spread"), [(np.float64, 1.0), (np.float32, 1e3)])
    def test_offset_is_finite(self, kind, dtype, spread, X):
        far = (X * spread + 1e8).astype(dtype)
        model, _, errors, _ = fit_finite(make(kind), far)
        if kind is DL:
            # The offset itself is one atom.
            assert errors.max() < 1e-3 * np.linalg.norm(far, axis=1).min()
            # What is left of the squares is known to their rounding.
            error = np.sqrt(np.sum(errors.astype(float) ** 2) / far.size)
            assert model.errors_[-1] == pytest.approx(error, abs=float(10 * np.sqrt(np.finfo(dtype).eps)) * 1e8)

    @cover("dtype scale", [KDL, RKDL, ORKDL], POWERS, base=[KDL, ORKDL])
    @pytest.mark.parametrize("kernel", ["rbf", "poly"])
    def test_median_gamma_undoes_a_scale(self, kind, kernel, dtype, scale, X):
        # From given atoms, so that rounding has no further iterations to grow in.
        start = {"init": np.random.default_rng(2).standard_normal((5, 8))} if kind is ORKDL else {}
        plain = make(kind, kernel=kernel, **start).fit(X)
        model, codes, errors, score = fit_finite(make(kind, kernel=kernel, **start), (X * scale).astype(dtype))
        tolerance = 1e-6 if dtype == np.float64 else 1e-3
        assert model.gamma_ * scale * scale == pytest.approx(plain.gamma_, rel=tolerance)
        np.testing.assert_allclose(codes, plain.transform(X), rtol=tolerance, atol=tolerance)
        np.testing.assert_allclose(errors, plain.reconstruction_error(X), rtol=tolerance, atol=tolerance)
        assert score == pytest.approx(plain.score(X), rel=tolerance)

    @pytest.mark.parametrize(("dtype", "scale"), POWERS)
    def test_median_gamma_undoes_a_scale_of_fourier_features(self, dtype, scale, X):
        plain = make(FourierDL).fit(X)
        model, codes, _, _ = fit_finite(make(FourierDL), (X * scale).astype(dtype))
        tolerance = 1e-6 if dtype == np.float64 else 1e-3
        assert model.gamma_ * scale * scale == pytest.approx(plain.gamma_, rel=tolerance)
        np.testing.assert_allclose(codes, plain.transform(X), rtol=tolerance, atol=tolerance)

    @cover("dtype scale", [DL, *KERNEL], POWERS, base=[DL, ORKDL])
    def test_linear_methods_follow_a_scale(self, kind, dtype, scale, X):
        linear = {} if kind is DL else {"kernel": "linear"}
        if kind in REDUCED:
            # Fewer than features, so that moving them means something.
            linear["n_kernel_vectors"] = 4
        plain = make(kind, **linear).fit(X)
        model, codes, errors, score = fit_finite(make(kind, **linear), (X * scale).astype(dtype))
        tolerance = 1e-6 if dtype == np.float64 else 1e-3
        near = {"rtol": tolerance, "atol": tolerance}
        np.testing.assert_allclose(codes.astype(float) / scale, plain.transform(X), **near)
        np.testing.assert_allclose(errors.astype(float) / scale, plain.reconstruction_error(X), **near)
        np.testing.assert_allclose(model.errors_ / scale, plain.errors_, **near)
        assert score == pytest.approx(plain.score(X), rel=tolerance)

    @cover("dtype scale", CLASSES, EXTREME, base=[DL, MORKDL])
    def test_scale_is_finite(self, kind, dtype, scale, X):
        _, _, _, score = fit_finite(make(kind), (X * scale).astype(dtype))
        assert 0.2 < score < 0.95

    @cover("dtype scale", CLASSES, EXTREME, base=[DL, RKDL])
    def test_a_zero_signal_after_fit(self, kind, dtype, scale, X):
        """A signal's code does not depend on the other signals of the call."""
        X = (X * scale).astype(dtype)
        model = make(kind).fit(X)
        zero = np.zeros((1, 6), dtype=dtype)
        together = model.transform(np.vstack([X[:3], zero]))
        np.testing.assert_allclose(model.transform(zero)[0], together[3], rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(
            model.transform(X[:1])[0], together[0], rtol=1e-3, atol=1e-3 * np.abs(together).max()
        )

    @pytest.mark.parametrize(("dtype", "scale"), EXTREME)
    def test_inverse_transform(self, dtype, scale, X):
        X = (X * scale).astype(dtype)
        model = make(DL, n_components=12, n_nonzero_coefs=6).fit(X)
        tolerance = 1e-6 if dtype == np.float64 else 1e-2
        np.testing.assert_allclose(
            model.inverse_transform(model.transform(X)) / dtype(scale), X / dtype(scale), atol=tolerance
        )

    @pytest.mark.parametrize("scale", [1e4, 1e7])
    def test_float32_weighs_the_linear_term_as_float64_does(self, scale, X):
        single, double = (make(MORKDL).fit((X * scale).astype(dtype)) for dtype in (np.float32, np.float64))
        np.testing.assert_allclose(single.errors_, double.errors_, rtol=1e-3)

    @pytest.mark.parametrize("scale", [1e60, 1e-60])
    def test_residual_tol_follows_a_scale(self, scale, X):
        plain = make(DL, n_nonzero_coefs=5, residual_tol=1.0).fit(X)
        model = make(DL, n_nonzero_coefs=5, residual_tol=1.0 * scale * scale).fit(X * scale)
        np.testing.assert_allclose(model.transform(X * scale) / scale, plain.transform(X), atol=1e-8)
        assert len(set((plain.transform(X) != 0).sum(axis=1))) > 1

    @pytest.mark.parametrize("scale", [1e60, 1e-60])
    @every
    def test_beyond_what_squares_can_hold(self, kind, scale, X):
        """Right, or refused: the square of such a scale is no float64."""
        model = make(kind)

        def call():
            with warnings.catch_warnings():
                warnings.simplefilter("error", RuntimeWarning)
                return assert_finite(model.fit(X * scale), X * scale)

        try:
            _, _, score = call()
        except ValueError as error:
            check_message(error, "scale")
        else:
            assert 0.2 < score < 0.95


class TestSizes:
    """More of one thing than there is of another."""

    @every
    def test_more_nonzeros_than_atoms(self, kind, X):
        message = r"n_nonzero_coefs=9 exceeds the number of atoms, 5: 5 is used"
        with pytest.warns(UserWarning, match=message):
            model = make(kind, n_nonzero_coefs=9).fit(X)
        with pytest.warns(UserWarning, match=message):
            codes = model.transform(X)
        np.testing.assert_array_equal(codes, make(kind, n_nonzero_coefs=5).fit(X).transform(X))

    @cover("bad", CLASSES, [0, -1, 1.5], base=[DL])
    def test_no_nonzeros(self, kind, bad, X):
        with pytest.raises(ValueError, match=rf"'n_nonzero_coefs' parameter of {kind.__name__} must be .* Got {bad}"):
            make(kind, n_nonzero_coefs=bad).fit(X)

    @cover("method", REDUCED, ["dictionary", "random", "kmeans", "rpcholesky"], base=[RKDL])
    def test_more_kernel_vectors_than_signals(self, kind, method, X):
        """The signals and points between them."""
        model, *_ = fit_finite(make(kind, n_kernel_vectors=20, kernel_vectors=method), X[:12])
        assert model.kernel_vectors_.shape == (20, 6)
        # Atoms of a linear dictionary may be alike.
        assert method == "dictionary" or pdist(model.kernel_vectors_).min() > 0.0

    @every_reduced
    def test_more_given_kernel_vectors_than_signals(self, kind, X):
        model, *_ = fit_finite(make(kind, kernel_vectors=X), X[:12])
        assert model.kernel_vectors_.shape == (40, 6)

    @every_reduced
    def test_more_atoms_than_kernel_vectors(self, kind, X):
        with pytest.warns(UserWarning, match="n_components=5 exceeds the number of kernel vectors, 2"):
            model = make(kind, n_kernel_vectors=2).fit(X)
        assert_finite(model, X)
        assert model.dual_components_.shape == (5, 2)
        assert model.rank_ == 2

    @every
    def test_more_atoms_than_signals(self, kind, X):
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="n_components=5 exceeds")
            model, *_ = fit_finite(make(kind), X[:3])
        assert model.transform(X).shape == (40, 5)

    @every_reduced
    def test_more_kernel_vectors_than_features(self, kind, X):
        model, *_ = fit_finite(make(kind, kernel="linear", n_kernel_vectors=20), X)
        assert model.rank_ == 6

    def test_more_linear_nonzeros_than_kernel_vectors(self, X):
        fit_finite(make(MORKDL, n_kernel_vectors=3, linear_n_nonzero_coefs=10), X)


def atoms_shape(kind, X):
    return {DL: (5, 6), KDL: (5, len(X)), FourierDL: (5, 16)}.get(kind, (5, 8))


class TestStarts:
    """First atoms and kernel vectors that are given."""

    @cover("which", CLASSES, ["one zero", "all zero", "all equal", "opposite", "tiny", "huge"], base=[DL, KDL, RKDL])
    def test_directions_of_the_first_atoms(self, kind, which, X):
        start = np.random.default_rng(3).standard_normal(atoms_shape(kind, X))
        if which == "one zero":
            start[2] = 0.0
        elif which == "all zero":
            start[:] = 0.0
        elif which == "all equal":
            start[:] = start[0]
        elif which == "opposite":
            start[1::2] = -start[0]
        else:
            start *= 1e-60 if which == "tiny" else 1e60
        model, codes, _, _ = fit_finite(make(kind, init=start, max_iter=5), X)
        # No atom stays without a direction, and none stays unused.
        assert (codes != 0).any(axis=0).all()
        if which not in ("tiny", "huge"):
            assert model.n_revived_ >= {"one zero": 1, "all zero": 5, "all equal": 1, "opposite": 2}[which]

    @every
    def test_wrong_shape_of_the_first_atoms(self, kind, X):
        rows, columns = atoms_shape(kind, X)
        attribute = "components_" if kind in (DL, FourierDL) else "dual_components_"
        for shape in ((rows - 1, columns), (rows, columns + 1), (columns, rows)):
            message = rf"init has shape \({shape[0]}, {shape[1]}\), expected .*{attribute}, \({rows}, {columns}\)"
            with pytest.raises(ValueError, match=message):
                make(kind, init=np.ones(shape)).fit(X)
        with pytest.raises(ValueError, match="Expected 2D array, got 1D"):
            make(kind, init=np.ones(columns)).fit(X)

    @cover("bad", CLASSES, [np.nan, np.inf], base=[DL])
    def test_first_atoms_that_are_not_finite(self, kind, bad, X):
        start = np.ones(atoms_shape(kind, X))
        start[1, 1] = bad
        with pytest.raises(ValueError, match="Input init contains"):
            make(kind, init=start).fit(X)

    @every_reduced
    def test_wrong_shape_of_the_kernel_vectors(self, kind, X):
        with pytest.raises(ValueError, match=r"kernel_vectors has 5 features and X has 6: they must agree"):
            make(kind, kernel_vectors=X[:8, :5]).fit(X)
        with pytest.raises(ValueError, match="Expected 2D array, got 1D"):
            make(kind, kernel_vectors=X[0]).fit(X)
        with pytest.raises(ValueError, match="0 sample"):
            make(kind, kernel_vectors=X[:0]).fit(X)

    @cover("bad", REDUCED, [np.nan, np.inf], base=[RKDL])
    def test_kernel_vectors_that_are_not_finite(self, kind, bad, X):
        vectors = X[:8].copy()
        vectors[1, 1] = bad
        with pytest.raises(ValueError, match="Input kernel_vectors contains"):
            make(kind, kernel_vectors=vectors).fit(X)

    def test_a_zero_kernel_vector_has_no_direction(self, X):
        vectors = X[:8].copy()
        vectors[1] = 0.0
        with pytest.raises(ValueError, match="norm zero, and MORKDL holds all of them to one norm"):
            make(MORKDL, kernel_vectors=vectors, kernel_vector_norm="shared").fit(X)
        for kind in (RKDL, ORKDL, MORKDL):
            fit_finite(make(kind, kernel_vectors=vectors), X)


OUT_OF_RANGE = {
    "n_components": [0, 2.5],
    "residual_tol": [-1.0, np.nan],
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
    "pursuit": ("lasso", ["ols", "omp"]),
    "atom_update": ("ksvd", ["gram", "aksvd"]),
    "init": ("k-means++", ["rpcholesky", "data", "random"]),
    "kernel_vectors": ("nystrom", ["dictionary", "random", "kmeans", "rpcholesky"]),
    "solver": ("adam", ["lbfgs", "gd"]),
}


class TestOptions:
    """Options that do not exist, or that are out of range."""

    @every
    def test_unknown_option(self, kind, X):
        for name, (bad, valid) in UNKNOWN.items():
            if not takes(kind, name):
                continue
            message = rf"'{name}' parameter of {kind.__name__} must be .*Got '{re.escape(bad)}' instead"
            with pytest.raises(ValueError, match=message) as caught:
                make(kind, **{name: bad}).fit(X)
            for option in valid + (["precomputed"] if kind is KDL and name == "kernel" else []):
                assert repr(option) in str(caught.value)

    @every_reduced
    def test_precomputed_is_for_the_full_method(self, kind, X):
        with pytest.raises(ValueError, match=r"'kernel' parameter of .* Got 'precomputed'"):
            make(kind, kernel="precomputed").fit(X @ X.T)

    @every
    def test_out_of_range(self, kind, X):
        for name, values in OUT_OF_RANGE.items():
            for bad in values if takes(kind, name) else []:
                message = rf"'{name}' parameter of {kind.__name__} must be .* Got {bad!r} instead"
                with pytest.raises(ValueError, match=message):
                    make(kind, **{name: bad}).fit(X)

    @every
    def test_no_jobs(self, kind, X):
        with pytest.raises(ValueError, match="n_jobs"):
            make(kind, n_jobs=0).fit(X)

    @every_optimized
    def test_a_learning_rate_that_is_too_large(self, kind, X):
        """What to do is said; test_progress.py has every kernel and rate."""
        model = make(kind, solver="gd", learning_rate=1e3)
        match = r"learning_rate=1000.0 .*lower it, or leave it None"
        assert_speaks(match, lambda: assert_finite(model.fit(X), X))

    @cover("scale", OPTIMIZED, [1.0, 1e-3, 1e3], base=[ORKDL])
    @pytest.mark.parametrize("kernel", ["rbf", "poly", "linear"])
    def test_the_default_rate_never_raises_the_error(self, kind, kernel, scale, X):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model = make(kind, kernel=kernel, solver="gd").fit(X * scale)
        assert model.errors_[-1] <= model.errors_[0] * (1 + 1e-6)


@pytest.fixture(params=["ols", "omp"])
def pursuit(request):
    return request.param


class TestSparseEncode:
    """The function that codes against a dictionary."""

    @pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
    @pytest.mark.parametrize("form", [np.array, sparse.csr_array])
    def test_not_finite(self, bad, form, X, dictionary):
        X[7, 3] = bad
        with pytest.raises(ValueError, match=r"NaN|infinity|not finite"):
            sparse_encode(form(X), dictionary)
        # Not even where no atom looks.
        dictionary[:, 3] = 0.0
        with pytest.raises(ValueError, match=r"NaN|infinity|not finite"):
            sparse_encode(form(X), dictionary)

    @pytest.mark.parametrize(("bad", "match"), [(np.nan, "NaN"), (np.inf, "infinity")])
    def test_not_finite_says_so(self, bad, match, X, dictionary):
        X[7, 3] = bad
        with pytest.raises(ValueError, match=match) as caught:
            sparse_encode(X, dictionary)
        assert "gamma" not in str(caught.value)

    def test_masked_and_malformed(self, X, dictionary):
        broken = sparse.csr_array(X)
        broken.indices[5] = 6
        with pytest.raises(ValueError, match=r"malformed CSR .* column index 6, outside 0 to 5"):
            sparse_encode(broken, dictionary)
        for name, call in {
            "X": lambda bad: sparse_encode(bad, dictionary),
            "dictionary": lambda bad: sparse_encode(X, bad),
            "correlations": lambda bad: sparse_encode_gram(np.eye(6), bad),
            "gram": lambda bad: sparse_encode_gram(bad[:6], X),
        }.items():
            with pytest.raises(ValueError, match=f"{name} is a masked array"):
                call(np.ma.masked_greater(X, 0.5))

    def test_dictionary_that_is_not_finite(self, X, dictionary):
        dictionary[1, 1] = np.nan
        with pytest.raises(ValueError, match="Input dictionary contains NaN"):
            sparse_encode(X, dictionary)

    def test_shapes(self, X, dictionary):
        for bad, match in (
            ((X[:0], dictionary), "0 sample"),
            ((X, dictionary[:0]), "0 sample"),
            ((X[:, :0], dictionary), "0 feature"),
            ((X[0], dictionary), "Expected 2D array, got 1D"),
            ((X, dictionary[0]), "Expected 2D array, got 1D"),
            ((X.reshape(40, 3, 2), dictionary), "dim 3"),
            ((X[:, :5], dictionary), r"X has 5 features and the atoms of dictionary have 6: they must agree"),
        ):
            with pytest.raises(ValueError, match=match):
                sparse_encode(*bad)

    def test_not_numbers(self, X, dictionary):
        for bad in ((X + 1j, dictionary), (X, dictionary + 1j)):
            with pytest.raises(ValueError, match="Complex data not supported"):
                sparse_encode(*bad)
        with pytest.raises(ValueError, match="could not convert string to float: 'cat'"):
            sparse_encode([["cat"] * 6], dictionary)
        with pytest.raises(TypeError, match="must be a string or a real number"):
            sparse_encode(np.full((4, 6), {}, dtype=object), dictionary)

    @pytest.mark.parametrize("dtype", [np.int16, np.bool_, np.float16])
    def test_other_numbers(self, dtype, X, dictionary):
        numbers = (X > 0.5).astype(dtype)
        codes = sparse_encode(numbers, dictionary, n_nonzero_coefs=2)
        assert codes.dtype == np.float64
        np.testing.assert_array_equal(codes, sparse_encode(numbers.astype(float), dictionary, n_nonzero_coefs=2))

    def test_layouts(self, X, dictionary, pursuit):
        expected = sparse_encode(X, dictionary, n_nonzero_coefs=2, pursuit=pursuit)
        frozen = X.copy()
        frozen.flags.writeable = False
        for form in (np.asfortranarray, sparse.csr_array, sparse.csc_array, np.ndarray.tolist, lambda X: frozen):
            codes = sparse_encode(form(X), dictionary, n_nonzero_coefs=2, pursuit=pursuit)
            np.testing.assert_array_equal(codes, expected)
        strided = np.repeat(dictionary, 2, axis=1)[:, ::2]
        np.testing.assert_array_equal(sparse_encode(X, strided, n_nonzero_coefs=2, pursuit=pursuit), expected)

    def test_zero_signals(self, X, dictionary, pursuit):
        X[::2] = 0.0
        codes = sparse_encode(X, dictionary, n_nonzero_coefs=2, pursuit=pursuit)
        assert not codes[::2].any()
        assert codes[1::2].any(axis=1).all()

    def test_zero_atoms_are_not_used(self, X, dictionary, pursuit):
        dictionary[2] = 0.0
        codes = sparse_encode(X, dictionary, n_nonzero_coefs=5, pursuit=pursuit)
        assert np.isfinite(codes).all()
        assert not codes[:, 2].any()
        assert not sparse_encode(X, dictionary * 0.0, n_nonzero_coefs=5, pursuit=pursuit).any()

    def test_equal_atoms(self, X, dictionary, pursuit):
        """Copies of an atom, of any sign and length, add nothing."""
        copies = np.vstack([dictionary, dictionary, -2.0 * dictionary])
        codes = sparse_encode(X, copies, n_nonzero_coefs=10, pursuit=pursuit)
        assert ((codes != 0).sum(axis=1) <= 5).all()
        expected = X - sparse_encode(X, dictionary, n_nonzero_coefs=5, pursuit=pursuit) @ dictionary
        np.testing.assert_allclose(X - codes @ copies, expected, atol=1e-8)

    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    def test_nearly_equal_atoms(self, dtype, X, dictionary, pursuit):
        close = dictionary + 1e-7 * np.random.default_rng(4).standard_normal((5, 6))
        atoms = np.vstack([dictionary, close]).astype(dtype)
        codes = sparse_encode(X.astype(dtype), atoms, n_nonzero_coefs=10, pursuit=pursuit)
        assert np.isfinite(codes).all()
        assert (np.linalg.norm(X - codes @ atoms, axis=1) <= np.linalg.norm(X, axis=1) * (1 + 1e-5)).all()

    def test_ties_go_to_the_first_atom(self, pursuit):
        for size in (3, 40, 100):
            codes = sparse_encode(np.ones((1, size)), np.eye(size), n_nonzero_coefs=2, pursuit=pursuit)
            assert codes.nonzero()[1].tolist() == [0, 1]
            copies = np.vstack([np.eye(size), np.eye(size)])
            codes = sparse_encode(np.eye(size), copies, n_nonzero_coefs=2, pursuit=pursuit)
            np.testing.assert_array_equal(codes, np.hstack([np.eye(size), np.zeros((size, size))]))

    @pytest.mark.parametrize(
        ("pursuit", "dtype", "exponent", "sign"),
        [
            *itertools.product(["ols"], [np.float64], [1 / 8, 1 / 5], [1, -1]),
            *itertools.product(["ols"], [np.float32], [1 / 8, 1 / 4, 1 / 2, 5 / 8], [1, -1]),
            *itertools.product(["omp"], [np.float32], [1 / 2], [1, -1]),
        ],
    )
    def test_scale_of_the_signals(self, dtype, exponent, sign, X, dictionary, pursuit):
        """Up to 1e192 in float64, 1e24 in float32: right, or refused."""
        scale = float(np.finfo(dtype).max) ** (sign * exponent)
        expected = sparse_encode(X, dictionary, n_nonzero_coefs=2, pursuit=pursuit)
        try:
            codes = sparse_encode(
                (X * scale).astype(dtype), dictionary.astype(dtype), n_nonzero_coefs=2, pursuit=pursuit
            )
        except ValueError as error:
            assert sign > 0
            check_message(error, "scale")
            return
        tolerance = 1e-10 if dtype == np.float64 else 1e-4
        np.testing.assert_allclose(codes.astype(float) / scale, expected, rtol=tolerance, atol=tolerance)

    @pytest.mark.parametrize(
        ("dtype", "scale"), [(np.float64, 1e60), (np.float64, 1e-60), (np.float32, 1e30), (np.float32, 1e-30)]
    )
    def test_scale_of_the_atoms(self, dtype, scale, X, dictionary, pursuit):
        expected = sparse_encode(X, dictionary, n_nonzero_coefs=2, pursuit=pursuit)
        codes = sparse_encode(X.astype(dtype), (dictionary * scale).astype(dtype), n_nonzero_coefs=2, pursuit=pursuit)
        tolerance = 1e-10 if dtype == np.float64 else 1e-4
        np.testing.assert_allclose(codes.astype(float) * scale, expected, rtol=tolerance, atol=tolerance)

    def test_offset(self, X, dictionary, pursuit):
        codes = sparse_encode(X + 1e8, dictionary, n_nonzero_coefs=5, pursuit=pursuit)
        assert np.isfinite(codes).all()
        best = np.linalg.lstsq(dictionary.T, (X + 1e8).T, rcond=None)[0].T
        np.testing.assert_allclose(codes, best, rtol=1e-6)

    def test_more_nonzeros_than_atoms(self, X, dictionary, pursuit):
        with pytest.warns(UserWarning, match=r"n_nonzero_coefs=9 exceeds the number of atoms, 5: 5 is used"):
            codes = sparse_encode(X, dictionary, n_nonzero_coefs=9, pursuit=pursuit)
        np.testing.assert_array_equal(codes, sparse_encode(X, dictionary, n_nonzero_coefs=5, pursuit=pursuit))


def encode_signals(X, dictionary, **options):
    return sparse_encode(X, dictionary, **options)


def encode_products(X, dictionary, **options):
    return sparse_encode_gram(
        dictionary @ dictionary.T, X @ dictionary.T, squared_norms=np.sum(X**2, axis=1), **options
    )


class TestEncoderOptions:
    """What both functions refuse."""

    encoder = pytest.mark.parametrize("encode", [encode_signals, encode_products])

    @encoder
    @pytest.mark.parametrize("bad", [0, -1, 2.5, "two", np.nan])
    def test_n_nonzero_coefs(self, encode, bad, X, dictionary):
        with pytest.raises((ValueError, TypeError), match=f"n_nonzero_coefs.*{bad}"):
            encode(X, dictionary, n_nonzero_coefs=bad)

    @encoder
    @pytest.mark.parametrize("bad", [-1.0, np.nan, "small"])
    def test_residual_tol(self, encode, bad, X, dictionary):
        with pytest.raises((ValueError, TypeError), match=f"residual_tol.*{bad}"):
            encode(X, dictionary, residual_tol=bad)

    @encoder
    @pytest.mark.parametrize("bad", ["lasso", None, 1])
    def test_pursuit(self, encode, bad, X, dictionary):
        with pytest.raises(ValueError, match=rf"pursuit={bad!r} is unknown; choose one of 'ols', 'omp'"):
            encode(X, dictionary, pursuit=bad)

    @encoder
    @pytest.mark.parametrize("bad", [0, "all"])
    def test_n_jobs(self, encode, bad, X, dictionary):
        with pytest.raises((ValueError, TypeError), match="n_jobs"):
            encode(X, dictionary, n_jobs=bad)

    @encoder
    def test_unknown_option(self, encode, X, dictionary):
        with pytest.raises(TypeError, match="unexpected keyword argument 'alpha'"):
            encode(X, dictionary, alpha=1.0)

    @encoder
    def test_residual_tol_is_reached_or_the_atoms_are_spent(self, encode, X, dictionary):
        codes = encode(X, dictionary, residual_tol=1.0)
        squares = np.sum((X - codes @ dictionary) ** 2, axis=1)
        assert ((squares <= 1.0 + 1e-9) | ((codes != 0).sum(axis=1) == 5)).all()
        assert (squares <= 1.0 + 1e-9).any()


class TestSparseEncodeGram:
    """The function that codes from inner products."""

    def test_shapes(self):
        for gram, correlations, match in (
            (np.ones((2, 3)), np.ones((1, 2)), r"gram has shape \(2, 3\): it must be square"),
            (np.eye(3), np.ones((1, 2)), r"correlations has 2 columns and gram 3 atoms"),
            (np.eye(2), np.ones((0, 2)), "0 sample"),
            (np.eye(2), np.ones(2), "Expected 2D array, got 1D"),
            (np.ones(2), np.ones((1, 2)), "Expected 2D array, got 1D"),
            (np.eye(2), np.ones((1, 2, 2)), "dim 3"),
        ):
            with pytest.raises(ValueError, match=match):
                sparse_encode_gram(gram, correlations)

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_not_finite(self, bad):
        for name, gram, correlations, norms in (
            ("gram", np.full((2, 2), bad), np.ones((1, 2)), [2.0]),
            ("correlations", np.eye(2), np.array([[1.0, bad]]), [2.0]),
            ("squared_norms", np.eye(2), np.ones((1, 2)), [bad]),
        ):
            with pytest.raises(ValueError, match=f"Input {name} contains (NaN|infinity)"):
                sparse_encode_gram(gram, correlations, squared_norms=norms)

    def test_not_numbers(self):
        for gram, correlations in ((np.eye(2) * 1j, np.ones((1, 2))), (np.eye(2), np.ones((1, 2)) * 1j)):
            with pytest.raises(ValueError, match="Complex data not supported"):
                sparse_encode_gram(gram, correlations)
        with pytest.raises(ValueError, match="could not convert string to float: 'cat'"):
            sparse_encode_gram(np.eye(2), [["cat", "dog"]])

    def test_not_symmetric(self):
        with pytest.raises(ValueError, match=r"gram is not symmetric: give inner products .* A @ A.T"):
            sparse_encode_gram([[1.0, 0.5], [0.0, 1.0]], [[1.0, 1.0]])

    def test_negative_norm(self):
        with pytest.raises(ValueError, match=r"negative diagonal entry, -1.0"):
            sparse_encode_gram(-np.eye(2), [[1.0, 1.0]])

    def test_not_positive_semidefinite(self):
        assert_speaks(
            "positive semidefinite",
            lambda: sparse_encode_gram([[1.0, 2.0], [2.0, 1.0]], [[1.0, -1.0]], n_nonzero_coefs=2),
        )

    def test_squared_norms(self):
        with pytest.raises(ValueError, match="residual_tol needs squared_norms"):
            sparse_encode_gram(np.eye(2), [[1.0, 1.0]], residual_tol=0.1)
        for bad in ([1.0, 2.0], [[1.0]]):
            with pytest.raises(ValueError, match=r"squared_norms has shape .*, expected \(1,\)"):
                sparse_encode_gram(np.eye(2), [[1.0, 1.0]], squared_norms=bad)
        with pytest.raises(ValueError, match=r"squared_norms .*-1"):
            sparse_encode_gram(np.eye(2), [[1.0, 1.0]], squared_norms=[-1.0])

    def test_sparse_input_is_refused(self):
        with pytest.raises(TypeError, match="dense data is required"):
            sparse_encode_gram(np.eye(2), sparse.csr_array(np.ones((1, 2))))

    def test_degenerate_grams(self, pursuit):
        options = {"n_nonzero_coefs": 3, "pursuit": pursuit}
        np.testing.assert_array_equal(sparse_encode_gram(np.ones((3, 3)), [[1.0, 1.0, 1.0]], **options), [[1, 0, 0]])
        np.testing.assert_array_equal(sparse_encode_gram(np.zeros((3, 3)), [[0.0, 0.0, 0.0]], **options), [[0, 0, 0]])
        np.testing.assert_array_equal(sparse_encode_gram(np.diag([1.0, 0, 1]), [[2.0, 0, 3]], **options), [[2, 0, 3]])

    @pytest.mark.parametrize(
        ("pursuit", "dtype", "exponent", "sign"),
        [
            *itertools.product(["ols"], [np.float64], [1 / 8, 1 / 5], [1, -1]),
            *itertools.product(["ols"], [np.float32], [1 / 8, 1 / 4, 1 / 2, 5 / 8], [1, -1]),
            *itertools.product(["omp"], [np.float32], [1 / 2], [1, -1]),
        ],
    )
    def test_scale_of_the_correlations(self, dtype, exponent, sign, X, dictionary, pursuit):
        scale = float(np.finfo(dtype).max) ** (sign * exponent)
        expected = sparse_encode(X, dictionary, n_nonzero_coefs=2, pursuit=pursuit)
        correlations = (X @ dictionary.T * scale).astype(dtype)
        try:
            codes = sparse_encode_gram(dictionary @ dictionary.T, correlations, n_nonzero_coefs=2, pursuit=pursuit)
        except ValueError as error:
            assert sign > 0
            check_message(error, "scale")
            return
        tolerance = 1e-10 if dtype == np.float64 else 1e-4
        np.testing.assert_allclose(codes.astype(float) / scale, expected, rtol=tolerance, atol=tolerance)

    def test_is_sparse_encode(self, X, dictionary, pursuit):
        for options in ({"n_nonzero_coefs": 2}, {"residual_tol": 0.5}, {"n_nonzero_coefs": 3, "residual_tol": 0.5}):
            np.testing.assert_allclose(
                encode_products(X, dictionary, pursuit=pursuit, **options),
                sparse_encode(X, dictionary, pursuit=pursuit, **options),
                atol=1e-10,
            )

    def test_more_nonzeros_than_atoms(self, X, dictionary):
        with pytest.warns(UserWarning, match=r"n_nonzero_coefs=9 exceeds the number of atoms, 5: 5 is used"):
            codes = encode_products(X, dictionary, n_nonzero_coefs=9)
        np.testing.assert_array_equal(codes, encode_products(X, dictionary, n_nonzero_coefs=5))


class TestMixedMagnitudes:
    """A signal's code does not depend on the other signals of the call, however large they are."""

    @pytest.mark.parametrize(("dtype", "huge"), [(np.float32, -3.4028235e38), (np.float64, 1e60)])
    @pytest.mark.parametrize("sparse_output", [False, True])
    def test_a_huge_row(self, dtype, huge, sparse_output, X, dictionary):
        X = X.astype(dtype)
        expected = sparse_encode(X, dictionary, n_nonzero_coefs=2)
        X[7, 0] = huge
        codes = sparse_encode(X, dictionary, n_nonzero_coefs=2, sparse_output=sparse_output)
        codes = codes.toarray() if sparse_output else codes
        others = np.arange(len(X)) != 7
        np.testing.assert_allclose(codes[others], expected[others], rtol=1e-5, atol=1e-6)
        assert np.isfinite(codes).all()

    @cover("bad", CLASSES, [np.inf, -np.inf], base=[RKDL])
    def test_infinity_among_positive_signals(self, kind, bad, X):
        """Where all kernel vectors are positive, infinity must not pass for a signal that is merely far."""
        X = np.abs(X) + 0.5
        model = make(kind).fit(X)
        X[1, 2] = bad
        for method in METHODS:
            with pytest.raises(ValueError, match="infinity"):
                getattr(model, method)(X)

    @every
    def test_a_failed_fit_leaves_the_earlier_one(self, kind, X):
        model = make(kind).fit(X)
        before = model.transform(X)
        with pytest.raises(ValueError, match="NaN"):
            model.fit(np.full((10, 3), np.nan))
        np.testing.assert_array_equal(model.transform(X), before)


@pytest.mark.parametrize("estimator", [DL(3, max_iter=2, random_state=0), RKDL(3, n_kernel_vectors=5, max_iter=2)])
def test_a_fit_that_runs_out_of_memory_leaves_the_earlier_one(estimator):
    """The error comes through as it is, and what was learned before is still there."""
    X = np.random.default_rng(0).standard_normal((300, 8))

    class Source:
        shape, dtype = X.shape, X.dtype
        n_left = 3

        def __getitem__(self, rows):
            Source.n_left -= 1
            if Source.n_left < 0:
                raise MemoryError("Unable to allocate 9 TiB")
            return X[rows]

    model = clone(estimator).fit(X)
    before = {name: np.copy(value) for name, value in vars(model).items() if name.endswith("_")}
    with pytest.raises(MemoryError, match="9 TiB"):
        model.fit(Source())
    assert all(np.array_equal(vars(model)[name], value) for name, value in before.items())
