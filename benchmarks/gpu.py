"""Benchmark of a GPU; prints the table of docs/gpu.md.

    RKDL_DATA=/path/to/data python -m benchmarks.gpu --out results/gpu

runs the tensor tests on the GPU, then measures, in this order: the GPU's limits; encoding of 64-dimensional signals;
encoding with many non-zeros, beside orthogonal-matching-pursuit-gpu if `--peer` says where its sources are; ORKDL on
1,000,000 signals, from device and from host memory; a pass of DL over 2.6 million signals in host memory; KDL on all of
MNIST; the paper's problem; the classifier and the outlier detector on MNIST. Each fit runs once to compile and load
what it needs, then is timed, best of several; its errors are compared with those of the same fit on the CPU. The table
is printed and written to the folder as gpu.md, all figures as gpu.json. `--only encode` (or long, million, pass, kdl,
paper, applications) measures one case; `--small` uses small inputs and `--device cpu` runs without a GPU, to try the
code; `--write` puts the table into docs/gpu.md.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import json
import platform
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import clone

from benchmarks.data import MissingDataError, digit_four, enlarged_mnist, mnist, patches, pick_dictionary
from benchmarks.pages import put
from rkdl import DL, KDL, ORKDL, RKDL, KDLClassifier, KDLOutlierDetector, sparse_encode
from rkdl._backends.torch.pursuit import pursue_plainly
from rkdl._data import tensors
from rkdl._learning.reduced import ReducedProblem

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "gpu.md"
CASES = ("encode", "long", "million", "pass", "kdl", "paper", "applications")
# Atoms, non-zeros, signals and seconds of a pass of DL.
PASSES = [(4096, 20, 2_621_440, 6.0), (16384, 40, 2_621_440, 45.0)]
# Signals' length, atoms, non-zeros, signals and precision of the long codes.
LONG_CODES = [
    (64, 256, 6, 1_000_000, torch.float32),
    (256, 1024, 16, 200_000, torch.float32),
    (256, 1024, 17, 200_000, torch.float32),
    (256, 1024, 32, 5_000, torch.float32),
    (256, 1024, 32, 100_000, torch.float32),
    (8064, 1207, 30, 1_200, torch.float32),
    (8064, 1207, 30, 20_000, torch.float32),
    (512, 2048, 64, 5_000, torch.float32),
    (512, 2048, 64, 40_000, torch.float32),
    (768, 4096, 20, 100_000, torch.float32),
    (2304, 16384, 40, 20_000, torch.float32),
    (256, 1024, 32, 100_000, torch.float64),
]
# Substrings of the profiler's names of matrix-product kernels.
PRODUCTS = ("gemm", "gemv", "cutlass", "splitkreduce", "xmma", "nvjet")


class Machine:
    """A device, with timing and profiling."""

    def __init__(self, name: str, small: bool) -> None:
        self.device = torch.device(name)
        self.small = small
        self.is_gpu = self.device.type == "cuda"

    def wait(self) -> None:
        if self.is_gpu:
            torch.cuda.synchronize(self.device)

    def seconds(self, work: Callable[[], Any], repeats: int) -> tuple[float, Any]:
        """Shortest of several times, after one warm-up run, and the result."""
        work()
        best, result = np.inf, None
        for _ in range(repeats):
            self.wait()
            start = time.perf_counter()
            result = work()
            self.wait()
            best = min(best, time.perf_counter() - start)
        return best, result

    def describe(self) -> str:
        if self.is_gpu:
            gpu = torch.cuda.get_device_name(self.device)
            return f"{gpu}, torch {torch.__version__}, CUDA {torch.version.cuda}, Python {platform.python_version()}"
        return f"CPU, torch {torch.__version__}, Python {platform.python_version()}"

    @cache  # noqa: B019
    def bandwidth(self, is_cached: bool = False) -> float:
        """Bytes per second read and written by copies, of so much that it is in memory or so little that it is not."""
        source = torch.ones((1 << 22) if self.small or is_cached else (1 << 29), device=self.device)
        target, count = torch.empty_like(source), 100 if is_cached else 1

        def work() -> None:
            for _ in range(count):
                target.copy_(source)

        return 2 * count * source.numel() * 4 / self.seconds(work, 5)[0]

    @cache  # noqa: B019
    def arithmetic(self, dtype: torch.dtype = torch.float32) -> float:
        """Operations per second of a large matrix product, TF32 off."""
        size = 256 if self.small else 8192
        left, right = (torch.randn(size, size, device=self.device).to(dtype) for _ in range(2))
        return 2 * size**3 / self.seconds(lambda: left @ right, 5)[0]

    @property
    def cache_per_core(self) -> float:
        """Bytes of the L2 cache for each multiprocessor."""
        if not self.is_gpu:
            return 1 << 20
        properties = torch.cuda.get_device_properties(self.device)
        return properties.L2_cache_size / properties.multi_processor_count

    @cache  # noqa: B019
    def transfer(self) -> float:
        """Bytes per second from pinned host memory."""
        source = torch.ones((1 << 20) if self.small else (1 << 28), pin_memory=self.is_gpu)
        target = torch.empty_like(source, device=self.device)
        return source.numel() * 4 / self.seconds(lambda: target.copy_(source, non_blocking=True), 5)[0]

    def profile(self, work: Callable[[], Any], path: Path | None) -> float:
        """Share of the wall time that matrix products take on the device."""
        from torch.profiler import ProfilerActivity, profile

        kinds = [ProfilerActivity.CUDA] if self.is_gpu else [ProfilerActivity.CPU]
        self.wait()
        start = time.perf_counter()
        with profile(activities=kinds) as record:
            work()
            self.wait()
        events = record.key_averages()
        if path is not None:
            order = "self_cuda_time_total" if self.is_gpu else "self_cpu_time_total"
            path.write_text(f"{time.perf_counter() - start} s\n" + events.table(sort_by=order, row_limit=40))
        times = {event.key.lower(): event.self_device_time_total or event.self_cpu_time_total for event in events}
        return sum(value for key, value in times.items() if any(part in key for part in PRODUCTS)) / 1e6


def row(what: str, value: float, unit: str, goal: str, is_met: bool | None, note: str) -> dict[str, Any]:
    is_met = None if is_met is None else bool(is_met)
    return {"what": what, "value": float(value), "unit": unit, "goal": goal, "is_met": is_met, "note": note}


def many_patches(machine: Machine, count: int) -> torch.Tensor:
    """Patches of the sample images, repeated with a little noise, on the device."""
    own = torch.from_numpy(patches(min(count, 200_000))).to(machine.device)
    generator = torch.Generator(machine.device).manual_seed(0)
    signals = own.repeat(-(-count // len(own)), 1)[:count]
    return signals + 0.01 * torch.randn(signals.shape, device=machine.device, generator=generator)


def encode_case(machine: Machine, out: Path) -> list[dict]:
    return [*encode_one(machine, 256, 6, 200, 1 << 23), *encode_one(machine, 1024, 8, 30, 1 << 22)]


def encode_one(machine: Machine, n_atoms: int, n_nonzero: int, goal: float, count: int) -> list[dict]:
    """Signals coded per second, to a CSR tensor and to a dense one."""
    count = 4_000 if machine.small else count
    signals = many_patches(machine, count)
    dictionary = pick_dictionary(patches(2_000 if machine.small else 220_000), min(n_atoms, count // 16))
    atoms = torch.from_numpy(dictionary).to(machine.device)

    def encode(rows: torch.Tensor, **options: Any) -> torch.Tensor:
        return sparse_encode(rows, atoms, n_nonzero_coefs=n_nonzero, **options)

    spent, codes = machine.seconds(lambda: encode(signals, sparse_output=True), 5)
    same = encode(signals, sparse_output=True)
    assert torch.equal(codes.values(), same.values()), "two runs were not bitwise identical"
    few = signals[: min(count, 20_000)]
    here = sparse_encode(few.cpu().numpy(), dictionary, n_nonzero_coefs=n_nonzero)
    own, other = (codes_error(few, atoms, part.to(machine.device)) for part in (torch.from_numpy(here), encode(few)))
    rate = count / spent
    # Signals in, correlations out and in, codes out; and the product with the atoms.
    moved = 4 * (64 + 2 * len(atoms) + 2 * n_nonzero + 2) * rate
    # The product with the atoms, and the operations per pursuit step on all atoms.
    steps = n_nonzero - 1
    operations = len(atoms) * (2 * 64 + steps * (steps - 1) + 8 * steps) * rate
    plain = plain_rate(machine, signals[: min(count, 1 << 16)], atoms, n_nonzero)
    note = (
        f"{len(atoms)} atoms, s = {n_nonzero}, {count:,} signals to a CSR tensor, OLS; "
        f"{moved / machine.bandwidth():.0%} of the bandwidth, {operations / machine.arithmetic():.0%} of the "
        f"arithmetic limit; plain torch {plain / 1e6:.1f} M signals/s; residual {other:.5g}, on the CPU {own:.5g}"
    )
    quarter = signals[: count // 4]
    dense = len(quarter) / machine.seconds(lambda: encode(quarter), 3)[0]
    return [
        row(f"encode, n = {n_atoms}", rate / 1e6, "M signals/s", f">= {goal}", rate / 1e6 >= goal, note),
        row(f"the same, dense, n = {n_atoms}", dense / 1e6, "M signals/s", "", None, ""),
    ]


def long_case(machine: Machine, out: Path) -> list[dict]:
    """Sparse coding with few to many non-zeros, beside orthogonal-matching-pursuit-gpu where it can be imported."""
    return [long_codes(machine, *sizes) for sizes in (LONG_CODES[:3] if machine.small else LONG_CODES)]


def long_codes(
    machine: Machine, n_features: int, n_atoms: int, n_nonzero: int, count: int, dtype: torch.dtype
) -> dict[str, Any]:
    count = 300 if machine.small else count
    generator = torch.Generator(machine.device).manual_seed(0)
    signals, atoms = (
        torch.nn.functional.normalize(
            torch.randn((rows, n_features), dtype=dtype, device=machine.device, generator=generator), dim=1
        )
        for rows in (count, n_atoms)
    )
    methods = ("ols", "omp")
    spent, errors = {}, {}
    for method in methods:
        options = {"n_nonzero_coefs": n_nonzero, "pursuit": method, "sparse_output": True}
        spent[method], codes = machine.seconds(lambda options=options: sparse_encode(signals, atoms, **options), 5)
        errors[method] = relative_error(signals, atoms, codes.to_dense())
    peer = peer_codes(machine, signals, atoms, n_nonzero)
    kind = "" if dtype == torch.float32 else ", float64"
    cells = [f"{n_features}, {n_atoms}, {n_nonzero}, {count:,}{kind}"]
    cells += [f"{count / spent[method] / 1e3:,.0f}" for method in methods]
    if peer is not None:
        time_of_peer, dense = peer
        cells += [f"{count / time_of_peer / 1e3:,.0f}"]
        cells += [f"{time_of_peer / spent[method]:.1f}" for method in methods]
        cells += [f"{errors['omp']:.4f}", f"{relative_error(signals, atoms, dense):.4f}"]
    print(*cells, sep=" | ", file=sys.stderr, flush=True)
    return {"cells": cells, "is_met": None}


def long_table(rows: list[dict]) -> str:
    """Thousands of signals per second, and how many times as fast as the peer where it was measured."""
    text = (
        "Sparse coding of random signals with a random dictionary, beside `orthogonal-matching-pursuit-gpu` with its "
        "default algorithm: thousands of signals per second for signals of length m, n atoms and s non-zeros, and the "
        "relative error of the representation. Signals and dictionary are tensors on the GPU, and the time includes "
        "the Gram matrix."
    )
    headings = ["m, n, s, signals", "OLS", "OMP", "peer", "OLS / peer", "OMP / peer", "error of OMP", "of the peer"]
    headings = headings[: len(rows[0]["cells"])]
    lines = [headings, ["---"] * len(headings), *(item["cells"] for item in rows)]
    return "\n".join([text, "", *("| " + " | ".join(cells) + " |" for cells in lines)])


def relative_error(signals: torch.Tensor, atoms: torch.Tensor, codes: torch.Tensor) -> float:
    return float((signals - codes @ atoms).norm() / signals.norm())


def peer_codes(
    machine: Machine, signals: torch.Tensor, atoms: torch.Tensor, n_nonzero: int
) -> tuple[float, torch.Tensor] | None:
    """Time and codes of orthogonal-matching-pursuit-gpu by its default algorithm; None if it is not there."""
    try:
        run_omp = importlib.import_module("orthogonal_matching_pursuit_gpu").run_omp
    except ImportError:
        return None
    return machine.seconds(lambda: run_omp(atoms.T, signals, n_nonzero, normalize=False, fit_intercept=False), 2)


def use_peer(folder: Path) -> None:
    """Make orthogonal-matching-pursuit-gpu importable from its sources; its compiled part is for the CPU only."""
    sys.path.insert(0, str(folder))
    compiled = types.ModuleType("orthogonal_matching_pursuit_gpu.blas_kernels")
    for name in ("argmax_blast", "ppsv", "update_projections_blast", "update_D_mybest_blast"):
        setattr(compiled, name, None)
    sys.modules.setdefault(compiled.__name__, compiled)


def codes_error(signals: torch.Tensor, atoms: torch.Tensor, codes: torch.Tensor) -> float:
    return float((signals.double() - codes.double() @ atoms.double()).square().sum().sqrt())


def plain_rate(machine: Machine, signals: torch.Tensor, atoms: torch.Tensor, n_nonzero: int) -> float:
    """Signals per second of the pursuit in plain torch functions."""
    gram = atoms @ atoms.T

    def work() -> None:
        pursue_plainly(signals @ atoms.T, gram, signals.square().sum(1), n_nonzero, -1.0, True)

    return len(signals) / machine.seconds(work, 3)[0]


def file_name(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name.lower())


def fit_case(
    machine: Machine, out: Path, name: str, model: Any, signals: torch.Tensor, limit: float, repeats: int, what: str
) -> tuple[dict, Any]:
    """Time of a fit on the device and the share of matrix products; checks that two fits are bitwise identical."""
    spent, fitted = machine.seconds(lambda: clone(model).fit(signals), repeats)
    again = clone(model).fit(signals)
    assert np.array_equal(fitted.errors_, again.errors_), "two fits ended differently"
    # The profiler is slow on a CPU, and its result is meaningless there.
    profiled = clone(model).set_params(max_iter=1) if machine.small else model
    share = machine.profile(lambda: clone(profiled).fit(signals), out / f"profile-{file_name(name)}.txt") / spent
    note = f"{what}; {share:.0%} of the time in matrix products; error {fitted.errors_[-1]:.4e}"
    return row(name, spent, "s", f"< {limit} s", spent < limit, note), fitted


def million_case(machine: Machine, out: Path) -> list[dict]:
    count, few = (3_000, 1_000) if machine.small else (1_000_000, 60_000)
    sizes = dict(zip(("n_components", "n_kernel_vectors"), (16, 24) if machine.small else (256, 1000), strict=True))
    model = ORKDL(**sizes, n_nonzero_coefs=6, n_inner_iter=3, max_iter=10, tol=0.0, gamma=0.1, random_state=0)
    held = enlarged_mnist(count, None, machine.small)
    signals = torch.from_numpy(held).to(machine.device)
    n_vectors, n_atoms = sizes["n_kernel_vectors"], sizes["n_components"]
    what = f"{count:,} x {held.shape[1]}, p = {n_vectors}, n = {n_atoms}, s = 6, ten iterations of three L-BFGS steps"
    first, _ = fit_case(machine, out, "ORKDL, one million signals", model, signals, 6.0, 2, what)
    del signals
    streaming = clone(model).set_params(device=str(machine.device))
    spent, streamed = machine.seconds(lambda: clone(streaming).fit(held), 2)
    ratio = spent / first["value"]
    note = f"{ratio:.2f} times the time above; error {streamed.errors_[-1]:.4e}"
    second = row("the same from host memory", spent, "s", "<= 1.5 x", ratio <= 1.5, note)
    return [first, second, compared("one million signals", machine, model, held[:few])]


def compared(name: str, machine: Machine, model: Any, signals: np.ndarray) -> dict:
    """Compare the final errors of the same fit on the device and on the CPU."""
    start = time.perf_counter()
    here = clone(model).set_params(device=None).fit(signals)
    spent = time.perf_counter() - start
    there = clone(model).fit(torch.from_numpy(signals).to(machine.device))
    own, other = here.errors_[-1], there.errors_[-1]
    gap = abs(own - other) / own
    note = f"on {len(signals):,} signals: {other:.5e} on the GPU, {own:.5e} on the CPU in {spent:.1f} s"
    return row(f"GPU and CPU errors, {name}", gap, "relative difference", "three digits", gap < 5e-4, note)


def pass_case(machine: Machine, out: Path) -> list[dict]:
    """One iteration of DL on signals in bfloat16 that come from host memory in every pass."""
    sizes = [(64, 96, 4, 3_000, 6.0)] if machine.small else [(2304, *rest) for rest in PASSES]
    return [item for case in sizes for item in dl_pass(machine, *case)]


def dl_pass(machine: Machine, n_features: int, n_atoms: int, n_nonzero: int, count: int, limit: float) -> list[dict]:
    signals = bfloat16_signals(machine, count, n_features)
    start = np.random.default_rng(0).standard_normal((n_atoms, n_features), dtype=np.float32)
    model = DL(n_atoms, n_nonzero_coefs=n_nonzero, init=start, tol=0.0, device=str(machine.device), random_state=0)
    model.set_params(max_iter=1)
    clone(model).fit(signals[: max(n_atoms, count // 50)])
    begun = time.perf_counter()
    with no_signals_stay(), timed_passes(machine) as spent:
        fitted = clone(model).fit(signals)
    total = time.perf_counter() - begun
    # The update, and the coding with the new atoms.
    seconds = sum(spent[-2:])
    few = signals[: 200 if machine.small else 2_000]
    errors = []
    for place in (str(machine.device), None):
        given = few if place is not None else few.float().numpy()
        errors.append(float(np.linalg.norm(fitted.set_params(device=place).reconstruction_error(given))))
    gap = abs(errors[0] - errors[1]) / errors[1]
    least = least_seconds(machine, n_features, n_atoms, n_nonzero, count)
    note = (
        f"{count:,} x {n_features} in bfloat16, n = {n_atoms:,}, s = {n_nonzero}; at the hardware's limits "
        + ", ".join(f"{what} would take {value:.2g} s" for what, value in least.items())
        + f": {sum(least.values()) / seconds:.0%} of the time; a fit of one iteration, which codes the signals "
        + f"twice, took {total:.3g} s"
    )
    what = f"DL, one pass, n = {n_atoms}"
    agreement = f"on {len(few):,} signals: {errors[0]:.5e} on the GPU, {errors[1]:.5e} on the CPU"
    return [
        row(what, seconds, "s", f"< {limit} s", seconds < limit, note),
        row(f"GPU and CPU errors, {what}", gap, "relative difference", "three digits", gap < 5e-4, agreement),
    ]


@cache
def bfloat16_signals(machine: Machine, count: int, n_features: int) -> torch.Tensor:
    """Random signals in host memory, drawn on the device."""
    generator = torch.Generator(machine.device).manual_seed(0)
    signals = torch.empty((count, n_features), dtype=torch.bfloat16)
    for start in range(0, count, 1 << 16):
        rows = signals[start : start + (1 << 16)]
        rows.copy_(torch.randn(rows.shape, device=machine.device, generator=generator))
    return signals


@contextmanager
def no_signals_stay() -> Iterator[None]:
    """Signals are sent in every pass, as those that are too large for the device's memory are."""
    share, tensors.CACHE_SHARE = tensors.CACHE_SHARE, 0.0
    try:
        yield
    finally:
        tensors.CACHE_SHARE = share


