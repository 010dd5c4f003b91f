"""Tensors in, tensors out: everything that runs on NumPy runs on torch and agrees; on a GPU too, where there is one."""

from __future__ import annotations

import copy
import importlib
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

from helpers import COMMON, Estimators
from rkdl import (
    DL,
    KDL,
    MORKDL,
    ORKDL,
    RKDL,
    FourierDL,
    KDLClassifier,
    KDLOutlierDetector,
    KDLRegressor,
    config_context,
    load,
    sparse_encode,
    sparse_encode_gram,
)
from rkdl._execution.blas import one_blas_thread
from rkdl._features.kernels import RBF, Linear, Polynomial

torch = pytest.importorskip("torch", reason="torch is not installed: pip install 'rkdl[torch]'")


from rkdl._applications.anomaly_scores import Ensemble  # noqa: E402
from rkdl._backends.cpu import sweeps as cpu_sweeps  # noqa: E402
from rkdl._backends.devices import BLOCK_ROWS  # noqa: E402
from rkdl._backends.torch import pursuit as tensor_pursuit  # noqa: E402
from rkdl._backends.torch import sweeps as tensor_sweeps  # noqa: E402
from rkdl._backends.torch.backend import BACKEND as TORCH  # noqa: E402

HAS_GPU = torch.cuda.is_available()
on_gpu = pytest.mark.skipif(not HAS_GPU, reason="there is no CUDA GPU here")

REDUCED = {**COMMON, "n_kernel_vectors": 12}
ESTIMATORS = Estimators(
    *(
        "DL-lasso",
        "DL-positive",
        "DL",
        "DL-aksvd-omp",
        "DL-tolerance",
        "FourierDL",
        "KDL",
        "KDL-aksvd",
        "RKDL-poly",
        "RKDL-kmeans-aksvd",
    ),
    *("RKDL-rpcholesky", "RKDL-linear", "RKDL-callable", "ORKDL", "ORKDL-gd", "MORKDL-poly", "MORKDL-gd-tolerance"),
)
STREAMS = {name: ESTIMATORS[name] for name in ("DL", "FourierDL", "RKDL-poly", "ORKDL", "MORKDL-gd-tolerance")}
KERNELS = [RBF(0.2), Polynomial(3, 0.2, 1.0), Linear()]
TOLERANCE = {np.float64: 1e-10, np.float32: 1e-5}

each_estimator = ESTIMATORS.each()
each_stream = pytest.mark.parametrize("name", STREAMS)
each_dtype = pytest.mark.parametrize("dtype", [np.float64, np.float32])
each_pursuit = pytest.mark.parametrize("pursuit", ["ols", "omp"])


class Backend:
    """Arrays in one library and on one device, and back."""

    def __init__(self, name):
        self.name = name
        self.device = {"numpy": None, "torch-cpu": "cpu", "torch-cuda": "cuda"}[name]

    def give(self, array):
        return array if self.device is None else torch.tensor(array, device=self.device)

    def back(self, found):
        if self.device is None:
            return found
        assert isinstance(found, torch.Tensor)
        assert found.device.type == self.device
        return found.cpu().numpy() if found.layout is torch.strided else found.to_dense().cpu().numpy()


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Two threads on matrices this small only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with one_blas_thread():
        yield
    torch.set_num_threads(before)


@pytest.fixture(params=["numpy", "torch-cpu", pytest.param("torch-cuda", marks=on_gpu)])
def backend(request):
    return Backend(request.param)


@pytest.fixture(params=["torch-cpu", pytest.param("torch-cuda", marks=on_gpu)])
def tensors(request):
    """The backends that are compared with NumPy."""
    return Backend(request.param)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=on_gpu)])
def device(request):
    return request.param


@pytest.fixture(params=["light", "heavy"])
def work(request, monkeypatch):
    """Small matrices in NumPy, as in problems of this size, or on the device, as in large ones."""
    if request.param == "heavy":
        monkeypatch.setattr("rkdl._execution.device.HOST_WORK", 0)
    return request.param


