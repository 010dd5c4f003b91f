"""``python -m benchmarks [CASES ...] [--repeat K] [--out DIR] [--tiny] [--data-dir DIR]``."""

from __future__ import annotations

import sys

from benchmarks.environment import limit_threads


def main() -> int:
    """Limit every library to two cores, then run."""
    limit_threads()
    # BLAS and OpenMP read their thread counts when they are first loaded.
    from benchmarks.cli import run

    return run(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
