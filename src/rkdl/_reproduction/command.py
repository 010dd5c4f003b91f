"""``rkdl reproduce``: load, run, report."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np

from rkdl._reproduction.data import Dataset, load_datasets
from rkdl._reproduction.page import write_page
from rkdl._reproduction.paper import METHODS, PRESETS
from rkdl._reproduction.progress import Progress
from rkdl._reproduction.render import as_text, check_engine
from rkdl._reproduction.report import build_report
from rkdl._reproduction.run import Plan, execute, prepare, warm_up
from rkdl._reproduction.store import FILENAME, Results, output_names
from rkdl._reproduction.terminal import complain, say
from rkdl._utils.text import shown

#: Rounds of the paper; and of the bundled digits, in less than a minute, and of a user's signals.
N_ROUNDS, N_QUICK_ROUNDS = 10, 3


def reproduce(options: argparse.Namespace) -> int:
    """Run the command with the options of `rkdl._cli`; returns the exit code."""
    check_engine()
    folder = _output_folder(options.out)
    dtype = np.float64 if options.float64 else np.float32
    datasets = load_datasets(
        options.datasets or ["digits"],
        options.label,
        options.data_dir,
        dtype,
        not options.no_download,
        not options.no_scaling,
    )
    for problem in filter(None, (data.scaling_problem() for data in datasets)):
        complain(f"rkdl: warning: {problem}")
    plan = Plan(
        datasets=datasets,
        presets=None if options.preset is None else [preset for preset in PRESETS if preset in options.preset],
        methods=tuple(method for method in METHODS if method in options.methods),
        n_rounds=options.rounds or (N_QUICK_ROUNDS if all(map(_is_quick, datasets)) else N_ROUNDS),
        seed=options.seed,
        iterations=options.iterations,
        n_jobs=options.n_jobs,
    )
    settings = {
        "dtype": np.dtype(dtype).name,
        "iterations": options.iterations,
        "n_jobs": options.n_jobs,
        "seed": options.seed,
    }
    results = Results.open(folder, settings, options.fresh)
    units = prepare(plan, results)
    for data in datasets:
        runs = [(preset, method) for preset in plan.presets_of(data) for method in plan.methods_of(preset, data)]
        results.refuse_foreign(output_names(data.name, runs))
    folder.mkdir(parents=True, exist_ok=True)
    results.discard()
    results.save()

    progress = Progress(units, plan.n_rounds, options.quiet)
    try:
        warm_up(plan, units)
        execute(plan, units, results, progress)
    except KeyboardInterrupt:
        progress.close()
        return _interrupted(results, len(units), progress.n_done, options.quiet)
    finally:
        progress.close()
    page, notes = write_page(results)
    if not options.quiet:
        say(as_text(build_report(results.content)))
        say("")
    for note in notes:
        complain(note)
    say(f"{len(units)} runs completed; results: {shown(folder / FILENAME)}; page: {shown(page)}")
    return 0


def _interrupted(results: Results, n_units: int, n_done: int, quiet: bool) -> int:
    if not quiet and n_done:
        say(as_text(build_report(results.content)))
        say("")
    complain(
        f"rkdl: interrupted after {n_done} of {n_units} runs, saved in {shown(results.folder / FILENAME)}; "
        f"run the same command again to resume"
    )
    return 130


def _is_quick(data: Dataset) -> bool:
    return data.name == "digits" or data.is_own


def _output_folder(name: str) -> Path:
    if not name.strip():
        raise ValueError("--out is empty; give a folder")
    folder = Path(os.path.expanduser(name))
    if os.path.lexists(folder) and not folder.is_dir():
        raise ValueError(f"{folder} is not a folder; choose another with --out")
    existing = next((path for path in (folder, *folder.absolute().parents) if path.is_dir()), None)
    if existing is None or not os.access(existing, os.W_OK):
        raise ValueError(f"{folder} cannot be written to; choose another with --out")
    return folder
