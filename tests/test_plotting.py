"""Displays draw the numbers of the estimators that they are made from."""

from __future__ import annotations

import doctest
import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_digits, make_moons
from sklearn.exceptions import NotFittedError
from sklearn.inspection import DecisionBoundaryDisplay
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer, StandardScaler

from helpers import KERNEL, by_class, make
from rkdl import DL, ORKDL, RKDL, FourierDL, KDLClassifier, KDLOutlierDetector, plotting
from rkdl.metrics import match_atoms
from rkdl.plotting import (
    AtomsDisplay,
    CodesDisplay,
    ErrorCurveDisplay,
    FeatureRelevanceDisplay,
    KernelVectorsDisplay,
    ReconstructionDisplay,
    RecoveryDisplay,
    ResidualsDisplay,
)

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def labels():
    return load_digits().target


@pytest.fixture(scope="module")
def model(digits):
    return make(ORKDL).fit(digits)


@pytest.fixture(scope="module")
def classifier(digits, labels):
    return KDLClassifier(10, n_kernel_vectors=40, random_state=0).fit(digits[:600], labels[:600])


@pytest.fixture(scope="module")
def moons():
    return make_moons(200, noise=0.1, random_state=0)


class TestPreimages:
    """`atom_preimages`, the signals that are shown for atoms."""

    def test_of_linear_methods_are_the_atoms(self, digits):
        dl = make(DL).fit(digits)
        np.testing.assert_array_equal(dl.atom_preimages(), dl.components_)
        linear = make(RKDL, kernel="linear", kernel_vectors="random").fit(digits)
        np.testing.assert_allclose(linear.atom_preimages(), linear.dual_components_ @ linear.kernel_vectors_)

    @by_class([*KERNEL, FourierDL])
    def test_come_close_to_their_atoms(self, kind, digits):
        """No signal of the training set has an image closer to an atom, or to its negative, than the pre-image."""
        fitted = make(kind, **({"fit_inverse_transform": True} if kind is FourierDL else {})).fit(digits[:300])
        signals = fitted.atom_preimages()
        assert signals.shape == (8, 64)

        def products(rows):
            if kind is not FourierDL:
                return fitted.kernel_(rows, fitted.kernel_vectors_) @ fitted.dual_components_.T
            phases = rows @ fitted.frequencies_.T
            features = np.hstack([np.cos(phases), np.sin(phases)]) / np.sqrt(len(fitted.frequencies_))
            return features @ fitted.components_.T

        found, nearest = np.abs(products(signals).diagonal()), np.abs(products(digits[:300])).max(axis=0)
        # A linear decoder is no maximiser.
        assert (found >= (0.8 if kind is FourierDL else 0.999) * nearest).all()

    def test_of_an_atom_and_its_negative_are_the_same(self, digits):
        fitted = make(RKDL).fit(digits)
        before = fitted.atom_preimages()
        fitted.dual_components_ = np.where(np.arange(8) % 2, 1.0, -1.0)[:, None] * fitted.dual_components_
        # To the accuracy at which the iteration stops.
        np.testing.assert_allclose(fitted.atom_preimages(), before, atol=1e-5)
        assert not np.allclose(fitted.inverse_transform(np.eye(8)), before)

    def test_need_a_decoder_for_other_kernels(self, digits):
        fitted = make(RKDL, kernel="poly").fit(digits)
        with pytest.raises(NotFittedError, match="fit_decoder"):
            fitted.atom_preimages()
        assert np.isfinite(fitted.fit_decoder(digits).atom_preimages()).all()


