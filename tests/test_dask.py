"""Dask arrays: the bits of a local fit on the same chunks, whatever runs them and whichever worker dies."""

from __future__ import annotations

import contextlib
import contextvars
import os
import signal
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import sklearn
from scipy import sparse

from helpers import CHUNKED, PATIENCE, Estimators, correlated_signals, fitted_bytes, make
from rkdl import KDL, RKDL, KDLOutlierDetector, config_context, sparse_encode

dask = pytest.importorskip("dask", reason="Dask is not installed")
da = pytest.importorskip("dask.array", reason="dask.array is not installed")
distributed = pytest.importorskip("distributed", reason="distributed is not installed")

# One worker for all, so that what they share is made once.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("dask")]

CHUNKS = (300, 200, 450, 250, 300)
ESTIMATORS = Estimators(*CHUNKED, "ORKDL", "ORKDL-gd", "MORKDL")
# Of two equal atoms one is never used, and replaced.
ESTIMATORS["RKDL-unused-atoms"] = make(RKDL, init=np.repeat(np.eye(12)[:4], 2, axis=0))
copy_of = ESTIMATORS.copy_of


@pytest.fixture(scope="module")
def X():
    return correlated_signals(sum(CHUNKS), dtype=np.float32)


@pytest.fixture(scope="module")
def blocks(X):
    return da.from_array(X, chunks=(CHUNKS, (12, 8)))


SETTINGS = {
    # A dead worker's neighbours wait this long for what it had.
    "distributed.comm.timeouts.connect": "3s",
    # Nannies start workers again; after this time the cluster gives up those that have died a second time by then.
    "distributed.deploy.lost-worker-timeout": "1h",
    # Workers are forked from a process that has imported what they need.
    "distributed.worker.multiprocessing-method": "forkserver",
}
PRELOADED = ["distributed", "pandas", "rkdl._estimators", "rkdl._execution.dask"]


@contextlib.contextmanager
def cluster(n_workers):
    """A client of so many workers."""
    with dask.config.set(SETTINGS):
        distributed.utils.get_mp_context().set_forkserver_preload(PRELOADED)
        with (
            distributed.LocalCluster(
                n_workers=n_workers, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
            ) as local,
            distributed.Client(local, set_as_default=True) as client,
        ):
            yield client


@pytest.fixture(scope="module")
def three_workers():
    with cluster(3) as client:
        yield client


def within(function):
    """The function's result, or a failure where it hangs; the context's settings hold in it."""
    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(contextvars.copy_context().run, function).result(timeout=PATIENCE)
    finally:
        pool.shutdown(wait=False)


def local(name, X):
    with config_context(chunk_rows=CHUNKS):
        return copy_of(name).fit(X)


@ESTIMATORS.each()
def test_default_scheduler(name, X, blocks):
    model = copy_of(name).fit(blocks)
    assert fitted_bytes(model) == fitted_bytes(local(name, X))
    assert name != "RKDL-unused-atoms" or model.n_revived_ > 0


@pytest.mark.parametrize("name", ["DL-aksvd", "FourierDL", "RKDL", "RKDL-unused-atoms", "ORKDL", "MORKDL"])
def test_three_workers(name, X, blocks, three_workers):
    assert fitted_bytes(within(lambda: copy_of(name).fit(blocks))) == fitted_bytes(local(name, X))


def test_one_worker(X, blocks, tmp_path):
    """Bitwise identical; and when the worker dies, everything is lost and read again."""
    count, flag = tmp_path / "count", tmp_path / "flag"
    with cluster(1) as client:
        for name in ("RKDL", "ORKDL", "MORKDL"):
            model = copy_of(name)
            assert fitted_bytes(within(lambda model=model: model.fit(blocks))) == fitted_bytes(local(name, X))
        client.register_plugin(killer("rkdl-gradient", "executing", str(flag)))
        flag.touch()
        model = within(lambda: copy_of("ORKDL").fit(counted(X, count)))
    assert not flag.exists()
    assert fitted_bytes(model) == fitted_bytes(local("ORKDL", X))
    assert len(count.read_text()) == 2 * len(CHUNKS)


