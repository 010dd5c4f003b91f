"""The classifier: scikit-learn's manners, what it computes, classes of any size, bad input, saving, Ctrl-C."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits, make_blobs
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Ridge
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import reference
from helpers import is_interrupted, moments, poor_models
from rkdl import DL, KDL, MORKDL, ORKDL, RKDL, FourierDL, KDLClassifier, load

# All of it runs in `make test`; `make check` is for the core.
pytestmark = [poor_models, pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

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


@pytest.fixture(scope="module")
def plain(digits):
    """The classifier of the digits that most tests compare with."""
    return make().fit(*digits[:2])


def expected_failures(estimator):
    if estimator.estimator != "DL":
        return {}
    return {"check_classifiers_train": "lines through the origin of a plane do not tell its blobs apart"}


@parametrize_with_checks(
    [KDLClassifier(random_state=0), KDLClassifier("DL", random_state=0, n_refinements=1)],
    expected_failed_checks=expected_failures,
)
@pytest.mark.filterwarnings("ignore:n_nonzero_coefs", "ignore:n_kernel_vectors")
def test_scikit_learn_checks(estimator, check):
    check(estimator)


class TestParameters:
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
        with pytest.raises(ValueError, match=r"Invalid parameter 'sigma' for estimator KDLClassifier\(\). Valid"):
            KDLClassifier().set_params(sigma=1.0)

    @each_method
    def test_a_name_stands_for_a_method(self, name, blobs):
        X, y = blobs
        model = KDLClassifier(name, random_state=0).fit(X, y)
        assert type(model.method_).__name__ == ("RKDL" if name == "KDL" else name)
        assert model.score(X, y) > 0.9

    def test_grid_search_in_a_pipeline(self, blobs):
        X, y = blobs
        grid = {"kdlclassifier__estimator__gamma": [0.05, 1.0], "kdlclassifier__n_refinements": [0, 1]}
        pipeline = make_pipeline(StandardScaler(), make())
        search = GridSearchCV(pipeline, grid, cv=2, scoring="neg_log_loss", error_score="raise").fit(X, y)
        scores = search.cv_results_["mean_test_score"]
        assert scores.max() > -np.log(3.0)
        assert len(np.unique(scores)) > 1
        assert cross_val_score(make(), X, y, cv=2, error_score="raise").min() > 0.9

    def test_seeds(self, blobs, digits, plain):
        X, y, X_new, _ = digits
        np.testing.assert_array_equal(make().fit(X, y).decision_function(X_new), plain.decision_function(X_new))
        other = make().set_params(random_state=1).fit(X, y).decision_function(X_new)
        assert np.abs(plain.decision_function(X_new) - other).max() > 1e-3
        # The method's own seed counts where there is no other.
        model = make(estimator__random_state=3).set_params(random_state=None)
        np.testing.assert_array_equal(clone(model).fit(*blobs).components_, clone(model).fit(*blobs).components_)

    @pytest.mark.parametrize(
        ("estimator", "message"),
        [
            (KDL(kernel="precomputed"), "Got 'precomputed' instead"),
            (Ridge(), "'estimator' parameter of KDLClassifier"),
            (StandardScaler(), "is not a method that classes can share: give one of DL, FourierDL"),
            ("kdl", "'estimator' parameter of KDLClassifier"),
            (DL(2, init=np.eye(2, 5)), "initial atoms of its own"),
            (RKDL(n_components=0), "'n_components' parameter of RKDL"),
        ],
    )
    def test_methods_that_are_refused(self, estimator, message, blobs):
        with pytest.raises(ValueError, match=message):
            KDLClassifier(estimator).fit(*blobs)

    @pytest.mark.parametrize(
        "parameters", [{"n_refinements": -1}, {"learning_rate": 0.0}, {"calibration_size": 1.0}, {"n_jobs": "two"}]
    )
    def test_out_of_range(self, parameters, blobs):
        with pytest.raises(ValueError, match=next(iter(parameters))):
            make(**parameters).fit(*blobs)


class TestSignals:
    @each_method
    def test_threads_and_dtypes(self, name, digits):
        """Threads change no bit, float32 stays and classifies as well."""
        X, y, X_new, y_new = digits
        alone, together = (make(name, n_jobs=n_jobs).fit(X, y) for n_jobs in (1, 3))
        np.testing.assert_array_equal(alone.components_, together.components_)
        np.testing.assert_array_equal(alone.predict_proba(X_new), together.predict_proba(X_new))
        assert alone.score(X_new, y_new) > 0.85
        single = make(name).fit(X.astype(np.float32), y)
        assert single.components_.dtype == single.grams_.dtype == np.float32
        X_new = X_new.astype(np.float32)
        assert single.decision_function(X_new).dtype == single.predict_proba(X_new).dtype == np.float32
        assert abs(single.score(X_new, y_new) - alone.score(X_new.astype(np.float64), y_new)) < 0.03

    @each_method
    def test_sparse_signals_are_the_dense_ones(self, name, blobs):
        X, y = blobs
        dense, csr = make(name).fit(X, y), make(name).fit(sparse.csr_array(X), y)
        np.testing.assert_allclose(csr.decision_function(sparse.csr_matrix(X)), dense.decision_function(X), atol=1e-8)

    def test_other_sources(self, blobs, tmp_path):
        """Memory maps and tensors in host memory are read as arrays; Dask arrays are refused."""
        X, y = blobs
        before, expected = X.copy(), make().fit(X, y).predict_proba(X)
        np.testing.assert_array_equal(X, before)
        mapped = np.memmap(tmp_path / "signals", dtype=X.dtype, mode="w+", shape=X.shape)
        mapped[:] = X
        np.testing.assert_allclose(make().fit(mapped, y).predict_proba(mapped), expected, atol=1e-8)
        torch, dask = pytest.importorskip("torch"), pytest.importorskip("dask.array")
        found = make().fit(torch.tensor(X), torch.tensor(y)).predict_proba(torch.tensor(X))
        assert isinstance(found, torch.Tensor)
        np.testing.assert_array_equal(found, expected)
        with pytest.raises(ValueError, match="does not take Dask arrays"):
            make().fit(dask.from_array(X), y)

    @pytest.mark.parametrize("labels", [["b", "a", "c"], [-3, 7, 100], [2.0, 1.0, 0.0], [True, False, True]])
    def test_labels_of_any_kind(self, labels, blobs):
        X, y = blobs
        named = np.array(labels)[y]
        found = make().fit(X, named).predict(X)
        assert found.dtype == named.dtype
        assert np.mean(found == named) > 0.9
        if named.dtype.kind == "U":
            as_objects = make().fit(X, named.astype(object)).predict(X)
            assert as_objects.dtype == object
            np.testing.assert_array_equal(as_objects, found)

    def test_two_classes_have_one_score(self, blobs):
        X, y = (part[blobs[1] < 2] for part in blobs)
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

    def test_kdl_learns_what_kdl_of_each_class_learns(self, blobs):
        X, y = blobs
        options = {"n_refinements": 0, "estimator__init": "random", "estimator__max_iter": 30, "estimator__gamma": 0.05}
        model = make("KDL", **options, calibration_size=0.01).fit(X, y)
        own = [KDL(**{**COMMON, "max_iter": 30, "gamma": 0.05}, random_state=0).fit(X[y == k]) for k in range(3)]
        residuals = np.stack([each.reconstruction_error(X) for each in own], axis=1)
        assert np.mean(model.predict(X) == residuals.argmin(axis=1)) > 0.95
        np.testing.assert_allclose(model.kernel_vectors_[np.lexsort(model.kernel_vectors_.T)], X[np.lexsort(X.T)])

    def test_without_refinement_a_class_is_learned_as_rkdl_learns_it(self, digits):
        """Errors fall, and those of a class's own signals are about those of RKDL on the same kernel vectors."""
        X, y, _, _ = digits
        options = {"max_iter": 15, "tol": 0.0, "atom_update": "gram"}
        model = make(n_refinements=0, **{f"estimator__{name}": value for name, value in options.items()}).fit(X, y)
        assert model.n_iter_ == 15
        assert model.errors_[-1] < model.errors_[0]
        own = -model.decision_function(X)[np.arange(len(y)), y]
        assert np.sqrt(own.sum() / X.size) == pytest.approx(model.errors_[-1], rel=0.03)
        alone = clone(METHODS["RKDL"]).set_params(
            kernel_vectors=model.kernel_vectors_, gamma=model.gamma_, max_iter=15, tol=0.0, random_state=0
        )
        expected = np.mean(alone.fit(X[y == 0]).reconstruction_error(X[y == 0]) ** 2)
        assert np.mean(own[y == 0]) == pytest.approx(expected, rel=0.05)

    def test_refinement_lowers_the_cross_entropy(self, digits):
        X, y, X_new, y_new = digits
        plain, refined = (make(n_refinements=count).fit(X, y) for count in (0, 8))
        assert refined.losses_[-1] < 0.7 * refined.losses_[0]
        assert refined.score(X, y) > plain.score(X, y)
        assert refined.score(X_new, y_new) > plain.score(X_new, y_new) - 0.01

    def test_far_signals_are_classified(self, digits):
        X, y, X_new, y_new = digits
        model = make(estimator__gamma=0.1).fit(X, y)
        residuals = -model.decision_function(6.0 * X_new)
        tied = residuals.min(axis=1) == residuals.max(axis=1)
        assert tied.mean() > 0.2
        # Chance would be a tenth.
        assert np.mean(model.predict(6.0 * X_new)[tied] == y_new[tied]) > 0.3

    def test_scores_of_dl_do_not_depend_on_a_signals_length(self, digits):
        X, y, X_new, _ = digits
        model = make("DL").fit(X, y)
        np.testing.assert_allclose(model.decision_function(X_new * 7.0), model.decision_function(X_new), atol=1e-10)
        # A zero signal goes to the first class.
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

    def test_signals_that_tell_nothing_give_a_warning(self):
        """Classes on the same curve, every point of which five atoms represent, and signals of one coordinate."""
        time = np.random.default_rng(0).uniform(0.0, 3.0, 300)
        with pytest.warns(UserWarning, match=r"represents every signal\. Probably the classes overlap.*lower n_non"):
            KDLClassifier(n_refinements=0, random_state=0).fit(np.c_[time, np.sin(time)], np.arange(300) % 2)
        with pytest.warns(UserWarning, match="every class represents all of them"):
            KDLClassifier("DL", random_state=0).fit(np.linspace(1.0, 2.0, 40)[:, None], np.arange(40) % 2)

    def test_they_are_calibrated(self, digits, plain):
        """On signals of neither set as likely as they say, and the likeliest class is the predicted one."""
        _, _, X_new, y_new = digits
        chances = plain.predict_proba(X_new)
        is_right = chances.argmax(axis=1) == y_new
        np.testing.assert_array_equal(plain.classes_[chances.argmax(axis=1)], plain.predict(X_new))
        assert chances.max(axis=1).mean() == pytest.approx(is_right.mean(), abs=0.08)
        assert chances.max(axis=1)[is_right].mean() > chances.max(axis=1)[~is_right].mean() + 0.1

    def test_no_certainty_from_few_signals(self, blobs):
        X, y = blobs
        few = np.concatenate([np.flatnonzero(y == k)[:4] for k in range(3)])
        assert make().fit(X[few], y[few]).predict_proba(X).max() < 0.999