class TestAtoms:
    def test_are_drawn_class_by_class(self, classifier):
        display = AtomsDisplay.from_estimator(classifier, image_shape=(8, 8), n_columns=10)
        drawn = np.asarray(display.image_.get_array())
        np.testing.assert_array_equal(drawn[9:17, :8], classifier.atom_preimages()[1][0].reshape(8, 8))

    def test_images_side_by_side(self, model):
        display = AtomsDisplay.from_estimator(model, image_shape=(8, 8), n_columns=4)
        drawn = np.asarray(display.image_.get_array())
        assert drawn.shape == (2 * 9 - 1, 4 * 9 - 1)
        atoms = model.atom_preimages().reshape(-1, 8, 8)
        np.testing.assert_array_equal(drawn[:8, :8], atoms[0])
        np.testing.assert_array_equal(drawn[9:, 27:], atoms[7])
        assert np.ma.getmaskarray(display.image_.get_array())[8].all(), "gaps are transparent"
        assert display.figure_ is display.ax_.figure
        assert display.ax_ is not display.plot(cmap="viridis").ax_
        assert display.image_.get_cmap().name == "viridis"

    def test_colours_say_whether_there_are_negative_values(self, model, digits):
        assert AtomsDisplay.from_estimator(model, image_shape=(8, 8)).image_.get_cmap().name == "gray"
        signed = make(DL).fit(digits - digits.mean(axis=0))
        image = AtomsDisplay.from_estimator(signed, image_shape=(8, 8)).image_
        low, high = image.get_clim()
        assert (image.get_cmap().name, low) == ("RdBu_r", -high)
        assert np.quantile(np.abs(signed.components_), 0.99) < high <= np.abs(signed.components_).max()
        extreme = np.full((100, 64), 0.9)
        extreme[3, 5] = 500.0
        low, high = AtomsDisplay(extreme, image_shape=(8, 8)).plot().image_.get_clim()
        assert (low, high) == (0.0, pytest.approx(0.9)), "one pixel does not hide the others"

    def test_images_with_colours(self, rng):
        images = rng.uniform(0.0, 255.0, (60, 4 * 5 * 3))
        display = AtomsDisplay(images[:6], image_shape=(4, 5, 3)).plot(n_columns=3)
        drawn = np.asarray(display.image_.get_array())
        assert (drawn.shape, drawn.min(), drawn.max()) == ((9, 17, 3), 0.0, 1.0)

    def test_signals_one_above_the_other(self, model):
        display = AtomsDisplay.from_estimator(model, numbers=[5, 2])
        found = [line.get_ydata() for line in display.lines_]
        atoms = model.atom_preimages()
        np.testing.assert_allclose(found[0], atoms[5])
        assert np.ptp(atoms[2] - found[1]) < 1e-9
        assert [tick.get_text() for tick in display.ax_.get_yticklabels()] == ["5", "2"]

    def test_points_in_the_plane_in_the_units_of_a_pipeline(self, moons):
        X = 100.0 * moons[0]
        pipeline = make_pipeline(StandardScaler(), make(RKDL)).fit(X)
        display = AtomsDisplay.from_estimator(pipeline, X=X)
        expected = pipeline[0].inverse_transform(pipeline[-1].atom_preimages())
        np.testing.assert_allclose(display.points_.get_offsets(), expected)

    def test_wrong_shapes_and_pipelines(self, model, moons):
        with pytest.raises(ValueError, match=r"image_shape=\(7, 8\) does not fit signals of 64 features"):
            AtomsDisplay.from_estimator(model, image_shape=(7, 8))
        with pytest.raises(ValueError, match="Normalizer"):
            AtomsDisplay.from_estimator(make_pipeline(Normalizer(), make(RKDL)).fit(moons[0]))


class TestNames:
    """Axes carry the column names of a data frame."""

    @pytest.fixture
    def table(self, rng):
        pd = pytest.importorskip("pandas")
        return pd.DataFrame(rng.normal(size=(60, 3)), columns=["age", "size", "rent"])

    def test_features_of_signals(self, table):
        pipeline = make_pipeline(StandardScaler(), ORKDL(n_components=30, n_kernel_vectors=30, max_iter=1)).fit(table)
        for display in (
            AtomsDisplay.from_estimator(pipeline),
            KernelVectorsDisplay.from_estimator(pipeline),
            ReconstructionDisplay.from_estimator(pipeline, table),
        ):
            assert [label.get_text() for label in display.ax_.get_xticklabels()] == ["age", "size", "rent"]
            # Every second or third row of 30 and 60 has a number.
            assert len(display.ax_.get_yticks()) in (15, 20)

    def test_heat_map(self, rng):
        """Columns of different units are comparable, and one without differences is white."""
        atoms = rng.normal(size=(5, 3)) * [1.0, 1e6, 0.0] + 0.1
        display = AtomsDisplay(atoms, feature_names=["age", "size", "rent"]).plot()
        drawn = np.asarray(display.image_.get_array())
        np.testing.assert_allclose(drawn, np.c_[(atoms - atoms.mean(0))[:, :2] / atoms.std(0)[:2], np.zeros(5)])
        assert display.colorbar_.ax.get_ylabel() == "standardised over the atoms"

    def test_features_of_the_plane(self, table):
        plane = table[["age", "rent"]]
        model = make_pipeline(StandardScaler(), RKDL(n_components=4, n_kernel_vectors=8)).fit(plane)
        drawn = KernelVectorsDisplay.from_estimator(model).ax_
        assert (drawn.get_xlabel(), drawn.get_ylabel()) == ("age", "rent")


