"""Types of arguments, for annotations."""

from __future__ import annotations

from typing import Any, TypeAlias

# One signal per row: array-like, data frame, CSR matrix, memory map, Zarr array, HDF5 dataset, Dask array or tensor.
MatrixLike: TypeAlias = Any
# The name of a device, a torch.device or None.
Device: TypeAlias = Any
