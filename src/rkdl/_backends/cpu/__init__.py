"""Primitives on NumPy arrays, compiled by Numba."""
