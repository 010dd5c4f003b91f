"""Files from strangers: crafted, damaged or swollen, they are refused with a sentence, and in little memory."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import pickle
import random
import re
import struct
import tarfile
import time
import tracemalloc
import warnings
import zipfile
from functools import partial

import numpy as np
import pytest
from sklearn.base import clone

import helpers
import rkdl
from helpers import Estimators
from rkdl import DL, KDL, RKDL, FourierDL, KDLClassifier, KDLOutlierDetector, datasets
from rkdl._persistence.npz import read_npy
from rkdl.datasets import DatasetError, _published
from rkdl.datasets._pickled_arrays import read_pickled_arrays

SIZES = {"n_components": 6, "n_nonzero_coefs": 2, "n_kernel_vectors": 7, "n_fourier_features": 8}
make = partial(helpers.make, **SIZES)
METHODS = Estimators("DL", "FourierDL", "KDL", "RKDL", "ORKDL", "ORKDL-gd", "MORKDL", **SIZES)
MODELS = {
    **METHODS,
    "RKDL-decoder": make(RKDL, fit_inverse_transform=True),
    "KDL-precomputed": make(KDL, kernel="precomputed"),
    "KDLClassifier": KDLClassifier(make(RKDL), random_state=0),
    "KDLClassifier-DL": KDLClassifier(make(DL), random_state=0),
    "KDLClassifier-Fourier": KDLClassifier(make(FourierDL), random_state=0),
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


def put_back(path, header, arrays, **more):
    """A file whose header fits its arrays, as a forger would write it."""
    header = {**header, "arrays": {name: [value.dtype.str, *value.shape] for name, value in sorted(arrays.items())}}
    text = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    with path.open("wb") as stream:
        np.savez(stream, header=text, **arrays, **more)


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
    path = tmp_path / "fit.rkdl"
    clone(METHODS[name]).set_params(max_iter=1).fit(X, checkpoint=path)
    header, arrays = opened(path)
    model = METHODS[name]
    for key, array in arrays.items():
        rest = {other: value for other, value in arrays.items() if other != key}
        changed = [{**rest, key: forged} for forged in forgeries(array)]
        for state in [*changed, rest, {**arrays, "stranger": array}]:
            put_back(path, header, state)
            found, words = outcome(lambda: clone(model).fit(X, checkpoint=path))
            if found is None:
                assert re.search(r"fit\.rkdl was changed: .* delete it to start afresh", words)
                continue
            # A kernel vector twice, an objective that is still to come, a setting that has a default.
            assert key in ("kernel_vectors", "objective", "update_objective", "radius", "rate"), (key, state.get(key))
            assert np.isfinite(found.errors_).all()
    put_back(path, header, arrays)
    assert clone(model).fit(X, checkpoint=path).n_iter_ == 2


def test_forged_headers_of_checkpoints(X, tmp_path):
    path = tmp_path / "fit.rkdl"
    clone(METHODS["RKDL"]).set_params(max_iter=1).fit(X, checkpoint=path)
    header, arrays = opened(path)
    for key, values in {
        "errors": [[], [float("nan")], [10**400], ["x"], [-1.0], 3, None, [True], {"a": 1}, [1.0, 1.0]],
        "update_errors": [[], [float("nan")], [1.0, 1.0]],
        "totals": [[], None, [1.0, 1.0]],
        "start_error": [None, 10**400, "x", float("nan"), -1.0],
        "start_total": [None, [1.0]],
        "is_settled": [1, None, "yes"],
        "fit": [[], None, "RKDL"],
    }.items():
        for value in values:
            put_back(path, {**header, key: value}, arrays)
            with pytest.raises(ValueError, match=r"fit\.rkdl was changed"):
                clone(METHODS["RKDL"]).fit(X, checkpoint=path)


def test_forged_best_models_of_checkpoints(X, tmp_path):
    """The errors tell whether the last model is the best; where it is not, the best one lies beside it."""
    path = tmp_path / "fit.rkdl"
    model = METHODS["RKDL"]
    clone(model).set_params(max_iter=1).fit(X, checkpoint=path)
    header, arrays = opened(path)
    best = {f"best.{name}": array for name, array in arrays.items()}
    worse = {**header, "start_total": 0.5 * header["totals"][0]}
    for forged_header, forged_arrays in ((header, {**arrays, **best}), (worse, arrays)):
        put_back(path, forged_header, forged_arrays)
        with pytest.raises(ValueError, match=r"fit\.rkdl was changed: by its errors it holds"):
            clone(model).fit(X, checkpoint=path)
    put_back(path, worse, {**arrays, **best})
    assert clone(model).fit(X, checkpoint=path).n_iter_ >= 0


@pytest.mark.parametrize("name", ["KDL", "RKDL"])
@pytest.mark.parametrize("key", ["n_revived", "n_empty"])
def test_forged_counts_of_checkpoints(name, key, X, tmp_path):
    path = tmp_path / "fit.rkdl"
    clone(METHODS[name]).set_params(max_iter=1).fit(X, checkpoint=path)
    header, arrays = opened(path)
    put_back(path, header, {**arrays, key: np.full_like(arrays[key], -1)})
    with pytest.raises(ValueError, match=rf"fit\.rkdl was changed: {key} is -1, expected a count"):
        clone(METHODS[name]).fit(X, checkpoint=path)


def fitted(name, X):
    model = clone(MODELS[name])
    if isinstance(model, KDLClassifier):
        return model.fit(X, np.arange(len(X)) % 2)
    return model.fit(X @ X.T if name == "KDL-precomputed" else X)


def use(model, X):
    """Whatever compiled code there is sees the fitted attributes."""
    X = X @ X.T if getattr(model, "kernel", None) == "precomputed" else X
    for method in ("transform", "predict", "score_samples"):
        if hasattr(model, method):
            getattr(model, method)(X)


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_forged_models(name, X, tmp_path):
    """A fitted attribute of another shape, dtype or content is refused, or does no harm."""
    path = tmp_path / "model.rkdl"
    fitted(name, X).save(path)
    header, arrays = opened(path)
    rkdl.load(path)
    n_refused = 0
    for key, array in arrays.items():
        for forged in forgeries(array):
            put_back(path, header, {**arrays, key: forged})
            model, words = outcome(lambda: rkdl.load(path))
            if model is None:
                assert "model.rkdl was changed" in words
                n_refused += 1
            else:
                harmless = ("errors_", "update_errors_", "losses_", "classes_")
                assert key.removeprefix("attribute.") in harmless, (key, forged.shape)
                use(model, X)
    assert n_refused > 20
    put_back(path, header, arrays)
    use(rkdl.load(path), X)


def test_forged_values_of_models(X, tmp_path):
    path = tmp_path / "model.rkdl"
    fitted("KDLOutlierDetector", X).save(path)
    header, arrays = opened(path)
    for sizes in ([[-1, 1]] * 2, [[10**9, 1]] * 2, [[1, 10**9]] * 2):
        put_back(path, header, {**arrays, "attribute.sizes_": np.array(sizes)})
        with pytest.raises(ValueError, match="sizes_ holds a number"):
            rkdl.load(path)
    for spread in (0.0, -1.0):
        put_back(path, header, {**arrays, "attribute.spreads_": np.array([1.0, spread])})
        with pytest.raises(ValueError, match="spreads_ holds a number that is not positive"):
            rkdl.load(path)
    fitted("KDLClassifier", X).save(path)
    header, arrays = opened(path)
    put_back(path, header, {**arrays, "attribute.n_atoms_": np.array([10**6, 1])})
    with pytest.raises(ValueError, match="n_atoms_ holds a number"):
        rkdl.load(path)
    detector = {"method": {"estimator": "KDLOutlierDetector", "parameters": {}}}
    for method in (detector, "RKDL", None, 3):
        put_back(path, {**header, "attributes": {**header["attributes"], "method_": method}}, arrays)
        with pytest.raises(ValueError, match=r"model\.rkdl was changed: .*method_ is a"):
            rkdl.load(path)
    fitted("RKDL", X).save(path)
    header, arrays = opened(path)
    for part, key, value in (
        ("parameters", "n_components", 10**6),
        ("parameters", "n_components", -3),
        ("parameters", "n_nonzero_coefs", "many"),
        ("parameters", "random_state", [1, [2]]),
        ("attributes", "n_features_in_", 10**6),
        ("attributes", "gamma_", float("nan")),
        ("attributes", "gamma_", 10**400),
        ("attributes", "gamma_", "wide"),
        ("attributes", "gamma_", None),
        ("attributes", "rank_", -1),
        ("attributes", "feature_names_in_", {"names": ["a"]}),
        ("attributes", "feature_names_in_", {"names": [1] * 9}),
    ):
        put_back(path, {**header, part: {**header[part], key: value}}, arrays)
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
    stream = io.BytesIO()
    shape = (10**15,)
    np.lib.format.write_array_header_1_0(stream, {"descr": f"|{code}", "fortran_order": False, "shape": shape})
    with pytest.raises(ValueError, match="not plain numbers or text"):
        read_npy(io.BytesIO(stream.getvalue()), len(stream.getvalue()))


def test_forged_random_states(X, tmp_path):
    """NumPy takes any position, and reads whatever lies there."""
    path = tmp_path / "model.rkdl"
    clone(METHODS["DL"]).set_params(random_state=np.random.RandomState(3)).fit(X).save(path)
    header, arrays = opened(path)
    keys = arrays["parameter.random_state"]
    (position, has_normal, normal) = header["parameters"]["random_state"]["random_state"]
    for forged in ([10**9, has_normal, normal], [-1, has_normal, normal], [1.5, 0, 0.0], [position, 7, normal], []):
        parameters = {**header["parameters"], "random_state": {"random_state": forged}}
        put_back(path, {**header, "parameters": parameters}, arrays)
        with pytest.raises(ValueError, match=r"model\.rkdl was changed"):
            rkdl.load(path)
    for forged in (keys[:-1], keys.astype(float)):
        put_back(path, header, {**arrays, "parameter.random_state": forged})
        with pytest.raises(ValueError, match=r"model\.rkdl was changed"):
            rkdl.load(path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["DL", "FourierDL", "RKDL-decoder", "ORKDL", "MORKDL"])
def test_forged_streams(name, X, tmp_path):
    path = tmp_path / "model.rkdl"
    model = clone(MODELS[name]).partial_fit(X[:60]).partial_fit(X[60:90], update=False)
    model.save(path)
    header, arrays = opened(path)
    rkdl.load(path).partial_fit(X[90:])
    for key, array in arrays.items():
        if not key.startswith("stream.") or key in ("stream.objective", "stream.update_objective"):
            continue
        for forged in forgeries(array):
            put_back(path, header, {**arrays, key: forged})
            with pytest.raises(ValueError, match="was changed"):
                rkdl.load(path).partial_fit(X[90:])
    for key, values in {
        "gamma": ["x", float("inf"), 10**400],
        "running": [None, {}, {"energy": "x"}, {**header["stream"]["running"], "stranger": 1}],
        "buffered_chunks": [None, [[0]], [["x"]], [[10**6]], 7],
        "settings": [None],
        "is_provisional": ["x"],
    }.items():
        for value in values:
            put_back(path, {**header, "stream": {**header["stream"], key: value}}, arrays)
            with pytest.raises(ValueError, match="was changed"):
                rkdl.load(path)


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


def packed_zeros(path, size, header=b""):
    """A gzip file in parts, as gzip allows: the header, and as many copies of one packed MiB of zeros."""
    path.write_bytes(gzip.compress(header) + size // MIB * gzip.compress(bytes(MIB)))


@pytest.mark.slow
class TestBombs:
    """Small files that unpack to large ones: no more is unpacked than promised, nor promised than expected."""

    SIZE = 256 * MIB

    @pytest.mark.parametrize("count", [3, 60_001, 2**32 - 1])
    def test_idx(self, count, tmp_path):
        write_mnist(tmp_path)
        path = tmp_path / "train-images-idx3-ubyte.gz"
        packed_zeros(path, self.SIZE, struct.pack(">4I", 0x0803, count, 28, 28))
        peak, error = peak_bytes(lambda: datasets.fetch_mnist(data_home=tmp_path, download_if_missing=False))
        assert "the IDX header declares" in str(error)
        assert peak < 16 * MIB

    def test_idx_of_other_images(self, tmp_path):
        write_mnist(tmp_path)
        path = tmp_path / "train-images-idx3-ubyte.gz"
        packed_zeros(path, self.SIZE, struct.pack(">4I", 0x0803, 1, 16384, 16384))
        peak, error = peak_bytes(lambda: datasets.fetch_mnist(data_home=tmp_path, download_if_missing=False))
        assert "16384 x 16384, not 28 x 28" in str(error)
        assert peak < 16 * MIB

    def test_cifar_npz(self, tmp_path):
        path = tmp_path / "cifar10_airplane.npz"
        np.savez_compressed(path, images=np.zeros((self.SIZE // 3072, 32, 32, 3), np.uint8))
        peak, error = peak_bytes(lambda: datasets.fetch_cifar10(label=0, data_home=tmp_path))
        assert "more than the" in str(error)
        assert peak < 16 * MIB

    def test_cifar_archive(self, tmp_path):
        """Also where the size is that of a header of the archive itself."""
        path = tmp_path / "cifar-10-python.tar.gz"
        for kind in (tarfile.REGTYPE, tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME):
            member = tarfile.TarInfo("cifar-10-batches-py/data_batch_1")
            member.size, member.type = 2 * self.SIZE, kind
            packed_zeros(path, 2 * self.SIZE, member.tobuf())
            peak, error = peak_bytes(lambda: datasets.fetch_cifar10(data_home=tmp_path))
            assert isinstance(error, DatasetError)
            assert peak < 3 * self.SIZE

    def test_cifar_batch(self, tmp_path):
        folder = tmp_path / "cifar-10-batches-py"
        folder.mkdir()
        with (folder / "data_batch_1").open("wb") as stream:
            stream.truncate(self.SIZE)
        peak, error = peak_bytes(lambda: datasets.fetch_cifar10(data_home=tmp_path))
        assert "larger than a CIFAR-10 batch" in str(error)
        assert peak < 128 * MIB

    @pytest.mark.parametrize("kind", ["codec", "text", "lists", "shape"])
    def test_cifar_pickle(self, kind, tmp_path):
        """One text encoded many times, lists that hold one list many times, and integers without end."""
        text = b"X" + struct.pack("<I", 4 * MIB) + b"a" * 4 * MIB
        integer = b"\x8b" + struct.pack("<i", 8 * MIB) + b"\x7f" * 8 * MIB
        content, limit = {
            "codec": (text + b"q\x00(" + b"c_codecs\nencode\nh\x00Vlatin1\n\x86R" * 40 + b"l.", 64),
            "text": (
                text
                + b"q\x00cnumpy\ndtype\nVu1\n\x85Rq\x01("
                + b"cnumpy.core.numeric\n_frombuffer\n(h\x00h\x01J\x00\x00\x40\x00\x85VC\ntR" * 40
                + b"l.",
                64,
            ),
            "lists": (
                pickle.dumps({"data": np.zeros((9000, 3072), np.uint8)}, 2)[:-1]
                + (b"Vlabels\n((" + b"K\x01" * 9000 + b"lqc" + b"hc" * 9000 + b"ls."),
                120,
            ),
            "shape": (
                b"cnumpy.core.numeric\n_frombuffer\n(Vx\ncnumpy\ndtype\nVu1\n\x85R"
                + integer
                + b"q\x00h\x00\x86VC\ntR.",
                64,
            ),
        }[kind]
        folder = tmp_path / "cifar-10-batches-py"
        folder.mkdir()
        (folder / "data_batch_1").write_bytes(content)
        start = time.process_time()
        peak, error = peak_bytes(lambda: datasets.fetch_cifar10(data_home=tmp_path))
        assert isinstance(error, DatasetError)
        assert peak < limit * MIB
        assert time.process_time() - start < 10.0

    def test_members_nobody_asks_for(self, tmp_path, X):
        """Of a signal file they are not unpacked, of a model they are refused."""
        path = tmp_path / "X.npz"
        np.savez_compressed(path, X=X, other=np.zeros(self.SIZE, np.uint8))
        peak, error = peak_bytes(lambda: datasets.load_signals(path))
        assert error is None
        assert peak < 16 * MIB
        path = tmp_path / "model.rkdl"
        clone(METHODS["DL"]).fit(X).save(path)
        with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive, archive.open("other.npy", "w") as stream:
            np.lib.format.write_array(stream, np.zeros(self.SIZE, np.uint8))
        peak, error = peak_bytes(lambda: rkdl.load(path))
        assert "'other', which is not expected" in str(error)
        assert peak < 16 * MIB

    def test_compressed_models(self, tmp_path, X):
        path = tmp_path / "model.rkdl"
        clone(METHODS["DL"]).fit(X).save(path)
        header, arrays = opened(path)
        arrays["attribute.errors_"] = np.zeros(self.SIZE // 8)
        text = {**header, "arrays": {name: [value.dtype.str, *value.shape] for name, value in sorted(arrays.items())}}
        with path.open("wb") as stream:
            np.savez_compressed(stream, header=np.frombuffer(json.dumps(text).encode(), np.uint8), **arrays)
        peak, error = peak_bytes(lambda: rkdl.load(path))
        assert "its members are compressed" in str(error)
        assert peak < 16 * MIB

    @pytest.mark.parametrize("kind", ["npz", "npy"])
    def test_arrays_that_promise_more_than_they_hold(self, kind, tmp_path):
        path = tmp_path / f"X.{kind}"
        stream = io.BytesIO()
        np.lib.format.write_array_header_1_0(stream, {"descr": "<f8", "fortran_order": False, "shape": (10**6, 10**6)})
        if kind == "npy":
            path.write_bytes(stream.getvalue())
        else:
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("X.npy", stream.getvalue())
        peak, error = peak_bytes(lambda: datasets.load_signals(path))
        assert "takes 8,000,000,000,000 bytes, and 0 follow" in str(error)
        assert peak < 16 * MIB

    def test_signals_beyond_memory(self, tmp_path, monkeypatch):
        path = tmp_path / "X.npz"
        np.savez_compressed(path, X=np.zeros((1000, 1000), np.uint8))
        monkeypatch.setattr("rkdl.datasets._signals.physical_memory", lambda: 10**6)
        with pytest.raises(DatasetError, match="more than the 1,000,000 there can be"):
            datasets.load_signals(path)
        monkeypatch.setattr("rkdl.datasets._signals.physical_memory", lambda: 2 * 10**6)
        with pytest.raises(DatasetError, match="as floating-point numbers"):
            datasets.load_signals(path)

    @pytest.mark.parametrize("version", ["5", "7.3"])
    def test_matlab_beyond_memory(self, version, tmp_path, monkeypatch):
        path = tmp_path / "X.mat"
        if version == "5":
            scipy_io = pytest.importorskip("scipy.io")
            scipy_io.savemat(path, {"X": np.zeros((1000, 1000))}, do_compression=True)
        else:
            with pytest.importorskip("h5py").File(path, "w") as file:
                file.create_dataset("X", data=np.zeros((1000, 1000)), compression="gzip")
        monkeypatch.setattr("rkdl.datasets._matlab.physical_memory", lambda: 10**6)
        with pytest.raises(DatasetError, match="its variables take"):
            datasets.load_signals(path)


def dtype_pickle(code, state):
    """A pickled dictionary whose array has a type with a state of the forger's own."""
    kind = b"cnumpy\ndtype\n" + pickle.dumps((code, False, True), 0)[:-1] + b"R" + pickle.dumps(state, 0)[:-1] + b"b"
    return b"}Vdata\n" + kind + b"s."