@contextmanager
def timed_passes(machine: Machine) -> Iterator[list[float]]:
    """Seconds of every coding and every update of the fits inside, in their order."""
    spent: list[float] = []
    own = ReducedProblem.encode, ReducedProblem.update

    def timed(work: Callable[[Any], None]) -> Callable[[Any], None]:
        def call(problem: Any) -> None:
            machine.wait()
            begun = time.perf_counter()
            work(problem)
            machine.wait()
            spent.append(time.perf_counter() - begun)

        return call

    ReducedProblem.encode, ReducedProblem.update = map(timed, own)
    try:
        yield spent
    finally:
        ReducedProblem.encode, ReducedProblem.update = own


def least_seconds(machine: Machine, n_features: int, n_atoms: int, n_nonzero: int, count: int) -> dict[str, float]:
    """What the parts of a pass would take at the hardware's limits if nothing overlapped."""
    # The factor's rows, in half precision, of a signal on every multiprocessor.
    is_cached = 2 * n_nonzero * n_atoms <= machine.cache_per_core
    n_rows = n_nonzero * (n_nonzero - 1) // 2
    return {
        "the transfer": 2 * count * n_features / machine.transfer(),
        "three products in half precision": 6 * count * n_features * n_atoms / machine.arithmetic(torch.float16),
        f"the factor's rows from {'the L2 cache' if is_cached else 'memory'}": 2
        * count
        * n_rows
        * n_atoms
        / machine.bandwidth(is_cached),
    }


