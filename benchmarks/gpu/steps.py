"""Speed of the pursuit at neighbouring sizes, where one more atom or non-zero may select a slower kernel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks.gpu.machine import Machine
from benchmarks.gpu.rows import Row, markdown, measured
from rkdl._backends.torch.pursuit import pursue

N_FEATURES = 256
# Where the padded length of a vector changes.
ATOMS = [256, 257, 320, 321, 384, 385, 512, 513, 1024, 1025, 1280, 1281, 1536, 1537, 2048, 2049, 4096, 4097, 5120, 5121]
ATOMS += [8192, 8193, 12288, 12289, 14336, 14337, 16384]
POWERS = [256, 257, 512, 513, 1024, 1025, 2048, 2049, 4096, 4097, 8192, 8193, 16384]
NONZEROS = [*range(8, 18), 24, 25, 32, 33, 40, 48, 49, 64, 65, 80, 81, 82, 96, 97, 128]
# Lines of the table: the atoms and non-zeros of each size.
LINES = {
    "n, with s = 8": {n_atoms: (n_atoms, 8) for n_atoms in POWERS},
    "n, with s = 20": {n_atoms: (n_atoms, 20) for n_atoms in ATOMS},
    "n, with s = 64": {n_atoms: (n_atoms, 64) for n_atoms in POWERS},
    "s, with n = 256": {n_nonzero: (256, n_nonzero) for n_nonzero in NONZEROS},
    "s, with n = 1024": {n_nonzero: (1024, n_nonzero) for n_nonzero in NONZEROS},
}


def run(machine: Machine, out: Path) -> Iterator[Row]:
    """Signals per second for every size."""
    known = set()
    for sizes in LINES.values():
        for n_atoms, n_nonzero in list(sizes.values())[: 4 if machine.small else None]:
            if (n_atoms, n_nonzero) in known:
                continue
            known.add((n_atoms, n_nonzero))
            count = 200 if machine.small else n_signals(n_atoms, n_nonzero)
            rate = _rate(machine, n_atoms, n_nonzero, count)
            yield measured(_name(n_atoms, n_nonzero), rate / 1e6, "M signals/s", f"{count:,} signals")


def n_signals(n_atoms: int, n_nonzero: int) -> int:
    """So many signals that every size takes about equally long, within bounds; a multiple of 16."""
    return max(4_000, min(300_000, int(1.2e6 * (1024 / n_atoms) * (16 / n_nonzero) ** 1.6))) // 16 * 16


def table(rows: list[Row]) -> list[str]:
    """One line for each of `LINES`: the rates, the ratios of neighbours, and the largest ratio."""
    text = (
        "The pursuit alone, OLS in float32 with correlations and Gram matrix given: millions of signals per second for "
        "n atoms and s non-zeros. If a size is greater by one than the size before it, the number in parentheses is "
        "the ratio of their times per signal."
    )
    rates = {row.what: row.figures["value"] for row in rows}
    lines = []
    for heading, sizes in LINES.items():
        found = {size: rates[_name(*pair)] for size, pair in sizes.items() if _name(*pair) in rates}
        if found:
            lines.append([heading, *_cells(found)])
    return [text, "", *markdown(["sizes", "M signals/s", "largest ratio"], lines)]


def _cells(rates: dict[int, float]) -> tuple[str, str]:
    """All rates of a line with the ratios of neighbours, and the largest ratio."""
    ratios = {size: rates[size - 1] / rate for size, rate in rates.items() if size - 1 in rates}
    parts = [
        f"{size}: {rate:.3g}" + (f" ({ratios[size]:.2f})" if size in ratios else "") for size, rate in rates.items()
    ]
    if not ratios:
        return ", ".join(parts), ""
    size = max(ratios, key=lambda size: ratios[size])
    return ", ".join(parts), f"{ratios[size]:.2f}, from {size - 1} to {size}"


def _rate(machine: Machine, n_atoms: int, n_nonzero: int, count: int) -> float:
    """Signals per second of the pursuit."""
    generator = torch.Generator(machine.device).manual_seed(0)
    signals, atoms = (
        torch.nn.functional.normalize(
            torch.randn((rows, N_FEATURES), device=machine.device, generator=generator), dim=1
        )
        for rows in (count, n_atoms)
    )
    correlations, gram, squared_norms = signals @ atoms.T, atoms @ atoms.T, signals.square().sum(1)
    spent, _ = machine.seconds(lambda: pursue(correlations, gram, squared_norms, n_nonzero, -1.0, "ols"), 3)
    return count / spent


def _name(n_atoms: int, n_nonzero: int) -> str:
    return f"n = {n_atoms}, s = {n_nonzero}"
