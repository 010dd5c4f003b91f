"""Every fast path agrees with the plain NumPy of `reference.py`, in float64 and from the same start."""

from __future__ import annotations

import numpy as np
import pytest

import reference
from rkdl import DL, KDL, MORKDL, ORKDL, RKDL, SparseCoder, config_context, sparse_encode, sparse_encode_gram
from rkdl._learning.atom_updates import ATOM_UPDATES

pytestmark = pytest.mark.usefixtures("one_thread")

KERNELS = {
    "rbf": {"kernel": "rbf", "gamma": 0.3},
    "poly": {"kernel": "poly", "gamma": 0.4, "degree": 3, "coef0": 0.5},
}
N_SIGNALS, N_FEATURES, N_VECTORS, N_ATOMS, N_NONZERO = 40, 6, 7, 5, 3
WEIGHT, LINEAR_NONZERO, RATE = 0.7, 2, 2e-3

each_kernel = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
each_pursuit = pytest.mark.parametrize("pursuit", ["ols", "omp"])
each_update = pytest.mark.parametrize("update", ATOM_UPDATES)
# A tolerance, where there is one, as a share of the signals' mean square.
each_share = pytest.mark.parametrize("share", [None, 0.4], ids=["sparsity", "tolerance"])


@pytest.fixture(autouse=True)
def _several_chunks():
    """Chunks so small that every sum here is one over chunks."""
    with config_context(chunk_rows=9):
        yield


@pytest.fixture
def rng():
    return np.random.default_rng(3)


@pytest.fixture
def Y(rng):
    return 0.2 + 0.5 * rng.standard_normal((N_SIGNALS, N_FEATURES))


@pytest.fixture
def D(rng):
    return 0.2 + 0.5 * rng.standard_normal((N_VECTORS, N_FEATURES))


@pytest.fixture
def A0(rng):
    return rng.standard_normal((N_ATOMS, N_VECTORS))


def assert_close(actual, desired):
    """Equal to 1e-8 of the largest number."""
    scale = float(np.abs(desired).max())
    np.testing.assert_allclose(actual, desired, rtol=1e-8, atol=1e-8 * scale)


def kernel_matrix(X, Y, kernel):
    """The reference's K(X, Y) for an estimator's kernel parameters."""
    options = dict(kernel)
    return reference.kernel(X, Y, options.pop("kernel"), **options)


def kernel_squares(Y, kernel):
    """k(y, y) of every signal."""
    return np.array([kernel_matrix([y], [y], kernel)[0, 0] for y in Y])


def tolerance(share, squares):
    """residual_tol as the estimators and the reference take it."""
    return {} if share is None else {"residual_tol": share * float(np.mean(squares))}


def check_stops(Z, limit):
    """With a tolerance some signals stop at it and some at the sparsity."""
    counts = np.count_nonzero(Z, axis=1)
    assert counts.max() == N_NONZERO
    assert (counts.min() < N_NONZERO) == bool(limit)


def check_fit(model, expected, factor=1.0):
    """What every fit shares: errors, atoms of no ambiguity, nothing revived."""
    assert model.n_revived_ == 0
    assert model.n_iter_ == len(expected.errors)
    assert_close(model.errors_, factor * np.array(expected.errors))
    assert_close(model.update_errors_, factor * np.array(expected.update_errors))
    atoms = model.dual_components_ if hasattr(model, "dual_components_") else model.components_
    assert_close(atoms, expected.A)


