"""``python -m benchmarks.worker FOLDER``: one library, one task, once, in a fresh process; prints its peak memory."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import sys
import warnings
from pathlib import Path

from benchmarks.environment import hold_threads


def main(folder: Path) -> None:
    """Load the inputs, compile on a few signals, forget the peak so far, run, and print the new peak."""
    hold_threads()
    import numpy as np

    from benchmarks.tasks import TASKS, cut

    warnings.simplefilter("ignore")
    order = json.loads((folder / "order.json").read_text())
    inputs = {name: np.load(folder / file) for name, file in order["arrays"].items()}
    task, library, params = TASKS[order["task"]], order["library"], order["params"]
    task(library, cut(inputs, order["n_warm"]), **params)
    gc.collect()
    forget_peak()
    before = resident_mb()
    result = task(library, inputs, **params)
    peak = peak_mb()
    del result
    print(json.dumps({"above_inputs_mb": max(0.0, peak - before), "process_mb": peak}))


def forget_peak() -> None:
    """Reset the high-water mark to the present, where the system can (Linux)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def resident_mb() -> float:
    """Resident memory now; without /proc the peak so far."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return peak_mb()
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def peak_mb() -> float:
    """The high-water mark of resident memory."""
    unit = 1.0 if sys.platform == "darwin" else 1024.0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6


if __name__ == "__main__":
    main(Path(sys.argv[1]))
