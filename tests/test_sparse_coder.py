"""Sparse coding with a given dictionary that is prepared once."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks

from helpers import RowSlices
from rkdl import SparseCoder, load, sparse_encode

# Checks of scikit-learn for a coder whose dictionary is given, and the number of features of their signals.
GIVEN = {
    "check_transformers_unfitted_stateless": 5,
    "check_estimators_overwrite_params": 2,
    "check_estimators_fit_returns_self": 2,
    "check_n_features_in": 2,
    "check_n_features_in_after_fitting": 4,
    "check_fit2d_1sample": 10,
    "check_fit2d_1feature": 1,
    "check_fit_check_is_fitted": 2,
    "check_estimators_dtypes": 5,
    "check_dict_unchanged": 3,
    "check_methods_subset_invariance": 3,
    "check_dataframe_column_names_consistency": 8,
    "check_set_output_transform": 5,
}


@parametrize_with_checks([SparseCoder(), SparseCoder(residual_tol=0.1, pursuit="omp", sparse_output=True)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("name", GIVEN)
def test_scikit_learn_checks_of_a_given_dictionary(name):
    coder = SparseCoder(np.random.default_rng(0).standard_normal((5, GIVEN[name])))
    getattr(estimator_checks, name)("SparseCoder", coder)


@pytest.fixture(scope="module")
def inputs():
    rng = np.random.default_rng(0)
    # Norms from a tenth to ten, and one atom that is never to be used.
    atoms = rng.standard_normal((30, 12)) * np.logspace(-1, 1, 30)[:, None]
    atoms[7] = 0.0
    return rng.standard_normal((400, 12)), atoms


OPTIONS = [
    {"n_nonzero_coefs": 3},
    {},
    {"n_nonzero_coefs": 3, "pursuit": "omp"},
    {"residual_tol": 2.0},
    {"residual_tol": 2.0, "n_nonzero_coefs": 2},
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_codes_are_those_of_sparse_encode(options, dtype, inputs):
    X, atoms = (part.astype(dtype) for part in inputs)
    coder = SparseCoder(atoms, **options).fit()
    codes = coder.transform(X)
    assert codes.dtype == X.dtype
    assert not codes[:, 7].any()
    np.testing.assert_array_equal(codes, sparse_encode(X, atoms, **options))
    np.testing.assert_allclose(coder.transform(X[:1]), codes[:1], rtol=1e-4, atol=1e-5)
    as_csr = SparseCoder(atoms, **options, sparse_output=True).fit().transform(X)
    assert sparse.issparse(as_csr)
    np.testing.assert_array_equal(as_csr.toarray(), codes)


def test_the_way_back(inputs):
    X, atoms = inputs
    coder = SparseCoder(atoms, n_nonzero_coefs=3).fit()
    codes = coder.transform(X)
    np.testing.assert_allclose(coder.inverse_transform(codes), codes @ atoms, atol=1e-10)
    np.testing.assert_allclose(coder.denoise(X), codes @ atoms, atol=1e-10)
    np.testing.assert_allclose(coder.atom_preimages(), atoms, atol=1e-10)
    residuals = np.linalg.norm(X - codes @ atoms, axis=1)
    np.testing.assert_allclose(coder.reconstruction_error(X), residuals, atol=1e-10)
    assert coder.score(X) == pytest.approx(1.0 - np.sum(residuals**2) / np.sum(X**2), abs=1e-10)
    # At noise level the number of non-zeros follows the noise, whatever the limit.
    errors = [np.linalg.norm(X - coder.denoise(X, noise=noise), axis=1) for noise in (0.05, 0.5)]
    assert errors[0].max() < errors[1].max()
    assert errors[0].mean() < residuals.mean()


def test_signals_of_fit_are_the_atoms_without_a_dictionary(inputs):
    X, _ = inputs
    atoms = X[:9].copy()
    coder = SparseCoder(n_nonzero_coefs=1).fit(atoms)
    np.testing.assert_allclose(coder.transform(3.0 * X[:9]), 3.0 * np.eye(9), atol=1e-5)
    atoms[:] = 0.0
    np.testing.assert_array_equal(coder.components_, X[:9])
    assert SparseCoder().fit(sparse.csr_array(X[:9])).components_.tolist() == X[:9].tolist()
    assert SparseCoder().fit(RowSlices(X[:9])).components_.tolist() == X[:9].tolist()


def test_a_fitted_coder_keeps_its_atoms_and_another_follows_the_array(inputs):
    X, atoms = inputs
    given = atoms.copy()
    fitted, unfitted = SparseCoder(given, n_nonzero_coefs=2).fit(), SparseCoder(given, n_nonzero_coefs=2)
    before = fitted.transform(X)
    np.testing.assert_array_equal(unfitted.transform(X), before)
    given[:] = given[::-1].copy()
    np.testing.assert_array_equal(fitted.transform(X), before)
    np.testing.assert_array_equal(unfitted.transform(X), sparse_encode(X, given, n_nonzero_coefs=2))
    assert not [name for name in vars(unfitted) if name.endswith("_")]
    np.testing.assert_allclose(unfitted.inverse_transform(before), before @ given, atol=1e-3)
    np.testing.assert_array_equal(unfitted.fit().transform(X), sparse_encode(X, given, n_nonzero_coefs=2))


def test_parameters_may_change_after_fit(inputs):
    X, atoms = inputs
    coder = SparseCoder(atoms, n_nonzero_coefs=3).fit()
    for options in ({"n_nonzero_coefs": 2}, {"pursuit": "omp"}, {"residual_tol": 0.5}):
        coder.set_params(**options)
        names = ("n_nonzero_coefs", "residual_tol", "pursuit")
        expected = sparse_encode(X, atoms, **{name: getattr(coder, name) for name in names})
        np.testing.assert_array_equal(coder.transform(X), expected)
    for _ in range(2):
        with pytest.warns(UserWarning, match="n_nonzero_coefs=31 exceeds the number of atoms, 30"):
            coder.set_params(n_nonzero_coefs=31).transform(X[:1])


def test_what_is_refused(inputs):
    X, atoms = inputs
    with pytest.raises(ValueError, match="SparseCoder has no dictionary"):
        SparseCoder().fit()
    with pytest.raises(NotFittedError, match="SparseCoder"):
        SparseCoder().transform(X)
    with pytest.raises(ValueError, match="X has 12 features and the atoms of dictionary have 5"):
        SparseCoder(atoms[:, :5]).fit(X)
    for coder in (SparseCoder(atoms), SparseCoder(atoms).fit()):
        with pytest.raises(ValueError, match="X has 5 features, but SparseCoder is expecting 12"):
            coder.transform(X[:, :5])
        with pytest.raises(ValueError, match="Input X contains NaN"):
            coder.transform(np.where(X > 2.0, np.nan, X))
    with pytest.raises(ValueError, match="Input dictionary contains NaN"):
        SparseCoder(np.full((2, 2), np.nan)).fit()
    with pytest.raises(ValueError, match="'pursuit' parameter of SparseCoder"):
        SparseCoder(atoms, pursuit="lars").fit()
    coder = SparseCoder(atoms).fit()
    before = dict(vars(coder))
    with pytest.raises(ValueError, match="Input X contains infinity"):
        coder.fit(np.full((3, 12), np.inf))
    assert vars(coder) == before


def test_saved_and_pickled(inputs, tmp_path):
    X, atoms = inputs
    path = tmp_path / "coder.rkdl"
    coder = SparseCoder(atoms, n_nonzero_coefs=3)
    with pytest.raises(NotFittedError):
        coder.save(path)
    coder.fit(X).save(path)
    for other in (load(path), pickle.loads(pickle.dumps(coder))):
        np.testing.assert_array_equal(other.transform(X), coder.transform(X))
        np.testing.assert_array_equal(other.dictionary, atoms)


def test_other_kinds_of_arrays(inputs, tmp_path):
    X, atoms = inputs
    coder = SparseCoder(atoms, n_nonzero_coefs=3).fit()
    expected = coder.transform(X)
    np.save(tmp_path / "X.npy", X)
    for given in (RowSlices(X), sparse.csr_array(X), np.load(tmp_path / "X.npy", mmap_mode="r"), np.asfortranarray(X)):
        np.testing.assert_array_equal(coder.transform(given), expected)


def test_tensors(inputs):
    torch = pytest.importorskip("torch")
    X, atoms = inputs
    coder = SparseCoder(torch.from_numpy(atoms), n_nonzero_coefs=3).fit(torch.from_numpy(X))
    codes = coder.transform(torch.from_numpy(X))
    assert isinstance(codes, torch.Tensor)
    np.testing.assert_allclose(codes.numpy(), coder.transform(X), atol=1e-10)
    np.testing.assert_allclose(coder.inverse_transform(codes).numpy(), codes.numpy() @ atoms, atol=1e-10)
    np.testing.assert_allclose(coder.denoise(torch.from_numpy(X)).numpy(), codes.numpy() @ atoms, atol=1e-10)


def test_dask_arrays(inputs):
    array = pytest.importorskip("dask.array")
    X, atoms = inputs
    for coder in (SparseCoder(atoms, n_nonzero_coefs=3).fit(), SparseCoder(atoms, n_nonzero_coefs=3)):
        codes = coder.transform(array.from_array(X, chunks=(100, 12)))
        assert codes.chunks[0] == (100,) * 4
        np.testing.assert_array_equal(
            codes.compute(), np.concatenate([coder.transform(X[i : i + 100]) for i in range(0, 400, 100)])
        )
    assert SparseCoder().fit(array.from_array(X[:9], chunks=3)).components_.tolist() == X[:9].tolist()
