"""Benchmark of data larger than memory, streams and Dask clusters; prints the figures of docs/scale.md.

    RKDL_DATA=/path/to/data python -m benchmarks.scale --write

measures, in this order: peak memory and speed of a fit on a memory map of 1,000,000 x 784 float32 signals (MNIST with a
little noise, written to --folder and deleted afterwards); twenty fits killed at random moments; streams that begin with
a poor batch; a stream against a batch fit, and one whose classes change halfway; passes and bytes of every method, by
formula and measured; one and two Dask workers; and an estimate for a billion signals from the measured speed of a core
and overhead of a task. `--write` puts the lines into docs/scale.md and the plot into docs/images/drift.png; `--only
memory` (or kills, stream, costs, workers, plan) runs one measurement; `--small` uses small sizes and
scikit-learn's digits, and writes nothing.
"""

from __future__ import annotations

import argparse
import json
import pickle
import random
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import clone

from benchmarks.data import enlarged_mnist, mnist
from benchmarks.pages import put
from rkdl import DL, MORKDL, ORKDL, RKDL, FourierDL, config_context
from rkdl._execution.dask import ADDED_AT_ONCE
from rkdl._execution.executor import ChunkTask, Executor
from rkdl._learning.chunk_tasks import ChunkState
from rkdl._persistence.files import read_file

PAGE = Path(__file__).parent.parent / "docs" / "scale.md"
PLOT = PAGE.parent / "images" / "drift.png"
MIB = 2**20

SIZES = {"n_components": 100, "n_kernel_vectors": 200, "n_nonzero_coefs": 5}


def big_model(iterations: int) -> RKDL:
    return RKDL(**SIZES, gamma=0.1, max_iter=iterations, tol=0.0, random_state=0)


def write_signals(path: Path, count: int, small: bool) -> tuple[int, int]:
    """Write a memory map of `count` signals piece by piece; returns its shape."""
    signals = mnist(None, small)[0].astype(np.float32)
    rng = np.random.default_rng(0)
    stored = np.memmap(path, dtype=np.float32, mode="w+", shape=(count, signals.shape[1]))
    for start in range(0, count, len(signals)):
        rows = signals[rng.permutation(len(signals))[: count - start]]
        rows = rows + rng.normal(0.0, 0.01, rows.shape).astype(np.float32)
        stored[start : start + len(rows)] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    stored.flush()
    return stored.shape


CHILD = """
import json, sys, time
import numpy as np
from benchmarks.scale import big_model
path, rows, columns, slice_rows, iterations = sys.argv[1], *map(int, sys.argv[2:])
def status(key):
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(key))
def timed(signals):
    times = []
    for count in (1, 1 + iterations):
        start = time.perf_counter()
        big_model(count).set_params(kernel_vectors="random").fit(signals)
        times.append(time.perf_counter() - start)
    return (times[1] - times[0]) / iterations
X = np.memmap(path, dtype=np.float32, mode="r", shape=(rows, columns))
own = status("VmRSS")
# The first fit loads compiled code.
big_model(2).fit(np.array(X[:2000]))
if slice_rows:
    X = np.array(X[:slice_rows])
start = time.perf_counter()
big_model(1 + iterations).fit(X)
found = {"fit": time.perf_counter() - start, "own": own, "peak": status("VmHWM")}
print(json.dumps({**found, "iteration": timed(X)}))
"""


