"""Comparisons of dictionaries, beside the best of all matchings and the atoms of linear kernels."""

from __future__ import annotations

import doctest
from itertools import permutations

import numpy as np
import pytest

from helpers import make
from rkdl import DL, KDL, ORKDL, RKDL, FourierDL, KDLOutlierDetector, metrics
from rkdl.metrics import match_atoms, mutual_coherence, recovery_rate, stability


@pytest.fixture
def atoms(rng):
    return rng.standard_normal((6, 9))


class TestMatching:
    def test_best_of_all(self, rng, atoms):
        others = rng.standard_normal((6, 9))
        cosines = np.abs(atoms @ others.T) / np.outer(np.linalg.norm(atoms, axis=1), np.linalg.norm(others, axis=1))
        best = max(permutations(range(6)), key=lambda columns: cosines[range(6), columns].sum())
        indices, matched = match_atoms(atoms, others)
        np.testing.assert_array_equal(indices, best)
        np.testing.assert_allclose(matched, cosines[range(6), best], rtol=1e-12)

    @pytest.mark.parametrize("scale", [1.0, -1e-200, 1e200])
    def test_order_sign_and_length_of_atoms_do_not_matter(self, rng, atoms, scale):
        order = rng.permutation(6)
        learned = scale * (rng.choice([-1.0, 1.0], 6)[:, None] * atoms)[order]
        indices, cosines = match_atoms(atoms, learned)
        np.testing.assert_array_equal(order[indices], np.arange(6))
        np.testing.assert_allclose(cosines, 1.0, rtol=1e-12)
        assert recovery_rate(atoms, learned) == 1.0
        assert stability([atoms, learned, atoms]) == pytest.approx(1.0)

    def test_dictionaries_of_other_sizes(self, atoms):
        indices, cosines = match_atoms(atoms, atoms[[4, 2]])
        np.testing.assert_array_equal(indices, [-1, -1, 1, -1, 0, -1])
        np.testing.assert_allclose(cosines, [0, 0, 1, 0, 1, 0], rtol=1e-12)
        assert recovery_rate(atoms, atoms[[4, 2]]) == pytest.approx(1 / 3)
        assert recovery_rate(atoms[[4, 2]], atoms) == 1.0

    def test_an_atom_that_was_learned_twice_counts_once(self, atoms):
        learned = np.vstack([atoms[:1], -atoms[:1], atoms[2:]])
        assert recovery_rate(atoms, learned) == pytest.approx(5 / 6)
        assert recovery_rate(learned, atoms) == pytest.approx(5 / 6)

    def test_threshold(self):
        learned = [[0.9, np.sqrt(1 - 0.81)], [0.0, 1.0]]
        assert recovery_rate(np.eye(2), learned) == 0.5
        assert recovery_rate(np.eye(2), learned, threshold=0.8) == 1.0


@pytest.mark.parametrize("name", ["DL", "RKDL", "ORKDL"])
def test_planted_features_are_found(name):
    """In the coordinates that a method learns in, whitened where it has kernel vectors."""
    rng = np.random.default_rng(5)
    atoms = rng.standard_normal((30, 12))
    codes = rng.standard_normal((1200, 30)) * (rng.random((1200, 30)).argsort(axis=1) < 2)
    X = codes @ (atoms / np.linalg.norm(atoms, axis=1, keepdims=True))
    X += 0.1 * X.std() * rng.standard_normal(X.shape)
    vectors = rng.standard_normal((30, 12))
    options = {"n_components": 30, "n_nonzero_coefs": 2, "random_state": 0}
    if name == "DL":
        learned = DL(**options).fit(X).components_
    else:
        model = {"RKDL": RKDL, "ORKDL": ORKDL}[name](kernel="linear", kernel_vectors=vectors, **options).fit(X)
        learned = model.dual_components_ @ model.kernel_vectors_
    assert recovery_rate(atoms, learned) >= 0.95


def test_stability_is_the_mean_over_pairs(rng):
    dictionaries = list(rng.standard_normal((3, 5, 4)))
    pairs = [match_atoms(dictionaries[i], dictionaries[j])[1].mean() for i, j in ((0, 1), (0, 2), (1, 2))]
    assert stability(dictionaries) == pytest.approx(np.mean(pairs))


def test_coherence(atoms):
    cosines = np.corrcoef(np.hstack([atoms, -atoms]))
    assert mutual_coherence(np.hstack([atoms, -atoms])) == pytest.approx(np.abs(cosines - np.eye(6)).max())
    assert mutual_coherence(np.vstack([atoms, -2 * atoms[3]])) == pytest.approx(1.0)


