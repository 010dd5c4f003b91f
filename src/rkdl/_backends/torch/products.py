"""Products of tensors, summed so that few digits are lost."""

from __future__ import annotations

from functools import cache

import torch

from rkdl._backends.devices import BLOCK_ROWS, has_triton

# Multiplications, columns, and rows on either side from which on a product in halves is faster than one in float32.
MANY_MULTIPLICATIONS, MANY_COLUMNS, MANY_ROWS = 1 << 31, 256, 1024


def product(rows: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """``rows @ others.T``; large ones of float32 by the tensor cores of a GPU, where that is faster."""
    if rows.device.type == "cuda" and rows.dtype == others.dtype == torch.float32:
        n_columns = rows.shape[1]
        is_large = len(rows) * len(others) * n_columns >= MANY_MULTIPLICATIONS and n_columns >= MANY_COLUMNS
        is_wide = min(len(rows), len(others)) >= MANY_ROWS
        if is_large and is_wide and torch.get_float32_matmul_precision() == "highest" and _has_fast_halves(rows.device):
            from rkdl._backends.torch import triton_products

            return triton_products.product(rows, others)
    return rows @ others.T


@cache
def _has_fast_halves(device: torch.device) -> bool:
    """Whether three products of halves take less time than one in float32: not on consumer GPUs."""
    if not has_triton() or torch.version.cuda is None:
        return False
    major, minor = torch.cuda.get_device_capability(device)
    return minor == 0 and 8 <= major <= 10


def weighted_sum(weights: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """``weights.T @ rows`` (n, m) in float64, of weights (c, n) and rows (c, m)."""
    n_blocks = len(weights) // BLOCK_ROWS
    if n_blocks < 2:
        return (weights.T @ rows).double()
    whole = n_blocks * BLOCK_ROWS
    blocks = [part[:whole].reshape(n_blocks, BLOCK_ROWS, -1) for part in (weights, rows)]
    # A conversion of all blocks to float64 would take longer than it is worth.
    total = torch.bmm(blocks[0].mT, blocks[1]).sum(0).double()
    if whole < len(weights):
        total += weights[whole:].T @ rows[whole:]
    return total