def kdl_case(machine: Machine, out: Path) -> list[dict]:
    held = mnist(None, machine.small)[0]
    model = KDL(n_components=20, n_nonzero_coefs=4, max_iter=10, tol=0.0, gamma=0.1, random_state=0)
    signals = torch.from_numpy(held).to(machine.device)
    what = f"{len(held):,} x {held.shape[1]}, n = 20, s = 4, ten iterations, kernel matrix included"
    first, _ = fit_case(machine, out, "KDL, exact", model, signals, 1.5, 3, what)
    return [first, compared("KDL", machine, model, held)]


def paper_case(machine: Machine, out: Path) -> list[dict]:
    held = digit_four(None, machine.small)
    sizes = {"n_components": 20, "n_kernel_vectors": 20 if machine.small else 50}
    model = ORKDL(**sizes, n_nonzero_coefs=4, max_iter=10, tol=0.0, gamma=0.1, random_state=0)
    signals = torch.from_numpy(held).to(machine.device)
    what = f"{len(held):,} x {held.shape[1]}, p = {sizes['n_kernel_vectors']}, n = 20, s = 4, ten iterations"
    what += ", choice of kernel vectors included"
    first, _ = fit_case(
        machine, out, "ORKDL, the paper's problem", model, signals, 0.15, 3 if machine.small else 10, what
    )
    return [first, compared("the paper's problem", machine, model, held)]


