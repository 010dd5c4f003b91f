"""Dask arrays: the bits of a local fit on the same chunks, whatever runs them and whichever worker dies."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy import sparse

from rkdl import DL, KDL, MORKDL, ORKDL, RKDL, FourierDL, config_context

dask = pytest.importorskip("dask", reason="Dask is not installed")
da = pytest.importorskip("dask.array", reason="dask.array is not installed")
distributed = pytest.importorskip("distributed", reason="distributed is not installed")

# Seconds after which a fit is taken to hang.
PATIENCE = 60

CHUNKS = (300, 200, 450, 250, 300)
COMMON = {"n_components": 8, "n_nonzero_coefs": 3, "max_iter": 2, "tol": 0.0, "random_state": 0}
REDUCED = {**COMMON, "n_kernel_vectors": 12}
ESTIMATORS = {
    "DL": DL(**COMMON),
    "DL-aksvd": DL(atom_update="aksvd", **COMMON),
    "FourierDL": FourierDL(n_fourier_features=32, **COMMON),
    "RKDL": RKDL(**REDUCED),
    "RKDL-kmeans": RKDL(kernel_vectors="kmeans", **REDUCED),
    "RKDL-rpcholesky": RKDL(kernel_vectors="rpcholesky", **REDUCED),
    "RKDL-many-atoms": RKDL(**{**REDUCED, "n_components": 60, "n_nonzero_coefs": 1}),
    "ORKDL": ORKDL(**REDUCED),
    "ORKDL-gd": ORKDL(solver="gd", **REDUCED),
    "MORKDL": MORKDL(**REDUCED),
}


@pytest.fixture(scope="module")
def X():
    rng = np.random.default_rng(0)
    return (rng.standard_normal((sum(CHUNKS), 20)) @ rng.standard_normal((20, 20)) / 5.0).astype(np.float32)


@pytest.fixture(scope="module")
def blocks(X):
    return da.from_array(X, chunks=(CHUNKS, (12, 8)))


def cluster(n_workers):
    return distributed.LocalCluster(
        n_workers=n_workers, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
    )


@pytest.fixture(scope="module")
def three_workers():
    # A dead worker's neighbours wait this long for what it had.
    waiting = {"distributed.comm.timeouts.connect": "3s"}
    with dask.config.set(waiting), cluster(3) as local, distributed.Client(local) as client:
        yield client


def within(function):
    """The function's result, or a failure where it hangs."""
    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(function).result(timeout=PATIENCE)
    finally:
        pool.shutdown(wait=False)


def learned(model):
    found = {name: value for name, value in vars(model).items() if name.endswith("_") and not name.startswith("_")}
    return {name: np.asarray(value).tobytes() for name, value in found.items()}


def copy_of(name, **changes):
    from sklearn.base import clone

    return clone(ESTIMATORS[name]).set_params(**changes)


def local(name, X):
    with config_context(chunk_rows=CHUNKS):
        return copy_of(name).fit(X)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_default_scheduler(name, X, blocks):
    assert learned(copy_of(name).fit(blocks)) == learned(local(name, X))


@pytest.mark.parametrize("name", ["DL-aksvd", "FourierDL", "RKDL", "RKDL-many-atoms", "ORKDL", "MORKDL"])
def test_three_workers(name, X, blocks, three_workers):
    assert learned(within(lambda: copy_of(name).fit(blocks))) == learned(local(name, X))


def test_one_worker(X, blocks):
    with cluster(1) as one, distributed.Client(one, set_as_default=True):
        for name in ("RKDL", "ORKDL", "MORKDL"):
            model = copy_of(name)
            assert learned(within(lambda model=model: model.fit(blocks))) == learned(local(name, X))


@pytest.mark.parametrize("name", ["DL", "FourierDL", "RKDL"])
def test_codes_and_errors_are_lazy(name, X, blocks, three_workers):
    model = local(name, X)
    codes, errors = model.transform(blocks), model.reconstruction_error(blocks)
    assert codes.chunks == (CHUNKS, (8,))
    assert errors.chunks == (CHUNKS,)
    assert codes.dtype == errors.dtype == np.float32
    np.testing.assert_allclose(codes.compute(), model.transform(X), atol=1e-4)
    np.testing.assert_allclose(errors.compute(), model.reconstruction_error(X), atol=1e-4)
    assert model.score(blocks) == pytest.approx(model.score(X))
    model.set_params(sparse_output=True)
    thin = model.transform(blocks).compute()
    assert sparse.issparse(thin)
    assert np.array_equal(thin.toarray(), codes.compute())


