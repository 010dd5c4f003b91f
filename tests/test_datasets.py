"""The loaders of rkdl.datasets, on small made-up files; the real data where RKDL_DATA names their folder."""

from __future__ import annotations

import functools
import gzip
import hashlib
import http.server
import io
import os
import pickle
import socket
import struct
import subprocess
import sys
import tarfile
import threading
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse

from rkdl import datasets
from rkdl.datasets import DatasetError, _download, _published
from rkdl.datasets._matlab import read_mat

MNIST_MD5 = {
    "train-images-idx3-ubyte.gz": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte.gz": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte.gz": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte.gz": "27ae3e4e09519cfbb04c329615203637",
}


@pytest.fixture(autouse=True)
def _no_data_folder(monkeypatch, tmp_path, request):
    """Keep the user's own folders, and proxies, out of the tests on made-up files."""
    if "data_folder" not in request.fixturenames:
        monkeypatch.delenv("RKDL_DATA", raising=False)
        monkeypatch.setenv("HOME", str(tmp_path / "user"))
        # Made-up files are not the published ones, and tests of that say so.
        monkeypatch.setattr(_published, "CONTENT_MD5", {})
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def refused(call, *args, match, **kwargs):
    """Check that a call ends in one readable line, and return it."""
    with pytest.raises(DatasetError, match=match) as caught:
        call(*args, **kwargs)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 600
    return message


def idx(array, magic=None):
    array = np.asarray(array, dtype=np.uint8)
    header = struct.pack(f">{1 + array.ndim}I", magic or 0x0800 | array.ndim, *array.shape)
    return header + array.tobytes()


def mnist_files(rng, n_train=30, n_test=20):
    files = {}
    for part, count in (("train", n_train), ("t10k", n_test)):
        files[f"{part}-images-idx3-ubyte"] = idx(rng.integers(0, 256, (count, 28, 28)))
        files[f"{part}-labels-idx1-ubyte"] = idx(np.arange(count) % 10)
    return files


def write(folder, files, compress=False, dotted=False):
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        name = name.replace("-idx", ".idx") if dotted else name
        path = folder / (name + ".gz" if compress else name)
        path.write_bytes(gzip.compress(content) if compress else content)
    return folder


@pytest.mark.parametrize("sub_folder", ["", "mnist"])
@pytest.mark.parametrize(("compress", "dotted"), [(True, False), (False, False), (False, True)])
def test_mnist_layouts(tmp_path, rng, sub_folder, compress, dotted):
    files = mnist_files(rng)
    write(tmp_path / sub_folder, files, compress, dotted)
    mnist = datasets.fetch_mnist(data_home=tmp_path, download_if_missing=False)
    assert mnist.data.shape == (30, 784)
    assert mnist.data.dtype == np.uint8
    assert mnist.target.tolist() == [i % 10 for i in range(30)]
    assert mnist.data.tobytes() == files["train-images-idx3-ubyte"][16:]
    assert mnist.images.shape == (30, 28, 28)
    assert np.shares_memory(mnist.images, mnist.data)
    assert mnist.data.flags.writeable
    assert "MNIST" in mnist.DESCR


def test_mnist_selections(tmp_path, rng):
    write(tmp_path, mnist_files(rng))
    X, y = datasets.fetch_mnist(subset="all", data_home=tmp_path, return_X_y=True)
    X_test, y_test = datasets.fetch_mnist(subset="test", data_home=tmp_path, return_X_y=True)
    assert X.shape == (50, 784)
    np.testing.assert_array_equal(X[30:], X_test)
    np.testing.assert_array_equal(y[30:], y_test)
    fours = datasets.fetch_mnist(subset="all", label=np.int64(4), data_home=tmp_path)
    np.testing.assert_array_equal(fours.data, X[y == 4])
    assert set(fours.target) == {4}


@pytest.mark.parametrize("label", [10, -1, True, 4.0, "4"])
def test_bad_label_and_subset(tmp_path, label):
    for fetch in (datasets.fetch_mnist, datasets.fetch_cifar10):
        with pytest.raises(ValueError, match="integer from 0 to 9"):
            fetch(label=label, data_home=tmp_path)
        with pytest.raises(ValueError, match="'train', 'test', 'all'"):
            fetch(subset="valid", data_home=tmp_path)


def test_unpacked_file_that_kept_its_gz_name(tmp_path, rng):
    write(tmp_path, {name + ".gz": content for name, content in mnist_files(rng).items()})
    assert len(datasets.fetch_mnist(data_home=tmp_path).data) == 30


