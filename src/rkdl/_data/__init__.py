"""Signals, wherever they are: arrays, files, Dask arrays, tensors."""
