"""Checkpoints: the state of a fit after an iteration, so that the fit survives its process."""

from __future__ import annotations

import hashlib
import json
import math
import os
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from rkdl._arrays import host
from rkdl._files import BusyError, check_writable, locked, read_file, write_file
from rkdl._kernels import Custom
from rkdl._shapes import ArrayError
from rkdl._signals import Walker
from rkdl._text import shown

# What never changes an iteration's bits.
_FREE = {"n_jobs", "verbose", "sparse_output", "max_iter", "half_life", "fit_inverse_transform", "decoder_alpha"}
_SAMPLE = 16
_REMEDY = "delete it to begin anew, or give another path as checkpoint."


class Checkpoint:
    """Where a fit writes its state, and whether there is one to go on from.

    A context: while it lasts no other fit can take the same path.

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
        self.max_iter = max_iter
        self.errors: list[float] = []
        self.is_settled = False
        self.state: dict[str, np.ndarray] | None = None
        self._name = shown(self.path)
        self._stack = ExitStack()
        self._has_warned = False

    def __enter__(self) -> Checkpoint:
        try:
            self._stack.enter_context(locked(self.path))
        except BusyError:
            raise ValueError(
                f"{self._name} is the checkpoint of a fit that runs now: wait for its end, or give another path as "
                f"checkpoint."
            ) from None
        try:
            if os.path.lexists(self.path):
                self._read()
            check_writable(self.path)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def _read(self) -> None:
        header, state = read_file(self.path, "checkpoint", _REMEDY)
        found: Any = header.get("fit")
        errors: Any = header.get("errors")
        is_settled: Any = header.get("is_settled")
        if not isinstance(found, dict) or not isinstance(is_settled, bool) or not _are_errors(errors):
            raise ValueError(f"{self._name} was changed: its header is not that of a checkpoint. To mend it, {_REMEDY}")
        differing = [key for key in self.description if found.get(key) != self.description[key]]
        if differing:
            told = "; ".join(
                f"{key} is {shown(found.get(key))[:200]} there and {self.description[key]} here" for key in differing
            )
            raise ValueError(f"{self._name} is the checkpoint of another fit ({told}): {_REMEDY}")
        if len(errors) > self.max_iter:
            raise ValueError(
                f"{self._name} is the checkpoint of iteration {len(errors)}, and max_iter is {self.max_iter}: {_REMEDY}"
            )
        self.errors, self.is_settled, self.state = errors, is_settled, state

    def refused(self, error: ArrayError) -> ValueError:
        """What to raise where the state is not that of the fit."""
        return ValueError(f"{self._name} was changed: {error}. To mend it, {_REMEDY}")

    def write(self, state: dict[str, np.ndarray], errors: list[float], is_settled: bool) -> None:
        """Put the state after an iteration in place of the one before; where that fails, warn, and the fit goes on."""
        header = {"fit": self.description, "errors": errors, "is_settled": is_settled}
        try:
            write_file(self.path, "checkpoint", header, state)
        except OSError as error:
            if not self._has_warned:
                warnings.warn(
                    f"The checkpoint {self._name} could not be written after iteration {len(errors)} "
                    f"({error.strerror or error}): the fit goes on and tries again after the next one, and what an "
                    f"earlier one wrote is still there.",
                    UserWarning,
                    stacklevel=6,
                )
            self._has_warned = True
        else:
            self._has_warned = False


def _are_errors(errors: Any) -> bool:
    """Whether these are the errors of one iteration or more."""
    if not isinstance(errors, list) or not errors:
        return False
    return all(type(error) in (int, float) and math.isfinite(error) and error >= 0.0 for error in errors)


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