class TestClassesOfAnySize:
    @each_method
    def test_classes_of_one_signal(self, name, blobs):
        X, y = blobs
        X, y = np.vstack([X[y < 2], X[y == 2][:1]]), np.append(y[y < 2], 2)
        model = make(name).fit(X, y)
        assert model.n_atoms_.tolist() == [10, 10, 1]
        assert np.isfinite(model.decision_function(X)).all()
        assert model.predict(X[-1:]) == [2]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = make(name).fit(X[[0, 1, -1]], [0, 1, 2])
        assert model.predict(X[[0, 1, -1]]).tolist() == [0, 1, 2]
        assert np.isfinite(model.predict_proba(X)).all()

    def test_imbalanced(self):
        rng = np.random.default_rng(0)
        X = np.vstack([rng.normal(0.0, 1.0, (500, 4)), rng.normal(4.0, 1.0, (12, 4))])
        model = make().fit(X, np.repeat([0, 1], [500, 12]))
        recall = [np.mean(model.predict(rng.normal(4.0 * k, 1.0, (100, 4))) == k) for k in (0, 1)]
        assert min(recall) > 0.85

    def test_many_classes(self):
        rng = np.random.default_rng(0)
        centres = rng.standard_normal((60, 8)) * 5.0
        y = np.repeat(np.arange(60), 5)
        X = centres[y] + rng.standard_normal((300, 8)) * 0.3
        assert make().fit(X, y).score(centres, np.arange(60)) > 0.95

    def test_equal_classes_tie(self):
        X = np.tile(np.eye(3), (4, 1))
        model = make("DL", n_refinements=0, estimator__n_components=3).fit(X, np.repeat([1, 0], 6))
        np.testing.assert_allclose(model.predict_proba(X), 0.5, atol=1e-6)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = make().fit(np.ones((10, 3)), np.arange(10) % 2)
        assert np.isfinite(model.predict_proba(np.ones((10, 3)))).all()


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
            (np.where(X > 2.0, np.nan, X), "NaN"),
            (np.where(X > 2.0, np.inf, X), "infinity"),
        ):
            for call in (lambda X: model.fit(X, y), model.predict, model.predict_proba, model.decision_function):
                with pytest.raises(ValueError, match=words):
                    call(bad)
        with pytest.raises(ValueError, match="X has 4 features, but KDLClassifier is expecting 5"):
            model.predict(X[:, :4])
        # A fit that failed leaves what an earlier one learned.
        np.testing.assert_array_equal(model.decision_function(X), expected)
        for method in ("predict", "predict_proba", "decision_function"):
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
            (["only"] * 150, "y holds one class, 'only'"),
            (np.ma.masked_equal(np.arange(150) % 2, 0), "y is a masked array"),
            (np.resize(np.array(["a", None], dtype=object), 150), "make them all numbers or all strings"),
            (np.resize(np.array([1, "a", 2.5], dtype=object), 150), "make them all numbers or all strings"),
        ],
    )
    def test_labels(self, y, message, blobs):
        with pytest.raises(ValueError, match=message):
            make().fit(blobs[0], y)

    def test_numbers_of_nonzeros(self, blobs):
        """More than half the coordinates tell nothing, and more than atoms are not to be had."""
        X, y = blobs
        model = make("DL").fit(X, y)
        assert model.n_nonzero_coefs_ == 2
        assert model.score(X, y) > 0.9
        with pytest.warns(UserWarning, match="n_nonzero_coefs=30 exceeds the number of atoms, 10"):
            model = make(estimator__n_nonzero_coefs=30).fit(X, y)
        assert np.isfinite(model.errors_).all()


