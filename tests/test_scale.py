"""Signals that are not in memory: results bitwise identical to those of arrays, in bounded memory."""

from __future__ import annotations

import gc
import threading
import tracemalloc

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

from helpers import CHUNKED, Estimators, RowSlices, correlated_signals, fitted_bytes, make, poor_models
from rkdl import DL, RKDL, config_context, sparse_encode
from rkdl._data import sources as _sources
from rkdl._data.sources import RowSource
from rkdl._execution.config import chunk_bounds, plan_chunks
from rkdl._execution.executor import Executor
from rkdl._learning import kernel_vector_choice

pytestmark = poor_models

ESTIMATORS = Estimators(*CHUNKED, "KDL", "RKDL-random", "RKDL-callable", "ORKDL", "MORKDL")


class Rows(RowSlices):
    """Signals that remember which threads read them."""

    def __init__(self, data):
        super().__init__(data)
        self.threads = set()

    def __getitem__(self, rows):
        self.threads.add(threading.current_thread().name)
        return super().__getitem__(rows)


def as_memmap(X, folder):
    path = folder / "signals.dat"
    stored = np.memmap(path, dtype=X.dtype, mode="w+", shape=X.shape)
    stored[:] = X
    stored.flush()
    return np.memmap(path, dtype=X.dtype, mode="r", shape=X.shape)


def as_zarr(X, folder):
    zarr = pytest.importorskip("zarr", reason="Zarr is not installed")
    stored = zarr.create_array(str(folder / "signals.zarr"), shape=X.shape, chunks=(177, 20), dtype=X.dtype)
    stored[:] = X
    return stored


def as_hdf5(X, folder, **layout):
    h5py = pytest.importorskip("h5py", reason="h5py is not installed")
    return h5py.File(folder / "signals.h5", "w").create_dataset("signals", data=X, **layout)


SOURCES = {
    "memmap": as_memmap,
    "zarr": as_zarr,
    "hdf5": as_hdf5,
    "hdf5-chunked": lambda X, folder: as_hdf5(X, folder, chunks=(500, 20), compression="gzip"),
    "slices": lambda X, folder: Rows(X),
}


@pytest.fixture(scope="module")
def X():
    return correlated_signals(1500, dtype=np.float32)


def outcome(model, X):
    model = clone(model).fit(X)
    return {
        **fitted_bytes(model),
        "transform": model.transform(X).tobytes(),
        "reconstruction_error": model.reconstruction_error(X).tobytes(),
        "score": model.score(X),
    }


@pytest.mark.parametrize(
    "source", [name if name == "memmap" else pytest.param(name, marks=pytest.mark.slow) for name in SOURCES]
)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_bitwise_identical_to_arrays(name, source, X, tmp_path):
    assert outcome(ESTIMATORS[name], SOURCES[source](X, tmp_path)) == outcome(ESTIMATORS[name], X)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("options", [{"n_nonzero_coefs": 3}, {"residual_tol": 0.5, "sparse_output": True}])
def test_sparse_encode(options, source, X, tmp_path):
    found, expected = (sparse_encode(rows, np.eye(20), **options) for rows in (SOURCES[source](X, tmp_path), X))
    if "sparse_output" in options:
        found, expected = found.toarray(), expected.toarray()
    assert found.dtype == np.float32
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("source", ["memmap", "zarr", "hdf5"])
def test_integers_are_read_as_float64(source, X, tmp_path):
    whole = np.round(10.0 * X).astype(np.int16)
    assert outcome(ESTIMATORS["RKDL"], SOURCES[source](whole, tmp_path)) == outcome(ESTIMATORS["RKDL"], whole)


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_signals_are_read_on_a_thread(n_jobs, X):
    rows = Rows(X)
    clone(ESTIMATORS["RKDL"]).set_params(n_jobs=n_jobs).fit(rows)
    assert any(name.startswith("rkdl-read") for name in rows.threads)
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("rkdl-read")]


def test_reading_ahead_is_bounded():
    """No more rows are in flight than a window of chunks, however fast they are read."""
    read, done = [], []

    class Counted(Rows):
        def __getitem__(self, rows):
            read.append(rows.start)
            return super().__getitem__(rows)

    source = RowSource(Counted(np.zeros((10_000, 4))))
    bounds = [(start, start + 100) for start in range(0, 10_000, 100)]

    def task(start, stop):
        source.read(start, stop)
        done.append(start)
        return len(read) - len(done)

    for n_jobs, most in ((1, 2), (4, 8)):
        read.clear(), done.clear()
        with Executor(source, bounds, n_jobs) as executor:
            in_flight = executor.map_chunks(task)
        assert max(in_flight) <= most
        assert read == [start for start, _ in bounds]