@pytest.mark.parametrize(
    ("display", "data", "message"),
    [
        (AtomsDisplay, (), "no atom_preimages: give DL, a kernel method"),
        (KernelVectorsDisplay, (), "does not have one set"),
        (FeatureRelevanceDisplay, (), "no feature_relevance_: give a KDLClassifier"),
        (ErrorCurveDisplay, (), "no errors_: only single"),
        (CodesDisplay, (np.eye(64),), "no transform: give DL or a kernel method"),
        (ResidualsDisplay, (np.eye(64),), "no reconstruction_error: give DL or a kernel method"),
        (ReconstructionDisplay, (np.eye(64),), "no denoise: give DL or a kernel method"),
    ],
)
def test_estimators_without_what_is_drawn(display, data, message, digits):
    detector = KDLOutlierDetector(n_members=2, random_state=0).fit(digits[:100])
    with pytest.raises(ValueError, match=message):
        display.from_estimator(detector, *data)


def test_kernel_vectors(model, classifier, digits):
    display = KernelVectorsDisplay.from_estimator(model, image_shape=(8, 8), n_columns=12)
    np.testing.assert_array_equal(np.asarray(display.image_.get_array())[:, :8], model.kernel_vectors_[0].reshape(8, 8))
    shared = KernelVectorsDisplay.from_estimator(classifier, numbers=[3])
    np.testing.assert_array_equal(shared.lines_[0].get_ydata(), classifier.kernel_vectors_[3])
    with pytest.raises(ValueError, match="DL has no kernel_vectors_"):
        KernelVectorsDisplay.from_estimator(make(DL).fit(digits))


def test_error_curves(model, digits, classifier):
    display = ErrorCurveDisplay.from_estimator(model)
    np.testing.assert_array_equal(display.line_.get_ydata(), model.errors_)
    np.testing.assert_array_equal(display.line_.get_xdata(), 1 + np.arange(model.n_iter_))
    np.testing.assert_array_equal(display.update_line_.get_ydata(), model.update_errors_)
    other = ErrorCurveDisplay.from_estimator(make(RKDL).fit(digits), ax=display.ax_, show_updates=False)
    assert other.line_.get_color() != display.line_.get_color()
    assert [text.get_text() for text in other.ax_.get_legend().get_texts()][::2] == ["ORKDL", "RKDL"]
    assert other.ax_ is display.ax_


def test_codes_are_grouped_by_label(model, digits, labels):
    X, y = digits[:50], labels[:50]
    grouped = CodesDisplay.from_estimator(model, X, y)
    np.testing.assert_array_equal(grouped.image_.get_array(), model.transform(X)[np.argsort(y, kind="stable")])
    assert [tick.get_text() for tick in grouped.ax_.get_yticklabels()] == [str(digit) for digit in range(10)]
    assert sum(grouped.image_.get_clim()) == 0.0
    sparse = CodesDisplay(make(ORKDL, sparse_output=True).fit(digits).transform(X)).plot()
    np.testing.assert_array_equal(sparse.image_.get_array(), model.transform(X))
    with pytest.raises(ValueError, match="one label per signal"):
        CodesDisplay.from_estimator(model, X, y[:-1])


