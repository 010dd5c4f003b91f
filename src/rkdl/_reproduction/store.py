"""results.json: every run, with what it was made from; written whole or not at all."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import math
import os
import platform
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any

import numpy as np

from rkdl._persistence.files import OWN_PREFIX, open_regular, replacing
from rkdl._reproduction.checks import find_fault
from rkdl._reproduction.data import Dataset, slug
from rkdl._reproduction.presets import Outcome

FORMAT = 2
FILENAME, PAGE = "results.json", "index.html"
_PACKAGES = ("rkdl", "numpy", "scipy", "scikit-learn", "numba")
_REMEDY = "give another folder with --out, or start over with --fresh"
_FOREIGN = "give another folder with --out"
# Far more than all rounds of all data sets take.
_LARGEST_RESULTS = 256 << 20


class Results:
    """The content of a folder's results.json, and its growth.

    Parameters
    ----------
    folder : Path
        The folder; made when the first run is added.
    content : dict
        What the file holds.
    made_with : dict
        What is recorded with every run.
    discarded : sequence of str, default=()
        Files of earlier results, which are to go.
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
        """Start a folder, or go on with what it holds; a ValueError names what does not agree."""
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
        """Make a place for runs of a method; a ValueError if the folder holds some of other data or settings."""
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
        """Whether a run is there already; rounds count from 0."""
        rounds = self.content["datasets"][data.name]["presets"][preset][method]["rounds"]
        return any(record["round"] == number for record in rounds)

    def add(self, data: Dataset, preset: str, method: str, number: int, seed: int, outcome: Outcome) -> None:
        """Add a run and write the file; the models of the first round are kept beside it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if number == 0 and outcome.kernel_vectors is not None and outcome.dual_components is not None:
            with self.writing(model_name(data.name, preset, method)) as stream:
                np.savez_compressed(
                    stream,
                    kernel_vectors=outcome.kernel_vectors.astype(np.float32),
                    dual_components=outcome.dual_components.astype(np.float32),
                )
        rounds = self.content["datasets"][data.name]["presets"][preset][method]["rounds"]
        record = {
            "dictionary_seconds": outcome.dictionary_seconds,
            "errors": [error if math.isfinite(error) else None for error in outcome.errors],
            "made_with": self._made_with,
            "mean_nonzeros": outcome.mean_nonzeros,
            "round": number,
            "seconds": outcome.seconds,
            "seed": seed,
            "warnings": outcome.warnings,
        }
        rounds.append(record)
        rounds.sort(key=lambda found: found["round"])
        self.save()

    def save(self) -> None:
        """Write the file beside itself and put it in place, so that a reader never sees half of it."""
        with replacing(self.folder / FILENAME) as stream:
            stream.write(to_json(self.content).encode())

    @contextlib.contextmanager
    def writing(self, name: str) -> Iterator[IO[bytes]]:
        """A stream whose content becomes a file of the folder; one that is not of these results is never replaced."""
        self.refuse_foreign([name])
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name not in self.content["files"]:
            # Said before it is done: should this process be killed in between, the file is known for ours.
            self.content["files"] = sorted([*self.content["files"], name])
            self.save()
        with replacing(path) as stream:
            yield stream

    def refuse_foreign(self, names: Iterable[str]) -> None:
        """Refuse files that are there and that these results, or those they take the place of, did not make."""
        for name in names:
            path = self.folder / name
            if path.parent != self.folder and os.path.lexists(path.parent) and not _is_own_folder(path.parent):
                raise ValueError(f"{path.parent} is not a folder of these results but a link or a file: {_FOREIGN}")
            is_ours = name in (*self.content["files"], *self._discarded) and _is_own_file(path)
            if os.path.lexists(path) and not is_ours:
                raise ValueError(f"{path} was not made by rkdl reproduce, as far as {FILENAME} tells: {_FOREIGN}")

    def discard(self) -> None:
        """Delete the files of the earlier results, and nothing else: what their list names, and is no link."""
        for name in self._discarded:
            path = self.folder / name
            if _is_own_file(path) and (path.parent == self.folder or _is_own_folder(path.parent)):
                path.unlink()
        self._discarded = ()


def model_name(dataset: str, preset: str, method: str) -> str:
    """Where in the folder the kernel vectors and atoms of a method's first round are kept."""
    return f"models/{slug(dataset)}-{preset}-{method}.npz"


