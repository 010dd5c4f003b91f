"""Checks of the saved states of learning problems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from rkdl._persistence.shapes import INTEGERS, ArrayError, Expected, check_arrays
from rkdl._utils.types import FLOATS

# Axes: N signals, m features, n atoms, p kernel vectors, q frequencies, r coordinates of a whitened atom.
_OBJECTIVES = ("objective", "update_objective")
_COUNTS = ("n_revived", "n_empty")
_PROGRESS = {
    **{name: Expected("") for name in _OBJECTIVES},
    **{name: Expected("", INTEGERS) for name in _COUNTS},
}
_FULL = {**_PROGRESS, "atoms": Expected("nN"), "correlations": Expected("Nn"), "gram": Expected("nn")}
_REDUCED = {
    **_PROGRESS,
    "penalty": Expected(""),
    "whitened_atoms": Expected("nr"),
    "kernel_vectors": Expected("pm", group="kernel vectors"),
    "frequencies": Expected("qm", FLOATS, group="frequencies"),
}


def check_full_state(state: dict[str, np.ndarray], n_atoms: int, n_signals: int) -> None:
    """Raise an ArrayError unless this is a state of KDL on `n_signals` signals."""
    check_arrays(state, _FULL, {"n": n_atoms, "N": n_signals})
    _check_counts(state)


def check_reduced_state(
    state: dict[str, np.ndarray], n_atoms: int, n_features: int, of_update: Mapping[str, Expected]
) -> None:
    """Raise an ArrayError unless the arrays of a state, and those of its kernel-vector update, are consistent."""
    expected = {**_REDUCED, **of_update}
    for name in _OBJECTIVES:
        if name in state and np.array_equal(state[name], np.inf):
            # A stream before its first update.
            expected[name] = Expected("", is_finite=False)
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
