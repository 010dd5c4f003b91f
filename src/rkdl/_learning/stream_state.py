"""A stream between two batches, and what is saved of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from inspect import signature
from typing import Any, NamedTuple

import numpy as np

from rkdl._backends.arrays import host
from rkdl._coding.preimages import DecoderSums
from rkdl._execution.executor import Executor
from rkdl._learning.atom_replacement import WorstSignals
from rkdl._learning.buffered_batches import BufferedBatch
from rkdl._learning.reduced import Model, ReducedProblem
from rkdl._learning.reservoir import Reservoir
from rkdl._learning.running_statistics import RunningStatistics
from rkdl._learning.statistics import SufficientStatistics
from rkdl._learning.stream_problem import StreamProblem
from rkdl._persistence.shapes import ArrayError, Expected, check_arrays, is_finite_number
from rkdl._utils.types import FLOATS

# Axes: m features, n atoms, p kernel vectors, s coordinates of the features, w worst signals, y sampled signals.
_DECODER = {
    "code_gram": Expected("nn"),
    "cross_products": Expected("nm"),
    "codes": Expected("n"),
    "signals": Expected("m"),
    "n_signals": Expected(""),
}
# Parts of a stream by the names that they are saved with: their types and arrays; other fields are numbers.
_PARTS: dict[str, tuple[type, dict[str, Expected]]] = {
    "running": (SufficientStatistics, {"code_gram": Expected("nn"), "cross_products": Expected("ns")}),
    "linear": (SufficientStatistics, {"code_gram": Expected("pp"), "cross_products": Expected("pm")}),
    "worst": (WorstSignals, {"residuals": Expected("w", FLOATS), "signals": Expected("wm", FLOATS)}),
    "decoder_sums": (DecoderSums, _DECODER),
    "buffered_sums": (DecoderSums, _DECODER),
    "seen": (Reservoir, {"rows": Expected("ym", FLOATS), "keys": Expected("y")}),
}
_FLAGS = ("is_provisional", "has_warned", "update_has_warned")
_PLAIN = ("gamma", "radius", "settings", *_FLAGS)


@dataclass(frozen=True)
class Stream:
    """A stream between two batches."""

    model: Model
    # Of all batches but the buffered ones.
    running: RunningStatistics
    gamma: float | None
    # Parameters that its statistics depend on.
    settings: dict
    # Norm that the kernel vectors are held to; None if it is free.
    radius: float | None = None
    # Sums that the decoder is learned from, where one is.
    decoder_sums: DecoderSums | None = None
    # Batches that wait for an update, and the decoder's sums with theirs, coded with the current atoms.
    buffered: tuple[BufferedBatch, ...] = ()
    buffered_sums: DecoderSums | None = None
    # Whether the kernel vectors and the first atoms are to be chosen again, from all signals of the first update.
    is_provisional: bool = False
    # Whether the user was warned that not all batches could be buffered, and of the kernel-vector update.
    has_warned: bool = False
    update_has_warned: bool = False
    # A sample of the signals seen, where the start may have to be chosen anew.
    seen: Reservoir | None = None

    @property
    def n_distinct(self) -> int | None:
        """Distinct signals that its start was chosen from; None if it will not be chosen anew."""
        return None if self.seen is None else self.seen.n_distinct

    def after(self, problem: StreamProblem, **changes: Any) -> Stream:
        """The stream with what a batch has made of it; everything is in NumPy, so that it may be saved."""
        own = problem.problem
        # Of any executor: the base class brings everything to the host.
        model, running = Executor.to_backend(own.executor, (own.model, problem.running))
        has_warned = own.vector_update is not None and own.vector_update.has_warned
        return replace(self, model=model, running=running, update_has_warned=has_warned, **changes)

    def state(self) -> SavedStream:
        """Everything that a stream continues from: numbers, and arrays."""
        running = self.running
        numbers: dict[str, Any] = {name: getattr(self, name) for name in _PLAIN}
        numbers |= {"weight": running.weight, "is_discounted": running.is_discounted}
        numbers["buffered_chunks"] = [list(batch.chunks) for batch in self.buffered]
        arrays: dict[str, Any] = {f"buffered.{number}": batch.rows for number, batch in enumerate(self.buffered)}
        sums = {"decoder_sums": self.decoder_sums, "buffered_sums": self.buffered_sums}
        parts = {"running": running.statistics, "linear": running.linear, "worst": running.worst, **sums}
        for name, part in {**parts, "seen": self.seen}.items():
            if part is not None:
                own = _PARTS[name][1]
                fields: dict[str, Any] = part._asdict() if isinstance(part, tuple) else vars(part)  # type: ignore[union-attr]
                numbers[name] = {key: value for key, value in fields.items() if key not in own}
                arrays |= {f"{name}.{key}": np.asarray(host(fields[key])) for key in own}
        return SavedStream(numbers, {**self.model.state(), **arrays})


class SavedStream(NamedTuple):
    """What is saved of a stream: values for the header of a file, and arrays. Those of the model have no dot."""

    numbers: dict[str, Any]
    arrays: dict[str, np.ndarray]

    @property
    def settings(self) -> dict:
        """As `Stream.settings`."""
        return self.numbers["settings"]

    @property
    def n_distinct(self) -> int | None:
        """As `Stream.n_distinct`."""
        return self.numbers["seen"]["n_distinct"] if "seen" in self.numbers else None

    def state(self) -> SavedStream:
        """What is saved of it again."""
        return self

    def restored(self, problem: ReducedProblem) -> Stream:
        """The stream; `problem` takes over the model."""
        numbers, arrays = self
        problem.restore({name: array for name, array in arrays.items() if "." not in name})
        parts = {
            name: kind(**numbers[name], **{key: arrays[f"{name}.{key}"] for key in own})
            for name, (kind, own) in _PARTS.items()
            if name in numbers
        }
        model = Executor.to_backend(problem.executor, problem.model)
        statistics, linear, worst = parts.pop("running"), parts.pop("linear", None), parts.pop("worst", None)
        running = RunningStatistics(statistics, numbers["weight"], linear, worst, numbers["is_discounted"])
        chunks = enumerate(numbers["buffered_chunks"])
        buffered = tuple(BufferedBatch(arrays[f"buffered.{number}"], tuple(rows)) for number, rows in chunks)
        return Stream(model, running, buffered=buffered, **parts, **{name: numbers[name] for name in _PLAIN})

    def check(self, sizes: dict[str, int]) -> None:
        """Raise an ArrayError unless a stream can be continued from this; the model is checked when it is restored.

        `sizes` are lengths of the axes of the fitted attributes, by letter.
        """
        numbers, arrays = self
        _check_numbers(numbers)
        expected: dict[str, Expected] = {}
        for name, (kind, own) in _PARTS.items():
            if name in numbers or name == "running":
                _check_part(name, numbers.get(name), set(signature(kind).parameters) - set(own))
                expected |= {f"{name}.{key}": wanted for key, wanted in own.items()}
        buffered = [f"buffered.{number}" for number in range(len(numbers["buffered_chunks"]))]
        check_arrays({key: arrays[key] for key in arrays if "." in key and key not in buffered}, expected, sizes)
        for name, rows in zip(buffered, numbers["buffered_chunks"], strict=True):
            batch = Expected("hm", FLOATS)
            check_arrays(arrays, {name: batch}, {"m": sizes["m"], "h": sum(rows)}, has_others=True)


def _check_numbers(numbers: dict[str, Any]) -> None:
    is_valid = {
        "weight": is_finite_number(numbers.get("weight")),
        "settings": isinstance(numbers.get("settings"), dict),
        "buffered_chunks": isinstance(numbers.get("buffered_chunks"), list)
        and all(_are_rows(rows) for rows in numbers["buffered_chunks"]),
        **{name: numbers.get(name) is None or is_finite_number(numbers[name]) for name in ("gamma", "radius")},
        **{name: isinstance(numbers.get(name), bool) for name in (*_FLAGS, "is_discounted")},
    }
    for name, value_is_valid in is_valid.items():
        if not value_is_valid:
            raise ArrayError(f"{name} of the stream is {numbers.get(name)!r}")


def _check_part(name: str, found: Any, fields: set[str]) -> None:
    """Raise an ArrayError unless the numbers of a part are all there, and finite; counts are integers."""
    if not isinstance(found, dict) or set(found) != fields:
        raise ArrayError(f"the numbers of {name!r} in the stream are not all there")
    for field, value in found.items():
        is_count = type(value) is int and value >= 0
        if not is_finite_number(value) or (field.startswith("n_") and not is_count):
            raise ArrayError(f"{field} of {name!r} in the stream is {value!r}")
    if found.get("gamma", 1.0) <= 0.0:
        raise ArrayError(f"gamma of {name!r} in the stream is {found['gamma']!r}")


def _are_rows(rows: Any) -> bool:
    return isinstance(rows, list) and len(rows) > 0 and all(type(count) is int and count > 0 for count in rows)
