"""The classifier: scikit-learn's manners, what its pieces compute, classes of any size, bad input, saving, Ctrl-C."""

from __future__ import annotations

import importlib
import pickle
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits, make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.metrics import log_loss
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import reference
from helpers import interrupt_after, poor_models
from rkdl import DL, KDL, MORKDL, ORKDL, RKDL, FourierDL, KDLClassifier, load
from rkdl._applications import class_dictionaries as _classes
from rkdl._applications import refinement as _refinement
from rkdl._applications.class_dictionaries import ClassCoder, pad_atoms
from rkdl._applications.refinement import Refinement, fit_sharpness, probabilities
from rkdl._coding.encoder import Pursuit
from rkdl._data.signals import Signals
from rkdl._features.maps import KernelMap, LinearMap
from rkdl._learning import reduced as _learning

# All of it runs in `make test`; `make check` is for the core.
pytestmark = [poor_models, pytest.mark.slow, pytest.mark.usefixtures("one_thread_by_default")]

COMMON = {"n_components": 10, "n_nonzero_coefs": 3, "max_iter": 4}
METHODS = {
    "DL": DL(**COMMON),
    "FourierDL": FourierDL(n_fourier_features=60, **COMMON),
    "KDL": KDL(**COMMON),
    "RKDL": RKDL(n_kernel_vectors=40, kernel_vectors="random", **COMMON),
    "ORKDL": ORKDL(n_kernel_vectors=20, **COMMON),
    "MORKDL": MORKDL(n_kernel_vectors=20, **COMMON),
}
each_method = pytest.mark.parametrize("name", METHODS)


def make(name="RKDL", **changes):
    method = {key.removeprefix("estimator__"): changes.pop(key) for key in list(changes) if "__" in key}
    return KDLClassifier(clone(METHODS[name]).set_params(**method), random_state=0, **changes)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:600] / 16.0, y[:600], X[600:1000] / 16.0, y[600:1000]


@pytest.fixture(scope="module")
def blobs():
    return make_blobs(150, 5, centers=3, cluster_std=2.0, random_state=0)


def expected_failures(estimator):
    if estimator.estimator != "DL":
        return {}
    return {"check_classifiers_train": "lines through the origin of a plane do not tell its blobs apart"}


