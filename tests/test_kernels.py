"""Kernels: values, diagonals and gradients, on every backend and in every dtype, and what estimators do with them."""

import copy
import pickle

import numpy as np
import pytest
from sklearn.base import clone

import rkdl
from rkdl import KDL, MORKDL, ORKDL, RKDL
from rkdl._features.kernels.radial import Radial
from rkdl._features.widths import median_gamma
from rkdl.kernels import RBF, Kernel, Linear, Matern, Polynomial, Product, RationalQuadratic, Scaled, Sum


def squares(X, Y):
    return ((X[:, None] - Y[None]) ** 2).sum(-1)


def matern(X, Y, length_scale, nu):
    a = np.sqrt(2 * nu * squares(X, Y)) / length_scale
    return (1 + a + (a**2 / 3 if nu == 2.5 else 0)) * np.exp(-a)


WIDTHS = np.array([0.5, 0.0, 0.2, 0.3])
# Every kernel, and the plain formula of its values.
GRID = {
    "RBF": (RBF(0.3), lambda X, Y: np.exp(-0.3 * squares(X, Y))),
    "RBF of widths": (RBF(WIDTHS), lambda X, Y: np.exp(-squares(X * np.sqrt(WIDTHS), Y * np.sqrt(WIDTHS)))),
    "Matern 3/2": (Matern(1.5, nu=1.5), lambda X, Y: matern(X, Y, 1.5, 1.5)),
    "Matern 5/2": (Matern(1.5, nu=2.5), lambda X, Y: matern(X, Y, 1.5, 2.5)),
    "RationalQuadratic": (RationalQuadratic(1.2, 0.7), lambda X, Y: (1 + squares(X, Y) / (1.4 * 1.44)) ** -0.7),
    "Polynomial": (Polynomial(3, 0.2, 1.5), lambda X, Y: (0.2 * X @ Y.T + 1.5) ** 3),
    "Polynomial of degree 1": (Polynomial(1, 0.2, 0.5), lambda X, Y: 0.2 * X @ Y.T + 0.5),
    "Linear": (Linear(), lambda X, Y: X @ Y.T),
    "sum": (RBF(0.3) + 0.5 * Linear(), lambda X, Y: np.exp(-0.3 * squares(X, Y)) + 0.5 * X @ Y.T),
    "product": (
        RBF(0.1) * Polynomial(2, 0.5, 1.0),
        lambda X, Y: np.exp(-0.1 * squares(X, Y)) * (0.5 * X @ Y.T + 1) ** 2,
    ),
    "nested": (
        2 * (Matern(2.0) + Linear()) * RBF(0.2) + RationalQuadratic(1.0, 2.0),
        lambda X, Y: (
            2 * (matern(X, Y, 2.0, 1.5) + X @ Y.T) * np.exp(-0.2 * squares(X, Y)) + (1 + squares(X, Y) / 4) ** -2.0
        ),
    ),
}
RADIAL = [name for name, (kernel, _) in GRID.items() if isinstance(kernel, Radial)]
each_kernel = pytest.mark.parametrize("name", GRID)
each_dtype = pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=["float32", "float64"])


class Quadratic(Kernel):
    """Made of operators that arrays and tensors both have."""

    def __call__(self, X, Y):
        return (X @ Y.T) ** 2 + 1.0

    def gradient(self, X, Y, weights):
        return (2 * weights * (X @ Y.T)).T @ X


class QuadraticAtOnce(Quadratic):
    """Gives its gradient with the values, as the library's own kernels do."""

    gradient = Kernel.gradient

    def value_and_gradient(self, X, Y, values=None):
        products = X @ Y.T
        return products**2 + 1.0, lambda weighting: weighting(2 * products).T @ X


class NumPyOnly(Kernel):
    """Knows NumPy alone."""

    def __init__(self, width=2.0):
        self.width = width
        self.seen = []

    def __call__(self, X, Y):
        self.seen.append(X)
        return np.reciprocal(1 + squares(np.asarray(X), np.asarray(Y)) / np.float64(self.width))

    def diagonal(self, X):
        return np.ones(len(X))

    def gradient(self, X, Y, weights):
        factor = 2 / self.width * self(X, Y) ** 2 * weights
        return np.einsum("ti,tim->im", factor, X[:, None] - Y[None])


class NoGradient(Kernel):
    def __call__(self, X, Y):
        return np.minimum(np.abs(X[:, None]), np.abs(Y[None])).sum(-1)