def run_child(*arguments: object) -> dict:
    command = [sys.executable, "-c", CHILD, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def measure_memory(folder: Path, small: bool) -> Iterator[str]:
    """Peak memory and speed of a fit on a memory map and in memory, each in a fresh process."""
    count, slice_rows, iterations = (20_000, 5_000, 2) if small else (1_000_000, 100_000, 3)
    path = folder / "signals.dat"
    try:
        shape = write_signals(path, count, small)
        size = path.stat().st_size
        out = run_child(path, *shape, 0, iterations)
        memory = run_child(path, *shape, slice_rows, iterations * 8)
    finally:
        path.unlink(missing_ok=True)
    speeds = count / out["iteration"], slice_rows / memory["iteration"]
    yield f"- signals: {shape[0]:,} x {shape[1]} float32 on disk, {size / MIB:,.0f} MiB; p = 200, n = 100, s = 5"
    beyond = (out["peak"] - out["own"]) / MIB
    yield f"- memory above the interpreter's own {out['own'] / MIB:.0f} MiB: {beyond:.0f} MiB"
    yield f"- one iteration from the file: {out['iteration']:.2f} s, {speeds[0]:,.0f} signals/s"
    inside = memory["iteration"]
    yield f"- one iteration on {slice_rows:,} signals in memory: {inside:.2f} s, {speeds[1]:,.0f} signals/s"
    yield f"- speed from the file relative to memory: {speeds[0] / speeds[1]:.2f}"
    yield f"- complete fit of {1 + iterations} iterations, choice of kernel vectors included: {out['fit']:.1f} s"


KILLED = """
import sys
from benchmarks.scale import killed_model, killed_signals
X = killed_signals(sys.argv[2] == "small")
killed_model().set_params(max_iter=1).fit(X)
print("ready", flush=True)
killed_model().fit(X, checkpoint=sys.argv[1])
"""


def killed_model() -> MORKDL:
    return MORKDL(20, n_kernel_vectors=50, gamma=0.1, max_iter=25, tol=0.0, random_state=0)


def killed_signals(small: bool) -> np.ndarray:
    return mnist(None, small)[0][: 1500 if small else 6000].astype(np.float32)


def measure_kills(folder: Path, small: bool) -> Iterator[str]:
    """Fits killed at random moments; each must resume to a bitwise identical result."""
    X = killed_signals(small)
    start = time.perf_counter()
    expected = fitted(killed_model().fit(X))
    duration = time.perf_counter() - start
    chance = random.Random(0)
    same, resumed = 0, []
    count = 3 if small else 20
    for number in range(count):
        path = folder / f"killed-{number}.rkdl"
        command = [sys.executable, "-c", KILLED, str(path), "small" if small else "full"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise RuntimeError("a child process ended before its fit began")
        time.sleep(chance.uniform(0.0, 1.0) * duration)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        resumed.append(len(read_file(path, "checkpoint", "")[1]["history.errors"]) if path.exists() else 0)
        same += fitted(killed_model().fit(X, checkpoint=path)) == expected
        path.unlink()
    yield f"- processes killed (SIGKILL) at random moments of a MORKDL fit of 25 iterations: {count}"
    yield f"- resumed from iterations {', '.join(map(str, sorted(resumed)))}"
    yield f"- bitwise identical to an uninterrupted fit: {same} of {count}"


def fitted(model: RKDL) -> dict:
    found = {name: value for name, value in vars(model).items() if name.endswith("_") and not name.startswith("_")}
    return {name: np.asarray(value).tobytes() for name, value in found.items()}


def root_error(model: DL, X: np.ndarray) -> float:
    return float(np.sqrt(np.mean(model.reconstruction_error(X).astype(np.float64) ** 2)))


def random_batches(X: np.ndarray, rng: np.random.Generator, small: bool) -> Iterator[np.ndarray]:
    order, first = rng.permutation(len(X)), 0
    while first < len(X):
        size = int(rng.integers(*((100, 400) if small else (200, 2000))))
        yield X[order[first : first + size]]
        first += size


def stream_models(small: bool) -> dict[str, DL]:
    sizes = {"n_components": 20 if small else 50, "n_nonzero_coefs": 4, "tol": 0.0, "random_state": 0}
    reduced = {**sizes, "n_kernel_vectors": 30 if small else 80, "gamma": 0.1}
    return {
        "DL": DL(**sizes),
        "FourierDL": FourierDL(gamma=0.1, **sizes),
        "RKDL": RKDL(**reduced),
        "ORKDL": ORKDL(**reduced),
        "MORKDL": MORKDL(**reduced),
    }


def learn(model: DL, batches: Sequence[np.ndarray]) -> DL:
    """A copy of the model, fitted to the batches one by one."""
    stream = clone(model)
    for batch in batches:
        stream.partial_fit(batch)
    return stream


def measure_stream(folder: Path, small: bool, plot: Path | None = None) -> Iterator[str]:
    """One epoch of random batches against one iteration of `fit`, then a stream whose classes change."""
    signals, labels = mnist(None, small)
    signals = signals.astype(np.float32)
    chosen = np.random.default_rng(1).permutation(len(signals))[:12_000]
    X = signals[chosen]
    seeds = (0,) if small else (0, 1, 2)
    yield "| method | fit, 1 iteration | partial_fit, 1 epoch (seeds) | ratio |"
    yield "|---|---|---|---|"
    for name, model in stream_models(small).items():
        if isinstance(model, ORKDL | MORKDL):
            # Start from given atoms: otherwise `fit` begins with iterations on fixed kernel vectors, unlike a stream.
            start = clone(model).set_params(max_iter=1).fit(X[:500])
            model.set_params(init=start.dual_components_, kernel_vectors=start.kernel_vectors_)
        batch = root_error(clone(model).set_params(max_iter=1).fit(X), X)
        streamed = []
        for seed in seeds:
            stream = clone(model)
            for rows in random_batches(X, np.random.default_rng(seed), small):
                stream.partial_fit(rows)
            streamed.append(root_error(stream, X))
        errors = ", ".join(f"{value:.4f}" for value in streamed)
        yield f"| {name} | {batch:.4f} | {errors} | at most {max(streamed) / batch:.3f} |"
    yield ""
    yield from measure_drift(signals, labels, small, plot)


DRIFTING = ("DL", "FourierDL", "RKDL", "ORKDL")


def measure_drift(signals: np.ndarray, labels: np.ndarray, small: bool, plot: Path | None) -> Iterator[str]:
    """Digits 0 to 4, then 5 to 9: error on held-out signals of the current classes."""
    rng = np.random.default_rng(0)
    n_batches, size = (10, 80) if small else (30, 300)
    parts = {}
    for half, wanted in (("early", labels < 5), ("late", labels >= 5)):
        rows = rng.permutation(np.flatnonzero(wanted))
        parts[half] = signals[rows[: n_batches * size]], signals[rows[-size:]]
    yield "| method | half_life | before the change | at the change | at the end | fit on the late classes |"
    yield "|---|---|---|---|---|---|"
    curves = {}
    for name in DRIFTING:
        model = stream_models(small)[name]
        best = root_error(clone(model).set_params(max_iter=20).fit(parts["late"][0]), parts["late"][1])
        for half_life in (None, 5.0 * size):
            stream, curve = clone(model).set_params(half_life=half_life), []
            for train, held in parts.values():
                for number in range(n_batches):
                    if curve or number:
                        curve.append(root_error(stream, held))
                    stream.partial_fit(train[number * size : (number + 1) * size])
            curve.append(root_error(stream, parts["late"][1]))
            curves[name, half_life] = curve, best
            before, at = curve[n_batches - 2], curve[n_batches - 1]
            yield f"| {name} | {half_life} | {before:.4f} | {at:.4f} | {curve[-1]:.4f} | {best:.4f} |"
    if plot is not None:
        draw(curves, n_batches, plot)


def draw(curves: dict, change: int, path: Path) -> None:
    from matplotlib import style
    from matplotlib.figure import Figure

    style.use("rkdl.figures")
    figure = Figure(figsize=(8.0, 6.0), layout="constrained")
    lines = {}
    for axes, name in zip(figure.subplots(2, 2).ravel(), DRIFTING, strict=True):
        for (method, half_life), (curve, best) in curves.items():
            if method == name:
                label = "no forgetting" if half_life is None else f"half_life={half_life:g}"
                line = axes.plot(np.arange(1, len(curve) + 1), curve, "-" if half_life is None else "--", label=label)
                lines[label] = line[0]
                floor = best
        lines["fit on the late classes"] = axes.axhline(floor, color="0.3", linestyle=":")
        axes.axvline(change, color="0.6", linewidth=0.8)
        axes.set(title=name, xlabel="batches seen", ylabel="error on held-out signals")
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=len(lines))
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110)


