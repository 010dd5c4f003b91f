"""What is learned for a label: gradients against finite differences, the readouts, the metric that is held."""

from __future__ import annotations

import numpy as np
import pytest

import reference
from rkdl._applications.readouts import mix_readouts, pursue_classes
from rkdl._applications.task_learning import Examples, Task, TaskLearning, cross_entropy, smoothed, squared_error
from rkdl._backends.arrays import normalize_rows

RNG = np.random.RandomState(0)


@pytest.fixture(params=["numpy", "torch"])
def convert(request):
    """Arrays as NumPy's or as tensors."""
    if request.param == "numpy":
        return lambda array: array
    torch = pytest.importorskip("torch")
    return torch.from_numpy


def learning_of(loss, convert, n_atoms=4):
    """A learning of three outputs in float64 after some steps, and examples."""
    rng = np.random.RandomState(1)
    signals = rng.standard_normal((50, 4))
    labels = np.arange(50) % 3
    targets = smoothed(labels, 3, np.float64) if loss is cross_entropy else rng.standard_normal((50, 3))
    weights = rng.uniform(0.5, 1.5, 50)
    rows = convert(signals)
    examples = Examples(lambda chosen: rows[convert(chosen)], convert(targets), convert(weights))
    learning = TaskLearning(Task(3, loss, n_atoms, 2), convert(signals[:9] + 0.1), 0.3)
    learning.start_atoms(examples, rng)
    for _ in learning.run(examples, 20, 16, rng):
        pass
    return learning, (rows, examples.targets, examples.weights)


@pytest.mark.parametrize("loss", [cross_entropy, squared_error])
@pytest.mark.parametrize("n_atoms", [0, 4])
def test_gradients_are_those_of_finite_differences(loss, n_atoms, convert):
    learning, batch = learning_of(loss, convert, n_atoms)
    learning.find_gradient(*batch)
    slopes = {name: np.asarray(part).ravel().copy() for name, part in learning.slopes.items()}
    step = 1e-6

    def loss_at(flat, place, number):
        kept = {name: np.asarray(part).copy() for name, part in learning.parts.items()}
        flat[place] = number
        if n_atoms:
            # Atoms have unit norm.
            learning.parts["atoms"][:] = normalize_rows(learning.parts["atoms"].reshape(-1, 9)).reshape(3, n_atoms, 9)
        found = float(learning.find_gradient(*batch))
        for name, part in learning.parts.items():
            part[:] = convert(kept[name])
        return found

    for name, part in learning.parts.items():
        flat = part.reshape(-1)
        for place in np.argsort(-np.abs(slopes[name]))[:3]:
            middle = float(flat[place])
            change = loss_at(flat, place, middle + step) - loss_at(flat, place, middle - step)
            assert change / (2.0 * step) == pytest.approx(slopes[name][place], rel=1e-4, abs=1e-9), name


def test_what_is_read_stays_when_the_metric_is_factored_anew(convert):
    learning, (rows, *_) = learning_of(cross_entropy, convert)
    before = learning.features(rows)[0] @ learning.parts["linear"]
    whitening = learning._whitening
    learning._factorise()
    assert abs(whitening - learning._whitening).max() > 1e-3
    after = learning.features(rows)[0] @ learning.parts["linear"]
    np.testing.assert_allclose(np.asarray(after), np.asarray(before), atol=1e-8)


def test_the_model_reads_what_the_learning_reads(convert):
    learning, (rows, *_) = learning_of(cross_entropy, convert)
    learning._factorise()
    features = learning.features(rows)[0]
    model = learning.model(np.zeros(4), np.ones(4))
    values = model.kernel_values(rows)
    expected = features @ learning.parts["linear"] + learning.parts["intercept"]
    np.testing.assert_allclose(np.asarray(model.linear(values)), np.asarray(expected), atol=1e-8)
    explained = np.asarray(model.explained(values))
    for label, atoms in enumerate(np.asarray(learning.parts["atoms"])):
        for row in range(5):
            correlations = atoms @ np.asarray(features)[row]
            code = reference.pursuit(atoms @ atoms.T, correlations, 1.0, 2, kind="ols")
            assert explained[row, label] == pytest.approx(code @ correlations, abs=1e-8)


def test_codes_of_all_classes_are_those_of_each(convert):
    atoms = RNG.standard_normal((3, 12, 7))
    atoms /= np.linalg.norm(atoms, axis=2, keepdims=True)
    atoms[1, 4] = atoms[1, 3]
    signals = normalize_rows(RNG.standard_normal((20, 7)))
    correlations, grams = np.einsum("kim,cm->kci", atoms, signals), atoms @ atoms.swapaxes(1, 2)
    codes = [np.asarray(own.dense(12)) for own in pursue_classes(convert(correlations), convert(grams), 3)]
    for label in range(3):
        for row in range(20):
            expected = reference.pursuit(grams[label], correlations[label, row], 1.0, 3, kind="ols")
            np.testing.assert_allclose(codes[label][row], expected, atol=1e-8)
    assert all(
        np.isfinite(np.asarray(own.dense(12))).all()
        for own in pursue_classes(convert(correlations), convert(grams), 20)
    )


def test_gradients_are_the_same_for_any_number_of_threads():
    learning, batch = learning_of(cross_entropy, lambda array: array)
    rows = RNG.standard_normal((300, 4))
    given = rows, smoothed(np.arange(300) % 3, 3, np.float64), RNG.uniform(0.5, 1.5, 300)
    found = [(float(learning.find_gradient(*given, threads)), learning._gradient.copy()) for threads in (1, 2, 3)]
    for loss, gradient in found[1:]:
        assert loss == found[0][0]
        np.testing.assert_array_equal(gradient, found[0][1])
    assert np.isfinite(float(learning.find_gradient(*batch)))


def test_the_readout_that_tells_gets_the_weight():
    labels = RNG.randint(3, size=300)
    telling, silent = 2.0 * np.eye(3)[labels] + RNG.standard_normal((300, 3)), RNG.standard_normal((300, 3))
    weights = mix_readouts((telling, silent), labels, np.ones(300))
    assert weights[0] > 1.0 > 0.3 > weights[1]
    np.testing.assert_allclose(mix_readouts((silent, telling), labels, np.ones(300)), weights[::-1], atol=1e-3)
    assert mix_readouts((telling[:1], silent[:1]), labels[:1], np.ones(1)).max() < 1.0
