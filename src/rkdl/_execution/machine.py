"""The memory of this machine, as far as it is ours."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

# Where Linux says which groups of processes this one is in, and what each may use.
PROCESS_GROUPS, GROUP_ROOT = Path("/proc/self/cgroup"), Path("/sys/fs/cgroup")


def physical_memory() -> int:
    """Bytes of memory of this machine, or of the container around us; 8 GiB where it cannot be found out."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return 8 << 30
    for path in _limit_files():
        try:
            limit = int(path.read_text())
        except (OSError, ValueError):
            # No such file, or the word for no limit.
            continue
        if limit > 0:
            memory = min(memory, limit)
    return memory


def _limit_files() -> Iterator[Path]:
    """Where Linux may say how much memory this process has: its own group, and all around it."""
    try:
        groups = PROCESS_GROUPS.read_text().splitlines()
    except OSError:
        groups = []
    for line in ["0::/", *groups]:
        _, controllers, group = line.split(":", 2)
        root, name = (GROUP_ROOT, "memory.max")
        if controllers:
            root, name = GROUP_ROOT / "memory", "memory.limit_in_bytes"
            if "memory" not in controllers.split(","):
                continue
        place = Path(group.lstrip("/"))
        for part in (place, *place.parents):
            yield root / part / name
