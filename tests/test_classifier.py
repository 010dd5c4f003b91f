"""The classifier: scikit-learn's manners, what it computes, weights, streams, missing values, bad input, saving."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_digits, make_blobs, make_moons
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import parametrize_with_checks

import reference
from helpers import is_interrupted, moments, poor_models
from rkdl import KDLClassifier, load

# All of it runs in `make test`; `make check` is for the core.
pytestmark = [poor_models, pytest.mark.slow, pytest.mark.usefixtures("one_thread")]


def make(**changes):
    return KDLClassifier(**{"n_components": 6, "n_kernel_vectors": 60, "random_state": 0, **changes})


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:600] / 16.0, y[:600], X[600:1000] / 16.0, y[600:1000]


@pytest.fixture(scope="module")
def blobs():
    return make_blobs(150, 5, centers=3, cluster_std=2.0, random_state=0)


@pytest.fixture(scope="module")
def plain(digits):
    """The classifier of the digits that most tests compare with."""
    return make().fit(*digits[:2])


@parametrize_with_checks([KDLClassifier(random_state=0)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


class TestParameters:
    def test_grid_search_in_a_pipeline(self, blobs):
        X, y = blobs
        grid = {"kdlclassifier__gamma": [0.05, 1.0], "kdlclassifier__n_components": [2, 4]}
        pipeline = make_pipeline(StandardScaler(), make(n_kernel_vectors=20))
        search = GridSearchCV(pipeline, grid, cv=2, scoring="neg_log_loss", error_score="raise").fit(X, y)
        assert search.cv_results_["mean_test_score"].max() > -0.7
        assert cross_val_score(make(), X, y, cv=2, error_score="raise").min() > 0.9

    def test_seeds(self, digits, plain):
        X, y, X_new, _ = digits
        np.testing.assert_array_equal(make().fit(X, y).decision_function(X_new), plain.decision_function(X_new))
        other = make(random_state=1).fit(X, y).decision_function(X_new)
        assert np.abs(plain.decision_function(X_new) - other).max() > 1e-3

    @pytest.mark.parametrize(
        "parameters", [{"n_components": 0}, {"n_nonzero_coefs": 0}, {"gamma": -1.0}, {"class_weight": "even"}]
    )
    def test_out_of_range(self, parameters, blobs):
        with pytest.raises(ValueError, match=next(iter(parameters))):
            make(**parameters).fit(*blobs)

    def test_more_kernel_vectors_than_signals(self, blobs):
        X, y = (part[:20] for part in blobs)
        assert make().fit(X, y).kernel_vectors_.shape == (12, 5)


class TestSignals:
    def test_threads_and_dtypes(self, digits, plain):
        """Threads change no bit, float32 stays and classifies as well."""
        X, y, X_new, y_new = digits
        together = make(n_jobs=3).fit(X, y)
        np.testing.assert_array_equal(together.components_, plain.components_)
        np.testing.assert_array_equal(together.predict_proba(X_new), plain.predict_proba(X_new))
        assert plain.score(X_new, y_new) > 0.93
        single = make().fit(X.astype(np.float32), y)
        X_new = X_new.astype(np.float32)
        assert single.components_.dtype == single.transform(X_new).dtype == np.float32
        assert single.decision_function(X_new).dtype == single.predict_proba(X_new).dtype == np.float32
        assert abs(single.score(X_new, y_new) - plain.score(X_new.astype(np.float64), y_new)) < 0.03

    def test_units_of_the_signals_do_not_matter(self, blobs):
        X, y = blobs
        plain, scaled = make().fit(X, y), make().fit(1e6 * X + 1e7, y)
        np.testing.assert_allclose(scaled.predict_proba(1e6 * X + 1e7), plain.predict_proba(X), atol=0.05)

    def test_other_sources(self, blobs, tmp_path):
        """CSR matrices, memory maps, Dask arrays and tensors in host memory are read as arrays."""
        X, y = blobs
        before, expected = X.copy(), make().fit(X, y).predict_proba(X)
        np.testing.assert_array_equal(X, before)
        mapped = np.memmap(tmp_path / "signals", dtype=X.dtype, mode="w+", shape=X.shape)
        mapped[:] = X
        for other in (mapped, sparse.csr_array(X)):
            half = make().fit(other, y, np.arange(150) % 2).predict_proba(other)
            np.testing.assert_allclose(half, make().fit(X[1::2], y[1::2]).predict_proba(X), atol=1e-3)
            np.testing.assert_allclose(make().fit(other, y).predict_proba(other), expected, atol=1e-3)
        torch, dask = pytest.importorskip("torch"), pytest.importorskip("dask.array")
        found = make().fit(torch.tensor(X), torch.tensor(y)).predict_proba(torch.tensor(X))
        assert isinstance(found, torch.Tensor)
        np.testing.assert_allclose(found, expected, atol=1e-12)
        lazy = dask.from_array(X, chunks=(40, 2))
        model = make().fit(lazy, dask.from_array(y), sample_weight=dask.ones(150, chunks=20))
        for name in (
            "predict",
            "predict_proba",
            "predict_log_proba",
            "decision_function",
            "class_residuals",
            "transform",
        ):
            found, whole = getattr(model, name)(lazy), getattr(model, name)(X)
            assert isinstance(found, dask.Array)
            assert (found.shape, found.dtype, found.chunks[0]) == (whole.shape, whole.dtype, (40, 40, 40, 30))
            np.testing.assert_array_equal(found.compute(), whole)
        np.testing.assert_array_equal(model.predict_proba(X), expected)

    def test_tensors_are_learned_from_as_arrays_are(self, blobs):
        torch = pytest.importorskip("torch")
        X, y = blobs
        on_device = make(device="cpu").fit(torch.tensor(X), torch.tensor(y))
        assert isinstance(on_device.predict(torch.tensor(X)), torch.Tensor)
        assert on_device.score(torch.tensor(X), torch.tensor(y)) == pytest.approx(
            make().fit(X, y).score(X, y), abs=0.02
        )
        assert on_device.transform(torch.tensor(X)).shape == (150, 60)

    @pytest.mark.parametrize("labels", [["b", "a", "c"], [-3, 7, 100], [2.0, 1.0, 0.0], [True, False, True]])
    def test_labels_of_any_kind(self, labels, blobs):
        X, y = blobs
        named = np.array(labels)[y]
        found = make().fit(X, named).predict(X)
        assert found.dtype == named.dtype
        assert np.mean(found == named) > 0.9

    def test_two_classes_have_one_score(self, blobs):
        X, y = (part[blobs[1] < 2] for part in blobs)
        model = make().fit(X, y)
        scores = model.decision_function(X)
        assert scores.shape == (len(X),)
        np.testing.assert_array_equal(model.predict(X), (scores > 0).astype(int))
        np.testing.assert_allclose(model.predict_proba(X)[:, 1], 1.0 / (1.0 + np.exp(-scores)), atol=1e-8)


class TestWhatIsComputed:
    def test_scores_are_both_readouts_of_the_kernel(self, digits, plain):
        """From the fitted attributes alone, with the plainest pursuit."""
        X_new = digits[2][:8]
        differences = X_new[:, None] - plain.kernel_vectors_
        values = np.exp(-(differences**2) @ plain.gammas_)
        linear = values @ plain.dual_coef_ + plain.intercept_
        scores, residuals = plain.decision_function(X_new), plain.class_residuals(X_new)
        for row, label in np.ndindex(len(X_new), 10):
            correlations = plain.components_[label] @ values[row]
            code = reference.pursuit(plain.grams_[label], correlations, 1.0, 3, kind="ols")
            explained = code @ correlations
            assert residuals[row, label] == pytest.approx(1.0 - explained, abs=1e-5)
            expected = plain.readout_weights_ @ [linear[row, label], plain.sharpness_ * explained]
            assert scores[row, label] == pytest.approx(expected, abs=1e-4)
        np.testing.assert_allclose(np.exp(plain.predict_log_proba(X_new)), plain.predict_proba(X_new))

    def test_atoms_have_unit_norm_in_feature_space(self, plain):
        roots = np.sqrt(plain.gammas_)
        squares = ((plain.kernel_vectors_[:, None] - plain.kernel_vectors_) * roots) ** 2
        atoms, matrix = plain.components_.reshape(-1, 60), np.exp(-squares.sum(2)) + 1e-3 * np.eye(60)
        np.testing.assert_allclose(np.einsum("ip,pq,iq->i", atoms, matrix, atoms), 1.0, atol=1e-3)

    def test_features_go_on_in_a_pipeline(self, digits, plain):
        X, y, X_new, y_new = digits
        features = plain.transform(X_new)
        values = np.exp(-(((X_new[:, None] - plain.kernel_vectors_) ** 2) @ plain.gammas_))
        # Their inner products with those of the kernel vectors are kernel values, but for the ridge.
        found = features @ plain.transform(plain.kernel_vectors_).T
        np.testing.assert_allclose(found, values, atol=0.05)
        assert list(plain.get_feature_names_out()[:1]) == ["kdlclassifier0"]
        pipeline = make_pipeline(make(), LinearSVC()).fit(X, y)
        assert pipeline.score(X_new, y_new) > 0.9

    def test_features_of_noise_are_not_relevant(self):
        """On curved classes in two of twelve features, in the mean over three draws."""
        relevance, scores = [], []
        for seed in range(3):
            X, y = make_moons(600, noise=0.15, random_state=seed)
            noise = np.random.default_rng(seed).standard_normal((600, 10))
            X = np.hstack([StandardScaler().fit_transform(X), noise])
            model = make().fit(X[:400], y[:400])
            relevance.append(model.feature_relevance_)
            scores.append(model.score(X[400:], y[400:]))
        found = np.mean(relevance, axis=0)
        assert found.sum() == pytest.approx(1.0)
        assert found[:2].min() > 1.2 * found[2:].max()
        assert np.mean(scores) > 0.9

    def test_preimages_of_atoms_look_like_signals_of_their_class(self, digits, plain):
        found = plain.atom_preimages()
        assert [part.shape for part in found] == [(6, 64)] * 10
        assert np.mean(plain.predict(np.concatenate(found)) == np.repeat(np.arange(10), 6)) > 0.5

    def test_probabilities_are_calibrated(self, digits, plain):
        """On signals of neither set as likely as they say, and the likeliest class is the predicted one."""
        _, _, X_new, y_new = digits
        chances = plain.predict_proba(X_new)
        is_right = chances.argmax(axis=1) == y_new
        np.testing.assert_array_equal(plain.classes_[chances.argmax(axis=1)], plain.predict(X_new))
        assert chances.max(axis=1).mean() == pytest.approx(is_right.mean(), abs=0.06)

    def test_no_certainty_from_few_signals(self, blobs):
        X, y = blobs
        few = np.concatenate([np.flatnonzero(y == k)[:4] for k in range(3)])
        assert make().fit(X[few], y[few]).predict_proba(X).max() < 0.999


class TestWeights:
    def test_weight_zero_is_absence(self, blobs):
        X, y = blobs
        weights = np.ones(150)
        weights[:50] = 0.0
        wrong = np.where(weights == 0.0, (y + 1) % 3, y)
        wrong[0] = 7
        weighted, without = make().fit(X, wrong, weights), make().fit(X[50:], y[50:])
        np.testing.assert_array_equal(weighted.decision_function(X), without.decision_function(X))

    @pytest.mark.parametrize("class_weight", [None, "balanced"])
    def test_weight_two_is_twice(self, class_weight, blobs):
        """Where numbers are missing too, in any order, and in streams."""
        X, y = np.where(np.random.default_rng(0).random(blobs[0].shape) < 0.05, np.nan, blobs[0]), blobs[1]
        weights = np.arange(150) % 4
        order = np.random.default_rng(0).permutation(weights.sum())
        copies, labels = np.repeat(X, weights, axis=0)[order], np.repeat(y, weights)[order]
        for method, classes in (("fit", ()), ("partial_fit", ([0, 1, 2],))):
            weighted, twice = (getattr(make(class_weight=class_weight), method) for _ in range(2))
            expected = twice(copies, labels, *classes).predict_proba(X)
            np.testing.assert_array_equal(weighted(X, y, *classes, weights).predict_proba(X), expected)

    def test_of_fractions_only_relations_count(self, blobs):
        X, y = blobs
        first, second = make().fit(X, y), make().fit(X, y, np.full(150, 0.8))
        np.testing.assert_allclose(first.predict_proba(X), second.predict_proba(X), atol=1e-6)

    def test_balanced_classes(self):
        rng = np.random.default_rng(0)
        X = np.vstack([rng.normal(0.0, 1.0, (500, 4)), rng.normal(1.5, 1.0, (25, 4))])
        y, X_rare = np.repeat([0, 1], [500, 25]), rng.normal(1.5, 1.0, (300, 4))
        recalls = [np.mean(make(class_weight=w).fit(X, y).predict(X_rare)) for w in (None, "balanced", {0: 1, 1: 20})]
        assert min(recalls[1:]) > recalls[0] + 0.03

    @pytest.mark.parametrize(
        ("weights", "message"), [(np.zeros(150), "at least one non-zero"), (-np.ones(150), "Negative")]
    )
    def test_bad_weights(self, weights, message, blobs):
        with pytest.raises(ValueError, match=message):
            make().fit(*blobs, weights)


class TestStreams:
    def test_batches_are_learned_from(self, digits):
        X, y, X_new, y_new = digits
        model, scores = make(n_kernel_vectors=100), []
        for start in range(0, 600, 150):
            model.partial_fit(X[start : start + 150], y[start : start + 150], classes=np.arange(10))
            scores.append(model.score(X_new, y_new))
        assert scores[-1] > max(scores[0], 0.87)
        assert model.n_iter_ == len(model.losses_) == 4

    def test_from_a_fitted_and_from_a_loaded_model(self, digits, plain, tmp_path):
        _, _, X_new, y_new = digits
        plain.save(tmp_path / "model.rkdl")
        found = []
        for model in (load(tmp_path / "model.rkdl"), pickle.loads(pickle.dumps(plain))):
            model.partial_fit(X_new[:200], y_new[:200])
            assert model.score(X_new[200:], y_new[200:]) > plain.score(X_new[200:], y_new[200:]) - 0.02
            found.append(model.decision_function(X_new))
        np.testing.assert_array_equal(*found)

    def test_classes(self, blobs):
        X, y = blobs
        with pytest.raises(ValueError, match="classes must be passed"):
            make().partial_fit(X, y)
        model = make().partial_fit(X, y, classes=[0, 1, 2, 3])
        assert model.predict_proba(X).shape == (150, 4)
        before = model.decision_function(X)
        with pytest.raises(ValueError, match="none of the classes"):
            model.partial_fit(X, y + 2)
        np.testing.assert_array_equal(model.decision_function(X), before)


class TestMissing:
    def test_at_least_as_good_as_the_mean(self, digits, plain):
        _, _, X_new, y_new = digits
        for share in (0.2, 0.5):
            is_missing = np.random.default_rng(0).random(X_new.shape) < share
            imputed = np.where(is_missing, digits[0].mean(axis=0), X_new)
            found = plain.score(np.where(is_missing, np.nan, X_new), y_new)
            assert found >= plain.score(imputed, y_new) - 0.005

    def test_kernel_values_are_means_over_what_is_missing(self, blobs):
        X, y = blobs
        model = make().fit(X, y)
        row = X[:1].copy()
        row[0, 2] = np.nan
        drawn = np.repeat(row, 20_000, axis=0)
        spread = np.sqrt(model.feature_variances_[2])
        drawn[:, 2] = model.feature_means_[2] + spread * np.random.default_rng(0).standard_normal(20_000)
        np.testing.assert_allclose(model.transform(row)[0], model.transform(drawn).mean(axis=0), atol=0.02)


class TestBadInput:
    def test_signals(self, blobs):
        X, y = blobs
        model = make().fit(X, y)
        expected = model.decision_function(X)
        broken = sparse.csr_array(X)
        broken.indices[5] = -1
        for bad, words in (
            (np.ma.masked_greater(X, 1.0), r"X is a masked array, and \d+ of its"),
            (broken, r"malformed CSR .* column index -1, outside"),
            (np.where(X > 2.0, np.inf, X), "infinity"),
        ):
            for call in (lambda X: model.fit(X, y), model.predict, model.predict_proba, model.decision_function):
                with pytest.raises(ValueError, match=words):
                    call(bad)
        with pytest.raises(ValueError, match="X has 4 features, but KDLClassifier is expecting 5"):
            model.predict(X[:, :4])
        # A fit that failed leaves what an earlier one learned.
        np.testing.assert_array_equal(model.decision_function(X), expected)
        for method in ("predict", "predict_proba", "decision_function", "transform"):
            with pytest.raises(NotFittedError):
                getattr(make(), method)(X)

    @pytest.mark.parametrize(
        ("y", "message"),
        [
            (None, "requires y to be passed"),
            (np.zeros(7), "inconsistent numbers of samples"),
            (np.linspace(0.0, 1.0, 150), "Unknown label type"),
            (np.full(150, np.nan), "contains NaN"),
            (np.zeros((150, 2)), "1d array"),
            (["only"] * 150, "y contains one class, 'only'"),
            (np.ma.masked_equal(np.arange(150) % 2, 0), "y is a masked array"),
            (np.resize(np.array(["a", None], dtype=object), 150), "make them all numbers or all strings"),
        ],
    )
    def test_labels(self, y, message, blobs):
        with pytest.raises(ValueError, match=message):
            make().fit(blobs[0], y)

    def test_small_classes(self, blobs):
        """One signal of a class, and equal signals."""
        X, y = blobs
        X, y = np.vstack([X[y < 2], 3.0 * X[y == 2][:1]]), np.append(y[y < 2], 2)
        assert np.isfinite(make().fit(X, y).predict_proba(X)).all()
        found = make().fit(np.ones((10, 3)), np.arange(10) % 2).predict_proba(np.ones((10, 3)))
        np.testing.assert_allclose(found, 0.5, atol=0.1)


class TestKeeping:
    def test_saved_and_loaded(self, blobs, tmp_path):
        X, y = blobs
        model = make(class_weight="balanced").fit(X, np.array(["a", "b", "c"], dtype=object)[y])
        model.save(tmp_path / "model.rkdl")
        again = load(tmp_path / "model.rkdl")
        for other in (again, pickle.loads(pickle.dumps(model))):
            np.testing.assert_array_equal(other.predict_proba(X), model.predict_proba(X))
            np.testing.assert_array_equal(other.predict(X), model.predict(X))
        assert again.get_params() == model.get_params()


def test_verbose(blobs, capsys):
    make(verbose=1).fit(*blobs)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "KDLClassifier: of all signals" in shown.err
    make().fit(*blobs).predict(blobs[0])
    assert capsys.readouterr() == ("", "")


def test_ctrl_c_leaves_the_earlier_fit(blobs):
    X, y = blobs
    start = make(n_kernel_vectors=10, n_components=1)
    earlier = start.fit(X * np.arange(1.0, 6.0), y).decision_function(X)
    for moment in list(moments(lambda: make(n_kernel_vectors=10, n_components=1).fit(X, y)))[:6]:
        model = pickle.loads(pickle.dumps(start))
        if is_interrupted(lambda: model.fit(X, y), moment):  # noqa: B023
            np.testing.assert_array_equal(model.decision_function(X), earlier)


def test_no_warnings(blobs):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make().fit(*blobs).predict_proba(blobs[0])
