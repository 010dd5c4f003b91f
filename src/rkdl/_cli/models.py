"""What the commands on one's own data share: reading with options, model files, messages."""

from __future__ import annotations

import ast
import sys
import warnings
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from rkdl._cli.inputs import Inputs, Reading, read_inputs
from rkdl._estimators.saving import load
from rkdl._utils.text import shown

KINDS = ("DL", "FourierDL", "KDL", "RKDL", "ORKDL", "MORKDL")
# Columns whose standard deviations differ by more than this are likely to be of different units.
_LARGEST_RATIO = 100.0
_ROWS_LOOKED_AT = 10_000


def reading_of(options: Namespace, **changes: Any) -> Reading:
    """How the options say that files are read."""
    values = {
        "label": options.label,
        "drop": options.drop,
        "keep": options.keep,
        "key": options.key,
        "color": options.color,
        "size": None if options.size is None else tuple(options.size),
        "float32": options.float32,
    }
    return Reading(**{**values, **changes})


def read_like(name: str, options: Namespace, names: Any) -> Inputs:
    """Signals of a file for a model: of a table, the columns of these names in this order; labels may be missing."""
    reading = reading_of(options, is_label_optional=True)
    if names is not None and name.lower().endswith((".csv", ".tsv", ".parquet")):
        reading = replace(reading, features=[str(name) for name in names])
    return read_inputs(name, reading)


def read_for(model: Any, name: str, options: Namespace) -> Inputs:
    """Signals of a file for a fitted model, with as many features as it was fitted on."""
    inputs = read_like(name, options, getattr(model, "feature_names_in_", None))
    width, expected = inputs.X.shape[1], model.n_features_in_
    if width != expected:
        images = "; give --size and --color as for the model" if inputs.image_shape is not None else ""
        raise ValueError(
            f"{inputs.path} has {width} features per signal, and the model was fitted on {expected}{images}"
        )
    return inputs


def verbosity(options: Namespace) -> int:
    """Progress bars are for people at a terminal."""
    return int(not options.quiet and sys.stderr is not None and sys.stderr.isatty())


def class_of(name: str) -> str:
    """The class of a method that is named in small letters."""
    return next(kind for kind in KINDS if kind.lower() == name)


def load_model(path: str, kinds: tuple[str, ...], command: str) -> Any:
    """A saved estimator of one of the classes."""
    model = load(path)
    name = type(model).__name__
    if name not in kinds:
        source = f"rkdl {command} --save" if command in ("outliers", "classify") else "rkdl fit"
        raise ValueError(
            f"{path} is a model of the class {name}, and rkdl {command} needs {' or '.join(kinds)}; give a file that "
            f"{source}, or save() in Python, wrote"
        )
    return model


def remember_names(model: Any, inputs: Inputs) -> None:
    """Keep the names of the columns, as after a fit on a data frame, so that later files are read by name."""
    if inputs.names is not None:
        model.feature_names_in_ = np.array(inputs.names, dtype=object)


def set_parameters(model: Any, assignments: list[str]) -> None:
    """Set parameters that are given as NAME=VALUE."""
    values = {}
    for text in assignments:
        name, sign, value = text.partition("=")
        if not sign or not name.strip():
            raise ValueError(f"--set {text}: give NAME=VALUE")
        try:
            values[name.strip()] = ast.literal_eval(value.strip())
        except (ValueError, SyntaxError, TypeError):
            # Text need not be in quotes.
            values[name.strip()] = value.strip()
    model.set_params(**values)


def warn_of_scales(inputs: Inputs, remedy: str) -> None:
    """Say that the largest column decides all distances, where columns of a table differ in scale."""
    if not inputs.is_table:
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


def say(options: Namespace, text: str) -> None:
    """Print a result for people, unless they asked for silence."""
    if not options.quiet:
        print(shown(text))


def say_aside(text: str) -> None:
    """Print a remark on stderr."""
    if sys.stderr is not None:
        print(shown(f"rkdl: {text}"), file=sys.stderr)


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Show warnings on one line, without the place in the code that they come from."""

    def show(message: Warning | str, *rest: Any, **more: Any) -> None:
        say_aside(f"warning: {' '.join(str(message).split())}")

    with warnings.catch_warnings():
        warnings.simplefilter("default")
        for own in (DeprecationWarning, PendingDeprecationWarning, FutureWarning, ResourceWarning):
            warnings.simplefilter("ignore", own)
        # Columns are matched by name when a file is read.
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        warnings.showwarning = show
        yield
