"""The loaders of rkdl.datasets, on small made-up files; the real data where RKDL_DATA names their folder."""

from __future__ import annotations

import functools
import gzip
import hashlib
import http.server
import io
import os
import pickle
import struct
import subprocess
import sys
import tarfile
import threading
import tracemalloc
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse

from rkdl import datasets
from rkdl.datasets import DatasetError, _published


@pytest.fixture(autouse=True)
def _no_data_folder(monkeypatch, tmp_path, request):
    """Keep the user's own folders, and proxies, out of the tests on made-up files."""
    if "data_folder" not in request.fixturenames:
        monkeypatch.delenv("RKDL_DATA", raising=False)
        monkeypatch.setenv("HOME", str(tmp_path / "user"))
        # Made-up files are not the published ones, and a test of that says so.
        monkeypatch.setattr(_published, "check_published", lambda *args: None)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def refused(call, *args, match, **kwargs):
    """Check that a call ends in one readable line, and return it."""
    with pytest.raises(DatasetError, match=match) as caught:
        call(*args, **kwargs)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 600
    return message


def idx(array):
    array = np.asarray(array, dtype=np.uint8)
    header = struct.pack(f">{1 + array.ndim}I", 0x0800 | array.ndim, *array.shape)
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
def test_mnist(tmp_path, rng, sub_folder, compress, dotted):
    files = mnist_files(rng)
    write(tmp_path / sub_folder, files, compress, dotted)
    mnist = datasets.fetch_mnist(data_home=tmp_path, download_if_missing=False)
    assert mnist.data.dtype == np.uint8
    assert mnist.target.tolist() == [i % 10 for i in range(30)]
    assert mnist.data.tobytes() == files["train-images-idx3-ubyte"][16:]
    assert mnist.images.shape == (30, 28, 28)
    assert np.shares_memory(mnist.images, mnist.data)
    assert mnist.data.flags.writeable
    X, y = datasets.fetch_mnist(subset="all", data_home=tmp_path, return_X_y=True)
    X_test, y_test = datasets.fetch_mnist(subset="test", data_home=tmp_path, return_X_y=True)
    np.testing.assert_array_equal(X, np.concatenate([mnist.data, X_test]))
    np.testing.assert_array_equal(y[30:], y_test)
    fours = datasets.fetch_mnist(subset="all", label=np.int64(4), data_home=tmp_path)
    np.testing.assert_array_equal(fours.data, X[y == 4])
    assert set(fours.target) == {4}


def test_bad_label_and_subset(tmp_path):
    for fetch in (datasets.fetch_mnist, datasets.fetch_cifar10):
        for label in (10, -1, True, 4.0, "4"):
            with pytest.raises(ValueError, match="integer from 0 to 9"):
                fetch(label=label, data_home=tmp_path)
        with pytest.raises(ValueError, match="'train', 'test', 'all'"):
            fetch(subset="valid", data_home=tmp_path)


@pytest.mark.parametrize(
    ("fetch", "name"),
    [(datasets.fetch_mnist, "train-images-idx3-ubyte.gz"), (datasets.fetch_cifar10, "cifar-10-binary.tar.gz")],
)
def test_missing_files_name_folder_and_remedy(tmp_path, monkeypatch, fetch, name):
    message = refused(fetch, data_home=tmp_path, download_if_missing=False, match="RKDL_DATA")
    assert str(tmp_path) in message
    assert name in message
    monkeypatch.setitem(sys.modules, "pooch", None)
    message = refused(fetch, data_home=tmp_path / "home", match="needs pooch")
    assert 'pip install "rkdl[data]"' in message
    assert not (tmp_path / "home").exists()


