"""Model files, parameters, and data for a fitted model."""

from __future__ import annotations

import ast
from argparse import Namespace
from contextlib import suppress
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from rkdl._cli.inputs import Inputs, read_inputs
from rkdl._cli.messages import say_aside, verbosity
from rkdl._estimators.saving import load

KINDS = ("DL", "FourierDL", "KDL", "RKDL", "ORKDL", "MORKDL")
# Their names on the command line.
CLASS_OF = {kind.lower(): kind for kind in KINDS}
# Options that set parameters.
_PARAMETERS = {
    "atoms": "n_components",
    "nonzeros": "n_nonzero_coefs",
    "kernel_vectors": "n_kernel_vectors",
    "iterations": "max_iter",
    "decoder": "fit_inverse_transform",
    **{name: name for name in ("kernel", "gamma", "contamination", "n_jobs", "device")},
}
# Columns whose standard deviations differ by more than this are likely to be of different units.
_LARGEST_RATIO = 100.0
_ROWS_LOOKED_AT = 10_000


def load_model(path: str, kinds: tuple[str, ...], command: str) -> Any:
    """A saved estimator of one of the classes."""
    model = load(path)
    if type(model).__name__ not in kinds:
        source = f"rkdl {command} --save" if command in ("outliers", "classify") else "rkdl fit"
        raise ValueError(
            f"{path} holds a {type(model).__name__}, and rkdl {command} needs {' or '.join(kinds)}; give a file "
            f"written by {source} or by save() in Python"
        )
    return model


def read_new(name: str, options: Namespace, fitted: BaseEstimator | Inputs) -> Inputs:
    """Data with the features of a fitted model, or of the training data."""
    if isinstance(fitted, Inputs):
        names, width, source = fitted.names, fitted.X.shape[1], f"{fitted.path} has"
    else:
        names, width = getattr(fitted, "feature_names_in_", None), fitted.n_features_in_
        source = "the model was fitted on"
    inputs = read_inputs(name, options, names, is_new=True)
    if inputs.X.shape[1] != width:
        images = "; give --size and --color as for the model" if inputs.image_shape is not None else ""
        raise ValueError(f"{inputs.path} has {inputs.X.shape[1]} features, and {source} {width}{images}")
    return inputs


def remember_names(model: BaseEstimator, inputs: Inputs) -> None:
    """Keep the names of the columns, as after a fit on a data frame, so that later files are read by name."""
    if inputs.names is not None:
        model.feature_names_in_ = np.array(inputs.names, dtype=object)


def configure(model: BaseEstimator, options: Namespace) -> None:
    """Set the parameters that options stand for, of a classifier also those of its method, and those of --set."""
    known = model.get_params()
    values = {"random_state": options.seed, "verbose": verbosity(options)}
    for option, parameter in _PARAMETERS.items():
        if getattr(options, option, None) is not None:
            name = parameter if parameter in known else f"estimator__{parameter}"
            if name not in known:
                raise ValueError(f"--{option.replace('_', '-')} does not apply to {CLASS_OF[options.method]}")
            values[name] = getattr(options, option)
    for text in options.set:
        name, sign, value = (part.strip() for part in text.partition("="))
        if not sign or not name:
            raise ValueError(f"--set {text}: give NAME=VALUE")
        values[name] = value
        # Text need not be in quotes.
        with suppress(ValueError, SyntaxError, TypeError):
            values[name] = ast.literal_eval(value)
    model.set_params(**values)


def warn_of_scales(inputs: Inputs, remedy: str) -> None:
    """Warn if one column of a table varies so much that it decides all distances."""
    if inputs.unit != "rows":
        return
    names = inputs.names or [str(number) for number in range(1, inputs.X.shape[1] + 1)]
    spreads = np.std(inputs.X[:_ROWS_LOOKED_AT], axis=0)
    positive = np.flatnonzero(spreads > 0.0)
    if positive.size < 2:
        return
    low, high = positive[spreads[positive].argmin()], positive[spreads[positive].argmax()]
    ratio = spreads[high] / spreads[low]
    if ratio > _LARGEST_RATIO:
        say_aside(f"warning: column {names[high]!r} varies {ratio:.0f} times as much as {names[low]!r}; {remedy}")