class TestManners:
    @pytest.mark.slow
    def test_search_over_the_settings_of_a_name(self, blobs):
        X, y = blobs
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            search = GridSearchCV(
                KDLClassifier(random_state=0), {"estimator__gamma": [1e-3, 0.1]}, cv=3, error_score="raise"
            ).fit(X, y)
        assert search.best_estimator_.method_.gamma == search.best_params_["estimator__gamma"]
        names = {"estimator": ["RKDL", "DL"], "estimator__n_components": [8]}
        search = GridSearchCV(KDLClassifier(random_state=0), names, cv=2, error_score="raise").fit(X, y)
        assert search.best_score_ > 0.8

    def test_a_name_with_one_setting_is_the_same_otherwise(self, blobs):
        X, y = blobs
        named = KDLClassifier(random_state=0)
        assert named.get_params()["estimator__gamma"] == "median"
        assert "estimator__gamma" not in named.get_params(deep=False)
        changed = clone(named).set_params(estimator__gamma="median")
        assert isinstance(changed.estimator, RKDL)
        np.testing.assert_array_equal(changed.fit(X, y).components_, named.fit(X, y).components_)
        assert named.estimator == "RKDL"
        assert KDLClassifier("DL").set_params(estimator="FourierDL", estimator__max_iter=3).estimator.max_iter == 3
        with pytest.raises(ValueError, match="Invalid parameter 'sigma'"):
            KDLClassifier().set_params(estimator__sigma=1.0)
        for classifier in (KDLClassifier(), KDLClassifier(ORKDL())):
            with pytest.raises(ValueError, match=r"Invalid parameter 'gamma'.*Set estimator__gamma instead"):
                classifier.set_params(gamma=0.1)
        with pytest.raises(ValueError, match=r"Invalid parameter 'sigma' for estimator KDLClassifier\(\). Valid"):
            KDLClassifier().set_params(sigma=1.0)

    @pytest.mark.slow
    @parametrize_with_checks(
        [
            KDLClassifier(random_state=0),
            *(KDLClassifier(name, random_state=0, n_refinements=1) for name in ("DL", "FourierDL", "ORKDL")),
        ],
        expected_failed_checks=expected_failures,
    )
    @pytest.mark.filterwarnings("ignore:n_nonzero_coefs", "ignore:n_kernel_vectors")
    def test_scikit_learn_checks(self, estimator, check):
        check(estimator)

    def test_kdl_learns_what_kdl_of_each_class_learns(self, blobs):
        X, y = blobs
        options = {"n_refinements": 0, "estimator__init": "random", "estimator__max_iter": 30, "estimator__gamma": 0.05}
        model = make("KDL", **options, calibration_size=0.01).fit(X, y)
        own = [KDL(**{**COMMON, "max_iter": 30, "gamma": 0.05}, random_state=0).fit(X[y == k]) for k in range(3)]
        theirs = np.stack([each.reconstruction_error(X) for each in own], axis=1)
        assert np.mean(model.predict(X) == theirs.argmin(axis=1)) > 0.95
        np.testing.assert_allclose(model.kernel_vectors_[np.lexsort(model.kernel_vectors_.T)], X[np.lexsort(X.T)])

    @each_method
    def test_every_method_classifies_digits(self, name, digits):
        X, y, X_new, y_new = digits
        assert make(name).fit(X, y).score(X_new, y_new) > 0.85

    @pytest.mark.slow
    @pytest.mark.parametrize("name", ["DL", "FourierDL", "KDL", "RKDL", "ORKDL", "MORKDL"])
    def test_a_name_stands_for_a_method(self, name, blobs):
        X, y = blobs
        model = KDLClassifier(name, random_state=0).fit(X, y)
        assert type(model.method_).__name__ == ("RKDL" if name == "KDL" else name)
        assert model.score(X, y) > 0.9

    @pytest.mark.slow
    def test_grid_search_in_a_pipeline(self, blobs):
        X, y = blobs
        pipeline = make_pipeline(StandardScaler(), make())
        grid = {
            "kdlclassifier__estimator__n_nonzero_coefs": [1, 3],
            "kdlclassifier__estimator__gamma": [0.05, 1.0],
            "kdlclassifier__n_refinements": [0, 1],
        }
        search = GridSearchCV(pipeline, grid, cv=3, error_score="raise").fit(X, y)
        assert search.best_score_ > 0.9
        scores = search.cv_results_["mean_test_score"]
        assert len(np.unique(scores)) > 1

    def test_scorers_that_need_probabilities(self, blobs):
        X, y = blobs
        losses = -cross_val_score(make(), X, y, cv=3, scoring="neg_log_loss", error_score="raise")
        assert losses.max() < np.log(3.0)

    @pytest.mark.slow
    @each_method
    def test_threads_do_not_change_the_result(self, name, digits):
        X, y, X_new, _ = digits
        alone, together = (make(name, n_jobs=n_jobs).fit(X, y) for n_jobs in (1, 3))
        np.testing.assert_array_equal(alone.components_, together.components_)
        np.testing.assert_array_equal(alone.predict_proba(X_new), together.predict_proba(X_new))

    def test_the_seed_decides(self, digits):
        X, y, X_new, _ = digits
        first, again = (make().fit(X, y).decision_function(X_new) for _ in range(2))
        np.testing.assert_array_equal(first, again)
        other = make().set_params(random_state=1).fit(X, y).decision_function(X_new)
        assert np.abs(first - other).max() > 1e-3

    def test_the_methods_own_seed_counts_where_there_is_no_other(self, blobs):
        X, y = blobs
        model = make(estimator__random_state=3).set_params(random_state=None)
        np.testing.assert_array_equal(clone(model).fit(X, y).components_, clone(model).fit(X, y).components_)

    @pytest.mark.slow
    @each_method
    def test_float32_stays(self, name, digits):
        X, y, X_new, y_new = (part.astype(np.float32) if part.ndim == 2 else part for part in digits)
        model = make(name).fit(X, y)
        assert model.components_.dtype == model.grams_.dtype == np.float32
        assert model.decision_function(X_new).dtype == model.predict_proba(X_new).dtype == np.float32
        double = make(name).fit(X.astype(np.float64), y)
        assert abs(model.score(X_new, y_new) - double.score(X_new.astype(np.float64), y_new)) < 0.03

    @pytest.mark.slow
    @each_method
    def test_sparse_signals_are_the_dense_ones(self, name, digits):
        X, y, X_new, _ = digits
        dense, csr = make(name).fit(X, y), make(name).fit(sparse.csr_array(X), y)
        np.testing.assert_allclose(
            csr.decision_function(sparse.csr_matrix(X_new)), dense.decision_function(X_new), atol=1e-8
        )

    def test_a_memory_map_is_an_array(self, digits, tmp_path):
        X, y, X_new, _ = digits
        mapped = np.memmap(tmp_path / "signals", dtype=X.dtype, mode="w+", shape=X.shape)
        mapped[:] = X
        np.testing.assert_allclose(
            make().fit(mapped, y).decision_function(X_new), make().fit(X, y).decision_function(X_new), atol=1e-8
        )

    @pytest.mark.parametrize("labels", [["b", "a", "c"], [-3, 7, 100], [2.0, 1.0, 0.0], [True, False, True]])
    def test_labels_of_any_kind(self, labels, blobs):
        X, y = blobs
        named = np.array(labels)[y]
        model = make().fit(X, named)
        assert model.predict(X).dtype == named.dtype
        assert model.score(X, named) > 0.9

    def test_labels_that_are_objects(self, blobs):
        X, y = blobs
        named = np.array(["b", "a", "c"])[y]
        found = make().fit(X, named.astype(object)).predict(X)
        assert found.dtype == object
        np.testing.assert_array_equal(found, make().fit(X, named).predict(X))

    def test_input_is_not_changed(self, blobs):
        X, y = (part.copy() for part in blobs)
        make().fit(X, y).predict(X)
        np.testing.assert_array_equal(X, blobs[0])
        np.testing.assert_array_equal(y, blobs[1])

    def test_two_classes_have_one_score(self, blobs):
        X, y = blobs
        X, y = X[y < 2], y[y < 2]
        model = make().fit(X, y)
        scores = model.decision_function(X)
        assert scores.shape == (len(X),)
        np.testing.assert_array_equal(model.predict(X), (scores > 0).astype(int))
        chances = model.predict_proba(X)
        np.testing.assert_array_equal(chances[:, 1] > 0.5, scores > 0)
        np.testing.assert_allclose(chances.sum(axis=1), 1.0)