class TestKeeping:
    @each_method
    def test_saved_and_loaded(self, name, blobs, tmp_path):
        X, y = blobs
        model = make(name).fit(X, np.array(["a", "b", "c"], dtype=object)[y])
        model.save(tmp_path / "model.rkdl")
        again = load(tmp_path / "model.rkdl")
        for other in (again, pickle.loads(pickle.dumps(model))):
            np.testing.assert_array_equal(other.predict_proba(X), model.predict_proba(X))
            np.testing.assert_array_equal(other.predict(X), model.predict(X))
        assert type(again.estimator) is type(model.estimator)
        assert again.estimator.get_params() == model.estimator.get_params()
        np.testing.assert_array_equal(again.fit(X, y).components_, model.fit(X, y).components_)

    def test_names_and_functions(self, blobs, tmp_path):
        X, y = blobs
        KDLClassifier(random_state=0).fit(X, y).save(tmp_path / "model.rkdl")
        assert load(tmp_path / "model.rkdl").estimator == "RKDL"
        model = make(estimator__kernel=rbf_kernel).fit(X, y)
        model.save(tmp_path / "model.rkdl")
        with pytest.raises(ValueError, match=r"load\(path, kernel=...\)"):
            load(tmp_path / "model.rkdl")
        again = load(tmp_path / "model.rkdl", kernel=rbf_kernel)
        np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))


