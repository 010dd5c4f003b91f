"""Checks of the saved states of learning problems and streams."""

from __future__ import annotations

from typing import Any

import numpy as np

from rkdl._persistence.shapes import DOUBLE, INTEGERS, ArrayError, Expected, check_arrays, is_finite_number
from rkdl._utils.types import FLOATS

# Axes: N signals, m features, n atoms, p kernel vectors, q frequencies, r coordinates of a whitened atom, s size of the
# feature map's output, y signals in a stream's reservoir.
_OBJECTIVES = ("objective", "update_objective")
_COUNTS = ("n_revived", "n_empty")
_PROGRESS = {
    **{name: Expected("") for name in _OBJECTIVES},
    **{name: Expected("", INTEGERS) for name in _COUNTS},
}
_FULL = {**_PROGRESS, "atoms": Expected("nN"), "correlations": Expected("Nn"), "gram": Expected("nn")}
_CURVATURE = {"shifts": Expected("kpm"), "changes": Expected("kpm"), "curvatures": Expected("k")}
_MOVED = {"radius": Expected("", is_optional=True), "rate": Expected("", is_optional=True)}
_STREAM = {
    "running.code_gram": Expected("nn"),
    "running.cross_products": Expected("ns"),
    "worst.residuals": Expected("w", FLOATS, is_optional=True),
    "worst.signals": Expected("wm", FLOATS, is_optional=True),
    "linear.code_gram": Expected("pp", is_optional=True),
    "linear.cross_products": Expected("pm", is_optional=True),
    "seen.rows": Expected("ym", FLOATS, is_optional=True),
    "seen.keys": Expected("y", is_optional=True),
}
_DECODER = {"products": "nn", "projections": "nm", "codes": "n", "signals": "m", "n_signals": ""}
_SEEN_COUNTS, _SEEN_NUMBERS = ("n_seen", "n_distinct", "n_checked"), ("age", "gamma")
_RUNNING_NUMBERS = ("energy", "weight", "residual_energy", "n_waiting", "linear_energy")


def check_full_state(state: dict[str, np.ndarray], n_atoms: int, n_signals: int) -> None:
    """Raise an ArrayError unless this is a state of KDL on `n_signals` signals."""
    check_arrays(state, _FULL, {"n": n_atoms, "N": n_signals})
    _check_counts(state)


def check_reduced_state(state: dict[str, np.ndarray], n_atoms: int, n_features: int, *, is_moved: bool) -> None:
    """Raise an ArrayError unless the arrays of a state are consistent.

    Parameters
    ----------
    state : dict of str to ndarray
        The state of a problem on features.
    n_atoms, n_features : int
        Sizes of the fit.
    is_moved : bool
        Whether kernel vectors are updated, so that the state includes L-BFGS's curvature pairs.
    """
    expected = {**_PROGRESS, "penalty": Expected(""), "whitened_atoms": Expected("nr")}
    for name in _OBJECTIVES:
        if name in state and np.array_equal(state[name], np.inf):
            # A stream before its first update.
            expected[name] = Expected("", is_finite=False)
    for name, wanted in (("kernel_vectors", Expected("pm")), ("frequencies", Expected("qm", FLOATS))):
        if name in state:
            expected[name] = wanted
    if is_moved:
        expected |= _MOVED
        if any(name in state for name in _CURVATURE):
            expected |= _CURVATURE
    check_arrays(state, expected, {"n": n_atoms, "m": n_features})
    _check_counts(state)


def _check_counts(state: dict[str, np.ndarray]) -> None:
    for name in _COUNTS:
        if state[name] < 0:
            raise ArrayError(f"{name} is {state[name]}, expected a count")


def check_kernel_vectors(state: dict[str, np.ndarray], n_features: int) -> np.ndarray:
    """The kernel vectors of a state: at least one, of `n_features` features."""
    found = check_arrays(state, {"kernel_vectors": Expected("pm")}, {"m": n_features}, has_others=True)
    if found["p"] == 0:
        raise ArrayError("kernel_vectors is empty")
    return state["kernel_vectors"]


