"""Products of tensors, summed so that few digits are lost."""

from __future__ import annotations

import torch

# Rows whose products are summed in the signals' dtype; sums of more rows are added in float64.
BLOCK_ROWS = 4096


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
