"""The loop over data sets, rounds, presets and methods."""

from __future__ import annotations

import os
from collections.abc import Sequence
from time import perf_counter
from typing import NamedTuple

import numpy as np

from rkdl._reproduction.data import Dataset
from rkdl._reproduction.presets import Round, methods_of, settings_of
from rkdl._reproduction.progress import Progress, Unit, guess_work
from rkdl._reproduction.store import Results

# The published KDL stores the kernel matrix in float64, and NumPy makes a copy or two of it.
_PUBLISHED_COPIES = 3


class Plan(NamedTuple):
    """The runs requested by a command.

    Parameters
    ----------
    datasets : list of Dataset
        Loaded data sets.
    presets : list of str
        Presets.
    methods : tuple of str
        Methods; a preset runs those that it has.
    n_rounds, seed : int
        Round i has the seed ``seed + i``.
    iterations : int or None
        Number of iterations; None for the presets' own.
    n_jobs : int or None
        Threads.
    """

    datasets: list[Dataset]
    presets: list[str]
    methods: tuple[str, ...]
    n_rounds: int
    seed: int
    iterations: int | None
    n_jobs: int | None

    def methods_of(self, preset: str) -> list[str]:
        """Methods to run in a preset, in the order of tables."""
        return [method for method in self.methods if method in methods_of(preset)]


def prepare(plan: Plan, results: Results) -> list[Unit]:
    """Check the plan against the folder's results, and list the remaining units."""
    for preset in plan.presets:
        if not plan.methods_of(preset):
            requested, known = ", ".join(plan.methods), ", ".join(methods_of(preset))
            raise ValueError(f"the preset {preset} has none of the methods {requested}; it has {known}")
    units = []
    for data in plan.datasets:
        n_signals, n_features = data.signals.shape
        for preset in plan.presets:
            for method in plan.methods_of(preset):
                settings = settings_of(preset, method, data.name, plan.iterations)
                results.expect(data, preset, method, settings)
    for data in plan.datasets:
        n_signals, n_features = data.signals.shape
        for number in range(plan.n_rounds):
            for preset in plan.presets:
                for method in plan.methods_of(preset):
                    if not results.has(data, preset, method, number):
                        settings = settings_of(preset, method, data.name, plan.iterations)
                        n_iterations = settings.get("max_iter") or settings["n_iter"]
                        work = guess_work(preset, method, n_signals, n_features, n_iterations)
                        units.append(Unit(data.name, preset, method, number, work))
    for unit in units:
        if unit.preset == "published" and unit.method == "KDL":
            _check_memory(next(data for data in plan.datasets if data.name == unit.dataset))
    return units


def execute(plan: Plan, units: Sequence[Unit], results: Results, progress: Progress) -> None:
    """Run the units; each is saved to results.json before the next begins."""
    by_name = {data.name: data for data in plan.datasets}
    shared: Round | None = None
    current = None
    for unit in units:
        data = by_name[unit.dataset]
        seed = plan.seed + unit.number
        if current != (unit.dataset, unit.preset, unit.number):
            current = unit.dataset, unit.preset, unit.number
            shared = Round(unit.preset, data.signals, seed, plan.n_jobs)
        assert shared is not None
        progress.begin(unit)
        settings = settings_of(unit.preset, unit.method, data.name, plan.iterations)
        begin = perf_counter()
        try:
            outcome = shared.run(unit.method, settings)
        except ValueError as error:
            text = " ".join(str(error).split())
            raise ValueError(f"{data.name}, {unit.preset} {unit.method}: {text}") from error
        results.add(data, unit.preset, unit.method, unit.number, seed, outcome)
        progress.finish(unit, perf_counter() - begin)


def warm_up(plan: Plan, units: Sequence[Unit]) -> None:
    """Run everything once on a few signals, so that times exclude compilation and loading."""
    if not units:
        return
    dtype = plan.datasets[0].signals.dtype
    signals = np.random.RandomState(0).random_sample((64, 8)).astype(dtype)
    signals /= np.linalg.norm(signals, axis=1, keepdims=True)
    for preset in plan.presets:
        shared = Round(preset, signals, 0, plan.n_jobs)
        for method in plan.methods_of(preset):
            shared.run(method, settings_of(preset, method, "", 2))


def _check_memory(data: Dataset) -> None:
    needed = _PUBLISHED_COPIES * 8 * len(data.signals) ** 2
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return
    if needed > memory:
        raise ValueError(
            f"{data.name}: the published KDL needs {needed / 2**30:.1f} GiB for {len(data.signals)} signals, but this "
            f"machine has {memory / 2**30:.1f}; exclude it with --preset or --methods"
        )
