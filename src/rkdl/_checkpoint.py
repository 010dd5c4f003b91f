"""Checkpoints: the state of a fit after an iteration, so that the fit survives its process."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from rkdl._arrays import host
from rkdl._files import check_writable, read_file, write_file
from rkdl._kernels import Custom
from rkdl._signals import Walker

# What never changes an iteration's bits.
_FREE = {"n_jobs", "verbose", "sparse_output", "max_iter", "half_life", "fit_inverse_transform", "decoder_alpha"}
_SAMPLE = 16


class Checkpoint:
    """Where a fit writes its state, and whether there is one to go on from.

    Parameters
    ----------
    path : path
        The file; its folder exists.
    description : dict
        What must agree for a state to be taken over, from `describe`.
    max_iter : int
        Most iterations of the fit.

    Attributes
    ----------
    errors : list of float
        Errors of the iterations made; empty without a state.
    is_settled : bool
        Whether the fit had ended by itself.
    state : dict of str to ndarray or None
        State of the learning problem.
    """

    def __init__(self, path: str | os.PathLike, description: dict, max_iter: int) -> None:
        self.path = Path(path)
        self.description = json.loads(json.dumps(description))
        self.errors: list[float] = []
        self.is_settled = False
        self.state: dict[str, np.ndarray] | None = None
        if self.path.exists():
            self._read(max_iter)
        check_writable(self.path)

    def _read(self, max_iter: int) -> None:
        remedy = "delete it to begin anew, or give another path as checkpoint."
        header, state = read_file(self.path, "checkpoint", remedy)
        missing = {"fit", "errors", "is_settled"} - set(header)
        if missing:
            raise ValueError(f"{self.path} was changed: its header lacks {', '.join(sorted(missing))}. {remedy}")
        found = header["fit"]
        differing = [key for key in self.description if found.get(key) != self.description[key]]
        if differing:
            told = "; ".join(f"{key} is {found.get(key)} there and {self.description[key]} here" for key in differing)
            raise ValueError(f"{self.path} is the checkpoint of another fit ({told}): {remedy}")
        if len(header["errors"]) > max_iter:
            made = len(header["errors"])
            raise ValueError(f"{self.path} is the checkpoint of iteration {made}, and max_iter is {max_iter}: {remedy}")
        self.errors, self.is_settled, self.state = header["errors"], header["is_settled"], state

    def write(self, state: dict[str, np.ndarray], errors: list[float], is_settled: bool) -> None:
        """Put the state after an iteration in place of the one before."""
        header = {"fit": self.description, "errors": errors, "is_settled": is_settled}
        write_file(self.path, "checkpoint", header, state)


def describe(name: str, parameters: dict[str, Any], walker: Walker) -> dict:
    """What decides the bits of a fit: estimator, parameters, the signals' shape, dtype and chunks, a few signals."""
    signals = walker.signals
    rows = np.unique(np.linspace(0, signals.shape[0] - 1, min(_SAMPLE, signals.shape[0])).astype(np.intp))
    sample = signals.take(rows)
    edges = [start for start, _ in walker.bounds]
    return {
        "estimator": name,
        **{key: _describe(value, sample) for key, value in sorted(parameters.items()) if key not in _FREE},
        "shape of X": list(signals.shape),
        "dtype of X": signals.dtype.name,
        "chunks": f"{len(edges)} ({_digest(np.array(edges))})",
        "some signals": _digest(sample),
    }


def _describe(value: Any, sample: np.ndarray) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.random.RandomState):
        # The same one has moved on since the fit that is to be resumed began.
        return "RandomState"
    if callable(value):
        # By what it does: neither its name nor its code tells what it holds.
        if not np.isfinite(sample).all():
            return "a function"
        return f"a function with the values {_digest(Custom.wrap(value, sample)(sample, sample))}"
    if type(value).__name__ == "device":
        return str(value)
    array = np.asarray(host(value))
    return f"array {array.shape} ({_digest(array)})"


def _digest(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]
