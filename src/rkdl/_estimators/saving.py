"""Saving and loading fitted estimators, in files that run no code when they are read."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import InvalidParameterError
from sklearn.utils.validation import check_is_fitted

from rkdl._backends.arrays import host
from rkdl._estimators.fitted import check_fitted
from rkdl._estimators.fitting import as_fitted, freeze, remember_parameters
from rkdl._features.kernels import PUBLIC, Kernel, from_plain, to_plain
from rkdl._learning.stream import Stream
from rkdl._persistence.files import read_file, write_file
from rkdl._persistence.named_arrays import INTEGERS, ArrayError, Expected, check_arrays, flattened, part_of
from rkdl._utils.text import shown
from rkdl._utils.types import FLOATS, plain_scalar

_PLAIN = (bool, int, float, str)
# Lists in a header: what they become, and what they hold.
_LISTS: dict[str, tuple[Callable, Any]] = {
    "tuple": (tuple, _PLAIN),
    "list": (list, _PLAIN),
    "dict": (lambda items: dict(zip(items[::2], items[1::2], strict=True)), _PLAIN),
    "names": (partial(np.array, dtype=object), str),
}


@cache
def _scalers() -> dict[str, type]:
    """Steps that pipelines may have before the estimator, imported when they are needed."""
    from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler

    return {cls.__name__: cls for cls in (StandardScaler, RobustScaler, MinMaxScaler, MaxAbsScaler)}


def save(self: Any, path: str | os.PathLike) -> None:
    """Save the fitted estimator to a file that `rkdl.load` reads. It contains numbers and text, no code.

    Parameters
    ----------
    path : str or path
        The file; an existing one is replaced.
    """
    save_model(self, path)


def save_model(model: Any, path: str | os.PathLike) -> None:
    """Save a fitted estimator, or a pipeline of scalers and an estimator, to a file that `rkdl.load` reads.

    The file contains numbers and text, no code.

    Parameters
    ----------
    model : estimator or Pipeline
        An estimator of rkdl, or a scikit-learn pipeline that ends in one; the steps before it must be StandardScaler,
        RobustScaler, MinMaxScaler or MaxAbsScaler.
    path : str or path
        The file; an existing one is replaced.

    See Also
    --------
    load : Reads the file.

    Examples
    --------
    >>> import os, tempfile
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import RobustScaler
    >>> import rkdl
    >>> X, y = load_wine(return_X_y=True)
    >>> model = make_pipeline(RobustScaler(), rkdl.KDLClassifier(random_state=0)).fit(X, y)
    >>> path = os.path.join(tempfile.mkdtemp(), "wine.rkdl")
    >>> rkdl.save(model, path)
    >>> bool((rkdl.load(path).predict(X) == model.predict(X)).all())
    True
    """
    arrays: dict[str, np.ndarray] = {}
    *scalers, (name, last) = getattr(model, "steps", [("", model)])
    check_is_fitted(last, "n_features_in_")
    last = as_fitted(last) if hasattr(last, "save") else last
    header = _encode_estimator(last, arrays) | {"name": name, "steps": []}
    header["attributes"] = _encode_attributes(last, "attribute", arrays)
    for number, (step, scaler) in enumerate(scalers):
        if type(scaler) not in _scalers().values():
            raise ValueError(
                f"The step {step!r} of the pipeline is a {type(scaler).__name__}, and rkdl saves "
                f"{', '.join(_scalers())} only: save the pipeline with skops."
            )
        parameters, attributes = f"step.{number}.parameter", f"step.{number}.attribute"
        encoded = {
            key: _encode(f"{parameters}.{key}", value, arrays) for key, value in scaler.get_params(deep=False).items()
        }
        header["steps"].append(
            {
                "name": step,
                "scaler": type(scaler).__name__,
                "parameters": encoded,
                "attributes": _encode_attributes(scaler, attributes, arrays),
            }
        )
    if "_stream" in vars(last):
        arrays |= flattened({"stream": last._stream.state()})
    write_file(path, "estimator", header, arrays)


def _encode_attributes(estimator: BaseEstimator, prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Fitted attributes as they are written in the header."""
    return {
        name: _encode(f"{prefix}.{name}", value, arrays)
        for name, value in vars(estimator).items()
        if name.endswith("_") and not name.startswith("_")
    }


def load(path: str | os.PathLike, *, kernel: Callable | None = None) -> Any:
    """Load an estimator or a pipeline from a file that `rkdl.save` or its `save` method wrote.

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
    save : Writes the file; estimators have it as a method too.

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
    file = _File(shown(path), *read_file(path, "estimator", "give a file written by save."), kernel)
    try:
        return file.model()
    except (LookupError, TypeError, AttributeError, ArithmeticError, ArrayError, InvalidParameterError) as error:
        message = f"{type(error).__name__}: {_brief(error, 300)}"
        raise ValueError(f"{file.name} was changed: its header does not fit what it holds ({message}).") from error


def _public_estimator(name: str) -> Any:
    """The class of this name, None if there is none."""
    from rkdl import _estimators as estimators

    return getattr(estimators, name) if name in estimators.__all__ else None


def _brief(text: object, longest: int = 80) -> str:
    """Text of a file for a message: escaped and shortened."""
    message = shown(str(text)[: longest + 1])
    return message if len(message) <= longest else f"{message[:longest]}..."


def _encode_estimator(estimator: BaseEstimator, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Class and parameters of an estimator as they are written in the header; what `load` would refuse is an error."""
    cls = type(estimator)
    if _public_estimator(cls.__name__) is not cls:
        raise ValueError(
            f"{cls.__qualname__} is not an estimator of rkdl, and rkdl.load could not make it again: save its parts, "
            f"or use skops or pickle."
        )
    estimator._validate_params()
    parameters = estimator.get_params(deep=False).items()
    encoded = {key: _encode(f"parameter.{key}", value, arrays) for key, value in parameters}
    return {"estimator": cls.__name__, "parameters": encoded}