class TestWhatIsComputed:
    @pytest.mark.parametrize("pursuit", ["ols", "omp"])
    def test_scores_are_residuals_of_the_plainest_pursuit(self, pursuit, digits):
        """Against the reference, signal by signal and class by class."""
        X, y, X_new, _ = digits
        model = make(estimator__pursuit=pursuit).fit(X, y)
        vectors, gamma = model.kernel_vectors_, model.gamma_
        scores = model.decision_function(X_new[:20])
        features = rbf_kernel(X_new[:20], vectors, gamma=gamma)
        metric = rbf_kernel(vectors, vectors, gamma=gamma)
        for k, count in enumerate(model.n_atoms_):
            atoms = model.components_[k, :count]
            gram = atoms @ metric @ atoms.T
            np.testing.assert_allclose(gram, model.grams_[k, :count, :count], atol=1e-6)
            for t in range(20):
                correlations = atoms @ features[t]
                code = reference.pursuit(gram, correlations, 1.0, 3, kind=pursuit)
                residual = 1.0 - 2.0 * code @ correlations + code @ gram @ code
                assert -scores[t, k] == pytest.approx(residual, abs=1e-6)

    def test_without_refinement_a_class_is_learned_as_rkdl_learns_it(self, digits):
        """The error of a class's signals is about that of RKDL on the same kernel vectors."""
        X, y, _, _ = digits
        model = make(n_refinements=0, estimator__max_iter=20, estimator__tol=0.0).fit(X, y)
        for k in range(3):
            own = X[y == k]
            alone = clone(METHODS["RKDL"]).set_params(
                kernel_vectors=model.kernel_vectors_, gamma=model.gamma_, max_iter=20, tol=0.0, random_state=0
            )
            expected = np.mean(alone.fit(own).reconstruction_error(own) ** 2)
            assert np.mean(-model.decision_function(own)[:, k]) == pytest.approx(expected, rel=0.05)

    def test_errors_fall_and_are_those_of_the_own_class(self, digits):
        X, y, _, _ = digits
        model = make(n_refinements=0, estimator__max_iter=15, estimator__tol=0.0).fit(X, y)
        assert model.n_iter_ == 15
        assert model.errors_[-1] < model.errors_[0]
        own = -model.decision_function(X)[np.arange(len(y)), y]
        assert np.sqrt(own.sum() / X.size) == pytest.approx(model.errors_[-1], rel=0.03)

    def test_the_step_is_along_the_gradient(self):
        """A small step lowers the cross-entropy at the rate that its gradient predicts."""
        rng = np.random.default_rng(0)
        X = rng.standard_normal((40, 6))
        labels = np.arange(40) % 2
        whitened = [rng.standard_normal((8, 6)) for _ in range(2)]
        whitened = [own / np.linalg.norm(own, axis=1, keepdims=True) for own in whitened]
        pursuit, sharpness = Pursuit(2, -1.0, True), 0.5

        def evaluate(atoms):
            padded = [pad_atoms(own) for own in atoms]
            coder = ClassCoder(LinearMap(6), padded, [own @ own.T for own in padded], [pursuit] * 2)
            targets = np.eye(2, dtype=np.int8)[labels]
            groups = [slice(0, 1), slice(1, 2)]
            return _refinement._chunk_gradient(coder, groups, X, np.sum(X**2, axis=1), targets, sharpness)

        loss, gradients, _ = evaluate(whitened)
        for k in range(2):
            gradient = gradients[k][0, :8]
            # Along the sphere, where codes of unit atoms are what the pursuit says.
            gradient -= np.sum(gradient * whitened[k], axis=1, keepdims=True) * whitened[k]
            step = 1e-7
            moved = list(whitened)
            moved[k] = whitened[k] + step * gradient
            moved[k] /= np.linalg.norm(moved[k], axis=1, keepdims=True)
            rate = (evaluate(moved)[0] - loss) / step
            assert rate == pytest.approx(-2.0 * sharpness * np.sum(gradient**2), rel=1e-2)

    def test_refinement_lowers_the_cross_entropy(self, digits):
        X, y, X_new, y_new = digits
        plain, refined = (make(n_refinements=count).fit(X, y) for count in (0, 8))
        assert refined.losses_[-1] < 0.7 * refined.losses_[0]
        assert refined.score(X, y) > plain.score(X, y)
        assert refined.score(X_new, y_new) > plain.score(X_new, y_new) - 0.01

    def test_features_that_do_not_fit_are_computed_again(self, digits, monkeypatch):
        X, y, X_new, _ = digits
        kept = make().fit(X, y).decision_function(X_new)
        for module in (_classes, _refinement):
            monkeypatch.setattr(module, "FEATURE_BYTES", 0)
        np.testing.assert_allclose(make().fit(X, y).decision_function(X_new), kept, atol=1e-8)

    def test_features_are_computed_once_for_all_classes(self, digits, monkeypatch):
        X, y, X_new, _ = digits
        model = make().fit(X, y)
        seen = []
        features = KernelMap.features
        monkeypatch.setattr(KernelMap, "features", lambda self, rows: seen.append(len(rows)) or features(self, rows))
        model.predict(X_new)
        assert sum(seen) == len(X_new)

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_far_signals_are_classified(self, dtype, digits):
        X, y, X_new, y_new = digits
        model = make(estimator__gamma=0.1).fit(X.astype(dtype), y)
        far = ((3.5 if dtype is np.float32 else 6.0) * X_new).astype(dtype)
        residuals = -model.decision_function(far)
        tied = residuals.min(axis=1) == residuals.max(axis=1)
        assert tied.mean() > 0.2
        # Chance would be a tenth.
        assert np.mean(model.predict(far)[tied] == y_new[tied]) > 0.3
        two = make(estimator__gamma=0.1).fit(X[y < 2].astype(dtype), y[y < 2])
        scores = two.decision_function(far)
        np.testing.assert_array_equal(two.predict(far), (scores > 0.0).astype(int))

    def test_one_coordinate_is_warned_of(self):
        X = np.linspace(1.0, 2.0, 40)[:, None]
        with pytest.warns(UserWarning, match="every class represents all of them"):
            KDLClassifier("DL", random_state=0).fit(X, np.arange(40) % 2)

    def test_something_is_held_out_of_small_classes(self, blobs):
        X, y = blobs
        few = np.concatenate([np.flatnonzero(y == k)[:4] for k in range(3)])
        model = make().fit(X[few], y[few])
        assert model.sharpness_ != 10.0

    def test_scores_do_not_depend_on_a_signals_length_with_dl(self, digits):
        X, y, X_new, _ = digits
        model = make("DL").fit(X, y)
        expected = model.decision_function(X_new)
        np.testing.assert_allclose(model.decision_function(X_new * 7.0), expected, atol=1e-10)
        with np.errstate(all="raise", under="ignore"):
            np.testing.assert_allclose(model.decision_function(X_new * 1e60), expected, atol=1e-8)

    def test_a_zero_signal_goes_to_the_first_class(self, digits):
        X, y, _, _ = digits
        model = make("DL").fit(X, y)
        zero = np.zeros((1, X.shape[1]))
        np.testing.assert_array_equal(model.decision_function(zero), np.zeros((1, 10)))
        assert model.predict(zero) == [0]
        np.testing.assert_allclose(model.predict_proba(zero), 0.1)


