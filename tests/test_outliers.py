"""The outlier detector: its score, what it must withstand, and scikit-learn's conventions."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_wine
from sklearn.exceptions import NotFittedError
from sklearn.metrics import roc_auc_score
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.utils.estimator_checks import parametrize_with_checks

from helpers import poor_models
from rkdl import KDLOutlierDetector, config_context, load

pytestmark = [poor_models, pytest.mark.usefixtures("one_thread")]

FEW = {"n_members": 2, "random_state": 0}


@pytest.fixture(scope="module")
def planted():
    """A ring of signals with a tight cluster, scattered points and one far point among them."""
    rng = np.random.default_rng(0)
    angles = rng.uniform(0.0, 2.0 * np.pi, 400)
    ring = np.c_[np.cos(angles), np.sin(angles)] * rng.normal(3.0, 0.1, (400, 1))
    outliers = np.r_[rng.normal(0.0, 0.05, (12, 2)), rng.uniform(-5.0, 5.0, (8, 2)) * 1.5, [[30.0, 0.0]]]
    return np.r_[ring, outliers], np.r_[np.zeros(400, dtype=int), np.ones(21, dtype=int)]


@pytest.fixture(scope="module")
def detector(planted):
    """A detector of few dictionaries; no test may change it."""
    return KDLOutlierDetector(**FEW).fit(planted[0])


@pytest.mark.slow
@parametrize_with_checks([KDLOutlierDetector(random_state=0)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


class TestScore:
    def test_it_is_the_logarithm_of_what_is_represented(self, planted, detector):
        """Against the reference, from the fitted attributes."""
        X = planted[0][:400:20]
        Z = (X - detector.centre_) / detector.scale_
        means, gamma = [], detector.gamma_
        for vectors, atoms in zip(detector.kernel_vectors_, detector.dual_components_, strict=True):
            gram = np.diag(atoms.any(axis=1).astype(float))
            np.testing.assert_allclose(atoms @ rbf_kernel(vectors, gamma=gamma) @ atoms.T, gram, atol=1e-6)
            explained = ((rbf_kernel(Z, vectors, gamma=gamma) @ atoms.T) ** 2).sum(axis=1)
            # Single signals with one nonzero are the atoms of a narrow kernel, whose anomaly is a squared distance.
            distances = np.sqrt(-2.0 * 60.0 * np.log(rbf_kernel(Z, vectors, gamma=gamma)))
            count = len(vectors) // 16
            few = distances[:, : len(vectors) // count * count].reshape(len(Z), count, -1).min(axis=2).mean(axis=1)
            means.append([-np.log(explained), distances.min(axis=1) ** 2, few**2])
        units, medians, spreads = np.moveaxis(detector.locations_, 2, 0)[..., None]
        expected = -((np.log1p(np.array(means) / units) - medians) / spreads).mean(axis=0).max(axis=0)
        np.testing.assert_allclose(detector.score_samples(X), expected, rtol=1e-4, atol=1e-4)

    def test_far_signals_do_not_tie(self, detector):
        """An RBF residual is 1 for all of them; their order is that of the distance."""
        distances = np.array([1e2, 1e3, 1e5, 1e8, 1e50])
        scores = detector.score_samples(distances[:, None] * np.ones((1, 2)))
        assert (np.diff(scores) < 0).all()
        assert np.isfinite(scores).all()
        # An anomaly, which counts as its logarithm, is proportional to the squared distance.
        np.testing.assert_allclose((scores[4] - scores[3]) / (scores[3] - scores[2]), 42 / 3, rtol=1e-3)

    def test_what_stands_apart_is_not_learned_from(self):
        """A few outliers would become kernel vectors and atoms."""
        rng = np.random.default_rng(1)
        X = np.r_[rng.standard_normal((300, 10)), rng.uniform(-9.0, 9.0, (15, 10))]
        models = [KDLOutlierDetector(novelty=novelty, **FEW).fit(X) for novelty in (False, True)]
        far = [(np.linalg.norm(model.kernel_vectors_, axis=2) > 8.0).any() for model in models]
        assert far == [False, True]

    @pytest.mark.slow
    @pytest.mark.parametrize(("size", "count"), [(1e3, 5), (1e12, 1), (1e36, 5)])
    def test_extreme_values_do_not_hide_the_others(self, size, count):
        X = np.random.default_rng(0).standard_normal((300, 5))
        X[:10] += 6.0
        X[-count:, 0] = size
        scores = KDLOutlierDetector(n_members=4, random_state=0).fit(X).score_samples(X)[:-count]
        assert roc_auc_score(np.arange(len(scores)) < 10, -scores) > 0.99

    def test_features_on_different_scales(self, planted):
        """As a raw table has them; one gross error changes little."""
        X, units = planted[0], np.array([1e-3, 1e6])
        plain, raw = (KDLOutlierDetector(**FEW).fit(rows) for rows in (X, X * units))
        np.testing.assert_allclose(raw.score_samples(X * units), plain.score_samples(X), rtol=1e-6, atol=1e-6)
        broken = np.r_[X, [[1e9, 0.0]]]
        np.testing.assert_allclose(KDLOutlierDetector(**FEW).fit(broken).scale_, plain.scale_, rtol=0.2)
        assert (KDLOutlierDetector(standardize=False, **FEW).fit(X).scale_ == 1.0).all()

    @pytest.mark.slow
    @pytest.mark.parametrize(("scale", "offset", "rtol"), [(1e-60, 0.0, 1e-6), (1e60, 0.0, 1e-6), (1.0, 1e6, 1e-3)])
    def test_scales_and_offsets_change_nothing(self, scale, offset, rtol):
        X = np.random.default_rng(0).standard_t(5, (300, 10))
        expected, found = KDLOutlierDetector(**FEW).fit(X), KDLOutlierDetector(**FEW).fit(X * scale + offset)
        np.testing.assert_allclose(found.score_samples(X * scale + offset), expected.score_samples(X), rtol, rtol)


class TestThreshold:
    def test_scores_are_conventional(self, planted):
        X, _ = planted
        detector = KDLOutlierDetector(contamination=0.05, **FEW).fit(X)
        scores = detector.score_samples(X)
        np.testing.assert_array_equal(detector.decision_function(X), scores - detector.offset_)
        labels = detector.predict(X)
        assert set(labels) == {-1, 1}
        np.testing.assert_array_equal(labels == -1, scores < detector.offset_)
        assert abs((labels == -1).mean() - 0.05) <= 2.0 / len(X)
        assert (clone(detector).fit_predict(X) != labels).sum() <= 1

    def test_auto_finds_the_planted(self, planted):
        X, y = planted
        detector = KDLOutlierDetector(random_state=0).fit(X)
        scores, is_marked = -detector.score_samples(X), detector.predict(X) == -1
        # The cluster inside the ring, which is far from nothing, is among them, and the far point comes first.
        assert min(roc_auc_score(y, scores), roc_auc_score(y[:412], scores[:412])) > 0.95
        assert scores.argmax() == len(X) - 1
        assert is_marked[412:].mean() > 0.7
        assert is_marked[y == 0].mean() < 0.03

    @pytest.mark.parametrize("kind", ["one column", "categories"])
    def test_auto_leaves_normal_signals_alone(self, kind):
        """Of one Gaussian column 11 to 19 % were marked, and of four categories the smallest, 72 of 300 signals."""
        for seed in range(2):
            X = np.random.default_rng(seed).standard_normal((1000, 1))
            X = X if kind == "one column" else np.eye(4)[np.repeat(np.arange(4), [72, 76, 76, 76])]
            assert (KDLOutlierDetector(random_state=seed).fit_predict(X) == -1).mean() <= 0.03

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("shape", "kind", "contamination"),
        [
            *(((1000, 2), "normal", "auto"), ((50, 20), "normal", "auto")),
            *(((50, 20), "heavy", 0.1), ((100, 20), "normal", 0.1), ((200, 2), "normal", 0.1)),
        ],
    )
    def test_share_of_new_inliers(self, shape, kind, contamination):
        """However few signals were learned from: the threshold is set on signals that were not."""
        rng, marked = np.random.default_rng(0), []
        for seed in range(2):
            draw = rng.standard_normal if kind == "normal" else lambda shape: rng.standard_t(3, shape)
            detector = KDLOutlierDetector(random_state=seed, contamination=contamination)
            own = detector.fit_predict(draw(shape)) == -1
            assert contamination == "auto" or own.mean() == pytest.approx(contamination)
            marked.append(np.mean(detector.predict(draw((1000, shape[1]))) == -1))
        assert np.mean(marked) < 0.06 if contamination == "auto" else 0.04 < np.mean(marked) < 0.16

    @pytest.mark.slow
    def test_equal_scores_give_a_warning(self, planted):
        X, _ = planted
        words = r"scores of all \d+ training signals are equal, to within 0.001: .*no outliers. "
        with pytest.warns(UserWarning, match=words + "Either gamma=1e-12 is too small .* 'median'"):
            KDLOutlierDetector(gamma=1e-12, **FEW).fit(X)
        with pytest.warns(UserWarning, match=words + ".* or the signals are copies of few"):
            KDLOutlierDetector(**FEW).fit_predict(np.ones((20, 3)))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for gamma in ("median", "scale", 1.0, 1e6):
                KDLOutlierDetector(gamma=gamma, **FEW).fit(X)
            KDLOutlierDetector(**FEW).fit(np.ones((3, 3)))

    @pytest.mark.slow
    @pytest.mark.parametrize("contamination", ["auto", 0.5])
    @pytest.mark.filterwarnings("ignore:The scores of all")
    def test_ties(self, contamination):
        """Equal signals tie and none is an outlier; copies of one signal are all outliers or all not."""
        X = np.full((50, 3), 2.0)
        detector = KDLOutlierDetector(contamination=contamination, **FEW)
        assert (detector.fit_predict(X) == 1).all()
        assert np.isfinite(detector.score_samples(X)).all()
        # What differs is one.
        assert (detector.predict(np.array([[2.0, 2.0, 2.0], [5.0, 2.0, 2.0]])) == [1, -1]).all()
        X = np.r_[np.random.default_rng(0).standard_normal((40, 3)), np.repeat([[6.0, 6.0, 6.0]], 10, axis=0)]
        for share in (0.1, 0.2, 0.3):
            assert len(set(detector.set_params(contamination=share).fit_predict(X)[40:])) == 1


@pytest.mark.parametrize("load", [load_wine, load_breast_cancer, load_digits, load_iris, load_diabetes])
def test_explanations_name_the_guilty_feature(load):
    """A value beyond the range of the others: its feature is among the first two in nine of ten cases."""
    rng = np.random.default_rng(0)
    X = load(return_X_y=True)[0]
    low, high = np.quantile(X, (0.01, 0.99), axis=0)
    strange, guilty = X[rng.choice(len(X), 20)], rng.choice(np.flatnonzero(high > low), 20)
    strange[np.arange(20), guilty] = (high + (high - low) * rng.uniform(0.5, 1.5, (20, 1)))[np.arange(20), guilty]
    gains = KDLOutlierDetector(random_state=0).fit(X).explain(strange)
    assert (np.argsort(-gains, axis=1)[:, :2] == guilty[:, None]).any(axis=1).mean() >= 0.9


class TestStreams:
    def test_the_detector_follows_the_stream(self):
        """What was normal is forgotten after some half-lives, and memory is bounded."""
        rng = np.random.default_rng(0)
        detector = KDLOutlierDetector(max_samples=50, half_life=200, **FEW)
        for shift in (0.0, 8.0):
            for _ in range(12):
                detector.partial_fit(rng.standard_normal((100, 3)) + shift)
            labels = [(detector.predict(rng.standard_normal((200, 3)) + place) == -1).mean() for place in (0.0, 8.0)]
            assert labels[0 if shift == 0.0 else 1] < 0.05 < 0.9 < labels[1 if shift == 0.0 else 0]
        assert detector.recent_signals_.shape == (250, 3)
        assert detector.n_signals_seen_ == 2400

    def test_without_a_half_life_all_signals_count_alike(self, tmp_path):
        X = np.random.default_rng(0).standard_normal((400, 3))
        detector = KDLOutlierDetector(**FEW)
        for start in range(0, 400, 100):
            detector.partial_fit(X[start : start + 100])
        np.testing.assert_array_equal(detector.recent_signals_, X)
        detector.save(tmp_path / "detector.rkdl")
        both = [model.partial_fit(X[:100]).score_samples(X) for model in (detector, load(tmp_path / "detector.rkdl"))]
        np.testing.assert_array_equal(*both)
        assert not hasattr(detector.fit(X), "recent_signals_")


class TestSignals:
    def test_float32_in_float32_out(self, planted, detector):
        X = planted[0]
        single = KDLOutlierDetector(**FEW).fit(X.astype(np.float32))
        scores, expected = single.score_samples(X.astype(np.float32)), detector.score_samples(X)
        assert scores.dtype == single.decision_function(X.astype(np.float32)).dtype == np.float32
        assert expected.dtype == np.float64
        assert np.corrcoef(scores.argsort().argsort(), expected.argsort().argsort())[0, 1] > 0.99
        # The largest numbers of float32 are far, and have a score.
        far = np.array([[np.finfo(np.float32).max, 0.0], [0.0, -1e30]], dtype=np.float32)
        assert np.isfinite(single.score_samples(far)).all()
        assert (single.predict(far) == -1).all()

    @pytest.mark.slow
    def test_other_sources_and_threads(self, planted, tmp_path):
        X = np.tile(planted[0], (2, 1))
        before = X.copy()
        array, zarr = pytest.importorskip("dask.array"), pytest.importorskip("zarr")
        mapped = np.memmap(tmp_path / "signals", dtype=np.float64, mode="w+", shape=X.shape)
        mapped[:] = X
        detector = KDLOutlierDetector(max_samples=100, n_jobs=1, **FEW)
        expected = clone(detector).fit(X).score_samples(X)
        X.setflags(write=False)
        chunks = {"chunks": (100, 2)}
        for given in (X, sparse.csr_array(X), mapped, array.from_array(X, **chunks), zarr.array(X, **chunks)):
            model = clone(detector).set_params(n_jobs=3).fit(given)
            np.testing.assert_array_equal(model.score_samples(given), expected)
        np.testing.assert_array_equal(X, before)

    def test_threads_see_the_settings_of_the_caller(self, planted):
        with config_context(chunk_rows=(100, 100)):
            for n_jobs in (1, 2):
                # Chunks that are not those of the signals are refused on any thread.
                with pytest.raises(ValueError, match="chunk_rows"):
                    KDLOutlierDetector(n_jobs=n_jobs, **FEW).fit(planted[0])
        with config_context(chunk_rows=37):
            models = [KDLOutlierDetector(n_jobs=n_jobs, **FEW).fit(planted[0]) for n_jobs in (1, 2)]
        np.testing.assert_array_equal(*(model.score_samples(planted[0]) for model in models))

    @pytest.mark.slow
    @pytest.mark.parametrize("n_signals", [2, 3, 5, 11])
    def test_few_signals(self, n_signals):
        X = np.random.default_rng(0).standard_normal((n_signals, 3))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            detector = KDLOutlierDetector(random_state=0).fit(X)
        assert np.isfinite(detector.score_samples(X)).all()
        assert detector.predict([[1e3, 0.0, 0.0]]) == [-1]

    def test_bad_signals(self, planted, tmp_path):
        X = planted[0]
        detector = KDLOutlierDetector(**FEW).fit(X)
        before = detector.score_samples(X)
        broken = sparse.csr_array(X)
        broken.indices[5] = 2
        for bad, words in (
            (np.ma.masked_greater(X, 1.0), r"X is a masked array, and \d+ of its"),
            (broken, "malformed CSR .* column index 2, outside"),
            (np.where(X > 2.0, np.nan, X), "NaN"),
            (np.where(X > 2.0, -np.inf, X), "infinity"),
        ):
            for act in (detector.fit, detector.fit_predict, detector.predict, detector.score_samples):
                with pytest.raises(ValueError, match=words):
                    act(bad)
        # A fit that failed leaves what an earlier one learned.
        np.testing.assert_array_equal(detector.score_samples(X), before)
        for one in ([[1.0, 2.0]], np.memmap(tmp_path / "signals", dtype=np.float64, mode="w+", shape=(1, 2))):
            with pytest.raises(ValueError, match="minimum of 2"):
                KDLOutlierDetector().fit(one)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"n_nonzero_coefs": 2.5}, "n_nonzero_coefs"),
        ({"n_components": 0}, "n_components"),
        *(({"gamma_factor": value}, "gamma_factor") for value in (-1.0, 0.0, np.inf)),
        ({"gamma": "auto"}, "median"),
        ({"standardize": 1}, "standardize"),
        ({"half_life": 0.0}, "half_life"),
        ({"n_members": 0}, "n_members"),
        ({"max_samples": 1}, "max_samples"),
        *(({"contamination": value}, "contamination") for value in (0.0, -0.1, 0.51, "some", None, np.nan)),
    ],
)
def test_bad_parameters(planted, changes, match):
    with pytest.raises(ValueError, match=match):
        KDLOutlierDetector(**changes).fit(planted[0])


def test_fitted_attributes(planted):
    for novelty in (False, True):
        model = KDLOutlierDetector(n_members=3, n_kernel_vectors=40, novelty=novelty, random_state=0).fit(planted[0])
        assert model.kernel_vectors_.shape == (3, 40, 2)
        assert model.dual_components_.shape == (3, 32, 40)
        assert model.locations_.shape == (3, 2 if novelty else 3, 3)


@pytest.mark.slow
def test_round_trips(planted, detector, tmp_path):
    X, scores = planted[0], detector.score_samples(planted[0])
    detector.save(tmp_path / "detector.rkdl")
    loaded = load(tmp_path / "detector.rkdl")
    assert loaded.get_params() == detector.get_params()
    for other in (loaded, pickle.loads(pickle.dumps(detector))):
        np.testing.assert_array_equal(other.score_samples(X), scores)
        np.testing.assert_array_equal(other.predict(X), detector.predict(X))
    # A loaded one can be fitted again with the parameters that it had.
    np.testing.assert_array_equal(clone(loaded).fit(X).score_samples(X), scores)
    with pytest.raises(NotFittedError):
        KDLOutlierDetector().save(tmp_path / "detector.rkdl")


def test_progress(planted, capsys):
    KDLOutlierDetector(verbose=1, **FEW).fit(planted[0])
    assert "KDLOutlierDetector" in capsys.readouterr().err
    KDLOutlierDetector(**FEW).fit(planted[0])
    assert capsys.readouterr().err == ""