@pytest.fixture(params=["numpy", "torch"])
def give(request):
    """A function from NumPy arrays to those of a backend."""
    if request.param == "numpy":
        return np.asarray
    return pytest.importorskip("torch").as_tensor


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    return rng.standard_normal((30, 4)), rng.standard_normal((7, 4))


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(1)
    centres = rng.standard_normal((6, 12))
    return centres[rng.integers(6, size=240)] + 0.4 * rng.standard_normal((240, 12))


class TestVerbs:
    @each_kernel
    @each_dtype
    def test_values_diagonal_and_gradient(self, name, dtype, give, rows):
        kernel, formula = GRID[name]
        A, B = (part.astype(dtype) for part in rows)
        weights = np.random.default_rng(2).standard_normal((len(A), len(B))).astype(dtype)
        found = (kernel(give(A), give(B)), kernel.diagonal(give(A)), kernel.gradient(*map(give, (A, B, weights))))
        values, diagonal, gradient = map(np.asarray, found)
        assert (values.dtype, diagonal.dtype, gradient.dtype) == (dtype, dtype, np.float64)
        wide, step, moves = B.astype(float), 1e-5, 1e-5 * np.eye(4)
        slopes = [formula(A.astype(float), wide + move) - formula(A.astype(float), wide - move) for move in moves]
        expected = np.stack([(weights * slope).sum(0) / (2 * step) for slope in slopes], axis=1)
        bound = {"rtol": 3e-5, "atol": 1e-6} if dtype == np.float32 else {"rtol": 1e-11, "atol": 1e-13}
        np.testing.assert_allclose(values, formula(A.astype(float), wide), **bound)
        np.testing.assert_allclose(diagonal, formula(A.astype(float), A.astype(float)).diagonal(), **bound)
        tolerance = 2e-5 if dtype == np.float32 else 1e-8
        np.testing.assert_allclose(gradient, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())

    @each_kernel
    def test_gradient_with_known_values_and_among_themselves(self, name, give, rows):
        """The gradient is the same if the values are given, or if both matrices are one object."""
        kernel, weights = GRID[name][0], np.random.default_rng(2).standard_normal((30, 7))
        values, gradient = kernel.value_and_gradient(*rows)
        again, known = kernel.value_and_gradient(*rows, values)
        np.testing.assert_allclose(again, values, rtol=1e-14)
        np.testing.assert_allclose(known(weights.__mul__), gradient(weights.__mul__), rtol=1e-14)
        same, other, own = give(rows[1]), give(rows[1].copy()), give(weights[:7])
        found, expected = (np.asarray(kernel.gradient(same, right, own)) for right in (same, other))
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)

    @pytest.mark.parametrize("name", RADIAL)
    @each_dtype
    def test_offset(self, name, dtype, give, rows):
        """Signals far from zero: distances are taken from their centre."""
        A, B = (part.astype(dtype) for part in rows)
        away = dtype(1000.0)
        kernel = GRID[name][0]._prepared((A + away).astype(float))
        expected = GRID[name][1]((A + away).astype(float), (B + away).astype(float))
        found = np.asarray(kernel(give(A + away), give(B + away)))
        np.testing.assert_allclose(found, expected, rtol=1e-4 if dtype == np.float32 else 1e-10)
        together = (kernel + Linear())._prepared((A + away).astype(float)).parts[0]
        assert together._shift is not None

    @pytest.mark.parametrize("name", RADIAL)
    @each_dtype
    def test_far_and_huge(self, name, dtype, give):
        """Distances whose squares overflow give zero, never NaN; signals that are not finite give NaN."""
        kernel = GRID[name][0]
        large = dtype(np.sqrt(np.finfo(dtype).max) / 100)
        A = np.array([[large, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0]], dtype=dtype)
        with np.errstate(all="ignore"):
            values = np.asarray(kernel(give(A), give(A[::-1].copy())))
            slopes = np.asarray(kernel.gradient(give(A), give(A[::-1].copy()), give(np.ones((2, 2), dtype))))
            lost = np.asarray(kernel(give(np.full((1, 4), np.inf, dtype)), give(A)))
        assert np.isfinite(values).all()
        assert np.isfinite(slopes).all()
        assert np.isnan(lost).all()


