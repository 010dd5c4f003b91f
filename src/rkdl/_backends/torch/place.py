"""From NumPy to a device and back: arrays, and the small objects that hold them."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch

from rkdl._backends.torch.backend import TORCH, upload
from rkdl._utils.nested import map_parts


def to_device(value: Any, device: torch.device) -> Any:
    """The value with every array in it as a tensor on the device."""
    if isinstance(value, np.ndarray):
        return upload(value, device)
    if isinstance(value, torch.Tensor):
        return value.to(device)
    return map_parts(partial(to_device, device=device), value)


def to_host(value: Any) -> Any:
    """The value with every tensor in it as a NumPy array."""
    return TORCH.to_host(value) if isinstance(value, torch.Tensor) else map_parts(to_host, value)
