"""The file results.json: every run with its provenance, replaced atomically."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import math
import os
import platform
import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any

from rkdl._persistence.files import OWN_PREFIX, open_regular, replacing
from rkdl._reproduction.checks import find_fault
from rkdl._reproduction.data import Dataset, slug
from rkdl._reproduction.paper import STUDIES
from rkdl._reproduction.presets import Outcome

FORMAT = 3
FILENAME, PAGE = "results.json", "index.html"
_PACKAGES = ("rkdl", "numpy", "scipy", "scikit-learn", "numba")
_REMEDY = "choose another folder with --out, or start over with --fresh"
_FOREIGN = "choose another folder with --out"
# Far more than all rounds of all data sets need.
_LARGEST_RESULTS = 256 << 20


class Results:
    """The content of a folder's results.json, to which runs are added.

    Parameters
    ----------
    folder : Path
        The folder; created when the first run is added.
    content : dict
        Content of the file.
    made_with : dict
        Metadata recorded with every run.
    discarded : sequence of str, default=()
        Files of earlier results, to be deleted.
    """

    def __init__(
        self, folder: Path, content: dict[str, Any], made_with: dict[str, Any], discarded: Sequence[str] = ()
    ) -> None:
        self.folder = folder
        self.content = content
        self._made_with = made_with
        self._discarded = tuple(discarded)

    @classmethod
    def open(cls, folder: Path, settings: dict[str, Any], fresh: bool) -> Results:
        """Start a folder or resume its results; raises a ValueError that names any difference."""
        header: dict[str, Any] = {
            "format": FORMAT,
            "machine": describe_machine(),
            "settings": settings,
            "versions": package_versions(),
        }
        path = folder / FILENAME
        begun = {**header, "datasets": {}, "files": []}
        if not os.path.lexists(path):
            _check_unused(folder)
            return cls(folder, begun, _per_run(header))
        if path.is_symlink():
            raise ValueError(f"{path} is a link, not a file of rkdl reproduce: {_FOREIGN}")
        content = read_results(path)
        if fresh:
            return cls(folder, begun, _per_run(header), content["files"])
        for part in ("settings", "versions", "machine"):
            difference = _first_difference(_binding(content[part]), _binding(header[part]))
            if difference:
                raise ValueError(f"{path} was made with other {part} ({difference}): {_REMEDY}")
        return cls(folder, content, _per_run(header))

    def expect(self, data: Dataset, preset: str, method: str, settings: dict[str, Any]) -> None:
        """Add an entry for a method; raises a ValueError if the folder holds runs with other data or settings."""
        where = f"{self.folder / FILENAME} was made with"
        for other in self.content["datasets"]:
            if other != data.name and slug(other) == slug(data.name):
                raise ValueError(f"{where} {other}, whose file name is that of {data.name}: {_REMEDY}")
        entry = self.content["datasets"].setdefault(data.name, {**data.facts, "presets": {}})
        if entry["sha256"] != data.facts["sha256"]:
            raise ValueError(f"{where} other data for {data.name} ({entry['description']}): {_REMEDY}")
        methods = entry["presets"].setdefault(preset, {})
        place = methods.setdefault(method, {"rounds": [], "settings": settings})
        difference = _first_difference(place["settings"], settings)
        if difference:
            raise ValueError(f"{where} other settings for {preset} {method} ({difference}): {_REMEDY}")

    def has(self, data: Dataset, preset: str, method: str, number: int) -> bool:
        """Whether a run exists already; rounds count from 0."""
        rounds = self.content["datasets"][data.name]["presets"][preset][method]["rounds"]
        return any(record["round"] == number for record in rounds)

    def add(self, data: Dataset, preset: str, method: str, number: int, seed: int, outcome: Outcome) -> None:
        """Add a run and write the file; models of the first round are saved too."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if number == 0 and outcome.model is not None and preset not in STUDIES:
            self._save_model(model_name(data.name, preset, method), outcome.model)
        rounds = self.content["datasets"][data.name]["presets"][preset][method]["rounds"]
        record = {
            "best_error": outcome.best_error,
            "dictionary_seconds": outcome.dictionary_seconds,
            "errors": [error if math.isfinite(error) else None for error in outcome.errors],
            "made_with": self._made_with,
            "mean_nonzeros": outcome.mean_nonzeros,
            "peak_bytes": outcome.peak_bytes,
            "round": number,
            "seconds": outcome.seconds,
            "seed": seed,
            "warnings": outcome.warnings,
        }
        rounds.append(record)
        rounds.sort(key=lambda found: found["round"])
        self.save()

    def _save_model(self, name: str, model: Any) -> None:
        """Save an estimator for `rkdl.load`, which writes files of its own."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.npz"
            model.save(path)
            with self.writing(name) as stream:
                stream.write(path.read_bytes())

    def save(self) -> None:
        """Replace the file atomically."""
        with replacing(self.folder / FILENAME) as stream:
            stream.write(to_json(self.content).encode())

    @contextlib.contextmanager
    def writing(self, name: str) -> Iterator[IO[bytes]]:
        """Open a file of the folder for atomic writing; files that do not belong to the results are never replaced."""
        self.refuse_foreign([name])
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name not in self.content["files"]:
            # List the file before writing it, so that it is recognised as ours if the process is killed in between.
            self.content["files"] = sorted([*self.content["files"], name])
            self.save()
        with replacing(path) as stream:
            yield stream

    def refuse_foreign(self, names: Iterable[str]) -> None:
        """Refuse existing files that belong neither to these results nor to those they replace."""
        for name in names:
            path = self.folder / name
            if path.parent != self.folder and os.path.lexists(path.parent) and not _is_own_folder(path.parent):
                raise ValueError(f"{path.parent} is not a folder of these results but a link or a file: {_FOREIGN}")
            is_ours = name in (*self.content["files"], *self._discarded) and _is_own_file(path)
            if os.path.lexists(path) and not is_ours:
                raise ValueError(f"{path} was not written by rkdl reproduce according to {FILENAME}: {_FOREIGN}")

    def discard(self) -> None:
        """Delete the listed files of the earlier results, except links."""
        for name in self._discarded:
            path = self.folder / name
            if _is_own_file(path) and (path.parent == self.folder or _is_own_folder(path.parent)):
                path.unlink()
        self._discarded = ()


def model_name(dataset: str, preset: str, method: str) -> str:
    """Path in the folder of the model of a method's first round, a file for `rkdl.load`."""
    return f"models/{slug(dataset)}-{preset}-{slug(method)}.npz"