def test_tensors(atoms):
    torch = pytest.importorskip("torch")
    assert recovery_rate(torch.from_numpy(atoms), atoms) == 1.0


class TestEstimators:
    def test_linear(self, digits):
        model = make(DL).fit(digits)
        assert recovery_rate(model.components_, model) == 1.0
        assert mutual_coherence(model) == mutual_coherence(model.components_)

    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    def test_atoms_in_feature_space(self, digits, dtype):
        """Under the linear kernel they are signals."""
        first, second = (
            make(RKDL, kernel="linear", random_state=seed).fit(digits[:300].astype(dtype)) for seed in (0, 1)
        )
        as_signals = [model.dual_components_ @ model.kernel_vectors_ for model in (first, second)]
        np.testing.assert_allclose(match_atoms(first, second)[1], match_atoms(*as_signals)[1], rtol=1e-4)
        assert stability([first, second]) == pytest.approx(stability(as_signals), rel=1e-4)

    def test_kernel_methods_of_one_kernel(self, digits):
        models = [make(kind, gamma=1e-3).fit(digits[:200]) for kind in (RKDL, ORKDL, KDL)]
        np.testing.assert_allclose(match_atoms(models[0], models[0])[1], 1.0, rtol=1e-6)
        assert mutual_coherence(models[1]) == pytest.approx(np.abs(models[1].gram_ - np.eye(8)).max())
        assert 0.0 < stability(models) < 1.0

    def test_what_cannot_be_compared(self, digits):
        wide, narrow = (make(RKDL, gamma=gamma).fit(digits[:100]) for gamma in (1e-3, 2e-3))
        with pytest.raises(ValueError, match=r"A and B have different kernels.*such as gamma=0.001"):
            match_atoms(wide, narrow)
        with pytest.raises(ValueError, match=r"learned is a DL without a kernel_: .*atom_preimages"):
            recovery_rate(wide, make(DL).fit(digits[:100]))
        with pytest.raises(ValueError, match=r"true has 64 features and learned 60"):
            recovery_rate(wide, make(RKDL, gamma=1e-3).fit(digits[:100, :60]))
        with pytest.raises(ValueError, match="D is a KDLOutlierDetector without a kernel_"):
            mutual_coherence(KDLOutlierDetector(n_members=2, random_state=0).fit(digits[:100]))
        with pytest.raises(ValueError, match="A is a DL without components_"):
            match_atoms(DL(), np.eye(3))
        with pytest.raises(ValueError, match="different Fourier features"):
            stability([make(FourierDL, random_state=seed).fit(digits[:100]) for seed in (0, 1)])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: match_atoms(np.eye(3), np.eye(4)), "A has 3 features and B 4: .*atoms are the rows"),
        (lambda: match_atoms(np.ones(3), np.eye(3)), "Expected 2D array, got 1D array"),
        (lambda: match_atoms(np.ones((2, 3, 3)), np.eye(3)), "dim 3"),
        (lambda: recovery_rate(np.eye(3), np.diag([1.0, 0.0, 0.0])), r"Atom 1 of learned is zero: .*\(D, 1, 0\)"),
        (lambda: recovery_rate([[1.0, np.nan]], np.eye(2)), "Input true contains NaN"),
        (lambda: mutual_coherence([[1.0, 0.0], [-np.inf, 1.0]]), "Input D contains infinity"),
        (lambda: mutual_coherence(np.ma.masked_less(np.eye(2), 0.5)), "D is a masked array, and 2 of its 4 entries"),
        (lambda: mutual_coherence([[1.0, 2.0]]), "D has one atom"),
        (lambda: recovery_rate(np.eye(2), np.eye(2), threshold=1.0), r"threshold=1.0 .*for example 0.99"),
        (lambda: stability([np.eye(2)]), "The number of dictionaries is 1: give two or more"),
        (lambda: stability([np.eye(2), np.eye(2), np.ones((1, 2))]), r"dictionaries\[0\] has 2 atoms and .*\[2\] 1"),
        (lambda: stability([np.eye(2), np.zeros((2, 2))]), r"Atom 0 of dictionaries\[1\] is zero"),
    ],
)
def test_errors_say_what_to_do(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("name", metrics.__all__)
def test_examples_run(name):
    (test,) = doctest.DocTestFinder(recurse=False).find(getattr(metrics, name), name, globs={})
    runner = doctest.DocTestRunner()
    runner.run(test)
    assert runner.summarize(verbose=False).failed == 0
