"""Right on any data, and never silently wrong: the returned model, its error, and a word where it is useless."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine, make_moons, make_swiss_roll
from sklearn.preprocessing import StandardScaler, scale

from helpers import CLASSES, KERNEL, OPTIMIZED, REDUCED, atoms_of, by_class, poor_models
from rkdl import DL, KDL, MORKDL, ORKDL, RKDL, FourierDL
from rkdl.kernels import RBF, Linear, Matern, Polynomial, RationalQuadratic
from test_kernels import Quadratic

# All of it runs in `make test`; `make check` is for the core.
pytestmark = [poor_models, pytest.mark.slow]

each_method, each_kernel_method, each_reduced = by_class(CLASSES), by_class(KERNEL), by_class(REDUCED)


def moons():
    return make_moons(200, noise=0.1, random_state=0)[0]


def heavy_tails():
    return np.random.default_rng(0).standard_t(2.0, (150, 8))


DATA = {
    "moons": moons,
    "swiss roll": lambda: make_swiss_roll(200, random_state=0)[0],
    "line": lambda: np.linspace(-3.0, 3.0, 150)[:, None],
    "wine": lambda: load_wine().data,
    "iris": lambda: load_iris().data,
    "cancer, standardised": lambda: StandardScaler().fit_transform(load_breast_cancer().data)[:150],
    "heavy tails": heavy_tails,
    "counts": lambda: np.random.default_rng(1).poisson(2.0, (150, 12)).astype(float),
    "digits": lambda: load_digits().data[:150],
    "digits, one gross outlier": lambda: with_outlier(load_digits().data[:150]),
    "duplicates": lambda: np.repeat(load_digits().data[:40], 4, axis=0),
    "offset": lambda: load_iris().data + 1000.0,
}

# Those that most methods are tried on; all of them where the code of a method is its own.
FEW = ["moons", "line", "digits, one gross outlier", "offset"]
each_set_and_method = pytest.mark.parametrize(
    ("kind", "name"),
    [*itertools.product([ORKDL], DATA), *itertools.product([DL, FourierDL, KDL, RKDL, MORKDL], FEW)],
)


def with_outlier(X):
    X = X.copy()
    X[7] *= 1000.0
    return X


def recoded(model, X):
    """The error of the signals coded anew."""
    return float(np.sqrt(np.sum(model.reconstruction_error(X).astype(float) ** 2) / X.size))


class TestReturnedModel:
    @each_set_and_method
    def test_last_error_is_that_of_the_model(self, kind, name):
        X = DATA[name]()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = kind(8, n_nonzero_coefs=2, max_iter=10, random_state=0).fit(X)
        assert recoded(model, X) == pytest.approx(model.errors_[-1], rel=1e-6, abs=1e-9)
        assert model.n_iter_ == len(model.errors_) <= len(model.update_errors_)

    @pytest.mark.parametrize(
        ("kernel_vectors", "name"), [*itertools.product(["kmeans"], DATA), *itertools.product(["dictionary"], FEW)]
    )
    def test_optimised_vectors_are_no_worse_than_fixed_ones(self, name, kernel_vectors):
        X = DATA[name]()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fixed, optimised = (
                kind(8, n_kernel_vectors=20, n_nonzero_coefs=2, kernel_vectors=kernel_vectors, random_state=0).fit(X)
                for kind in (RKDL, ORKDL)
            )
        assert optimised.errors_[-1] <= 1.01 * fixed.errors_[-1] + 1e-9

    @pytest.mark.parametrize("name", ["swiss roll", "wine", "heavy tails", "digits, one gross outlier"])
    def test_defaults_are_near_kdl(self, name):
        X = DATA[name]()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            errors = [np.mean([kind(random_state=s).fit(X).errors_[-1] for s in range(2)]) for kind in KERNEL]
        # Fixed vectors of few signals are a matter of luck too: benchmarks/any_data.py has more sets and seeds.
        for kind, error in zip(KERNEL[1:], errors[1:], strict=True):
            assert error <= (1.2 if kind is RKDL else 1.1) * errors[0] + 1e-9, kind.__name__

    @pytest.mark.parametrize(
        ("kind", "name"), [*itertools.product([ORKDL], DATA), *itertools.product([KDL, RKDL], FEW)]
    )
    def test_with_all_atoms_the_objective_never_rises(self, kind, name):
        """Codes are least squares then, and every step of an iteration can only lower the error."""
        X = DATA[name]()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = kind(6, n_nonzero_coefs=6, init="data", atom_update="gram", tol=0.0, max_iter=8, random_state=0)
            model.fit(X)
        floor = 1e-6 / np.sqrt(X.shape[1])
        errors = model.update_errors_
        assert all(later <= earlier * (1 + 1e-6) + floor for earlier, later in itertools.pairwise(errors))

    def test_the_best_model_returns_and_survives_the_process(self, tmp_path):
        """Iterations after it do not end the fit; a checkpoint holds the best model and the last one."""
        X, path, n_later = moons(), tmp_path / "fit.rkdl", 0
        for seed in range(3):
            model = RKDL(30, init="data", random_state=seed, tol=0.0)
            expected = clone(model).fit(X)
            n_later += expected.n_iter_ < len(expected.update_errors_)
            assert expected.errors_[-1] == min(expected.errors_) == pytest.approx(recoded(expected, X))
            for made in (5, 12, 30):
                found = clone(model).set_params(max_iter=made).fit(X, checkpoint=path)
            for name in ("errors_", "update_errors_", "dual_components_", "gram_"):
                np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
            path.unlink()
        assert n_later, "the last iteration of every fit of this test was the best"

    def test_a_start_that_nothing_improves_returns(self, digits):
        first = DL(8, random_state=0, max_iter=40, tol=0.0).fit(digits)
        model = DL(8, init=first.components_, max_iter=1, tol=0.0).fit(digits)
        assert model.errors_[-1] <= first.errors_[-1] * (1 + 1e-9)


class TestMixedMethod:
    def test_norms_are_free_unless_the_signals_share_one(self, digits):
        free = MORKDL(8, n_kernel_vectors=10, random_state=0).fit(digits)
        assert np.ptp(np.linalg.norm(free.kernel_vectors_, axis=1)) > 1.0
        unit = digits / np.linalg.norm(digits, axis=1, keepdims=True)
        for given in (unit, unit.astype(np.float32)):
            shared = MORKDL(8, n_kernel_vectors=10, random_state=0).fit(given)
            np.testing.assert_allclose(np.linalg.norm(shared.kernel_vectors_, axis=1), 1.0, rtol=1e-5)
        free = MORKDL(8, n_kernel_vectors=10, kernel_vector_norm="free", random_state=0).fit(unit)
        assert np.ptp(np.linalg.norm(free.kernel_vectors_, axis=1)) > 1e-3

    def test_nearly_one_norm_is_not_one(self):
        X = load_iris().data + 1000.0
        model = MORKDL(8, n_kernel_vectors=10, random_state=0).fit(X)
        assert np.ptp(np.linalg.norm(model.kernel_vectors_, axis=1)) > 1e-3

    def test_the_linear_weight_knows_no_scale(self, digits):
        options = {"n_kernel_vectors": 10, "max_iter": 5, "tol": 0.0, "random_state": 0}
        small = MORKDL(8, gamma=1e-3, **options).fit(digits)
        large = MORKDL(8, gamma=1e-3 / 2.0**20, **options).fit(digits * 2.0**10)
        np.testing.assert_allclose(large.kernel_vectors_, small.kernel_vectors_ * 2.0**10, rtol=1e-6)
        np.testing.assert_allclose(large.errors_, small.errors_, rtol=1e-6)


class TestWords:
    """What is useless says so, once, at the user's own line."""

    def told(self, model, X):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit(X)
        assert all(one.filename == __file__ for one in caught), [one.filename for one in caught]
        return [str(one.message) for one in caught]

    @each_set_and_method
    def test_ordinary_data_gives_none(self, kind, name):
        # Columns on one scale: a warning tells of others.
        X = scale(DATA[name]()) if name == "wine" else DATA[name]()
        options = {}
        if kind is DL:
            options = {"n_components": min(20, 2 * X.shape[1]), "n_nonzero_coefs": min(4, X.shape[1])}
        assert self.told(kind(max_iter=3, random_state=0, **options), X) == []

    @pytest.mark.parametrize("kind", [RKDL, ORKDL])
    def test_empty_codes(self, kind, digits):
        """Kernel vectors on one sphere, and one gross outlier that sets its radius."""
        (*_, words) = self.told(kind(kernel_vectors="dictionary", random_state=0), with_outlier(digits))
        assert "100% of the signals have a code of zeros" in words
        assert "gamma" in words
        assert "kmeans" in words

    def test_a_gradient_of_zero(self, digits):
        """A kernel so narrow that a signal meets the kernel vector that it is, and no other."""
        with np.errstate(over="raise", divide="raise", invalid="raise"):
            words = self.told(ORKDL(4, kernel_vectors=digits[:8], gamma=1e3, random_state=0), digits)
        assert any("gradient is zero" in word for word in words)

    @each_method
    def test_a_tolerance_above_every_norm(self, kind, digits):
        for limit, told in (({"residual_tol": 1e9}, "residual_tol=1000000000.0"), ({"rtol": 2.0}, "rtol is 1 or more")):
            (words,) = self.told(kind(**limit, random_state=0), digits)
            assert told in words

    @each_kernel_method
    @pytest.mark.parametrize(("gamma", "what"), [(1e-9, "nearly constant"), (10.0, "nearly the identity")])
    def test_gamma_off_by_orders(self, kind, gamma, what, digits):
        words = self.told(kind(gamma=gamma, random_state=0), digits)
        assert what in words[0]
        assert "gamma='median' would be" in words[0]

    def test_a_flat_polynomial(self, digits):
        (words,) = self.told(RKDL(kernel="poly", gamma=1e-9, random_state=0), digits)
        assert "nearly constant" in words
        assert "coef0" in words

    def test_a_function_as_kernel(self, digits):
        words = self.told(RKDL(kernel=lambda X, Y: np.exp(-10.0 * _squares(X, Y)), random_state=0), digits)
        assert "nearly the identity" in words[0]

    @each_reduced
    def test_kernel_vectors_that_depend_on_one_another(self, kind, digits):
        (words,) = self.told(kind(n_components=30, random_state=0), np.repeat(digits[:5], 40, axis=0))
        assert "of 50 kernel vectors only" in words
        assert "are independent in float64" in words

    def test_a_linear_kernel_has_no_more_rank_than_features(self, digits):
        assert self.told(RKDL(kernel="linear", random_state=0), digits[:, :20]) == []

    def test_a_stream_says_so_too(self, digits):
        with pytest.warns(UserWarning, match=r"100% of the signals have a code of zeros: residual_tol=5\.0"):
            RKDL(residual_tol=5.0, random_state=0).partial_fit(digits)

    def test_warnings_about_sizes_point_at_the_users_line(self, digits):
        with pytest.warns(UserWarning, match="n_nonzero_coefs=4 exceeds the number of atoms, 2") as caught:
            RKDL(2, random_state=0).fit(digits).transform(digits)
        assert {one.filename for one in caught} == {__file__}

    @pytest.mark.parametrize("gamma", [1e-9, 1e3])
    def test_fourier_features_of_a_gamma_off_by_orders(self, gamma, digits):
        words = self.told(FourierDL(gamma=gamma, random_state=0), digits)
        assert "gamma='median' would be" in words[0]