class TestProbabilities:
    def test_equal_probabilities_give_a_warning(self, blobs):
        X, y = blobs
        words = r"all classes are equally probable, to within 0.001, since the dictionary of every class "
        for gamma, said in ((1e-25, "represents every signal.*too small"), (1e9, "leaves every .*too large")):
            model = make(estimator__gamma=gamma)
            with pytest.warns(UserWarning, match=r"for 90% or more of \d+ held-out signals " + words + said):
                model.fit(X, y)
            with pytest.warns(UserWarning, match="for 90% or more of 150 signals " + words + said):
                model.predict_proba(X + 0.1)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model = make().fit(X, y)
            model.predict_proba(X)
            # A signal or two may be far from all others.
            model.predict_proba(1e6 * X[:4])
        with pytest.warns(UserWarning, match="or these signals lie far from those of fit"):
            model.predict_proba(1e6 * X[:5])

    def test_a_median_gamma_is_not_too_small(self):
        """Classes on the same curve, every point of which five atoms represent."""
        time = np.random.default_rng(0).uniform(0.0, 3.0, 300)
        X = np.c_[time, np.sin(time)]
        with pytest.warns(UserWarning, match=r"represents every signal\. Probably the classes overlap.*lower n_non"):
            KDLClassifier(n_refinements=0, random_state=0).fit(X, np.arange(300) % 2)

    def test_many_signals_are_learned_from_once(self, blobs, monkeypatch):
        """Beyond the largest calibration those held out are left out, however the shares of the classes are rounded."""
        X, y = blobs
        rounds, learn = [], KDLClassifier._learn
        monkeypatch.setattr(KDLClassifier, "_learn", lambda *arguments: rounds.append(1) or learn(*arguments))
        make().fit(X, y)
        assert len(rounds) == 2
        monkeypatch.setattr("rkdl._estimators.classifier.LARGEST_CALIBRATION", 8)
        make().fit(X, y)
        assert len(rounds) == 3

    def test_sharpness_is_the_likeliest(self):
        """Labels drawn from the softmax of residuals give the number that they were drawn with."""
        rng = np.random.default_rng(0)
        residuals = rng.random((20_000, 4))
        chances = probabilities(residuals, 12.0)
        labels = (rng.random((len(residuals), 1)) > np.cumsum(chances, axis=1)).sum(axis=1)
        assert fit_sharpness(residuals, labels) == pytest.approx(12.0, rel=0.05)

    def test_no_certainty_from_few_signals(self):
        """Three signals without an error do not make every probability a one."""
        residuals = np.array([[0.1, 0.5], [0.4, 0.2], [0.1, 0.6]])
        labels = np.array([0, 1, 0])
        chances = probabilities(residuals, fit_sharpness(residuals, labels))
        assert chances.max() < 0.99
        np.testing.assert_array_equal(chances.argmax(axis=1), labels)

    def test_they_are_calibrated(self, digits):
        """Better than the same residuals sharpened or dulled three times, on signals of neither set."""
        X, y, X_new, y_new = digits
        model = make().fit(X, y)
        residuals = -model.decision_function(X_new)
        own, dull, sharp = (
            log_loss(y_new, probabilities(residuals, model.sharpness_ * factor)) for factor in (1.0, 1 / 3, 3.0)
        )
        assert own < min(dull, sharp)
        assert own == pytest.approx(log_loss(y_new, model.predict_proba(X_new)))

    def test_they_agree_with_the_prediction(self, digits):
        X, y, X_new, _ = digits
        model = make().fit(X, y)
        np.testing.assert_array_equal(model.classes_[model.predict_proba(X_new).argmax(axis=1)], model.predict(X_new))


