"""What follows from a fitted estimator alone, computed once instead of at every call."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import is_
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.random import RandomState

from rkdl._utils.nested import count_bytes

# More than this is computed at every call rather than kept beside the model.
MOST_BYTES = 64 << 20

# Fitted arrays that no later result depends on.
REPORTS = frozenset({"errors_", "update_errors_", "losses_", "feature_names_in_"})

# Parameters that say what fitted arrays mean: other values take effect at the next fit.
STRUCTURE = frozenset({"n_components", "kernel", "degree", "coef0"})

Value = TypeVar("Value")


@dataclass(frozen=True)
class _Prepared:
    """Values that follow from parameters and fitted attributes, whose names and objects are kept to compare."""

    names: tuple[str, ...]
    objects: tuple[Any, ...]
    values: dict[Hashable, Any] = field(default_factory=dict)

    def is_of(self, state: dict[str, Any]) -> bool:
        """Whether the estimator still has the same objects for the same names."""
        return self.names == tuple(state) and all(map(is_, self.objects, state.values()))

    def freeze(self) -> None:
        """Make fitted arrays read-only."""
        for name, value in zip(self.names, self.objects, strict=True):
            if name.endswith("_") and name not in REPORTS and isinstance(value, np.ndarray):
                value.flags.writeable = False


# Outside the estimators, so that pickles, copies, files and comparisons of their attributes do not hold it.
_prepared: WeakKeyDictionary[Any, _Prepared] = WeakKeyDictionary()


def prepared(estimator: Any, key: Hashable, compute: Callable[[], Value]) -> Value:
    """``compute()``, or what it returned for the same key before any parameter or attribute of the estimator was set.

    Fitted arrays become read-only, so that a change in place, which would go unnoticed, is an error. Several threads
    may compute the same value at once.
    """
    state = vars(estimator)
    known = _prepared.get(estimator)
    if known is None or not known.is_of(state):
        known = _Prepared(tuple(state), tuple(state.values()))
        _prepared[estimator] = known
    found: Value | None = known.values.get(key)
    if found is None:
        found = compute()
        if count_bytes(found) <= MOST_BYTES:
            known.freeze()
            known.values[key] = found
    return found


def fitted_view(estimator: Any) -> Any:
    """The estimator as it was fitted, whatever its parameters are now, and whatever another thread sets meanwhile."""
    state = vars(estimator)
    if "_fit_parameters" not in state:
        # A view itself.
        return estimator
    known = _prepared.get(estimator)
    if known is None or not known.is_of(state):
        known = _Prepared(tuple(state), tuple(state.values()))
        _prepared[estimator] = known
    view = known.values.get(fitted_view)
    if view is None:
        view = object.__new__(type(estimator))
        vars(view).update(zip(known.names, known.objects, strict=True))
        vars(view).update(vars(view).pop("_fit_parameters"))
        known.values[fitted_view] = view
    return view


def remember_parameters(estimator: Any) -> None:
    """Keep the parameters that the fitted attributes depend on."""
    estimator._fit_parameters = {name: value for name, value in vars(estimator).items() if name in STRUCTURE}


@contextmanager
def replaced_at_once(estimator: Any, generator: Any = None) -> Iterator[Any]:
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
        _prepared.pop(estimator, None)
        estimator.__dict__ = vars(work)
    except BaseException:
        if position is not None:
            generator.set_state(position)
        raise
