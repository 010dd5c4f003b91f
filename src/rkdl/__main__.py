"""``python -m rkdl``."""

import sys

from rkdl._cli import main

if __name__ == "__main__":
    sys.exit(main())
