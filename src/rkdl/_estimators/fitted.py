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
    "decoder_": Expected("nm", FLOATS, "decoder"),
    "decoder_intercept_": Expected("m", FLOATS, "decoder"),
}
_KERNEL = {
    **_LEARNER,
    "dual_components_": Expected("np", FLOATS),
    "gram_": Expected("nn", FLOATS),
    "kernel_vectors_": Expected("pm", FLOATS),
}
#: Arrays of the methods, with exactly `n_components` atoms.
METHODS: dict[str, dict[str, Expected]] = {
    "DL": {**_LEARNER, "components_": Expected("nm", FLOATS)},
    "FourierDL": {**_LEARNER, "components_": Expected("nf", FLOATS), "frequencies_": Expected("qm", FLOATS)},
    **dict.fromkeys(["KDL", "RKDL", "ORKDL", "MORKDL"], _KERNEL),
}
_CODER = {"components_": Expected("nm", FLOATS)}
_DETECTOR = {
    "gammas_": Expected("k"),
    "kernel_vectors_": Expected("kpm"),
    "dual_components_": Expected("knp"),
    "grams_": Expected("knn"),
    "sizes_": Expected("k2", INTEGERS),
    "medians_": Expected("k"),
    "spreads_": Expected("k"),
}
_COUNTS = ("n_features_in_", "n_components_", "n_iter_", "n_revived_", "rank_", "n_nonzero_coefs_")
_NUMBERS = ("gamma_", "sharpness_", "offset_")


def check_fitted(model: Any, attributes: dict[str, Any]) -> dict[str, int]:
    """Raise an ArrayError unless the fitted attributes fit each other and the parameters of the model.

    Returns the lengths of the axes by letter, and the number s of features that atoms are combinations of.
    """
    name = type(model).__name__
    sizes = {"m": attributes["n_features_in_"], "2": 2}
    # Numbers that must be there; others may be None or missing.
    needed = {"gamma_"}
    if name == "KDLOutlierDetector":
        expected, needed = _DETECTOR, {"offset_"}
    elif name == "SparseCoder":
        expected, needed, sizes["n"] = _CODER, set(), attributes["n_components_"]
    elif name == "KDLClassifier":
        expected = _of_classifier(attributes)
        needed = {"sharpness_", "gamma_"} if "kernel_vectors_" in expected else {"sharpness_"}
    else:
        expected, sizes["n"] = METHODS[name], model.n_components
        if name == "DL":
            needed = set()
        elif getattr(model, "kernel", None) == "precomputed":
            # A signal is given by its kernel values with the training signals, which are not stored.
            needed, sizes["p"] = set(), sizes["m"]
            expected = {key: wanted for key, wanted in expected.items() if key != "kernel_vectors_"}
    _check_numbers(attributes, needed)
    found = check_arrays({key: attributes[key] for key in expected if key in attributes}, expected, sizes)
    if found.get("f", 0) != 2 * found.get("q", 0):
        raise ArrayError(f"there are {found.get('f')} Fourier features and {found.get('q')} frequencies")
    for key in ("n_atoms_", "n_nonzero_coefs_", "sizes_"):
        values = attributes.get(key, 0)
        if np.min(values, initial=0) < 0 or np.max(values, initial=0) > found["n"]:
            raise ArrayError(f"{key} holds a number that is not from 0 to {found['n']}")
    if "spreads_" in attributes and not np.all(attributes["spreads_"] > 0.0):
        raise ArrayError("spreads_ holds a number that is not positive")
    if not all(found[letter] for letter in "nmpq" if letter in found):
        raise ArrayError("it has no atoms, features or kernel vectors")
    return {**found, "s": found.get("p", found.get("f", found["m"]))}


def _of_classifier(attributes: dict[str, Any]) -> dict[str, Expected]:
    """Arrays of a classifier: those of its method, with an axis for the classes."""
    method, classes = type(attributes["method_"]).__name__, attributes["classes_"]
    if method not in METHODS:
        raise ArrayError(f"method_ is a {method}, expected one of {', '.join(METHODS)}")
    expected = {
        "errors_": Expected("e"),
        "losses_": Expected("l"),
        "grams_": Expected("cnn", FLOATS),
        "n_atoms_": Expected("c", INTEGERS),
        # Labels may be text.
        "classes_": Expected("c", (classes.dtype,), is_finite=classes.dtype.kind in "biuf"),
    }
    if method == "DL":
        return {**expected, "components_": Expected("cnm", FLOATS)}
    atoms, vectors = ("cnf", "qm") if method == "FourierDL" else ("cnp", "pm")
    return {**expected, "components_": Expected(atoms, FLOATS), "kernel_vectors_": Expected(vectors, FLOATS)}


def _check_numbers(attributes: dict[str, Any], needed: set[str]) -> None:
    value: Any
    for name in _COUNTS:
        value = attributes.get(name, 0)
        if type(value) is not int or value < 0:
            raise ArrayError(f"{name} is not a count")
    for name in _NUMBERS:
        value = attributes.get(name)
        if not is_finite_number(value) and (value is not None or name in needed):
            raise ArrayError(f"{name} is not a finite number")
    names = attributes.get("feature_names_in_")
    if names is not None and (not isinstance(names, np.ndarray) or names.shape != (attributes["n_features_in_"],)):
        raise ArrayError("feature_names_in_ does not have one name per feature")