def test_verbose(blobs, capsys):
    make("ORKDL", verbose=1).fit(*blobs)
    shown = capsys.readouterr()
    assert shown.out == ""
    for words in ("KDLClassifier: ", "KDLClassifier: refinement", "cross-entropy", "ORKDL of all classes"):
        assert words in shown.err
    make().fit(*blobs).predict(blobs[0])
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["DL", "ORKDL"])
def test_ctrl_c(name, blobs):
    """At whatever moment: what was learned classifies, and where nothing was, the earlier fit stays."""
    X, y = blobs
    start = make(name, n_jobs=1)
    stretched = X * np.arange(1.0, 6.0)
    earlier = clone(start).fit(stretched, y)
    states = set()
    for moment in moments(lambda: clone(start).fit(X, y)):
        model = pickle.loads(pickle.dumps(earlier))
        is_cut = is_interrupted(lambda: model.fit(X, y), moment)  # noqa: B023
        is_earlier = np.array_equal(model.components_, earlier.components_)
        assert is_cut or not is_earlier
        assert model.score(stretched if is_earlier else X, y) > 0.8
        assert np.isfinite(model.predict_proba(X)).all()
        states.add((is_earlier, model.n_iter_, model.losses_.size))
    # Before, while and after learning.
    assert len(states) >= 3
