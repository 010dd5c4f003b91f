"""Sparse coding with few to many non-zeros, beside orthogonal-matching-pursuit-gpu where it can be imported."""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks.gpu.machine import Machine
from benchmarks.gpu.rows import Row, markdown
from rkdl import sparse_encode

# Signals' length, atoms, non-zeros, signals and precision.
SIZES = [
    (64, 256, 6, 1_000_000, torch.float32),
    (256, 1024, 16, 200_000, torch.float32),
    (256, 1024, 17, 200_000, torch.float32),
    (256, 1024, 32, 5_000, torch.float32),
    (256, 1024, 32, 100_000, torch.float32),
    (8064, 1207, 30, 1_200, torch.float32),
    (8064, 1207, 30, 20_000, torch.float32),
    (512, 2048, 64, 5_000, torch.float32),
    (512, 2048, 64, 40_000, torch.float32),
    (768, 4096, 20, 100_000, torch.float32),
    (2304, 16384, 40, 20_000, torch.float32),
    (256, 1024, 32, 100_000, torch.float64),
]
METHODS = ("ols", "omp")


def run(machine: Machine, out: Path) -> Iterator[Row]:
    """Signals coded per second with OLS and OMP, and by the peer."""
    for sizes in SIZES[:3] if machine.small else SIZES:
        yield _encode(machine, *sizes)


def table(rows: list[Row]) -> list[str]:
    """Thousands of signals per second, and how many times as fast as the peer where it was measured."""
    text = (
        "Sparse coding of random signals with a random dictionary, beside `orthogonal-matching-pursuit-gpu` with its "
        "default algorithm: thousands of signals per second for signals of length m, n atoms and s non-zeros, and the "
        "relative error of the representation. Signals and dictionary are tensors on the GPU, and the time includes "
        "the Gram matrix."
    )
    headings = ["m, n, s, signals", "OLS", "OMP", "peer", "OLS / peer", "OMP / peer", "error of OMP", "of the peer"]
    width = max(len(row.cells) for row in rows)
    lines = [row.cells + [""] * (width - len(row.cells)) for row in rows]
    return [text, "", *markdown(headings[:width], lines)]


def use_peer(folder: Path) -> None:
    """Make orthogonal-matching-pursuit-gpu importable from its sources; its compiled part is for the CPU only."""
    sys.path.insert(0, str(folder))
    compiled = types.ModuleType("orthogonal_matching_pursuit_gpu.blas_kernels")
    for name in ("argmax_blast", "ppsv", "update_projections_blast", "update_D_mybest_blast"):
        setattr(compiled, name, None)
    sys.modules.setdefault(compiled.__name__, compiled)


def _encode(machine: Machine, n_features: int, n_atoms: int, n_nonzero: int, count: int, dtype: torch.dtype) -> Row:
    count = 300 if machine.small else count
    generator = torch.Generator(machine.device).manual_seed(0)
    signals, atoms = (
        torch.nn.functional.normalize(
            torch.randn((rows, n_features), dtype=dtype, device=machine.device, generator=generator), dim=1
        )
        for rows in (count, n_atoms)
    )
    spent, errors = {}, {}
    for method in METHODS:
        options = {"n_nonzero_coefs": n_nonzero, "pursuit": method, "sparse_output": True}
        spent[method], codes = machine.seconds(lambda options=options: sparse_encode(signals, atoms, **options), 5)
        errors[method] = _relative_error(signals, atoms, codes.to_dense())
    peer = _peer_codes(machine, signals, atoms, n_nonzero)
    what = f"{n_features}, {n_atoms}, {n_nonzero}, {count:,}{'' if dtype == torch.float32 else ', float64'}"
    cells = [what, *(f"{count / spent[method] / 1e3:,.0f}" for method in METHODS)]
    if peer is not None:
        spent["peer"], codes = peer
        errors["peer"] = _relative_error(signals, atoms, codes)
        cells += [f"{count / spent['peer'] / 1e3:,.0f}"]
        cells += [f"{spent['peer'] / spent[method]:.1f}" for method in METHODS]
        cells += [f"{errors['omp']:.4f}", f"{errors['peer']:.4f}"]
    rates = {name: count / value for name, value in spent.items()}
    return Row(what, {"signals_per_second": rates, "relative_errors": errors}, cells)


def _relative_error(signals: torch.Tensor, atoms: torch.Tensor, codes: torch.Tensor) -> float:
    return float((signals - codes @ atoms).norm() / signals.norm())


def _peer_codes(
    machine: Machine, signals: torch.Tensor, atoms: torch.Tensor, n_nonzero: int
) -> tuple[float, torch.Tensor] | None:
    """Time and codes of orthogonal-matching-pursuit-gpu with its default algorithm; None if it cannot be imported."""
    try:
        run_omp = importlib.import_module("orthogonal_matching_pursuit_gpu").run_omp
    except ImportError:
        return None
    return machine.seconds(lambda: run_omp(atoms.T, signals, n_nonzero, normalize=False, fit_intercept=False), 2)