def check_shape(name: str, array: Any, shape: tuple[int, ...]) -> None:
    """Raise an ArrayError unless an array has this shape."""
    if tuple(array.shape) != shape:
        raise ArrayError(f"{name} has shape {tuple(array.shape)}, expected {shape}")


def check_stream(numbers: dict[str, Any], arrays: dict[str, np.ndarray], sizes: dict[str, int]) -> None:
    """Raise an ArrayError unless a stream can be continued from this state.

    Parameters
    ----------
    numbers, arrays : dict
        What `Stream.state` returned. Arrays of the learning problem itself are checked when it is restored.
    sizes : dict of str to int
        Lengths of the axes of the fitted attributes, by letter.
    """
    _check_stream_numbers(numbers)
    expected = dict(_STREAM)
    for kind in ("decoder", "buffered_decoder"):
        if f"{kind}.products" in arrays:
            expected |= {f"{kind}.{name}": Expected(shape, DOUBLE) for name, shape in _DECODER.items()}
    buffered = [f"buffered.{number}" for number in range(len(numbers["buffered_chunks"]))]
    own = {name: array for name, array in arrays.items() if "." in name and name not in buffered}
    check_arrays(own, expected, sizes)
    for name, rows in zip(buffered, numbers["buffered_chunks"], strict=True):
        batch = Expected("hm", FLOATS)
        check_arrays(arrays, {name: batch}, {"m": sizes["m"], "h": sum(rows)}, has_others=True)
    for first, second in (("worst.residuals", "worst.signals"), ("linear.code_gram", "linear.cross_products")):
        if (first in arrays) != (second in arrays):
            raise ArrayError(f"{first} and {second} are not both there")
    if ("linear.code_gram" in arrays) != ("linear_energy" in numbers["running"]):
        raise ArrayError("linear.code_gram and linear_energy are not both there")
    if not ("seen.rows" in arrays) == ("seen.keys" in arrays) == ("seen" in numbers):
        raise ArrayError("the signals that the stream remembers are not all there")


def _check_stream_numbers(numbers: dict[str, Any]) -> None:
    running, chunks = numbers.get("running"), numbers.get("buffered_chunks")
    if not is_finite_number(numbers.get("scale")) or numbers["scale"] <= 0.0:
        raise ArrayError(f"the stream's scale is {numbers.get('scale')!r}")
    if numbers.get("gamma") is not None and not is_finite_number(numbers["gamma"]):
        raise ArrayError(f"the stream's gamma is {numbers['gamma']!r}")
    if not isinstance(numbers.get("settings"), dict):
        raise ArrayError("the stream's settings are missing")
    if not all(isinstance(numbers.get(name), bool) for name in ("is_provisional", "has_warned")):
        raise ArrayError("the stream's marks are missing")
    if not isinstance(running, dict) or not set(running) <= {*_RUNNING_NUMBERS, "is_discounted"}:
        raise ArrayError("the stream's sums are missing")
    if not isinstance(running.get("is_discounted"), bool) or not all(
        is_finite_number(running.get(name, 0 if name == "linear_energy" else None)) for name in _RUNNING_NUMBERS
    ):
        raise ArrayError("the stream's sums are not numbers")
    if "seen" in numbers and not _are_counts_of_seen(numbers["seen"]):
        raise ArrayError("the stream's counts of what it has seen are no numbers")
    if not isinstance(chunks, list) or not all(_are_rows(rows) for rows in chunks):
        raise ArrayError("the stream's chunks are not numbers of rows")


def _are_counts_of_seen(seen: Any) -> bool:
    if not isinstance(seen, dict) or set(seen) != {*_SEEN_COUNTS, *_SEEN_NUMBERS}:
        return False
    are_counts = all(type(seen[name]) is int and seen[name] >= 0 for name in _SEEN_COUNTS)
    return are_counts and all(is_finite_number(seen[name]) for name in _SEEN_NUMBERS) and seen["gamma"] > 0.0


def _are_rows(rows: Any) -> bool:
    return isinstance(rows, list) and len(rows) > 0 and all(type(count) is int and count > 0 for count in rows)