class TestObjects:
    @each_kernel
    def test_copies_are_equal(self, name):
        kernel = GRID[name][0]
        for again in (copy.deepcopy(kernel), pickle.loads(pickle.dumps(kernel)), eval(repr(kernel))):
            assert again == kernel
            assert hash(again) == hash(kernel)

    def test_algebra(self):
        a, b, c = RBF(0.1), Linear(), Matern(1.0)
        assert a + b + c == Sum((a, b, c))
        assert a * b * c == Product((a, b, c))
        assert 2 * a == a * 2.0 == Scaled(a, 2.0)
        assert repr((RBF() + 0.5 * b) * b) == "(RBF(gamma='median') + 0.5 * Linear()) * Linear()"
        for bad in ("rbf", None, np.ones(3)):
            with pytest.raises(TypeError):
                a + bad

    def test_bad_parameters(self):
        for make, message in (
            (lambda: RBF(-1.0), "gamma=-1.0: give a positive number, 'median' or 'scale'"),
            (lambda: RBF(np.inf), "gamma=inf"),
            (lambda: RBF(True), "gamma=True"),
            (lambda: Polynomial(0), "degree=0"),
            (lambda: Polynomial(2, 1.0, np.nan), "coef0=nan"),
            (lambda: Matern(1.0, nu=0.5), "nu=0.5"),
            (lambda: Matern(0.0), "length_scale=0.0"),
            (lambda: RationalQuadratic(1.0, 0.0), "alpha=0.0"),
            (lambda: -1.0 * RBF(), "factor=-1.0"),
            (lambda: RBF()(np.ones((2, 2)), np.ones((2, 2))), "found at fit: give a number"),
        ):
            with pytest.raises(ValueError, match=message):
                make()


SMALL = {"n_kernel_vectors": 12, "n_nonzero_coefs": 2, "random_state": 0, "max_iter": 6}
FITTED = {
    "Matern": Matern(),
    "RBF of widths": RBF(np.linspace(0.0, 0.2, 12)),
    "RationalQuadratic": RationalQuadratic("scale"),
    "sum": RBF() + 0.5 * Linear(),
    "product": RBF() * Polynomial(2),
    "Quadratic": Quadratic(),
    "NumPyOnly": NumPyOnly(),
}


