"""Integer arrays from a pickle, parsed as data: nothing in the file is ever called."""

from __future__ import annotations

import math
import pickletools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from rkdl._utils.text import shown

__all__ = ["read_pickled_arrays"]

_NUMPY = ("numpy.core", "numpy._core")
_ORDERS = {"|": "=", "=": "=", "<": "<", ">": ">"}
_INTEGERS = ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8")
# A CIFAR-10 batch has four levels of containers and about 40,000 operations.
_DEEPEST, _MOST_OPERATIONS = 32, 1_000_000
# Limit of an axis length, larger than any file read here.
_LONGEST = 2**31


class _Global(NamedTuple):
    """A global name in the pickle; it is compared, never looked up."""

    module: str
    name: str


class _Type:
    """An integer type: its code, and its byte order once known."""

    def __init__(self, code: Any) -> None:
        if not isinstance(code, str) or code not in _INTEGERS:
            raise ValueError(f"the type {_brief(code)} is not allowed in a data file")
        self.code, self.order = code, "="

    def set_state(self, state: Any) -> None:
        version, order, *rest = state
        # Look up text only: hashing deeply nested objects would overflow the stack.
        is_known = isinstance(order, str) and order in _ORDERS
        # A plain integer type has no fields, sub-arrays, sizes or flags.
        if not is_known or version != 3 or tuple(rest) != (None, None, None, -1, -1, 0):
            raise ValueError("a type that is not a plain integer is not allowed in a data file")
        self.order = _ORDERS[order]

    def array(self, shape: Any, content: bytes, is_fortran: bool) -> np.ndarray:
        """The array of these bytes; raises a ValueError if their number does not match the shape."""
        dtype = np.dtype(self.order + self.code)
        if not isinstance(shape, tuple) or not 0 < len(shape) <= 2:
            raise ValueError("an array must have one axis or two")
        # Check bounds before multiplying: integers in a pickle may have millions of digits.
        if not all(type(length) is int and 0 <= length <= _LONGEST for length in shape):
            raise ValueError(f"an array of {len(content)} bytes cannot have its declared shape")
        if math.prod(shape) * dtype.itemsize != len(content):
            raise ValueError(f"an array of shape {shape} has {len(content)} bytes")
        return np.frombuffer(content, dtype=dtype).reshape(shape, order="F" if is_fortran else "C")


class _Array:
    """An array whose content follows later."""

    value: np.ndarray | None = None

    def set_content(self, content: bytes, kind: Any, shape: Any, is_fortran: bool) -> None:
        if not isinstance(kind, _Type):
            raise ValueError("an array without a type")
        self.value = kind.array(shape, content, is_fortran)


def read_pickled_arrays(content: bytes) -> dict[str | bytes, Any]:
    """Read a pickled dictionary of numbers, text, lists and integer arrays.

    Parameters
    ----------
    content : bytes
        The pickle, of Python 2 or 3. Text of Python 2 is read as latin1.

    Returns
    -------
    dict
        The entries by key; arrays share the memory of `content`.

    Raises
    ------
    ValueError
        If it holds anything else. A damaged pickle may raise almost any other exception.
    """
    machine = _Machine(len(content))
    for number, (opcode, argument, _) in enumerate(pickletools.genops(content)):
        if number == _MOST_OPERATIONS:
            raise ValueError(f"it has more than {_MOST_OPERATIONS:,} operations")
        machine.step(opcode.name, argument)
    found = machine.result
    if not isinstance(found, dict):
        raise ValueError("it does not hold a dictionary")
    return {key: value.value if isinstance(value, _Array) else value for key, value in found.items()}


