"""Sparse coding of patches with few non-zeros."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.data import patches, pick_dictionary
from benchmarks.gpu.machine import Machine
from benchmarks.gpu.rows import Row, measured
from rkdl import sparse_encode

# Atoms, non-zeros, the target in millions of signals per second, and signals.
SIZES = [(256, 6, 200, 1 << 23), (1024, 8, 30, 1 << 22)]


def run(machine: Machine, out: Path) -> Iterator[Row]:
    """Signals coded per second, to a CSR tensor and to a dense one."""
    for sizes in SIZES:
        yield from _encode(machine, *sizes)


def _encode(machine: Machine, n_atoms: int, n_nonzero: int, goal: float, count: int) -> Iterator[Row]:
    count = 4_000 if machine.small else count
    signals = _many_patches(machine, count)
    dictionary = pick_dictionary(patches(2_000 if machine.small else 220_000), min(n_atoms, count // 16))
    atoms = torch.from_numpy(dictionary).to(machine.device)

    def encode(rows: torch.Tensor, **options: Any) -> torch.Tensor:
        return sparse_encode(rows, atoms, n_nonzero_coefs=n_nonzero, **options)

    spent, codes = machine.seconds(lambda: encode(signals, sparse_output=True), 5)
    same = encode(signals, sparse_output=True)
    assert torch.equal(codes.values(), same.values()), "two runs were not bitwise identical"
    few = signals[: min(count, 20_000)]
    on_cpu = torch.from_numpy(sparse_encode(few.cpu().numpy(), dictionary, n_nonzero_coefs=n_nonzero))
    cpu_residual, residual = (_residual(few, atoms, part.to(machine.device)) for part in (on_cpu, encode(few)))
    rate = count / spent
    # Signals in, correlations out and in, codes out.
    moved = 4 * (64 + 2 * len(atoms) + 2 * n_nonzero + 2) * rate
    # The product with the atoms, and the operations per pursuit step on all atoms.
    steps = n_nonzero - 1
    operations = len(atoms) * (2 * 64 + steps * (steps - 1) + 8 * steps) * rate
    note = (
        f"{len(atoms)} atoms, s = {n_nonzero}, {count:,} signals to a CSR tensor, OLS; "
        f"{moved / machine.bandwidth():.0%} of the bandwidth, {operations / machine.arithmetic():.0%} of the "
        f"arithmetic limit; "
        f"residual {residual:.5g}, on the CPU {cpu_residual:.5g}"
    )
    yield measured(f"encode, n = {n_atoms}", rate / 1e6, "M signals/s", note, f">= {goal}", rate / 1e6 >= goal)
    quarter = signals[: count // 4]
    dense = len(quarter) / machine.seconds(lambda: encode(quarter), 3)[0]
    yield measured(f"the same, dense, n = {n_atoms}", dense / 1e6, "M signals/s")


def _many_patches(machine: Machine, count: int) -> torch.Tensor:
    """Patches of the sample images, repeated with a little noise, on the device."""
    own = torch.from_numpy(patches(min(count, 200_000))).to(machine.device)
    generator = torch.Generator(machine.device).manual_seed(0)
    signals = own.repeat(-(-count // len(own)), 1)[:count]
    return signals + 0.01 * torch.randn(signals.shape, device=machine.device, generator=generator)


def _residual(signals: torch.Tensor, atoms: torch.Tensor, codes: torch.Tensor) -> float:
    return float((signals.double() - codes.double() @ atoms.double()).square().sum().sqrt())
