"""Peak memory of a task, measured in a fresh process by `benchmarks.worker`."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from benchmarks.environment import ROOT, child_environment
from benchmarks.tasks import Inputs

TIMEOUT = 1200

# Signals of the small run that loads and compiles code before memory is measured.
N_WARM = 64


class MemoryLab:
    """A temporary folder with the inputs of a case, and workers that read them.

    Parameters
    ----------
    enabled : bool
        Whether to measure at all; tiny runs measure only some cases.
    """

    def __init__(self, enabled: bool = True) -> None:
        self.enabled = enabled
        self.problems: list[str] = []
        self._folder = tempfile.TemporaryDirectory(prefix="rkdl-bench-")
        self._saved: dict[int, tuple[str, np.ndarray]] = {}
        self._known: dict[str, float | None] = {}

    def __enter__(self) -> MemoryLab:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._folder.cleanup()

    def _file(self, array: np.ndarray) -> str:
        # Hold a reference, so that the id is not reused.
        if id(array) not in self._saved:
            name = f"{len(self._saved)}.npy"
            np.save(Path(self._folder.name, name), array)
            self._saved[id(array)] = (name, array)
        return self._saved[id(array)][0]

    def peak(self, task: str, library: str, inputs: Inputs, *, runs: int = 1, **params: Any) -> float | None:
        """MB above the loaded inputs, or None if not measured; failures are added to `problems`.

        Median over `runs`; equal requests are measured once.
        """
        if not self.enabled:
            return None
        order = {
            "task": task,
            "library": library,
            "params": params,
            "arrays": {name: self._file(array) for name, array in inputs.items()},
            "n_warm": min(N_WARM, len(inputs["X"])),
        }
        text = json.dumps(order, sort_keys=True)
        if text not in self._known:
            found = [self._run(text, f"{task} by {library}") for _ in range(runs)]
            self._known[text] = None if None in found else statistics.median(found)  # type: ignore[type-var]
        return self._known[text]

    def _run(self, order: str, name: str) -> float | None:
        folder = Path(self._folder.name)
        (folder / "order.json").write_text(order)
        command = [sys.executable, "-m", "benchmarks.worker", str(folder)]
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=child_environment(), capture_output=True, text=True, timeout=TIMEOUT, check=True
            )
            return float(json.loads(done.stdout.splitlines()[-1])["above_inputs_mb"])
        except subprocess.CalledProcessError as error:
            reason = (error.stderr.strip().splitlines() or [str(error)])[-1]
        except (subprocess.TimeoutExpired, ValueError, IndexError, KeyError) as error:
            reason = f"{type(error).__name__}: {error}"
        self.problems.append(f"{name}: {reason}")
        print(f"Memory was not measured, {self.problems[-1]}", file=sys.stderr)
        return None