def cifar_files(rng, count=20):
    """Batches in the binary format: a byte of the class, then the planes of red, green and blue."""
    names = [*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin"]
    labels = np.arange(count, dtype=np.uint8)[:, np.newaxis] % 10
    return {name: np.hstack([labels, rng.integers(0, 256, (count, 3072), np.uint8)]).tobytes() for name in names}


def write_tar(path, files):
    # In another order than they are used.
    with tarfile.open(path, "w:gz") as archive:
        for name, content in sorted(files.items(), reverse=True):
            member = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


@pytest.mark.parametrize("layout", ["cifar-10-batches-bin", "cifar10/cifar-10-batches-bin", "tar"])
def test_cifar10(tmp_path, rng, layout):
    files = cifar_files(rng)
    if layout == "tar":
        write_tar(tmp_path / "cifar-10-binary.tar.gz", files)
    else:
        write(tmp_path / layout, files)
    cifar = datasets.fetch_cifar10(data_home=tmp_path)
    assert cifar.data.shape == (100, 3072)
    assert cifar.images.shape == (100, 32, 32, 3)
    assert cifar.images.dtype == np.uint8
    assert np.shares_memory(cifar.images, cifar.data)
    assert cifar.target.tolist() == [row % 10 for row in range(20)] * 5
    planes = np.frombuffer(files["data_batch_1.bin"], np.uint8, count=3072, offset=1).reshape(3, 32, 32)
    np.testing.assert_array_equal(cifar.images[0, :, :, 2], planes[2])
    assert len(datasets.fetch_cifar10(subset="test", data_home=tmp_path).data) == 20
    assert len(datasets.fetch_cifar10(subset="all", data_home=tmp_path).data) == 120
    gray = datasets.fetch_cifar10(label=3, gray=True, data_home=tmp_path)
    assert gray.target_names[3] == "cat"
    assert gray.images.shape == (10, 32, 32)
    red, green, blue = (cifar.images[cifar.target == 3][..., channel].astype(float) for channel in range(3))
    np.testing.assert_allclose(gray.images, 0.2989 * red + 0.5870 * green + 0.1140 * blue, rtol=1e-12)


def test_broken_cifar10_files_are_named(tmp_path, rng):
    files = cifar_files(rng)
    folder = write(tmp_path / "cifar-10-batches-bin", files)
    write(folder, {"data_batch_2.bin": files["data_batch_2.bin"][:-1]})
    assert "data_batch_2.bin" in refused(datasets.fetch_cifar10, data_home=tmp_path, match="61459")
    (folder / "data_batch_2.bin").unlink()
    refused(datasets.fetch_cifar10, data_home=tmp_path, match="data_batch_2.bin: there is no such file")


@pytest.mark.parametrize("name", ["cifar-10-python.tar.gz", "cifar10/cifar-10-batches-py"])
def test_pickles_of_cifar10_are_not_read(tmp_path, name):
    (tmp_path / name).mkdir(parents=True)
    refused(datasets.fetch_cifar10, data_home=tmp_path, download_if_missing=False, match="none of cifar-10-binary")


def test_cifar10_npz_holds_one_class(tmp_path, rng):
    path = tmp_path / "cifar10_airplane.npz"
    images = rng.integers(0, 256, (6, 32, 32, 3)).astype(np.uint8)
    np.savez(path, images=images)
    X, y = datasets.fetch_cifar10(label=0, data_home=tmp_path, return_X_y=True)
    np.testing.assert_array_equal(X, images.reshape(6, -1))
    assert y.tolist() == [0] * 6
    for requested in ({"label": 1}, {"label": None}, {"label": 0, "subset": "test"}, {"label": 0, "subset": "all"}):
        assert path.name in refused(datasets.fetch_cifar10, data_home=tmp_path, match="airplane", **requested)
    content = path.read_bytes()
    for broken in (content[: len(content) // 2], b"", b"not a zip"):
        path.write_bytes(broken)
        assert path.name in refused(
            datasets.fetch_cifar10, label=0, data_home=tmp_path, match="cannot be read as an array"
        )
    for other in ({"images": images[..., 0]}, {"images": images.astype(float)}, {"pictures": images}):
        np.savez(path, **other)
        assert path.name in refused(datasets.fetch_cifar10, label=0, data_home=tmp_path, match="images")


def test_files_that_are_not_the_published_ones_are_refused(tmp_path, rng, monkeypatch):
    monkeypatch.undo()
    files = mnist_files(rng)
    folder = write(tmp_path / "other", files)
    refused(datasets.fetch_mnist, data_home=folder, match="train-images-idx3-ubyte: this is not the published file")
    for name, content in files.items():
        monkeypatch.setitem(_published.FILES, f"{name}.gz", ("", "", hashlib.md5(content).hexdigest()))
    assert len(datasets.fetch_mnist(data_home=folder).data) == 30
    path = folder / "train-labels-idx1-ubyte"
    for broken in (b"", path.read_bytes()[:-1], gzip.compress(path.read_bytes())[:-20]):
        path.write_bytes(broken)
        refused(datasets.fetch_mnist, data_home=folder, match="train-labels-idx1-ubyte: (this is not|cannot be read)")
    write_tar(folder / "cifar-10-binary.tar.gz", cifar_files(rng))
    refused(datasets.fetch_cifar10, data_home=folder, match="cifar-10-binary.tar.gz: this is not the published file")


def test_small_files_do_not_fill_the_memory(tmp_path, monkeypatch):
    """MNIST's files are decompressed no further than the published ones are long."""
    monkeypatch.undo()
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(1000 * gzip.compress(bytes(2**20)))
    tracemalloc.start()
    refused(datasets.fetch_mnist, data_home=tmp_path, match="is not the published file")
    assert tracemalloc.get_traced_memory()[1] < 200 * 2**20
    tracemalloc.stop()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes")
def test_pipes_are_refused_and_not_waited_for(tmp_path):
    for name in ("train-images-idx3-ubyte.gz", "cifar-10-binary.tar.gz", "X.mat", "X.npy", "X.csv"):
        os.mkfifo(tmp_path / name)
    for call in (
        lambda: datasets.fetch_mnist(data_home=tmp_path),
        lambda: datasets.load_signals(tmp_path / "X.mat"),
        lambda: datasets.fetch_cifar10(data_home=tmp_path),
        lambda: datasets.load_signals(tmp_path / "X.npy"),
        lambda: datasets.load_signals(tmp_path / "X.csv"),
    ):
        refused(call, match="not a regular file")


@pytest.fixture
def mnist_server(tmp_path, rng, monkeypatch):
    """Serve small MNIST files on loopback, and put them into the table of sources with their checksums."""
    folder = write(tmp_path / "served", mnist_files(rng), compress=True)
    checksums = {path.name: hashlib.md5(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for name, checksum in checksums.items():
            monkeypatch.setitem(_published.FILES, name, (f"http://127.0.0.1:{server.server_port}/", checksum, ""))
        yield folder
        server.shutdown()


def test_download(mnist_server, tmp_path, monkeypatch):
    """Files are kept if their checksum is right; nothing else is."""
    pytest.importorskip("pooch")
    home = tmp_path / "home"
    monkeypatch.setenv("RKDL_DATA", str(home))
    bad = mnist_server / "train-labels-idx1-ubyte.gz"
    good = bad.read_bytes()
    bad.write_bytes(good[:-1])
    assert bad.name in refused(datasets.fetch_mnist, match="does not match the known hash")
    assert [path.name for path in (home / "mnist").iterdir()] == ["train-images-idx3-ubyte.gz"]
    bad.unlink()
    assert "http://127.0.0.1" in refused(datasets.fetch_mnist, match="cannot be downloaded .*404")
    bad.write_bytes(good)
    fetched = datasets.fetch_mnist()
    assert fetched.data.shape == (30, 784)
    again = datasets.fetch_mnist(download_if_missing=False)
    np.testing.assert_array_equal(again.data, fetched.data)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mnist").write_text("a file where the folder should be")
    refused(datasets.fetch_mnist, data_home=tmp_path / "other", match="cannot be downloaded")


@pytest.mark.parametrize("name", ["XTrain", "X", "images"])
def test_images_of_matlab(tmp_path, rng, name):
    """MATLAB's last axis counts images."""
    images = rng.random((6, 28, 28))
    stored = np.ascontiguousarray(images.transpose(1, 2, 0))[:, :, np.newaxis, :]
    for array in (stored, stored[:, :, 0]):
        scipy.io.savemat(tmp_path / "digits.mat", {name: array, "YTrain": np.arange(6.0)}, do_compression=True)
        np.testing.assert_array_equal(datasets.load_signals(tmp_path / "digits.mat"), images.reshape(6, -1))


FOUR = np.ones((28, 28, 1, 4))


@pytest.mark.parametrize(
    ("variables", "match"),
    [
        ({"one": FOUR, "other": FOUR}, "holds the arrays one, other"),
        ({"XTrain": "text"}, "holds the arrays none"),
        ({"XTrain": FOUR * np.nan}, "not a finite number"),
    ],
)
def test_bad_mat_files(tmp_path, variables, match):
    path = tmp_path / "digits.mat"
    scipy.io.savemat(path, variables)
    assert str(path) in refused(datasets.load_signals, path, match=match)
    content = path.read_bytes()
    for broken in (content[: len(content) // 2], content[:140], b"", b"<html>404</html>"):
        path.write_bytes(broken)
        assert str(path) in refused(datasets.load_signals, path, match="cannot be read as a MAT file")
    path.write_bytes(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM".ljust(388) + b"\x89HDF\r\n\x1a\n")
    assert "save it with '-v7'" in refused(datasets.load_signals, path, match="version 7.3 are not supported")


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


def test_load_zarr_and_sparse(tmp_path, rng):
    zarr = pytest.importorskip("zarr")
    a = rng.random((4, 2, 3))
    zarr.create_array(store=str(tmp_path / "a.zarr"), data=a)
    np.testing.assert_array_equal(datasets.load_signals(tmp_path / "a.zarr"), a.reshape(4, 6))
    scipy.sparse.save_npz(tmp_path / "a.npz", scipy.sparse.csr_array(a[0]))
    np.testing.assert_array_equal(datasets.load_signals(tmp_path / "a.npz"), a[0])


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
        assert "a, b" in refused(datasets.load_signals, tmp_path / name, match="holds the arrays")
        assert "a, b" in refused(datasets.load_signals, tmp_path / name, key="c", match="'c'")
    np.save(tmp_path / "a.npy", a)
    refused(datasets.load_signals, tmp_path / "a.npy", key="a", match="one array without a name")


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


def test_bad_sparse_arrays(tmp_path):
    for array, match in (
        (scipy.sparse.eye_array(3, dtype=complex), "complex128"),
        (scipy.sparse.csr_array((0, 3)), "no signals"),
    ):
        scipy.sparse.save_npz(tmp_path / "a.npz", array.tocsr())
        assert "a.npz" in refused(datasets.load_signals, tmp_path / "a.npz", match=match)
    scipy.sparse.save_npz(tmp_path / "a.npz", scipy.sparse.csr_array((4, 3)))
    assert datasets.load_signals(tmp_path / "a.npz").shape == (4, 3)


@pytest.mark.parametrize(
    "text",
    [
        "1,2.5\n-3,4e1\n",
        "a,b\n1,2.5\n-3,4e1\n",
        '"width","height, cm"\r\n1,"2.5"\r\n-3,40\r\n',
        "\ufeffa;b\n1;2.5\n-3;40",
        "# made by,savetxt\n\n1\t2.5\n\n-3\t40\n\n".replace(",", "\t"),
        " a , b \n 1 , 2.5 \n -3 , 40 \n",
        '\n"two\nlines",b\n1,2.5\n-3,40\n',
    ],
)
def test_csv(tmp_path, text):
    path = tmp_path / "a.CSV"
    path.write_bytes(text.encode())
    np.testing.assert_array_equal(datasets.load_signals(path), [[1, 2.5], [-3, 40]])


def test_header_of_numbers(tmp_path, rng):
    """The names that pandas gives to columns are a header, and a warning says so; other numbers are only if told."""
    path = tmp_path / "a.csv"
    X = rng.random((5, 3))
    for index in (True, False):
        pd.DataFrame(X).to_csv(path, index=index)
        with pytest.warns(UserWarning, match=r"first line, 0, 1, 2 \.\.\., is read as the header"):
            np.testing.assert_array_equal(datasets.load_signals(path), X)
    assert datasets.load_signals(path, header=False).shape == (6, 3)
    pd.DataFrame(X, columns=[2019, 2020, 2021]).to_csv(path, index=False)
    with pytest.warns(UserWarning, match=r"first line, 2019, 2020, 2021 \.\.\., is read as the header"):
        np.testing.assert_array_equal(datasets.load_signals(path), X)
    pd.DataFrame(X, columns=[0.0, 1.0, 2.0]).to_csv(path)
    with pytest.warns(UserWarning, match=r"first line, 0\.0, 1\.0, 2\.0 \.\.\., is read as the header"):
        np.testing.assert_array_equal(datasets.load_signals(path), X)
    # Two numbers count up by chance.
    pd.DataFrame(X[:, :2], columns=[5, 6]).to_csv(path, index=False)
    assert datasets.load_signals(path).shape == (6, 2)
    pd.DataFrame(X, columns=[10, 20, 30]).to_csv(path, index=False)
    assert datasets.load_signals(path).shape == (6, 3)
    np.testing.assert_array_equal(datasets.load_signals(path, header=True), X)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("a,b\n1,2\n3,x\n", r"not numeric: b \('x'\)"),
        ("a,b\n1,2\n#3,4\n", r"not numeric: a \('#3'\)"),
        ("1,2\n\n3,\n", r"missing .* in 2 \(1\), the first in column '2', row 2 \(from 1\)"),
        (",\n1,2\n", "column '1', row 1"),
        ("1,b\n1,2\n", r"not numeric: 2 \('b'\)"),
        ("c\na,b\n1,2\n", "Expected 1 fields|header has 1 cells"),
        ("a,b\n1,2\n3,inf\n", r"infinite values in b \(1\)"),
        ("1,2\n3\n", "column '2', row 2"),
        ("1,2\n3,4,5\n", "Expected 2 fields in line 2, saw 3"),
        ("a,b\n1,2,3\n", "header has 2 cells, the first row 3"),
        ("1;2,5\n3;4\n", "decimal points instead of commas"),
        ("a,b\n", "no rows"),
        ("\n \n", "empty"),
        ("1,2\n3,\udcff\n", "UTF-8"),
    ],
)
def test_bad_csv(tmp_path, text, match):
    path = tmp_path / "a.csv"
    path.write_bytes(text.encode(errors="surrogateescape"))
    assert str(path) in refused(datasets.load_signals, path, match=match)


def test_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow reads Parquet")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"

    def store(**columns):
        parquet.write_table(pyarrow.table(columns), path)

    store(a=[1, 2, 3], b=[0.5, 1.5, 2.5], c=[True, False, True])
    np.testing.assert_array_equal(datasets.load_signals(path), [[1, 0.5, 1], [2, 1.5, 0], [3, 2.5, 1]])
    for columns, match in (
        ({"a": [1, 2], "b": ["3", "x"]}, r"not numeric: b \('x'\)"),
        ({"a": [1, 2], "b": [[1], [2, 3]]}, "not numeric: b"),
        ({"a": [1, 2], "b": [3, None]}, "column 'b', row 2"),
        ({"a": [1, 2], "b": [None, True]}, "column 'b', row 1"),
        ({"a": pyarrow.array([], type=pyarrow.float64())}, "no signals"),
        ({}, "no signals"),
    ):
        store(**columns)
        assert str(path) in refused(datasets.load_signals, path, match=match)


def test_not_a_signals_file(tmp_path):
    refused(datasets.load_signals, tmp_path / "none.npy", match="no such file")
    refused(datasets.load_signals, tmp_path / ("long" * 70 + ".npy"), match="no such file")
    (tmp_path / "folder.npy").mkdir()
    refused(datasets.load_signals, tmp_path / "folder.npy", match="not a regular file")
    assert ".parquet" in refused(datasets.load_signals, tmp_path / "a.txt", match="ending '.txt' is not known")


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
@pytest.mark.filterwarnings("error")
def test_real_mnist(data_folder):
    everything = datasets.fetch_mnist(subset="all", download_if_missing=False)
    assert everything.data.shape == (70000, 784)
    assert np.bincount(everything.target[:60000])[4] == 5842


def test_real_cifar10(data_folder):
    data, _ = datasets.fetch_cifar10(label=0, gray=True, download_if_missing=False, return_X_y=True)
    assert data.shape == (5000, 1024)