def applications_case(machine: Machine, out: Path) -> list[dict]:
    held, labels = mnist(None, machine.small)
    if machine.small:
        held, labels = held[:400], labels[:400]
    return [*classifier_rows(machine, held, labels), *detector_rows(machine, held)]


def classifier_rows(machine: Machine, held: np.ndarray, labels: np.ndarray) -> list[dict]:
    """Fit and predictions of the classifier, and how far they agree with those on the CPU."""
    n_vectors, n_atoms = (30, 8) if machine.small else (300, 64)
    method = RKDL(n_atoms, n_kernel_vectors=n_vectors, kernel_vectors="random", n_nonzero_coefs=5, max_iter=10)
    model = KDLClassifier(method, random_state=0)
    what = (
        f"{len(held):,} x {held.shape[1]}, 10 classes, p = {n_vectors}, n = {n_atoms} per class, s = 5, two refinements"
    )
    spent, there, spent_here, here = both_fits(machine, model, held, labels)
    note = f"{what}; {spent_here:.2g} s on the CPU; cross-entropy {there.losses_[-1]:.4f}, on the CPU "
    first = row("KDLClassifier, fit", spent, "s", "", None, f"{note}{here.losses_[-1]:.4f}")
    return [first, agreement(machine, "KDLClassifier, predict", "decision_function", here, there, held)]


