"""Arrays of integers out of a pickle, read without unpickling: the file is data and nothing in it is ever called."""

from __future__ import annotations

import math
import pickletools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

__all__ = ["read_pickled_arrays"]

_NUMPY = ("numpy.core", "numpy._core")
_ORDERS = {"|": "=", "=": "=", "<": "<", ">": ">"}
_INTEGERS = ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8")


class _Global(NamedTuple):
    """A name that the pickle refers to; it is compared, never looked up."""

    module: str
    name: str


class _Type:
    """An integer type: its code, and its byte order once that was said."""

    def __init__(self, code: str) -> None:
        if code not in _INTEGERS:
            raise ValueError(f"the type {code!r} is not allowed in a data file")
        self.code, self.order = code, "="

    def set_state(self, state: Any) -> None:
        version, order, *rest = state
        # Fields, sub-arrays, sizes and flags of their own have no place in a plain integer.
        if version != 3 or order not in _ORDERS or tuple(rest) != (None, None, None, -1, -1, 0):
            raise ValueError("a type that is not a plain integer is not allowed in a data file")
        self.order = _ORDERS[order]

    def array(self, shape: Any, content: bytes, order: str) -> np.ndarray:
        """The array of these bytes; as many as the shape says, or a ValueError."""
        dtype = np.dtype(self.order + self.code)
        if not isinstance(shape, tuple) or not 0 < len(shape) <= 2:
            raise ValueError("an array must have one axis or two")
        if not all(type(length) is int and length >= 0 for length in shape):
            raise ValueError(f"an array cannot have the shape {shape!r}")
        if math.prod(shape) * dtype.itemsize != len(content):
            raise ValueError(f"an array of shape {shape} has {len(content)} bytes")
        return np.frombuffer(content, dtype=dtype).reshape(shape, order="F" if order == "F" else "C")


class _Array:
    """An array that is announced; its content comes afterwards."""

    value: np.ndarray | None = None

    def set_state(self, state: Any) -> None:
        _, shape, kind, is_fortran, content = state
        if not isinstance(kind, _Type):
            raise ValueError("an array without a type")
        self.value = kind.array(shape, _as_bytes(content), "F" if is_fortran else "C")


def read_pickled_arrays(content: bytes) -> dict[str | bytes, Any]:
    """Read a pickled dictionary of numbers, text, lists and arrays of integers.

    Parameters
    ----------
    content : bytes
        The pickle, of Python 2 or 3. Text of Python 2 is read as latin1.

    Returns
    -------
    dict
        The entries that are lists or arrays, by their keys; arrays share the memory of what was read.

    Raises
    ------
    ValueError
        If it holds anything else. A pickle that is broken may raise almost any other exception.
    """
    machine = _Machine()
    for opcode, argument, _ in pickletools.genops(content):
        machine.step(opcode.name, argument)
    found = machine.result
    if not isinstance(found, dict):
        raise ValueError("it holds no dictionary")
    return {key: value.value if isinstance(value, _Array) else value for key, value in found.items()}


class _Machine:
    """The stack that the operations of a pickle work on, as far as data need them."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marked: list[list[Any]] = []
        self.memo: dict[int, Any] = {}
        self.result: Any = None

    def step(self, name: str, argument: Any) -> None:
        """One operation."""
        if name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name]())
        elif name in _VALUES:
            self.stack.append(argument)
        elif name in _TUPLES:
            items = [self.stack.pop() for _ in range(_TUPLES[name])]
            self.stack.append(tuple(reversed(items)))
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
        self.stack.append(tuple(items))

    def make_list(self, argument: Any) -> None:
        items = self.since_mark()
        self.stack.append(items)

    def append(self, argument: Any) -> None:
        item = self.stack.pop()
        self._list().append(item)

    def extend(self, argument: Any) -> None:
        items = self.since_mark()
        self._list().extend(items)

    def set_item(self, argument: Any) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._set([key, value])

    def set_items(self, argument: Any) -> None:
        self._set(self.since_mark())

    def make_dict(self, argument: Any) -> None:
        items = self.since_mark()
        self.stack.append({})
        self._set(items)

    def name(self, argument: Any) -> None:
        self.stack.append(_Global(*argument.split(" ", 1)))

    def stack_name(self, argument: Any) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        self.stack.append(_Global(str(module), str(name)))

    def call(self, argument: Any) -> None:
        arguments, called = self.stack.pop(), self.stack.pop()
        self.stack.append(_announced(called, arguments))

    def build(self, argument: Any) -> None:
        state = self.stack.pop()
        target = self.stack[-1]
        if not isinstance(target, (_Type, _Array)):
            raise ValueError("a state is given to something that has none")
        target.set_state(state)

    def stop(self, argument: Any) -> None:
        self.result = self.stack.pop()

    def _list(self) -> list[Any]:
        if not isinstance(self.stack[-1], list):
            raise ValueError("something is appended to what is no list")
        return self.stack[-1]

    def _set(self, items: list[Any]) -> None:
        target = self.stack[-1]
        keys = items[::2]
        # Keys of other kinds could be nested so deeply that hashing them overflows the stack.
        if not isinstance(target, dict) or not all(isinstance(key, (str, bytes)) for key in keys):
            raise ValueError("a dictionary has keys that are not names")
        target.update(zip(keys, items[1::2], strict=True))


def _announced(called: Any, arguments: Any) -> Any:
    """What one of the few calls of a pickled array stands for; no call is made."""
    if not isinstance(called, _Global) or not isinstance(arguments, tuple):
        raise ValueError("something that is no name is called")
    module, name = called
    package, _, last = module.rpartition(".")
    if called == _Global("numpy", "dtype") and len(arguments) <= 3:
        return _Type(arguments[0])
    if (package in _NUMPY and last == "multiarray" and name == "_reconstruct") and arguments[0] == ("numpy", "ndarray"):
        return _Array()
    if package in _NUMPY and last == "numeric" and name == "_frombuffer":
        content, kind, shape, order = arguments
        if not isinstance(kind, _Type):
            raise ValueError("an array without a type")
        array = _Array()
        array.value = kind.array(shape, _as_bytes(content), order)
        return array
    if called == _Global("_codecs", "encode"):
        text, encoding = arguments
        # Python 3 writes bytes at protocol 2 as text in latin1; no other codec has business here.
        if encoding not in ("latin1", "latin-1"):
            raise ValueError(f"the codec {encoding!r} is not allowed in a data file")
        return _as_bytes(text)
    raise ValueError(f"{module}.{name} is not allowed in a data file")


def _as_bytes(content: Any) -> bytes:
    if isinstance(content, str):
        return content.encode("latin1")
    if isinstance(content, (bytes, bytearray)):
        return bytes(content)
    raise ValueError("an array without bytes")


_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_TUPLE": tuple,
}
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
