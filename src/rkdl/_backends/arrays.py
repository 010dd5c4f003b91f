"""The verbs of `rkdl._backends.base` as functions, for code that calls one or two of them."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from rkdl._backends.base import backend_of
from rkdl._backends.base import is_tensor as is_tensor


def cast(array: Any, dtype: Any) -> Any:
    """The array in a NumPy dtype; itself if it has it."""
    return backend_of(array).cast(array, dtype)


def beside(array: Any, other: Any) -> Any:
    """The array where `other` is: as a tensor on its device, or as it is."""
    return backend_of(other).from_host(array, other)


def copied(array: Any) -> Any:
    """A copy."""
    return backend_of(array).copy(array)


def dot(left: Any, right: Any) -> Any:
    """Sum of the products of all entries; of tensors a tensor, so that nothing waits for it yet."""
    return backend_of(left).dot(left, right)


def row_norms(rows: Any) -> Any:
    """``|x|`` of every row."""
    return backend_of(rows).row_norms(rows)


def squared_norms(rows: Any) -> Any:
    """``|x|^2`` of every row."""
    return backend_of(rows).squared_norms(rows)


def norm(array: Any) -> float:
    """Root of the sum of all squares; infinite where that overflows."""
    return backend_of(array).norm(array)


def dots(left: Any, right: Any) -> tuple[float, float, float]:
    """`dot` of the one with the other, with itself, and of the other with itself, waiting once."""
    return backend_of(left).dots(left, right)


def stacked(arrays: Any) -> Any:
    """Arrays of one shape along a new first axis."""
    return backend_of(arrays[0]).stack(arrays)


def host(value: Any) -> Any:
    """A tensor as a NumPy array; anything else as it is."""
    return backend_of(value).to_host(value)


def where(condition: Any, value: Any, otherwise: Any) -> Any:
    """`value` where the condition holds, else `otherwise`."""
    return backend_of(condition).where(condition, value, otherwise)


def places(mask: Any) -> Any:
    """Indices of what is true."""
    return backend_of(mask).flatnonzero(mask)


def zeros(shape: tuple[int, ...], like: Any) -> Any:
    """Zeros of another array's kind."""
    return backend_of(like).zeros(shape, like)


def largest(rows: Any, count: int) -> tuple[Any, Any]:
    """The `count` largest numbers of every row and their places, in no order."""
    return backend_of(rows).largest(rows, count)


def limits(array: Any) -> Any:
    """`eps`, `tiny` and `max` of the array's dtype."""
    return (sys.modules["torch"] if is_tensor(array) else np).finfo(array.dtype)


def as_kind(array: Any, like: Any) -> Any:
    """The array in the dtype, and on the device, of another one."""
    if is_tensor(like):
        return sys.modules["torch"].as_tensor(array, dtype=like.dtype, device=like.device)
    return array.astype(like.dtype)


def floats(*values: Any) -> list[float]:
    """Scalars as Python floats, waiting for a device once."""
    if any(map(is_tensor, values)):
        return sys.modules["torch"].stack(values).tolist()
    return [float(value) for value in values]


def joined(parts: list[Any]) -> Any:
    """Arrays one after another along their first axis."""
    if len(parts) == 1:
        return parts[0]
    return sys.modules["torch"].cat(parts) if is_tensor(parts[0]) else np.concatenate(parts)


def code_gram(parts: list[Any], n_atoms: int) -> Any:
    """``Z'Z`` of the codes of consecutive chunks, in float64."""
    if is_tensor(parts[0].values):
        dense = [codes.dense(n_atoms, np.float64) for codes in parts]
        return sum(codes.T @ codes for codes in dense)
    from rkdl._backends.cpu.statistics import accumulate_gram

    gram = np.zeros((n_atoms, n_atoms))
    for codes in parts:
        accumulate_gram(codes.indptr, codes.indices, codes.values.astype(np.float64), gram)
    return gram


def sweep_codes(parts: list[Any], n_atoms: int) -> Any:
    """Codes of consecutive chunks as the `SweepCodes` of their backend."""
    if is_tensor(parts[0].values):
        from rkdl._backends.torch import sweeps
    else:
        from rkdl._backends.cpu import sweeps  # type: ignore[no-redef]
    return sweeps.SweepCodes(parts, n_atoms)


def project_rows(features: list[Any], rows: Any, vector: Any) -> Any:
    """Inner products in float64 of a vector with `rows` of the features: of one array, or all rows of tensors."""
    if is_tensor(vector):
        return sys.modules["torch"].cat([part @ vector.to(part.dtype) for part in features]).double()
    from rkdl._backends.cpu import sweeps

    return sweeps.project_rows(features[0], rows, vector)


def gram_sweep(code_gram: Any, targets: Any, atoms: Any, metric: Any = None) -> Any:
    """Update every atom once from ``S = Z'Z`` and the targets, in place; returns the scales (n,) of the codes."""
    if is_tensor(atoms):
        from rkdl._backends.torch import sweeps
    else:
        from rkdl._backends.cpu import sweeps  # type: ignore[no-redef]
    return sweeps.gram_sweep(code_gram, targets, atoms, metric)