class Rows:
    """Rows behind a reader, so that features are not cached between iterations."""

    def __init__(self, rows: np.ndarray) -> None:
        self.rows, self.shape, self.dtype = rows, rows.shape, rows.dtype

    def __getitem__(self, chosen: object) -> np.ndarray:
        return self.rows[chosen]


class Cost(NamedTuple):
    """Cost of an iteration: passes over the data, bytes sent to each worker, and bytes returned."""

    passes: float
    sent: float
    returned: float


def cost_by_formula(model: DL, n: int, p: int, m: int, itemsize: int) -> Cost:
    """The formulas of docs/scale.md, for a line search that never backtracks."""
    vectors = 0 if type(model) is DL else p * m * 4 if isinstance(model, FourierDL) else p * m * 8
    coding = Cost(1, (n * p + n * n) * itemsize + vectors, (n * n + n * p + 2) * 8)
    k = model.n_inner_iter if isinstance(model, ORKDL | MORKDL) else 0
    if k == 0:
        return coding
    sent = 2 * coding.sent + ((k + 1) * p * m + k * n * p) * itemsize
    cost = Cost(3 + k, sent, 2 * coding.returned + (k * (n * p + p * m) + n * p) * 8)
    if not isinstance(model, MORKDL):
        return cost
    linear = (p * m + p * p) * itemsize, (p * p + p * m + 2) * 8
    return Cost(cost.passes + 1, cost.sent + linear[0], cost.returned + linear[1])