def evil():
    """Pickles that reach memory or code in an unpickler that trusts NumPy's names."""
    raw = b"C\x08" + bytes(range(8))
    yield b"cnumpy\nndarray\n((I1\ntVO\n" + raw + b"tR."
    yield b"}Vdata\ncnumpy\nndarray\n((I1\ntVO\n" + raw + b"tRs."
    yield b"}Vdata\ncnumpy\nndarray\n((I1000000\ntVu1\n" + raw + b"tRs."
    for state in (
        (3, "|", None, None, None, -1, -1, 63),
        (3, "|", ("u1", (2**40,)), None, None, -1, -1, 0),
        (3, "|", None, ("a",), {"a": ("O", 0)}, 8, 1, 0),
        (3, "|", None, None, None, 2**40, 1, 0),
        (3, "O", None, None, None, -1, -1, 0),
        (4, "|", None, None, None, -1, -1, 0, {}),
        (),
        None,
    ):
        yield dtype_pickle("u1", state)
    for code in ("O", "O8", "V8", "u1,O", "f8", "U4", "M8", "|u1", "", "u16", 3):
        yield dtype_pickle(code, (3, "|", None, None, None, -1, -1, 0))
    for name in (
        b"os\nsystem",
        b"builtins\neval",
        b"numpy\nload",
        b"numpy\nmemmap",
        b"numpy.core.multiarray\nfromfile",
    ):
        yield b"c" + name + b"\n(Vecho\ntR."
        yield b"i" + name + b"\n."
    # Shapes that do not fit, keys that nest, memory places without end, what refers to itself.
    yield pickle.dumps({"data": np.zeros(4, np.uint8)}, 2).replace(b"K\x04\x85", b"K\x7f\x85")
    yield b"}(" + b")" + b"\x85" * 200_000 + b"K\x01u."
    yield b"]r\xff\xff\xff\xff."
    yield b"}q\x00Vdata\nh\x00s."
    yield b"\x80\x05\x8e\xff\xff\xff\xff\xff\xff\xff\x7f."
    # What is nested where text or a name is expected; lists that fill one another after they were nested.
    deep = b")" + b"\x85" * 300_000
    rest = b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb."
    yield b"\x80\x02cnumpy\ndtype\nVu1\n\x85R(K\x03" + deep + rest
    yield b"\x80\x02cnumpy\ndtype\n" + deep + b"\x85R."
    yield b"\x80\x02c_codecs\nencode\nVx\n" + deep + b"\x86R."
    yield b"\x80\x04" + deep + b"Vx\n\x93)R."
    yield b"}Vlabels\n]" + b"]q\x00ah\x00" * 300_000 + b"s."
    yield b"}Vlabels\n]q\x00(K\x01h\x00es."
    # More operations than data need.
    yield b"}Vlabels\n](" + b"K\x01" * 1_000_000 + b"es."


