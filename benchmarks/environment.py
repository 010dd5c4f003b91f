"""Limit every library to two cores: thread counts and CPU affinity, set before any numerical library is imported."""

from __future__ import annotations

import os
from pathlib import Path

THREADS = 2
ROOT = Path(__file__).resolve().parent.parent

_COUNTS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "NUMBA_NUM_THREADS")


def limit_threads() -> None:
    """Limit this process and its children to two threads and, where the system allows, to two cores."""
    for name in _COUNTS:
        os.environ[name] = str(THREADS)
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        if len(cores) > THREADS:
            os.sched_setaffinity(0, cores[:THREADS])


def child_environment(**changes: str) -> dict[str, str]:
    """Environment variables for a subprocess that imports this package; an empty value removes a variable."""
    environment = dict(os.environ)
    paths = [str(ROOT), *filter(None, [environment.get("PYTHONPATH")])]
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    environment.update(changes)
    return {name: value for name, value in environment.items() if value}