def measured_cost(model: DL, X: np.ndarray, iterations: tuple[int, int]) -> tuple[Cost, float]:
    """Cost of an iteration, from fits of two lengths, and bytes of chunk state per signal."""
    map_reduce, passes, state_bytes = Executor.map_reduce, [], []

    def counted(self: Executor, task: ChunkTask, *arguments: Any, **options: Any) -> tuple[tuple, list]:
        sums, states = map_reduce(self, task, *arguments, **options)
        passes.append((1, len(pickle.dumps(task, protocol=5)), sum(np.asarray(part).nbytes for part in sums)))
        if states and isinstance(states[0], ChunkState):
            numbers = sum(part.nbytes for item in states for part in (*item.codes, item.residuals))
            state_bytes.append(numbers / self.signals.shape[0])
        return sums, states

    totals = []
    for count in iterations:
        passes.clear()
        Executor.map_reduce = counted  # type: ignore[method-assign]
        try:
            clone(model).set_params(max_iter=count).fit(Rows(X))
        finally:
            Executor.map_reduce = map_reduce  # type: ignore[method-assign]
        totals.append(np.sum(passes, axis=0))
    per_iteration = (totals[1] - totals[0]) / (iterations[1] - iterations[0])
    return Cost(*map(float, per_iteration)), max(state_bytes)


def measure_costs(folder: Path, small: bool) -> Iterator[str]:
    """Passes and bytes per iteration: by the formulas of the page, and measured in a fit."""
    X = mnist(None, small)[0][: 1000 if small else 4000].astype(np.float32)
    sizes = {**model_sizes(small), "tol": 0.0, "random_state": 0}
    n, s, m = sizes["n_components"], sizes["n_nonzero_coefs"], X.shape[1]
    count = sizes.pop("n_kernel_vectors")
    reduced = {**sizes, "n_kernel_vectors": count, "kernel_vectors": "random", "gamma": 0.1}
    fourier = FourierDL(n_fourier_features=count, gamma=0.1, **sizes)
    models = [DL(**sizes), fourier, RKDL(**reduced), ORKDL(**reduced), MORKDL(**reduced)]
    sizes_text = f"n = {n}, p = {count}, m = {m}, s = {s}, k = {models[-1].n_inner_iter}"
    yield f"For {sizes_text}, float32, per iteration; by formula / measured:"
    yield ""
    yield "| method | passes | chunk state per signal | sent to each worker | returned |"
    yield "|---|---|---|---|---|"
    for model in models:
        found, size = measured_cost(model, X, (3, 5) if small else (3, 13))
        expected = cost_by_formula(model, n, m if type(model) is DL else count, m, X.itemsize)
        sent, returned = (f"{a / 1e6:.2f} / {b / 1e6:.2f} MB" for a, b in zip(expected[1:], found[1:], strict=True))
        name = type(model).__name__
        yield f"| {name} | {expected.passes:g} / {found.passes:g} | {8 * s + 8} / {size:.0f} B | {sent} | {returned} |"


