"""Every reader of files on changed files: it reads or refuses with its own exception, and never anything else.

Some seconds as it is; about ten minutes with ``RKDL_FUZZ_SECONDS=600``.
"""

from __future__ import annotations

import io
import os
import warnings
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.base import clone

import rkdl
from rkdl import MORKDL, KDLClassifier, datasets

SECONDS = float(os.environ.get("RKDL_FUZZ_SECONDS", "0"))
# About 140 files per second, of some twenty readers.
N_EXAMPLES = max(60, int(7 * SECONDS))
X = np.random.default_rng(0).integers(0, 16, (30, 6)).astype(float)
FIT = MORKDL(4, n_kernel_vectors=5, n_nonzero_coefs=2, max_iter=2, tol=0.0, random_state=0)


FUZZ = settings(
    max_examples=N_EXAMPLES,
    deadline=timedelta(seconds=20),
    database=None,
    derandomize=not SECONDS,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


def saved(model, folder):
    model.save(folder / "model.rkdl")
    return (folder / "model.rkdl").read_bytes()


def as_file(write):
    stream = io.BytesIO()
    write(stream)
    return stream.getvalue()


# A batch of CIFAR-10: three records of a class and the planes of an image.
BATCH = bytes(3 * 3073)


def checkpoint(folder):
    path = folder / "good.rkdl"
    if not path.exists():
        clone(FIT).set_params(max_iter=1).fit(X, checkpoint=path)
    return path.read_bytes()


def parquet(folder):
    pandas, _ = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    pandas.DataFrame(X, columns=list("abcdef")).to_parquet(folder / "good.parquet")
    return (folder / "good.parquet").read_bytes()


# Name of the file, what it holds when it is good, what reads it.
READERS = {
    "checkpoint": ("fit.rkdl", checkpoint, lambda path: clone(FIT).fit(X, checkpoint=path)),
    "model": ("model.rkdl", lambda folder: saved(clone(FIT).fit(X), folder), rkdl.load),
    "stream": ("model.rkdl", lambda folder: saved(clone(FIT).partial_fit(X), folder), rkdl.load),
    "classifier": (
        "model.rkdl",
        lambda folder: saved(KDLClassifier(1, n_kernel_vectors=4, random_state=0).fit(X, np.arange(30) % 2), folder),
        rkdl.load,
    ),
    "batch": (
        "cifar-10-batches-bin/test_batch.bin",
        lambda folder: BATCH,
        lambda path: datasets.fetch_cifar10(subset="test", data_home=path.parents[1], download_if_missing=False),
    ),
    "class": (
        "cifar10_airplane.npz",
        lambda folder: as_file(lambda stream: np.savez(stream, images=np.zeros((2, 32, 32, 3), np.uint8))),
        lambda path: datasets.fetch_cifar10(label=0, data_home=path.parent, download_if_missing=False),
    ),
    "npy": ("X.npy", lambda folder: as_file(lambda stream: np.save(stream, X)), datasets.load_signals),
    "npz": ("X.npz", lambda folder: as_file(lambda stream: np.savez_compressed(stream, X=X)), datasets.load_signals),
    "csv": (
        "X.csv",
        lambda folder: as_file(lambda stream: np.savetxt(stream, X, delimiter=",")),
        datasets.load_signals,
    ),
    "parquet": ("X.parquet", parquet, datasets.load_signals),
}


@st.composite
def changes(draw):
    """How a file is changed: bytes that are set, a piece that is cut out or put in twice, an end that is cut off."""
    places = st.floats(0.0, 1.0, exclude_max=True)
    kind = draw(st.sampled_from(["set", "set", "cut", "repeat", "end", "junk"]))
    if kind == "set":
        return kind, draw(st.lists(st.tuples(places, st.integers(0, 255)), min_size=1, max_size=6))
    if kind == "junk":
        return kind, draw(st.binary(max_size=60))
    return kind, (draw(places), draw(st.integers(1, 64)))


def changed(content, change):
    kind, how = change
    if kind == "junk":
        return how
    if kind == "set":
        array = bytearray(content)
        for place, value in how:
            array[int(place * len(array))] = value
        return bytes(array)
    begin = int(how[0] * len(content))
    middle = content[begin : begin + how[1]]
    if kind == "end":
        return content[:begin]
    return content[:begin] + (middle * 2 if kind == "repeat" else b"") + content[begin + how[1] :]


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_reader(name, folder):
    filename, write, read = READERS[name]
    home = folder / name.replace(",", "").replace(" ", "-")
    path = home / filename
    path.parent.mkdir(parents=True, exist_ok=True)
    good = write(home)

    def attempt(content):
        path.write_bytes(content)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                read(path)
            except ValueError as error:
                return str(error)
        return ""

    assert attempt(good) == ""

    @FUZZ
    @given(changes())
    def fuzz(change):
        refusal = attempt(changed(good, change))
        assert not refusal or path.name in refusal

    fuzz()
