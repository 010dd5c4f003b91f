"""Fault injection at random: what happens to fits and files; prints the table of docs/robustness.md.

    python -m benchmarks.chaos --write

kills processes at random moments of fits with checkpoints; flips bits of files and truncates them; makes writes fail as
on a full disk; has several processes write to one path and share one checkpoint; fits in many threads, during
interpreter shutdown and in forked children; kills Dask workers; and limits memory. It takes a few minutes and needs
Linux. A trial passes if its result is bitwise identical or refused with an error message; otherwise it counts as lost,
wrong or crashed, and the exit code is 1. `--only kills` (or another name) injects one kind of fault, `--small` runs a
few trials of each kind, `--seed` draws other trials.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import gzip
import os
import pickle
import random
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.datasets import load_digits

import rkdl
from benchmarks.machine import describe
from benchmarks.pages import put
from benchmarks.scale import local_cluster
from rkdl import DL, KDL, MORKDL, RKDL, datasets
from rkdl._persistence.files import read_file

PAGE = Path(__file__).parent.parent / "docs" / "robustness.md"
MIB = 2**20
# Seconds after which a child process counts as hung.
TIMEOUT = 120.0
SAME, REFUSED = "bitwise identical", "refused with an error message"
UNSEEN = "read as different numbers (the format has no checksum)"
CRASHED, WRONG = "CRASHED", "WRONG"


@dataclass
class Trial:
    """Outcomes of one kind of fault.

    Attributes
    ----------
    what : str
        Description of the fault.
    outcomes : Counter
        Number of trials per outcome; outcomes in capital letters are failures.
    """

    what: str
    outcomes: Counter = field(default_factory=Counter)

    @property
    def n_bad(self) -> int:
        """Number of failures."""
        return sum(count for outcome, count in self.outcomes.items() if outcome.isupper())

    def line(self) -> str:
        """The row of the table."""
        outcomes = "; ".join(f"{count} {outcome}" for outcome, count in self.outcomes.most_common())
        return f"| {self.what} | {self.outcomes.total()} | {outcomes} |"


def signals() -> np.ndarray:
    return load_digits().data[:900] / 16.0


def methods() -> dict[str, Any]:
    common = {"n_components": 16, "n_nonzero_coefs": 3, "max_iter": 25, "tol": 0.0, "random_state": 0}
    reduced = {**common, "n_kernel_vectors": 24}
    return {"DL": DL(**common), "KDL": KDL(**common), "RKDL": RKDL(**reduced), "MORKDL": MORKDL(**reduced)}


def learned(model: Any) -> dict[str, bytes]:
    """Every fitted attribute as bytes."""
    found = {name: value for name, value in vars(model).items() if name.endswith("_") and not name.startswith("_")}
    return {name: np.asarray(value).tobytes() for name, value in found.items()}


class Child:
    """A forked process that runs a function and returns its result, or its failure, through a pipe."""

    def __init__(self, function: Callable, *arguments: Any) -> None:
        reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(reader)
            self._run(writer, function, arguments)
        os.close(writer)
        self._reader = reader

    @staticmethod
    def _run(writer: int, function: Callable, arguments: tuple) -> None:
        """Run the child to its end; never returns."""
        code = 1
        with contextlib.suppress(BaseException):
            warnings.simplefilter("ignore")
            try:
                result = function(*arguments)
            except Exception as error:
                result = f"{CRASHED} ({type(error).__name__}: {error})".upper()
            with os.fdopen(writer, "wb") as stream:
                pickle.dump(result, stream)
            code = 0
        os._exit(code)

    def kill_after(self, seconds: float) -> bool:
        """Kill the child after a delay; returns whether it was still alive."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if os.waitpid(self.pid, os.WNOHANG)[0]:
                os.close(self._reader)
                return False
            time.sleep(0.002)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self._reader)
        return True

    def result(self) -> Any:
        """The function's result, or an outcome in capital letters if the process died or hung."""
        timer = threading.Timer(TIMEOUT, os.kill, (self.pid, signal.SIGKILL))
        timer.start()
        try:
            with os.fdopen(self._reader, "rb") as stream:
                content = stream.read()
            status = os.waitpid(self.pid, 0)[1]
        finally:
            timer.cancel()
        return pickle.loads(content) if status == 0 else f"{CRASHED} OR HUNG (STATUS {status})"