def measure_workers(folder: Path, small: bool) -> Iterator[str]:
    """The same fit on one and two workers of a local cluster, with the chunks already persisted."""
    import dask.array as da
    import distributed

    count, rows = (4_000, 1_000) if small else (120_000, 5_000)
    X = enlarged_mnist(count, None, small).astype(np.float32)
    iterations = 2 if small else 5
    yield "| workers | RKDL, s per iteration | signals/s | ORKDL, s per iteration | signals/s |"
    yield "|---|---|---|---|---|"
    for workers in (0, 1, 2):
        cells = []
        if workers == 0:
            with config_context(chunk_rows=rows):
                cells = [iteration_time(model, X, iterations, n_jobs=1) for model in scaled_models(small)]
        else:
            with local_cluster(workers) as cluster, distributed.Client(cluster):
                blocks = da.from_array(X, chunks=(rows, -1)).persist()
                distributed.wait(blocks)
                cells = [iteration_time(model, blocks, iterations) for model in scaled_models(small)]
        label = "none (one local thread)" if workers == 0 else str(workers)
        yield f"| {label} | " + " | ".join(f"{cell:.2f} | {count / cell:,.0f}" for cell in cells) + " |"


def model_sizes(small: bool) -> dict[str, int]:
    return {**SIZES, "n_components": 20, "n_kernel_vectors": 30} if small else dict(SIZES)


def scaled_models(small: bool) -> list[RKDL]:
    options = {**model_sizes(small), "kernel_vectors": "random", "gamma": 0.1, "tol": 0.0, "random_state": 0}
    return [RKDL(**options), ORKDL(**options)]


def iteration_time(model: RKDL, X: object, iterations: int, **changes: object) -> float:
    clone(model).set_params(max_iter=1, **changes).fit(X)
    times = []
    for count in (1, 1 + iterations):
        start = time.perf_counter()
        clone(model).set_params(max_iter=count, **changes).fit(X)
        times.append(time.perf_counter() - start)
    return (times[1] - times[0]) / iterations


def local_cluster(n_workers: int) -> Any:
    import distributed

    return distributed.LocalCluster(
        n_workers=n_workers, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
    )


def dask_overhead(small: bool) -> tuple[float, float, int]:
    """Overhead per task in seconds, sums transferred per chunk and pass, and the number of chunks."""
    import dask.array as da
    import distributed

    count, iterations = (60, 2) if small else (1_000, 5)
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((16, 16))
    model = RKDL(8, kernel_vectors=vectors, init="random", gamma=0.1, tol=0.0, random_state=0)
    with local_cluster(2) as cluster, distributed.Client(cluster) as client:
        blocks = da.from_array(rng.standard_normal((20 * count, 16)).astype(np.float32), chunks=(20, 16)).persist()
        distributed.wait(blocks)
        seconds = iteration_time(model, blocks, iterations)
        client.run(lambda dask_worker: dask_worker.transfer_incoming_log.clear())
        clone(model).set_params(max_iter=1).fit(blocks)
        logs = client.run(
            lambda dask_worker: [str(key) for entry in dask_worker.transfer_incoming_log for key in entry["keys"]]
        )
    # One pass inspects the signals, and its tasks return their sums directly; the other one learns.
    names = "rkdl-inspect", "rkdl-sums", "rkdl-add"
    moved = sum(key.startswith(names) for log in logs.values() for key in log) / 2
    return seconds / tasks_of_coding(count), moved / count, count


def tasks_of_coding(n_chunks: int) -> int:
    """Tasks of a coding pass: one per chunk, one for its sums, and the additions."""
    return 2 * n_chunks + n_chunks // ADDED_AT_ONCE


