"""Reduced kernel dictionary learning: nonlinear sparse representations on learned kernel vectors."""

from rkdl._config import config_context
from rkdl._encode import sparse_encode, sparse_encode_gram
from rkdl.estimators import DL, KDL, MORKDL, ORKDL, RKDL, FourierDL
from rkdl.estimators._saving import load

__version__ = "0.1.0"

__all__ = [
    "DL",
    "KDL",
    "MORKDL",
    "ORKDL",
    "RKDL",
    "FourierDL",
    "config_context",
    "load",
    "sparse_encode",
    "sparse_encode_gram",
]
