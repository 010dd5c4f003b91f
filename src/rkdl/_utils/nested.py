"""Values that hold others: tuples, lists, dictionaries and dataclasses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any


def map_parts(function: Callable[[Any], Any], value: Any) -> Any:
    """The same kind of value with `function` of everything in it; a value that holds nothing is returned as it is."""
    if isinstance(value, tuple):
        parts = [function(part) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, list):
        return [function(part) for part in value]
    if isinstance(value, dict):
        return {key: function(part) for key, part in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        held = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
        mapped = {name: function(part) for name, part in held.items()}
        # What has changed in no part stays the object that it is.
        is_same = all(mapped[name] is part for name, part in held.items())
        return value if is_same else replace(value, **mapped)
    return value
