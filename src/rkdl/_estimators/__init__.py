"""The estimators; each is imported when it is first used."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOMES = {
    **dict.fromkeys(["DL", "FourierDL"], "linear"),
    **dict.fromkeys(["MORKDL", "ORKDL", "RKDL"], "reduced"),
    "KDL": "full",
    "KDLClassifier": "classifier",
    "KDLOutlierDetector": "outliers",
    "KDLRegressor": "regressor",
    "SparseCoder": "sparse_coder",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'rkdl._estimators' has no attribute {name!r}")
    return getattr(import_module(f"rkdl._estimators.{_HOMES[name]}"), name)
