"""Types of arguments, for annotations and checks."""

from __future__ import annotations

from numbers import Real
from typing import Any, TypeAlias

import numpy as np

# One signal per row: array-like, data frame, CSR matrix, memory map, Zarr array, HDF5 dataset, Dask array or tensor.
MatrixLike: TypeAlias = Any
# A result of the same kind as the argument: an array, a lazy Dask array or a tensor.
Array: TypeAlias = Any
# The name of a device, a torch.device or None.
Device: TypeAlias = Any
# The dtypes that signals are processed in; others are converted to the first.
FLOATS = (np.dtype(np.float64), np.dtype(np.float32))


def plain_scalar(value: Any) -> Any:
    """A scalar of NumPy, or a real number of another class, as a number of Python; other values as they are."""
    # `item` returns a long double for a long double.
    value = value.item() if isinstance(value, np.generic) else value
    return float(value) if isinstance(value, Real) and not isinstance(value, int | float) else value
