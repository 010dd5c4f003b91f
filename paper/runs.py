"""Runs of the methods; each is saved as one JSON file, so that an interrupted reproduction resumes."""

from __future__ import annotations

import hashlib
import json
import math
import os
import platform
import re
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from paper.data import Data
from paper.literal import run_literal
from paper.measure import BestAtoms, peak_bytes, timed
from paper.published import Settings, run_published, train_dictionary
from paper.settings import COLUMNS, GAMMA, STUDIES, TABLE, TRAINING, UNTIMED, methods_of, settings_of
from rkdl import DL, __version__

Run = dict[str, Any]
#: Column or study, method and round.
Unit = tuple[str, str, int]
#: Runs by column or study, method and round.
Runs = dict[str, dict[str, dict[int, Run]]]

#: Errors, codes, seconds, those of the training of D, and a run of two iterations.
Outcome = tuple[Sequence[float], np.ndarray, float, float, Callable[[], object]]

# The authors' program takes minutes on more signals than these, and is run in one round only.
_LITERAL_SIGNALS = 2000


def plan(n_rounds: int, n_signals: int, columns: Sequence[str], methods: Sequence[str]) -> list[Unit]:
    """All runs, in order; the longest come last."""
    parts = [*columns, *(study for study, column in STUDIES.items() if column in columns)]
    units = []
    for part in sorted(parts, key=lambda part: part == "literal"):
        last = 1 if part == "literal" and n_signals > _LITERAL_SIGNALS else n_rounds
        chosen = [method for method in methods_of(part) if method.partition(",")[0] in methods]
        units += [(part, method, number) for number in range(last) for method in chosen]
    return units


def path_of(folder: Path, dataset: str, column: str, method: str, number: int) -> Path:
    """File of a run."""
    return folder / "runs" / slug(dataset) / f"{column}-{slug(method)}-{number}.json"


def slug(name: str) -> str:
    """A name for use in file names."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", os.path.basename(name)).strip("-")


def run_all(folder: Path, dataset: str, data: Data, units: list[Unit], quiet: bool = False) -> None:
    """Run what is missing in the folder, or was run with other settings, signals or versions."""
    made_with = {"signals": hashlib.sha256(data.signals.tobytes()).hexdigest(), **provenance()}
    missing = []
    for column, method, number in units:
        expected = {"made_with": made_with, "settings": settings_of(column, method, dataset)}
        if not expected.items() <= _read(path_of(folder, dataset, column, method, number)).items():
            missing.append((column, method, number))
    if not missing:
        return
    scale = BestAtoms(data.signals, GAMMA)
    rounds: dict[tuple[str, int], Round] = {}
    for column, method, number in (bar := tqdm(missing, disable=quiet, leave=False)):
        bar.set_description(f"{dataset}, {column} {method}, round {number + 1}")
        if (column, number) not in rounds:
            rounds = {(column, number): Round(column, data.signals, number, scale)}
        settings = settings_of(column, method, dataset)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = rounds[column, number].run(method, settings)
        found["warnings"] = sorted({str(warning.message) for warning in caught})
        path = path_of(folder, dataset, column, method, number)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".part")
        temporary.write_text(json.dumps({**found, "settings": settings, "made_with": made_with}, indent=1))
        os.replace(temporary, path)


def read_all(folder: Path, dataset: str, units: list[Unit]) -> Runs:
    """Runs in the folder, of those listed."""
    runs: Runs = {}
    for column, method, number in units:
        found = _read(path_of(folder, dataset, column, method, number))
        if found:
            # JSON has no NaN: an error that is None has diverged.
            found["errors"] = [math.nan if error is None else error for error in found["errors"]]
            runs.setdefault(column, {}).setdefault(method, {})[number] = found
    return runs


def provenance() -> dict[str, Any]:
    """Versions and machine that results and times depend on."""
    packages = {name: version(name) for name in ("numpy", "scipy", "scikit-learn", "numba")}
    machine = {"python": platform.python_version(), "cores": os.cpu_count(), "processor": _processor()}
    return {"rkdl": __version__, **packages, **machine}


def _processor() -> str:
    cpus = Path("/proc/cpuinfo")
    names = re.findall(r"model name\s*: (.*)", cpus.read_text()) if cpus.exists() else [platform.processor()]
    return names[0] if names else platform.machine()


def _read(path: Path) -> Run:
    return json.loads(path.read_text()) if path.exists() else {}


class Round:
    """One round of a column or study, whose methods share the signals, the seed, D and the first A."""

    def __init__(self, column: str, signals: np.ndarray, seed: int, scale: BestAtoms) -> None:
        self.column, self.signals, self.seed, self.scale = column, signals, seed, scale
        self._trained: dict[str, tuple[np.ndarray, float]] = {}

    def run(self, method: str, settings: dict[str, Any]) -> Run:
        """Results of one method."""
        fit = self._fit if self.column in TABLE else self._publish
        errors, codes, seconds, training, short = fit(method, settings)
        return {
            "errors": [_finite(float(error)) for error in errors],
            "best_error": _finite(self.scale.error(codes)),
            "nonzeros": float(np.count_nonzero(codes)) / len(codes),
            "seconds": _finite(seconds + training),
            # Two iterations show the peak.
            "peak_bytes": peak_bytes(short) if self.column in COLUMNS else None,
        }

    def _fit(self, method: str, settings: dict[str, Any]) -> Outcome:
        given = dict(settings)
        start, training = given.pop("start of D", "noise"), 0.0
        if given.get("kernel_vectors") == "dictionary":
            given["kernel_vectors"], training = self._dictionary(start)
        if "n_kernel_vectors" in given and given.get("init") == "random":
            shape = given["n_components"], given["n_kernel_vectors"]
            given["init"] = np.random.RandomState(self.seed).standard_normal(shape)
        estimator = partial(TABLE[self.column][method][0], random_state=self.seed)
        model, seconds = self._timed(lambda: estimator(**given).fit(self.signals))
        # As the paper reports them: after an update, with the codes that it was computed from.
        errors, codes = model.update_errors_, model.transform(self.signals)
        return errors, codes, seconds, training, lambda: estimator(**given | {"max_iter": 2}).fit(self.signals)

    def _publish(self, method: str, settings: dict[str, Any]) -> Outcome:
        vectors, training = None, 0.0
        if method != "KDL":
            vectors, training = self._dictionary("noise")
        given = Settings(**settings)
        if self.column == "literal":
            errors, seconds, codes = run_literal(method, self.signals.astype(np.float64), vectors, given, self.seed)
            return errors, codes, seconds, training, lambda: None
        dense = self.column == "published"
        run = partial(run_published, method, self.signals, vectors, seed=self.seed, dense=dense)
        (errors, codes), seconds = self._timed(lambda: run(given))
        return errors, codes, seconds, training, lambda: run(given._replace(n_iter=2))

    def _dictionary(self, start: str) -> tuple[np.ndarray, float]:
        """D, the linear dictionary that AK-SVD learns from noise or from signals, and the seconds that it takes."""

        def train() -> np.ndarray:
            if self.column not in TABLE:
                return train_dictionary(self.signals, Settings(), self.seed)
            init = "random" if start == "noise" else "data"
            return DL(**TRAINING, init=init, random_state=self.seed).fit(self.signals).components_

        if start not in self._trained:
            self._trained[start] = self._timed(train)
        return self._trained[start]

    def _timed(self, run: Callable[[], Any]) -> tuple[Any, float]:
        return (run(), math.nan) if self.column in UNTIMED else timed(run)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
