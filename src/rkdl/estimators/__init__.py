"""The estimators; each is imported when it is first asked for."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rkdl.estimators._classifier import KDLClassifier
    from rkdl.estimators._full import KDL
    from rkdl.estimators._linear import DL, FourierDL
    from rkdl.estimators._optimized import MORKDL, ORKDL
    from rkdl.estimators._outliers import KDLOutlierDetector
    from rkdl.estimators._reduced import RKDL

__all__ = ["DL", "KDL", "MORKDL", "ORKDL", "RKDL", "FourierDL", "KDLClassifier", "KDLOutlierDetector"]

_HOMES = {
    "DL": "_linear",
    "KDL": "_full",
    "MORKDL": "_optimized",
    "ORKDL": "_optimized",
    "RKDL": "_reduced",
    "FourierDL": "_linear",
    "KDLClassifier": "_classifier",
    "KDLOutlierDetector": "_outliers",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rkdl.estimators' has no attribute {name!r}")
    value = getattr(import_module(f"rkdl.estimators.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