def test_a_storage_block_is_unpacked_once(X):
    class Blocks(Rows):
        chunks = (600, 20)
        reads = 0

        def __getitem__(self, rows):
            self.reads += 1
            assert rows.stop - rows.start <= 600
            return super().__getitem__(rows)

    data = Blocks(X)
    source = RowSource(data)
    with Executor(source, [(start, start + 100) for start in range(0, 1500, 100)], 2) as executor:
        (total,), _ = executor.map_reduce(lambda rows, kept: ((rows.sum(dtype=np.float64),), None))
    assert total == pytest.approx(X.sum(dtype=np.float64))
    assert data.reads == 3
    data.reads = 0
    rows = np.random.default_rng(0).integers(0, 1500, 300)
    assert np.array_equal(source.take(rows), X[rows])
    assert data.reads == 3


@pytest.mark.parametrize("source", SOURCES)
def test_rows_are_taken_in_any_order(source, X, tmp_path):
    signals = RowSource(SOURCES[source](X, tmp_path))
    for rows in ([3], [5, 4, 3], [0, 1499, 7, 7, 700, 701], np.random.default_rng(0).permutation(1500)):
        assert np.array_equal(signals.take(np.asarray(rows)), X[rows])


@pytest.mark.slow
def test_memory_does_not_grow_with_the_signals(tmp_path):
    """What a fit allocates beyond the kept codes is a few chunks and the sample."""
    rng = np.random.default_rng(0)
    atoms = rng.standard_normal((20, 100)).astype(np.float32)
    peaks = {}
    for count in (10_000, 40_000):
        path = tmp_path / f"{count}.dat"
        data = np.memmap(path, dtype=np.float32, mode="w+", shape=(count, 100))
        data[:] = rng.standard_normal((count, 20)).astype(np.float32) @ atoms
        data.flush()
        model = ESTIMATORS["RKDL-random"]
        model.fit(data[:2000])
        gc.collect()
        tracemalloc.start()
        model.fit(data)
        peaks[count] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    kept = 30_000 * (3 * 8 + 8)
    assert peaks[40_000] - peaks[10_000] < 2 * kept + (4 << 20)


def test_copy_on_write_pages_are_not_lost(X, tmp_path):
    as_memmap(X, tmp_path)
    changed = np.memmap(tmp_path / "signals.dat", dtype=X.dtype, mode="c", shape=X.shape)
    changed[:] = 2.0 * X
    expected = outcome(ESTIMATORS["DL"], 2.0 * X)
    assert outcome(ESTIMATORS["DL"], changed) == expected
    assert np.array_equal(changed, 2.0 * X)


def test_slices_of_a_memory_map(X, tmp_path):
    stored = as_memmap(X, tmp_path)
    expected = outcome(ESTIMATORS["RKDL"], np.ascontiguousarray(X[100:1400]))
    assert outcome(ESTIMATORS["RKDL"], stored[100:1400]) == expected
    assert outcome(ESTIMATORS["RKDL"], stored[100:1400][:, ::2]) == outcome(ESTIMATORS["RKDL"], X[100:1400, ::2])


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite(source, value, X, tmp_path):
    bad = X.copy()
    bad[1400, 3] = value
    words = "Input X contains NaN" if np.isnan(value) else "Input X contains infinity"
    stored = SOURCES[source](bad, tmp_path)
    with pytest.raises(ValueError, match=words):
        clone(ESTIMATORS["RKDL"]).fit(stored)
    model = clone(ESTIMATORS["RKDL"]).fit(X)
    for method in (model.transform, model.reconstruction_error, model.score):
        with pytest.raises(ValueError, match=words):
            method(stored)


@pytest.mark.parametrize("magnitude", [1e-25, 1e25])
def test_signals_far_from_one(magnitude, X, tmp_path):
    far = (X * np.float32(magnitude)).astype(np.float32)
    assert outcome(ESTIMATORS["DL"], as_memmap(far, tmp_path)) == outcome(ESTIMATORS["DL"], far)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (np.zeros(5), "Expected 2D"),
        (np.zeros((2, 2, 2)), "Expected 2D"),
        (np.zeros((0, 4)), "0 sample"),
        (np.zeros((4, 0)), "0 feature"),
        (np.zeros((4, 4), dtype=complex), "Complex data not supported"),
        (np.zeros((4, 4), dtype="U3"), "signals are numbers"),
    ],
)
def test_what_signals_cannot_be(data, words):
    with pytest.raises(ValueError, match=words):
        DL(2).fit(Rows(data))


class Short(Rows):
    """Returns one row less than requested, except at the start."""

    def __getitem__(self, rows):
        return super().__getitem__(rows)[:-1]


