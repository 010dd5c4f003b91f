"""Checks of fitted attributes read from a file, so that compiled code never reads out of bounds."""

from __future__ import annotations

from typing import Any

import numpy as np

from rkdl._persistence.shapes import INTEGERS, ArrayError, Expected, check_arrays, is_finite_number
from rkdl._utils.types import FLOATS

# Axes: m features, n atoms, p kernel vectors, q frequencies, f Fourier features, c classes, k members of a detector.
_LEARNER = {
    "errors_": Expected("e"),
    "update_errors_": Expected("u"),
    "decoder_": Expected("nm", FLOATS, is_optional=True),
    "decoder_intercept_": Expected("m", FLOATS, is_optional=True),
}
_KERNEL = {
    **_LEARNER,
    "dual_components_": Expected("np", FLOATS),
    "gram_": Expected("nn", FLOATS),
    "kernel_vectors_": Expected("pm", FLOATS),
}
_CLASSIFIER = {
    "errors_": Expected("e"),
    "losses_": Expected("l"),
    "grams_": Expected("cnn", FLOATS),
    "n_atoms_": Expected("c", INTEGERS),
}
_ARRAYS: dict[str, dict[str, Expected]] = {
    "DL": {**_LEARNER, "components_": Expected("nm", FLOATS)},
    "FourierDL": {**_LEARNER, "components_": Expected("nf", FLOATS), "frequencies_": Expected("qm", FLOATS)},
    "KDL": _KERNEL,
    "RKDL": _KERNEL,
    "ORKDL": _KERNEL,
    "MORKDL": _KERNEL,
    "KDLOutlierDetector": {
        "gammas_": Expected("k"),
        "kernel_vectors_": Expected("kpm"),
        "dual_components_": Expected("knp"),
        "grams_": Expected("knn"),
        "sizes_": Expected("k2", INTEGERS),
        "medians_": Expected("k"),
        "spreads_": Expected("k"),
    },
}
#: Estimators with exactly `n_components` atoms.
METHODS = ("DL", "FourierDL", "KDL", "RKDL", "ORKDL", "MORKDL")
_COUNTS = ("n_features_in_", "n_iter_", "n_revived_", "rank_", "n_nonzero_coefs_")
_NUMBERS = ("gamma_", "sharpness_", "offset_", "scale_")


def check_fitted(model: Any, attributes: dict[str, Any]) -> dict[str, int]:
    """Raise an ArrayError unless the fitted attributes are consistent with each other and with the parameters.

    Parameters
    ----------
    model : estimator
        With its parameters, not fitted yet.
    attributes : dict
        Its fitted attributes by name; others are not checked.

    Returns
    -------
    dict of str to int
        Lengths of the axes by letter, and the number s of features that atoms are combinations of.
    """
    name = type(model).__name__
    is_precomputed = getattr(model, "kernel", None) == "precomputed"
    _check_numbers(attributes, _needed(name, attributes, is_precomputed))
    _check_names(attributes)
    sizes = {"m": attributes["n_features_in_"], "2": 2}
    if name in METHODS:
        sizes["n"] = model.n_components
    expected = _of_classifier(attributes) if name == "KDLClassifier" else _ARRAYS[name]
    if is_precomputed:
        # A signal is given by its kernel values with the training signals, which are not stored.
        expected = {key: wanted for key, wanted in expected.items() if key != "kernel_vectors_"}
        sizes["p"] = sizes["m"]
    found = check_arrays({key: attributes[key] for key in expected if key in attributes}, expected, sizes)
    if found.get("f", 0) != 2 * found.get("q", 0):
        raise ArrayError(f"there are {found.get('f')} Fourier features and {found.get('q')} frequencies")
    if "n_atoms_" in attributes:
        _check_range("n_atoms_", attributes["n_atoms_"], found["n"])
        _check_range("n_nonzero_coefs_", attributes["n_nonzero_coefs_"], found["n"])
    if "sizes_" in attributes:
        _check_range("sizes_", attributes["sizes_"], found["n"])
    if "spreads_" in attributes and not np.all(attributes["spreads_"] > 0.0):
        raise ArrayError("spreads_ holds a number that is not positive")
    if not all(found[letter] for letter in "nmpq" if letter in found):
        raise ArrayError("it has no atoms, features or kernel vectors")
    return {**found, "s": found.get("p", found.get("f", found["m"]))}


def _of_classifier(attributes: dict[str, Any]) -> dict[str, Expected]:
    """Arrays of a classifier: those of its method, with an axis for the classes."""
    method = _method_name(attributes)
    classes = attributes["classes_"]
    # Labels may be text.
    labels = {"classes_": Expected("c", (classes.dtype,), is_finite=classes.dtype.kind in "biuf")}
    if method == "DL":
        return {**_CLASSIFIER, **labels, "components_": Expected("cnm", FLOATS)}
    atoms, vectors = ("cnf", "qm") if method == "FourierDL" else ("cnp", "pm")
    return {
        **_CLASSIFIER,
        **labels,
        "components_": Expected(atoms, FLOATS),
        "kernel_vectors_": Expected(vectors, FLOATS),
    }


def _method_name(attributes: dict[str, Any]) -> str:
    """Name of the method of a classifier; anything else is refused."""
    name = type(attributes["method_"]).__name__
    if name not in METHODS:
        raise ArrayError(f"method_ is a {name}, expected one of {', '.join(METHODS)}")
    return name


def _needed(name: str, attributes: dict[str, Any], is_precomputed: bool) -> tuple[str, ...]:
    """Numbers that must be present; others may be None or missing."""
    if name == "KDLOutlierDetector":
        return ("offset_", "scale_")
    if name == "KDLClassifier":
        is_linear = _method_name(attributes) == "DL"
        return ("sharpness_",) if is_linear else ("sharpness_", "gamma_")
    return () if name == "DL" or is_precomputed else ("gamma_",)


def _check_numbers(attributes: dict[str, Any], needed: tuple[str, ...]) -> None:
    value: Any
    for name in _COUNTS:
        value = attributes.get(name, 0)
        if type(value) is not int or value < 0:
            raise ArrayError(f"{name} is not a count")
    for name in _NUMBERS:
        value = attributes.get(name)
        if not is_finite_number(value) and (value is not None or name in needed):
            raise ArrayError(f"{name} is not a finite number")
    if attributes.get("scale_", 1.0) <= 0.0:
        raise ArrayError(f"scale_ is {attributes['scale_']!r}, expected a positive number")


def _check_names(attributes: dict[str, Any]) -> None:
    names = attributes.get("feature_names_in_")
    if names is not None and (not isinstance(names, np.ndarray) or names.shape != (attributes["n_features_in_"],)):
        raise ArrayError("feature_names_in_ does not have one name per feature")


def _check_range(name: str, values: Any, largest: int) -> None:
    if np.min(values, initial=0) < 0 or np.max(values, initial=0) > largest:
        raise ArrayError(f"{name} holds a number that is not from 0 to {largest}")
