"""Saving and loading fitted estimators, in files that run no code when they are read."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import InvalidParameterError
from sklearn.utils.validation import check_is_fitted

from rkdl._backends.arrays import host
from rkdl._estimators.fitted import check_fitted
from rkdl._estimators.fitting import as_fitted, remember_parameters
from rkdl._features.kernels import PUBLIC, Kernel, from_plain, to_plain
from rkdl._learning.stream_state import StreamState, stream_state
from rkdl._persistence.files import read_file, write_file
from rkdl._persistence.shapes import ArrayError
from rkdl._utils.text import shown
from rkdl._utils.types import plain_scalar

_PLAIN = (bool, int, float, str)
_WORDS_OF_MT19937 = 624


def save(self: Any, path: str | os.PathLike) -> None:
    """Save the fitted estimator to a file that `rkdl.load` reads. It contains numbers and text, no code.

    Parameters
    ----------
    path : str or path
        The file; an existing one is replaced.
    """
    from rkdl import _estimators as estimators

    check_is_fitted(self, "n_features_in_")
    if getattr(estimators, type(self).__name__, None) is not type(self):
        raise ValueError(
            f"{type(self).__qualname__} is a class of your own, which rkdl.load could not make again: save its "
            f"parts, or use skops or pickle."
        )
    self = as_fitted(self)
    # Other values would make a file that cannot be loaded.
    self._validate_params()
    arrays: dict[str, np.ndarray] = {}
    parameters = {
        name: _encode(f"parameter.{name}", value, arrays) for name, value in self.get_params(deep=False).items()
    }
    attributes = {
        name: _encode(f"attribute.{name}", value, arrays)
        for name, value in vars(self).items()
        if name.endswith("_") and not name.startswith("_")
    }
    header = {"estimator": type(self).__name__, "parameters": parameters, "attributes": attributes}
    if "_stream" in vars(self):
        header["stream"], state = stream_state(self._stream)
        arrays |= {f"stream.{name}": value for name, value in state.items()}
    write_file(path, "estimator", header, arrays)


def load(path: str | os.PathLike, *, kernel: Callable | None = None) -> Any:
    """Load an estimator from a file that its `save` method wrote.

    The file contains numbers and text only, so that loading it runs no code from it.

    Parameters
    ----------
    path : str or path
        The file.
    kernel : callable or Kernel, default=None
        The kernel, if the estimator was saved with a function or a class of your own as its kernel: files do not
        contain code.

    Returns
    -------
    estimator : object
        The fitted estimator.

    See Also
    --------
    RKDL : One of the estimators with a `save` method.

    Examples
    --------
    >>> import os, tempfile
    >>> from sklearn.datasets import load_digits
    >>> from rkdl import DL, load
    >>> X, _ = load_digits(return_X_y=True)
    >>> path = os.path.join(tempfile.mkdtemp(), "digits.rkdl")
    >>> DL(n_components=32, random_state=0).fit(X).save(path)
    >>> load(path).components_.shape
    (32, 64)
    """
    header, arrays = read_file(path, "estimator", "give a file that an estimator's save wrote.")
    name = shown(path)
    try:
        return _rebuild(name, header, arrays, kernel)
    except (
        *(KeyError, TypeError, AttributeError, OverflowError, RecursionError),
        *(ArrayError, InvalidParameterError),
    ) as error:
        message = f"{type(error).__name__}: {_brief(error, 300)}"
        raise ValueError(f"{name} was changed: its header does not fit what it holds ({message}).") from error


def _brief(text: object, longest: int = 80) -> str:
    """Text of a file for a message: escaped and shortened."""
    message = shown(str(text)[: longest + 1])
    return message if len(message) <= longest else f"{message[:longest]}..."


def _rebuild(path: str, header: dict, arrays: dict[str, np.ndarray], kernel: Any) -> Any:
    """The fitted estimator of a file."""
    model = _restore(path, header, arrays, kernel)
    attributes = {}
    for key, value in header["attributes"].items():
        if not key.isidentifier() or not key.endswith("_") or key.startswith("_"):
            raise ValueError(f"{path} was changed: '{_brief(key)}' is no fitted attribute.")
        attributes[key] = _decode(path, f"attribute.{key}", value, arrays, kernel)
    from rkdl._estimators.learner import restore_stream

    sizes = check_fitted(model, attributes)
    vars(model).update(attributes)
    if "stream" in header:
        if not isinstance(header["stream"], dict):
            raise ValueError(f"{path} was changed: its stream is {type(header['stream']).__name__}, expected a dict.")
        names = [key for key in arrays if key.startswith("stream.")]
        state = {key.removeprefix("stream."): arrays.pop(key) for key in names}
        restore_stream(model, StreamState(header["stream"], state), sizes)
    remember_parameters(model)
    if hasattr(model, "_settings"):
        model._fit_settings = model._settings()
    if arrays:
        raise ValueError(f"{path} was changed: its array '{_brief(next(iter(arrays)))}' is not expected.")
    return model


def _restore(path: str, header: dict, arrays: dict[str, np.ndarray], kernel: Any, prefix: str = "") -> Any:
    """The estimator of a header, with its parameters but not fitted."""
    from rkdl import _estimators as estimators

    name = header.get("estimator")
    if name not in estimators.__all__:
        raise ValueError(f"{path} holds a '{_brief(name)}', which this version of rkdl does not know: use a newer one.")
    cls = getattr(estimators, name)
    unknown = set(header["parameters"]) - set(cls().get_params(deep=False))
    if unknown:
        raise ValueError(
            f"{path} holds a {name} with {_brief(', '.join(sorted(unknown)))}, which this version of "
            f"rkdl does not know: use a newer one."
        )
    values = {}
    for key, value in header["parameters"].items():
        if isinstance(value, dict) and "function" in value:
            if not callable(kernel):
                raise ValueError(
                    f"{path} was saved with {key}={_brief(value['function'])}, your own, which a file does not "
                    f"hold: give it as load(path, kernel=...)."
                )
            values[key] = kernel
        else:
            values[key] = _decode(path, f"{prefix}parameter.{key}", value, arrays, kernel)
    model = cls(**values)
    model._validate_params()
    return model


def _encode(name: str, value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """A value as it is written in the header; an array is added to the arrays."""
    value = plain_scalar(value)
    if value is None or isinstance(value, _PLAIN):
        return value
    if isinstance(value, np.random.RandomState):
        kind, keys, *rest = value.get_state(legacy=True)
        if kind != "MT19937":
            raise ValueError(f"A RandomState of {kind} cannot be saved: give random_state as a number.")
        arrays[name] = np.asarray(keys)
        return {"random_state": rest}
    if type(value).__name__ == "device":
        return str(value)
    if isinstance(value, BaseEstimator):
        # The method of a classifier, with its settings.
        parameters = value.get_params(deep=False).items()
        held = {key: _encode(f"{name}.parameter.{key}", item, arrays) for key, item in parameters}
        return {"method": {"estimator": type(value).__name__, "parameters": held}}
    if isinstance(value, Kernel) and (not value._has_user_code or type(value).__name__ in PUBLIC):
        return {"kernel": to_plain(value)}
    if callable(value):
        own = type(value) if isinstance(value, Kernel) else value
        return {"function": f"{getattr(own, '__module__', '?')}.{getattr(own, '__qualname__', '?')}"}
    if isinstance(value, tuple | list):
        items = [plain_scalar(item) for item in value]
        if all(isinstance(item, _PLAIN) for item in items):
            return {type(value).__name__: items}
    array = np.asarray(host(value))
    if array.dtype == object:
        if not all(isinstance(item, str) for item in array.ravel()) or array.ndim != 1:
            raise ValueError(f"{name} holds objects, which cannot be saved.")
        return {"names": list(array)}
    arrays[name] = array
    return {"array": True}


def _decode(path: str, name: str, value: Any, arrays: dict[str, np.ndarray], kernel: Any) -> Any:
    """The value of an entry of the header; an array is taken out of the arrays."""
    if value is None or isinstance(value, _PLAIN):
        return value
    if "kernel" in value:
        return from_plain(value["kernel"])
    if "method" in value:
        return _restore(path, value["method"], arrays, kernel, f"{name}.")
    if "tuple" in value or "list" in value:
        return tuple(_items(value["tuple"], _PLAIN)) if "tuple" in value else _items(value["list"], _PLAIN)
    if "names" in value:
        return np.array(_items(value["names"], str), dtype=object)
    if "random_state" in value:
        return _random_state(arrays.pop(name), *value["random_state"])
    if value != {"array": True}:
        raise TypeError(f"{name} is not a value that is ever saved")
    return arrays.pop(name)


def _items(values: Any, kinds: Any) -> list:
    """A list of plain values."""
    if not isinstance(values, list) or not all(isinstance(item, kinds) for item in values):
        raise TypeError("a list holds something other than plain values")
    return values


def _random_state(keys: np.ndarray, position: int, has_normal: int, normal: float) -> np.random.RandomState:
    """A generator at a position; NumPy itself would read out of bounds at an invalid one."""
    if keys.shape != (_WORDS_OF_MT19937,) or keys.dtype != np.uint32:
        raise TypeError(f"a random state has keys of shape {keys.shape} and {keys.dtype}")
    if type(position) is not int or not 0 <= position <= _WORDS_OF_MT19937 or has_normal not in (0, 1):
        raise TypeError(f"a random state is at position {position!r}")
    rng = np.random.RandomState()
    rng.set_state(("MT19937", keys, position, has_normal, float(normal)))
    return rng
