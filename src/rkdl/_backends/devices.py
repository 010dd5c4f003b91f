"""Devices: choice, free memory and transfers; torch is imported only where it is used."""

from __future__ import annotations

import sys
import warnings
from functools import cache, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from rkdl._backends.base import backend_of, is_tensor
from rkdl._utils.nested import map_parts

if TYPE_CHECKING:
    import torch
    from numpy.typing import DTypeLike

# Share of a device's free memory that signals, and that features, may be kept in.
CACHE_SHARE = 0.4
# Rows whose products are summed in the signals' dtype; sums of more rows are added in float64.
BLOCK_ROWS = 4096


def resolve_device(device: str | torch.device) -> torch.device:
    """The device of that name, refused with a remedy where it cannot be used."""
    try:
        import torch
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "device needs torch, which is not installed: pip install 'rkdl[torch]', or use device=None, which computes "
            "in NumPy.",
            name="torch",
        ) from error
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ValueError(f"device={device!r} is not a device: give 'cuda', 'cuda:1', 'cpu' or None.") from error
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
    """Whether Triton can be imported, with or without a GPU."""
    return find_spec("triton") is not None


def free_bytes(device: torch.device) -> int:
    """Bytes still available on a GPU, including what torch holds unused; unlimited elsewhere."""
    if device.type != "cuda":
        return 1 << 62
    import torch

    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + unused


@cache
def torch_dtype(dtype: DTypeLike) -> torch.dtype:
    """torch's name of a NumPy dtype."""
    import torch

    return getattr(torch, np.dtype(dtype).name)


def upload(array: np.ndarray, device: torch.device) -> torch.Tensor:
    """A copy of the array on the device."""
    import torch

    # torch warns of read-only arrays and refuses negative strides.
    if device.type == "cpu" or not (array.flags.c_contiguous and array.flags.writeable):
        array = np.array(array, order="C", ndmin=array.ndim)
    return torch.from_numpy(array).to(device)


def to_device(value: Any, device: torch.device) -> Any:
    """The value with every array in it as a tensor on the device."""
    if isinstance(value, np.ndarray):
        return upload(value, device)
    return value.to(device) if is_tensor(value) else map_parts(partial(to_device, device=device), value)


def placed(value: Any, device: torch.device | None) -> Any:
    """The value with its arrays as tensors on a device; unchanged if that is None."""
    return value if device is None else to_device(value, device)


def to_host(value: Any) -> Any:
    """The value with every tensor in it as a NumPy array."""
    if "torch" not in sys.modules:
        return value
    return backend_of(value).to_host(value) if is_tensor(value) else map_parts(to_host, value)


def csr_tensor(starts: Any, indices: Any, values: Any, shape: tuple[int, int]) -> torch.Tensor:
    """A CSR tensor of arrays or tensors that are known to fit together."""
    import torch

    starts, indices, values = map(torch.as_tensor, (starts, indices, values))
    with warnings.catch_warnings():
        # torch warns once per process that CSR tensors are in beta.
        warnings.simplefilter("ignore", UserWarning)
        return torch.sparse_csr_tensor(starts, indices, values, size=shape, check_invariants=False)
