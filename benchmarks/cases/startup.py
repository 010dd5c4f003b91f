"""Start-up in fresh processes: imports, the first fit with cold and warm caches, read-only folders."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.environment import ROOT, child_environment
from benchmarks.rows import FAILED, YES_NO, Figure
from benchmarks.settings import Settings

IMPORT_BOUND, WARM_BOUND, COLD_BOUND = 1.3, 1.0, 10.0
METHODS = ("DL", "KDL", "RKDL", "ORKDL")

_IMPORT = """
import time
start = time.perf_counter()
{statement}
print(time.perf_counter() - start)
"""

_FITS = """
import json, time
import numpy as np
from rkdl import {method}
signals = np.random.default_rng(0).standard_normal((1000, 64)).astype(np.float32)
seconds = []
for _ in range(3):
    start = time.perf_counter()
    {method}(10, max_iter=2, random_state=0).fit(signals)
    seconds.append(time.perf_counter() - start)
print(json.dumps(seconds))
"""

_ENCODE = """
import numpy as np
import rkdl
signals = np.random.default_rng(0).standard_normal((20, 6)).astype(np.float32)
codes = rkdl.sparse_encode(signals, signals[:5], n_nonzero_coefs=2)
assert codes.shape == (20, 5)
print(rkdl.__file__)
"""


def run(settings: Settings) -> Iterator[Figure]:
    """All start-up figures; a tiny run covers one method and compiles with little optimisation."""
    yield from _imports(settings)
    # Without any optimisation Numba caches little.
    quick = {"NUMBA_OPT": "1"} if settings.tiny else {}
    for method in METHODS[:1] if settings.tiny else METHODS:
        yield from _first_fits(method, settings, quick)
    for name, home_is_writable in (("package folder is", True), ("package folder and home are", False)):
        yield _read_only(name, home_is_writable, quick, settings)


def _python(script: str, folder: str | Path = ROOT, **changes: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        env=child_environment(**changes),
        capture_output=True,
        text=True,
        timeout=600,
    )


def _last_line(done: subprocess.CompletedProcess) -> Any:
    if done.returncode:
        raise RuntimeError((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
    return json.loads(done.stdout.splitlines()[-1])


def _imports(settings: Settings) -> Iterator[Figure]:
    """Import times of the package, an estimator and the peer, interleaved, each in its own process."""
    peer = "import sklearn.decomposition"
    statements = ("import rkdl", "from rkdl import ORKDL")
    seconds: dict[str, list[float]] = {statement: [] for statement in (peer, *statements)}
    failure = ""
    try:
        for _ in range(settings.repeat):
            for statement, found in seconds.items():
                found.append(_last_line(_python(_IMPORT.format(statement=statement))))
    except RuntimeError as error:
        failure = str(error)
    for statement in statements:
        figure = Figure("startup", f"{statement} relative to {peer}", unit="times", bound=settings.goal(IMPORT_BOUND))
        if failure:
            figure.status, figure.reason = FAILED, failure
        else:
            ours, theirs = min(seconds[statement]), min(seconds[peer])
            figure.value = ours / theirs
            figure.note = f"{ours * 1e3:.0f} ms and {theirs * 1e3:.0f} ms"
            figure.series = [
                {"statement": name, "seconds": value} for name in (statement, peer) for value in seconds[name]
            ]
        yield figure


def _first_fits(method: str, settings: Settings, environment: dict[str, str]) -> Iterator[Figure]:
    """Extra time of a process's first fit over its best later one: with a cold cache, then a warm one."""
    script = _FITS.format(method=method)
    with tempfile.TemporaryDirectory(prefix="rkdl-cache-") as folder:
        for caches, bound, repeat in (("cold", COLD_BOUND, 1), ("warm", WARM_BOUND, settings.repeat)):
            what = f"first {method} fit minus a later one in the same process, {caches} cache"
            figure = Figure("startup", what, unit="s", bound=settings.goal(bound))
            try:
                fits = [_last_line(_python(script, NUMBA_CACHE_DIR=folder, **environment)) for _ in range(repeat)]
            except RuntimeError as error:
                figure.status, figure.reason = FAILED, str(error)
            else:
                figure.value, first, later = min((first - min(later), first, min(later)) for first, *later in fits)
                figure.note = f"first {first:.3g} s, later {later:.3g} s"
                figure.series = [{"seconds": seconds} for seconds in fits]
            yield figure


def _read_only(name: str, home_is_writable: bool, environment: dict[str, str], settings: Settings) -> Figure:
    """Whether a copy of the package codes signals where its folder cannot hold a cache.

    A file in place of ``__pycache__`` blocks the folder for every user, root included.
    """
    import rkdl

    figure = Figure("startup", f"works where the {name} read-only", unit=YES_NO, bound=1.0, sense="at least")
    with tempfile.TemporaryDirectory(prefix="rkdl-read-only-") as folder:
        copy = Path(folder, "package", "rkdl")
        shutil.copytree(Path(rkdl.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
        for place in [copy, *(path for path in copy.rglob("*") if path.is_dir())]:
            (place / "__pycache__").touch()
        home = Path(folder, "home")
        home.mkdir()
        changes = {
            **environment,
            "PYTHONPATH": str(copy.parent),
            "NUMBA_CACHE_DIR": "",
            "XDG_CACHE_HOME": "",
            "HOME": str(home) if home_is_writable else "/dev/null",
        }
        done = _python(_ENCODE, folder, **changes)
        if done.returncode == 0 and Path(done.stdout.strip()).parent != copy:
            figure.status, figure.reason = FAILED, f"another copy of rkdl was imported: {done.stdout.strip()}"
            return figure
        figure.value = float(done.returncode == 0)
        if done.returncode:
            figure.note = (done.stderr.strip().splitlines() or ["no message"])[-1]
        else:
            cached = sorted(str(path.relative_to(home).parent) for path in home.rglob("*.nbi"))
            figure.note = f"the cache went to ~/{cached[0]}" if cached else "no cache was written to the home folder"
    return figure
