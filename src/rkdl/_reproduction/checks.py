"""Validation of the content of results.json."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from rkdl._persistence.shapes import is_finite_number
from rkdl._reproduction.paper import PRINTED_ERRORS

_Check = Callable[[Any], bool]
_FILES = r"index\.html|models/[A-Za-z0-9_-]+\.npz|figures/[A-Za-z0-9_-]+\.(png|svg)"


def find_fault(content: dict[str, Any]) -> str:
    """Describe the first missing or invalid entry in a few words; empty if there is none."""
    return next(_faults(content), "")


def _faults(content: dict[str, Any]) -> Iterator[str]:
    if not _is_file_list(content.get("files")):
        yield "files"
    yield from _check(content["machine"], "machine", _MACHINE)
    yield from _check(content["versions"], "versions", {"rkdl": _is_text})
    yield from _check(content["settings"], "settings", {"dtype": _is_text, "seed": _is_count})
    for name, entry in content["datasets"].items():
        yield from _check(entry, name, _ENTRY)
        for preset, methods in entry["presets"].items():
            if not isinstance(methods, dict):
                yield f"{name}, {preset}"
            for method, place in methods.items():
                where = f"{name}, {preset} {method}"
                yield from _check(place, where, {"rounds": _is_list, "settings": _is_dict})
                for record in place["rounds"]:
                    yield from _check(record, where, _RECORD)
                    if not isinstance(record.get("made_with", {}), dict):
                        yield f"{where}: made_with"


def _check(found: Any, where: str, wanted: dict[str, _Check]) -> Iterator[str]:
    if not isinstance(found, dict):
        yield where
    for key, is_right in wanted.items():
        if key not in found:
            yield f"{where}: no {key}"
        elif not is_right(found[key]):
            yield f"{where}: {key}"


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool)


def _is_dict(value: Any) -> bool:
    return isinstance(value, dict)


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number_or_none(value: Any) -> bool:
    return value is None or is_finite_number(value)


def _is_curve(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 0 and all(map(_is_number_or_none, value))


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _is_digest(value: Any) -> bool:
    return _is_text(value) and re.fullmatch("[0-9a-f]{64}", value) is not None


def _is_file_list(value: Any) -> bool:
    """Whether all names are files that a run writes, inside the folder."""
    return _is_texts(value) and all(re.fullmatch(_FILES, name) for name in value)


def _is_image_shape(value: Any) -> bool:
    if value is None:
        return True
    return isinstance(value, list) and len(value) in (2, 3) and all(_is_count(size) and size for size in value)


def _is_printed(value: Any) -> bool:
    if value is None:
        return True
    return (
        isinstance(value, dict)
        and value.get("column") in list(PRINTED_ERRORS)
        and isinstance(value.get("same_data"), bool)
    )


_MACHINE: dict[str, _Check] = {"cores": _is_count, "processor": _is_text, "system": _is_text}
_ENTRY: dict[str, _Check] = {
    "description": _is_text,
    "gamma": is_finite_number,
    "image_shape": _is_image_shape,
    "is_file": _is_bool,
    "is_scaled": _is_bool,
    "n_features": _is_count,
    "n_signals": _is_count,
    "presets": _is_dict,
    "printed": _is_printed,
    "remarks": _is_texts,
    "sha256": _is_digest,
}
_RECORD: dict[str, _Check] = {
    "best_error": _is_number_or_none,
    "dictionary_seconds": is_finite_number,
    "errors": _is_curve,
    "mean_nonzeros": _is_number_or_none,
    "peak_bytes": _is_number_or_none,
    "round": _is_count,
    "seconds": is_finite_number,
    "warnings": _is_texts,
}
