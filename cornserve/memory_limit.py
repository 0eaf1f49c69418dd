"""The memory that a process may use, by its control groups and by the machine, and kills for lack of memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

CONTROL_GROUPS = Path("/sys/fs/cgroup")
OWN_GROUPS = Path("/proc/self/cgroup")

_MIN_SLAB_MIB = 16

_OOM_COUNTERS = {"memory.max": "memory.events", "memory.limit_in_bytes": "memory.oom_control"}
"""The file with the number of killed processes, next to each file with a limit."""


def memory_limit_bytes(control_groups: Path = CONTROL_GROUPS, own_groups: Path = OWN_GROUPS) -> int:
    """Returns the smallest limit of the process's control groups (version 1 or 2) and of the machine's memory.

    Args:
        control_groups: where the hierarchies of control groups are mounted.
        own_groups: the file that lists the control groups of this process.
    """
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([physical, *(limit for _, limit in _limits(control_groups, own_groups))])


def available_memory_bytes(control_groups: Path = CONTROL_GROUPS, own_groups: Path = OWN_GROUPS) -> int:
    """Returns how much the process can allocate without being killed. Memory of the page cache counts as available.

    The arguments are those of `memory_limit_bytes`.
    """
    import psutil  # The command line imports this module, and does not need psutil to start.

    free = (max(0, limit - _used(group)) for group, limit in _limits(control_groups, own_groups))
    return min([psutil.virtual_memory().available, *free])


def slab_limit_mib(shared_memory: Path) -> int:
    """Returns the default limit for the tensors of one process, in MiB.

    It is an eighth of the memory that the process may use, and at most half of the file system of the tensors. The
    process takes this memory only while it has tensors.

    Args:
        shared_memory: the directory of the tensors. It need not exist.
    """
    existing = next(path for path in (shared_memory, *shared_memory.parents) if path.exists())
    system = os.statvfs(existing)
    limit = min(memory_limit_bytes() // 8, system.f_blocks * system.f_frsize // 2)
    return max(_MIN_SLAB_MIB, limit // 2**20)


def find_oom_counter(process: int, control_groups: Path = CONTROL_GROUPS, processes: Path = Path("/proc")) -> Path:
    """Returns the file that counts the processes that the kernel kills because the memory is exhausted.

    It counts those of a process's control group, or those of the machine if the group has no such file.

    Args:
        process: the id of the process.
        control_groups: where the hierarchies of control groups are mounted.
        processes: where the files of the processes are mounted.
    """
    groups = _limit_files(control_groups, processes / str(process) / "cgroup")
    files = (limit.with_name(_OOM_COUNTERS[limit.name]) for limit in groups)
    return next((file for file in files if _oom_kills(file) is not None), processes / "vmstat")


def count_oom_kills(counter: Path) -> int:
    """Returns the count in a file that `find_oom_counter` has returned; 0 if unknown."""
    return _oom_kills(counter) or 0


def _oom_kills(file: Path) -> int | None:
    try:
        return _statistics(file).get("oom_kill")
    except (OSError, ValueError):
        return None


def _statistics(file: Path) -> dict[str, int]:
    """Raises `OSError` and `ValueError`."""
    lines = file.read_text().splitlines()
    return {name: int(value) for name, _, value in (line.partition(" ") for line in lines)}


def _used(group: Path) -> int:
    """Returns the memory that a group uses and that the system cannot reclaim from the page cache; 0 if unknown."""
    try:
        (usage,) = (file for name in ("memory.current", "memory.usage_in_bytes") if (file := group / name).exists())
        statistics = _statistics(group / "memory.stat")
        prefix = "total_" if "total_inactive_file" in statistics else ""  # version 1 has sums of their own
        cache = sum(statistics.get(f"{prefix}{kind}_file", 0) for kind in ("active", "inactive"))
        return int(usage.read_text()) - cache
    except (OSError, ValueError):
        return 0


def _limits(control_groups: Path, own_groups: Path) -> Iterator[tuple[Path, int]]:
    """Yields each group that has a limit."""
    for file in _limit_files(control_groups, own_groups):
        try:
            content = file.read_text().strip()
        except OSError:  # A container may see only a part of the hierarchy, and root groups have no limit.
            continue
        if content.isdigit():  # Version 2 writes "max" for no limit.
            yield file.parent, int(content)


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
