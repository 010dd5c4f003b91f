"""Rows on fits: time on the device, and comparison with the CPU."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.base import clone

from benchmarks.gpu.machine import Machine
from benchmarks.gpu.rows import Row, measured

# Two errors that differ by less than this agree to three digits.
THREE_DIGITS = 5e-4


def timed_fit(
    machine: Machine, out: Path, name: str, model: Any, signals: torch.Tensor, limit: float, repeats: int, what: str
) -> Row:
    """Time of a fit on the device and the share of matrix products; checks that two fits are bitwise identical."""
    spent, fitted = machine.seconds(lambda: clone(model).fit(signals), repeats)
    again = clone(model).fit(signals)
    assert np.array_equal(fitted.errors_, again.errors_), "two fits ended differently"
    # The profiler is slow on a CPU, and its result is meaningless there.
    profiled = clone(model).set_params(max_iter=1) if machine.small else model
    share = machine.profile(lambda: clone(profiled).fit(signals), out / f"profile-{_file_name(name)}.txt") / spent
    note = f"{what}; {share:.0%} of the time in matrix products; error {fitted.errors_[-1]:.4e}"
    return measured(name, spent, "s", note, f"< {limit} s", spent < limit)


def compared_fit(name: str, machine: Machine, model: Any, signals: np.ndarray) -> Row:
    """Compare the final errors of the same fit on the device and on the CPU."""
    start = time.perf_counter()
    on_cpu = clone(model).set_params(device=None).fit(signals)
    spent = time.perf_counter() - start
    on_device = clone(model).fit(torch.from_numpy(signals).to(machine.device))
    errors = on_device.errors_[-1], on_cpu.errors_[-1]
    return compared_errors(name, *errors, len(signals), f" in {spent:.1f} s")


def compared_errors(name: str, on_device: float, on_cpu: float, count: int, suffix: str = "") -> Row:
    """Relative difference between the errors on the device and on the CPU."""
    gap = abs(on_cpu - on_device) / on_cpu
    note = f"on {count:,} signals: {on_device:.5e} on the GPU, {on_cpu:.5e} on the CPU{suffix}"
    what = f"GPU and CPU errors, {name}"
    return measured(what, gap, "relative difference", note, "three digits", gap < THREE_DIGITS)


def _file_name(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name.lower())