class TestClassesOfAnySize:
    @each_method
    def test_a_class_of_one_signal(self, name, blobs):
        X, y = blobs
        X = np.vstack([X[y < 2], X[y == 2][:1]])
        y = np.append(y[y < 2], 2)
        model = make(name).fit(X, y)
        assert model.n_atoms_.tolist() == [10, 10, 1]
        assert np.isfinite(model.decision_function(X)).all()
        assert model.predict(X[-1:]) == [2]

    @each_method
    def test_one_signal_each(self, name):
        X = np.random.default_rng(0).standard_normal((3, 4))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = make(name).fit(X, [0, 1, 2])
        assert model.predict(X).tolist() == [0, 1, 2]
        assert np.isfinite(model.predict_proba(X)).all()

    def test_imbalanced(self):
        rng = np.random.default_rng(0)
        X = np.vstack([rng.normal(0.0, 1.0, (500, 4)), rng.normal(4.0, 1.0, (12, 4))])
        y = np.repeat([0, 1], [500, 12])
        model = make().fit(X, y)
        new = np.vstack([rng.normal(0.0, 1.0, (100, 4)), rng.normal(4.0, 1.0, (100, 4))])
        recall = [np.mean(model.predict(part) == k) for k, part in enumerate((new[:100], new[100:]))]
        assert min(recall) > 0.85

    def test_many_classes(self):
        rng = np.random.default_rng(0)
        centres = rng.standard_normal((60, 8)) * 5.0
        y = np.repeat(np.arange(60), 5)
        X = centres[y] + rng.standard_normal((300, 8)) * 0.3
        assert make().fit(X, y).score(centres, np.arange(60)) > 0.95

    def test_equal_classes_tie_to_the_first(self):
        X = np.tile(np.eye(3), (4, 1))
        y = np.repeat([1, 0], 6)
        model = make("DL", n_refinements=0, estimator__n_components=3).fit(X, y)
        np.testing.assert_allclose(model.predict_proba(X), 0.5, atol=1e-6)
        assert np.isfinite(model.decision_function(X)).all()

    def test_all_signals_equal(self):
        X = np.ones((10, 3))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = make().fit(X, np.arange(10) % 2)
        assert np.isfinite(model.predict_proba(X)).all()


