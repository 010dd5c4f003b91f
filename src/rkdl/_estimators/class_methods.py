"""Methods that the classifier can use, and their settings."""

from __future__ import annotations

from typing import Any

from sklearn.base import clone

from rkdl._estimators.full import KDL
from rkdl._estimators.learner import Learner
from rkdl._estimators.linear import DL, FourierDL
from rkdl._estimators.reduced import MORKDL, ORKDL, RKDL
from rkdl._execution.machine import physical_memory
from rkdl._learning.full import MEMORY_SHARE

ATOMS: dict[str, Any] = {"n_components": 64, "n_nonzero_coefs": 5, "max_iter": 10}
# What the names stand for.
METHODS: dict[str, Learner] = {
    "DL": DL(**ATOMS),
    "FourierDL": FourierDL(**ATOMS, n_fourier_features=600),
    "KDL": KDL(**ATOMS),
    "RKDL": RKDL(**ATOMS, n_kernel_vectors=300, kernel_vectors="random"),
    "ORKDL": ORKDL(**ATOMS, n_kernel_vectors=100, kernel_vectors="random"),
    "MORKDL": MORKDL(**ATOMS, n_kernel_vectors=100, kernel_vectors="random"),
}


def shared_method(estimator: str | Learner, n_signals: int) -> Learner:
    """A checked copy of the method for a classifier of `n_signals` signals."""
    method = clone(METHODS[estimator]) if isinstance(estimator, str) else _checked(estimator)
    usual = getattr(METHODS[type(method).__name__], "n_kernel_vectors", None)
    if usual is not None and getattr(method, "n_kernel_vectors", None) == usual:
        # The default, which nobody asked for.
        method.set_params(n_kernel_vectors=min(usual, n_signals))
    method = _reduced(method, n_signals)
    method._validate_params()
    return method


def _checked(estimator: Learner) -> Learner:
    """A copy of a method whose settings several classes can share."""
    if type(estimator) not in map(type, METHODS.values()):
        raise ValueError(
            f"estimator={estimator!r} is not a method that classes can share: give one of "
            f"{', '.join(METHODS)}, by its name or with its settings."
        )
    method = clone(estimator)
    if method.device is not None:
        raise ValueError(
            f"device={str(method.device)!r} of the estimator: set device of the classifier instead, and leave that of "
            f"the estimator at None."
        )
    if not isinstance(method.init, str):
        raise ValueError(
            "The estimator's init is an array, and every class needs initial atoms of its own: use 'data' or 'random'."
        )
    return method


def _reduced(method: Learner, n_signals: int) -> Learner:
    """For KDL, RKDL with all signals as kernel vectors: the same atoms, on kernel vectors that the classes share."""
    if not isinstance(method, KDL):
        return method
    # The kernel matrix in float64, its factor and workspace.
    needed, memory = 4 * 8 * n_signals**2, physical_memory()
    if needed > MEMORY_SHARE * memory:
        raise ValueError(
            f"KDL makes a kernel vector of each of the {n_signals} signals, which takes {needed / 2**30:.1f} GiB, and "
            f"there are {memory / 2**30:.1f}: use RKDL with kernel_vectors='random' and fewer of them."
        )
    return RKDL(**method.get_params(), n_kernel_vectors=n_signals, kernel_vectors="random")