def figure_names(stem: str) -> tuple[str, str]:
    """Paths in the folder of a figure, for screen and print."""
    return f"figures/{stem}.png", f"figures/{stem}.svg"


#: Figures of a data set; `SUMMARY_FIGURE` is one for all of them.
FIGURES = ("errors", "kernel-vectors", "sizes")
SUMMARY_FIGURE = "against-kdl"


def output_names(dataset: str, runs: Iterable[tuple[str, str]]) -> list[str]:
    """All files that runs of a data set, given as preset and method, may write into the folder besides the results."""
    names = [PAGE, *figure_names(SUMMARY_FIGURE)]
    names += [name for figure in FIGURES for name in figure_names(f"{slug(dataset)}-{figure}")]
    return names + [model_name(dataset, preset, method) for preset, method in runs if preset not in STUDIES]


def _check_unused(folder: Path) -> None:
    """Refuse a folder with other content and no results."""
    if not folder.is_dir():
        return
    found = sorted(path.name for path in folder.iterdir() if not path.name.startswith(OWN_PREFIX))
    if found:
        raise ValueError(
            f"{folder} holds {found[0]} and no {FILENAME}, so it is not a folder of rkdl reproduce: choose a new or "
            f"empty one with --out"
        )


def _is_own_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _is_own_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def read_results(path: Path) -> dict[str, Any]:
    """Read and validate a results file; raises a ValueError with a one-line message."""
    try:
        with open_regular(path) as stream:
            text = stream.read(_LARGEST_RESULTS + 1)
        if len(text) > _LARGEST_RESULTS:
            raise ValueError(f"more than {_LARGEST_RESULTS >> 20} MiB")
        content = json.loads(text)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror or error})") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not a results file, or incomplete ({error}): {_FOREIGN}") from error
    parts = ("datasets", "machine", "settings", "versions")
    if not isinstance(content, dict) or not all(isinstance(content.get(part), dict) for part in parts):
        raise ValueError(f"{path}: not a results file of rkdl reproduce: {_FOREIGN}")
    if content.get("format") != FORMAT:
        raise ValueError(f"{path}: its format is {content.get('format')!r}, this version reads {FORMAT}: {_FOREIGN}")
    fault = find_fault(content)
    if fault:
        raise ValueError(f"{path}: not a results file of rkdl reproduce, or damaged ({fault}): {_FOREIGN}")
    return content


def to_json(content: dict[str, Any]) -> str:
    """Serialise with sorted keys and one line per curve."""
    text = json.dumps(content, indent=1, sort_keys=True, allow_nan=False)
    return re.sub(r"\[[^][{}\"]*\]", lambda found: " ".join(found[0].split()), text) + "\n"


def package_versions() -> dict[str, str]:
    """Versions of the packages that affect results, and a digest of rkdl's source."""
    from rkdl import __version__

    found = {"python": platform.python_version(), "rkdl": __version__, "rkdl source": source_digest()}
    for package in _PACKAGES[1:]:
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


@functools.cache  # cached, because source files may change while the process runs
def source_digest() -> str:
    """Twelve hexadecimal digits that change with any source file of rkdl."""
    root = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def describe_machine() -> dict[str, Any]:
    """Machine properties that affect times."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"cores": cores, "processor": _processor(), "system": platform.system()}


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return " ".join(line.partition(":")[2].split())
    return platform.processor() or platform.machine()


# Runs may differ in these, so they are recorded per run.
_FREE = ("cores", "n_jobs")
_PATCH_FREE = ("numpy", "python", "scipy")


def _binding(part: dict[str, Any]) -> dict[str, Any]:
    """The part that all runs of a folder must share."""
    return {
        key: ".".join(str(value).split(".")[:2]) if key in _PATCH_FREE else value
        for key, value in part.items()
        if key not in _FREE
    }


def _per_run(header: dict[str, Any]) -> dict[str, Any]:
    everything = {**header["machine"], **header["settings"], **header["versions"]}
    return {key: everything[key] for key in sorted((*_FREE, *_PATCH_FREE)) if key in everything}


def _first_difference(then: dict[str, Any], now: dict[str, Any]) -> str:
    for key in sorted({*then, *now}):
        if then.get(key) != now.get(key):
            return f"{key} {_shown(then.get(key))}, now {_shown(now.get(key))}"
    return ""


def _shown(value: Any) -> str:
    return "not set" if value is None else str(value)