class TestBadInput:
    def test_masked_and_malformed(self, blobs):
        X, y = blobs
        model = make().fit(X, y)
        broken = sparse.csr_array(X)
        broken.indices[5] = -1
        for call in (lambda X: make().fit(X, y), model.predict, model.predict_proba, model.decision_function):
            with pytest.raises(ValueError, match=r"X is a masked array, and \d+ of its"):
                call(np.ma.masked_greater(X, 1.0))
            with pytest.raises(ValueError, match=r"malformed CSR .* column index -1, outside"):
                call(broken)
        with pytest.raises(ValueError, match="y is a masked array"):
            make().fit(X, np.ma.masked_equal(y, 0))

    def test_one_class(self, blobs):
        X, _ = blobs
        with pytest.raises(ValueError, match=r"y holds one class, 'only'"):
            make().fit(X, ["only"] * len(X))

    @pytest.mark.parametrize(
        ("y", "message"),
        [
            (None, "requires y to be passed"),
            (np.zeros(7), "inconsistent numbers of samples"),
            (np.linspace(0.0, 1.0, 150), "Unknown label type"),
            (np.full(150, np.nan), "contains NaN"),
            (np.zeros((150, 2)), "1d array"),
        ],
    )
    def test_labels(self, y, message, blobs):
        with pytest.raises(ValueError, match=message):
            make().fit(blobs[0], y)

    @pytest.mark.parametrize("value", [np.nan, np.inf])
    @each_method
    def test_not_finite(self, name, value, blobs):
        X, y = (part.copy() for part in blobs)
        model = make(name).fit(X, y)
        X[3, 1] = value
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            make(name).fit(X, y)
        with pytest.raises(ValueError, match=r"NaN|infinity"):
            model.predict(X)

    def test_features_must_agree(self, blobs):
        X, y = blobs
        model = make().fit(X, y)
        with pytest.raises(ValueError, match="X has 4 features, but KDLClassifier is expecting 5"):
            model.predict(X[:, :4])

    def test_not_fitted(self, blobs):
        for method in ("predict", "predict_proba", "decision_function"):
            with pytest.raises(NotFittedError):
                getattr(make(), method)(blobs[0])

    @pytest.mark.parametrize(
        ("estimator", "message"),
        [
            (KDL(kernel="precomputed"), "kernel is precomputed"),
            (Ridge(), "'estimator' parameter of KDLClassifier"),
            (StandardScaler(), "is not a method that classes can share: give one of DL, FourierDL"),
            ("kdl", "'estimator' parameter of KDLClassifier"),
            (DL(2, init=np.eye(2, 5)), "initial atoms of its own"),
            (RKDL(n_components=0), "'n_components' parameter of RKDL"),
        ],
    )
    def test_method(self, estimator, message, blobs):
        with pytest.raises(ValueError, match=message):
            KDLClassifier(estimator).fit(*blobs)

    @pytest.mark.parametrize(
        "parameters", [{"n_refinements": -1}, {"learning_rate": 0.0}, {"calibration_size": 1.0}, {"n_jobs": "two"}]
    )
    def test_parameters(self, parameters, blobs):
        with pytest.raises(ValueError, match=next(iter(parameters))):
            make(**parameters).fit(*blobs)

    def test_more_nonzeros_than_half_the_coordinates_tell_nothing(self, blobs):
        X, y = blobs
        model = make("DL").fit(X, y)
        assert model.n_nonzero_coefs_ == 2
        assert model.score(X, y) > 0.9

    def test_more_nonzeros_than_atoms_warns(self, blobs):
        with pytest.warns(UserWarning, match="n_nonzero_coefs=30 exceeds the number of atoms, 10"):
            model = make(estimator__n_nonzero_coefs=30).fit(*blobs)
        assert np.isfinite(model.errors_).all()

    def test_a_failed_fit_leaves_the_earlier_one(self, blobs):
        X, y = blobs
        model = make().fit(X, y)
        expected = model.decision_function(X)
        with pytest.raises(ValueError, match="one class"):
            model.fit(X[:, :2], np.zeros(len(X)))
        np.testing.assert_array_equal(model.decision_function(X), expected)

    @pytest.mark.parametrize("scale", [1e-60, 1e60])
    @pytest.mark.parametrize("name", ["DL", "RKDL"])
    def test_scales(self, name, scale, blobs):
        X, y = blobs
        model, plain = make(name).fit(X * scale, y), make(name).fit(X, y)
        assert np.mean(model.predict(X * scale) == plain.predict(X)) > 0.98

    def test_kdl_of_more_signals_than_memory_holds(self, blobs, monkeypatch):
        monkeypatch.setattr("rkdl._estimators.class_methods.physical_memory", lambda: 1 << 20)
        with pytest.raises(ValueError, match=r"150 signals.*use RKDL with kernel_vectors='random' and fewer"):
            make("KDL").fit(*blobs)

    @pytest.mark.parametrize("labels", [["a", 1], ["a", None], [1, "a", 2.5]])
    def test_labels_without_an_order(self, labels, blobs):
        y = np.resize(np.array(labels, dtype=object), len(blobs[0]))
        with pytest.raises(ValueError, match="make them all numbers or all strings"):
            make().fit(blobs[0], y)

    def test_tensors_in_host_memory_are_read_as_arrays(self, blobs):
        torch = pytest.importorskip("torch")
        X, y = blobs
        found = make().fit(torch.tensor(X), torch.tensor(y)).predict_proba(torch.tensor(X))
        assert isinstance(found, torch.Tensor)
        np.testing.assert_array_equal(found, make().fit(X, y).predict_proba(X))

    def test_dask_is_refused(self, blobs):
        dask = pytest.importorskip("dask.array")
        with pytest.raises(ValueError, match="does not learn from Dask arrays"):
            make().fit(dask.from_array(blobs[0]), blobs[1])