class _Machine:
    """The stack machine of a pickle, restricted to data.

    A list or dictionary inside another container may not change any more, so that the depth of each is known.

    Parameters
    ----------
    budget : int
        Limit on the total bytes converted from text, because a pickle can refer to one text many times.
    """

    def __init__(self, budget: int) -> None:
        self.budget = budget
        # Depths of containers by id; references are held, so that ids are not reused.
        self.depths: dict[int, int] = {}
        self.containers: list[Any] = []
        self.closed: set[int] = set()
        self.stack: list[Any] = []
        self.marked: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        self.result: Any = None

    def step(self, name: str, argument: Any) -> None:
        """Execute one operation."""
        if name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            self._push(_EMPTY[name]())
        elif name in _VALUES:
            self.stack.append(argument)
        elif name in _TUPLES:
            items = [self.stack.pop() for _ in range(_TUPLES[name])]
            self._push(tuple(reversed(items)), items)
        elif name in ("PUT", "BINPUT", "LONG_BINPUT"):
            self.memo[int(argument)] = self.stack[-1]
        elif name in ("GET", "BINGET", "LONG_BINGET"):
            self.stack.append(self.memo[int(argument)])
        elif name not in _IGNORED:
            method = _OPERATIONS.get(name)
            if method is None:
                raise ValueError(f"the operation {name} is not allowed in a data file")
            method(self, argument)

    def memoize(self, argument: Any) -> None:
        self.memo[len(self.memo)] = self.stack[-1]

    def mark(self, argument: Any) -> None:
        self.marked.append(self.stack)
        self.stack = []

    def since_mark(self) -> list[Any]:
        items, self.stack = self.stack, self.marked.pop()
        return items

    def make_tuple(self, argument: Any) -> None:
        items = self.since_mark()
        self._push(tuple(items), items)

    def make_list(self, argument: Any) -> None:
        items = self.since_mark()
        self._push(items, items)

    def append(self, argument: Any) -> None:
        self._extend([self.stack.pop()])

    def extend(self, argument: Any) -> None:
        self._extend(self.since_mark())

    def set_item(self, argument: Any) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._set([key, value])

    def set_items(self, argument: Any) -> None:
        self._set(self.since_mark())

    def make_dict(self, argument: Any) -> None:
        items = self.since_mark()
        self._push({})
        self._set(items)

    def name(self, argument: Any) -> None:
        self.stack.append(_Global(*argument.split(" ", 1)))

    def stack_name(self, argument: Any) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        if not isinstance(name, str) or not isinstance(module, str):
            raise ValueError("a name that is not text")
        self.stack.append(_Global(module, name))

    def call(self, argument: Any) -> None:
        arguments, called = self.stack.pop(), self.stack.pop()
        self.stack.append(self._announced(called, arguments))

    def build(self, argument: Any) -> None:
        state = self.stack.pop()
        target = self.stack[-1]
        if isinstance(target, _Type):
            target.set_state(state)
        elif isinstance(target, _Array):
            _, shape, kind, is_fortran, content = state
            target.set_content(self._as_bytes(content), kind, shape, bool(is_fortran))
        else:
            raise ValueError("a state is set on an object that has none")

    def stop(self, argument: Any) -> None:
        self.result = self.stack.pop()

    def _push(self, container: Any, items: list[Any] | None = None) -> None:
        """Push a new container of these items."""
        self.containers.append(container)
        self.depths.setdefault(id(container), 1)
        self._hold(container, items or [])
        self.stack.append(container)

    def _hold(self, container: Any, items: list[Any]) -> None:
        """Record that a container holds these items."""
        inner = [id(item) for item in items if id(item) in self.depths]
        self.closed.update(inner)
        if items and id(container) in self.closed:
            raise ValueError("a container changes after it was put into another one")
        depth = max([self.depths[id(container)], *(1 + self.depths[item] for item in inner)])
        if depth > _DEEPEST:
            raise ValueError(f"its containers are nested more than {_DEEPEST} deep")
        self.depths[id(container)] = depth

    def _extend(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if not isinstance(target, list):
            raise ValueError("an append to an object that is not a list")
        self._hold(target, items)
        target.extend(items)

    def _set(self, items: list[Any]) -> None:
        target = self.stack[-1]
        keys = items[::2]
        # Hashing deeply nested keys would overflow the stack.
        if not isinstance(target, dict) or not all(isinstance(key, (str, bytes)) for key in keys):
            raise ValueError("a dictionary has keys that are not text")
        self._hold(target, items[1::2])
        target.update(zip(keys, items[1::2], strict=True))

    def _announced(self, called: Any, arguments: Any) -> Any:
        """Interpret one of the few calls in a pickled array, without making it."""
        if not isinstance(called, _Global) or not isinstance(arguments, tuple):
            raise ValueError("a call of an object that is not a name")
        module, name = called
        package, _, last = module.rpartition(".")
        if called == _Global("numpy", "dtype") and len(arguments) <= 3:
            return _Type(arguments[0])
        if package in _NUMPY and last == "multiarray" and name == "_reconstruct":
            if not isinstance(arguments[0], _Global) or arguments[0] != _Global("numpy", "ndarray"):
                raise ValueError("an array of a subclass")
            return _Array()
        if package in _NUMPY and last == "numeric" and name == "_frombuffer":
            content, kind, shape, order = arguments
            array = _Array()
            array.set_content(self._as_bytes(content), kind, shape, isinstance(order, str) and order == "F")
            return array
        if called == _Global("_codecs", "encode"):
            text, encoding = arguments
            # Python 3 writes bytes at protocol 2 as latin1 text; no other codec is needed.
            if not isinstance(encoding, str) or encoding not in ("latin1", "latin-1"):
                raise ValueError(f"the codec {_brief(encoding)} is not allowed in a data file")
            return self._as_bytes(text)
        raise ValueError(f"{shown(module[:60])}.{shown(name[:60])} is not allowed in a data file")

    def _as_bytes(self, content: Any) -> bytes:
        if isinstance(content, bytes):
            return content
        if not isinstance(content, (str, bytearray)):
            raise ValueError("an array without bytes")
        self.budget -= len(content)
        if self.budget < 0:
            raise ValueError("its arrays take more bytes than the file has")
        return content.encode("latin1") if isinstance(content, str) else bytes(content)


def _brief(value: Any) -> str:
    """Format a value for a message: truncated text, or the type of anything else, which may be huge."""
    return f"'{shown(value[:60])}'" if isinstance(value, str) else type(value).__name__


_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY: dict[str, Callable[[], Any]] = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple}
_VALUES = {
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4"),
    *("BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
    *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_IGNORED = ("PROTO", "FRAME")
_OPERATIONS: dict[str, Callable[[_Machine, Any], None]] = {
    "MARK": _Machine.mark,
    "MEMOIZE": _Machine.memoize,
    "TUPLE": _Machine.make_tuple,
    "LIST": _Machine.make_list,
    "DICT": _Machine.make_dict,
    "APPEND": _Machine.append,
    "APPENDS": _Machine.extend,
    "SETITEM": _Machine.set_item,
    "SETITEMS": _Machine.set_items,
    "GLOBAL": _Machine.name,
    "STACK_GLOBAL": _Machine.stack_name,
    "REDUCE": _Machine.call,
    "BUILD": _Machine.build,
    "STOP": _Machine.stop,
}
