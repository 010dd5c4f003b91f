"""Reduced kernel dictionary learning: nonlinear sparse representations on learned kernel vectors."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rkdl import datasets, kernels, metrics, plotting
    from rkdl._coding.encode import sparse_encode, sparse_encode_gram
    from rkdl._estimators.classifier import KDLClassifier
    from rkdl._estimators.full import KDL
    from rkdl._estimators.linear import DL, FourierDL
    from rkdl._estimators.outliers import KDLOutlierDetector
    from rkdl._estimators.reduced import MORKDL, ORKDL, RKDL
    from rkdl._estimators.regressor import KDLRegressor
    from rkdl._estimators.saving import load
    from rkdl._estimators.saving import save_model as save
    from rkdl._estimators.sparse_coder import SparseCoder
    from rkdl._execution.config import config_context

__version__ = "0.1.0"

__all__ = [
    "DL",
    "KDL",
    "MORKDL",
    "ORKDL",
    "RKDL",
    "FourierDL",
    "KDLClassifier",
    "KDLOutlierDetector",
    "KDLRegressor",
    "SparseCoder",
    "config_context",
    "datasets",
    "kernels",
    "load",
    "metrics",
    "plotting",
    "save",
    "sparse_encode",
    "sparse_encode_gram",
]

# Where each name lives: it is imported when it is first used, so that the command line and its help start at once.
_HOMES = {
    "config_context": "rkdl._execution.config",
    "load": "rkdl._estimators.saving",
    "save": "rkdl._estimators.saving",
    "sparse_encode": "rkdl._coding.encode",
    "sparse_encode_gram": "rkdl._coding.encode",
}

# Modules that are imported when they are first used; pyod needs PyOD, so `dir` does not list it.
_MODULES = ("datasets", "kernels", "metrics", "plotting", "pyod")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"rkdl.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'rkdl' has no attribute {name!r}")
    # Estimators have a method of this name, which is a function of that module.
    value = getattr(import_module(_HOMES.get(name, "rkdl._estimators")), "save_model" if name == "save" else name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
