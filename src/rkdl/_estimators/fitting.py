"""How estimators read signals, and how a fit replaces what an estimator holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from operator import is_
from typing import Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.random import RandomState
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from rkdl._backends.arrays import host
from rkdl._backends.base import is_tensor
from rkdl._data.open import open_signals
from rkdl._data.signals import Signals, is_safe
from rkdl._estimators.fitted import check_fitted
from rkdl._execution.blas import one_blas_thread
from rkdl._persistence.named_arrays import ArrayError
from rkdl._utils.inputs import check_rows_finite, well_formed
from rkdl._utils.types import Device, MatrixLike
from rkdl._utils.warnings import quiet

# Parameters that say what fitted arrays mean: other values take effect at the next fit.
_SIZES = ("n_components", "n_fourier_features", "n_kernel_vectors", "kernel_vectors")
STRUCTURE = (*_SIZES, "kernel", "degree", "coef0")

Estimator = TypeVar("Estimator", bound=BaseEstimator)
Value = TypeVar("Value")
Parameters = ParamSpec("Parameters")


def as_fitted(estimator: Estimator) -> Estimator:
    """The estimator as it was fitted, whatever its parameters are now, or an error if it is not fitted."""
    state = vars(estimator)
    if "n_iter_" not in state and "n_components_" not in state:
        # Only called here: it builds all tags, which takes longer than coding a signal.
        waits = "This %(name)s waits until batches hold 20 distinct signals, and as many as atoms and kernel vectors."
        check_is_fitted(estimator, msg=waits if "_stream" in state else None)
        # A coder that needs no fit. The model is not kept: the user may change an array before the next call.
        return clone(estimator).fit()
    view = object.__new__(type(estimator))
    # Values made for the estimator are valid for the view too; see `made_once`.
    view.__dict__ = {"_viewed": estimator, **state, **state.get("_fit_parameters", {})}
    return view


def with_one_model(
    method: Callable[Concatenate[Any, Parameters], Value],
) -> Callable[Concatenate[Any, Parameters], Value]:
    """A method that sees one fitted model throughout, also while another thread fits the estimator.

    BLAS has one thread meanwhile: slow work runs on the library's own threads.
    """

    @wraps(method)
    def on_view(self: Any, /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Value:
        with one_blas_thread():
            return method(as_fitted(self), *args, **kwargs)

    return on_view


def remember_parameters(estimator: BaseEstimator) -> None:
    """Keep the parameters that the fitted attributes, and the statistics of a stream, depend on."""
    state = vars(estimator)
    estimator._fit_parameters = {name: state[name] for name in STRUCTURE if name in state}
    if hasattr(estimator, "_settings"):
        estimator._fit_settings = estimator._settings()
        estimator._fit_values = _parameters(estimator)


def _parameters(estimator: BaseEstimator) -> dict[str, Any]:
    return {name: value for name, value in vars(estimator).items() if name[0] != "_" and name[-1] != "_"}


# Values derived from fitted estimators, and the objects they were derived from. Outside estimators, so that pickles,
# copies, files and comparisons of their attributes do not include them.
_made: WeakKeyDictionary[BaseEstimator, tuple[tuple, Any]] = WeakKeyDictionary()


def made_once(estimator: BaseEstimator, parts: tuple[str, ...], options: tuple, make: Callable[[], Value]) -> Value:
    """``make()``, or what it returned before an attribute of `parts` or an option was set."""
    objects = (*map(vars(estimator).get, parts), *options)
    owner = vars(estimator).get("_viewed", estimator)
    known = _made.get(owner)
    if known is None or len(known[0]) != len(objects) or not all(map(is_, known[0], objects)):
        # Compiled code does not check bounds.
        try:
            check_fitted(estimator, vars(estimator), parts)
        except ArrayError as error:
            changed = "The fitted attributes were changed and cannot be used"
            raise ValueError(f"{changed}: {error}. Set them back, or fit anew.") from error
        with quiet():
            known = objects, make()
        _made[owner] = known
    value: Value = known[1]
    return value


def freeze(estimator: BaseEstimator, names: tuple[str, ...]) -> None:
    """Make fitted arrays read-only: a change in place would go unnoticed."""
    for name in names:
        value = vars(estimator).get(name)
        if isinstance(value, np.ndarray):
            value.flags.writeable = False


def constant(array: np.ndarray) -> np.ndarray:
    """An array that does not change: a copy of one that the user set."""
    return array.copy() if array.flags.writeable else array


@contextmanager
def replaced_at_once(estimator: Estimator, generator: Any = None) -> Iterator[Estimator]:
    """A copy to be fitted, which replaces what the estimator holds in one step when the block ends.

    An estimator whose fit fails keeps what it learned before, and a random `generator` its position. Other threads see
    the old model or the new one.
    """
    work = object.__new__(type(estimator))
    vars(work).update(vars(estimator))
    position = generator.get_state() if isinstance(generator, RandomState) else None
    try:
        yield work
        remember_parameters(work)
        estimator.__dict__ = vars(work)
    except BaseException:
        if position is not None:
            generator.set_state(position)
        raise


def check_settings(work: Any) -> None:
    """Refuse changes of parameters that the fitted model depends on, where it learns on, and bad values of others."""
    # scikit-learn checks the parameters of the first batch only, for as long as a tenth of a batch takes.
    known = vars(work).get("_fit_values", {})
    if not all(known.get(name) is value for name, value in _parameters(work).items()):
        work._validate_params()
    known, now = vars(work).get("_fit_settings", {}), work._settings()
    for name, value in known.items():
        if now.get(name) != value:
            raise ValueError(
                f"{name}={now.get(name)!r} was {value!r} when this {type(work).__name__} began to learn, and its "
                f"model depends on that: set it back, or start again with fit, or with a clone."
            )


def check_weights(signals: Signals, sample_weight: Any) -> np.ndarray:
    """Weights (n,) in float64, none negative and not all zero, whose sums stay in range."""
    like = np.empty((signals.shape[0], 0))
    given = well_formed(host(sample_weight), "sample_weight")
    weights: np.ndarray = _check_sample_weight(given, like, dtype=np.float64, ensure_non_negative=True)
    with np.errstate(over="ignore"):
        total = float(weights.sum())
    if not is_safe(total, np.float32):
        raise ValueError(f"The weights of the signals sum up to {total:.3g}: scale them to numbers near one.")
    return weights


def read_signals(
    estimator: BaseEstimator,
    X: MatrixLike,
    *,
    reset: bool,
    device: Device = None,
    prefers_arrays: bool = False,
    allows_nan: bool = False,
) -> Signals:
    """Signals in memory or not, whose features are those of the estimator, or with `reset` become them.

    With `prefers_arrays`, a tensor in host memory is read as the array that shares it, which NumPy processes faster.
    """
    signals = open_signals(X, caller=type(estimator).__name__, device=device)
    known = vars(estimator)
    is_converted = signals.data is not X and not is_tensor(X)
    if reset or "feature_names_in_" in known or is_converted or X.shape[1] != known.get("n_features_in_"):
        validate_data(estimator, X, reset=reset, skip_check_array=True)
    if hasattr(X, "columns") and isinstance(signals.data, np.ndarray) and not allows_nan:
        # Of a data frame, while the names of its columns are known; after the check of these names.
        check_rows_finite(signals.data, columns=list(X.columns))
    is_host_tensor = device is None and signals.device is not None and signals.device.type == "cpu"
    return signals.on_host() if prefers_arrays and is_host_tensor else signals
