"""The published code's arithmetic: not what the library does, so tested by itself."""

import numpy as np
import pytest

from rkdl._reproduction.published import METHODS, run_published, train_dictionary

SIZES = {"n_components": 6, "n_nonzero_coefs": 2, "n_iter": 4, "n_kernel_vectors": 10}
REDUCED = [method for method in METHODS if method != "KDL"]


@pytest.fixture(scope="module")
def signals():
    rng = np.random.default_rng(7)
    x = rng.random((80, 4)) @ rng.random((4, 15)) + 0.1 * rng.random((80, 15))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.mark.parametrize("method", METHODS)
def test_result(method, signals):
    seen = []
    result = run_published(method, signals, callback=lambda *args: seen.append(args), **SIZES)
    assert len(result["errors"]) == SIZES["n_iter"]
    assert np.isfinite(result["errors"]).all()
    assert seen == list(enumerate(result["errors"], start=1))
    assert result["errors"][-1] < result["errors"][0]
    assert result["seconds"] > 0
    if method == "KDL":
        assert result["kernel_vectors"] is None
        assert result["dual_components"].shape == (6, 80)
        assert result["dictionary_seconds"] == 0
    else:
        assert result["kernel_vectors"].shape == (10, 15)
        assert result["dual_components"].shape == (6, 10)
        assert result["dictionary_seconds"] > 0


def test_codes_are_dense_in_the_reduced_methods_alone(signals):
    for method in REDUCED:
        assert run_published(method, signals, **SIZES)["mean_nonzeros"] > SIZES["n_nonzero_coefs"]
    assert run_published("KDL", signals, **SIZES)["mean_nonzeros"] <= SIZES["n_nonzero_coefs"]


@pytest.mark.parametrize("method", REDUCED)
def test_one_line_restricted_keeps_the_support(method, signals):
    sparse = run_published(method, signals, dense=False, **SIZES)
    assert sparse["mean_nonzeros"] <= SIZES["n_nonzero_coefs"]
    assert sparse["errors"][-1] > run_published(method, signals, **SIZES)["errors"][-1]


def test_kdl_has_no_such_line(signals):
    assert (
        run_published("KDL", signals, dense=False, **SIZES)["errors"]
        == run_published("KDL", signals, **SIZES)["errors"]
    )


@pytest.mark.parametrize("method", METHODS)
def test_deterministic(method, signals):
    first, again = (run_published(method, signals, random_state=3, **SIZES) for _ in range(2))
    assert first["errors"] == again["errors"]
    np.testing.assert_array_equal(first["dual_components"], again["dual_components"])
    assert first["errors"] != run_published(method, signals, random_state=4, **SIZES)["errors"]


@pytest.mark.parametrize("method", METHODS)
def test_error_is_that_of_the_objective_from_its_definition(method, signals):
    """The error after one iteration, from the explicit kernel matrices and codes written atom by atom."""
    start = np.eye(6, 80 if method == "KDL" else 10)  # unit norm in the metric too: the pursuit is exact
    vectors = signals if method == "KDL" else signals[:10]
    result = run_published(
        method,
        signals,
        kernel_vectors=signals[:10],
        initial_dual=start,
        learning_rate=0.0,
        **SIZES | {"n_iter": 1},
    )

    def kernel(x, y):
        return np.exp(-0.1 * ((x[:, None] - y[None]) ** 2).sum(axis=2))

    features, metric = kernel(signals, vectors), kernel(vectors, vectors)
    codes = np.zeros((80, 6))
    for row, target in zip(codes, features, strict=True):
        support = []
        for _ in range(2):
            left = start @ (target - metric @ (row @ start))
            if left @ left < 1e-12:
                break
            support.append(int(np.abs(left).argmax()))
            chosen = start[support]
            row[support] = np.linalg.solve(chosen @ metric @ chosen.T, chosen @ target)
    dual = start.copy()
    projected = np.eye(80) if method == "KDL" else np.linalg.solve(metric, features.T).T
    for j in range(6):
        users = np.flatnonzero(codes[:, j])
        if users.size == 0:
            continue  # noise, which no code uses
        rest = np.delete(codes, j, axis=1) @ np.delete(dual, j, axis=0)
        atom = (projected - rest)[users].T @ codes[users, j]
        dual[j] = atom / np.sqrt(atom @ metric @ atom)
        where = users if method == "KDL" else slice(None)
        codes[where, j] = ((features - rest @ metric) @ dual[j])[where]
    model = codes @ dual
    squared = 1 - 2 * np.einsum("ij,ij->i", model, features) + np.einsum("ij,ij->i", model @ metric, model)
    assert result["errors"][0] == pytest.approx(np.sqrt(squared.sum() / signals.size), rel=1e-6)


def test_dictionary_is_shared_and_left_alone(signals):
    vectors = train_dictionary(signals, 10, random_state=2)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1)
    before = vectors.copy()
    given = run_published("ORKDL-D", signals, kernel_vectors=vectors, random_state=2, **SIZES)
    np.testing.assert_array_equal(vectors, before)
    assert given["dictionary_seconds"] == 0
    assert given["errors"] == run_published("ORKDL-D", signals, random_state=2, **SIZES)["errors"]
    assert not np.allclose(given["kernel_vectors"], vectors)


def test_linear_term(signals):
    off, coded, text = (
        run_published("MORKDL-D", signals, linear_term=term, **SIZES)["kernel_vectors"]
        for term in ("off", "coded", "text")
    )
    assert not np.allclose(off, coded)
    assert not np.allclose(coded, text)


def test_divergence_gives_nan_and_no_exception(signals):
    errors = run_published("MORKDL-D", signals, linear_term="coded", learning_rate=1e6, **SIZES)["errors"]
    assert len(errors) == SIZES["n_iter"]
    assert not np.isfinite(errors[-1]) or errors[-1] > 0


def test_bad_arguments(signals):
    with pytest.raises(ValueError, match="KDL, RKDL-D, ORKDL-D, MORKDL-D"):
        run_published("rkdl", signals)
    with pytest.raises(ValueError, match="off, coded, text"):
        run_published("MORKDL-D", signals, linear_term="on")
    with pytest.raises(ValueError, match="columns"):
        run_published("RKDL-D", signals, kernel_vectors=signals[:5, :3])
    with pytest.raises(ValueError, match="columns"):
        run_published("KDL", signals, initial_dual=np.eye(3))
    with pytest.raises(ValueError, match="finite"):
        train_dictionary(np.full((3, 3), np.nan))
    with pytest.raises(ValueError, match="2-D"):
        train_dictionary(np.ones(3))