def try_kills(folder: Path, rng: random.Random, is_small: bool) -> Iterator[Trial]:
    """SIGKILL at random moments of fits with a checkpoint; the resumed fit must be bitwise identical."""
    X = signals()
    for name, model in methods().items():
        trial = Trial(f"`{name}` fit killed (SIGKILL) at a random moment, then resumed from its checkpoint")
        path, copy = folder / f"{name}.rkdl", folder / "copy.rkdl"
        expected = learned(clone(model).fit(X))
        begin = time.perf_counter()
        clone(model).fit(X, checkpoint=path)
        duration = time.perf_counter() - begin
        path.unlink()
        while trial.outcomes.total() < (1 if is_small else 12):
            child = Child(lambda: clone(model).fit(X, checkpoint=path) and None)  # noqa: B023
            if not child.kill_after(rng.uniform(0.02, 0.5) * duration):
                path.unlink()
                continue
            if path.exists():
                shutil.copy(path, copy)
            found = learned(clone(model).fit(X, checkpoint=copy))
            trial.outcomes[SAME if found == expected else WRONG] += 1
            copy.unlink()
        clone(model).fit(X, checkpoint=path)
        left = [entry.name for entry in folder.iterdir() if entry != path]
        trial.outcomes.update({"LEFT BEHIND": len(left)} if left else {})
        path.unlink()
        yield trial


def own_files(folder: Path) -> dict[str, tuple[Path, Callable[[], Any]]]:
    """Files that rkdl writes, with functions that read all their content."""
    X = signals()
    model = clone(methods()["MORKDL"]).set_params(max_iter=2)
    checkpoint, saved = folder / "fit.rkdl", folder / "model.rkdl"
    model.fit(X, checkpoint=checkpoint).save(saved)

    def resume() -> Any:
        return learned(clone(model).set_params(max_iter=3).fit(X, checkpoint=checkpoint))

    return {"a checkpoint": (checkpoint, resume), "a saved model": (saved, lambda: learned(rkdl.load(saved)))}


def data_files(folder: Path) -> dict[str, tuple[Path, Callable[[], Any]]]:
    """Data files, with functions that read them."""
    rows = (signals()[:40] * 16).astype(np.uint8)
    batches = folder / "cifar-10-batches-bin"
    batches.mkdir()
    batch = batches / "test_batch.bin"
    batch.write_bytes(bytes(5 * 3073))
    found = {
        "a batch of CIFAR-10": (batch, lambda: datasets.fetch_cifar10(subset="test", data_home=folder).data),
    }
    for ending in ("npy", "npz", "csv"):
        path = folder / f"signals.{ending}"
        if ending == "npy":
            np.save(path, rows)
        elif ending == "npz":
            np.savez_compressed(path, X=rows)
        else:
            np.savetxt(path, rows, delimiter=",", fmt="%d")
        found[f"signals as .{ending}"] = (path, lambda path=path: datasets.load_signals(path))
    return found


def same(left: Any, right: Any) -> bool:
    return left == right if isinstance(left, dict) else np.array_equal(left, right)


def damaged(content: bytes, rng: random.Random, is_cut: bool) -> bytes:
    if is_cut:
        return content[: rng.randrange(len(content))]
    changed = bytearray(content)
    changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def read_damaged(path: Path, read: Callable, whole: bytes, seeds: list[int], is_cut: bool, has_checksum: bool) -> list:
    """Read a file damaged in one place at a time; returns the outcomes."""
    expected = read()
    outcomes = []
    for seed in seeds:
        path.write_bytes(damaged(whole, random.Random(seed), is_cut))
        try:
            found = read()
        except (ValueError, OSError):
            outcomes.append(REFUSED)
        else:
            is_same = same(found, expected)
            outcomes.append(SAME if is_same else WRONG if has_checksum else UNSEEN)
        finally:
            path.write_bytes(whole)
    return outcomes


def try_damage(folder: Path, rng: random.Random, is_small: bool, is_cut: bool) -> Iterator[Trial]:
    """Damage files and read them in forked children, so that a crash ends only a child."""
    own, data = own_files(folder), data_files(folder)
    # Formats with a checksum, where no damage may go unnoticed.
    checked = {*own, "signals as .npz"}
    for what, (path, read) in {**own, **data}.items():
        verb = "truncated at a random position" if is_cut else "with a random bit flipped"
        trial = Trial(f"{what} {verb}")
        count = (60 if is_cut else 160) if what in own else (25 if is_cut else 60)
        seeds = [rng.randrange(2**30) for _ in range(8 if is_small else count)]
        child = Child(read_damaged, path, read, path.read_bytes(), seeds, is_cut, what in checked and not is_cut)
        found = child.result()
        trial.outcomes.update(found if isinstance(found, list) else [found])
        yield trial


