"""Beyond memory and beyond one machine, measured: what docs/scale.md says is printed here.

    RKDL_DATA=/path/to/data python -m benchmarks.scale --write

measures, in this order: the peak memory and the speed of a fit on a memory map of 1,000,000 x 784 float32 signals
(MNIST with a little noise, written to --folder and deleted afterwards); twenty fits killed at random moments; a stream
against a batch fit, and one whose classes change halfway; passes and bytes of every method; one and two Dask workers;
and the arithmetic for a thousand million signals. `--write` puts the lines into docs/scale.md and the plot into
docs/images/drift.png; `--only memory` (or kills, stream, costs, workers, plan) measures one thing, `--small` takes
small sizes and scikit-learn's digits.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sklearn.base import clone

from benchmarks.data import enlarged_mnist, mnist
from benchmarks.pages import put
from rkdl import DL, MORKDL, ORKDL, RKDL, FourierDL, config_context
from rkdl._files import read_file
from rkdl._signals import Walker

PAGE = Path(__file__).parent.parent / "docs" / "scale.md"
PLOT = PAGE.parent / "images" / "drift.png"
MIB = 2**20

# The method of the first figure.
SIZES = {"n_components": 100, "n_kernel_vectors": 200, "n_nonzero_coefs": 5}


def big_model(iterations: int) -> RKDL:
    return RKDL(**SIZES, gamma=0.1, max_iter=iterations, tol=0.0, random_state=0)


def write_signals(path: Path, count: int, small: bool) -> tuple[int, int]:
    """A memory map of `count` signals, written piece by piece."""
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
# Compiled code is loaded by the first fit.
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
    """Peak memory and speed of a fit on a memory map, each in a fresh process."""
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
    yield f"- memory beyond the interpreter's own {out['own'] / MIB:.0f} MiB: {beyond:.0f} MiB"
    yield f"- an iteration from the file: {out['iteration']:.2f} s, {speeds[0]:,.0f} signals/s"
    yield f"- an iteration on {slice_rows:,} signals in memory: {memory['iteration']:.2f} s, {speeds[1]:,.0f} signals/s"
    yield f"- speed out of memory to speed in memory: {speeds[0] / speeds[1]:.2f}"
    yield f"- whole fit of {1 + iterations} iterations, kernel vectors included: {out['fit']:.1f} s"


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
    """Processes killed at random moments of one fit after another; each resumes to the same bits."""
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
            raise RuntimeError("a child ended before its fit began")
        time.sleep(chance.uniform(0.0, 1.0) * duration)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        resumed.append(len(read_file(path, "checkpoint", "")[0]["errors"]) if path.exists() else 0)
        same += fitted(killed_model().fit(X, checkpoint=path)) == expected
        path.unlink()
    yield f"- processes killed (SIGKILL) at random moments of a MORKDL fit of 25 iterations: {count}"
    yield f"- resumed from iterations {', '.join(map(str, sorted(resumed)))}"
    yield f"- ended at the bits of an uninterrupted fit: {same} of {count}"


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


def measure_stream(folder: Path, small: bool, plot: Path | None = None) -> Iterator[str]:
    """One epoch of random batches against one iteration of fit; then a stream whose classes change."""
    signals, labels = mnist(None, small)
    signals = signals.astype(np.float32)
    chosen = np.random.default_rng(1).permutation(len(signals))[:12_000]
    X = signals[chosen]
    seeds = (0,) if small else (0, 1, 2)
    yield "| method | fit, 1 iteration | partial_fit, 1 epoch (seeds) | ratio |"
    yield "|---|---|---|---|"
    for name, model in stream_models(small).items():
        batch = root_error(clone(model).set_params(max_iter=1).fit(X), X)
        streamed = []
        for seed in seeds:
            stream = clone(model)
            for rows in random_batches(X, np.random.default_rng(seed), small):
                stream.partial_fit(rows)
            streamed.append(root_error(stream, X))
        told = ", ".join(f"{value:.4f}" for value in streamed)
        yield f"| {name} | {batch:.4f} | {told} | {max(streamed) / batch:.3f} at most |"
    yield ""
    yield from measure_drift(signals, labels, small, plot)


DRIFTING = ("DL", "FourierDL", "RKDL", "ORKDL")


def measure_drift(signals: np.ndarray, labels: np.ndarray, small: bool, plot: Path | None) -> Iterator[str]:
    """Digits 0 to 4, then 5 to 9; the error on signals of the current classes that are in no batch."""
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
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 6.0), layout="constrained")
    for axes, name in zip(figure.subplots(2, 2).ravel(), DRIFTING, strict=True):
        for (method, half_life), (curve, best) in curves.items():
            if method == name:
                label = "no forgetting" if half_life is None else f"half_life={half_life:g}"
                axes.plot(np.arange(1, len(curve) + 1), curve, label=label)
                floor = best
        axes.axhline(floor, color="0.6", linestyle=":", label="fit on the late classes")
        axes.axvline(change, color="0.6", linewidth=0.8)
        axes.set(title=name, xlabel="batches seen", ylabel="error on held-out signals")
        axes.legend(fontsize="small", loc="upper left")
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, dpi=110)


def measure_costs(folder: Path, small: bool) -> Iterator[str]:
    """Walks over the signals an iteration, counted; bytes by the formulas of the page."""
    X = mnist(None, small)[0][:1000].astype(np.float32)
    n, p, m, s, size = 100, 200, 784, 5, 4
    walks = [0]
    run = Walker.run

    def counted(self, *arguments, **options):
        walks[0] += 1
        return run(self, *arguments, **options)

    yield f"For n = {n}, p = {p}, m = {m}, s = {s}, float32:"
    yield ""
    yield "| method | walks an iteration | kept a signal | to a worker, an iteration | back, an iteration |"
    yield "|---|---|---|---|---|"
    for name, model in stream_models(True).items():
        made = {}
        for iterations in (3, 8):
            walks[0] = 0
            Walker.run = counted  # type: ignore[method-assign]
            try:
                clone(model).set_params(max_iter=iterations).fit(X)
            finally:
                Walker.run = run  # type: ignore[method-assign]
            made[iterations] = walks[0]
        each = (made[8] - made[3]) / 5
        coordinates = m if name == "DL" else 256 if name == "FourierDL" else p
        sent = (n * coordinates + n * n) * size
        vectors = 0 if name == "DL" else (128 * m * 8 if name == "FourierDL" else p * m * 8)
        sums = (n * n + n * coordinates + 2) * 8
        moves = name in ("ORKDL", "MORKDL")
        pulls = (each - 1) * (n * p + p * m) * 8 if moves else 0
        down = each * (sent + vectors)
        yield f"| {name} | {each:g} | {8 * s + 8} B | {down / 1e6:.2f} MB | {(sums + pulls) / 1e6:.2f} MB |"


def measure_workers(folder: Path, small: bool) -> Iterator[str]:
    """The same fit by one and by two workers of a local cluster, on chunks that are there already."""
    import dask.array as da
    import distributed

    count, rows = (4_000, 1_000) if small else (120_000, 5_000)
    X = enlarged_mnist(count, None, small).astype(np.float32)
    iterations = 2 if small else 5
    yield "| workers | RKDL, s an iteration | signals/s | ORKDL, s an iteration | signals/s |"
    yield "|---|---|---|---|---|"
    for workers in (0, 1, 2):
        cells = []
        if workers == 0:
            with config_context(chunk_rows=rows):
                cells = [iteration_time(model, X, iterations, n_jobs=1) for model in scaled_models(small)]
        else:
            cluster = distributed.LocalCluster(
                n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
            )
            with cluster, distributed.Client(cluster):
                blocks = da.from_array(X, chunks=(rows, -1)).persist()
                distributed.wait(blocks)
                cells = [iteration_time(model, blocks, iterations) for model in scaled_models(small)]
        label = "none, one thread here" if workers == 0 else str(workers)
        yield f"| {label} | " + " | ".join(f"{cell:.2f} | {count / cell:,.0f}" for cell in cells) + " |"


def scaled_models(small: bool) -> list[RKDL]:
    options = {**SIZES, "kernel_vectors": "random", "gamma": 0.1, "tol": 0.0, "random_state": 0}
    if small:
        options.update(n_components=20, n_kernel_vectors=30)
    return [RKDL(**options), ORKDL(**options)]


def iteration_time(model: RKDL, X: object, iterations: int, **changes: object) -> float:
    clone(model).set_params(max_iter=1, **changes).fit(X)
    times = []
    for count in (1, 1 + iterations):
        start = time.perf_counter()
        clone(model).set_params(max_iter=count, **changes).fit(X)
        times.append(time.perf_counter() - start)
    return (times[1] - times[0]) / iterations


def measure_plan(folder: Path, small: bool) -> Iterator[str]:
    """A thousand million signals on paper, from the speed of one core here."""
    count, m, s, n, p, rows, cores = 10**9, 784, 5, 100, 200, 50_000, 512
    # So many that features are not kept between iterations, as they would not be there.
    X = enlarged_mnist(2_000 if small else 100_000, None, small).astype(np.float32)
    speed = len(X) / iteration_time(scaled_models(small)[0], X, 2, n_jobs=1)
    chunks = count // rows
    work = count / speed
    tasks = 3 * chunks + chunks // 16
    yield f"- data: 1e9 x {m} x 4 B = {count * m * 4 / 1e12:.2f} TB; kept codes: 1e9 x {8 * s + 8} B = 48 GB"
    hours = 30 * max(work / cores, tasks * 1e-3) / 3600
    yield f"- one core here works through {speed:,.0f} signals/s (RKDL, n = {n}, p = {p}, s = {s}): an iteration is"
    yield f"  {work:,.0f} core-seconds, {work / cores:,.0f} s on {cores} cores"
    yield f"- chunks of {rows:,} rows ({rows * m * 4 / 1e6:.0f} MB): {chunks:,} of them, {tasks:,} tasks an iteration;"
    yield f"  at an assumed 1 ms a task in Dask's scheduler, {tasks * 1e-3:.0f} s of scheduling meanwhile"
    yield f"- 30 iterations by the slower of the two: {hours:.2f} h"
    step = ((n * p + n * n) * 4 + p * m * 8) / 1e6
    back = (n * n + n * p + 2) * 8 / 1e6
    yield f"- sent: {step:.2f} MB to each of {cores} workers, {step * cores / 1e3:.2f} GB in all; back: {back:.2f} MB"
    handed = chunks / 16 * back / 1e3
    yield f"- handed on while sums are added: at most {chunks // 16:,} x {back:.2f} MB = {handed:.2f} GB"
    yield f"- memory of a worker, {cores} of them: {count * m * 4 / cores / 2**30:.1f} GiB of signals if they stay;"
    yield f"  a chunk with its features {rows * (m + p + 2 * n) * 4 / MIB:.0f} MiB; codes {48e9 / cores / MIB:.0f} MiB"


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
    parser.add_argument("--small", action="store_true", help="small sizes, scikit-learn's digits")
    parser.add_argument("--write", action="store_true", help="put the lines into docs/scale.md")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where files are written")
    options = parser.parse_args(arguments)
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