def measure_plan(folder: Path, small: bool) -> Iterator[str]:
    """Estimate for a billion signals from the measured speed of a core and overhead of a Dask task."""
    count, rows, cores, network = 10**9, 200_000, 512, 1.25e9
    # Enough signals that features are not cached between iterations, as in the estimated case.
    X = enlarged_mnist(2_000 if small else 100_000, None, small).astype(np.float32)
    sizes = model_sizes(small)
    n, p, s, m = sizes["n_components"], sizes["n_kernel_vectors"], sizes["n_nonzero_coefs"], X.shape[1]
    chunks = count // rows
    additions = chunks // ADDED_AT_ONCE
    state_size = 8 * s + 8
    a_task, moved, tried = dask_overhead(small)
    yield f"- data: 1e9 x {m} x 4 B = {count * m * 4 / 1e12:.2f} TB; codes: 1e9 x {state_size} B = {state_size} GB"
    yield f"- chunks of {rows:,} rows ({rows * m * 4 / 1e6:.0f} MB): {chunks:,} of them for {cores} cores"
    stay, working = count * m * 4 / cores / 2**30, rows * (m + p + 2 * n) * 4 / MIB
    yield f"- memory per worker ({cores} workers): {stay:.1f} GiB of signals if persisted; a chunk with its features"
    yield f"  {working:.0f} MiB; codes {state_size * 1e9 / cores / MIB:.0f} MiB"
    yield f"- overhead per task: {a_task * 1e3:.2f} ms, measured over {tried:,} nearly empty chunks with scheduler,"
    yield f"  client and two workers on this machine's cores; sums transferred per chunk and pass: {moved:.2f}"
    for model in scaled_models(small):
        speed = len(X) / iteration_time(model, X, 2, n_jobs=1)
        cost = cost_by_formula(model, n, p, m, X.itemsize)
        gradients = 0 if cost.passes == 1 else model.n_inner_iter + 1
        codings = 1 if cost.passes == 1 else 2
        tasks = codings * tasks_of_coding(chunks) + gradients * (chunks + additions)
        work, scheduling = count / speed / cores, tasks * a_task
        # Every sum moves once to the task that adds it, and every total once to the next, in sequence.
        transfer = (chunks + additions) * cost.returned
        adding = transfer / network
        yield f"- {type(model).__name__}, n = {n}, p = {p}, s = {s}: one core processes {speed:,.0f} signals/s"
        yield f"  - computation: {count / speed:,.0f} core-seconds per iteration, {work:,.0f} s on {cores} cores"
        yield f"  - scheduling: {tasks:,} tasks, {scheduling:,.0f} s, concurrent, on a core of its own"
        moves, size = chunks + additions, cost.returned / 1e6
        yield f"  - reduction: at most {moves:,} x {size:.2f} MB = {transfer / 1e9:.1f} GB transferred between workers,"
        yield f"    in sequence: {adding:,.0f} s at 10 Gbit/s, concurrent; returned to the client: {size:.2f} MB"
        sent = cost.sent / 1e6
        yield f"  - to {cores} workers: {sent:.2f} MB each, {sent * cores / 1e3:.2f} GB in total, forwarded by workers"
        slowest = max(work, scheduling, adding)
        hours = 30 * slowest / 3600, 30 * (work + scheduling + adding) / 3600
        yield f"  - 30 iterations: {hours[0]:.2f} h if the three overlap fully, {hours[1]:.2f} h if not at all"


MEASURES = {
    "memory": measure_memory,
    "kills": measure_kills,
    "stream": measure_stream,
    "costs": measure_costs,
    "workers": measure_workers,
    "plan": measure_plan,
}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=MEASURES, nargs="+", default=list(MEASURES))
    parser.add_argument("--small", action="store_true", help="small sizes and scikit-learn's digits")
    parser.add_argument("--write", action="store_true", help="put the lines into docs/scale.md")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="folder for temporary files")
    options = parser.parse_args(arguments)
    if options.small and options.write:
        parser.error("--small only tries the measurements and --write needs the full sizes: drop one of them.")
    warnings.simplefilter("ignore")
    for name in options.only:
        more = {"plot": PLOT} if name == "stream" and options.write else {}
        lines = []
        print(f"\n{name}", flush=True)
        for line in MEASURES[name](options.folder, options.small, **more):
            print(line, flush=True)
            lines.append(line)
        if options.write:
            put(PAGE, name, lines)


if __name__ == "__main__":
    main()