def detector_rows(machine: Machine, held: np.ndarray) -> list[dict]:
    """Fit and scores of the outlier detector, and how far they agree with those on the CPU."""
    model = KDLOutlierDetector(n_members=2 if machine.small else 10, random_state=0)
    what = f"{len(held):,} x {held.shape[1]}, {model.n_members} dictionaries of at most 2,048 signals, float64"
    spent, there, spent_here, here = both_fits(machine, model, held)
    note = f"{what}; {spent_here:.2g} s on the CPU; offset {there.offset_:.5g}, on the CPU {here.offset_:.5g}"
    first = row("KDLOutlierDetector, fit", spent, "s", "", None, note)
    return [first, agreement(machine, "KDLOutlierDetector, predict", "score_samples", here, there, held)]


def both_fits(machine: Machine, model: Any, held: np.ndarray, *labels: Any) -> tuple[float, Any, float, Any]:
    """Seconds and fitted models on the device and on the CPU."""
    signals = torch.from_numpy(held).to(machine.device)
    there = clone(model).set_params(device=str(machine.device))
    spent, there = machine.seconds(lambda: clone(there).fit(signals, *labels), 1 if machine.small else 2)
    start = time.perf_counter()
    here = clone(model).fit(held, *labels)
    return spent, there, time.perf_counter() - start, here