@pytest.fixture(scope="module")
def X():
    """Signals, in several chunks."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((700, 12)) @ rng.standard_normal((12, 12)) / 4.0
    with config_context(chunk_rows=256):
        yield X


@pytest.fixture(scope="module")
def fitted(X):
    """Every estimator, fitted in NumPy, in both dtypes."""
    found = {}

    def fit(name, dtype):
        if (name, dtype) not in found:
            found[name, dtype] = clone(ESTIMATORS[name]).fit(X.astype(dtype))
        return found[name, dtype]

    return fit


def close(found, expected, dtype):
    slack = TOLERANCE[dtype]
    np.testing.assert_allclose(found, expected, rtol=slack, atol=slack * max(1.0, float(np.abs(expected).max())))


def mostly_close(found, expected, dtype):
    """All rows agree, but for a signal in a hundred at most whose two best atoms score the same to rounding."""
    slack = 10.0 * TOLERANCE[dtype] * max(1.0, float(np.abs(expected).max()))
    differing = (np.abs(found - expected) > slack).any(axis=1).mean()
    assert differing <= (0.01 if dtype is np.float32 else 0.0)


class TestEstimators:
    @each_estimator
    @each_dtype
    def test_fit_agrees(self, tensors, work, name, dtype, X, fitted):
        signals = X.astype(dtype)
        model = clone(ESTIMATORS[name]).fit(tensors.give(signals))
        expected = fitted(name, dtype)
        close(model.errors_, expected.errors_, dtype)
        assert model.n_revived_ == expected.n_revived_
        for attribute in ("components_", "dual_components_", "kernel_vectors_", "gram_"):
            if hasattr(expected, attribute):
                assert isinstance(getattr(model, attribute), np.ndarray)
                assert getattr(model, attribute).dtype == getattr(expected, attribute).dtype
        codes = tensors.back(model.transform(tensors.give(signals)))
        assert codes.dtype == dtype
        mostly_close(codes, expected.transform(signals), dtype)

    @each_estimator
    @each_dtype
    def test_coding_agrees(self, tensors, name, dtype, X, fitted):
        signals, model = X.astype(dtype)[:300], fitted(name, dtype)
        given = tensors.give(signals)
        mostly_close(tensors.back(model.transform(given)), model.transform(signals), dtype)
        close(tensors.back(model.reconstruction_error(given)), model.reconstruction_error(signals), dtype)
        # Pre-images, from which it is computed, are found to the root of a number's precision.
        assert model.score(given) == pytest.approx(model.score(signals), abs=TOLERANCE[dtype] ** 0.5)
        thin = clone(model).set_params(sparse_output=True)
        vars(thin).update({key: value for key, value in vars(model).items() if key.endswith("_")})
        found = thin.transform(given)
        assert found.layout is torch.sparse_csr
        mostly_close(tensors.back(found), model.transform(signals), dtype)

    def test_fit_transform_and_inverse(self, backend, X):
        model = DL(**COMMON)
        codes = model.fit_transform(backend.give(X))
        again = backend.back(model.inverse_transform(codes))
        np.testing.assert_allclose(again, backend.back(codes) @ model.components_, rtol=1e-10)

    def test_precomputed_kernel(self, tensors, X):
        kernel = np.exp(-0.1 * np.sum((X[:200, None] - X[None, :200]) ** 2, axis=2))
        model = KDL(kernel="precomputed", **COMMON)
        expected = clone(model).fit(kernel)
        found = clone(model).fit(tensors.give(kernel))
        close(found.errors_, expected.errors_, np.float64)
        close(tensors.back(found.transform(tensors.give(kernel))), expected.transform(kernel), np.float64)
        close(
            tensors.back(found.reconstruction_error(tensors.give(kernel))),
            expected.reconstruction_error(kernel),
            np.float64,
        )

    @each_stream
    def test_partial_fit(self, backend, work, name, X):
        expected, found = clone(STREAMS[name]), clone(STREAMS[name])
        for start in (0, 250, 500):
            expected.partial_fit(X[start : start + 250])
            found.partial_fit(backend.give(X[start : start + 250]))
            # A stream outlives its batches, and goes on in another library.
            found = pickle.loads(pickle.dumps(found))
        found.partial_fit(X[:300])
        expected.partial_fit(X[:300])
        close(found.errors_, expected.errors_, np.float64)

    def test_revived_atoms(self, backend, work):
        X = np.repeat(np.eye(6), 20, axis=0) + 1e-3 * np.random.default_rng(0).standard_normal((120, 6))
        start = np.vstack([np.eye(6)[:2], -np.eye(6)[:1], np.eye(6)[:1], np.eye(6)[2:3]])
        model = DL(5, n_nonzero_coefs=1, init=start, max_iter=4, tol=0.0)
        expected, found = clone(model).fit(X), clone(model).fit(backend.give(X))
        assert expected.n_revived_ > 0
        assert found.n_revived_ == expected.n_revived_
        close(found.errors_, expected.errors_, np.float64)


# Of an RBF kernel with and without a decoder, of others with one, of signals without one.
BACK = {
    "DL": (DL(**COMMON), False),
    "FourierDL": (FourierDL(n_fourier_features=32, **COMMON), True),
    "KDL-fixed-point": (KDL(**COMMON), False),
    "KDL-decoder": (KDL(**COMMON), True),
    "RKDL-poly": (RKDL(kernel="poly", **REDUCED), True),
    "RKDL-linear": (RKDL(kernel="linear", **REDUCED), False),
    "ORKDL-fixed-point": (ORKDL(**REDUCED), False),
    "MORKDL-decoder": (MORKDL(**REDUCED), True),
}


@pytest.mark.slow
class TestBack:
    """From codes to signals."""

    def of_numpy(self, name, X):
        model, has_decoder = BACK[name]
        model = clone(model).fit(X)
        return model.fit_decoder(X) if has_decoder else model

    def tolerance(self, name, dtype):
        # The fixed point is found to the root of a number's precision.
        return (1e-2 if dtype == np.float32 else 1e-6) if "fixed" in name else 100 * TOLERANCE[dtype]

    @each_dtype
    @pytest.mark.parametrize("name", BACK)
    def test_agrees(self, name, tensors, dtype, X):
        rows = X.astype(dtype)
        model = self.of_numpy(name, rows)
        slack = self.tolerance(name, dtype) * np.abs(X).max()
        codes = model.transform(rows)
        expected = model.inverse_transform(codes)
        found = tensors.back(model.inverse_transform(tensors.give(codes)))
        assert found.dtype == dtype
        np.testing.assert_allclose(found, expected, atol=slack)
        compressed = tensors.give(codes).to_sparse_csr()
        np.testing.assert_allclose(tensors.back(model.inverse_transform(compressed)), expected, atol=slack)
        cleaned = tensors.back(model.denoise(tensors.give(rows)))
        assert cleaned.dtype == dtype
        # A signal whose two best atoms tie to rounding may have chosen another.
        apart = np.abs(cleaned - model.denoise(rows)).max(axis=1) > slack
        assert apart.mean() < 0.02

    @pytest.mark.parametrize("name", [name for name, (_, has_decoder) in BACK.items() if has_decoder])
    def test_learned_where_the_signals_are(self, name, tensors, X):
        expected = self.of_numpy(name, X + 3.0)
        model = clone(BACK[name][0]).set_params(fit_inverse_transform=True).fit(X + 3.0)
        model.fit_decoder(tensors.give(X + 3.0))
        assert isinstance(model.decoder_, np.ndarray)
        np.testing.assert_allclose(model.decoder_, expected.decoder_, atol=1e-6)
        np.testing.assert_allclose(model.decoder_intercept_, expected.decoder_intercept_, atol=1e-6)
        whole = clone(BACK[name][0]).set_params(fit_inverse_transform=True).fit(tensors.give(X + 3.0))
        np.testing.assert_allclose(whole.decoder_, expected.decoder_, atol=1e-4)

    @pytest.mark.parametrize("name", BACK)
    def test_arrays_go_through_a_device(self, name, device, X):
        model = self.of_numpy(name, X)
        expected, codes = model.denoise(X, noise=None), model.transform(X)
        signals = model.inverse_transform(codes)
        model.set_params(device=device)
        slack = self.tolerance(name, np.float64) * np.abs(X).max()
        for found, known in (
            (model.inverse_transform(codes), signals),
            (model.inverse_transform(sparse.csr_array(codes)), signals),
            (model.denoise(X), expected),
        ):
            assert isinstance(found, np.ndarray)
            np.testing.assert_allclose(found, known, atol=slack)

    @pytest.mark.parametrize("name", ["DL", "ORKDL-fixed-point"])
    def test_noise_that_is_known(self, name, tensors, X):
        model = self.of_numpy(name, X)
        found = tensors.back(model.denoise(tensors.give(X), noise=0.2))
        np.testing.assert_allclose(found, model.denoise(X, noise=0.2), atol=1e-5)


class TestFunctions:
    @each_pursuit
    @each_dtype
    @pytest.mark.parametrize("options", [{"n_nonzero_coefs": 4}, {"residual_tol": 0.4}, {}], ids=str)
    def test_sparse_encode(self, tensors, pursuit, dtype, options, X):
        rng = np.random.default_rng(1)
        signals, atoms = X.astype(dtype), (rng.standard_normal((30, 12)) * rng.uniform(0.1, 9.0, (30, 1))).astype(dtype)
        expected = sparse_encode(signals, atoms, pursuit=pursuit, **options)
        given = tensors.give(signals), tensors.give(atoms)
        found = sparse_encode(*given, pursuit=pursuit, **options)
        # An atom a tenth as long has a coefficient ten times as large.
        norms = np.linalg.norm(atoms, axis=1)
        mostly_close(tensors.back(found) * norms, expected * norms, dtype)
        thin = sparse_encode(*given, pursuit=pursuit, sparse_output=True, **options)
        np.testing.assert_array_equal(tensors.back(thin), tensors.back(found))
        assert thin.values().numel() == np.count_nonzero(tensors.back(found))

    @each_dtype
    @pytest.mark.parametrize("sparse_output", [False, True])
    def test_cpu_tensors_have_the_codes_of_arrays(self, dtype, sparse_output):
        """Bitwise, in memory of their own, and apart from any graph of autograd."""
        rng = np.random.default_rng(1)
        signals, atoms = (rng.standard_normal((count, 70)).astype(dtype) for count in (900, 30))
        options = {"n_nonzero_coefs": 4, "sparse_output": sparse_output}
        expected = sparse_encode(signals, atoms, **options)
        before = signals.copy()
        found = sparse_encode(torch.from_numpy(signals).requires_grad_(), torch.from_numpy(atoms), **options)
        assert not found.requires_grad
        if sparse_output:
            np.testing.assert_array_equal(found.crow_indices().numpy(), expected.indptr)
            np.testing.assert_array_equal(found.col_indices().numpy(), expected.indices)
            np.testing.assert_array_equal(found.values().numpy(), expected.data)
        else:
            np.testing.assert_array_equal(found.numpy(), expected)
            found.zero_()
        np.testing.assert_array_equal(signals, before)

    @each_dtype
    def test_sparse_encode_gram(self, tensors, dtype, X):
        rng = np.random.default_rng(1)
        atoms = rng.standard_normal((30, 12))
        gram, correlations = atoms @ atoms.T, (X @ atoms.T).astype(dtype)
        norms = np.sum(X**2, axis=1).astype(dtype)
        for options in ({"n_nonzero_coefs": 3}, {"residual_tol": 0.4, "squared_norms": norms}):
            expected = sparse_encode_gram(gram, correlations, **options)
            on_device = {
                key: tensors.give(value) if key == "squared_norms" else value for key, value in options.items()
            }
            found = sparse_encode_gram(tensors.give(gram), tensors.give(correlations), **on_device)
            mostly_close(tensors.back(found), expected, dtype)

    @pytest.mark.parametrize("scale", [1e60, 1e-60])
    def test_squares_out_of_range(self, backend, scale, X):
        atoms = np.random.default_rng(1).standard_normal((20, 12))
        expected = sparse_encode(X[:50], atoms, n_nonzero_coefs=3)
        found = sparse_encode(backend.give(X[:50] * scale), atoms, n_nonzero_coefs=3)
        np.testing.assert_allclose(backend.back(found) / scale, expected, rtol=1e-9, atol=1e-9)
        model = DL(**COMMON).fit(backend.give(X * scale))
        errors = backend.back(model.reconstruction_error(backend.give(X * scale)))
        np.testing.assert_allclose(errors / scale, DL(**COMMON).fit(X).reconstruction_error(X), rtol=1e-8)

    def test_atoms_alone_that_are_a_tensor(self, X):
        atoms = np.eye(12)
        found = sparse_encode(X, torch.from_numpy(atoms), n_nonzero_coefs=2)
        np.testing.assert_array_equal(found, sparse_encode(X, atoms, n_nonzero_coefs=2))


class TestPursuits:
    """Each way to code a chunk of tensors against the compiled one, which the oracle's tests are about."""

    def problem(self, n_atoms, n_features, dtype, device, count=400, has_ties=True):
        generator = torch.Generator().manual_seed(0)
        atoms = torch.randn((n_atoms, n_features), dtype=dtype, generator=generator)
        atoms /= atoms.norm(dim=1, keepdim=True)
        if n_atoms > 3 and has_ties:
            # A tie goes to the first, and an atom of norm zero is never used.
            atoms[3], atoms[1] = atoms[2], 0.0
        signals = torch.randn((count, n_features), dtype=dtype, generator=generator)
        signals[0] = 0.0
        parts = signals @ atoms.T, atoms @ atoms.T, signals.square().sum(1)
        return parts, tuple(part.to(device) for part in parts)

    def check(self, work, n_atoms, n_nonzero, dtype, device, pursuit, tolerance, n_features=64, has_ties=True):
        here, there = self.problem(n_atoms, n_features, dtype, device, has_ties=has_ties)
        codes, residuals = tensor_pursuit.pursue(*here, n_nonzero, tolerance, pursuit)
        expected = codes.indices, codes.values, codes.counts, residuals
        found = work(tensor_pursuit.Problem(*there, n_nonzero, tolerance, pursuit))
        counts, indices, values, residuals = (part.cpu() for part in found)
        same = (indices == expected[0]).all(dim=1)
        # Between atoms that score the same to three digits, rows in half precision may choose the other one.
        is_half = dtype == torch.float32 and n_nonzero > 10
        assert float(same.double().mean()) >= (0.97 if is_half else 0.99)
        torch.testing.assert_close(residuals.mean(), expected[3].mean(), rtol=1e-3, atol=1e-3)
        slack = 1e-10 if dtype == torch.float64 else 1e-4
        torch.testing.assert_close(values[same], expected[1][same], rtol=slack, atol=slack)
        torch.testing.assert_close(residuals[same], expected[3][same], rtol=slack, atol=slack)
        assert torch.equal(counts[same], expected[2][same])
        assert int(counts[0]) == 0

    @on_gpu
    @each_pursuit
    @pytest.mark.parametrize("tolerance", [-1.0, 30.0])
    @pytest.mark.parametrize(
        ("kernel", "n_atoms", "n_nonzero", "dtype"),
        [
            ("triton_kernels", 1, 1, torch.float32),
            ("triton_kernels", 20, 4, torch.float64),
            ("triton_kernels", 256, 6, torch.float32),
            ("triton_kernels", 600, 5, torch.float32),
            ("triton_kernels", 4096, 8, torch.float32),
            ("triton_streamed_pursuit", 20, 12, torch.float32),
            ("triton_streamed_pursuit", 1024, 32, torch.float32),
            ("triton_streamed_pursuit", 1207, 30, torch.float64),
            ("triton_streamed_pursuit", 300, 128, torch.float64),
            ("triton_streamed_pursuit", 20_000, 20, torch.float64),
        ],
    )
    def test_triton(self, kernel, n_atoms, n_nonzero, dtype, tolerance, pursuit):
        work = importlib.import_module(f"rkdl._backends.torch.{kernel}").pursue
        # With so many non-zeros signals of few features would leave rounding alone; among so many atoms the tie is
        # often chosen, and rounding decides which of the two is.
        is_large = n_nonzero == 128 or n_atoms == 20_000
        n_features = 512 if is_large else 256 if n_nonzero > 10 else 64
        options = {"n_features": n_features, "has_ties": not is_large}
        self.check(work, n_atoms, n_nonzero, dtype, "cuda", pursuit, tolerance, **options)

    @on_gpu
    def test_beyond_the_kernels(self):
        """Codes of more non-zeros than a kernel holds are completed on the CPU."""
        from rkdl._backends.torch.triton_streamed_pursuit import pursue

        self.check(pursue, 300, 200, torch.float64, "cuda", "ols", 100.0, n_features=512, has_ties=False)

    @on_gpu
    def test_streamed_passes_over_dependent_atoms(self):
        """A dictionary with many copies of few atoms: no copy is chosen, and the code is as long as their number."""
        from rkdl._backends.torch.triton_streamed_pursuit import pursue

        atoms = torch.eye(20, dtype=torch.float64, device="cuda").repeat(30, 1)
        signals = torch.rand((50, 20), dtype=torch.float64, device="cuda") + 0.5
        norms = signals.square().sum(1)
        problem = tensor_pursuit.Problem(signals @ atoms.T, atoms @ atoms.T, norms, 40, -1.0, "ols")
        counts, indices, values, residuals = pursue(problem)
        assert counts.tolist() == [20] * 50
        assert torch.equal(indices[:, :20], torch.arange(20, device="cuda").expand(50, 20).int())
        torch.testing.assert_close(values[:, :20], signals)
        assert float(residuals.max()) < 1e-12

    @on_gpu
    @pytest.mark.parametrize(("n_atoms", "n_nonzero"), [(4096, 16), (1024, 9), (256, 15)])
    def test_more_than_registers_hold(self, n_atoms, n_nonzero):
        from rkdl._backends.torch.triton_kernels import fits

        def work(problem):
            assert not fits(problem)
            codes, residuals = tensor_pursuit.pursue(*problem)
            return *codes, residuals

        self.check(work, n_atoms, n_nonzero, torch.float32, "cuda", "ols", -1.0)


