"""The machine: description, installed versions, and measured limits of two cores."""

from __future__ import annotations

import os
import platform
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info

from benchmarks.environment import THREADS

_PACKAGES = ("rkdl", "numpy", "scipy", "scikit-learn", "numba", "llvmlite", "spams-bin", "dictlearn", "threadpoolctl")


def versions() -> dict[str, str]:
    """Versions of Python and the relevant packages; absent ones are left out."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def describe() -> dict[str, Any]:
    """Processor, cores, load, BLAS libraries."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    libraries = [
        {key: info.get(key) for key in ("internal_api", "version", "num_threads", "architecture", "prefix")}
        for info in threadpool_info()
    ]
    return {
        "processor": _processor(),
        "system": platform.platform(),
        "cores": cores,
        "threads": THREADS,
        "load_1min": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "libraries": libraries,
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    for line in cpuinfo.read_text().splitlines() if cpuinfo.exists() else ():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


_best: dict[str, float] = {}


def measure_limits(tiny: bool = False) -> dict[str, float]:
    """Measure the limits of two cores again; return the best measured in this process.

    A single measurement on a busy machine would overstate every share of a limit.
    """
    size, megabytes = (256, 8) if tiny else (2048, 256)
    measured = {
        "sgemm_gflops": gemm_gflops("float32", size),
        "dgemm_gflops": gemm_gflops("float64", size),
        "copy_gbytes_per_s": copy_gbytes(megabytes),
    }
    for name, value in measured.items():
        _best[name] = max(value, _best.get(name, 0.0))
    return dict(_best)


def limits(tiny: bool = False) -> dict[str, float]:
    """The limits measured so far, measuring them if there are none."""
    return dict(_best) if _best else measure_limits(tiny)


def gemm_gflops(dtype: str, size: int) -> float:
    """GFLOP/s of a large matrix product on two BLAS threads, best of five: the arithmetic limit."""
    rng = np.random.default_rng(0)
    left = rng.standard_normal((size, size)).astype(dtype)
    right = rng.standard_normal((size, size)).astype(dtype)
    out = left @ right
    best = min(_seconds(lambda: np.matmul(left, right, out=out)) for _ in range(5))
    return 2.0 * size**3 / best / 1e9


def copy_gbytes(megabytes: int) -> float:
    """GB/s read and written by copying large arrays on two threads, best of five: the memory limit."""
    source = np.ones(megabytes * 131072)
    target = np.empty_like(source)
    target[:] = 0.0
    parts = [slice(len(source) * i // THREADS, len(source) * (i + 1) // THREADS) for i in range(THREADS)]
    with ThreadPoolExecutor(THREADS) as pool:

        def copy() -> None:
            list(pool.map(lambda part: np.copyto(target[part], source[part]), parts))

        best = min(_seconds(copy) for _ in range(5))
    return 2.0 * source.nbytes / best / 1e9


def _seconds(call: Any) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