class TestFits:
    @pytest.mark.parametrize("name", FITTED)
    @pytest.mark.parametrize("kind", [ORKDL, MORKDL])
    def test_the_error_falls(self, name, kind, give, X):
        # In the first iterations the error may rise above that of the fixed vectors to start with.
        enough = SMALL | {"max_iter": 30}
        kernel, dtype = FITTED[name], np.float32 if name in ("RationalQuadratic", "NumPyOnly") else np.float64
        Y = X.astype(dtype)
        model = kind(4, kernel=kernel, **enough).fit(give(Y))
        fixed = RKDL(4, kernel=kernel, **enough).fit(give(Y))
        # MORKDL minimises its linear term too.
        assert kind is MORKDL or model.errors_[-1] < model.errors_[0]
        assert model.errors_[-1] < (1.0 if kind is ORKDL else 1.05) * fixed.errors_[-1]
        assert model.transform(give(Y)).dtype == give(Y).dtype
        arrays = kind(4, kernel=kernel, **enough).fit(Y)
        np.testing.assert_allclose(model.errors_, arrays.errors_, rtol=1e-2 if dtype == np.float32 else 1e-6)

    def test_a_gradient_with_the_values_is_one(self, give, X):
        found, expected = (ORKDL(4, kernel=own(), **SMALL).fit(give(X)) for own in (QuadraticAtOnce, Quadratic))
        np.testing.assert_allclose(found.errors_, expected.errors_, rtol=1e-9)

    @pytest.mark.parametrize("name", ["rbf", "poly", "linear"])
    def test_names_are_the_objects(self, name, X):
        made = {"rbf": RBF(0.3), "poly": Polynomial(2, 0.3, 1.0), "linear": Linear()}[name]
        by_name, by_object = (ORKDL(4, kernel=own, gamma=0.3, degree=2, **SMALL).fit(X) for own in (name, made))
        np.testing.assert_array_equal(by_object.errors_, by_name.errors_)
        np.testing.assert_array_equal(by_object.transform(X), by_name.transform(X))

    def test_rules_are_resolved(self, X):
        model = RKDL(4, kernel=RBF() + Matern(), **SMALL).fit(X)
        gamma = median_gamma(X)
        assert model.kernel_ == RBF(gamma) + Matern(gamma**-0.5)
        assert model.gamma_ == gamma
        model = RKDL(4, kernel=RBF("scale"), **SMALL).fit(X)
        assert model.gamma_ == model.kernel_.gamma == pytest.approx(1 / (12 * X.var()))
        with pytest.raises(ValueError, match="one rule"):
            RKDL(4, kernel=RBF("scale") + Matern("median"), **SMALL).fit(X)

    def test_without_a_gradient(self, X):
        assert RKDL(4, kernel=NoGradient(), **SMALL).fit(X).n_iter_ > 0
        with pytest.raises(ValueError, match=r"gradient\(X, Y, weights\)"):
            ORKDL(4, kernel=NoGradient() + RBF(), **SMALL).fit(X)

    def test_a_kernel_of_numpy_sees_no_tensor(self, X):
        torch = pytest.importorskip("torch")
        kernel = NumPyOnly()
        RKDL(4, kernel=kernel, **SMALL).fit(torch.as_tensor(X))
        # But for trials, without numbers.
        assert all(isinstance(rows, np.ndarray) or rows.is_meta for rows in kernel.seen)

    def test_bad_kernels(self, X):
        class WrongGradient(Quadratic):
            def gradient(self, X, Y, weights):
                return weights

        with pytest.raises(ValueError, match="fix its gradient"):
            ORKDL(4, kernel=WrongGradient(), **SMALL).fit(X)
        with pytest.raises(ValueError, match="fix its __call__"):
            RKDL(4, kernel=Kernel(), **SMALL).fit(X)

    def test_widths_are_those_of_scaled_signals(self, X):
        """In every method, with pre-images in the signals' own units; of the wrong number they are refused."""
        widths = np.linspace(0.05, 0.2, 12)
        scaled = X * np.sqrt(widths)
        for kind, options in ((KDL, {}), (RKDL, SMALL), (ORKDL, SMALL)):
            common = {"n_components": 4, "random_state": 0, **options}
            model, other = kind(kernel=RBF(widths), **common).fit(X), kind(gamma=1.0, **common).fit(scaled)
            if kind is not ORKDL:
                np.testing.assert_allclose(model.errors_, other.errors_, rtol=0.05)
            # The fixed point is one of many; they are as near the atoms.
            found = model.kernel_(model.atom_preimages(), model.kernel_vectors_)
            assert np.isfinite(found).all()
            assert found.max(axis=1).min() > 0.1
        with pytest.raises(ValueError, match="RBF has 3 numbers for gamma, and the signals 12 features"):
            RKDL(4, kernel=RBF([1.0, 2.0, 3.0]), **SMALL).fit(X)
        for bad in ([1.0, -1.0], [[1.0]], [0.0, 0.0], [np.nan]):
            with pytest.raises(ValueError, match="RBF has gamma="):
                RBF(bad)

    def test_other_methods(self, X):
        assert KDL(4, kernel=Matern(), random_state=0, max_iter=3).fit(X[:100]).n_iter_ == 3
        method = RKDL(4, kernel=RBF() + 0.1 * Linear(), n_kernel_vectors=20, max_iter=3)
        assert np.isfinite(method.fit(X).errors_).all()
        stream = RKDL(4, kernel=Matern(), **SMALL)
        for start in range(0, len(X), 80):
            stream.partial_fit(X[start : start + 80])
        assert stream.transform(X).shape == (len(X), 4)

    @pytest.mark.parametrize("name", FITTED)
    def test_files(self, name, X, tmp_path):
        model = clone(RKDL(4, kernel=FITTED[name], **SMALL)).fit(X)
        model.save(tmp_path / "model.rkdl")
        if name in ("Quadratic", "NumPyOnly"):
            with pytest.raises(ValueError, match="kernel="):
                rkdl.load(tmp_path / "model.rkdl")
            again = rkdl.load(tmp_path / "model.rkdl", kernel=FITTED[name])
            with pytest.raises(ValueError, match=name):
                RKDL(4, kernel=FITTED[name] + RBF(), **SMALL).fit(X).save(tmp_path / "sum.rkdl")
        else:
            again = rkdl.load(tmp_path / "model.rkdl")
            assert (again.kernel, again.kernel_) == (model.kernel, model.kernel_)
        np.testing.assert_array_equal(again.transform(X), model.transform(X))

    def test_checkpoint(self, X, tmp_path):
        path = tmp_path / "fit.ckpt"
        model = ORKDL(4, kernel=RBF() + 0.5 * Linear(), **SMALL)
        model.fit(X, checkpoint=path)
        assert len(model.fit(X, checkpoint=path).update_errors_) == 6
        with pytest.raises(ValueError, match="kernel"):
            ORKDL(4, kernel=RBF() + 0.6 * Linear(), **SMALL).fit(X, checkpoint=path)


def test_public_module():
    found = {type(kernel).__name__ for kernel, _ in GRID.values()} | {"Kernel", "Product", "Scaled"}
    assert set(rkdl.kernels.__all__) == found