images_of_3 = np.zeros((3, 28, 28))


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("train-images-idx3-ubyte.gz", gzip.compress(idx(images_of_3), mtime=0)[:-20], "truncated"),
        (
            "train-images-idx3-ubyte.gz",
            gzip.compress(idx(images_of_3), mtime=0)[:30] + b"?" * 30,
            "gzip file is damaged",
        ),
        ("train-images-idx3-ubyte", idx(images_of_3, magic=0x0D03), "magic number is 0x00000d03"),
        ("train-images-idx3-ubyte", idx(images_of_3)[:-1], "3 x 28 x 28 bytes but 2351 follow"),
        ("train-images-idx3-ubyte", idx(images_of_3) + b"?", "but 2353 or more follow"),
        ("train-images-idx3-ubyte", b"\0\0\x08", "too few for an IDX header"),
        ("train-images-idx3-ubyte", b"", "0 bytes are too few"),
        ("train-images-idx3-ubyte", idx(np.zeros((3, 27, 28))), "27 x 28, not 28 x 28"),
        ("train-labels-idx1-ubyte", idx([1, 2]), "2 labels for the 3 images"),
        ("train-labels-idx1-ubyte", idx([1, 2, 10]), "label 10 is not a digit"),
        ("train-labels-idx1-ubyte", idx(images_of_3), "magic number"),
    ],
    ids=range(11),
)
def test_broken_mnist_file_is_named(tmp_path, name, content, match):
    files = {"train-images-idx3-ubyte": idx(images_of_3), "train-labels-idx1-ubyte": idx([1, 2, 3])}
    files.pop(name.removesuffix(".gz"))
    write(tmp_path, files | {name: content})
    message = refused(datasets.fetch_mnist, data_home=tmp_path, match=match)
    assert name in message


def test_missing_mnist_names_folder_and_remedy(tmp_path):
    message = refused(datasets.fetch_mnist, data_home=tmp_path, download_if_missing=False, match="RKDL_DATA")
    assert str(tmp_path) in message
    assert "train-images-idx3-ubyte.gz" in message


def cifar_batch(rng, count=20):
    data = rng.integers(0, 256, (count, 3072)).astype(np.uint8)
    return data, [i % 10 for i in range(count)]


def python2_pickle(data, labels):
    """Write a batch byte by byte as Python 2 did for the canonical files."""

    def text(value):
        return b"U" + bytes([len(value)]) + value

    dtype = b"cnumpy\ndtype\n" + text(b"u1") + b"K\x00K\x01\x87R(K\x03" + text(b"|") + b"NNN"
    dtype += b"J\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b") + b"\x87R"
    array += b"(K\x01" + b"K" + bytes([len(data)]) + b"M\x00\x0c\x86" + dtype + b"\x89"
    array += b"T" + struct.pack("<I", data.size) + data.tobytes() + b"tb"
    numbers = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return b"\x80\x02}(" + text(b"data") + array + text(b"labels") + numbers + b"u."


PICKLERS = {
    "python2": python2_pickle,
    "protocol2": lambda data, labels: pickle.dumps({"data": data, "labels": labels}, protocol=2),
    "protocol5": lambda data, labels: pickle.dumps({"data": data, "labels": labels}, protocol=5),
    "bytes": lambda data, labels: pickle.dumps({b"data": data, b"labels": np.array(labels)}, protocol=4),
}


def cifar_files(rng, pickler=python2_pickle):
    batches = {f"data_batch_{number}": cifar_batch(rng) for number in range(1, 6)} | {"test_batch": cifar_batch(rng)}
    return batches, {name: pickler(*batch) for name, batch in batches.items()}


def write_tar(path, files):
    # In another order than they are used.
    with tarfile.open(path, "w:gz") as archive:
        for name, content in sorted(files.items(), reverse=True):
            member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("layout", ["folder", "folder itself", "tar"])
@pytest.mark.parametrize("pickler", PICKLERS)
def test_cifar10_layouts(tmp_path, rng, layout, pickler):
    batches, files = cifar_files(rng, PICKLERS[pickler])
    if layout == "tar":
        write_tar(tmp_path / "cifar-10-python.tar.gz", files)
    else:
        write(tmp_path / ("" if layout == "folder itself" else "cifar-10-batches-py"), files)
    cifar = datasets.fetch_cifar10(data_home=tmp_path)
    assert cifar.data.shape == (100, 3072)
    assert cifar.images.shape == (100, 32, 32, 3)
    assert cifar.images.dtype == np.uint8
    assert np.shares_memory(cifar.images, cifar.data)
    assert cifar.target.tolist() == batches["data_batch_1"][1] * 5
    first = batches["data_batch_1"][0][0].reshape(3, 32, 32)
    np.testing.assert_array_equal(cifar.images[0, :, :, 2], first[2])
    test = datasets.fetch_cifar10(subset="test", data_home=tmp_path)
    np.testing.assert_array_equal(test.images[7, 3, 5], batches["test_batch"][0][7].reshape(3, 32, 32)[:, 3, 5])
    assert len(datasets.fetch_cifar10(subset="all", data_home=tmp_path).data) == 120


def test_cifar10_gray_of_one_class(tmp_path, rng):
    write(tmp_path / "cifar10" / "cifar-10-batches-py", cifar_files(rng)[1])
    colour = datasets.fetch_cifar10(label=3, data_home=tmp_path)
    gray = datasets.fetch_cifar10(label=3, gray=True, data_home=tmp_path)
    assert colour.target_names[3] == "cat"
    assert gray.data.shape == (10, 1024)
    assert gray.images.shape == (10, 32, 32)
    red, green, blue = (colour.images[..., channel].astype(float) for channel in range(3))
    np.testing.assert_allclose(gray.images, 0.2989 * red + 0.5870 * green + 0.1140 * blue, rtol=1e-12)


