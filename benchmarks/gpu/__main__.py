"""``python -m benchmarks.gpu``; see the package's docstring."""

from __future__ import annotations

import sys

from benchmarks.gpu.cli import main

if __name__ == "__main__":
    sys.exit(main())