def test_residuals(model, digits, labels):
    residuals = model.reconstruction_error(digits)
    display = ResidualsDisplay.from_estimator(model, digits, labels == 0, bins=10)
    counts, edges = np.histogram(residuals[labels == 0], display.edges_)
    np.testing.assert_allclose(display.shares_[1], counts / (labels == 0).sum())
    assert (edges[0], edges[-1], len(edges)) == (residuals.min(), residuals.max(), 11)
    assert [text.get_text() for text in display.ax_.get_legend().get_texts()] == ["False", "True"]
    (shares,) = ResidualsDisplay.from_estimator(model, digits).shares_
    assert shares.sum() == pytest.approx(1.0)


def test_reconstructions(model, digits):
    display = ReconstructionDisplay.from_estimator(model, digits[:3], image_shape=(8, 8))
    drawn = np.asarray(display.image_.get_array())
    found = model.denoise(digits[:3])
    for row, part in enumerate((digits[:3], found, digits[:3] - found)):
        np.testing.assert_allclose(drawn[9 * row : 9 * row + 8, 9:17], part[1].reshape(8, 8))
    assert [text.get_text() for text in display.ax_.texts] == ["signal", "representation", "difference"]
    first, second, *others = ReconstructionDisplay.from_estimator(model, digits[:2], noise=1.0).lines_
    assert len(others) == 2
    difference = digits[0] - model.denoise(digits[:2], noise=1.0)[0]
    np.testing.assert_allclose(first.get_ydata() - second.get_ydata(), difference)
    with pytest.raises(ValueError, match="same shape"):
        ReconstructionDisplay(digits[:2], digits[:3])


def test_feature_relevance(classifier):
    display = FeatureRelevanceDisplay.from_estimator(classifier, max_features=5)
    widths = [bar.get_width() for bar in display.bars_]
    np.testing.assert_allclose(widths, np.sort(classifier.feature_relevance_)[:-6:-1])
    named = FeatureRelevanceDisplay([0.1, 0.9], feature_names=["age", "size"]).plot()
    assert [label.get_text() for label in named.ax_.get_yticklabels()] == ["size", "age"]


def test_recovery(rng):
    true = rng.standard_normal((8, 20))
    learned = np.vstack([-2.0 * true[[5, 1, 6, 2]], rng.standard_normal((4, 20))])
    display = RecoveryDisplay.from_dictionaries(true, learned, name="half")
    np.testing.assert_allclose(display.line_.get_ydata(), np.sort(match_atoms(true, learned)[1])[::-1])
    assert display.line_.get_label() == "half: 50 % found"
    other = RecoveryDisplay([0.8, 0.9], threshold=0.7).plot(display.ax_)
    assert (other.line_.get_label(), set(other.threshold_line_.get_ydata())) == ("100 % found", {0.7})
    assert other.line_.get_color() != display.line_.get_color()


@pytest.mark.parametrize("response", ["predict", "decision_function"])
def test_boundaries_by_scikit_learn(response, moons):
    """Its display takes a classifier with labels of text, in a pipeline, and a detector."""
    X, y = moons
    model = KDLOutlierDetector(n_members=2, random_state=0)
    if response == "predict":
        model = make_pipeline(StandardScaler(), KDLClassifier(random_state=0))
    model.fit(X, np.array(["lower", "upper"])[y])
    display = DecisionBoundaryDisplay.from_estimator(model, X, response_method=response, grid_resolution=20)
    found = getattr(model, response)([[display.xx0[3, 4], display.xx1[3, 4]]])[0]
    expected = ["lower", "upper"].index(found) if response == "predict" else found
    np.testing.assert_allclose(display.response[3, 4], expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", plotting.__all__)
def test_examples_run(name):
    (test,) = doctest.DocTestFinder(recurse=False).find(getattr(plotting, name), name, globs={})
    assert len(test.examples) >= 4
    runner = doctest.DocTestRunner()
    runner.run(test)
    assert runner.summarize(verbose=False).failed == 0


@pytest.mark.slow
def test_without_matplotlib():
    code = """
import sys
sys.modules["matplotlib"] = None
import numpy as np
from rkdl.plotting import ErrorCurveDisplay
try:
    ErrorCurveDisplay(np.ones(3)).plot()
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "pip install 'rkdl[plots]'" in done.stdout
