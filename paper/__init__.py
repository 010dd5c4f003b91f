"""The experiments of "Reduced Kernel Dictionary Learning", repeated: ``python -m paper --help``."""
