"""The memory that this process may use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

# Files of Linux that name the control groups of this process, and hold the limits of each.
PROCESS_GROUPS, GROUP_ROOT = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def physical_memory() -> int:
    """Bytes of memory of this machine or of its container; 8 GiB if they are not known."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 8 << 30
    for path in _limit_files():
        # Without such a file, or with the word for no limit, there is none.
        with suppress(OSError, ValueError):
            limit = int(path.read_text())
            memory = min(memory, limit) if limit > 0 else memory
    return memory


def _limit_files() -> Iterator[Path]:
    """Files in which Linux may limit the memory of this process: those of its group and of its parents."""
    groups = ["0::/"]
    with suppress(OSError):
        groups += PROCESS_GROUPS.read_text().splitlines()
    for line in groups:
        _, controllers, group = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        name = "memory/{}/memory.limit_in_bytes" if controllers else "{}/memory.max"
        place = Path(group.lstrip("/"))
        for part in (place, *place.parents):
            yield GROUP_ROOT / name.format(part)