def _squared_error(model, X, *, is_radial=True):
    """From the fitted attributes in float64; distances from differences, about one of the kernel vectors."""
    codes, X = np.asarray(model.transform(X), dtype=float), X.astype(float)
    if not hasattr(model, "kernel_vectors_"):
        if isinstance(model, FourierDL):
            phases = X @ model.frequencies_.T.astype(float)
            X = np.concatenate([np.cos(phases), np.sin(phases)], axis=1) / np.sqrt(len(model.frequencies_))
        return np.sum((X - codes @ model.components_.astype(float)) ** 2)
    vectors = model.kernel_vectors_.astype(float)
    X, vectors = X - is_radial * vectors[0], vectors - is_radial * vectors[0]
    weights = codes @ model.dual_components_.astype(float)
    products = np.sum(weights * model.kernel_(X, vectors)), np.sum(weights @ model.kernel_(vectors, vectors) * weights)
    return np.sum(model.kernel_.diagonal(X)) - 2.0 * products[0] + products[1]


def _squares(X, Y):
    return (X**2).sum(1)[:, None] + (Y**2).sum(1) - 2.0 * X @ Y.T


class TestFloat32:
    @pytest.mark.parametrize("kind", [FourierDL, *KERNEL])
    @pytest.mark.filterwarnings("ignore:The kernel is nearly constant")
    def test_a_flat_kernel_is_worked_on_in_float64(self, kind, digits):
        """With gamma 1e-4 float32 found one non-zero of four, and an error a third too large."""
        X = digits / np.linalg.norm(digits, axis=1, keepdims=True)
        single = X.astype(np.float32)
        model, double = (kind(gamma=1e-4, max_iter=10, random_state=0).fit(given) for given in (single, X))
        assert model.errors_[-1] == pytest.approx(double.errors_[-1], rel=1e-3)
        codes = model.transform(single)
        assert codes.dtype == np.float32
        assert model.reconstruction_error(single).dtype == np.float32
        assert np.count_nonzero(codes, axis=1).mean() == pytest.approx(4.0, abs=0.05)
        assert model.computes_in_float64_
        # A model of float64 signals does the same for signals of float32.
        assert np.count_nonzero(double.transform(single), axis=1).mean() == pytest.approx(4.0, abs=0.05)

    @pytest.mark.parametrize(
        "model",
        [DL(), KDL(kernel="linear"), RKDL(kernel="linear"), RKDL(kernel="poly")],
        ids=["DL", "KDL", "RKDL", "RKDL-poly"],
    )
    @pytest.mark.filterwarnings("ignore:The kernel is nearly constant")
    def test_so_are_signals_far_from_the_origin(self, model):
        """What is left of them is a small difference of large squares."""
        single = (np.random.default_rng(0).standard_normal((200, 5)) + 1e4).astype(np.float32)
        found, expected = (clone(model).set_params(random_state=0).fit(X) for X in (single, single.astype(float)))
        assert found.errors_[-1] == pytest.approx(expected.errors_[-1], rel=1e-6)
        assert recoded(found, single) == pytest.approx(found.errors_[-1], rel=1e-3)
        assert found.transform(single).dtype == np.float32

    @pytest.mark.parametrize(
        ("dtype", "offset", "count"),
        [
            *itertools.product([np.float32], [0.0, 1e7, (0.0, 1e6, -1e3, 1e7, 5.0)], [1, 2, 20]),
            (np.float64, 1e7, 20),
        ],
        ids=str,
    )
    @each_method
    @pytest.mark.filterwarnings("ignore:n_nonzero_coefs", "ignore:.*independent")
    def test_the_stored_error_is_that_of_what_is_stored(self, kind, dtype, offset, count):
        """Kernel vectors near 1e6, rounded to float32, were not those whose inner products had been stored."""
        X = (3.0 * np.random.default_rng(0).standard_normal((300, 5)) + offset).astype(dtype)
        sizes = {"n_kernel_vectors": count} if kind in REDUCED else {}
        model = kind(min(count, 10), max_iter=5, random_state=0, **sizes).fit(X)
        assert recoded(model, X) == pytest.approx(model.errors_[-1], rel=1e-3)
        assert np.sqrt(_squared_error(model, X.astype(float)) / X.size) == pytest.approx(model.errors_[-1], rel=1e-3)

    @pytest.mark.parametrize("kernel", [Matern(), RationalQuadratic(), 0.5 * RBF() + Matern(nu=2.5)], ids=str)
    @pytest.mark.parametrize("kind", OPTIMIZED)
    def test_so_it_is_with_other_kernels_and_batches(self, kind, kernel):
        X = (3.0 * np.random.default_rng(0).standard_normal((300, 5)) + 1e7).astype(np.float32)
        model = kind(10, kernel=kernel, n_kernel_vectors=20, max_iter=5, random_state=0).fit(X)
        assert recoded(model, X) == pytest.approx(model.errors_[-1], rel=1e-3)
        stream = kind(10, kernel=kernel, n_kernel_vectors=20, random_state=0)
        for batch in np.array_split(X, 3):
            stream.partial_fit(batch)
        for found in (model, stream):
            assert np.sqrt(_squared_error(found, X.astype(float)) / X.size) == pytest.approx(
                recoded(found, X), rel=1e-3
            )

    @pytest.mark.parametrize("seed", range(20))
    @pytest.mark.parametrize("kind", [FourierDL, KDL, RKDL, MORKDL])
    def test_so_it_is_on_random_data(self, kind, seed, tmp_path):
        """Nearly equal rows, of which nothing is left, and an outlier beside an offset: sums of kernels, and users'."""
        rng = np.random.default_rng(seed)
        near = 10.0 ** rng.uniform(-8, 0) * rng.standard_normal((80, 5))
        X = rng.standard_normal((3, 5))[rng.integers(0, 3, 80)] + near
        X[seed] *= 10.0 ** (seed % 4)
        X = (X + (seed % 2) * 10.0 ** rng.uniform(0, 4)).astype(np.float32)
        kernels = [350.0 * RBF(5.0) + Linear(), Matern(), Polynomial(2, coef0=0.0), Quadratic(), RBF() * Linear()]
        options = {} if kind is FourierDL else {"kernel": kernels[seed % 5]}
        options |= {"n_kernel_vectors": 20} if kind in REDUCED else {}
        model = kind(8, n_nonzero_coefs=3, max_iter=4, random_state=0, **options).fit(X)
        energy = 1.0 if kind is FourierDL else np.mean(model.kernel_.diagonal(X.astype(float)))
        given = X.astype(float) if model.computes_in_float64_ else X
        true = np.sqrt(max(_squared_error(model, given, is_radial=False), 0.0) / X.size)
        for found in (model.errors_[-1], recoded(model, X)):
            assert found == pytest.approx(true, rel=1e-3, abs=1e-3 * np.sqrt(energy / 5))
        # A checkpoint that is complete is resumed to the same error.
        again = [clone(model).fit(X, checkpoint=tmp_path / "fit").errors_ for _ in range(2)]
        np.testing.assert_array_equal(again, [model.errors_] * 2)

    def test_so_it_is_where_the_kernel_is_narrow(self):
        """Distances of signals and kernel vectors are small differences of large squares."""
        X = (1e4 * np.random.default_rng(0).standard_normal((5, 3))).astype(np.float32)[np.arange(60) % 5]
        model = MORKDL(5, gamma=100.0, n_kernel_vectors=5, max_iter=2, random_state=0).fit(X)
        true = np.sqrt(_squared_error(model, X.astype(float)) / X.size)
        # What float64 leaves of squares times gamma, per number of a signal; float32 leaves 1e4 times as much.
        rounding = np.sqrt(100.0 * np.finfo(np.float64).eps * np.max(np.sum(X.astype(float) ** 2, axis=1)) / 3)
        assert (model.errors_[-1], recoded(model, X)) == pytest.approx((true, true), abs=rounding)
        assert rounding < 5e-3

    @each_method
    def test_ordinary_signals_are_not(self, kind, digits):
        model = kind(max_iter=2, random_state=0).fit(digits.astype(np.float32))
        assert not model.computes_in_float64_
        assert atoms_of(model).dtype == np.float32


class TestRevival:
    @each_method
    def test_copies_of_a_signal_revive_one_atom(self, kind, digits):
        """Three signals in many copies, and more atoms than that: every atom is revived once at the most."""
        X = np.repeat(digits[:3], 100, axis=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = kind(10, n_nonzero_coefs=1, init="random", max_iter=6, tol=0.0, random_state=0).fit(X)
        assert model.n_revived_ <= 10
        assert model.errors_[-1] < 1e-3 * np.sqrt(np.mean(X**2))

    @pytest.mark.parametrize("kind", [DL, KDL])
    def test_distinct_signals_revive_distinct_atoms(self, kind, digits):
        X = np.concatenate([np.repeat(digits[:1], 200, axis=0), digits[1:40]])
        model = kind(12, n_nonzero_coefs=1, init="random", max_iter=8, random_state=0).fit(X)
        gram = model.gram_ if kind is KDL else model.components_ @ model.components_.T
        assert np.abs(gram - np.eye(12)).max() < 1 - 1e-6