def test_blocks_stay_or_are_read_again(X, three_workers, tmp_path):
    reads = {}
    for persist in (True, False):
        count = tmp_path / f"count-{persist}"
        with config_context(persist=persist):
            model = within(lambda count=count: copy_of("RKDL", kernel_vectors=X[:12]).fit(counted(X, count)))
        with config_context(chunk_rows=CHUNKS):
            assert fitted_bytes(model) == fitted_bytes(copy_of("RKDL", kernel_vectors=X[:12]).fit(X))
        reads[persist] = len(count.read_text())
    assert reads[True] == len(CHUNKS)
    # One pass to inspect, two to learn; and rows that are read for gamma and the first atoms.
    assert reads[False] >= 3 * len(CHUNKS)


def test_nothing_is_left_behind(blocks, three_workers):
    """When a fit ends, the workers hold neither its chunk states nor the signals."""
    model = within(lambda: copy_of("MORKDL").fit(blocks))
    assert model.n_iter_ == 2
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        left = three_workers.run_on_scheduler(
            lambda dask_scheduler: [str(key) for key in dask_scheduler.tasks if "rkdl" in str(key)]
        )
        if not left:
            break
    assert not left


def test_tasks_per_pass(blocks):
    """At most two tasks per chunk, one where no chunk state is returned, whatever the number of chunks."""
    from rkdl._data.dask import DaskSignals
    from rkdl._execution.dask import pass_graph
    from rkdl._execution.executor import SquaresTask
    from rkdl._learning.chunk_tasks import ResidualTask

    signals = DaskSignals(blocks.rechunk((10, -1)))
    n_chunks, n_added = 150, 10
    graph, _ = signals.blocks()
    for task, n_tasks in ((SquaresTask(), 1), (ResidualTask(np.eye(20)), 1), (lambda rows, state: ((), rows), 2)):
        found, _, states = pass_graph(signals, task, None, None)
        assert len(found) - len(graph) == n_tasks * n_chunks + n_added + 1
        assert len(states) == (n_chunks if n_tasks == 2 else 0)


def large_task(rows, state, values=None):
    return (len(rows) * values.sum(),), None


def test_a_large_task_is_sent_without_a_warning(X, three_workers):
    """Dask warns of graphs of 10 MB; the task is in the graph so that it outlives any worker."""
    from rkdl._data.dask import DaskSignals
    from rkdl._execution.dask import DaskExecutor

    signals, task = DaskSignals(da.from_array(X, chunks=(CHUNKS, 20))), partial(large_task, values=np.ones(2_000_000))
    with DaskExecutor(signals, 1) as executor, warnings.catch_warnings():
        warnings.simplefilter("error")
        (total,), _ = within(lambda: executor.map_reduce(task))
    assert total == len(X) * 2_000_000


@pytest.mark.parametrize("name", ["DL", "FourierDL", "RKDL"])
def test_codes_and_errors_are_lazy(name, X, blocks, three_workers):
    model = local(name, X)
    codes, errors = model.transform(blocks), model.reconstruction_error(blocks)
    assert codes.chunks == (CHUNKS, (8,))
    assert errors.chunks == (CHUNKS,)
    assert codes.dtype == errors.dtype == np.float32
    np.testing.assert_allclose(codes.compute(), model.transform(X), atol=1e-4)
    np.testing.assert_allclose(errors.compute(), model.reconstruction_error(X), atol=1e-4)
    assert model.score(blocks) == pytest.approx(model.score(X), rel=1e-4)
    model.set_params(sparse_output=True)
    thin = model.transform(blocks).compute()
    assert sparse.issparse(thin)
    assert np.array_equal(thin.toarray(), codes.compute())


def test_sparse_blocks_integers_and_empty_blocks(X):
    whole = np.round(4.0 * X).astype(np.int64)
    with config_context(chunk_rows=CHUNKS):
        model = copy_of("RKDL").fit(whole)
    array = da.concatenate([da.zeros((0, 20), dtype=np.int64), da.from_array(whole, chunks=(CHUNKS, 20))])
    assert fitted_bytes(copy_of("RKDL").fit(array)) == fitted_bytes(model)
    thin = da.from_array(whole.astype(np.float64), chunks=(CHUNKS, 20)).map_blocks(sparse.csr_array)
    assert fitted_bytes(copy_of("RKDL").fit(thin)) == fitted_bytes(model)


