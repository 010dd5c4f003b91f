"""Sparse codes of signals, and signals of codes."""