def _encode(name: str, value: Any, arrays: dict[str, np.ndarray]) -> Any:
    """A value as it is written in the header; an array is added to the arrays."""
    value = plain_scalar(value)
    if value is None or isinstance(value, _PLAIN):
        return value
    if isinstance(value, np.random.RandomState):
        raise ValueError("A RandomState cannot be saved: set random_state to a number, or None, before save.")
    if type(value).__name__ == "device":
        return str(value)
    if isinstance(value, Kernel) and (not value._has_user_code or type(value).__name__ in PUBLIC):
        return {"kernel": to_plain(value)}
    if callable(value):
        own = type(value) if isinstance(value, Kernel) else value
        return {"function": f"{getattr(own, '__module__', '?')}.{getattr(own, '__qualname__', '?')}"}
    if isinstance(value, tuple | list | dict):
        # Of a dictionary, keys and values in turn: JSON would make text of the keys.
        content = [item for pair in value.items() for item in pair] if isinstance(value, dict) else value
        items = [plain_scalar(item) for item in content]
        if all(isinstance(item, _PLAIN) for item in items):
            return {type(value).__name__: items}
    array = np.asarray(host(value))
    if array.dtype == object:
        if not all(isinstance(item, str) for item in array.ravel()) or array.ndim != 1:
            raise ValueError(f"{name} contains Python objects, which cannot be saved.")
        return {"names": list(array)}
    arrays[name] = array
    return {"array": True}


class _File(NamedTuple):
    """The content of an estimator's file; arrays are removed when they are used."""

    name: str
    header: dict[str, Any]
    arrays: dict[str, np.ndarray]
    kernel: Callable | None

    def model(self) -> Any:
        """The fitted estimator, or the pipeline that ends in it."""
        scalers = [self._scaler(number, step) for number, step in enumerate(self.header["steps"])]
        model = self._fitted()
        if not scalers:
            return model
        from sklearn.pipeline import Pipeline

        pipeline = Pipeline([*scalers, (str(self.header["name"]), model)])
        pipeline._validate_names([name for name, _ in pipeline.steps])
        # Of a file that was changed, the numbers may not fit each other.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pipeline[:-1].transform(np.zeros((1, model.n_features_in_)))
        return pipeline

    def _attributes(self, header: dict[str, Any], prefix: str) -> dict[str, Any]:
        attributes = {}
        for key, value in header["attributes"].items():
            if not key.isidentifier() or not key.endswith("_") or key.startswith("_"):
                raise TypeError(f"'{key}' is not a fitted attribute")
            attributes[key] = self._value(f"{prefix}.{key}", value)
        return attributes

    def _scaler(self, number: int, header: dict[str, Any]) -> tuple[str, Any]:
        """A step of a pipeline, with its name."""
        prefix, parameters = f"step.{number}", header["parameters"].items()
        scaler = _scalers()[header["scaler"]](
            **{key: self._value(f"{prefix}.parameter.{key}", value) for key, value in parameters}
        )
        scaler._validate_params()
        attributes = self._attributes(header, f"{prefix}.attribute")
        for key, value in attributes.items():
            if isinstance(value, np.ndarray) and key != "feature_names_in_":
                check_arrays({key: value}, {key: Expected("m", FLOATS + INTEGERS)}, {"m": attributes["n_features_in_"]})
        vars(scaler).update(attributes)
        return str(header["name"]), scaler

    def _fitted(self) -> Any:
        model = self._estimator()
        attributes = self._attributes(self.header, "attribute")
        check_fitted(model, attributes)
        vars(model).update(attributes)
        remember_parameters(model)
        freeze(model, getattr(model, "_parts", ()))
        stream = part_of(self.arrays, "stream")
        if stream:
            model._stream = Stream.restored(stream, model._dictionary())
        unknown = [key for key in self.arrays if not key.startswith("stream.")]
        if unknown:
            raise TypeError(f"{unknown[0]} is not expected")
        return model

    def _estimator(self) -> Any:
        """The estimator with its parameters, not fitted."""
        found, parameters = self.header["estimator"], self.header["parameters"]
        cls = _public_estimator(found)
        unknown = [found] if cls is None else sorted(set(parameters) - set(cls().get_params(deep=False)))
        if unknown:
            raise ValueError(
                f"{self.name} holds '{_brief(', '.join(map(str, unknown)))}', which this version of rkdl does not "
                f"know: use a newer one."
            )
        model = cls(**{key: self._value(f"parameter.{key}", value) for key, value in parameters.items()})
        model._validate_params()
        return model

    def _value(self, name: str, value: Any) -> Any:
        """The value of an entry of the header."""
        if value is None or isinstance(value, _PLAIN):
            return value
        kind, content = value.popitem()
        if kind in _LISTS:
            make, kinds = _LISTS[kind]
            if not isinstance(content, list) or not all(isinstance(item, kinds) for item in content):
                raise TypeError(f"{name} holds something other than plain values")
            return make(content)
        if kind == "function":
            if not callable(self.kernel):
                raise ValueError(
                    f"{self.name} was saved with {name.rpartition('.')[2]}={_brief(content)}, your own, which a file "
                    f"does not hold: give it as load(path, kernel=...)."
                )
            return self.kernel
        if kind == "kernel":
            return from_plain(content)
        array = self.arrays.pop(name)
        return array if array.ndim else array.item()