def test_full_kernel_loads_its_signals(X, blocks):
    model = make(KDL)
    assert fitted_bytes(model.fit(blocks)) == fitted_bytes(make(KDL).fit(X))
    assert model.transform(blocks).compute().shape == (len(X), 8)


def test_checkpoint_and_stream(X, blocks, tmp_path):
    path = tmp_path / "fit.rkdl"
    copy_of("ORKDL", max_iter=1).fit(blocks, checkpoint=path)
    assert fitted_bytes(copy_of("ORKDL").fit(blocks, checkpoint=path)) == fitted_bytes(local("ORKDL", X))
    with config_context(chunk_rows=CHUNKS):
        expected = copy_of("RKDL").partial_fit(X).partial_fit(X)
    assert fitted_bytes(copy_of("RKDL").partial_fit(blocks).partial_fit(blocks)) == fitted_bytes(expected)


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


SPOILED = {
    "short": lambda block: block[:-1],
    "narrow": lambda block: block[:, :-1],
    "wide": lambda block: np.hstack([block, block[:, :1]]),
    "longer": lambda block: np.vstack([block, block[:1]]),
}


def spoiled(X, how):
    """A Dask array whose third block has another shape than is declared."""

    def block_of(block, block_info=None):
        place = block_info[0]["chunk-location"][0] if block_info else None
        return SPOILED[how](block) if place == 2 else block

    return da.from_array(X, chunks=(CHUNKS, 20)).map_blocks(block_of, meta=np.empty((0, 20), X.dtype))


def test_blocks_of_another_shape_are_refused(X, three_workers):
    words = r"Block 2 of X has shape \(\d+, \d+\), and the Dask array declares \(450, 20\): .*compute_chunk_sizes"
    fitted = local("DL", X)
    for how in SPOILED:
        blocks = spoiled(X, how)
        with dask.config.set(scheduler="threads"):
            for name in ("DL", "DL-aksvd", "FourierDL", "RKDL", "RKDL-kmeans", "ORKDL", "MORKDL"):
                model = copy_of(name)
                with pytest.raises(ValueError, match=words):
                    model.fit(blocks)
                assert not hasattr(model, "n_iter_")
        calls = [copy_of("RKDL").fit, copy_of("RKDL").partial_fit, fitted.score]
        calls += [lambda X, own=own: getattr(fitted, own)(X).compute() for own in ("transform", "denoise")]
        for call in calls:
            with pytest.raises(ValueError, match=words):
                within(lambda call=call, blocks=blocks: call(blocks))
        if how in ("short", "longer"):
            # Where all blocks are brought here.
            for call in (make(KDL).fit, KDLOutlierDetector().fit, lambda X: sparse_encode(X, np.eye(20))):
                with pytest.raises(ValueError, match=r"together, and X says \(1500, 20\): its `shape` and its blocks"):
                    call(blocks)


def test_masked_and_malformed_blocks(X):
    whole = da.from_array(X, chunks=(CHUNKS, 20))
    with pytest.raises(ValueError, match=r"X is a masked array, and \d+ of its"):
        copy_of("RKDL").fit(whole.map_blocks(lambda block: np.ma.masked_greater(block, 1.0), meta=whole._meta))

    def broken(block):
        block = sparse.csr_array(block)
        block.indices[:1] = 20
        return block

    with pytest.raises(ValueError, match=r"malformed CSR matrix of shape .* column index 20, outside 0 to 19"):
        copy_of("RKDL").fit(whole.map_blocks(broken, meta=sparse.csr_array((0, 20), dtype=X.dtype)))


def killer(part, moment, flag):
    """A plugin whose worker kills itself, once, when a task with this in its name comes to this state."""

    class Killer(distributed.WorkerPlugin):
        name = "killer"

        def transition(self, key, start, finish, **more):
            if finish != moment or part not in str(key):
                return
            try:
                os.unlink(flag)
            except FileNotFoundError:
                return
            os.kill(os.getpid(), signal.SIGKILL)

    return Killer()


