"""Kernels for the estimators' `kernel`: the library's own, sums and products of them, and a base class for yours."""

from rkdl._features.kernels import *  # noqa: F403
from rkdl._features.kernels import PUBLIC

__all__ = PUBLIC


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
