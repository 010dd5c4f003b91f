"""A stream as numbers and arrays for a file, and back."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rkdl._backends.arrays import host
from rkdl._coding.preimages import DecoderSums
from rkdl._learning.atom_replacement import WorstSignals
from rkdl._learning.reduced import Model
from rkdl._learning.running_statistics import RunningStatistics
from rkdl._learning.specification import Specification
from rkdl._learning.statistics import SufficientStatistics
from rkdl._learning.stream import Stream
from rkdl._learning.waiting_batches import WaitingBatch
from rkdl._persistence.shapes import ArrayError, Expected, check_arrays, is_finite_number
from rkdl._persistence.states import check_reduced_state, check_shape
from rkdl._utils.types import FLOATS

# Axes: m features, n atoms, p kernel vectors, s coordinates of the features, w worst signals.
_DECODER = {
    "code_gram": Expected("nn"),
    "cross_products": Expected("nm"),
    "codes": Expected("n"),
    "signals": Expected("m"),
    "n_signals": Expected(""),
}
_STATISTICS = {"energy": Expected(""), "residual_energy": Expected("")}
# Parts of a stream by the names that they are saved with: their types and arrays.
_PARTS: dict[str, tuple[Any, dict[str, Expected]]] = {
    "running": (
        SufficientStatistics,
        {"code_gram": Expected("nn"), "cross_products": Expected("ns"), **_STATISTICS},
    ),
    "linear": (SufficientStatistics, {"code_gram": Expected("pp"), "cross_products": Expected("pm"), **_STATISTICS}),
    "worst": (
        WorstSignals,
        {"n_signals": Expected(""), "residuals": Expected("w", FLOATS), "signals": Expected("wm", FLOATS)},
    ),
    "decoder_sums": (DecoderSums, _DECODER),
}
_FLAGS = ("has_warned", "has_warned_of_scale", "computes_in_float64")
_NUMBERS = ("gamma", "norm", "start_gamma")


class StreamState(NamedTuple):
    """What is saved of a stream: values for the header of a file, and arrays. Those of the model have no dot."""

    numbers: dict[str, Any]
    arrays: dict[str, np.ndarray]


def stream_state(stream: Stream) -> StreamState:
    """Everything that a stream with a model continues from."""
    assert stream.model is not None
    assert stream.running is not None
    running = stream.running
    numbers: dict[str, Any] = {name: getattr(stream, name) for name in (*_FLAGS, *_NUMBERS)}
    numbers |= {"weight": running.weight, "is_discounted": running.is_discounted}
    numbers["chunks"] = [list(batch.chunks) for batch in stream.waiting]
    arrays = {f"waiting.{number}": batch.rows for number, batch in enumerate(stream.waiting)}
    parts = {"running": running.statistics, "linear": running.linear, "worst": running.worst}
    for name, part in {**parts, "decoder_sums": stream.decoder_sums}.items():
        if part is not None:
            arrays |= {
                f"{name}.{key}": np.asarray(host(value), dtype=_dtype(value)) for key, value in part._asdict().items()
            }
    return StreamState(numbers, {**stream.model.state(), **arrays})


def _dtype(value: Any) -> Any:
    """Numbers are saved in float64, arrays as they are."""
    return None if isinstance(value, np.ndarray) and value.ndim else np.float64


def restored_stream(state: StreamState, specification: Specification, sizes: dict[str, int], dtype: np.dtype) -> Stream:
    """The stream of a state; an ArrayError if it is not that of a stream for signals of `dtype`.

    `sizes` are lengths of the axes of the fitted attributes, by letter.
    """
    numbers, arrays = state
    _check_numbers(numbers)
    found = {name for name in _PARTS if any(key.startswith(f"{name}.") for key in arrays)} | {"running"}
    expected = {f"{name}.{key}": wanted for name in found for key, wanted in _PARTS[name][1].items()}
    waiting = [f"waiting.{number}" for number in range(len(numbers["chunks"]))]
    of_parts = {key: array for key, array in arrays.items() if "." in key and key not in waiting}
    check_arrays(of_parts, expected, sizes)
    for name, rows in zip(waiting, numbers["chunks"], strict=True):
        check_arrays(arrays, {name: Expected("hm", FLOATS)}, {"m": sizes["m"], "h": sum(rows)}, has_others=True)
    parts = {
        name: kind(**{key: arrays[f"{name}.{key}"] for key in own})
        for name, (kind, own) in _PARTS.items()
        if name in found
    }
    parts = {name: _with_plain_numbers(part) for name, part in parts.items()}
    model = _model(
        {key: array for key, array in arrays.items() if "." not in key}, numbers, specification, sizes, dtype
    )
    running = RunningStatistics(
        parts["running"], numbers["weight"], parts.get("linear"), parts.get("worst"), numbers["is_discounted"]
    )
    batches = tuple(
        WaitingBatch(arrays[name], tuple(rows)) for name, rows in zip(waiting, numbers["chunks"], strict=True)
    )
    values = {name: numbers[name] for name in (*_FLAGS, *_NUMBERS)}
    return Stream(model, running=running, decoder_sums=parts.get("decoder_sums"), waiting=batches, **values)


def _with_plain_numbers(part: Any) -> Any:
    numbers = {key: float(value) for key, value in part._asdict().items() if np.ndim(value) == 0}
    counts = {
        key: int(value) for key, value in numbers.items() if key == "n_signals" and isinstance(part, WorstSignals)
    }
    return part._replace(**(numbers | counts))


def _model(
    state: dict[str, np.ndarray],
    numbers: dict[str, Any],
    specification: Specification,
    sizes: dict[str, int],
    dtype: np.dtype,
) -> Model:
    check_reduced_state(state, sizes["n"], sizes["m"], {})
    vectors = state.get("kernel_vectors", state.get("frequencies"))
    feature_map = specification.features.fitted_map(sizes["m"], vectors, numbers["gamma"])
    metric = feature_map.metric(dtype)
    check_shape("whitened_atoms", state["whitened_atoms"], (sizes["n"], metric.rank))
    return Model.start(feature_map, metric, state["whitened_atoms"]).with_numbers(state)


def _check_numbers(numbers: dict[str, Any]) -> None:
    is_valid = {
        "weight": is_finite_number(numbers.get("weight")),
        "chunks": isinstance(numbers.get("chunks"), list) and all(_are_rows(rows) for rows in numbers["chunks"]),
        **{name: numbers.get(name) is None or is_finite_number(numbers[name]) for name in _NUMBERS},
        **{name: isinstance(numbers.get(name), bool) for name in (*_FLAGS, "is_discounted")},
    }
    for name, value_is_valid in is_valid.items():
        if not value_is_valid:
            raise ArrayError(f"{name} of the stream is {numbers.get(name)!r}")
    for name in ("gamma", "start_gamma"):
        if numbers[name] is not None and numbers[name] <= 0.0:
            raise ArrayError(f"{name} of the stream is {numbers[name]!r}")


def _are_rows(rows: Any) -> bool:
    return isinstance(rows, list) and len(rows) > 0 and all(type(count) is int and count > 0 for count in rows)