def counted(X, count):
    """The signals as a Dask array that leaves a mark whenever a block is read."""

    def read(block):
        with open(count, "a") as file:
            file.write("x")
        return block

    return da.from_array(X, chunks=(CHUNKS, 20)).map_blocks(read, name="read-again", meta=X[:0])


@contextlib.contextmanager
def killing(client, part, moment, flag):
    """One worker dies in this; none is missing afterwards."""
    client.register_plugin(killer(part, moment, str(flag)))
    flag.touch()
    try:
        yield
    finally:
        client.unregister_worker_plugin("killer")
        # A courtesy to the next test: on a busy machine the nanny may take longer.
        with contextlib.suppress(TimeoutError):
            client.wait_for_workers(3, timeout=PATIENCE)
    assert not flag.exists()


@pytest.mark.parametrize(
    ("name", "part", "moment"),
    [
        ("MORKDL", "read-again", "memory"),
        ("MORKDL", "rkdl-inspect", "executing"),
        # Kernel vectors are chosen.
        ("MORKDL", "rkdl-take", "executing"),
        ("MORKDL", "rkdl-encode", "executing"),
        ("MORKDL", "rkdl-encode", "memory"),
        ("MORKDL", "rkdl-gradient", "executing"),
        ("MORKDL", "rkdl-add", "executing"),
        # Unused atoms are replaced.
        ("RKDL-unused-atoms", "rkdl-gather", "executing"),
    ],
)
def test_a_worker_dies(name, part, moment, X, three_workers, tmp_path):
    """Its chunks are read and processed again; the result is bitwise identical."""
    count = tmp_path / "count"
    with killing(three_workers, part, moment, tmp_path / "flag"):
        model = within(lambda: copy_of(name).fit(counted(X, count)))
    assert fitted_bytes(model) == fitted_bytes(local(name, X))
    # A block that came to memory where the worker died was nowhere else; others may have been.
    assert len(count.read_text()) >= len(CHUNKS) + (moment == "memory" and part == "read-again")


def test_a_worker_dies_in_transform(X, three_workers, tmp_path):
    model, count = local("RKDL", X), tmp_path / "count"
    with killing(three_workers, "rkdl-transform", "executing", tmp_path / "flag"):
        codes = within(lambda: model.transform(counted(X, count)).compute())
    assert np.array_equal(codes, np.vstack([model.transform(rows) for rows in np.split(X, np.cumsum(CHUNKS)[:-1])]))


def test_tasks_have_names(blocks, three_workers):
    within(lambda: copy_of("MORKDL").fit(blocks).transform(blocks).compute())
    seen = three_workers.run_on_scheduler(lambda dask_scheduler: set(dask_scheduler.task_prefixes))
    assert {"rkdl-inspect", "rkdl-encode", "rkdl-gradient", "rkdl-add", "rkdl-take", "rkdl-transform"} <= seen
    page = Path(__file__).parent.parent / "docs" / "scale.md"
    if page.exists():
        # Every name that a user may see is in the docs.
        told = page.read_text()
        assert not {name for name in seen if name.startswith("rkdl-") and f"`{name}`" not in told} - {"rkdl-partial"}


def test_a_data_frame_is_refused(X, blocks):
    pytest.importorskip("pandas")
    model = local("RKDL", X)
    lazy = model.transform(blocks)
    model.set_output(transform="pandas")
    with pytest.raises(ValueError, match=r"set_output\(transform='default'\)"):
        model.transform(blocks)
    assert list(model.transform(X[:3]).columns) == list(model.get_feature_names_out())
    with sklearn.config_context(transform_output="pandas"):
        with pytest.raises(ValueError, match="lazy Dask array"):
            local("RKDL", X).transform(blocks)
        assert isinstance(lazy.compute(scheduler="synchronous"), np.ndarray)


def test_dask_is_not_imported_without_need():
    code = (
        "import sys, numpy as np, rkdl\n"
        "X = np.random.default_rng(0).random((50, 4))\n"
        "rkdl.RKDL(3, n_kernel_vectors=5).fit(X).transform(X)\n"
        "assert not {'dask', 'distributed', 'zarr', 'h5py'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE)
