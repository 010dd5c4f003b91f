"""From NumPy to a device and back: arrays, and the small objects that hold them."""

from __future__ import annotations

from collections import deque
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import torch

from rkdl._backends.arrays import host
from rkdl._backends.torch import kernels, maps
from rkdl._backends.torch.metric import TensorMetric
from rkdl._features import kernels as _kernels
from rkdl._features import maps as _maps
from rkdl._features.metric import Metric

# What stands on a device for what stands in NumPy.
_TWINS: dict[type, type] = {
    _kernels.RBF: kernels.TensorRBF,
    _kernels.Polynomial: kernels.TensorPolynomial,
    _kernels.Linear: kernels.TensorLinear,
    _kernels.Custom: kernels.TensorCustom,
    _maps.FourierMap: maps.TensorFourierMap,
    _maps.KernelMap: maps.TensorKernelMap,
    _maps.GivenKernelMap: maps.TensorGivenKernelMap,
}
_ORIGINALS = {twin: original for original, twin in _TWINS.items()}


def to_device(value: Any, device: torch.device) -> Any:
    """The value with every array in it as a tensor on the device, and every object as its twin there."""
    if value is None or isinstance(value, (bool, int, float)) or type(value) in _ORIGINALS:
        return value
    if isinstance(value, np.ndarray):
        return upload(value, device)
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if type(value) is Metric:
        return TensorMetric.placed(value, device)
    return _rebuilt(value, lambda part: to_device(part, device), _TWINS)


def to_host(value: Any) -> Any:
    """The reverse of `to_device`."""
    if isinstance(value, torch.Tensor):
        return host(value)
    if isinstance(value, TensorMetric):
        return value.on_host()
    return _rebuilt(value, to_host, _ORIGINALS)


def upload(array: np.ndarray, device: torch.device) -> torch.Tensor:
    """A copy of the array on the device."""
    # torch takes neither read-only arrays without a word nor negative strides.
    if device.type == "cpu" or not (array.flags.c_contiguous and array.flags.writeable):
        array = np.array(array, order="C", ndmin=array.ndim)
    return torch.from_numpy(array).to(device)


def _rebuilt(value: Any, place: Any, kinds: dict[type, type]) -> Any:
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
        parts = {field.name: place(getattr(value, field.name)) for field in fields(value)}
        kind = kinds.get(type(value))
        return replace(value, **parts) if kind is None else kind(**parts)
    return value
