"""Files from strangers: crafted, damaged or swollen, they are refused with a sentence, and in little memory."""

from __future__ import annotations

import io
import json
import re
import tracemalloc
import zipfile
from functools import partial

import numpy as np
import pytest
from sklearn.base import clone

import helpers
import rkdl
from helpers import Estimators
from rkdl import KDL, RKDL, KDLClassifier, KDLOutlierDetector, KDLRegressor, datasets
from rkdl._persistence.files import read_file

SIZES = {"n_components": 6, "n_nonzero_coefs": 2, "n_kernel_vectors": 7, "n_fourier_features": 8}
make = partial(helpers.make, **SIZES)
METHODS = Estimators("DL", "FourierDL", "KDL", "RKDL", "ORKDL", "ORKDL-gd", "MORKDL", **SIZES)
MODELS = {
    **METHODS,
    "RKDL-decoder": make(RKDL, fit_inverse_transform=True),
    "KDL-precomputed": make(KDL, kernel="precomputed"),
    "KDLClassifier": KDLClassifier(random_state=0),
    "KDLRegressor": KDLRegressor(random_state=0),
    **{f"{name}-stream": METHODS[name] for name in ("DL", "FourierDL", "ORKDL", "MORKDL")},
    "RKDL-stream": make(RKDL, fit_inverse_transform=True),
    "KDLOutlierDetector": KDLOutlierDetector(n_members=2, max_iter=2, random_state=0),
}
MIB = 2**20


@pytest.fixture(scope="module")
def X():
    return np.random.default_rng(0).standard_normal((120, 9))


def opened(path):
    """Header and arrays of a file of rkdl."""
    with np.load(path) as stored:
        arrays = dict(stored)
    return json.loads(arrays.pop("header").tobytes()), arrays


def put_back(path, header, arrays):
    """A file of this content, as a forger would write it."""
    with path.open("wb") as stream:
        np.savez(stream, header=np.frombuffer(json.dumps(header).encode(), dtype=np.uint8), **arrays)


def forgeries(array):
    """The array with another shape, dtype or content."""
    if array.ndim:
        yield array[:-1]
        yield np.concatenate([array, array[-1:]])
        yield array[..., None]
        yield array[:0]
    if array.ndim > 1:
        yield array[..., :-1]
    yield array.astype(np.float16 if array.dtype.kind == "f" else np.float64)
    if array.dtype.itemsize > 1:
        yield array.astype(array.dtype.newbyteorder(">"))
    yield array.astype("U9")
    if array.dtype.kind == "f" and array.size:
        for value in (np.nan, np.inf):
            spoilt = array.copy()
            spoilt.reshape(-1)[-1] = value
            yield spoilt


def outcome(call):
    """What a call returns, or None and the words with which it refused."""
    try:
        return call(), ""
    except ValueError as error:
        return None, str(error)


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_forged_checkpoints(name, X, tmp_path):
    """Every array of a state, one after another: too short, of another dtype, not finite, gone."""
    path, model = tmp_path / "fit.rkdl", METHODS[name]
    clone(model).set_params(max_iter=1).fit(X, checkpoint=path)
    header, arrays = opened(path)
    for key, array in arrays.items():
        rest = {other: value for other, value in arrays.items() if other != key}
        changed = [{**rest, key: forged} for forged in forgeries(array)]
        for state in [*changed, rest, {**arrays, "stranger": array}, {**arrays, "state.stranger": array}]:
            put_back(path, header, state)
            found, words = outcome(lambda: clone(model).fit(X, checkpoint=path))
            if found is None:
                assert re.search(r"fit\.rkdl was changed: .* delete it to start afresh", words)
                continue
            # A kernel vector twice, an objective that is still to come, a setting that has a default.
            harmless = ("kernel_vectors", "objective", "update_objective", "radius", "rate")
            assert key.removeprefix("state.") in harmless, (key, state.get(key))
            assert np.isfinite(found.errors_).all()
    put_back(path, header, arrays)
    assert clone(model).fit(X, checkpoint=path).n_iter_ == 2


