"""Sufficient statistics of sparse codes as Triton kernels: their cost grows with the non-zeros, not with the atoms."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from rkdl._backends.torch.triton_kernels import on_device

# Programs that share the signals, numbers of a row that a program sums, and rows that it reads at a time.
PROGRAMS, BLOCK, ROWS = 4096, 256, 8
# Bits of the fixed point, less than a sum may need.
BITS = 62


@triton.jit
def _code_gram_kernel(
    indices, values, counts, scale, gram, n_signals, n_atoms, NONZERO: tl.constexpr, STEPS: tl.constexpr
):
    steps = tl.arange(0, STEPS)
    factor = tl.load(scale)
    for t in range(tl.program_id(0).to(tl.int64), n_signals, tl.num_programs(0)):
        place = t * NONZERO + steps
        is_used = steps < tl.load(counts + t)
        atoms = tl.load(indices + place, mask=is_used, other=0).to(tl.int64)
        code = tl.load(values + place, mask=is_used, other=0.0).to(tl.float64)
        terms = code[:, None] * code[None, :] * factor
        fixed = (terms + tl.where(terms > 0.0, 0.5, -0.5)).to(tl.int64)
        both = is_used[:, None] & is_used[None, :]
        tl.atomic_add(gram + atoms[:, None] * n_atoms + atoms[None, :], fixed, mask=both, sem="relaxed")


@triton.jit
def _cross_products_kernel(
    order,
    starts,
    values,
    features,
    sums,
    n_columns,
    feature_stride,
    NONZERO: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    atom = tl.program_id(0).to(tl.int64)
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < n_columns
    first, last = tl.load(starts + atom), tl.load(starts + atom + 1)
    total = tl.zeros((BLOCK,), tl.float64)
    for start in range(first, last, ROWS):
        entries = start + tl.arange(0, ROWS)
        is_used = entries < last
        place = tl.load(order + entries, mask=is_used, other=0)
        code = tl.load(values + place, mask=is_used, other=0.0).to(tl.float64)
        at = features + (place // NONZERO)[:, None] * feature_stride + columns[None, :]
        part = tl.load(at, mask=is_used[:, None] & inside[None, :], other=0.0).to(tl.float64)
        total += tl.sum(code[:, None] * part, axis=0)
    tl.store(sums + atom * n_columns + columns, total, mask=inside)


def code_gram(counts: torch.Tensor, indices: torch.Tensor, values: torch.Tensor, n_atoms: int) -> torch.Tensor:
    """``Z'Z`` (n, n) in float64.

    Sums are in fixed point, which is as exact as float64 and does not depend on their order.
    """
    n_signals, n_nonzero = indices.shape
    # No sum of products is larger than the sum of every signal's largest.
    bound = values.double().square().amax(1).sum()
    power = torch.where(bound > 0.0, BITS - torch.frexp(bound).exponent, 0)
    scale = torch.ldexp(torch.ones_like(bound), power)
    gram = torch.zeros((n_atoms, n_atoms), dtype=torch.int64, device=values.device)
    with on_device(values.device):
        _code_gram_kernel[(min(n_signals, PROGRAMS),)](
            indices,
            values,
            counts,
            scale,
            gram,
            n_signals,
            n_atoms,
            NONZERO=n_nonzero,
            STEPS=triton.next_power_of_2(n_nonzero),
            num_warps=2,
        )
    # Numbers that are not finite stay so.
    return gram.double().mul_((1.0 + (bound - bound)) / scale)


def cross_products(
    counts: torch.Tensor, indices: torch.Tensor, values: torch.Tensor, features: torch.Tensor, n_atoms: int
) -> torch.Tensor:
    """``Z'F`` (n, m) in float64, added signal by signal."""
    n_nonzero, n_columns = indices.shape[1], features.shape[1]
    is_used = torch.arange(n_nonzero, device=counts.device) < counts[:, None]
    atoms, order = torch.where(is_used, indices, n_atoms).flatten().sort(stable=True)
    every = torch.arange(n_atoms + 1, dtype=atoms.dtype, device=atoms.device)
    starts = torch.searchsorted(atoms, every, out_int32=True)
    sums = torch.empty((n_atoms, n_columns), dtype=torch.float64, device=values.device)
    features = features if features.stride(1) == 1 else features.contiguous()
    with on_device(values.device):
        _cross_products_kernel[(n_atoms, triton.cdiv(n_columns, BLOCK))](
            order,
            starts,
            values,
            features,
            sums,
            n_columns,
            features.stride(0),
            NONZERO=n_nonzero,
            BLOCK=BLOCK,
            ROWS=ROWS,
            num_warps=4,
        )
    return sums
