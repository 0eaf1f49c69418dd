"""The memory that this process may use: the limit of its control group, or the memory of the machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

CONTROL_GROUPS = Path("/sys/fs/cgroup")
OWN_GROUPS = Path("/proc/self/cgroup")


def memory_limit_bytes(control_groups: Path = CONTROL_GROUPS, own_groups: Path = OWN_GROUPS) -> int:
    """Returns the smallest limit of the process's control groups (version 1 or 2) and of the machine's memory.

    Args:
        control_groups: where the hierarchies of control groups are mounted.
        own_groups: the file that lists the control groups of this process.
    """
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([physical, *_limits(control_groups, own_groups)])


def _limits(control_groups: Path, own_groups: Path) -> Iterator[int]:
    for file in _limit_files(control_groups, own_groups):
        try:
            content = file.read_text().strip()
        except OSError:  # A container may see only a part of the hierarchy, and root groups have no limit.
            continue
        if content.isdigit():  # Version 2 writes "max" for no limit.
            yield int(content)


def _limit_files(control_groups: Path, own_groups: Path) -> Iterator[Path]:
    try:
        lines = own_groups.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            root, name = control_groups, "memory.max"
        elif "memory" in controllers.split(","):
            root, name = control_groups / "memory", "memory.limit_in_bytes"
        else:
            continue
        directory = root / group.lstrip("/")
        yield from (parent / name for parent in (directory, *directory.parents) if parent.is_relative_to(root))
