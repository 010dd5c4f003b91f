"""From NumPy to a device and back: arrays, and the small objects that hold them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import torch

from rkdl._backends.torch.backend import TORCH, upload


def to_device(value: Any, device: torch.device) -> Any:
    """The value with every array in it as a tensor on the device."""
    if isinstance(value, np.ndarray):
        return upload(value, device)
    if isinstance(value, torch.Tensor):
        return value.to(device)
    return _rebuilt(value, lambda part: to_device(part, device))


def to_host(value: Any) -> Any:
    """The value with every tensor in it as a NumPy array."""
    return TORCH.to_host(value) if isinstance(value, torch.Tensor) else _rebuilt(value, to_host)


def _rebuilt(value: Any, place: Callable[[Any], Any]) -> Any:
    if isinstance(value, tuple):
        parts = [place(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, list):
        return [place(part) for part in value]
    if isinstance(value, deque):
        return deque((place(part) for part in value), maxlen=value.maxlen)
    if isinstance(value, dict):
        return {key: place(part) for key, part in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        held = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
        placed = {name: place(part) for name, part in held.items()}
        # What holds no array stays the object that it is.
        is_same = all(placed[name] is part for name, part in held.items())
        return value if is_same else replace(value, **placed)
    return value