def fit_on_full_disk(path: Path, model: Any, X: np.ndarray, expected: dict, limit: int) -> str:
    """Fit with files limited to `limit` bytes, or with a disk that is full on flush (limit 0)."""
    if limit:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    else:

        def fsync(descriptor: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        os.fsync = fsync
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = learned(clone(model).fit(X, checkpoint=path))
    if found != expected or any(entry.name.startswith(".rkdl-") for entry in path.parent.iterdir()):
        return WRONG
    return "warned, went on, bitwise identical, no files left behind" if caught else SAME


def try_full_disk(folder: Path, rng: random.Random, is_small: bool) -> Iterator[Trial]:
    X = signals()
    for name, model in methods().items():
        trial = Trial(f"`{name}` fit, disk full when its checkpoint is written")
        model = clone(model).set_params(max_iter=4)
        expected = learned(clone(model).fit(X))
        for _ in range(1 if is_small else 8):
            limit = rng.choice([0, rng.randrange(1, 5_000)])
            trial.outcomes[Child(fit_on_full_disk, folder / "fit.rkdl", model, X, expected, limit).result()] += 1
            (folder / "fit.rkdl").unlink(missing_ok=True)
        yield trial


def keep_saving(path: Path, model: Any, deadline: float) -> int:
    count = 0
    while time.monotonic() < deadline:
        model.save(path)
        count += 1
    return count


def fit_or_be_refused(path: Path, model: Any, X: np.ndarray, expected: dict) -> str:
    try:
        return SAME if learned(clone(model).fit(X, checkpoint=path)) == expected else WRONG
    except ValueError as error:
        return "refused, checkpoint in use" if "a fit that runs now" in str(error) else f"{WRONG}: {error}".upper()


def try_writers(folder: Path, rng: random.Random, is_small: bool) -> Iterator[Trial]:
    """Processes that save to one path while another reads it, and fits that share a checkpoint."""
    X, path = signals(), folder / "model.rkdl"
    models = [clone(methods()["RKDL"]).set_params(random_state=seed, max_iter=2).fit(X) for seed in (0, 1)]
    known = [learned(model) for model in models]
    models[0].save(path)
    trial = Trial("model read while two processes save to the same path")
    deadline = time.monotonic() + (1.0 if is_small else 10.0)
    children = [Child(keep_saving, path, model, deadline) for model in models]
    while time.monotonic() < deadline:
        trial.outcomes["complete, old or new" if learned(rkdl.load(path)) in known else WRONG] += 1
    writes = [child.result() for child in children]
    trial.outcomes.update(outcome for outcome in writes if isinstance(outcome, str))
    trial.what += f" ({sum(count for count in writes if isinstance(count, int)):,} saves)"
    trial.outcomes.update({"LEFT BEHIND": len(list(folder.glob(".rkdl-*")))} if list(folder.glob(".rkdl-*")) else {})
    yield trial

    trial = Trial("fit by three processes started at once with the same checkpoint")
    model = clone(methods()["MORKDL"]).set_params(max_iter=10)
    expected = learned(clone(model).fit(X))
    for _ in range(1 if is_small else 12):
        children = [Child(fit_or_be_refused, folder / "shared.rkdl", model, X, expected) for _ in range(3)]
        trial.outcomes.update(child.result() for child in children)
        if len(read_file(folder / "shared.rkdl", "checkpoint", "")[1]["history.errors"]) != model.max_iter:
            trial.outcomes["LOST"] += 1
        (folder / "shared.rkdl").unlink()
    yield trial


AT_EXIT = """
import atexit, sys, threading, time
from benchmarks.chaos import learned, methods, signals
X = signals()
model = methods()["RKDL"].set_params(n_jobs=2)
expected = learned(model.fit(X))
def work():
    time.sleep(float(sys.argv[2]))
    print(learned(model.fit(X)) == expected, flush=True)
atexit.register(work) if sys.argv[1] == "atexit" else threading.Thread(target=work).start()
"""


def try_threads(folder: Path, rng: random.Random, is_small: bool) -> Iterator[Trial]:
    X = signals()
    trial = Trial("fit concurrent with seven others in threads of one process")
    everything = methods()
    expected = {name: learned(clone(model).fit(X)) for name, model in everything.items()}
    names = [name for name in everything for _ in range(2 if is_small else 8)]
    rng.shuffle(names)
    with ThreadPoolExecutor(8) as pool:
        found = pool.map(lambda name: learned(clone(everything[name]).set_params(n_jobs=2).fit(X)), names)
        trial.outcomes.update(SAME if one == expected[name] else WRONG for name, one in zip(names, found, strict=True))
    yield trial
    trial = Trial("fit during interpreter shutdown: in `atexit`, or in a thread that outlives the main thread")
    for moment in ("atexit", "thread") if is_small else ("atexit", "thread") * 4:
        command = [sys.executable, "-c", AT_EXIT, moment, f"{rng.uniform(0.0, 0.3):.3f}"]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=TIMEOUT)
        is_right = (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
        trial.outcomes[SAME if is_right else CRASHED] += 1
    yield trial


def try_forks(folder: Path, rng: random.Random, is_small: bool) -> Iterator[Trial]:
    """Fork while another thread fits, and fit in the child."""
    X, model = signals(), clone(methods()["MORKDL"]).set_params(max_iter=8, n_jobs=2)
    expected = learned(clone(model).fit(X))
    trial = Trial("fit in a child forked while a thread of the parent was fitting, and the parent's own fit")
    for _ in range(2 if is_small else 12):
        with ThreadPoolExecutor(1) as pool:
            own = pool.submit(lambda: learned(clone(model).fit(X)))
            time.sleep(rng.uniform(0.0, 0.05))
            child = Child(lambda: SAME if learned(clone(model).fit(X)) == expected else WRONG)
            trial.outcomes[child.result()] += 1
            trial.outcomes[SAME if own.result() == expected else WRONG] += 1
    yield trial


def try_dask(folder: Path, rng: random.Random, is_small: bool) -> Iterator[Trial]:
    """Kill a worker of a cluster at a random moment of a fit; the others take over its work."""
    import dask
    import dask.array as da
    import distributed

    X = np.tile(signals(), (4, 1))
    model = clone(methods()["MORKDL"]).set_params(max_iter=5)
    with rkdl.config_context(chunk_rows=300):
        expected = learned(clone(model).fit(X))
    trial = Trial("`MORKDL` fit on three Dask workers, one of them killed at a random moment")
    # How long workers wait for data of a dead worker.
    settings = {"distributed.comm.timeouts.connect": "3s"}
    with (
        dask.config.set(settings),
        local_cluster(3) as cluster,
        distributed.Client(cluster) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        blocks = da.from_array(X, chunks=(300, X.shape[1]))
        begin = time.perf_counter()
        trial.outcomes[SAME if learned(clone(model).fit(blocks)) == expected else WRONG] += 1
        duration = time.perf_counter() - begin
        trial.outcomes.clear()
        for _ in range(1 if is_small else 6):
            # On a busy machine the new worker may be late; two are enough.
            with contextlib.suppress(TimeoutError):
                client.wait_for_workers(3, timeout=30)
            fit = pool.submit(lambda: learned(clone(model).fit(blocks)))
            time.sleep(rng.uniform(0.1, 0.7) * duration)
            victim = rng.choice([nanny.pid for nanny in cluster.workers.values() if nanny.pid])
            is_busy = not fit.done()
            os.kill(victim, signal.SIGKILL)
            outcome = SAME if fit.result(TIMEOUT) == expected else WRONG
            trial.outcomes[outcome if is_busy else f"{outcome}, killed after the end"] += 1
    yield trial


def limited(n_bytes: int, function: Callable) -> Any:
    """Call the function with the address space limited to `n_bytes` more than now."""
    with open("/proc/self/statm") as file:
        size = int(file.read().split()[0]) * resource.getpagesize()
    before, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (size + n_bytes, hard))
    try:
        return function()
    finally:
        # Report the outcome without the limit.
        resource.setrlimit(resource.RLIMIT_AS, (before, hard))


LIMITED = """
import sys
from benchmarks.chaos import fit_in_limits
fit_in_limits(sys.argv[1], [int(limit) for limit in sys.argv[2:]])
"""


def fit_in_limits(name: str, limits: list[int]) -> None:
    """Print the outcome of a fit in forked children under each memory limit."""
    X = np.tile(signals(), (3, 1))
    model = clone(methods()[name]).set_params(max_iter=2, n_jobs=2)
    expected = learned(clone(model).fit(X))

    def fit() -> str:
        try:
            return SAME if learned(clone(model).fit(X)) == expected else WRONG
        except MemoryError:
            return "`MemoryError`"

    for limit in limits:
        print(Child(limited, limit, fit).result(), flush=True)


def try_memory(folder: Path, rng: random.Random, is_small: bool) -> Iterator[Trial]:
    """Fits and readers in processes with limited memory."""
    # Freed memory must return to the system at once for the limit to take effect.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    for name in methods():
        trial = Trial(f"`{name}` fit with a few MiB of memory left")
        most = {"DL": 3, "KDL": 160}.get(name, 24)
        limits = [str(rng.randrange(1, most) * MIB) for _ in range(2 if is_small else 8)]
        command = [sys.executable, "-W", "ignore", "-c", LIMITED, name, *limits]
        done = subprocess.run(
            command, env=environment, check=False, capture_output=True, text=True, timeout=10 * TIMEOUT
        )
        trial.outcomes.update(done.stdout.splitlines() if done.returncode == 0 else [CRASHED])
        yield trial
    trial = Trial("small file that decompresses to 512 MiB, read with 128 MiB of memory left")
    for read in decompression_bombs(folder):

        def refuse(read: Callable = read) -> str:
            try:
                read()
            except ValueError:
                return REFUSED
            return WRONG

        trial.outcomes[Child(limited, 128 * MIB, refuse).result()] += 1
    yield trial


def decompression_bombs(folder: Path) -> list[Callable]:
    """Readers of small files that decompress to large ones."""
    size = 512 * MIB
    with gzip.open(folder / "train-images-idx3-ubyte.gz", "wb", compresslevel=1) as stream:
        stream.write(struct.pack(">4I", 0x0803, size // 784, 28, 28))
        for _ in range(size // MIB):
            stream.write(bytes(MIB))
    (folder / "train-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 0x0801, 0))
    np.savez_compressed(folder / "cifar10_airplane.npz", images=np.zeros((size // 3072, 32, 32, 3), np.uint8))
    saved = folder / "model.rkdl"
    header = np.frombuffer(b'{"rkdl": "estimator", "format": 2, "arrays": {"x": ["|u1", 536870912]}}', np.uint8)
    with saved.open("wb") as stream:
        np.savez_compressed(stream, header=header, x=np.zeros(size, np.uint8))
    return [
        lambda: datasets.fetch_mnist(data_home=folder),
        lambda: datasets.fetch_cifar10(label=0, data_home=folder),
        lambda: rkdl.load(saved),
    ]


FAULTS: dict[str, Callable[[Path, random.Random, bool], Iterator[Trial]]] = {
    "kills": try_kills,
    "flips": lambda folder, rng, is_small: try_damage(folder, rng, is_small, is_cut=False),
    "cuts": lambda folder, rng, is_small: try_damage(folder, rng, is_small, is_cut=True),
    "disk": try_full_disk,
    "writers": try_writers,
    "threads": try_threads,
    "forks": try_forks,
    "dask": try_dask,
    "memory": try_memory,
}


def run(names: list[str], seed: int, is_small: bool) -> tuple[list[str], int]:
    """Inject the named faults; returns the lines of the page and the number of failures."""
    begin = time.perf_counter()
    trials: list[Trial] = []
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            for trial in FAULTS[name](Path(folder), random.Random(f"{seed} {name}"), is_small):
                print(trial.line(), flush=True)
                trials.append(trial)
    count, n_bad = sum(trial.outcomes.total() for trial in trials), sum(trial.n_bad for trial in trials)
    machine = describe()
    verdict = "no data lost, no wrong result, no crash" if n_bad == 0 else f"**{n_bad} failed**"
    summary = (
        f"{count:,} trials in {time.perf_counter() - begin:.0f} s on {machine['cores']} cores of "
        f"{machine['processor']}, seed {seed}: {verdict}."
    )
    head = ["| trial | count | outcome |", "|---|---|---|"]
    return [summary, "", *head, *(trial.line() for trial in trials)], n_bad


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=FAULTS, nargs="+", default=list(FAULTS))
    parser.add_argument("--small", action="store_true", help="a few trials of each kind")
    parser.add_argument("--seed", type=int, default=0, help="random seed (default 0)")
    parser.add_argument("--write", action="store_true", help="put the table into docs/robustness.md")
    options = parser.parse_args(arguments)
    if options.write and (options.small or options.only != list(FAULTS)):
        parser.error("--write needs all trials: drop --small and --only.")
    warnings.simplefilter("ignore")
    lines, n_bad = run(options.only, options.seed, options.small)
    print(lines[0])
    if options.write:
        put(PAGE, "chaos", lines)
    return 1 if n_bad else 0


if __name__ == "__main__":
    sys.exit(main())
