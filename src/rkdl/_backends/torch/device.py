"""Devices: which one is meant, whether it is there, and what fits on it."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Any

try:
    import torch
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "device needs torch, which is not installed: pip install 'rkdl[torch]', or use device=None, which computes in "
        "NumPy.",
        name="torch",
    ) from error

# Share of a device's free memory that signals, and that features, may be kept in.
CACHE_SHARE = 0.4


def resolve_device(device: Any) -> torch.device:
    """The device of that name, refused with a remedy where it cannot be used."""
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"device={device!r} is no device: give 'cuda', 'cuda:1', 'cpu' or None for NumPy.") from error
    if found.type == "cuda":
        if not torch.cuda.is_available():
            raise ValueError(
                f"device={str(device)!r} needs a CUDA GPU, and torch {torch.__version__} sees none here: check the "
                f"driver with nvidia-smi and that torch is a CUDA build, or use device=None, which computes on the CPU."
            )
        count = torch.cuda.device_count()
        if found.index is not None and found.index >= count:
            raise ValueError(f"device={str(device)!r} does not exist: there are {count} GPUs, cuda:0 the first.")
        return torch.device("cuda", torch.cuda.current_device() if found.index is None else found.index)
    if found.type != "cpu":
        message = "has no float64, in which small matrices are computed" if found.type == "mps" else "is not supported"
        raise ValueError(f"device={str(device)!r} {message}: use 'cuda', or 'cpu' and move tensors there with X.cpu().")
    return found


@cache
def has_triton() -> bool:
    """Whether Triton can be imported; whether there is a GPU for it is another matter."""
    return find_spec("triton") is not None


def free_bytes(device: torch.device) -> int:
    """Memory that could still be taken on a GPU, what torch holds unused included; elsewhere, without bound."""
    if device.type != "cuda":
        return 1 << 62
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + unused