class TestKeeping:
    @pytest.mark.slow
    @each_method
    def test_saved_and_loaded(self, name, blobs, tmp_path):
        X, y = blobs
        model = make(name).fit(X, np.array(["a", "b", "c"], dtype=object)[y])
        model.save(tmp_path / "model.rkdl")
        again = load(tmp_path / "model.rkdl")
        np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
        np.testing.assert_array_equal(again.predict(X), model.predict(X))
        assert type(again.estimator) is type(model.estimator)
        assert again.estimator.get_params() == model.estimator.get_params()
        np.testing.assert_array_equal(again.fit(X, y).components_, model.fit(X, y).components_)

    def test_a_name_is_saved(self, blobs, tmp_path):
        model = KDLClassifier(random_state=0).fit(*blobs)
        model.save(tmp_path / "model.rkdl")
        assert load(tmp_path / "model.rkdl").estimator == "RKDL"

    def test_a_function_is_given_again(self, blobs, tmp_path):
        X, y = blobs
        model = make(estimator__kernel=rbf_kernel).fit(X, y)
        model.save(tmp_path / "model.rkdl")
        with pytest.raises(ValueError, match=r"load\(path, kernel=...\)"):
            load(tmp_path / "model.rkdl")
        again = load(tmp_path / "model.rkdl", kernel=rbf_kernel)
        np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))

    def test_pickle(self, blobs):
        X, y = blobs
        model = make().fit(X, y)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(X), model.predict_proba(X))