class TestEngine:
    @pytest.mark.parametrize("kind", ["general", "unused", "short"])
    @pytest.mark.parametrize("has_metric", [False, True])
    def test_sweep(self, device, kind, has_metric):
        rng = np.random.default_rng(0)
        codes = rng.standard_normal((50, 7)) * (rng.random((50, 7)) < 0.5)
        rows = rng.standard_normal((7, 9))
        metric = rng.standard_normal((9, 9)) @ rng.standard_normal((9, 9)).T if has_metric else None
        metric = None if metric is None else metric @ metric.T
        if kind == "unused":
            codes[:, 2] = 0.0
        products = codes.T @ codes
        targets = rng.standard_normal((7, 9))
        if kind == "short":
            # What the others leave of atom 0 is nothing.
            targets[0] = products[0, 1:] @ rows[1:]
        ours = torch.tensor(rows, device=device)
        given = (torch.tensor(part, device=device) for part in (products, targets))
        placed = None if metric is None else torch.tensor(metric, device=device)
        factors = tensor_sweeps.gram_sweep(*given, ours, placed).cpu().numpy()
        np.testing.assert_allclose(factors, cpu_sweeps.gram_sweep(products, targets, rows, metric), rtol=1e-10)
        np.testing.assert_allclose(ours.cpu().numpy(), rows, rtol=1e-9, atol=1e-12)

    def test_many_rows_keep_their_digits(self, device):
        generator = torch.Generator().manual_seed(0)
        left, right = (torch.rand((5 * BLOCK_ROWS + 17, 3), generator=generator).to(device) for _ in range(2))
        exact = left.double().T @ right.double()
        torch.testing.assert_close(TORCH.weighted_sum(left, right), exact, rtol=1e-6, atol=0.0)

    @each_dtype
    def test_offset_and_equal_signals(self, tensors, dtype):
        """Signals far from zero, and a gamma so large that K = I."""
        rng = np.random.default_rng(0)
        X = (rng.standard_normal((200, 5)) + 1e4).astype(dtype)
        for gamma in (0.1, 1e6):
            model = RKDL(4, n_nonzero_coefs=2, n_kernel_vectors=8, kernel_vectors="random", gamma=gamma, random_state=0)
            model.set_params(max_iter=2)
            expected, found = clone(model).fit(X), clone(model).fit(tensors.give(X))
            # Of atoms that represent equally well, either may be the last.
            np.testing.assert_allclose(found.errors_[-1], expected.errors_[-1], rtol=1e-4)


