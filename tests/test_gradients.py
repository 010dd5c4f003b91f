"""Gradients of the objective by the kernel vectors against central differences."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rkdl import MORKDL, ORKDL
from rkdl._features.kernels import RBF
from rkdl._learning.kernel_vector_updates import GradientDescent, VariableProjection

pytestmark = pytest.mark.usefixtures("one_thread")

N_SIGNALS, N_FEATURES, N_VECTORS, N_ATOMS = 300, 5, 4, 3

# Kernel parameters, and what is added to all signals.
CASES = {
    "rbf": ({"kernel": "rbf", "gamma": 0.3}, 0.0),
    "rbf-offset": ({"kernel": "rbf", "gamma": 0.3}, 40.0),
    "poly2": ({"kernel": "poly", "gamma": 0.5, "degree": 2, "coef0": 1.0}, 0.0),
    "poly3": ({"kernel": "poly", "gamma": 0.4, "degree": 3, "coef0": 0.5}, 0.0),
    "linear": ({"kernel": "linear"}, 0.0),
}

each_case = pytest.mark.parametrize("case", CASES)
each_term = pytest.mark.parametrize("linear", [False, True], ids=["", "linear-term"])


def central_differences(function, x, step=1e-3):
    """Gradient of a function of a matrix, entry by entry, exact for polynomials of degree four."""
    gradient = np.empty_like(x)
    for index in np.ndindex(*x.shape):
        move = np.zeros_like(x)
        move[index] = step
        values = [function(x + multiple * move) for multiple in (-2, -1, 1, 2)]
        gradient[index] = np.dot([1, -8, 8, -1], values) / (12 * step)
    return gradient


def assert_gradient(actual, function, x):
    """Equal to the differences, to 1e-6 of the largest entry."""
    expected = central_differences(function, x)
    np.testing.assert_allclose(actual, expected, rtol=0.0, atol=1e-6 * float(np.abs(expected).max()))


@pytest.fixture
def make_objective(monkeypatch, rng):
    """The objective that a fit gives its solver, and a point away from where the fit starts."""

    def prepare(case, linear):
        kernel, offset = CASES[case]
        Y = offset + 0.6 * rng.standard_normal((N_SIGNALS, N_FEATURES))
        seen = []

        def stay(vector_update, objective, start):
            seen.append(objective)
            return start

        monkeypatch.setattr(VariableProjection, "minimize", stay)
        options = {"n_kernel_vectors": N_VECTORS, "n_nonzero_coefs": 2, "max_iter": 1, "random_state": 0, "n_jobs": 1}
        if linear:
            options |= {"linear_weight": 0.5, "linear_n_nonzero_coefs": 2}
        (MORKDL if linear else ORKDL)(N_ATOMS, **options, **kernel).fit(Y)
        [objective] = seen
        if isinstance(objective.feature_map.kernel, RBF):
            assert (objective.feature_map.kernel._shift is not None) == (offset > 0)
        return objective, offset + 0.6 * rng.standard_normal((N_VECTORS, N_FEATURES))

    return prepare


@each_case
@each_term
def test_projected_and_held_atoms(make_objective, rng, case, linear):
    """The best atoms follow the kernel vectors, and their change adds nothing to the gradient; or atoms are held."""
    objective, vectors = make_objective(case, linear)
    point = objective.at(vectors)
    assert_gradient(objective.gradient(point), lambda x: objective.at(x).value, vectors)
    atoms = rng.standard_normal((N_ATOMS, N_VECTORS))
    held = replace(objective, fixed_atoms=atoms)
    assert_gradient(held.gradient(held.at(vectors)), lambda x: held.at(x).value, vectors)
    # Atoms that are named in advance have their gradient in the same pass.
    named = objective.at(vectors, gradient_atoms=atoms)
    assert named.value == point.value
    assert_gradient(objective.gradient(named), lambda x: held.at(x).value, vectors)


@each_case
@each_term
def test_sphere(make_objective, rng, case, linear):
    """With the norms held, L-BFGS moves free vectors of any length; their gradient is tangent to them."""
    objective, vectors = make_objective(case, linear)
    radius = float(np.sqrt(np.mean(np.sum(vectors**2, axis=1))))
    vector_update = VariableProjection(1, radius)
    free = rng.uniform(0.5, 2.0, (N_VECTORS, 1)) * vectors
    placed = vector_update._on_sphere(free)
    np.testing.assert_allclose(np.linalg.norm(placed, axis=1), radius)
    gradient = vector_update._free_gradient(objective, objective.at(placed), free)
    assert_gradient(gradient, lambda x: objective.at(vector_update._on_sphere(x)).value, free)
    cosines = np.sum(gradient * free, axis=1) / np.linalg.norm(gradient, axis=1) / np.linalg.norm(free, axis=1)
    np.testing.assert_allclose(cosines, 0.0, atol=1e-10)


@each_case
@each_term
def test_sweep_starts_along_the_gradient(make_objective, rng, case, linear):
    """A short sweep of the paper's rule is a step along the gradient with the atoms held."""
    objective, vectors = make_objective(case, linear)
    held = replace(objective, fixed_atoms=rng.standard_normal((N_ATOMS, N_VECTORS)))
    point = held.at(vectors)
    gradient = held.gradient(point)
    rate = 1e-8 / float(np.abs(gradient).max())
    moved = GradientDescent(1, None, rate).sweep(held, point, rate)
    np.testing.assert_allclose((vectors - moved) / rate, gradient, rtol=0.0, atol=1e-5 * float(np.abs(gradient).max()))