def test_sparse_blocks_integers_and_empty_blocks(X):
    whole = np.round(4.0 * X).astype(np.int64)
    with config_context(chunk_rows=CHUNKS):
        model = copy_of("RKDL").fit(whole)
    array = da.concatenate([da.zeros((0, 20), dtype=np.int64), da.from_array(whole, chunks=(CHUNKS, 20))])
    assert learned(copy_of("RKDL").fit(array)) == learned(model)
    thin = da.from_array(whole.astype(np.float64), chunks=(CHUNKS, 20)).map_blocks(sparse.csr_array)
    assert learned(copy_of("RKDL").fit(thin)) == learned(model)


def test_full_kernel_loads_its_signals(X, blocks):
    model = KDL(**COMMON)
    assert learned(model.fit(blocks)) == learned(KDL(**COMMON).fit(X))
    assert model.transform(blocks).compute().shape == (len(X), 8)


def test_checkpoint_and_stream(X, blocks, tmp_path):
    path = tmp_path / "fit.rkdl"
    copy_of("ORKDL", max_iter=1).fit(blocks, checkpoint=path)
    assert learned(copy_of("ORKDL").fit(blocks, checkpoint=path)) == learned(local("ORKDL", X))
    with config_context(chunk_rows=CHUNKS):
        expected = copy_of("RKDL").partial_fit(X).partial_fit(X)
    assert learned(copy_of("RKDL").partial_fit(blocks).partial_fit(blocks)) == learned(expected)


def test_refusals(X, blocks):
    bad = X.copy()
    bad[-1, 3] = np.nan
    with pytest.raises(ValueError, match="Input X contains NaN"):
        copy_of("RKDL").fit(da.from_array(bad, chunks=(CHUNKS, 20)))
    with pytest.raises(ValueError, match="compute_chunk_sizes"):
        copy_of("RKDL").fit(blocks[blocks[:, 0] > 0])
    with pytest.raises(ValueError, match="expecting 20 features"):
        local("RKDL", X).transform(blocks[:, :5])
    with pytest.raises(ValueError, match="Expected 2D"):
        copy_of("RKDL").fit(blocks[:, 0])


def killer(prefix, moment, flag):
    """A plugin whose worker kills itself, once, when a task of this name comes to this state."""

    class Killer(distributed.WorkerPlugin):
        name = "killer"

        def transition(self, key, start, finish, **more):
            if finish != moment or not str(key).startswith(prefix):
                return
            try:
                os.unlink(flag)
            except FileNotFoundError:
                return
            os.kill(os.getpid(), signal.SIGKILL)

    return Killer()


@pytest.mark.parametrize(
    ("prefix", "moment"),
    [
        ("('read", "memory"),
        ("rkdl-inspect", "executing"),
        ("rkdl-encode", "executing"),
        ("rkdl-keep", "memory"),
        ("rkdl-gradient", "executing"),
        ("rkdl-add", "executing"),
    ],
)
def test_a_worker_dies(prefix, moment, X, three_workers, tmp_path):
    """Its chunks are read and worked on again; the result is the same."""
    flag, count = tmp_path / "flag", tmp_path / "count"

    def read(block):
        with open(count, "a") as file:
            file.write("x")
        time.sleep(0.01)
        return block

    array = da.from_array(X, chunks=(CHUNKS, 20)).map_blocks(read, name="read-again", dtype=X.dtype)
    three_workers.register_plugin(killer(prefix, moment, str(flag)))
    flag.touch()
    try:
        model = within(lambda: copy_of("MORKDL").fit(array))
    finally:
        three_workers.unregister_worker_plugin("killer")
        # A courtesy to the next test: on a busy machine the nanny may take longer.
        with contextlib.suppress(TimeoutError):
            three_workers.wait_for_workers(3, timeout=PATIENCE)
    assert not flag.exists()
    assert learned(model) == learned(local("MORKDL", X))
    assert len(count.read_text()) >= len(CHUNKS)


def test_tasks_have_names(blocks, three_workers):
    within(lambda: copy_of("MORKDL").fit(blocks).transform(blocks).compute())
    seen = three_workers.run_on_scheduler(lambda dask_scheduler: set(dask_scheduler.task_prefixes))
    assert {"rkdl-inspect", "rkdl-encode", "rkdl-gradient", "rkdl-add", "rkdl-transform"} <= seen


def test_dask_is_not_imported_without_need():
    code = (
        "import sys, numpy as np, rkdl\n"
        "X = np.random.default_rng(0).random((50, 4))\n"
        "rkdl.RKDL(3, n_kernel_vectors=5).fit(X).transform(X)\n"
        "assert not {'dask', 'distributed', 'zarr', 'h5py'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE)
