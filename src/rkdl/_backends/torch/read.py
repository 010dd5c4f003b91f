"""Signals as the user gave them, for a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rkdl._backends.torch.device import resolve_device
from rkdl._backends.torch.signals import TensorSignals
from rkdl._data.sources import check_shape

_FLOATS = {torch.float32: np.float32, torch.float16: np.float32, torch.bfloat16: np.float32}


def read_tensor(X: torch.Tensor, device: Any, name: str) -> TensorSignals:
    """Signals that are a tensor, on `device` or, without one, where they are; `name` is the estimator's."""
    if X.layout is not torch.strided:
        X = X.to_dense()
    if X.dtype.is_complex:
        raise ValueError(f"Complex data not supported: X is of dtype {X.dtype}.")
    check_shape(tuple(X.shape), "tensor", name)
    place = resolve_device(X.device if device is None else device)
    return TensorSignals(X, _FLOATS.get(X.dtype, np.float64), place)
