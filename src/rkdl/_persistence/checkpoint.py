"""Errors of a fit, and checkpoints: its state after an iteration, from which an interrupted fit is resumed."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from rkdl._backends.arrays import host
from rkdl._execution.config import TF32
from rkdl._execution.executor import Executor
from rkdl._features.kernels import Kernel, from_plain, make_kernel, to_plain
from rkdl._features.widths import spread_sample
from rkdl._persistence.files import check_writable, read_file, write_file
from rkdl._persistence.named_arrays import FLAGS, ArrayError, Expected, check_arrays, flattened, part_of
from rkdl._utils.text import shown
from rkdl._utils.types import plain_scalar
from rkdl._utils.warnings import warn

# Parameters that do not affect the result of an iteration.
_FREE = {"n_jobs", "verbose", "sparse_output", "max_iter", "half_life", "fit_inverse_transform", "decoder_alpha"}
_SAMPLE = 16
_HISTORY = {
    **dict.fromkeys(["errors", "update_errors", "totals"], Expected("i", least=0.0)),
    **dict.fromkeys(["start_error", "start_total"], Expected(least=0.0)),
    "is_settled": Expected("", FLAGS),
}
# The best model where it is not the last.
_PARTS = ("history", "state", "best")
_REMEDY = "delete it to start afresh, or give another path as checkpoint."


@dataclass(frozen=True)
class History:
    """Errors of a fit, per iteration; the best model is the one with the smallest total."""

    errors: list[float] = field(default_factory=list)  # of the signals coded with the model after the iteration
    update_errors: list[float] = field(default_factory=list)  # right after the update, with its codes, as in the paper
    totals: list[float] = field(default_factory=list)  # errors with the penalty
    is_settled: bool = False
    start_error: float = np.inf  # of the model before the first iteration
    start_total: float = np.inf

    def __len__(self) -> int:
        return len(self.errors)

    def extended(self, error: float, total: float, update_error: float, is_settled: bool) -> History:
        """The history with one iteration more."""
        errors, totals, updates = [*self.errors, error], [*self.totals, total], [*self.update_errors, update_error]
        return replace(self, errors=errors, totals=totals, update_errors=updates, is_settled=is_settled)

    @property
    def has_improved(self) -> bool:
        """Whether the last iteration gave the best model so far; among equal ones the first counts."""
        return self.totals[-1] < min([self.start_total, *self.totals[:-1]])

    @property
    def has_risen(self) -> bool:
        """Whether the error is larger than it was before the last iteration."""
        return len(self) > 0 and self.totals[-1] > [self.start_total, *self.totals][-2]

    @property
    def returned_errors(self) -> np.ndarray:
        """Errors up to that of the best model, which is returned; of the initial model alone if that was the best."""
        if not self.totals or min(self.totals) >= self.start_total:
            return np.array([self.start_error] if np.isfinite(self.start_error) else [])
        return np.array(self.errors[: int(np.argmin(self.totals)) + 1])


class Checkpoint:
    """The file that a fit writes its state to, and the state that was found in it.

    What must agree for the fit to be resumed is its `description`, from `describe`, and the digest of the signals,
    which the first pass over them finds: see `check_signals`. Without a file, `history` is empty and `state` is None;
    `best_state` is that of the best model where it is not the last.
    """

    def __init__(self, path: str | os.PathLike, description: dict, max_iter: int) -> None:
        self.path = Path(path)
        self.description = json.loads(json.dumps(description))
        self.max_iter = max_iter
        self.history = History()
        self.state: dict[str, np.ndarray] | None = None
        self.best_state: dict[str, np.ndarray] | None = None
        self._name = shown(self.path)
        self._found: dict = {}
        self._has_warned = False
        if os.path.lexists(self.path):
            self._read()
        check_writable(self.path)

    def _read(self) -> None:
        header, arrays = read_file(self.path, "checkpoint", _REMEDY)
        found, history, state, best = header.get("fit"), *(part_of(arrays, name) for name in _PARTS)
        try:
            check_arrays(history, _HISTORY, {})
            if not isinstance(found, dict) or len(history) + len(state) + len(best) != len(arrays):
                raise ArrayError("it is not what a fit writes")
        except ArrayError as error:
            raise self.refused(error) from error
        self._found = found
        self._check(self.description)
        lists = {name: array.tolist() for name, array in history.items()}
        self.history = History(**lists)
        made = len(self.history)
        if made > self.max_iter:
            raise ValueError(
                f"{self._name} is the checkpoint of iteration {made}, and max_iter is {self.max_iter}: {_REMEDY}"
            )
        if bool(best) == self.history.has_improved:
            what = "a best model although the last one is better" if best else "no best model"
            raise self.refused(ArrayError(f"by its errors it holds {what}"))
        self.state, self.best_state = state, best or None

    def check_signals(self, digest: str) -> None:
        """Refuse the checkpoint if it is of other signals than those with this digest; call it before `write`."""
        signals = {"the digest of all numbers in X": digest}
        if self.state is not None:
            self._check(signals)
        self.description |= signals

    def _check(self, description: dict) -> None:
        """Refuse the checkpoint if it was written by a fit of another description."""
        message = "; ".join(
            f"{key} is {shown(self._found.get(key))[:200]} there and {value} here"
            for key, value in description.items()
            if self._found.get(key) != value
        )
        if message:
            raise ValueError(f"{self._name} is the checkpoint of another fit ({message}): {_REMEDY}")

    def refused(self, error: ArrayError) -> ValueError:
        """The error to raise if the state does not fit the problem."""
        return ValueError(f"{self._name} was changed: {shown(error)[:300]}. To fix it, {_REMEDY}")

    def write(
        self, state: dict[str, np.ndarray], history: History, best_state: dict[str, np.ndarray] | None = None
    ) -> None:
        """Write the state after an iteration, and the best model if it is an earlier one.

        If that fails, warn and continue.
        """
        arrays = flattened(dict(zip(_PARTS, (history, state, best_state), strict=True)))
        try:
            write_file(self.path, "checkpoint", {"fit": self.description}, arrays)
        except OSError as error:
            if not self._has_warned:
                warn(
                    f"The checkpoint {self._name} could not be written after iteration {len(history)} "
                    f"({error.strerror or error}): the fit goes on and tries again after the next one; the file still "
                    f"holds what was last written."
                )
            self._has_warned = True
        else:
            self._has_warned = False


def describe(name: str, parameters: dict[str, Any], executor: Executor) -> dict:
    """Everything that determines the result of a fit, apart from the numbers of the signals."""
    signals = executor.signals
    sample = spread_sample(signals, _SAMPLE)
    edges = [start for start, _ in executor.bounds]
    return {
        "estimator": name,
        **{key: _describe(value, sample) for key, value in sorted(parameters.items()) if key not in _FREE},
        "shape of X": list(signals.shape),
        "dtype of X": signals.dtype.name,
        "device of X": str(signals.device),
        "chunks": f"{len(edges)} ({_digest(np.array(edges))})",
        "tf32": TF32.get() and signals.device is not None,
    }


def _describe(value: Any, sample: np.ndarray) -> Any:
    value = plain_scalar(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.random.RandomState):
        state = json.dumps(value.get_state(legacy=False), default=lambda part: part.tolist())
        return f"RandomState ({hashlib.sha256(state.encode()).hexdigest()[:16]})"
    if isinstance(value, Kernel) and not value._has_user_code:
        return repr(from_plain(to_plain(value)))
    if callable(value):
        # By its values: neither its name nor its code identifies the variables it captures.
        if not np.isfinite(sample).all():
            return "a function"
        kernel = make_kernel(value, gamma=1.0, degree=1, coef0=0.0, sample=sample)
        return f"a function with the values {_digest(kernel(sample, sample))}"
    if type(value).__name__ == "device":
        return str(value)
    array = np.asarray(host(value))
    return f"array {array.shape} ({_digest(array)})"


def _digest(array: np.ndarray) -> str:
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]
