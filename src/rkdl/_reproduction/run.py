"""The loop over data sets, rounds, presets and methods."""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import groupby
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from rkdl._reproduction.data import Dataset
from rkdl._reproduction.one_scale import OneScale
from rkdl._reproduction.paper import OWN, PRESETS, STUDIES
from rkdl._reproduction.presets import PUBLISHED, Round, base_of, methods_of, settings_of
from rkdl._reproduction.progress import Progress, Unit, guess_work
from rkdl._reproduction.store import Results

# The published KDL stores the kernel matrix in float64, and NumPy makes a copy or two of it; the residual is one more.
_PUBLISHED_COPIES = 4
# Most signals of a data set that everything is run on before the clock starts.
WARM_UP_SIGNALS = 1024


class Plan(NamedTuple):
    """The runs requested by a command.

    Parameters
    ----------
    datasets : list of Dataset
        Loaded data sets.
    presets : list of str or None
        Presets; None for all of them on the paper's data and for a study of its own on a user's.
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
    presets: list[str] | None
    methods: tuple[str, ...]
    n_rounds: int
    seed: int
    iterations: int | None
    n_jobs: int | None

    def presets_of(self, data: Dataset) -> list[str]:
        """Presets of a data set, each followed by the studies that belong to it."""
        if self.presets is None and data.is_own and data.facts["printed"] is None:
            return [OWN]
        found = []
        for preset in PRESETS if self.presets is None else self.presets:
            # Studies compare with KDL.
            studies = [study for study, (whose, _) in STUDIES.items() if whose == preset and "KDL" in self.methods]
            found += [name for name in (preset, *studies) if self.methods_of(name, data)]
        return found

    def methods_of(self, preset: str, data: Dataset) -> list[str]:
        """Methods to run in a preset, in the order of tables."""
        methods = methods_of(preset, len(data.signals))
        return [method for method in methods if base_of(method) in self.methods]

    def rounds_of(self, preset: str) -> int:
        """Number of rounds of a preset."""
        most = STUDIES[preset][1] if preset in STUDIES else None
        return self.n_rounds if most is None else min(most, self.n_rounds)

    def settings_of(self, preset: str, method: str, data: Dataset, iterations: int | None = None) -> dict[str, Any]:
        """Settings of a run; `iterations` replaces the plan's."""
        return settings_of(preset, method, data.name, iterations or self.iterations, data.gamma)


def prepare(plan: Plan, results: Results) -> list[Unit]:
    """Check the plan against the folder's results, and list the remaining units."""
    for preset in plan.presets or ():
        if not any(plan.methods_of(preset, data) for data in plan.datasets):
            requested, known = ", ".join(plan.methods), ", ".join(methods_of(preset))
            raise ValueError(f"the preset {preset} has none of the methods {requested}; it has {known}")
    units = []
    for data in plan.datasets:
        for preset in plan.presets_of(data):
            for method in plan.methods_of(preset, data):
                results.expect(data, preset, method, plan.settings_of(preset, method, data))
    for data in plan.datasets:
        for number in range(plan.n_rounds):
            for preset in plan.presets_of(data):
                if number < plan.rounds_of(preset):
                    units += [
                        _unit(plan, data, preset, method, number)
                        for method in plan.methods_of(preset, data)
                        if not results.has(data, preset, method, number)
                    ]
    for unit in units:
        if unit.preset in PUBLISHED and unit.method == "KDL":
            _check_memory(next(data for data in plan.datasets if data.name == unit.dataset))
    return units


def _unit(plan: Plan, data: Dataset, preset: str, method: str, number: int) -> Unit:
    settings = plan.settings_of(preset, method, data)
    n_iterations = settings.get("max_iter") or settings["n_iter"]
    n_signals, n_features = data.signals.shape
    work = guess_work(preset, base_of(method), n_signals, n_features, n_iterations)
    return Unit(data.name, preset, method, number, work)


def execute(plan: Plan, units: Sequence[Unit], results: Results, progress: Progress) -> None:
    """Run the units; each is saved to results.json before the next begins."""
    by_name = {data.name: data for data in plan.datasets}
    for name, of_data in groupby(units, lambda unit: unit.dataset):
        data = by_name[name]
        scale = OneScale(data.signals, data.gamma)
        for (preset, number), of_round in groupby(of_data, lambda unit: (unit.preset, unit.number)):
            seed = plan.seed + number
            shared = Round(preset, data.signals, seed, plan.n_jobs, scale)
            for unit in of_round:
                progress.begin(unit)
                begin = perf_counter()
                try:
                    outcome = shared.run(unit.method, plan.settings_of(preset, unit.method, data), number == 0)
                except ValueError as error:
                    text = " ".join(str(error).split())
                    raise ValueError(f"{data.name}, {preset} {unit.method}: {text}") from error
                results.add(data, preset, unit.method, number, seed, outcome)
                progress.finish(unit, perf_counter() - begin)


def warm_up(plan: Plan, units: Sequence[Unit]) -> None:
    """Run everything once on some of the signals, so that times exclude compilation and loading.

    Which compiled functions a fit calls depends on the dtype, the sizes and the share of zeros, so it is done with
    signals of every data set. Whatever is compiled later nevertheless is left out of the times by `measure.timed`.
    """
    by_name = {data.name: data for data in plan.datasets}
    for name, preset in dict.fromkeys((unit.dataset, unit.preset) for unit in units):
        if preset in PUBLISHED:
            continue  # nothing is compiled there
        data = by_name[name]
        signals = np.ascontiguousarray(data.signals[:: -(-len(data.signals) // WARM_UP_SIGNALS)])
        shared = Round(preset, signals, 0, plan.n_jobs)
        for method in plan.methods_of(preset, data):
            shared.run(method, plan.settings_of(preset, method, data, 2))


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