def test_a_source_of_masked_rows(X):
    """As a netCDF variable gives them, whether or not a mask hides anything."""

    class Masked(Rows):
        limit = np.inf

        def __getitem__(self, place):
            return np.ma.masked_greater(super().__getitem__(place), self.limit)

    rows = Masked(X)
    assert outcome(ESTIMATORS["RKDL"], rows) == outcome(ESTIMATORS["RKDL"], X)
    rows.limit = 1.0
    for name in ("RKDL", "KDL"):
        with pytest.raises(ValueError, match="X is a masked array"):
            outcome(ESTIMATORS[name], rows)


def test_a_source_that_gives_fewer_rows_is_refused(X):
    model = make(RKDL)
    with pytest.raises(ValueError, match="its `shape` and its slices must agree"):
        model.fit(Short(X))
    model.fit(X)
    for method in (model.transform, model.reconstruction_error, model.score):
        with pytest.raises(ValueError, match="its `shape` and its slices must agree"):
            method(Short(X))


@pytest.mark.parametrize("chunks", [None, (None, 20), ((100, 200), (20,)), "rows", ()])
def test_sparse_slices_and_other_ways_to_declare_blocks(chunks, X):
    class Sparse(Rows):
        def __getitem__(self, rows):
            return sparse.csr_array(super().__getitem__(rows))

    expected = make(RKDL).fit(X).errors_
    for source in (Rows(X), Sparse(X)):
        source.chunks = chunks
        np.testing.assert_array_equal(make(RKDL).fit(source).errors_, expected)


def test_large_blocks_give_a_warning_and_are_read_once(X):
    asked = []

    class Recorded(Rows):
        chunks = (10_000_000, 20)

        def __getitem__(self, rows):
            asked.append(rows)
            return super().__getitem__(rows)

    with pytest.warns(UserWarning, match="store them in blocks of at most"):
        rows = _sources.RowSource(Recorded(X))
    wanted = np.arange(3, len(X), 7)
    np.testing.assert_array_equal(rows.take(wanted), X[wanted])
    assert asked == [slice(3, wanted[-1] + 1)]


@pytest.mark.parametrize("order", [">f4", "<f4"])
def test_either_byte_order(order, X, tmp_path):
    given = X.astype(order)
    stored = np.memmap(tmp_path / "signals.dat", dtype=order, mode="w+", shape=X.shape)
    stored[:] = given
    expected = make(RKDL).fit(X.astype(np.float32)).errors_
    for source in (given, stored):
        np.testing.assert_array_equal(make(RKDL).fit(source).errors_, expected)


@pytest.mark.slow
def test_kernel_vectors_of_many_signals_come_from_a_sample():
    """A rule of the sizes alone, so that it is the same in memory and out of it."""
    X = np.random.default_rng(0).standard_normal((kernel_vector_choice.LARGEST_SAMPLE + 1000, 20))
    for name in ("RKDL", "RKDL-kmeans", "RKDL-rpcholesky"):
        assert outcome(ESTIMATORS[name], Rows(X)) == outcome(ESTIMATORS[name], X)


def test_chunks_can_be_fixed(X):
    plain = chunk_bounds(1500, 20, 4)
    assert plan_chunks(1500, 20, 4) == plain
    with config_context(chunk_rows=400):
        assert plan_chunks(1500, 20, 4) == [(0, 400), (400, 800), (800, 1200), (1200, 1500)]
        with config_context(chunk_rows=(1000, 500)):
            assert plan_chunks(1500, 20, 4) == [(0, 1000), (1000, 1500)]
            with pytest.raises(ValueError, match="add up to 1500 rows, and there are 1499"):
                plan_chunks(1499, 20, 4)
        with config_context(chunk_rows=None):
            assert plan_chunks(1500, 20, 4) == plain
        # What an inner context does not name stays.
        with config_context(kept_bytes=0):
            assert plan_chunks(1500, 20, 4)[0] == (0, 400)
    for wrong in (0, -1, 2.5, (3, 0)):
        with pytest.raises(ValueError, match="chunk_rows"), config_context(chunk_rows=wrong):
            pass


@pytest.mark.slow
def test_the_benchmark_runs(capsys):
    """Small sizes; what needs minutes is left to the benchmark itself."""
    scale = pytest.importorskip("benchmarks.scale", reason="the benchmarks are not part of an installed package")
    scale.main(["--small", "--only", "stream", "costs"])
    told = capsys.readouterr().out
    rows = [line for line in told.splitlines() if line.startswith("| ") and "at most" in line]
    assert all(float(row.split("|")[4].split()[-1]) <= 1.02 for row in rows)
    assert len(rows) == 5
    assert "For n = 20, p = 30, m = 64, s = 5, k = 3" in told