@pytest.mark.slow
class TestDevices:
    @each_estimator
    def test_arrays_go_through_a_device(self, name, device, X):
        """NumPy in, NumPy out, and the bits of the tensors."""
        model = clone(ESTIMATORS[name]).set_params(device=device)
        tensors = clone(ESTIMATORS[name]).fit(torch.tensor(X, device=device))
        found = clone(model).fit(X)
        np.testing.assert_array_equal(found.errors_, tensors.errors_)
        codes = found.transform(X)
        assert type(codes) is np.ndarray
        np.testing.assert_array_equal(codes, tensors.transform(torch.tensor(X, device=device)).cpu().numpy())
        assert type(found.reconstruction_error(X)) is np.ndarray
        thin = found.set_params(sparse_output=True).transform(X)
        np.testing.assert_array_equal(thin.toarray(), codes)

    def test_other_sources(self, device, X, tmp_path):
        model = RKDL(**REDUCED, device=device)
        expected = clone(model).fit(X).errors_
        stored = np.memmap(tmp_path / "signals.dat", dtype=X.dtype, mode="w+", shape=X.shape)
        stored[:] = X
        for given in (stored, np.asfortranarray(X), sparse.csr_array(X)):
            np.testing.assert_array_equal(clone(model).fit(given).errors_, expected)

    def test_tensor_sent_to_a_device(self, device, X):
        model = RKDL(**REDUCED, device=device).fit(torch.from_numpy(X))
        codes = model.transform(torch.from_numpy(X))
        assert codes.device.type == "cpu"
        assert sparse_encode(torch.from_numpy(X), np.eye(12), n_nonzero_coefs=1, device=device).device.type == "cpu"

    @pytest.mark.skipif(HAS_GPU, reason="there is a GPU here")
    def test_no_gpu(self, X):
        for work in (
            lambda: RKDL(device="cuda").fit(X),
            lambda: RKDL(device="cuda").partial_fit(X),
            lambda: sparse_encode(X, np.eye(12), device="cuda"),
            lambda: sparse_encode_gram(np.eye(12), X, device="cuda:1"),
        ):
            with pytest.raises(ValueError, match=r"needs a CUDA GPU.*nvidia-smi.*device=None"):
                work()

    @pytest.mark.parametrize(
        ("name", "told"),
        [("gpu", "is not a device"), (7.5, "is not a device"), ("meta", "is not supported"), ("mps", "no float64")],
    )
    def test_unknown_device(self, name, told, X):
        with pytest.raises(ValueError, match=told):
            RKDL(device=name).fit(X)

    def test_dask_has_its_own_place(self, X):
        array = pytest.importorskip("dask.array").from_array(X)
        with pytest.raises(ValueError, match="Dask array"):
            RKDL(device="cpu").fit(array)

    @pytest.mark.slow
    def test_torch_is_not_imported(self):
        code = (
            "import sys, numpy as np, rkdl\n"
            "X = np.random.default_rng(0).standard_normal((60, 5))\n"
            "rkdl.RKDL(4, n_kernel_vectors=5, max_iter=1).fit(X).transform(X)\n"
            "rkdl.sparse_encode(X, np.eye(5), n_nonzero_coefs=2)\n"
            "assert 'torch' not in sys.modules\n"
            "sys.modules['torch'] = None\n"
            "try:\n    rkdl.RKDL(device='cuda').fit(X)\n"
            "except ModuleNotFoundError as error:\n    print(error)\n"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert "pip install 'rkdl[torch]'" in done.stdout

    @each_estimator
    def test_two_runs_are_bitwise_identical(self, name, device, work, X):
        given = torch.tensor(X, device=device, dtype=torch.float32)
        first, second = (clone(ESTIMATORS[name]).fit(given) for _ in range(2))
        np.testing.assert_array_equal(first.errors_, second.errors_)
        assert torch.equal(first.transform(given), second.transform(given))

    def test_input_stays_as_it_was(self, device, X):
        given = torch.tensor(X, device=device)
        before = given.clone()
        for model in ESTIMATORS.values():
            clone(model).fit(given).transform(given)
        assert torch.equal(given, before)

    def test_tf32_is_given_back(self, device, X):
        before = torch.get_float32_matmul_precision()
        # Signals for kernel vectors: ten bits decide which cluster is nearest.
        model = RKDL(**REDUCED).set_params(kernel_vectors="random")
        with config_context(tf32=True):
            found = clone(model).fit(torch.tensor(X, dtype=torch.float32, device=device))
        assert torch.get_float32_matmul_precision() == before
        np.testing.assert_allclose(found.errors_[-1], clone(model).fit(X).errors_[-1], rtol=1e-2)


@pytest.mark.slow
class TestOutOfMemory:
    @pytest.fixture
    def few_rows_fit(self, monkeypatch):
        """No more signals are coded at a time than this."""

        def limit(rows):
            work = tensor_pursuit.pursue

            def pursue(correlations, *rest, **options):
                if len(correlations) > rows:
                    raise torch.OutOfMemoryError("CUDA out of memory")
                return work(correlations, *rest, **options)

            monkeypatch.setattr(tensor_pursuit, "pursue", pursue)
            monkeypatch.setattr(TORCH, "pursue", pursue)

        return limit

    @pytest.mark.parametrize("name", ["DL", "FourierDL", "RKDL-kmeans-aksvd", "ORKDL", "MORKDL-gd-tolerance"])
    def test_chunks_shrink(self, name, device, work, X, few_rows_fit):
        given = torch.tensor(X, device=device)
        expected = clone(ESTIMATORS[name]).fit(given)
        codes = expected.transform(given)
        few_rows_fit(90)
        with pytest.warns(UserWarning, match="ran out of memory on .* signals: they are processed in"):
            found = clone(ESTIMATORS[name]).fit(given)
        np.testing.assert_allclose(found.errors_, expected.errors_, rtol=1e-10)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            # Without what was prepared for it already.
            expected = pickle.loads(pickle.dumps(expected))
            torch.testing.assert_close(expected.transform(given), codes)
            torch.testing.assert_close(
                expected.set_params(sparse_output=True).transform(given).to_dense(), codes, rtol=1e-9, atol=1e-9
            )

    def test_outliers(self, device, X, monkeypatch):
        given, work = torch.tensor(X, device=device), Ensemble.anomalies
        model = KDLOutlierDetector(8, device=device, random_state=0, n_members=2, max_samples=80)
        expected = clone(model).fit(given).decision_function(given)

        def anomalies(ensemble, signals):
            if len(signals) > 90:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return work(ensemble, signals)

        monkeypatch.setattr(Ensemble, "anomalies", anomalies)
        with pytest.warns(UserWarning, match="ran out of memory on .* signals: they are processed in"):
            found = model.fit(given).decision_function(given)
        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)

    def test_nothing_fits(self, X, few_rows_fit):
        few_rows_fit(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(torch.OutOfMemoryError, match=r"ran out of memory on .* device=None"):
                DL(**COMMON).fit(torch.from_numpy(X))

    @on_gpu
    def test_a_full_gpu(self):
        """What is really there decides: all memory but a little is taken."""
        X = torch.rand((400_000, 64), device="cuda")
        model = RKDL(64, n_kernel_vectors=200, kernel_vectors="random", gamma=0.1, max_iter=1, random_state=0)
        expected = clone(model).fit(X).errors_
        torch.cuda.empty_cache()
        free = torch.cuda.mem_get_info()[0]
        taken = torch.empty(max(0, free - (600 << 20)), dtype=torch.uint8, device="cuda")
        try:
            with pytest.warns(UserWarning, match="ran out of memory"):
                found = clone(model).fit(X)
        finally:
            del taken
        np.testing.assert_allclose(found.errors_, expected, rtol=1e-5)


class TestInput:
    def test_what_is_refused(self, device, X):
        def given(values):
            return torch.tensor(values, device=device)

        bad = X.copy()
        bad[5, 3] = np.nan
        cases = [
            (bad, "Input X contains NaN"),
            (np.where(np.isnan(bad), np.inf, bad), "Input X contains infinity"),
            (X[0], "Expected 2D array, got 1D tensor"),
            (X[None], "Expected 2D array, got 3D tensor"),
            (X + 1j, "Complex data not supported"),
            (X[:0], r"0 sample\(s\)"),
            (X[:, :0], r"0 feature\(s\)"),
        ]
        for values, told in cases:
            for model in (DL(**COMMON), ORKDL(**REDUCED), KDL(**COMMON)):
                with pytest.raises(ValueError, match=told):
                    model.fit(given(values))
        model = RKDL(**REDUCED).fit(given(X))
        with pytest.raises(ValueError, match="X has 5 features, but RKDL is expecting 12"):
            model.transform(given(X[:, :5]))
        for method in (model.transform, model.reconstruction_error, DL(**COMMON).fit(X).transform):
            with pytest.raises(ValueError, match="Input X contains NaN"):
                method(given(bad))
        with pytest.raises(ValueError, match="Input X contains NaN"):
            sparse_encode(given(bad), np.eye(12), n_nonzero_coefs=2)
        with pytest.raises(ValueError, match="X has 12 features and the atoms of dictionary have 5"):
            sparse_encode(given(X), np.eye(5), n_nonzero_coefs=2)
        with pytest.raises(ValueError, match="The codes have 12 columns"):
            DL(**COMMON).fit(X).inverse_transform(given(X))

    @pytest.mark.parametrize("dtype", [torch.int32, torch.uint8, torch.bool, torch.float16, torch.bfloat16])
    def test_other_numbers(self, device, dtype, X):
        given = torch.tensor(np.abs(X) * 3.0, device=device).to(dtype)
        model = RKDL(**REDUCED).fit(given)
        wide = given.float() if dtype.is_floating_point else given.double()
        np.testing.assert_array_equal(model.errors_, RKDL(**REDUCED).fit(wide).errors_)
        assert model.transform(given).dtype == wide.dtype

    def test_layouts(self, device, X):
        given = torch.tensor(X, device=device)
        expected = RKDL(**REDUCED).fit(given).errors_
        strided = torch.tensor(np.repeat(X, 2, axis=1), device=device)[:, ::2]
        leaf = given.clone().requires_grad_()
        for other in (strided, given.T.contiguous().T, given.to_sparse_csr(), leaf):
            np.testing.assert_array_equal(RKDL(**REDUCED).fit(other).errors_, expected)

    def test_parameters_that_are_tensors(self, device, X):
        init = np.random.default_rng(0).standard_normal((8, 9))
        vectors, start = (torch.tensor(part, device=device) for part in (X[:9], init))
        model = RKDL(kernel_vectors=vectors, init=start, **COMMON).fit(torch.tensor(X, device=device))
        expected = RKDL(kernel_vectors=X[:9], init=init, **COMMON).fit(X)
        np.testing.assert_allclose(model.errors_, expected.errors_, rtol=1e-10)


class TestHalves:
    """NumPy has no bfloat16, and torch has."""

    def test_every_argument(self, device):
        rng = np.random.default_rng(0)
        X = torch.tensor(rng.standard_normal((60, 6)), dtype=torch.bfloat16, device=device)
        wide = X.float()
        atoms = wide[:8] / torch.linalg.vector_norm(wide[:8], dim=1, keepdim=True)
        gram, known = atoms @ atoms.T, wide @ atoms.T
        half = atoms.bfloat16()
        options = {"n_nonzero_coefs": 2}
        assert sparse_encode(X, half, **options).dtype == torch.float32
        norms = (wide * wide).sum(1).bfloat16()
        assert sparse_encode_gram(gram.bfloat16(), known, **options).shape == (60, 8)
        assert sparse_encode_gram(gram, known, squared_norms=norms, residual_tol=0.1, **options).shape == (60, 8)
        for model in (
            KDL(4, max_iter=1),
            DL(8, init=half, max_iter=1),
            RKDL(4, kernel_vectors=X[:8], max_iter=1),
            KDLOutlierDetector(4, n_members=1),
        ):
            model.set_params(random_state=0).fit(X)
        bad = X.clone()
        bad[3, 0] = torch.nan
        for model in (DL(4), KDL(4), ORKDL(4, n_kernel_vectors=6)):
            with pytest.raises(ValueError, match="Input X contains NaN"):
                model.fit(bad)
        with pytest.raises(ValueError, match="Input X contains NaN"):
            DL(4).fit(X).transform(bad)

    def test_on_the_host(self):
        """Chunks of a bfloat16 tensor become arrays one by one."""
        X = torch.randn((300, 6), generator=torch.manual_seed(0)).bfloat16()
        wide, y = X.float(), np.arange(300) % 2
        for model, labels in (
            (KDLOutlierDetector(4, n_members=1, gamma="scale"), ()),
            (KDLClassifier(4, n_kernel_vectors=20), (y,)),
        ):
            model.set_params(random_state=0)
            expected = clone(model).fit(wide, *labels).decision_function(wide)
            assert torch.equal(model.fit(X, *labels).decision_function(X), expected)
        bad = X.clone()
        bad[3, 0] = torch.inf
        with pytest.raises(ValueError, match=r"Input X contains infinity.* column 0"):
            model.predict(bad)


class TestOthersCode:
    @pytest.mark.parametrize("n_vectors", [10, 200])
    def test_a_kernel_may_differentiate(self, n_vectors, device):
        seen = []

        def kernel(A, B):
            left = torch.tensor(A, requires_grad=True)
            values = left @ torch.tensor(B).T
            torch.autograd.grad(values.sum(), left)
            seen.append(torch.ones(1))
            return values.detach().numpy()

        X = torch.tensor(np.random.default_rng(0).standard_normal((300, 6)), device=device)
        RKDL(8, kernel=kernel, n_kernel_vectors=n_vectors, max_iter=1, random_state=0).fit(X)
        assert seen
        assert not any(part.is_inference() for part in seen)


# The engine of a device, tried on the CPU too: tensors there are otherwise read as arrays.
ENGINES = [("cpu", "cpu"), pytest.param("cuda", None, marks=on_gpu)]
each_device_engine = pytest.mark.parametrize(("place", "engine"), ENGINES)
each_engine = pytest.mark.parametrize(("place", "engine"), [("cpu", None), *ENGINES])


def with_attributes(model, fitted):
    """A model with the fitted attributes of another."""
    vars(model).update({key: value for key, value in vars(fitted).items() if key.endswith("_")})
    return model


class TestOutlierDetector:
    @pytest.fixture(scope="module")
    @staticmethod
    def rows(X):
        return np.concatenate([X[:300], X[:6] + 9.0]).astype(np.float32)

    @pytest.fixture(scope="module")
    @staticmethod
    def known(rows):
        sizes = {"n_components": 8, "n_nonzero_coefs": 4, "n_kernel_vectors": 30, "n_members": 2}
        return KDLOutlierDetector(**sizes, max_samples=128, random_state=0).fit(rows)

    @each_engine
    def test_agrees(self, place, engine, rows, known):
        given = torch.tensor(rows, device=place)
        model = clone(known).set_params(device=engine).fit(given)
        for name in ("kernel_vectors_", "locations_", "offset_"):
            np.testing.assert_allclose(getattr(model, name), getattr(known, name), rtol=1e-6)
        assert not any(isinstance(value, torch.Tensor) for value in vars(model).values())
        # Twice: the second call uses what was prepared on the device.
        for _ in range(2):
            for name in ("score_samples", "decision_function"):
                found, expected = getattr(model, name)(given), getattr(known, name)(rows)
                assert found.dtype == torch.float32
                assert found.device.type == place
                np.testing.assert_allclose(found.cpu().numpy(), expected, rtol=1e-5, atol=1e-5)
        for found, expected in (
            (model.predict(given), known.predict(rows)),
            (model.fit_predict(given), clone(known).fit_predict(rows)),
        ):
            assert found.device.type == place
            np.testing.assert_array_equal(found.cpu().numpy(), expected)

    def test_arrays_go_through_a_device(self, device, rows, known):
        model = clone(known).set_params(device=device).fit(rows)
        for given in (rows, sparse.csr_array(rows)):
            found = model.score_samples(given)
            assert isinstance(found, np.ndarray)
            np.testing.assert_allclose(found, known.score_samples(rows), rtol=1e-5, atol=1e-5)
        assert isinstance(model.predict(rows), np.ndarray)
        # A tensor that is elsewhere returns there.
        assert model.predict(torch.tensor(rows)).device.type == "cpu"

    @each_engine
    def test_bad_and_far(self, place, engine, rows, known):
        model = with_attributes(clone(known).set_params(device=engine), known)
        far = rows[:2] * np.array([[1e30], [1.0]], dtype=np.float32)
        found = model.score_samples(torch.tensor(far, device=place)).cpu()
        np.testing.assert_allclose(found, known.score_samples(far), rtol=1e-5)
        bad = torch.tensor(rows, device=place)
        bad[3, 5] = torch.nan
        for work in (model.predict, clone(model).fit):
            with pytest.raises(ValueError, match=r"Input X contains NaN.* column 5"):
                work(bad)


class TestLearnedForLabels:
    @pytest.fixture(scope="module")
    @staticmethod
    def labelled(X):
        """Signals of four classes, which lie in different directions; the last has three signals."""
        labels = np.arange(300) % 3
        labels[-3:] = 3
        return X[:300] + 3.0 * np.eye(12)[labels], labels

    @pytest.fixture(scope="module", params=[KDLClassifier, KDLRegressor])
    @staticmethod
    def trained(labelled, request):
        return request.param(n_kernel_vectors=40, random_state=0).fit(*labelled)

    @each_device_engine
    def test_fit_agrees(self, place, engine, work, labelled, trained):
        """As far as a thousand steps in float32 do."""
        X, y = labelled
        given, labels = torch.tensor(X, device=place), torch.tensor(y, device=place)
        model = clone(trained).set_params(device=engine).fit(given, labels)
        assert not any(isinstance(value, torch.Tensor) for value in vars(model).values())
        assert model.score(given, labels) == pytest.approx(trained.score(X, y), abs=0.02)
        np.testing.assert_allclose(model.losses_[0], trained.losses_[0], rtol=0.1)
        assert model.partial_fit(given, labels).score(given, labels) > 0.8

    @each_engine
    @each_dtype
    def test_predictions_agree(self, place, engine, dtype, labelled, trained):
        X, y = labelled[0].astype(dtype), labelled[1]
        given = torch.tensor(X, device=place)
        model = with_attributes(clone(trained).set_params(device=engine), trained)
        slack = 50.0 * TOLERANCE[dtype]
        for name in ("transform", "decision_function", "predict_proba", "class_residuals"):
            if hasattr(model, name):
                found = getattr(model, name)(given)
                assert found.device.type == place
                assert found.dtype == given.dtype
                np.testing.assert_allclose(found.cpu(), getattr(trained, name)(X), rtol=slack, atol=slack)
        predicted = model.predict(given)
        assert predicted.device.type == place
        np.testing.assert_allclose(predicted.cpu(), trained.predict(X), atol=slack)
        assert model.score(given, torch.tensor(y, device=place)) == pytest.approx(trained.score(X, y), abs=1e-4)

    @each_engine
    def test_bad_rows(self, place, engine, labelled, trained):
        X, y = labelled
        model = with_attributes(clone(trained).set_params(device=engine), trained)
        bad = torch.tensor(X, device=place)
        bad[3, 5] = torch.inf
        for work in (model.predict, lambda rows: clone(model).fit(rows, y)):
            with pytest.raises(ValueError, match=r"Input X contains infinity.* column 5"):
                work(bad)


@on_gpu
class TestProducts:
    """Products and sums that only a GPU computes in its own way."""

    @pytest.mark.parametrize(("n_rows", "n_others", "n_columns"), [(300, 1207, 1000), (129, 64, 257), (1, 1, 8)])
    def test_in_halves(self, n_rows, n_others, n_columns):
        from rkdl._backends.torch import triton_products

        generator = torch.Generator("cuda").manual_seed(0)
        rows, others = (
            torch.randn((count, n_columns), device="cuda", generator=generator) for count in (n_rows, n_others)
        )
        # Of very different magnitudes, within a row and between rows; zeros; numbers that all have one sign.
        rows *= torch.logspace(-12, 12, n_rows, device="cuda")[:, None]
        rows[:, 0] *= 1e4
        others[0] = others[0].abs()
        rows[-1] = 0.0
        norms = torch.linalg.vector_norm(rows.double(), dim=1)[:, None] * torch.linalg.vector_norm(
            others.double(), dim=1
        )
        exact = rows.double() @ others.double().T
        error = (triton_products.product(rows, others) - exact).abs()
        assert float((error / norms.clamp(min=1e-65)).max()) < 4e-7
        rows[0, 0] = torch.nan
        assert triton_products.product(rows, others)[0].isnan().all()

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_statistics_of_sparse_codes(self, dtype):
        from rkdl._backends.torch import triton_statistics

        generator = torch.Generator("cuda").manual_seed(0)
        n_signals, n_atoms, n_nonzero = 3000, 300, 7
        indices = torch.rand((n_signals, n_atoms), device="cuda", generator=generator).argsort(1)[:, :n_nonzero]
        values = torch.randn((n_signals, n_nonzero), dtype=dtype, device="cuda", generator=generator)
        values[0] *= 1e3
        counts = torch.randint(0, n_nonzero + 1, (n_signals,), device="cuda", generator=generator).int()
        is_used = torch.arange(n_nonzero, device="cuda") < counts[:, None]
        indices, values = torch.where(is_used, indices, 0).int(), torch.where(is_used, values, 0.0)
        features = torch.randn((n_signals, 70), dtype=dtype, device="cuda", generator=generator)
        codes = tensor_pursuit.TensorCodes(counts, indices, values)
        dense = codes.dense(n_atoms, torch.float64)
        found = triton_statistics.code_gram(*codes[:3], n_atoms)
        torch.testing.assert_close(found, dense.T @ dense, rtol=1e-12, atol=1e-9)
        assert torch.equal(found, triton_statistics.code_gram(*codes[:3], n_atoms))
        sums = triton_statistics.cross_products(*codes[:3], features, n_atoms)
        torch.testing.assert_close(sums, dense.T @ features.double(), rtol=1e-12, atol=1e-9)
        values[5, 0], counts[5] = torch.inf, 1
        assert not triton_statistics.code_gram(*codes[:3], n_atoms).isfinite().any()


@pytest.mark.slow
class TestLife:
    """Copies, files and checkpoints of models that learned on a device."""

    @pytest.mark.parametrize("name", ["DL", "KDL", "ORKDL", "MORKDL-gd-tolerance"])
    def test_copies(self, name, device, X, tmp_path):
        given = torch.tensor(X, device=device)
        model = clone(ESTIMATORS[name]).set_params(device=device).fit(given)
        expected = model.transform(given)
        assert clone(model).get_params()["device"] == device
        model.save(tmp_path / "model.rkdl")
        for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), load(tmp_path / "model.rkdl")):
            assert again.get_params()["device"] == device
            assert torch.equal(again.transform(given), expected)
        # Elsewhere there may be no torch: the model holds arrays.
        assert not any(isinstance(value, torch.Tensor) for value in vars(model).values())
        mostly_close(model.set_params(device=None).transform(X), expected.cpu().numpy(), np.float64)

    @pytest.mark.parametrize("name", ["DL", "KDL", "ORKDL", "MORKDL-gd-tolerance"])
    def test_checkpoint(self, name, device, work, X, tmp_path):
        given = torch.tensor(X, device=device)
        expected = clone(ESTIMATORS[name]).set_params(max_iter=4).fit(given).errors_
        clone(ESTIMATORS[name]).fit(given, checkpoint=tmp_path / "fit.rkdl")
        found = clone(ESTIMATORS[name]).set_params(max_iter=4).fit(given, checkpoint=tmp_path / "fit.rkdl")
        np.testing.assert_array_equal(found.errors_, expected)

    @on_gpu
    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
    def test_host_tensors_go_through_a_gpu(self, dtype, X):
        given = torch.tensor(X).to(dtype)
        model, expected = (DL(**COMMON, device="cuda").fit(given), DL(**COMMON).fit(given.cuda()))
        np.testing.assert_array_equal(model.errors_, expected.errors_)
        codes = model.transform(given)
        assert codes.device.type == "cpu"
        assert torch.equal(codes, expected.transform(given.cuda()).cpu())


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("index", [10**8, -2])
@pytest.mark.parametrize("layout", ["coo", "csr", "csc"])
def test_sparse_tensors_with_wild_indices(layout, index):
    """torch would read or write out of bounds."""
    values, places, wild = torch.ones(3), torch.tensor([0, 1, 2]), torch.tensor([0, 1, index])
    ends = torch.tensor([0, 1, 2, 3, 3, 3, 3])
    if layout == "coo":
        X = torch.sparse_coo_tensor(torch.stack([places, wild]), values, (6, 6), check_invariants=False)
    else:
        make = torch.sparse_csr_tensor if layout == "csr" else torch.sparse_csc_tensor
        X = make(ends, wild, values, (6, 6), check_invariants=False)
    for call in (DL(3, n_nonzero_coefs=1).fit, DL(3, n_nonzero_coefs=1).fit(np.eye(6)).transform):
        with pytest.raises(ValueError, match="malformed sparse tensor"):
            call(X)
