"""Values that hold others: tuples, lists, dictionaries and dataclasses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from operator import is_
from typing import Any


def map_parts(function: Callable[[Any], Any], value: Any) -> Any:
    """Apply `function` to every part of a value and return one of the same type; one without parts is unchanged."""
    if isinstance(value, tuple):
        parts = [function(part) for part in value]
        if all(map(is_, parts, value)):
            # If no part has changed, the object stays the same.
            return value
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, list):
        return [function(part) for part in value]
    if isinstance(value, dict):
        return {key: function(part) for key, part in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        held = {field.name: getattr(value, field.name) for field in fields(value) if field.init}
        mapped = {name: function(part) for name, part in held.items()}
        return value if all(map(is_, mapped.values(), held.values())) else replace(value, **mapped)
    return value
