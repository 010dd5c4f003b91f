"""Utilities for all packages: warnings, text, input checks."""