@pytest.mark.parametrize("number", range(len(list(evil()))))
def test_evil_pickles(number, tmp_path, monkeypatch):
    content = list(evil())[number]
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    (folder / "data_batch_1").write_bytes(content)
    with pytest.raises(DatasetError, match="CIFAR-10 batch"):
        datasets.fetch_cifar10(data_home=tmp_path)
    assert os.listdir(tmp_path) == ["cifar-10-batches-py"]


def test_pickles_give_plain_values_only():
    """Whatever is made of a good pickle by changing bytes holds numbers, text and arrays of integers, or is refused."""
    chance = random.Random(0)
    good = [pickle.dumps({"data": np.arange(6, dtype=np.uint8).reshape(2, 3), "labels": [1, 2]}, p) for p in (2, 4, 5)]
    plain = (str, bytes, bytearray, int, float, bool, type(None), tuple, list, dict, np.ndarray)
    for _ in range(3000):
        content = bytearray(chance.choice(good))
        for _ in range(chance.randint(1, 4)):
            content[chance.randrange(len(content))] = chance.randrange(256)
        try:
            found = read_pickled_arrays(bytes(content))
        except Exception:
            continue
        for value in found.values():
            assert isinstance(value, plain) or type(value).__module__ == "rkdl.datasets._pickled_arrays"
            assert not isinstance(value, np.ndarray) or value.dtype.kind in "iu"