def agreement(machine: Machine, name: str, method: str, here: Any, there: Any, held: np.ndarray) -> dict:
    """Predictions per second on the device, and how many equal those on the CPU, from one fit and from two."""
    signals = torch.from_numpy(held).to(machine.device)
    same = copy.deepcopy(here).set_params(device=str(machine.device))
    spent, scores = machine.seconds(lambda: getattr(same, method)(signals), 1 if machine.small else 3)
    start = time.perf_counter()
    expected = getattr(here, method)(held)
    spent_here = time.perf_counter() - start
    gap = np.abs(scores.cpu().numpy() - expected).max()
    labels = here.predict(held)
    shares = [(model.predict(signals).cpu().numpy() == labels).mean() for model in (same, there)]
    note = (
        f"{len(held) / spent_here / 1e6:.2g} M signals/s on the CPU; the model fitted there differs by at most "
        f"{gap:.1e} in {method}, equal labels {shares[0]:.3%}; with the model fitted on the GPU {shares[1]:.2%}"
    )
    return row(name, len(held) / spent / 1e6, "M signals/s", "", None, note)


RUN = {
    "encode": encode_case,
    "long": long_case,
    "million": million_case,
    "pass": pass_case,
    "kdl": kdl_case,
    "paper": paper_case,
    "applications": applications_case,
}