@pytest.mark.parametrize("name", ["KDL", "RKDL"])
def test_forged_values_of_checkpoints(name, X, tmp_path):
    """Also a best model that the errors contradict: it lies beside the last one where that is worse."""
    path, model = tmp_path / "fit.rkdl", METHODS[name]
    clone(model).set_params(max_iter=1).fit(X, checkpoint=path)
    header, arrays = opened(path)
    best = {key.replace("state.", "best."): array for key, array in arrays.items() if key.startswith("state.")}
    worse = {"history.start_total": 0.5 * arrays["history.totals"][0]}
    for words, changes in {
        "errors holds -1.0, expected 0 or more": {"history.errors": np.array([-1.0])},
        "start_error holds -1.0": {"history.start_error": np.array(-1.0)},
        "n_revived holds -1, expected 0": {"state.n_revived": np.array(-1)},
        "n_empty holds -1": {"state.n_empty": np.array(-1)},
        "a best model although": best,
        "no best model": worse,
    }.items():
        put_back(path, header, {**arrays, **changes})
        with pytest.raises(ValueError, match=rf"fit\.rkdl was changed: .*{words}"):
            clone(model).fit(X, checkpoint=path)
    for fit in ([], None, "RKDL"):
        put_back(path, {**header, "fit": fit}, arrays)
        with pytest.raises(ValueError, match=r"fit\.rkdl was changed"):
            clone(model).fit(X, checkpoint=path)
    put_back(path, header, {**arrays, **worse, **best})
    assert clone(model).fit(X, checkpoint=path).n_iter_ >= 0


def fitted(name, X):
    model = clone(MODELS[name])
    if name.endswith("-stream"):
        return model.partial_fit(X[:60]).partial_fit(X[60:90], update=False)
    if isinstance(model, KDLClassifier | KDLRegressor):
        return model.fit(X, np.arange(len(X)) % 2)
    return model.fit(X @ X.T if name == "KDL-precomputed" else X)


def use(model, X):
    """Whatever compiled code there is sees the fitted attributes."""
    X = X @ X.T if getattr(model, "kernel", None) == "precomputed" else X
    for method in ("transform", "predict", "score_samples"):
        if hasattr(model, method):
            getattr(model, method)(X)
    if hasattr(model, "_stream"):
        model.partial_fit(X[90:])


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_forged_models(name, X, tmp_path):
    """A fitted attribute of another shape, dtype or content is refused, or does no harm."""
    path = tmp_path / "model.rkdl"
    fitted(name, X).save(path)
    header, arrays = opened(path)
    n_refused = 0
    for key, array in arrays.items():
        for forged in forgeries(array):
            put_back(path, header, {**arrays, key: forged})
            model, words = outcome(lambda: rkdl.load(path))
            if model is None:
                assert "model.rkdl was changed" in words
                n_refused += 1
            else:
                # Objectives that are still to come, and more or fewer signals that wait, too.
                harmless = ("errors_", "update_errors_", "losses_", "classes_", "objective", "update_objective", "0")
                assert key.rpartition(".")[2] in harmless, (key, forged.shape)
                use(model, X)
    assert n_refused > 20
    put_back(path, header, arrays)
    use(rkdl.load(path), X)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", ["KDLClassifier", "KDLRegressor", "KDLOutlierDetector", "RKDL-decoder"])
def test_results_of_huge_numbers_are_errors(name, X, tmp_path):
    path, rows = tmp_path / "model.rkdl", X.astype(np.float32)
    fitted(name, rows).save(path)
    header, arrays = opened(path)
    for key, array in arrays.items():
        for value in (1e150, 1e300) if array.dtype == np.float64 else (3e38,) * (array.dtype == np.float32):
            put_back(path, header, {**arrays, key: np.full_like(array, value)})
            model, words = outcome(lambda: rkdl.load(path))
            assert value < 1e300 or array.ndim == 0 or "leaves the range" in words
            for method in {"denoise", "predict", "decision_function", "score_samples"} & set(dir(model)):
                found, _ = outcome(partial(getattr(model, method), rows))
                assert found is None or np.isfinite(found).all()