class TestProgress:
    def test_verbose(self, blobs, capsys):
        make(verbose=1).fit(*blobs)
        shown = capsys.readouterr()
        assert shown.out == ""
        assert "KDLClassifier: " in shown.err
        assert "KDLClassifier: refinement" in shown.err
        assert "cross-entropy" in shown.err

    def test_the_moving_of_kernel_vectors_is_shown(self, blobs, capsys):
        make("ORKDL", verbose=1).fit(*blobs)
        assert "ORKDL of all classes" in capsys.readouterr().err

    def test_silent(self, blobs, capsys):
        make().fit(*blobs).predict(blobs[0])
        assert capsys.readouterr() == ("", "")

    @pytest.mark.parametrize("after", [1, 2])
    def test_ctrl_c_while_learning(self, after, blobs, monkeypatch):
        X, y = blobs
        interrupt_after(monkeypatch, after, _classes.ClassProblem, "update")
        model = make()
        with pytest.raises(KeyboardInterrupt, match=f"interrupted after {after} of 4 iterations"):
            model.fit(X, y)
        assert model.n_iter_ == after
        assert model.losses_.size == 0
        assert model.score(X, y) > 0.8

    @pytest.mark.parametrize("estimator", ["RKDL", "ORKDL"])
    def test_ctrl_c_before_anything_is_learned(self, estimator, blobs, monkeypatch):
        """By the first iteration of the classes, or by the second one of the kernel vectors that they share."""
        X, y = blobs
        owner = _classes.ClassProblem if estimator == "RKDL" else _learning.ReducedProblem
        update, count = owner.update, []

        def interrupted(self):
            if len(count) == (estimator == "ORKDL"):
                raise KeyboardInterrupt
            count.append(1)
            update(self)

        model = make(estimator).fit(X, y)
        before = model.predict(X)
        monkeypatch.setattr(owner, "update", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X + 5.0, y)
        monkeypatch.undo()
        np.testing.assert_array_equal(model.predict(X), before)

    def test_ctrl_c_ends_a_search(self, blobs, monkeypatch):
        X, y = blobs
        update, count = _classes.ClassProblem.update, []

        def interrupted(self):
            count.append(1)
            if len(count) > 2:
                raise KeyboardInterrupt
            update(self)

        monkeypatch.setattr(_classes.ClassProblem, "update", interrupted)
        with pytest.raises(KeyboardInterrupt):
            GridSearchCV(make(), {"learning_rate": [0.01, 0.1]}, cv=2, error_score=0.0).fit(X, y)
        assert len(count) == 3

    def test_ctrl_c_while_refining(self, blobs, monkeypatch):
        X, y = blobs
        run_pass, count = Refinement.run_pass, []

        def interrupted(self, *arguments):
            if count:
                raise KeyboardInterrupt
            count.append(1)
            return run_pass(self, *arguments)

        monkeypatch.setattr(Refinement, "run_pass", interrupted)
        model = make(n_refinements=3)
        with pytest.raises(KeyboardInterrupt, match="after 1 of 3 passes"):
            model.fit(X, y)
        assert model.losses_.size == 1
        assert model.score(X, y) > 0.9

    def test_ctrl_c_within_a_pass_keeps_its_steps(self, digits, monkeypatch):
        X, y, _, _ = digits
        step, count = Refinement._step, []

        def interrupted(self, *arguments):
            if len(count) == 3:
                raise KeyboardInterrupt
            count.append(1)
            return step(self, *arguments)

        monkeypatch.setattr(Refinement, "_step", interrupted)
        model = make(learning_rate=0.5)
        with pytest.raises(KeyboardInterrupt, match="after 0 of 2 passes"):
            model.fit(X, y)
        plain = make(n_refinements=0).fit(X, y)
        assert model.score(X, y) > 0.8
        assert np.abs(model.components_).sum() != np.abs(plain.components_).sum()

    def test_ctrl_c_while_calibrating(self, blobs, monkeypatch):
        X, y = blobs

        def interrupted(*arguments):
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr("rkdl._estimators.classifier.relative_residuals", interrupted)
            model = make()
            with pytest.raises(KeyboardInterrupt, match="while it calibrated its probabilities"):
                model.fit(X, y)
        assert model.score(X, y) > 0.9
        assert np.isfinite(model.predict_proba(X)).all()

    @pytest.mark.parametrize("after", [4, 5])
    def test_ctrl_c_in_the_second_round_keeps_the_first(self, after, blobs, monkeypatch):
        X, y = blobs
        interrupt_after(monkeypatch, after, _classes.ClassProblem, "update")
        model = make().set_params(estimator__tol=0.0)
        with pytest.raises(KeyboardInterrupt, match="without the held-out ones"):
            model.fit(X, y)
        assert model.n_iter_ == 4
        assert model.losses_.size == 2


def test_signals_picked_are_rows():
    data = np.arange(12.0).reshape(4, 3)
    picked = _classes.Picked(Signals(data, np.float64), np.array([3, 0, 2]))
    assert picked.shape == (3, 3)
    np.testing.assert_array_equal(picked.read(0, 2), data[[3, 0]])
    np.testing.assert_array_equal(picked.take(np.array([2, 0])), data[[2, 3]])


ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.skipif(not (ROOT / "benchmarks").is_dir(), reason="the benchmark is not part of an installed package")
class TestBenchmark:
    @pytest.fixture
    def benchmark(self, monkeypatch):
        monkeypatch.syspath_prepend(str(ROOT))
        return importlib.import_module("benchmarks.classification")

    @pytest.mark.slow
    def test_it_runs_on_a_few_digits(self, benchmark, tmp_path, capsys):
        benchmark.main(["--small", "--out", str(tmp_path)])
        printed = capsys.readouterr().out
        for name in benchmark.PARTS:
            table = (tmp_path / f"{name}.md").read_text()
            assert table.strip() in printed
            rows = [line for line in table.splitlines() if line.startswith("|")]
            assert len(rows) > 2
            assert len({row.count("|") for row in rows}) == 1
            shares = [float(cell[:-2]) for row in rows[2:] for cell in re.findall(r"[\d.]+ %", row)]
            # Better than guessing one of ten digits, even in the worst of the spoiled images.
            assert min(shares) > 12.0
            assert max(shares) > 70.0

    def test_the_page_has_every_table(self, benchmark, tmp_path):
        text = benchmark.PAGE.read_text()
        page = tmp_path / "page.md"
        page.write_text(text)
        for name in benchmark.PARTS:
            table = text.split(f"<!-- {name} -->")[1].split(f"<!-- end of {name} -->")[0].strip()
            assert "|---|" in table
            benchmark.put(page, name, table.splitlines())
        assert page.read_text() == text

    def test_the_settings_shown_are_those_measured(self, benchmark):
        page, model = benchmark.PAGE.read_text(), benchmark.classifier()
        shown = re.search(r"RKDL\((.*)\)", page).group(1)
        given = eval(f"dict({shown})")
        assert given == {name: model.estimator.get_params()[name] for name in given}
        assert f"n_refinements={model.n_refinements}, random_state={model.random_state}" in page