def table(machine: Machine, rows: list[dict]) -> str:
    lines = [
        f"{machine.describe()}. A copy moves {machine.bandwidth() / 1e12:.2f} TB/s, a float32 matrix product "
        f"runs at {machine.arithmetic() / 1e12:.1f} TFLOP/s.",
        "",
        "| case | measured | |",
        "|---|---|---|",
    ]
    lines += [f"| {item['what']} | {item['value']:.3g} {item['unit']} | {item['note']} |" for item in rows]
    return "\n".join(lines)


def targets(rows: list[dict]) -> str:
    """Targets met and missed, for the terminal."""
    judged = [item for item in rows if item["is_met"] is not None]
    return "\n".join(
        f"target {item['goal']}: {'met' if item['is_met'] else 'MISSED'}, {item['what']}" for item in judged
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/gpu"), help="output folder")
    parser.add_argument("--device", default="cuda", help="cuda, or cpu to try the code")
    parser.add_argument("--only", choices=CASES, action="append", help="measure this case only; may be repeated")
    parser.add_argument("--peer", type=Path, help="folder with the sources of orthogonal-matching-pursuit-gpu")
    parser.add_argument("--small", action="store_true", help="small inputs")
    parser.add_argument("--no-tests", action="store_true", help="skip the tests")
    parser.add_argument("--write", action="store_true", help="put the table into docs/gpu.md")
    given = parser.parse_args(arguments)
    if given.device != "cpu" and not torch.cuda.is_available():
        print("benchmarks.gpu: no CUDA GPU found; use --device cpu --small to try the code", file=sys.stderr)
        return 2
    given.out.mkdir(parents=True, exist_ok=True)
    if not given.no_tests:
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            str(ROOT / "tests" / "test_torch.py"),
        ]
        if subprocess.run(command, check=False).returncode:
            print("benchmarks.gpu: the tests failed; nothing was measured", file=sys.stderr)
            return 1
    if given.peer is not None:
        use_peer(given.peer)
    machine = Machine(given.device, given.small)
    rows: list[dict] = []
    for name in given.only or CASES:
        try:
            rows += RUN[name](machine, given.out)
        except MissingDataError as error:
            print(f"benchmarks.gpu: {name} skipped: {error}", file=sys.stderr)
            continue
        print(f"{name} done", file=sys.stderr, flush=True)
    long, rows = [item for item in rows if "cells" in item], [item for item in rows if "cells" not in item]
    parts = {"measured": table(machine, rows) if rows else "", "many non-zeros": long_table(long) if long else ""}
    text = "\n\n".join(filter(None, parts.values()))
    print(text, targets(rows), sep="\n\n")
    (given.out / "gpu.md").write_text(text + "\n")
    (given.out / "gpu.json").write_text(json.dumps(rows + long, indent=1))
    if given.write:
        for name, part in parts.items():
            if part:
                put(PAGE, name, part.splitlines())
    return 0


if __name__ == "__main__":
    sys.exit(main())