def write_mnist(folder, seed=0):
    rng = np.random.default_rng(seed)
    images, labels = rng.integers(0, 256, (20, 28, 28)).astype(np.uint8), np.arange(20, dtype=np.uint8) % 10
    contents = {
        "train-images": struct.pack(">4I", 0x0803, *images.shape) + images.tobytes(),
        "train-labels": struct.pack(">2I", 0x0801, 20) + labels.tobytes(),
    }
    for name, content in contents.items():
        (folder / f"{name}-idx{3 if 'images' in name else 1}-ubyte.gz").write_bytes(gzip.compress(content))
    return {name: hashlib.md5(content).hexdigest() for name, content in contents.items()}


class TestPublishedFiles:
    """A local file with a known name that is not the published one."""

    def test_mnist(self, tmp_path, monkeypatch):
        checksums = write_mnist(tmp_path)
        with pytest.warns(UserWarning, match=r"train-(images|labels).*is not the published train-") as told:
            datasets.fetch_mnist(data_home=tmp_path)
        assert len(told) == 2
        monkeypatch.setattr(_published, "CONTENT_MD5", checksums)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            datasets.fetch_mnist(data_home=tmp_path)

    @pytest.mark.parametrize("layout", ["folder", "tar"])
    def test_cifar10(self, layout, tmp_path, monkeypatch):
        content = pickle.dumps({"data": np.zeros((3, 3072), np.uint8), "labels": [0, 1, 2]}, 2)
        if layout == "folder":
            (tmp_path / "cifar-10-batches-py").mkdir()
            (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(content)
        else:
            with tarfile.open(tmp_path / "cifar-10-python.tar.gz", "w:gz") as archive:
                member = tarfile.TarInfo("cifar-10-batches-py/test_batch")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        with pytest.warns(UserWarning, match="is not the published test_batch"):
            datasets.fetch_cifar10(subset="test", data_home=tmp_path)
        monkeypatch.setattr(_published, "CONTENT_MD5", {"test_batch": hashlib.md5(content).hexdigest()})
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            datasets.fetch_cifar10(subset="test", data_home=tmp_path)

    def test_names_in_the_warning_are_harmless(self, tmp_path):
        folder = tmp_path / "red\x1b[31m"
        folder.mkdir()
        write_mnist(folder)
        with pytest.warns(UserWarning, match=r"red\\x1b\[31m"):
            datasets.fetch_mnist(data_home=folder)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes")
class TestPipes:
    """A pipe among the data is refused at once, not waited for."""

    def test_data_sets(self, tmp_path):
        write_mnist(tmp_path)
        (tmp_path / "train-images-idx3-ubyte.gz").unlink()
        os.mkfifo(tmp_path / "train-images-idx3-ubyte.gz")
        (tmp_path / "odds").mkdir()
        os.mkfifo(tmp_path / "odds" / "glass.mat")
        os.mkfifo(tmp_path / "cifar-10-python.tar.gz")
        os.mkfifo(tmp_path / "X.npy")
        for call in (
            lambda: datasets.fetch_mnist(data_home=tmp_path),
            lambda: datasets.fetch_odds("glass", data_home=tmp_path),
            lambda: datasets.fetch_cifar10(data_home=tmp_path),
            lambda: datasets.load_signals(tmp_path / "X.npy"),
            lambda: datasets.load_matlab_digits(tmp_path / "odds" / "glass.mat"),
        ):
            with pytest.raises(DatasetError, match=r"not a (regular )?file"):
                call()