def test_cifar10_npz_holds_one_class(tmp_path, rng):
    path = tmp_path / "cifar10_airplane.npz"
    images = rng.integers(0, 256, (6, 32, 32, 3)).astype(np.uint8)
    np.savez(path, images=images)
    X, y = datasets.fetch_cifar10(label=0, data_home=tmp_path, return_X_y=True)
    np.testing.assert_array_equal(X, images.reshape(6, -1))
    assert y.tolist() == [0] * 6
    for requested in (
        {"label": 1},
        {"label": None},
        {"label": 0, "subset": "test"},
        {"label": 0, "subset": "all"},
    ):
        message = refused(datasets.fetch_cifar10, data_home=tmp_path, match="airplane", **requested)
        assert path.name in message
    assert os.listdir(tmp_path) == [path.name]

    content = path.read_bytes()
    for broken in (content[: len(content) // 2], content[:-30], b"", b"not a zip"):
        path.write_bytes(broken)
        assert path.name in refused(datasets.fetch_cifar10, label=0, data_home=tmp_path, match="`images`")
    for other in ({"images": images[..., 0]}, {"images": images.astype(float)}, {"pictures": images}):
        np.savez(path, **other)
        assert path.name in refused(datasets.fetch_cifar10, label=0, data_home=tmp_path, match="`images`")


class Malicious:
    def __reduce__(self):
        return os.system, ("echo bad > owned",)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (pickle.dumps(Malicious()), "system is not allowed"),
        (pickle.dumps({"data": np.array([Malicious()], dtype=object)}), "not allowed"),
        (pickle.dumps([1, 2]), "it does not hold a dictionary"),
        (pickle.dumps({"data": np.zeros((2, 3072)), "labels": [1, 2]}), "the type 'f8' is not allowed"),
        (pickle.dumps({"data": np.zeros((2, 3072), np.int8), "labels": [1, 2]}), "no array `data` of uint8"),
        (pickle.dumps({"data": np.zeros((2, 3072), np.uint8), "labels": [1]}), "not 2 integers"),
        (pickle.dumps({"data": np.zeros((2, 3072), np.uint8), "labels": [1, 10]}), "not 2 integers"),
        (pickle.dumps({"data": np.zeros((1, 3072), np.uint8), "labels": ["cat"]}), "not 1 integers"),
        (pickle.dumps({"data": np.zeros((1, 3072), np.uint8)}), "`labels`"),
        (pickle.dumps({"data": np.zeros((9, 3072), np.uint8), "labels": [0] * 9})[:-900], "not a pickle"),
        (b"c_codecs\nencode\n(Vx\nVrot13\ntR.", "codec 'rot13' is not allowed"),
        (b"", "not a pickle"),
        (b"<html>404</html>", "not a pickle"),
    ],
)
def test_broken_cifar10_batch_is_named(tmp_path, monkeypatch, rng, content, match):
    monkeypatch.chdir(tmp_path)
    folder = write(tmp_path / "cifar-10-batches-py", cifar_files(rng)[1] | {"data_batch_2": content})
    assert "data_batch_2" in refused(datasets.fetch_cifar10, data_home=tmp_path, match=match)
    assert not (tmp_path / "owned").exists()
    (folder / "data_batch_2").unlink()
    refused(datasets.fetch_cifar10, data_home=tmp_path, match="data_batch_2 is missing")


