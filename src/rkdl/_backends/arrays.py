"""The few things that the learning asks of a small array, whether it is NumPy's or torch's.

Nothing here imports torch: without it there are no tensors.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np


def is_tensor(value: Any) -> bool:
    """Whether a value is a torch tensor, told without importing torch."""
    if type(value) is np.ndarray:
        return False
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, getattr(torch, "Tensor", ()))


def cast(array: Any, dtype: Any) -> Any:
    """The array in a NumPy dtype; itself if it has it."""
    if is_tensor(array):
        return array.to(getattr(sys.modules["torch"], np.dtype(dtype).name))
    return array.astype(dtype, copy=False)


def beside(array: Any, other: Any) -> Any:
    """The array where `other` is: as a tensor on its device, or as it is."""
    if is_tensor(other) and not is_tensor(array):
        return sys.modules["torch"].from_numpy(np.ascontiguousarray(array)).to(other.device)
    return array


def copied(array: Any) -> Any:
    """A copy."""
    return array.clone() if is_tensor(array) else array.copy()


def dot(left: Any, right: Any) -> Any:
    """Sum of the products of all entries; of tensors a tensor, so that nothing waits for it yet."""
    return (left * right).sum() if is_tensor(left) else np.vdot(left, right)


def row_norms(rows: Any) -> Any:
    """``|x|`` of every row."""
    return (rows * rows).sum(1).sqrt() if is_tensor(rows) else np.linalg.norm(rows, axis=1)


def norm(array: Any) -> float:
    """Root of the sum of all squares; infinite where that overflows."""
    with np.errstate(over="ignore"):
        return float(sys.modules["torch"].linalg.vector_norm(array) if is_tensor(array) else np.linalg.norm(array))


def dots(left: Any, right: Any) -> tuple[float, float, float]:
    """`dot` of the one with the other, with itself, and of the other with itself, waiting once."""
    if is_tensor(left):
        both = stacked([left, right]).reshape(2, -1)
        (left_square, crossed), (_, right_square) = (both @ both.T).tolist()
        return crossed, left_square, right_square
    return float(np.vdot(left, right)), float(np.vdot(left, left)), float(np.vdot(right, right))


def stacked(arrays: Any) -> Any:
    """Arrays of one shape along a new first axis."""
    return sys.modules["torch"].stack(list(arrays)) if is_tensor(arrays[0]) else np.stack(arrays)


def host(value: Any) -> Any:
    """A tensor as a NumPy array; anything else as it is."""
    if not is_tensor(value):
        return value
    value = value.detach().cpu()
    # NumPy has no bfloat16.
    return (value.float() if value.dtype == sys.modules["torch"].bfloat16 else value).numpy()


def where(condition: Any, value: Any, otherwise: Any) -> Any:
    """`value` where the condition holds, else `otherwise`."""
    return (sys.modules["torch"] if is_tensor(condition) else np).where(condition, value, otherwise)


def places(mask: Any) -> Any:
    """Indices of what is true."""
    return mask.nonzero()[:, 0] if is_tensor(mask) else np.flatnonzero(mask)


def zeros(shape: tuple[int, ...], like: Any) -> Any:
    """Zeros of another array's kind."""
    return like.new_zeros(shape) if is_tensor(like) else np.zeros(shape, dtype=like.dtype)


def largest(rows: Any, count: int) -> tuple[Any, Any]:
    """The `count` largest numbers of every row and their places, in no order."""
    if is_tensor(rows):
        found, at = rows.topk(count, dim=1, sorted=False)
        return found, at
    at = np.argpartition(rows, -count, axis=1)[:, -count:]
    return np.take_along_axis(rows, at, axis=1), at


def limits(array: Any) -> Any:
    """`eps`, `tiny` and `max` of the array's dtype."""
    return (sys.modules["torch"] if is_tensor(array) else np).finfo(array.dtype)
