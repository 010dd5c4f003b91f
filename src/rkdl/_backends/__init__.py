"""Primitives of NumPy arrays (Numba) and of torch tensors (Triton)."""
