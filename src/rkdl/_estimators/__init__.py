"""The estimators; each is imported when it is first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rkdl._estimators.classifier import KDLClassifier
    from rkdl._estimators.full import KDL
    from rkdl._estimators.linear import DL, FourierDL
    from rkdl._estimators.optimized import MORKDL, ORKDL
    from rkdl._estimators.outliers import KDLOutlierDetector
    from rkdl._estimators.reduced import RKDL

__all__ = ["DL", "KDL", "MORKDL", "ORKDL", "RKDL", "FourierDL", "KDLClassifier", "KDLOutlierDetector"]

_HOMES = {
    "DL": "linear",
    "KDL": "full",
    "MORKDL": "optimized",
    "ORKDL": "optimized",
    "RKDL": "reduced",
    "FourierDL": "linear",
    "KDLClassifier": "classifier",
    "KDLOutlierDetector": "outliers",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rkdl._estimators' has no attribute {name!r}")
    value = getattr(import_module(f"rkdl._estimators.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