class TestPursuit:
    """sparse_encode and sparse_encode_gram, atoms of any norm, fewer and more of them than features."""

    TOLERANCES = (
        {},
        {"residual_tol": 0.5},
        {"residual_tol": 0.0},
        {"residual_tol": np.geomspace(0.1, 1.0, 40)},
        {"rtol": 0.6},
        {"rtol": 1e300},
        {"residual_tol": 0.3, "rtol": 0.6},
        {"residual_tol": np.geomspace(0.1, 1.0, 40), "rtol": 0.6},
    )

    @pytest.fixture(params=[4, 11])
    def dictionary(self, request, rng):
        atoms = rng.standard_normal((request.param, N_FEATURES))
        return atoms * np.geomspace(0.01, 100.0, request.param)[:, None]

    @each_pursuit
    @pytest.mark.parametrize("limits", TOLERANCES)
    @pytest.mark.parametrize("n_nonzero_coefs", [1, 3])
    def test_codes(self, Y, dictionary, pursuit, limits, n_nonzero_coefs):
        options = {"n_nonzero_coefs": n_nonzero_coefs, "pursuit": pursuit, **limits}
        squares, rtol = np.sum(Y**2, axis=1), limits.get("rtol", -1.0)
        tolerances = np.maximum(limits.get("residual_tol", -1.0), rtol * abs(rtol) * squares)
        expected = reference.encode(
            Y, dictionary, np.eye(N_FEATURES), squares, n_nonzero_coefs, tolerances, kind=pursuit
        )
        codes = sparse_encode(Y, dictionary, **options)
        np.testing.assert_array_equal(codes != 0, expected != 0)
        # Atom by atom: the norms, and so the coefficients, span four orders of magnitude.
        for j in range(len(dictionary)):
            assert_close(codes[:, j], expected[:, j])

        from_gram = sparse_encode_gram(dictionary @ dictionary.T, Y @ dictionary.T, squared_norms=squares, **options)
        np.testing.assert_array_equal(from_gram != 0, expected != 0)
        for j in range(len(dictionary)):
            assert_close(from_gram[:, j], expected[:, j])

    @each_pursuit
    def test_tolerance_without_a_limit(self, Y, dictionary, pursuit):
        expected = reference.encode(
            Y, dictionary, np.eye(N_FEATURES), np.sum(Y**2, axis=1), len(dictionary), 0.3, kind=pursuit
        )
        codes = sparse_encode(Y, dictionary, residual_tol=0.3, pursuit=pursuit)
        np.testing.assert_array_equal(codes != 0, expected != 0)
        assert_close(codes @ dictionary, expected @ dictionary)

    @each_kernel
    @each_pursuit
    @each_share
    def test_kernel_codes(self, Y, D, A0, kernel, pursuit, share):
        """Kernel pursuit is that of the Gram matrix A M A' and the correlations F A'."""
        F, M = kernel_matrix(Y, D, kernel), kernel_matrix(D, D, kernel)
        squares = kernel_squares(Y, kernel)
        limit = tolerance(share, squares)
        expected = reference.encode(F, A0, M, squares, N_NONZERO, kind=pursuit, **limit)
        check_stops(expected, limit)
        codes = sparse_encode_gram(
            A0 @ M @ A0.T,
            F @ A0.T,
            squared_norms=squares,
            n_nonzero_coefs=N_NONZERO,
            pursuit=pursuit,
            **limit,
        )
        assert_close(codes, expected)


