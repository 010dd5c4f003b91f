"""Numbers near the ends of their range: float32 is computed in float64 where it must, beyond float64 is refused."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.base import clone

from helpers import CLASSES, KERNEL, REDUCED, by_class, make, poor_models, rms_error
from rkdl import (
    DL,
    KDL,
    MORKDL,
    ORKDL,
    RKDL,
    FourierDL,
    KDLClassifier,
    KDLOutlierDetector,
    SparseCoder,
    sparse_encode,
    sparse_encode_gram,
)
from rkdl.kernels import RBF

pytestmark = poor_models

X = np.random.default_rng(0).standard_normal((40, 6))
DICTIONARY = np.random.default_rng(1).standard_normal((5, 6))
each_pursuit = pytest.mark.parametrize("pursuit", ["ols", "omp"])


def near(dtype):
    """How close two results are that rounding alone tells apart."""
    tolerance = 1e-6 if dtype == np.float64 else 1e-3
    return {"rtol": tolerance, "atol": tolerance}


@pytest.mark.parametrize("scale", [1e30, 1e-30])
@by_class(CLASSES)
def test_float32_whose_squares_leave_its_range(kind, scale):
    """It is computed in float64, and the results are of float32."""
    signals = (scale * X).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        model = make(kind).fit(signals)
        codes, errors, score = model.transform(signals), model.reconstruction_error(signals), model.score(signals)
    assert codes.dtype == errors.dtype == np.float32
    expected = make(kind).fit(signals.astype(np.float64))
    np.testing.assert_allclose(model.errors_, expected.errors_, rtol=1e-3)
    assert score == pytest.approx(expected.score(signals.astype(np.float64)), rel=1e-3)
    # A signal's code does not depend on the other signals of the call.
    together = model.transform(np.vstack([signals[:3], np.zeros((1, 6), np.float32)]))
    tolerance = 1e-3 * np.abs(together).max()
    np.testing.assert_allclose(model.transform(signals[:1])[0], together[0], rtol=1e-3, atol=tolerance)


@pytest.mark.parametrize("size", [1e200, 1e-200])
@pytest.mark.parametrize(
    "fit",
    [
        *(make(kind).fit for kind in CLASSES),
        make(DL).partial_fit,
        make(KDL, kernel="linear").fit,
        lambda signals: KDLClassifier(random_state=0).fit(signals, X[:, 0] > 0.0),
        KDLOutlierDetector(n_members=2, random_state=0).fit,
        lambda signals: sparse_encode(signals, DICTIONARY),
    ],
)
def test_what_leaves_the_range_of_float64_is_refused(fit, size):
    with pytest.raises(ValueError, match=r"[Rr]escale"):
        fit(size * X)


# Powers of two: rounding must not choose another atom.
@pytest.mark.parametrize(("dtype", "scale"), [(np.float64, 2.0**200), (np.float64, 2.0**-200), (np.float32, 2.0**99)])
class TestFactors:
    """A factor changes what the mathematics says, and nothing else."""

    @pytest.mark.parametrize("kernel", ["rbf", "poly"])
    @by_class([KDL, RKDL, ORKDL])
    def test_the_median_gamma_undoes_it(self, kind, kernel, dtype, scale):
        # From given atoms, so that rounding has no further iterations to grow in.
        start = {"init": np.random.default_rng(2).standard_normal((8, 12))} if kind is ORKDL else {}
        plain, model = make(kind, kernel=kernel, **start).fit(X), make(kind, kernel=kernel, **start)
        signals = (X * scale).astype(dtype)
        model.fit(signals)
        assert model.gamma_ * scale * scale == pytest.approx(plain.gamma_, rel=near(dtype)["rtol"])
        np.testing.assert_allclose(model.transform(signals), plain.transform(X), **near(dtype))
        assert model.score(signals) == pytest.approx(plain.score(X), rel=near(dtype)["rtol"])

    @by_class([DL, *KERNEL])
    def test_linear_methods_follow_it(self, kind, dtype, scale):
        linear = {} if kind is DL else {"kernel": "linear"}
        if kind in REDUCED:
            # Fewer than features, so that moving them means something.
            linear["n_kernel_vectors"] = 4
        plain, signals = make(kind, n_components=5, **linear).fit(X), (X * scale).astype(dtype)
        model = make(kind, n_components=5, **linear).fit(signals)
        np.testing.assert_allclose(model.transform(signals).astype(float) / scale, plain.transform(X), **near(dtype))
        np.testing.assert_allclose(model.errors_ / scale, plain.errors_, **near(dtype))
        assert model.score(signals) == pytest.approx(plain.score(X), rel=near(dtype)["rtol"])

    @each_pursuit
    def test_codes_follow_it(self, pursuit, dtype, scale):
        options = {"n_nonzero_coefs": 2, "pursuit": pursuit}
        expected = sparse_encode(X, DICTIONARY, **options)
        codes = sparse_encode((X * scale).astype(dtype), DICTIONARY, **options)
        np.testing.assert_allclose(codes.astype(float) / scale, expected, **near(dtype))
        correlations = (X @ DICTIONARY.T * scale).astype(dtype)
        codes = sparse_encode_gram(DICTIONARY @ DICTIONARY.T, correlations, **options)
        np.testing.assert_allclose(codes.astype(float) / scale, expected, **near(dtype))
        atoms = sparse_encode(X.astype(dtype), (DICTIONARY * scale).astype(dtype), **options)
        np.testing.assert_allclose(atoms.astype(float) * scale, expected, **near(dtype))

    def test_a_tolerance_follows_it(self, dtype, scale):
        plain = make(DL, n_nonzero_coefs=5, residual_tol=1.0).fit(X)
        model = make(DL, n_nonzero_coefs=5, residual_tol=scale * scale).fit(X * scale)
        np.testing.assert_allclose(model.transform(X * scale) / scale, plain.transform(X), atol=1e-8)
        assert len(set((plain.transform(X) != 0).sum(axis=1))) > 1

    def test_the_way_back_follows_it(self, dtype, scale):
        signals = (X * scale).astype(dtype)
        model = make(DL, n_components=12, n_nonzero_coefs=6).fit(signals)
        found = model.inverse_transform(model.transform(signals)).astype(float) / scale
        np.testing.assert_allclose(found, X, atol=1e-2 if dtype == np.float32 else 1e-6)


@pytest.mark.parametrize("scale", [1e4, 1e7])
def test_float32_weighs_the_linear_term_as_float64_does(scale):
    single, double = (make(MORKDL).fit((X * scale).astype(dtype)) for dtype in (np.float32, np.float64))
    np.testing.assert_allclose(single.errors_, double.errors_, rtol=1e-3)


@pytest.mark.parametrize("sparse_output", [False, True])
def test_a_huge_signal_changes_no_other_code(sparse_output):
    signals = X.astype(np.float32)
    expected = sparse_encode(signals, DICTIONARY, n_nonzero_coefs=2)
    signals[7, 0] = -3.4028235e38
    codes = sparse_encode(signals, DICTIONARY, n_nonzero_coefs=2, sparse_output=sparse_output)
    codes = codes.toarray() if sparse_output else codes
    others = np.arange(len(X)) != 7
    np.testing.assert_allclose(codes[others], expected[others], rtol=1e-5, atol=1e-6)
    assert np.isfinite(codes).all()


def test_results_that_leave_the_range_of_float32_are_an_error():
    signals = X.astype(np.float32)
    signals[7, 0] = 1e25
    model = RKDL(8, kernel="poly", gamma=1.0, n_kernel_vectors=12, random_state=0).fit(signals)
    with pytest.raises(ValueError, match="leave the range of float32"):
        model.transform(signals)


@pytest.mark.parametrize("make_coder", [lambda model: model, lambda model: SparseCoder(model.components_).fit()])
def test_float64_signals_are_coded_with_atoms_of_float32(make_coder, monkeypatch):
    """Atoms of norm 1 - 1e-8 seemed to be partly outside their own span, and codes with one of them twice were half."""
    model = DL(8, n_nonzero_coefs=3, random_state=0).fit(X.astype(np.float32))
    coder = make_coder(model).set_params(n_nonzero_coefs=3)
    for most in (0, 1 << 20):
        monkeypatch.setattr("rkdl._coding.dictionary.MOST_BYTES", most)
        codes = coder.transform(5.0 * model.components_.astype(np.float64))
        np.testing.assert_allclose(codes, 5.0 * np.eye(8), atol=1e-5)
        coder = clone(coder).fit(X) if coder is not model else coder
    model.components_ = 3.0 * model.components_
    with pytest.raises(ValueError, match="An atom of components_ has norm 3, and DL has atoms of unit norm"):
        model.transform(X)


SQUARES = {"kernel": "poly", "degree": 2, "gamma": 1.0, "coef0": 0.0}


@by_class([DL, *KERNEL])
def test_float32_signals_that_are_faint_beside_others(kind):
    """They are coded as they are alone, though squares of their features vanish."""
    options, scale, size = ({}, 1e-23, 1e-23) if kind is DL else (SQUARES, 1e-12, 1e-24)
    strong, faint = (X / np.linalg.norm(X, axis=1)[:, None]).astype(np.float32), (scale * X).astype(np.float32)
    model, signals = make(kind, **options).fit(strong), np.vstack([strong, faint])
    np.testing.assert_allclose(model.transform(signals)[40:] / size, model.transform(X), rtol=1e-2, atol=1e-3)
    np.testing.assert_allclose(
        model.reconstruction_error(signals)[40:] / size, model.reconstruction_error(X), rtol=1e-4
    )
    # Where all are, the fit is in float64.
    alone = make(kind, **options).fit(faint)
    assert alone.computes_in_float64_
    assert alone.score(faint) == pytest.approx(make(kind, **options).fit(X).score(X), rel=1e-3)


@pytest.mark.parametrize("far", [1e4, 1e8])
def test_the_error_of_fourier_features_is_that_of_the_frequencies_that_are_stored(far):
    signals = X.astype(np.float32)
    signals[7, 3] = far
    model = make(FourierDL).fit(signals)
    # Rounding to float32 changes the phase of a signal so far off by whole turns.
    assert model.errors_[-1] * np.sqrt(6) == pytest.approx(rms_error(model, signals), rel=1e-6)


@pytest.mark.parametrize("offset", [1e4, 1e6])
@by_class([KDL, *REDUCED])
def test_a_few_float32_signals_far_off_are_distances_apart(kind, offset):
    """Their squared distances are small differences of large squares."""
    signals = np.random.default_rng(0).standard_normal((100, 6))
    signals[::20] += offset
    single, double = (make(kind).fit(signals.astype(np.float32).astype(dtype)) for dtype in (np.float32, np.float64))
    np.testing.assert_allclose(single.errors_, double.errors_, rtol=1e-3)
    assert single.errors_[-1] * np.sqrt(6) == pytest.approx(rms_error(single, signals.astype(np.float32)), rel=1e-3)


@pytest.mark.parametrize(
    "kernel", [RBF(gamma=[0.5, 1.0, 0.2, 0.0, 1.0, 1.0]), RBF(gamma=0.5) + RBF(gamma=0.1)], ids=repr
)
@by_class([RKDL, ORKDL])
def test_kernels_of_several_numbers_far_off(kind, kernel):
    """Where torch was imported they were made anew, without the centre that is subtracted."""
    pytest.importorskip("torch")
    X = np.random.default_rng(0).standard_normal((100, 6))
    near, far = (make(kind, kernel=kernel).fit(X + offset) for offset in (0.0, 1e8))
    np.testing.assert_allclose(far.errors_, near.errors_, rtol=1e-3)
    assert far.errors_[-1] * np.sqrt(6) == pytest.approx(rms_error(far, X + 1e8), rel=1e-6)


def test_classes_of_float32_signals_far_off_are_those_of_float64():
    signals, y = np.random.default_rng(0).standard_normal((100, 6)), X[np.arange(100) % 40, 0] > 0.0
    signals = (signals + 1e4).astype(np.float32)
    single, double = (KDLClassifier(random_state=0).fit(signals.astype(d), y) for d in (np.float32, np.float64))
    found, expected = single.predict_proba(signals), double.predict_proba(signals.astype(np.float64))
    np.testing.assert_allclose(found, expected, atol=0.05)


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("seed", [1, 17, 23])
def test_the_error_of_kdl_is_that_of_its_atoms_where_large_coefficients_cancel(seed):
    x = np.random.default_rng(seed).standard_normal((100, 1))
    model = KDL(50, kernel="poly", degree=3, init="random", n_nonzero_coefs=10, random_state=0).fit(x)
    wide = x.astype(np.longdouble)
    kernel = (np.longdouble(model.gamma_) * (wide @ wide.T) + 1) ** 3
    combinations = model.transform(x).astype(np.longdouble) @ model.dual_components_
    products = (combinations * kernel).sum(1)
    squares = np.maximum(kernel.diagonal() - 2 * products + ((combinations @ kernel) * combinations).sum(1), 0)
    found = np.sqrt((model.reconstruction_error(x) ** 2).mean())
    assert abs(found - np.sqrt(float(squares.mean()))) < 1e-3 * np.sqrt(float(kernel.diagonal().mean()))


@pytest.mark.parametrize("seed", [0, 2])
def test_the_error_of_kdl_with_more_atoms_than_dimensions(seed):
    groups = np.arange(60) % 2 * 1e3
    signals = np.c_[np.random.default_rng(seed).standard_normal(60) * 1e-3 + 1e3, groups]
    model = KDL(20, kernel="linear", n_nonzero_coefs=3, random_state=0).fit(signals)
    # Residuals of a linear kernel are those of the signals.
    true = np.linalg.norm(model.denoise(signals) - signals, axis=1)
    np.testing.assert_allclose(model.reconstruction_error(signals), true, atol=1e-2)


@pytest.mark.parametrize("kind", [KDL, RKDL])
def test_codes_of_zeros_far_off_are_warned_of(kind):
    signals = np.random.default_rng(0).standard_normal((200, 4))
    model = kind(5, n_nonzero_coefs=2, random_state=0, **({"n_kernel_vectors": 20} if kind is RKDL else {})).fit(
        signals
    )
    torch = pytest.importorskip("torch")
    for far in (signals + 1e4, torch.from_numpy(signals + 1e4)):
        for method in (model.transform, model.reconstruction_error, model.denoise):
            with pytest.warns(UserWarning, match="All codes are zeros"):
                method(far)