def figure_names(stem: str) -> tuple[str, str]:
    """Where in the folder a figure is kept, for screens and for print."""
    return f"figures/{stem}.png", f"figures/{stem}.svg"


def output_names(dataset: str, presets: Iterable[str], methods: Iterable[str]) -> list[str]:
    """All files that runs of a data set may write into the folder, beside the results themselves."""
    stem = slug(dataset)
    names = [PAGE, *figure_names(f"{stem}-errors")]
    methods = list(methods)
    for preset in presets:
        names += [name for what in ("kernel-vectors", "atoms") for name in figure_names(f"{stem}-{preset}-{what}")]
        names += [model_name(dataset, preset, method) for method in methods]
    return names


def _check_unused(folder: Path) -> None:
    """Refuse a folder that holds something and no results: it is somebody else's."""
    if not folder.is_dir():
        return
    found = sorted(path.name for path in folder.iterdir() if not path.name.startswith(OWN_PREFIX))
    if found:
        raise ValueError(
            f"{folder} holds {found[0]} and no {FILENAME}, so it is not a folder of rkdl reproduce: give a new or an "
            f"empty one with --out"
        )


def _is_own_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _is_own_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def read_results(path: Path) -> dict[str, Any]:
    """Read and check a results file; a ValueError says in one line what is wrong with it."""
    try:
        with open_regular(path) as stream:
            text = stream.read(_LARGEST_RESULTS + 1)
        if len(text) > _LARGEST_RESULTS:
            raise ValueError(f"more than {_LARGEST_RESULTS >> 20} MiB")
        content = json.loads(text)
    except OSError as error:
        raise ValueError(f"{path}: cannot be read ({error.strerror or error})") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not a results file, or not whole ({error}): {_FOREIGN}") from error
    parts = ("datasets", "machine", "settings", "versions")
    if not isinstance(content, dict) or not all(isinstance(content.get(part), dict) for part in parts):
        raise ValueError(f"{path}: not a results file of rkdl reproduce: {_FOREIGN}")
    if content.get("format") != FORMAT:
        raise ValueError(f"{path}: its format is {content.get('format')!r}, this version knows {FORMAT}: {_FOREIGN}")
    fault = find_fault(content)
    if fault:
        raise ValueError(f"{path}: not a results file of rkdl reproduce, or spoilt ({fault}): {_FOREIGN}")
    return content


def to_json(content: dict[str, Any]) -> str:
    """Sorted keys, one line a curve."""
    text = json.dumps(content, indent=1, sort_keys=True, allow_nan=False)
    return re.sub(r"\[[^][{}\"]*\]", lambda found: " ".join(found[0].split()), text) + "\n"


def package_versions() -> dict[str, str]:
    """Versions of what the numbers depend on, and a digest of rkdl's own source."""
    from rkdl import __version__

    found = {"python": platform.python_version(), "rkdl": __version__, "rkdl source": source_digest()}
    for package in _PACKAGES[1:]:
        with contextlib.suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


@functools.cache  # of the code that runs: files may change under a running process
def source_digest() -> str:
    """Twelve hexadecimal digits that change with any of rkdl's own source files."""
    root = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def describe_machine() -> dict[str, Any]:
    """What the times depend on."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {"cores": cores, "processor": _processor(), "system": platform.system()}


def _processor() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return " ".join(line.partition(":")[2].split())
    return platform.processor() or platform.machine()


# Runs may differ in these, each of which is recorded with every run.
_FREE = ("cores", "n_jobs")
_PATCH_FREE = ("numpy", "python", "scipy")


def _binding(part: dict[str, Any]) -> dict[str, Any]:
    """What all runs of a folder must share."""
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
