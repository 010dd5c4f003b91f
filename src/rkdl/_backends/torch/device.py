"""Devices: which one is meant, whether it is there, what fits on it, and how exact its products are."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

try:
    import torch
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "device needs torch, which is not installed: pip install 'rkdl[torch]', or use device=None, which computes in "
        "NumPy.",
        name="torch",
    ) from error

from rkdl._backends.torch.backend import BLOCK_ROWS
from rkdl._execution.chunks import chunk_bounds
from rkdl._execution.config import plan_chunks, uses_tf32

# Bytes that a chunk's signals, features and correlations take together on a GPU: many enough to fill it.
GPU_CHUNK_BYTES = 1 << 30
# Multiplications, about, of the work between two walks that the host does sooner than a GPU can be told to.
HOST_WORK = 1 << 26
# Share of a device's free memory that signals, and that features, may be kept in.
KEPT_SHARE = 0.4


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
        told = "has no float64, in which small matrices are computed" if found.type == "mps" else "is not supported"
        raise ValueError(f"device={str(device)!r} {told}: use 'cuda', or 'cpu' and move tensors there with X.cpu().")
    return found


def free_bytes(device: torch.device) -> int:
    """Memory that could still be taken on a GPU, what torch holds unused included; elsewhere, without bound."""
    if device.type != "cuda":
        return 1 << 62
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + unused


def tensor_chunks(n_signals: int, row_width: int, itemsize: int, device: torch.device) -> list[tuple[int, int]]:
    """Chunks as the user fixed them, else as large as keeps the device busy: a function of sizes and kind alone."""
    return plan_chunks(n_signals, row_width, itemsize, gpu_bounds if device.type == "cuda" else chunk_bounds)


def gpu_bounds(n_signals: int, row_width: int, itemsize: int) -> list[tuple[int, int]]:
    """Chunks of a few hundred megabytes, whole blocks of rows."""
    blocks = max(1, GPU_CHUNK_BYTES // (row_width * itemsize * BLOCK_ROWS))
    edges = [*range(0, n_signals, blocks * BLOCK_ROWS), n_signals]
    return list(itertools.pairwise(edges))


def is_light(row_width: int, n_features: int) -> bool:
    """Whether what is computed between walks is so little that launches would take longer than the work.

    Features and atoms together are a part of what a row is worked on with beside the signal itself, and that work is
    their number squared times the length of the longest of them.
    """
    own = max(0, row_width - n_features)
    return own * own * row_width <= HOST_WORK


@contextmanager
def product_precision(device: torch.device) -> Iterator[None]:
    """float32 products in float32, or in TF32 where the user asked for it; what torch was set to comes back after."""
    if device.type != "cuda":
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if uses_tf32() else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