def test_broken_cifar10_archive_is_named(tmp_path, rng):
    path = tmp_path / "cifar-10-python.tar.gz"
    files = cifar_files(rng)[1]
    write_tar(path, files)
    content = path.read_bytes()
    for broken in (content[: len(content) // 2], content[:100], b"", b"<html>404</html>"):
        path.write_bytes(broken)
        assert path.name in refused(datasets.fetch_cifar10, data_home=tmp_path, match="damaged or truncated")
    write_tar(path, {name: files[name] for name in ("data_batch_1", "test_batch")})
    assert path.name in refused(datasets.fetch_cifar10, data_home=tmp_path, match="holds no data_batch_2")
    assert len(datasets.fetch_cifar10(subset="test", data_home=tmp_path).data) == 20


@pytest.mark.parametrize("is_packed", [True, False])
def test_matlab_variables_are_those_of_scipy(tmp_path, rng, is_packed):
    """Every numeric type, shape and kind that SciPy writes, next to text, cells and structures."""
    path = tmp_path / "all.mat"
    numbers = rng.integers(0, 100, (3, 4, 2))
    variables = {f"of_{code}": numbers.astype(code) for code in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f4")}
    variables |= {"complex": numbers + 2j, "logical": numbers > 50, "empty": np.zeros((0, 3)), "one": np.ones((1, 1))}
    variables |= {"a": np.eye(2), "sparse": scipy.sparse.random_array((9, 7), density=0.2, rng=rng, format="csc")}
    others = {"text": "words", "cell": np.array([1, "x"], dtype=object), "struct": {"field": np.ones(3)}}
    scipy.io.savemat(path, {**others, **variables, **others}, do_compression=is_packed)
    found, expected = read_mat(path), scipy.io.loadmat(path)
    assert set(found) == set(variables)
    for name, value in found.items():
        other = expected[name]
        other = other.toarray() if scipy.sparse.issparse(other) else other
        np.testing.assert_array_equal(value, other)
        assert value.dtype == other.dtype, name


def test_odds_files_are_read_as_scipy_reads_them(data_folder):
    paths = sorted((data_folder / "odds").glob("*.mat"))
    if not paths:
        pytest.skip("no ODDS sets")
    for path in paths:
        found = read_mat(path)
        try:
            expected = scipy.io.loadmat(path)
        except NotImplementedError:
            continue
        for name, value in found.items():
            np.testing.assert_array_equal(value, expected[name])
            assert value.dtype == expected[name].dtype


def test_missing_cifar10(tmp_path):
    message = refused(datasets.fetch_cifar10, data_home=tmp_path, download_if_missing=False, match="RKDL_DATA")
    assert "cifar-10-python.tar.gz" in message


@pytest.fixture
def server(tmp_path):
    """Serve a folder on loopback; ends with the test, and by itself after a minute."""
    folder = tmp_path / "served"
    folder.mkdir()

    class Quiet(http.server.SimpleHTTPRequestHandler):
        timeout = 10

        def log_message(self, *args):
            pass

    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        deadline = threading.Timer(60, httpd.shutdown)
        deadline.daemon = True
        deadline.start()
        try:
            yield folder, f"http://127.0.0.1:{httpd.server_port}/"
        finally:
            deadline.cancel()
            httpd.shutdown()
            thread.join(10)


@pytest.fixture
def mnist_server(server, rng, monkeypatch):
    """Serve small MNIST files, and put them into the table of sources with their checksums."""
    folder, url = server
    write(folder, mnist_files(rng), compress=True)
    checksums = {path.name: hashlib.md5(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    monkeypatch.setitem(_download.SOURCES, "mnist", _download.Source(url, checksums))
    return folder


def files_under(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_download_mnist(mnist_server, tmp_path, monkeypatch):
    pytest.importorskip("pooch")
    home = tmp_path / "home"
    monkeypatch.setenv("RKDL_DATA", str(home))
    fetched = datasets.fetch_mnist()
    assert fetched.data.shape == (30, 784)
    assert files_under(home) == [
        "mnist",
        "mnist/train-images-idx3-ubyte.gz",
        "mnist/train-labels-idx1-ubyte.gz",
    ]
    for path in mnist_server.iterdir():
        path.unlink()
    again = datasets.fetch_mnist(download_if_missing=False)
    np.testing.assert_array_equal(again.data, fetched.data)


def test_download_cifar10(server, tmp_path, rng, monkeypatch):
    pytest.importorskip("pooch")
    folder, url = server
    archive = folder / "cifar-10-python.tar.gz"
    write_tar(archive, cifar_files(rng)[1])
    checksums = {archive.name: hashlib.md5(archive.read_bytes()).hexdigest()}
    monkeypatch.setitem(_download.SOURCES, "cifar10", _download.Source(url, checksums))
    data, _ = datasets.fetch_cifar10(label=0, gray=True, data_home=tmp_path / "home", return_X_y=True)
    assert data.shape == (10, 1024)
    assert files_under(tmp_path / "home") == ["cifar10", "cifar10/cifar-10-python.tar.gz"]


def test_wrong_checksum_leaves_nothing_behind(mnist_server, tmp_path):
    pytest.importorskip("pooch")
    home = tmp_path / "home"
    bad = mnist_server / "train-labels-idx1-ubyte.gz"
    bad.write_bytes(bad.read_bytes()[:-1])
    message = refused(datasets.fetch_mnist, data_home=home, match="wrong MD5 checksum")
    assert bad.name in message
    assert files_under(home) == ["mnist", "mnist/train-images-idx3-ubyte.gz"]
    (mnist_server / "train-images-idx3-ubyte.gz").write_bytes(b"?")
    refused(datasets.fetch_mnist, data_home=tmp_path / "new", match="wrong MD5 checksum")
    assert not (tmp_path / "new").exists()


def test_file_not_on_the_server(mnist_server, tmp_path):
    pytest.importorskip("pooch")
    (mnist_server / "train-images-idx3-ubyte.gz").unlink()
    message = refused(datasets.fetch_mnist, data_home=tmp_path / "home", match="answered 404")
    assert "http://127.0.0.1" in message
    assert not (tmp_path / "home").exists()


def test_server_not_there(tmp_path):
    pytest.importorskip("pooch")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    message = refused(
        _download.download,
        "cifar10",
        "cifar-10-python.tar.gz",
        tmp_path / "home",
        base_url=f"http://127.0.0.1:{port}",
        match="cannot be reached",
    )
    assert "put cifar-10-python.tar.gz into" in message
    assert not (tmp_path / "home").exists()


def test_folder_that_cannot_be_written(mnist_server, tmp_path):
    pytest.importorskip("pooch")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "mnist").write_text("a file where the folder should be")
    refused(datasets.fetch_mnist, data_home=tmp_path / "home", match="cannot store")


def test_download_without_pooch(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    for fetch in (datasets.fetch_mnist, datasets.fetch_cifar10):
        message = refused(fetch, data_home=tmp_path / "home", match="needs pooch")
        assert 'pip install "rkdl[data]"' in message
        assert str(tmp_path / "home") in message
    assert not (tmp_path / "home").exists()


def test_sources_are_the_canonical_ones():
    assert set(_download.SOURCES) == {"mnist", "cifar10"}
    for source in _download.SOURCES.values():
        assert source.base_url.startswith("https://")
        assert all(len(checksum) == 32 for checksum in source.checksums.values())


def test_odds(tmp_path, rng):
    (tmp_path / "odds").mkdir()
    X, y = rng.integers(0, 9, (12, 3)).astype(np.uint8), np.arange(12)[:, np.newaxis] % 4 == 0
    scipy.io.savemat(tmp_path / "odds" / "cardio.mat", {"X": X, "y": y.astype(float)})
    odds = datasets.fetch_odds("cardio", data_home=tmp_path)
    assert odds.data.dtype == np.float64
    np.testing.assert_array_equal(odds.data, X)
    assert odds.target.tolist() == y.ravel().tolist()
    assert "3 of them outliers" in odds.DESCR
    data, target = datasets.fetch_odds("cardio", data_home=tmp_path, return_X_y=True)
    assert data.shape == (12, 3)
    assert target.shape == (12,)

    message = refused(datasets.fetch_odds, "glass", data_home=tmp_path, match="put it there")
    assert str(tmp_path / "odds" / "glass.mat") in message
    with pytest.raises(ValueError, match="'arrhythmia', 'cardio'"):
        datasets.fetch_odds("thyroid", data_home=tmp_path)


@pytest.mark.parametrize(
    ("variables", "match"),
    [
        ({"X": np.ones((3, 2))}, "X and y"),
        ({"X": np.ones((3, 2)), "y": np.ones((4, 1))}, "does not match 4 labels"),
        ({"X": np.ones((3, 2)), "y": np.array([[0, 1, 2]])}, "other than 0 and 1"),
    ],
)
def test_bad_odds_file_is_named(tmp_path, variables, match):
    (tmp_path / "odds").mkdir()
    path = tmp_path / "odds" / "glass.mat"
    scipy.io.savemat(path, variables)
    assert str(path) in refused(datasets.fetch_odds, "glass", data_home=tmp_path, match=match)
    path.write_bytes(path.read_bytes()[:-20])
    assert str(path) in refused(datasets.fetch_odds, "glass", data_home=tmp_path, match="not a MAT-file, or damaged")


def matlab_digits(rng, count=6):
    images = rng.random((count, 28, 28))
    return images, np.ascontiguousarray(images.transpose(1, 2, 0))[:, :, np.newaxis, :]


@pytest.mark.parametrize(("image_name", "label_name"), [("XTrain", "YTrain"), ("X", "y"), ("images", "labels")])
def test_matlab_digits(tmp_path, rng, image_name, label_name):
    images, stored = matlab_digits(rng)
    path = tmp_path / "digits.mat"
    scipy.io.savemat(path, {image_name: stored, label_name: np.arange(6.0)}, do_compression=True)
    digits = datasets.load_matlab_digits(path)
    np.testing.assert_array_equal(digits.images, images)
    assert digits.data.shape == (6, 784)
    assert np.shares_memory(digits.images, digits.data)
    assert digits.target.tolist() == [0, 1, 2, 3, 4, 5]
    scipy.io.savemat(path, {image_name: stored[:, :, 0]})
    digits = datasets.load_matlab_digits(str(path))
    np.testing.assert_array_equal(digits.images, images)
    assert digits.target is None
    np.testing.assert_array_equal(datasets.load_signals(path), images.reshape(6, -1))


@pytest.mark.parametrize(
    ("variables", "match"),
    [
        ({"other": np.ones((28, 28, 1, 4))}, "XTrain, X or images among other"),
        ({"XTrain": "text"}, "among none"),
        ({"XTrain": np.ones((28, 28))}, "28 x 28, not 28 x 28 x 1 x N"),
        ({"XTrain": np.ones((28, 28, 3, 4))}, "28 x 28 x 3 x 4"),
        ({"XTrain": np.full((28, 28, 1, 4), np.nan)}, "finite"),
        ({"XTrain": np.ones((28, 28, 1, 4)), "YTrain": np.ones(3)}, "3 labels in YTrain for 4 images"),
        ({"XTrain": np.ones((28, 28, 1, 2)), "YTrain": np.array([0.5, 1])}, "not integers"),
        ({"XTrain": np.ones((28, 28, 1, 2)), "YTrain": np.array([np.nan, 1])}, "not integers"),
    ],
)
def test_bad_matlab_digits(tmp_path, variables, match):
    path = tmp_path / "digits.mat"
    scipy.io.savemat(path, variables)
    assert str(path) in refused(datasets.load_matlab_digits, path, match=match)


def test_broken_mat_files(tmp_path, rng):
    path = tmp_path / "digits.mat"
    scipy.io.savemat(path, {"XTrain": matlab_digits(rng)[1]})
    content = path.read_bytes()
    for broken in (content[: len(content) // 2], content[:140], content[:100], b"", b"<html>404</html>"):
        path.write_bytes(broken)
        for load in (datasets.load_matlab_digits, datasets.load_signals):
            assert str(path) in refused(load, path, match="not a MAT-file, or damaged|no numeric")
    refused(datasets.load_matlab_digits, tmp_path / "none.mat", match="cannot be read")


def test_mat_7_3_without_h5py(tmp_path, monkeypatch):
    path = tmp_path / "digits.mat"
    path.write_bytes(b"MATLAB 7.3 MAT-file".ljust(512) + b"\x89HDF\r\n\x1a\n")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    message = refused(datasets.load_matlab_digits, path, match="pip install h5py")
    assert "'-v7'" in message


def test_mat_7_3(tmp_path, rng):
    h5py = pytest.importorskip("h5py", reason="h5py reads MAT-files of version 7.3")
    images, stored = matlab_digits(rng)
    path = tmp_path / "digits.mat"
    with h5py.File(path, "w", userblock_size=512) as file:
        file["XTrain"] = stored.T
        file["YTrain"] = np.arange(6.0)[np.newaxis]
        file["note"] = np.frombuffer(b"note", dtype=np.uint8)
        file["note"].attrs["MATLAB_class"] = np.bytes_("char")
    digits = datasets.load_matlab_digits(path)
    np.testing.assert_array_equal(digits.images, images)
    assert digits.target.tolist() == [0, 1, 2, 3, 4, 5]
    path.write_bytes(path.read_bytes()[:3000])
    refused(datasets.load_matlab_digits, path, match="not a MAT-file, or damaged")


@pytest.mark.parametrize("dtype", ["f2", "f4", ">f4", "f8", ">f8", "u1", "i8", "?"])
@pytest.mark.parametrize("shape", [(5, 4), (5, 2, 2), (5, 2, 1, 2)])
def test_load_npy(tmp_path, rng, dtype, shape):
    array = rng.integers(0, 2, shape).astype(dtype)
    np.save(tmp_path / "a.npy", array)
    signals = datasets.load_signals(tmp_path / "a.npy")
    assert signals.shape == (5, 4)
    assert signals.dtype == (np.float32 if dtype in ("f2", "f4", ">f4") else np.float64)
    assert signals.flags.c_contiguous
    np.testing.assert_array_equal(signals, array.reshape(5, 4))


def test_load_npz_and_mat_by_key(tmp_path, rng):
    a, b = rng.random((3, 2)), rng.random((4, 2))
    np.savez_compressed(tmp_path / "one.npz", a=a)
    np.savez(tmp_path / "two.npz", a=a, b=b)
    np.savez(tmp_path / "named.npz", X=a, y=np.ones(3))
    scipy.io.savemat(tmp_path / "two.mat", {"a": a, "b": scipy.sparse.csc_array(b), "note": "text"})
    scipy.io.savemat(tmp_path / "named.mat", {"X": a, "y": b})
    for name in ("one.npz", "named.npz", "named.mat"):
        np.testing.assert_array_equal(datasets.load_signals(tmp_path / name), a)
    for name in ("two.npz", "two.mat"):
        np.testing.assert_array_equal(datasets.load_signals(tmp_path / name, key="b"), b)
        assert "a, b" in refused(datasets.load_signals, tmp_path / name, match="several arrays")
        assert "a, b" in refused(datasets.load_signals, tmp_path / name, key="c", match="'c'")
    np.save(tmp_path / "a.npy", a)
    with pytest.raises(ValueError, match=r"key='a' is for \.npz and \.mat"):
        datasets.load_signals(tmp_path / "a.npy", key="a")


@pytest.mark.parametrize(
    ("array", "match"),
    [
        (np.ones(4), "1-D"),
        (np.float64(3), "0-D"),
        (np.ones((0, 3)), "no signals"),
        (np.ones((3, 0)), "no signals"),
        (np.ones((2, 2), dtype=complex), "complex128"),
        (np.array([["a", "b"]]), "not real numbers"),
        (np.array([["2020-01-01"]], dtype="M8[D]"), "datetime64"),
        (np.array([[1, None]], dtype=object), "without Python objects"),
        (np.array([[1.0, 2.0], [3.0, np.nan]]), "row 1, column 1 .* is nan"),
        (np.array([[1.0, -np.inf], [3.0, np.nan]]), "row 0, column 1 .* is -inf"),
        (np.array([[[1.0, 2.0], [3.0, np.nan]]]), "row 0, column 3"),
    ],
)
@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_bad_arrays(tmp_path, array, match, suffix):
    path = tmp_path / f"a{suffix}"
    if suffix == ".npy":
        np.save(path, array, allow_pickle=True)
    else:
        np.savez(path, array)
    assert str(path) in refused(datasets.load_signals, path, match=match)


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_broken_numpy_files(tmp_path, rng, suffix):
    path = tmp_path / f"a{suffix}"
    (np.save if suffix == ".npy" else np.savez)(path, rng.random((20, 20)))
    content = path.read_bytes()
    for broken in (content[:-100], content[:60], content[:3], b"", b"1,2\n3,4\n", pickle.dumps(Malicious())):
        path.write_bytes(broken)
        assert str(path) in refused(datasets.load_signals, path, match="no plain array")


@pytest.mark.parametrize(
    "text",
    [
        "1,2.5\n-3,4e1\n",
        "a,b\n1,2.5\n-3,4e1\n",
        '"width","height, cm"\r\n1,"2.5"\r\n-3,40\r\n',
        "\ufeffa;b\n1;2.5\n-3;40",
        "# made by savetxt\n\n1\t2.5\n\n-3\t40\n\n",
        " a , b \n 1 , 2.5 \n -3 , 40 \n",
    ],
)
def test_csv(tmp_path, text):
    path = tmp_path / "a.CSV"
    path.write_bytes(text.encode())
    np.testing.assert_array_equal(datasets.load_signals(path), [[1, 2.5], [-3, 40]])


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("a,b\n1,2\n3,x\n", "line 3, column 2 is 'x'"),
        ("1,2\n\n3,\n", "line 3, column 2 is empty"),
        (",\n1,2\n", "line 1, column 1 is empty"),
        ("1,2\n,\n1,2\n", "line 2, column 1 is empty"),
        ("1,b\n1,2\n", "line 1, column 2 is 'b'"),
        ("# c\na,b\n1,2\n3,nan\n", "line 4, column 2 is 'nan'"),
        ("1,2\n3,inf\n", "line 2, column 2 is 'inf'"),
        ("1,2\n3\n", "line 2 has 1 cells, the first line 2"),
        ("1,2\n3,4,5\n", "line 2 has 3 cells"),
        ("1;2,5\n3;4\n", "line 1, column 2 is '2,5'"),
        ("1,2\n3," + "long" * 100, r"is 'long.*\.\.\.'"),
        ("a,b\n", "no signals"),
        ("", "empty"),
        ("\n \n", "empty"),
    ],
)
def test_bad_csv(tmp_path, text, match):
    path = tmp_path / "a.csv"
    path.write_text(text)
    assert str(path) in refused(datasets.load_signals, path, match=match)


def test_csv_that_is_not_text(tmp_path):
    path = tmp_path / "a.csv"
    path.write_bytes(b"\x89PNG\r\n\x1a\n\xff\xfe")
    refused(datasets.load_signals, path, match="UTF-8")
    path.write_bytes(b"1,2\n3,\xff\n")
    refused(datasets.load_signals, path, match="UTF-8|not a CSV")


def test_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow reads Parquet")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"

    def store(**columns):
        parquet.write_table(pyarrow.table(columns), path)

    store(a=[1, 2, 3], b=[0.5, 1.5, 2.5], c=[True, False, True])
    np.testing.assert_array_equal(datasets.load_signals(path), [[1, 0.5, 1], [2, 1.5, 0], [3, 2.5, 1]])
    store(a=[1, 2], b=["3", "4"])
    assert str(path) in refused(datasets.load_signals, path, match="column 'b' is not numeric")
    store(a=[1, 2], b=[[1], [2, 3]])
    refused(datasets.load_signals, path, match="column 'b' is not numeric")
    store(a=[1, 2], b=[3, None])
    refused(datasets.load_signals, path, match=r"row 1 \(from 0\) of the column 'b' is nan")
    store(a=[1, 2], b=[None, True])
    refused(datasets.load_signals, path, match=r"row 0 \(from 0\) of the column 'b' is nan")
    store(a=pyarrow.array([], type=pyarrow.float64()))
    refused(datasets.load_signals, path, match="no signals")
    store()
    refused(datasets.load_signals, path, match="no columns")
    store(a=[1.0, 2.0])
    content = path.read_bytes()
    for broken in (content[:-10], content[10:], b""):
        path.write_bytes(broken)
        assert str(path) in refused(datasets.load_signals, path, match="not a Parquet file, or damaged")


def test_parquet_without_its_readers(tmp_path, monkeypatch):
    path = tmp_path / "a.parquet"
    path.write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    monkeypatch.setitem(sys.modules, "pandas", None)
    message = refused(datasets.load_signals, path, match="pip install pyarrow")
    assert str(path) in message


def test_not_a_signals_file(tmp_path):
    refused(datasets.load_signals, tmp_path / "none.npy", match="no such file")
    refused(datasets.load_signals, tmp_path / ("long" * 70 + ".npy"), match="no such file")
    (tmp_path / "folder.npy").mkdir()
    refused(datasets.load_signals, tmp_path / "folder.npy", match="not a file")
    assert ".parquet" in refused(datasets.load_signals, tmp_path / "a.txt", match="ending '.txt' is not known")


def test_digits():
    assert datasets.load_digits_signals().shape == (1797, 64)
    assert datasets.load_digits_signals().dtype == np.float64
    assert datasets.load_digits_signals(label=4).shape == (181, 64)
    with pytest.raises(ValueError, match="0 to 9"):
        datasets.load_digits_signals(label=12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [1, 1e-300, 1e-150, 1e150, 1e300])
def test_normalize_signals(rng, dtype, scale):
    X = rng.standard_normal((50, 7)) * scale
    X[3] = 0
    before = X.copy()
    signals = datasets.normalize_signals(X, dtype)
    assert signals.dtype == dtype
    np.testing.assert_array_equal(X, before)
    norms = np.linalg.norm(signals.astype(float), axis=1)
    np.testing.assert_allclose(np.delete(norms, 3), 1, rtol=1e-6 if dtype == np.float32 else 1e-14)
    assert not signals[3].any()
    np.testing.assert_allclose(signals[0], (X / scale)[0] / np.linalg.norm((X / scale)[0]), rtol=1e-5)


def test_normalize_signals_in_blocks(rng):
    X = rng.integers(0, 256, (5, 2**19)).astype(np.uint8)
    X.flags.writeable = False
    signals = datasets.normalize_signals(X[:, ::-1])
    np.testing.assert_allclose(np.linalg.norm(signals, axis=1), 1, rtol=1e-5)
    np.testing.assert_allclose(signals[4], X[4, ::-1] / np.linalg.norm(X[4].astype(float)), rtol=1e-6)


@pytest.mark.parametrize("bad", [[1, 2], [[np.nan, 1]], [["a"]], [[1j]], np.ones((0, 2)), scipy.sparse.eye_array(2)])
def test_normalize_signals_refuses(bad):
    with pytest.raises((ValueError, TypeError)):
        datasets.normalize_signals(bad)


@pytest.mark.parametrize("dtype", [np.float16, int, ">f4", None, "nonsense"])
def test_bad_dtype(dtype):
    with pytest.raises(ValueError, match="float32 or float64"):
        datasets.normalize_signals([[1.0]], dtype)


def test_data_home(tmp_path, monkeypatch):
    assert datasets.get_data_home() == tmp_path / "user" / "rkdl_data"
    monkeypatch.setenv("RKDL_DATA", "")
    assert datasets.get_data_home() == tmp_path / "user" / "rkdl_data"
    monkeypatch.setenv("RKDL_DATA", str(tmp_path / "env"))
    assert datasets.get_data_home() == tmp_path / "env"
    assert datasets.get_data_home("~/mine") == tmp_path / "user" / "mine"
    assert datasets.get_data_home("~nobody-of-that-name/x").name == "x"
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    assert str(tmp_path / "file") in refused(datasets.get_data_home, tmp_path / "file", match="not a folder")


def test_reading_leaves_the_folder_alone(tmp_path, rng):
    write(tmp_path, mnist_files(rng), compress=True)
    write_tar(tmp_path / "cifar-10-python.tar.gz", cifar_files(rng)[1])
    before = files_under(tmp_path)
    datasets.fetch_mnist(subset="all", data_home=tmp_path)
    datasets.fetch_cifar10(subset="all", data_home=tmp_path)
    assert files_under(tmp_path) == before


def test_dataset_error_is_a_value_error_that_pickles():
    error = DatasetError(Path("a.npy"), "is\n broken", "save it again")
    assert isinstance(error, ValueError)
    assert str(error) == "a.npy: is broken; save it again"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.slow
def test_import_is_light():
    heavy = ("pooch", "requests", "pandas", "pyarrow", "h5py", "scipy.io", "sklearn.datasets")
    # Only what the datasets add: scikit-learn answers for its own imports.
    program = (
        "import sys, sklearn.utils; before = set(sys.modules); import rkdl.datasets; "
        f"print([name for name in {heavy} if name in set(sys.modules) - before])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert result.stdout.strip() == "[]"


@pytest.mark.slow
def test_real_mnist(data_folder):
    for name, checksum in MNIST_MD5.items():
        assert hashlib.md5(gzip.decompress((data_folder / "mnist" / name).read_bytes())).hexdigest() == checksum
    everything = datasets.fetch_mnist(subset="all", download_if_missing=False)
    assert everything.data.shape == (70000, 784)
    assert np.bincount(everything.target[:60000])[4] == 5842


def test_real_cifar10(data_folder):
    data, _ = datasets.fetch_cifar10(label=0, gray=True, download_if_missing=False, return_X_y=True)
    assert data.shape == (5000, 1024)


@pytest.mark.parametrize("name", datasets.ODDS_NAMES)
def test_real_odds(data_folder, name):
    data, target = datasets.fetch_odds(name, return_X_y=True)
    assert np.isfinite(data).all()
    assert 0 < target.mean() < 0.4