def test_forged_values_of_models(X, tmp_path):
    path = tmp_path / "model.rkdl"
    for name, changes in {
        "KDLOutlierDetector": {
            "attribute.sizes_": [[[-1, 1]] * 2, [[10**9, 1]] * 2, [[1, 10**9]] * 2],
            "attribute.scale_": [[1.0, 0.0], [1.0, -1.0]],
            "attribute.gammas_": [[1.0, 0.0], [1.0, -1.0]],
        },
        "KDLClassifier": {"attributes n_nonzero_coefs_": [10**6, -1], "attributes sharpness_": ["sharp", None]},
        "RKDL": {
            "parameters n_components": [10**6, -3],
            "parameters n_nonzero_coefs": ["many"],
            "parameters random_state": [[1, [2]]],
            "attributes n_features_in_": [10**6],
            "attributes gamma_": [float("nan"), 10**400, "wide", None],
            "attributes rank_": [-1],
            "attributes feature_names_in_": [{"names": ["a"]}, {"names": [1] * 9}],
        },
        "DL-stream": {
            "stream.gamma": [0.0, -1.0],
            "stream.running.weight": [-1.0],
            "stream.running.stranger": [1.0],
            "stranger": [1.0],
        },
        "ORKDL-stream": {"stream.waiting.7": [np.ones((1, 9))]},
    }.items():
        fitted(name, X).save(path)
        header, arrays = opened(path)
        for place, values in changes.items():
            part, _, key = place.partition(" ")
            for value in values:
                if key:
                    put_back(path, {**header, part: {**header[part], key: value}}, arrays)
                else:
                    put_back(path, header, {**arrays, place: np.array(value)})
                with pytest.raises(ValueError, match=r"model\.rkdl was changed"):
                    rkdl.load(path)


def test_text_of_models_in_messages(X, tmp_path):
    """Whatever the file says is cut short and cannot steer a terminal."""
    path = tmp_path / "model.rkdl"
    fitted("RKDL", X).save(path)
    header, arrays = opened(path)
    long = "\x1b[31m" + "x" * 5000
    parameters, attributes = header["parameters"], header["attributes"]
    for forged in (
        {"estimator": long},
        {"parameters": {**parameters, long: 1}},
        {"parameters": {**parameters, "kernel": {"function": long}}},
        {"parameters": {**parameters, "kernel": long}},
        {"attributes": {**attributes, long: 1}},
        {"attributes": {**attributes, "gamma_": long}},
    ):
        put_back(path, {**header, **forged}, arrays)
        with pytest.raises(ValueError, match=r"model\.rkdl") as caught:
            rkdl.load(path)
        assert "\x1b" not in str(caught.value)
        assert len(str(caught.value)) < len(str(path)) + 500


@pytest.mark.parametrize("code", ["S0", "U0"])
def test_arrays_of_nothing(code, tmp_path):
    """Elements without bytes, of which a file promises any number."""
    path, stream = tmp_path / "model.rkdl", io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": f"|{code}", "fortran_order": False, "shape": (10**15,)})
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("header.npy", stream.getvalue())
    with pytest.raises(ValueError, match="not plain numbers or text"):
        read_file(path, "estimator", "")


def peak_bytes(call):
    """Most memory that a call takes, and what it raises."""
    tracemalloc.start()
    try:
        call()
        error = None
    except Exception as caught:
        error = caught
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak, error


@pytest.mark.slow
class TestBombs:
    """Small files that unpack to large ones."""

    SIZE = 256 * MIB

    def test_signals_nobody_asks_for(self, tmp_path, X):
        path = tmp_path / "X.npz"
        np.savez_compressed(path, X=X, other=np.zeros(self.SIZE, np.uint8))
        peak, error = peak_bytes(lambda: datasets.load_signals(path))
        assert error is None
        assert peak < 16 * MIB

    def test_compressed_models(self, tmp_path, X):
        path = tmp_path / "model.rkdl"
        clone(METHODS["DL"]).fit(X).save(path)
        header, arrays = opened(path)
        arrays["attribute.errors_"] = np.zeros(self.SIZE // 8)
        with path.open("wb") as stream:
            np.savez_compressed(stream, header=np.frombuffer(json.dumps(header).encode(), np.uint8), **arrays)
        peak, error = peak_bytes(lambda: rkdl.load(path))
        assert "its arrays are compressed" in str(error)
        assert peak < 16 * MIB
