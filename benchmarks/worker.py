"""``python -m benchmarks.worker FOLDER``: run one task of one library in a fresh process and print its peak memory."""

from __future__ import annotations

import contextlib
import gc
import json
import resource
import sys
import warnings
from pathlib import Path

from benchmarks.environment import limit_threads


def main(folder: Path) -> None:
    """Load the inputs, compile on a few signals, reset the peak, run, and print the new peak."""
    limit_threads()
    import numpy as np

    from benchmarks.tasks import TASKS, cut

    warnings.simplefilter("ignore")
    order = json.loads((folder / "order.json").read_text())
    inputs = {name: np.load(folder / file) for name, file in order["arrays"].items()}
    task, library, params = TASKS[order["task"]], order["library"], order["params"]
    task(library, cut(inputs, order["n_warm"]), **params)
    gc.collect()
    reset_peak()
    before = resident_mb()
    result = task(library, inputs, **params)
    peak = peak_mb()
    del result
    print(json.dumps({"above_inputs_mb": max(0.0, peak - before), "process_mb": peak}))


def reset_peak() -> None:
    """Reset the high-water mark to current usage (Linux only)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def resident_mb() -> float:
    """Current resident memory; without /proc, the peak so far."""
    return _status_mb("VmRSS") or peak_mb()


def peak_mb() -> float:
    """The high-water mark of resident memory.

    ru_maxrss is unusable on Linux: a child process inherits its parent's value.
    """
    unit = 1.0 if sys.platform == "darwin" else 1024.0
    return _status_mb("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


def _status_mb(field: str) -> float | None:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith(field + ":")), None)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
