"""Products of float32 matrices by a GPU's tensor cores: every number is the sum of two in half precision."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from rkdl._backends.torch.triton_kernels import on_device

# Rows, columns and terms of the sums that a program works on at a time, and rows of blocks that share what they read.
ROWS, COLUMNS, TERMS, GROUP = 128, 128, 64, 8
# Numbers that a program splits at a time.
BLOCK = 1024


@triton.jit
def _split_kernel(rows, high, low, inverses, n_columns, row_stride, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    columns = tl.arange(0, BLOCK)
    own = rows + row * row_stride
    most = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n_columns, BLOCK):
        inside = start + columns < n_columns
        most = tl.maximum(most, tl.abs(tl.load(own + start + columns, mask=inside, other=0.0)))
    # The power of two that brings the largest number to between 2^14 and 2^15, by its exponent's bits.
    exponent = tl.max(most, axis=0).to(tl.int32, bitcast=True) >> 23
    power = tl.minimum(tl.maximum(268 - exponent, 1), 253)
    scale = (power << 23).to(tl.float32, bitcast=True)
    tl.store(inverses + row, ((254 - power) << 23).to(tl.float32, bitcast=True))
    for start in range(0, width, BLOCK):
        inside = start + columns < width
        values = tl.load(own + start + columns, mask=start + columns < n_columns, other=0.0) * scale
        part = values.to(tl.float16)
        place = row * width + start + columns
        tl.store(high + place, part, mask=inside)
        tl.store(low + place, (values - part.to(tl.float32)).to(tl.float16), mask=inside)


@triton.jit
def _product_kernel(
    high,
    low,
    factors,
    other_high,
    other_low,
    other_factors,
    products,
    n_rows,
    n_others,
    width,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    TERMS: tl.constexpr,
    GROUP: tl.constexpr,
):
    # Neighbouring programs work on a few rows of blocks, so that what one of them reads is in the cache for others.
    n_down, n_across = tl.cdiv(n_rows, ROWS), tl.cdiv(n_others, COLUMNS)
    program = tl.program_id(0)
    first = program // (GROUP * n_across) * GROUP
    n_grouped = tl.minimum(n_down - first, GROUP)
    down = first + program % (GROUP * n_across) % n_grouped
    across = program % (GROUP * n_across) // n_grouped
    rows = down * ROWS + tl.arange(0, ROWS)
    others = across * COLUMNS + tl.arange(0, COLUMNS)
    terms = tl.arange(0, TERMS)
    # Rows beyond the last are not stored.
    at = (rows % n_rows).to(tl.int64)[:, None] * width + terms[None, :]
    other_at = (others % n_others).to(tl.int64)[None, :] * width + terms[:, None]
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, width, TERMS):
        own_high, own_low = tl.load(high + at + start), tl.load(low + at + start)
        its_high, its_low = tl.load(other_high + other_at + start), tl.load(other_low + other_at + start)
        # Tensor cores cut off what they add: they add a few terms, and the sums of those are added in float32.
        part = tl.dot(own_low, its_high)
        part = tl.dot(own_high, its_low, part)
        part = tl.dot(own_high, its_high, part)
        total += part
    total = total * tl.load(factors + rows % n_rows)[:, None] * tl.load(other_factors + others % n_others)[None, :]
    target = products + rows.to(tl.int64)[:, None] * n_others + others[None, :]
    tl.store(target, total, mask=(rows < n_rows)[:, None] & (others < n_others)[None, :])


def split(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """High and low parts (c, w) of rows multiplied by powers of two, to 22 bits, and the factors (c,) that undo it."""
    rows = rows if rows.stride(1) == 1 else rows.contiguous()
    n_rows, n_columns = rows.shape
    width = triton.cdiv(n_columns, TERMS) * TERMS
    high, low = (rows.new_empty((n_rows, width), dtype=torch.float16) for _ in range(2))
    inverses = rows.new_empty(n_rows)
    with on_device(rows.device):
        _split_kernel[(n_rows,)](rows, high, low, inverses, n_columns, rows.stride(0), width, BLOCK=BLOCK, num_warps=4)
    return high, low, inverses


def product(rows: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """``rows @ others.T`` of float32, as exact as in float32; the product of two low parts is left out."""
    parts = split(rows)
    other_parts = parts if others is rows else split(others)
    products = rows.new_empty((len(rows), len(others)))
    n_programs = triton.cdiv(len(rows), ROWS) * triton.cdiv(len(others), COLUMNS)
    with on_device(rows.device):
        _product_kernel[(n_programs,)](
            *parts,
            *other_parts,
            products,
            len(rows),
            len(others),
            parts[0].shape[1],
            ROWS=ROWS,
            COLUMNS=COLUMNS,
            TERMS=TERMS,
            GROUP=GROUP,
            num_warps=8,
            num_stages=3,
        )
    return products