@each_pursuit
class TestMissing:
    """Signals with missing numbers: each its own, shared by several, none and all."""

    @pytest.fixture
    def known(self, rng):
        # More numbers than non-zeros, where the last atom would be any.
        known = rng.permuted(np.tile(np.arange(N_FEATURES) > 1, (N_SIGNALS, 1)), axis=1)
        known[:10], known[10], known[11] = known[0], True, False
        return known

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_codes(self, Y, known, rng, pursuit, dtype):
        dictionary = rng.standard_normal((9, N_FEATURES)) * np.geomspace(0.01, 100.0, 9)[:, None]
        given = np.where(known, Y, np.nan).astype(dtype)
        expected = reference.encode_observed(given, known, dictionary, N_NONZERO, pursuit)
        codes = sparse_encode(given, dictionary, n_nonzero_coefs=N_NONZERO, pursuit=pursuit, missing="ignore")
        coder = SparseCoder(dictionary, n_nonzero_coefs=N_NONZERO, pursuit=pursuit, missing="ignore")
        np.testing.assert_allclose(coder.fit_transform(given), codes, rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose((codes @ dictionary)[known], (expected @ dictionary)[known], atol=2e-3)
        if dtype == np.float64:
            np.testing.assert_array_equal(codes != 0, expected != 0)
            assert_close(codes * np.linalg.norm(dictionary, axis=1), expected * np.linalg.norm(dictionary, axis=1))

    def test_dl(self, Y, known, rng, pursuit):
        given, start = np.where(known, Y, np.nan), rng.standard_normal((N_ATOMS, N_FEATURES))
        options = {"pursuit": pursuit, "atom_update": "gram", "max_iter": 4, "tol": 0.0, "missing": "ignore"}
        model = DL(N_ATOMS, n_nonzero_coefs=N_NONZERO, init=start, **options).fit(given)
        expected = reference.dl_observed(Y, known, start, N_NONZERO, 4, pursuit)
        assert_close(model.errors_, np.array(expected.errors))
        assert (model.update_errors_ >= expected.update_errors).all()
        assert_close(model.components_, expected.A)
        Z = reference.encode_observed(Y, known, expected.A, N_NONZERO, pursuit)
        assert_close(model.transform(given), Z)
        assert_close(model.denoise(given), Z @ expected.A)
        squares = (Y - Z @ expected.A) ** 2 * known
        assert_close(model.reconstruction_error(given), np.sqrt(squares.sum(axis=1)))
        assert_close(model.score(given), 1.0 - squares.sum() / (Y[known] ** 2).sum())


@each_pursuit
@each_update
@each_share
class TestFits:
    """Whole fits from given first atoms and kernel vectors."""

    @staticmethod
    def options(pursuit, update, limit):
        return {
            "n_components": N_ATOMS,
            "n_nonzero_coefs": N_NONZERO,
            "pursuit": pursuit,
            "atom_update": update,
            "max_iter": 3,
            "tol": 0.0,
            "n_jobs": 2,
            **limit,
        }

    def test_dl(self, Y, rng, pursuit, update, share):
        start = rng.standard_normal((N_ATOMS, N_FEATURES))
        squares = np.sum(Y**2, axis=1)
        limit = tolerance(share, squares)
        model = DL(init=start, **self.options(pursuit, update, limit)).fit(Y)
        found = reference.dl(Y, start, N_NONZERO, 3, pursuit, update, **limit)
        check_stops(found.Z, limit)
        check_fit(model, found)
        A = found.A
        Z = reference.encode(Y, A, np.eye(N_FEATURES), squares, N_NONZERO, kind=pursuit, **limit)
        assert_close(model.transform(Y), Z)
        assert_close(model.reconstruction_error(Y), np.linalg.norm(Y - Z @ A, axis=1))

    @each_kernel
    def test_kdl(self, Y, rng, kernel, pursuit, update, share):
        start = rng.standard_normal((N_ATOMS, N_SIGNALS))
        K = kernel_matrix(Y, Y, kernel)
        limit = tolerance(share, np.diag(K))
        options = self.options(pursuit, update, limit)
        model = KDL(init=start, **kernel, **options).fit(Y)
        found = reference.kdl(K, start, N_NONZERO, 3, pursuit, update, n_features=N_FEATURES, **limit)
        check_stops(found.Z, limit)
        check_fit(model, found)
        A = found.A
        assert_close(model.gram_, A @ K @ A.T)

        new = rng.standard_normal((20, N_FEATURES))
        features, squares = kernel_matrix(new, Y, kernel), kernel_squares(new, kernel)
        Z = reference.encode(features, A, K, squares, N_NONZERO, kind=pursuit, **limit)
        assert_close(model.transform(new), Z)

        given = KDL(kernel="precomputed", init=start, **options).fit(K)
        check_fit(given, found, np.sqrt(N_FEATURES / N_SIGNALS))
        if not limit:
            assert_close(given.transform(features), Z)

    @each_kernel
    def test_rkdl(self, Y, D, A0, kernel, pursuit, update, share):
        squares = kernel_squares(Y, kernel)
        limit = tolerance(share, squares)
        model = RKDL(init=A0, kernel_vectors=D, **kernel, **self.options(pursuit, update, limit)).fit(Y)
        found = reference.rkdl(Y, D, A0, N_NONZERO, 3, pursuit, update, **limit, **kernel)
        check_stops(found.Z, limit)
        check_fit(model, found)
        A = found.A
        M = kernel_matrix(D, D, kernel)
        assert_close(model.gram_, A @ M @ A.T)
        assert model.rank_ == N_VECTORS
        np.testing.assert_array_equal(model.kernel_vectors_, D)

        F = kernel_matrix(Y, D, kernel)
        Z = reference.encode(F, A, M, squares, N_NONZERO, kind=pursuit, **limit)
        assert_close(model.transform(Y), Z)
        residuals = squares - 2 * np.sum((Z @ A) * F, axis=1) + np.sum((Z @ A @ M) * (Z @ A), axis=1)
        assert_close(model.reconstruction_error(Y), np.sqrt(residuals))


def first_half(Y, D, A0, kernel, pursuit, update):
    """Atoms and codes as an iteration has them when it comes to the kernel vectors."""
    F, M = kernel_matrix(Y, D, kernel), kernel_matrix(D, D, kernel)
    A = reference.normalise(A0, M)
    Z = reference.encode(F, A, M, kernel_squares(Y, kernel), N_NONZERO, kind=pursuit)
    return reference.SWEEPS[update](Z, F, A, M)


def linear_codes(Y, D, pursuit):
    """Codes X of MORKDL's linear term."""
    return reference.encode(Y, D, np.eye(N_FEATURES), np.sum(Y**2, axis=1), LINEAR_NONZERO, kind=pursuit)


def on_sphere(Y, D):
    """Kernel vectors as long as the signals are in the root mean square, and that length."""
    radius = float(np.sqrt(np.mean(np.sum(Y**2, axis=1))))
    return D * (radius / np.linalg.norm(D, axis=1))[:, None], radius


@pytest.fixture(
    params=[(ORKDL, None), (MORKDL, "shared"), (MORKDL, "free")], ids=["ORKDL", "MORKDL-shared", "MORKDL-free"]
)
def moving(request, Y, D, A0):
    """An estimator that moves its kernel vectors, where they start, and the reference's further arguments."""

    def prepare(kernel, pursuit, update, **options):
        model = request.param[0](
            N_ATOMS,
            init=A0,
            kernel_vectors=D,
            n_nonzero_coefs=N_NONZERO,
            pursuit=pursuit,
            atom_update=update,
            max_iter=1,
            n_jobs=1,
            **kernel,
            **options,
        )
        if request.param[0] is ORKDL:
            return model, D, {}, None
        model.set_params(
            linear_weight=WEIGHT, linear_n_nonzero_coefs=LINEAR_NONZERO, kernel_vector_norm=request.param[1]
        )
        start, radius = on_sphere(Y, D) if request.param[1] == "shared" else (D, None)
        # The estimator's weight is relative to what there is to represent.
        weight = WEIGHT * float(np.sum(kernel_squares(Y, kernel))) / float(np.sum(Y**2))
        return model, start, {"linear_weight": weight, "X": linear_codes(Y, start, pursuit)}, radius

    return prepare


@each_kernel
@each_pursuit
@each_update
@pytest.mark.parametrize("n_inner_iter", [1, 3])
def test_gradient_descent(Y, A0, moving, kernel, pursuit, update, n_inner_iter):
    """The paper's sweep at a fixed rate: kernel vectors, atoms and error after it."""
    model, vectors, linear, radius = moving(
        kernel, pursuit, update, solver="gd", learning_rate=RATE, n_inner_iter=n_inner_iter
    )
    model.fit(Y)
    A, Z = first_half(Y, vectors, A0, kernel, pursuit, update)
    moved = vectors
    for _ in range(n_inner_iter):
        moved = reference.gd_sweep(moved, Y, Z, A, RATE, unit_norm=radius, **kernel, **linear)
    assert np.abs(moved - vectors).max() > 1e-3
    assert model.n_revived_ == 0
    assert_close(model.kernel_vectors_, moved)
    assert_close(model.dual_components_, reference.normalise(A, kernel_matrix(moved, moved, kernel)))
    value = reference.fixed_objective(moved, Y, Z, A, **kernel)
    assert_close(model.update_errors_, [reference.error(value, N_SIGNALS, N_FEATURES)])


@each_kernel
@each_pursuit
def test_variable_projection(Y, A0, moving, kernel, pursuit):
    """L-BFGS ends where the gradient of the reference is all but zero, with the best atoms for the codes."""
    model, vectors, linear, radius = moving(kernel, pursuit, "gram", solver="lbfgs", n_inner_iter=200)
    model.fit(Y)
    _, Z = first_half(Y, vectors, A0, kernel, pursuit, "gram")
    moved, options = model.kernel_vectors_, {**kernel, **linear}
    start, end = (reference.projected_objective(D, Y, Z, **options) for D in (vectors, moved))
    assert end < start
    before, after = (reference.projected_gradient(D, Y, Z, **options) for D in (vectors, moved))
    if radius is not None:
        # Along the sphere that the kernel vectors stay on.
        after = after - moved * np.sum(after * moved, axis=1, keepdims=True) / radius**2
    assert np.abs(after).max() < 0.05 * np.abs(before).max()
    best = reference.best_atoms(moved, Y, Z, **kernel)
    assert_close(model.dual_components_, reference.normalise(best, kernel_matrix(moved, moved, kernel)))
    value = reference.projected_objective(moved, Y, Z, **kernel)
    assert_close(model.update_errors_, [reference.error(value, N_SIGNALS, N_FEATURES)])


@each_kernel
@pytest.mark.parametrize("estimator", [ORKDL, MORKDL])
def test_standing_still_is_rkdl(Y, D, A0, kernel, estimator):
    """With no steps the kernel vectors stay, and the rest is RKDL on them."""
    start = D
    options = {"init": A0, "n_nonzero_coefs": N_NONZERO, "max_iter": 3, "tol": 0.0, **kernel}
    model = estimator(N_ATOMS, kernel_vectors=D, n_inner_iter=0, **options).fit(Y)
    found = reference.rkdl(Y, start, A0, N_NONZERO, 3, update="momentum", **kernel)
    check_fit(model, found)
    assert_close(model.kernel_vectors_, start)
