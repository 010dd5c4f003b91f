"""The outlier detector: its score, what it must withstand, and scikit-learn's conventions."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from helpers import poor_models
from rkdl import RKDL, KDLOutlierDetector, load
from rkdl._applications.anomaly_scores import LEAST_SPREAD, Member, medcouple, robust_location, upper_fence

pytestmark = [poor_models, pytest.mark.usefixtures("one_thread_by_default")]

FEW = {"n_members": 4, "random_state": 0}


@pytest.fixture(scope="module")
def planted():
    """A ring of signals with a tight cluster, scattered points and one far point among them."""
    rng = np.random.default_rng(0)
    angles = rng.uniform(0.0, 2.0 * np.pi, 400)
    ring = np.c_[np.cos(angles), np.sin(angles)] * rng.normal(3.0, 0.1, (400, 1))
    outliers = np.r_[rng.normal(0.0, 0.05, (12, 2)), rng.uniform(-5.0, 5.0, (8, 2)) * 1.5, [[30.0, 0.0]]]
    return np.r_[ring, outliers], np.r_[np.zeros(400, dtype=int), np.ones(21, dtype=int)]


@pytest.mark.slow
@parametrize_with_checks(
    [KDLOutlierDetector(n_members=2, max_iter=2, random_state=0), KDLOutlierDetector(n_members=2, contamination=0.1)]
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def member_of(X, gamma, n_nonzero):
    """A dictionary whose atoms are the signals themselves."""
    return Member(gamma, X, np.eye(len(X)), rbf_kernel(X, X, gamma=gamma), n_nonzero)


def test_anomaly_is_the_logarithm_of_what_is_represented():
    rng = np.random.default_rng(0)
    vectors, signals = rng.standard_normal((5, 3)), rng.standard_normal((20, 3))
    gram, cross = rbf_kernel(vectors, vectors, gamma=0.3), rbf_kernel(signals, vectors, gamma=0.3)
    explained = np.einsum("ij,ij->i", cross, np.linalg.solve(gram, cross.T).T)
    found = member_of(vectors, 0.3, 5).anomaly(signals)
    np.testing.assert_allclose(found, -np.log(explained), rtol=1e-8)
    # One atom: the nearest signal's.
    found = member_of(vectors, 0.3, 1).anomaly(signals)
    np.testing.assert_allclose(found, -2.0 * np.log(cross.max(axis=1)), rtol=1e-8)


def test_far_signals_do_not_tie():
    """An RBF residual is 1 for all of them; their order is that of the distance."""
    vectors = np.random.default_rng(0).standard_normal((5, 3))
    distances = np.array([1e1, 1e2, 1e3, 1e5, 1e8, 1e100])
    found = member_of(vectors, 1.0, 3).anomaly(distances[:, None] * np.ones((1, 3)))
    assert (np.diff(found) > 0).all()
    np.testing.assert_allclose(found[3:], 2.0 * 3.0 * distances[3:] ** 2, rtol=1e-3)


def test_overflowing_distances_are_far():
    found = member_of(np.eye(2), 1.0, 2).anomaly(np.array([[1e200, 0.0], [1.0, 0.0]]))
    assert found[0] == np.inf
    assert found[1] == pytest.approx(0.0, abs=1e-12)


def test_robust_location_of_ties():
    assert robust_location(np.array([1.0, 2.0, 3.0, 4.0, 5.0])) == (3.0, 2.0)
    assert robust_location(np.ones(10)) == (1.0, LEAST_SPREAD)


def test_outliers_of_every_kind_are_found(planted):
    X, y = planted
    detector = KDLOutlierDetector(random_state=0).fit(X)
    scores = -detector.score_samples(X)
    assert roc_auc_score(y, scores) > 0.95
    assert scores.argmax() == len(X) - 1
    # The cluster inside the ring, which is far from nothing, is among them.
    assert roc_auc_score(y[:412], scores[:412]) > 0.95


@pytest.mark.slow
def test_training_without_the_worst_represented_withstands_outliers():
    """A fifth of the training signals are outliers: what is learned with them represents them."""
    rng = np.random.default_rng(1)
    X = np.r_[rng.standard_normal((400, 10)), 0.3 * rng.standard_normal((100, 10)) + 3.0]
    y = np.r_[np.zeros(400), np.ones(100)]
    areas = {
        discard: np.mean(
            [
                roc_auc_score(y, -KDLOutlierDetector(discard=discard, random_state=seed).fit(X).score_samples(X))
                for seed in range(3)
            ]
        )
        for discard in (0.0, 0.25)
    }
    assert areas[0.25] > areas[0.0] + 0.02


def test_scores_are_conventional(planted):
    X, _ = planted
    detector = KDLOutlierDetector(contamination=0.05, **FEW).fit(X)
    scores = detector.score_samples(X)
    np.testing.assert_array_equal(detector.decision_function(X), scores - detector.offset_)
    labels = detector.predict(X)
    assert set(labels) == {-1, 1}
    np.testing.assert_array_equal(labels == -1, scores < detector.offset_)
    assert abs((labels == -1).mean() - 0.05) <= 1.0 / len(X)
    np.testing.assert_array_equal(clone(detector).fit_predict(X), labels)


def test_median_signal_scores_zero_in_one_dictionary(planted):
    X, _ = planted
    detector = KDLOutlierDetector(8, n_nonzero_coefs=8, gamma_factors=6.0, n_members=1, random_state=0)
    scores = detector.fit(X).score_samples(X)
    assert np.median(scores) == pytest.approx(0.0, abs=1e-9)
    assert np.subtract(*np.quantile(scores, (0.75, 0.25))) == pytest.approx(1.0)


def test_auto_contamination_finds_the_planted_and_fewer_others_than_tukeys_fence(planted):
    X, y = planted
    detector = KDLOutlierDetector(**FEW).fit(X)
    scores = detector.score_samples(X)
    low, high = np.quantile(scores, (0.25, 0.75))
    is_marked = detector.predict(X) == -1
    assert is_marked[y == 1].mean() > 0.9
    assert is_marked[y == 0].mean() < np.mean(scores[y == 0] < low - 1.5 * (high - low))


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(1000, 2), (500, 5), (300, 20)])
def test_auto_contamination_of_clean_signals(shape):
    rng = np.random.default_rng(0)
    detector = KDLOutlierDetector(random_state=0).fit(rng.standard_normal(shape))
    assert np.mean(detector.predict(rng.standard_normal(shape)) == -1) < 0.06


def fresh_share(kind, n_signals, n_features, **options):
    """Share of fresh inliers that is marked, and of training signals by `fit_predict`; means over three seeds."""
    found = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        draw = rng.standard_normal if kind == "normal" else lambda shape, rng=rng: rng.standard_t(3, shape)
        X, fresh = draw((n_signals, n_features)), draw((1000, n_features))
        detector = KDLOutlierDetector(random_state=seed, **options)
        own = detector.fit_predict(X) == -1
        found.append((np.mean(detector.predict(fresh) == -1), own.mean()))
    return np.mean(found, axis=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_signals", "n_features", "kind"),
    [(50, 20, "heavy"), (100, 20, "normal"), (100, 100, "heavy"), (200, 2, "normal")],
)
def test_contamination_holds_for_new_inliers(kind, n_signals, n_features):
    """However few signals were learned from: the threshold is set on signals that were not."""
    fresh, own = fresh_share(kind, n_signals, n_features, contamination=0.1)
    assert 0.04 < fresh < 0.16
    assert own == pytest.approx(0.1)


@pytest.mark.slow
def test_auto_contamination_of_few_clean_signals():
    assert fresh_share("normal", 50, 20)[0] < 0.06


@pytest.mark.slow
def test_one_threshold_where_learning_makes_no_difference():
    """Of many signals for their dimension exactly the share is marked, whoever asks."""
    X = np.random.default_rng(0).standard_normal((300, 2))
    detector = KDLOutlierDetector(contamination=0.1, random_state=0).fit(X)
    labels = detector.predict(X)
    assert np.sum(labels == -1) == 30
    np.testing.assert_array_equal(clone(detector).fit_predict(X), labels)


@pytest.mark.slow
def test_two_thresholds_where_it_does():
    X = np.random.default_rng(0).standard_normal((60, 20))
    detector = KDLOutlierDetector(contamination=0.1, random_state=0)
    assert np.sum(detector.fit_predict(X) == -1) == 6
    assert np.sum(detector.predict(X) == -1) < 6
    strange = np.vstack([X, np.full((2, 20), 5.0)])
    assert (detector.predict(strange)[-2:] == -1).all()


@pytest.mark.slow
def test_the_threshold_changes_no_score(monkeypatch):
    X = np.random.default_rng(0).standard_normal((80, 10))
    detector = KDLOutlierDetector(random_state=0).fit(X)
    monkeypatch.setattr(KDLOutlierDetector, "_folds", lambda self, n_signals, rng: [])
    plain = KDLOutlierDetector(random_state=0).fit(X)
    np.testing.assert_array_equal(detector.score_samples(X), plain.score_samples(X))
    assert detector.offset_ <= plain.offset_


@pytest.mark.parametrize(
    ("n_signals", "n_folds", "least"), [(2, 2, 1), (7, 7, 1), (100, 10, 10), (500, 4, 50), (2000, 1, 200), (4096, 0, 0)]
)
def test_signals_that_are_left_out(n_signals, n_folds, least):
    folds = KDLOutlierDetector()._folds(n_signals, np.random.RandomState(0))
    assert len(folds) == n_folds
    together = np.concatenate([*folds, np.empty(0, dtype=int)])
    assert len(np.unique(together)) == len(together)
    assert all(len(fold) >= least for fold in folds)


@pytest.mark.slow
def test_equal_scores_give_a_warning(planted):
    X, _ = planted
    words = r"scores of all \d+ training signals are equal, to within 0.001: .*no outliers. "
    with pytest.warns(UserWarning, match=words + "Probably gamma=1e-12 is too small .* 'median'"):
        KDLOutlierDetector(gamma=1e-12, **FEW).fit(X)
    with pytest.warns(UserWarning, match=words + "The signals themselves are probably equal"):
        KDLOutlierDetector(**FEW).fit_predict(np.ones((20, 3)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for gamma in ("median", "scale", 1.0, 1e6):
            KDLOutlierDetector(gamma=gamma, **FEW).fit(X)
        KDLOutlierDetector(**FEW).fit(np.ones((3, 3)))


def test_the_fence_is_tukeys_where_nothing_is_skewed():
    values = np.concatenate([np.linspace(-1.0, 1.0, 501), [50.0]])
    low, high = np.quantile(values, (0.25, 0.75))
    assert medcouple(values[:-1]) == pytest.approx(0.0, abs=1e-12)
    assert upper_fence(values) == pytest.approx(high + 1.5 * (high - low), rel=0.02)
    assert medcouple(np.exp(3.0 * values[:-1])) > 0.5
    assert medcouple(-np.exp(3.0 * values[:-1])) < -0.5
    assert medcouple(np.zeros(5)) == 0.0


@pytest.mark.slow
@pytest.mark.parametrize(("size", "count"), [(1e3, 5), (1e12, 1), (1e36, 5), (1e60, 1)])
def test_extreme_values_do_not_hide_the_others(size, count):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 5))
    gamma = RKDL(max_iter=1, random_state=0).fit(X).gamma_
    X[:10] += 6.0
    X[-count:, 0] = size
    scores = KDLOutlierDetector(**FEW).fit(X).score_samples(X)[:-count]
    assert roc_auc_score(np.arange(len(scores)) < 10, -scores) > 0.99
    assert RKDL(max_iter=1, random_state=0).fit(X).gamma_ == pytest.approx(gamma, rel=0.2)


@pytest.mark.parametrize("contamination", [0.0, -0.1, 0.51, 1.0, "some", None, np.nan])
def test_contamination_out_of_range(contamination):
    with pytest.raises(ValueError, match="contamination"):
        KDLOutlierDetector(contamination=contamination).fit(np.eye(5))


@pytest.mark.slow
@pytest.mark.parametrize("contamination", ["auto", 0.1, 0.5])
@pytest.mark.filterwarnings("ignore:The scores of all")
def test_equal_signals_tie_and_none_is_an_outlier(contamination):
    X = np.full((50, 3), 2.0)
    detector = KDLOutlierDetector(contamination=contamination, **FEW).fit(X)
    assert np.isfinite(detector.score_samples(X)).all()
    assert (detector.fit_predict(X) == 1).all()
    # What differs is one.
    assert (detector.predict(np.array([[2.0, 2.0, 2.0], [5.0, 2.0, 2.0]])) == [1, -1]).all()


@pytest.mark.slow
def test_tied_scores_are_labelled_alike():
    """Copies of one signal are all outliers or all not, also where the share would cut them."""
    rng = np.random.default_rng(0)
    X = np.r_[rng.standard_normal((40, 3)), np.repeat([[6.0, 6.0, 6.0]], 10, axis=0)]
    for contamination in (0.1, 0.2, 0.3):
        labels = KDLOutlierDetector(contamination=contamination, **FEW).fit_predict(X)
        assert len(set(labels[40:])) == 1


def test_float32_in_float32_out(planted):
    X, _ = planted
    detector = KDLOutlierDetector(**FEW).fit(X)
    single = KDLOutlierDetector(**FEW).fit(X.astype(np.float32))
    scores = single.score_samples(X.astype(np.float32))
    assert scores.dtype == single.decision_function(X.astype(np.float32)).dtype == np.float32
    assert detector.score_samples(X).dtype == np.float64
    assert np.corrcoef(np.argsort(np.argsort(scores)), np.argsort(np.argsort(detector.score_samples(X))))[0, 1] > 0.99


@pytest.mark.slow
def test_sparse_and_dense_agree(planted):
    X, _ = planted
    rows = sparse.csr_array(X)
    detector = KDLOutlierDetector(**FEW).fit(X)
    np.testing.assert_array_equal(KDLOutlierDetector(**FEW).fit(rows).score_samples(rows), detector.score_samples(X))


@pytest.mark.slow
def test_memory_map_and_array_agree(planted, tmp_path):
    X, _ = planted
    mapped = np.memmap(tmp_path / "signals", dtype=np.float64, mode="w+", shape=X.shape)
    mapped[:] = X
    detector = KDLOutlierDetector(max_samples=100, **FEW)
    expected = clone(detector).fit(X).score_samples(X)
    np.testing.assert_array_equal(detector.fit(mapped).score_samples(mapped), expected)


@pytest.mark.slow
def test_dask_and_zarr_arrays_agree_with_arrays(planted):
    array, zarr = pytest.importorskip("dask.array"), pytest.importorskip("zarr")
    X, _ = planted
    detector = KDLOutlierDetector(max_samples=100, **FEW)
    expected = clone(detector).fit(X).score_samples(X)
    for signals in (array.from_array(X, chunks=(100, 2)), zarr.array(X, chunks=(100, 2))):
        np.testing.assert_array_equal(clone(detector).fit(signals).score_samples(signals), expected)


@pytest.mark.slow
@pytest.mark.parametrize("n_jobs", [2, 5])
def test_threads_change_nothing(planted, n_jobs):
    X, _ = planted
    X = np.tile(X, (4, 1))
    one = KDLOutlierDetector(n_jobs=1, **FEW).fit(X)
    several = KDLOutlierDetector(n_jobs=n_jobs, **FEW).fit(X)
    np.testing.assert_array_equal(one.score_samples(X), several.score_samples(X))
    assert one.offset_ == several.offset_


@pytest.mark.slow
def test_a_random_state_is_drawn_from(planted):
    X, _ = planted
    rng = np.random.RandomState(0)
    first, second = (KDLOutlierDetector(n_members=2, random_state=rng).fit(X).score_samples(X) for _ in range(2))
    assert not np.array_equal(first, second)
    again = KDLOutlierDetector(n_members=2, random_state=np.random.RandomState(0)).fit(X).score_samples(X)
    np.testing.assert_array_equal(first, again)


@pytest.mark.slow
def test_round_trips(planted, tmp_path):
    X, _ = planted
    detector = KDLOutlierDetector(**FEW).fit(X)
    scores = detector.score_samples(X)
    detector.save(tmp_path / "detector.rkdl")
    loaded = load(tmp_path / "detector.rkdl")
    assert loaded.get_params() == detector.get_params()
    for other in (loaded, pickle.loads(pickle.dumps(detector))):
        np.testing.assert_array_equal(other.score_samples(X), scores)
        np.testing.assert_array_equal(other.predict(X), detector.predict(X))
    # A loaded one can be fitted again with the parameters that it had.
    np.testing.assert_array_equal(clone(loaded).fit(X).score_samples(X), scores)


def test_save_before_fit(tmp_path):
    with pytest.raises(NotFittedError):
        KDLOutlierDetector().save(tmp_path / "detector.rkdl")


@pytest.mark.slow
def test_pipeline_and_grid_search(planted):
    X, y = planted
    pipeline = make_pipeline(StandardScaler(), KDLOutlierDetector(n_members=2, random_state=0))
    grid = {
        "kdloutlierdetector__discard": [0.0, 0.25],
        "kdloutlierdetector__n_components": [8, (32, 8)],
    }
    search = GridSearchCV(pipeline, grid, cv=2, scoring=lambda model, X, y: roc_auc_score(y, -model.score_samples(X)))
    order = np.random.default_rng(0).permutation(len(X))
    search.fit(X[order], y[order])
    assert search.best_score_ > 0.85
    assert set(search.predict(X)) <= {-1, 1}


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1e-60, 1e60])
def test_extreme_scales(scale):
    """The scores are those of the same signals at a scale of one, but for rounding."""
    X = np.random.default_rng(0).standard_t(5, (300, 10))
    expected = KDLOutlierDetector(**FEW).fit(X)
    found = KDLOutlierDetector(**FEW).fit(X * scale)
    np.testing.assert_allclose(found.score_samples(X * scale), expected.score_samples(X), rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(found.predict(X * scale), expected.predict(X))


def test_an_offset_changes_nothing():
    X = np.random.default_rng(0).standard_t(5, (300, 10))
    expected = KDLOutlierDetector(n_members=1, random_state=0).fit(X).score_samples(X)
    found = KDLOutlierDetector(n_members=1, random_state=0).fit(X + 1e6).score_samples(X + 1e6)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.slow
def test_signals_beyond_the_range_of_numbers(planted):
    X, _ = planted
    for dtype in (np.float32, np.float64):
        detector = KDLOutlierDetector(**FEW).fit(X.astype(dtype))
        far = np.array([[np.finfo(dtype).max, 0.0], [0.0, -1e30]], dtype=dtype)
        assert np.isfinite(detector.score_samples(far)).all()
        assert (detector.predict(far) == -1).all()


def test_masked_and_malformed(planted):
    X = planted[0]
    detector = KDLOutlierDetector(n_members=2, random_state=0)
    broken = sparse.csr_array(X)
    broken.indices[5] = X.shape[1]
    fitted = clone(detector).fit(X)
    for act in (clone(detector).fit, clone(detector).fit_predict, fitted.predict, fitted.score_samples):
        with pytest.raises(ValueError, match=r"X is a masked array, and \d+ of its"):
            act(np.ma.masked_greater(X, 1.0))
        with pytest.raises(ValueError, match=f"malformed CSR .* column index {X.shape[1]}, outside"):
            act(broken)


@pytest.mark.slow
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_not_finite(planted, value):
    X, _ = planted
    bad = X.copy()
    bad[7, 1] = value
    detector = KDLOutlierDetector(**FEW).fit(X)
    before = detector.score_samples(X)
    for act in (detector.fit, detector.score_samples, detector.predict):
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            act(bad)
    # A fit that failed leaves what an earlier one learned.
    np.testing.assert_array_equal(detector.score_samples(X), before)


@pytest.mark.slow
@pytest.mark.parametrize("n_signals", [2, 3, 5, 11])
def test_few_signals(n_signals):
    X = np.random.default_rng(0).standard_normal((n_signals, 3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        detector = KDLOutlierDetector(random_state=0).fit(X)
    assert np.isfinite(detector.score_samples(X)).all()
    assert detector.predict([[1e3, 0.0, 0.0]]) == [-1]


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"n_components": (32, 8, 4)}, "n_components has 3 values and gamma_factors 2"),
        ({"n_nonzero_coefs": (2.5, 1.0)}, "n_nonzero_coefs"),
        ({"n_components": (32, 0)}, "n_components"),
        ({"n_components": []}, "n_components"),
        ({"gamma_factors": (-1.0, 1.0)}, "gamma_factors"),
        ({"gamma_factors": (np.inf, 1.0)}, "finite"),
        ({"gamma": "auto"}, "median"),
        ({"discard": 1.0}, "discard"),
        ({"n_members": 0}, "n_members"),
        ({"max_samples": 1}, "max_samples"),
    ],
)
def test_bad_parameters(planted, changes, match):
    with pytest.raises(ValueError, match=match):
        KDLOutlierDetector(**changes).fit(planted[0])


def test_one_signal_is_refused(tmp_path):
    with pytest.raises(ValueError, match="minimum of 2"):
        KDLOutlierDetector().fit([[1.0, 2.0]])
    mapped = np.memmap(tmp_path / "signals", dtype=np.float64, mode="w+", shape=(1, 2))
    with pytest.raises(ValueError, match="minimum of 2"):
        KDLOutlierDetector().fit(mapped)


def test_input_is_not_changed(planted):
    X = planted[0].copy()
    X.setflags(write=False)
    KDLOutlierDetector(**FEW).fit(X).predict(X)
    np.testing.assert_array_equal(X, planted[0])


def test_fitted_attributes(planted):
    X, _ = planted
    detector = KDLOutlierDetector(n_members=3, n_kernel_vectors=40, random_state=0).fit(X)
    assert detector.kernel_vectors_.shape == (3, 40, 2)
    assert detector.dual_components_.shape == (3, 32, 40)
    assert detector.grams_.shape == (3, 32, 32)
    assert detector.sizes_.tolist() == [[32, 16], [8, 8], [32, 16]]
    np.testing.assert_allclose(detector.gammas_[1] / detector.gammas_[0], 60.0)


@pytest.mark.slow
def test_progress(planted, capsys):
    KDLOutlierDetector(verbose=1, **FEW).fit(planted[0])
    assert "KDLOutlierDetector" in capsys.readouterr().err
    KDLOutlierDetector(**FEW).fit(planted[0])
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_a_digit_among_others():
    """One class of digits, with a few of the other classes among them."""
    X, y = load_digits(return_X_y=True)
    rng = np.random.default_rng(0)
    strange = rng.permutation(np.flatnonzero(y != 1))[:15]
    X, y = np.r_[X[y == 1], X[strange]], np.r_[np.zeros((y == 1).sum()), np.ones(15)]
    detector = make_pipeline(StandardScaler(), KDLOutlierDetector(random_state=0)).fit(X)
    assert roc_auc_score(y, -detector.score_samples(X)) > 0.95
