from __future__ import annotations

import os
from pathlib import Path

import pytest

from cornserve.limits import Limits
from cornserve.memory_limit import (
    available_memory_bytes,
    count_oom_kills,
    find_oom_counter,
    memory_limit_bytes,
    slab_limit_mib,
)

MIB = 1024 * 1024


@pytest.fixture
def own_groups(tmp_path: Path) -> Path:
    return tmp_path / "self"


def write_limit(file: Path, content: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{content}\n")


def test_version_2_limits_the_memory_by_the_smallest_limit_of_the_groups_ancestors(
    tmp_path: Path, own_groups: Path
) -> None:
    own_groups.write_text("0::/pod/container\n")
    write_limit(tmp_path / "pod" / "container" / "memory.max", "max")
    write_limit(tmp_path / "pod" / "memory.max", str(64 * MIB))

    assert memory_limit_bytes(tmp_path, own_groups) == 64 * MIB


def test_version_1_has_a_hierarchy_for_memory(tmp_path: Path, own_groups: Path) -> None:
    own_groups.write_text("5:cpu,cpuacct:/a\n4:memory:/pod\n1:name=systemd:/b\n")
    write_limit(tmp_path / "memory" / "memory.limit_in_bytes", str(2**63 - 4096))
    write_limit(tmp_path / "memory" / "pod" / "memory.limit_in_bytes", str(32 * MIB))

    assert memory_limit_bytes(tmp_path, own_groups) == 32 * MIB


@pytest.mark.parametrize("groups", ["", "0::/\n", "0::/../../sibling\n"])
def test_without_a_limit_the_machines_memory_counts(tmp_path: Path, own_groups: Path, groups: str) -> None:
    own_groups.write_text(groups)
    unlimited = memory_limit_bytes(tmp_path, own_groups)

    assert unlimited == memory_limit_bytes(tmp_path, tmp_path / "missing") > 128 * MIB


@pytest.mark.parametrize(
    ("own_group", "group", "limit", "usage", "prefix"),
    [
        ("0::/pod", "pod", "memory.max", "memory.current", ""),
        ("4:memory:/pod", "memory/pod", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
    ],
)
def test_memory_of_the_page_cache_is_available(
    tmp_path: Path, own_groups: Path, own_group: str, group: str, limit: str, usage: str, prefix: str
) -> None:
    own_groups.write_text(f"{own_group}\n")
    write_limit(tmp_path / group / limit, str(64 * MIB))
    write_limit(tmp_path / group / usage, str(60 * MIB))
    write_limit(
        tmp_path / group / "memory.stat", f"shmem 99\n{prefix}active_file {MIB}\n{prefix}inactive_file {2 * MIB}"
    )

    assert available_memory_bytes(tmp_path, own_groups) == 7 * MIB


def test_without_a_limit_the_machines_free_memory_is_available(tmp_path: Path) -> None:
    assert 0 < available_memory_bytes(tmp_path, tmp_path / "missing") < memory_limit_bytes()


def test_the_bodies_of_a_gateway_use_at_most_an_eighth_of_the_memory_by_default() -> None:
    limits = Limits()

    assert limits.bodies_mib == max(limits.body_mib, memory_limit_bytes() // 8 // MIB)
    assert limits.cli_arguments == []


@pytest.mark.parametrize(
    ("groups", "counter"),
    [
        ("0::/pod/container\n", "pod/container/memory.events"),
        ("5:cpu:/a\n4:memory:/pod\n", "memory/pod/memory.oom_control"),
        ("0::/pod/unknown\n", "vmstat"),
    ],
)
def test_the_kills_for_lack_of_memory_are_those_of_a_process_s_control_group(
    tmp_path: Path, groups: str, counter: str
) -> None:
    write_limit(tmp_path / "7" / "cgroup", groups.strip())
    write_limit(tmp_path / "vmstat", "nr_free_pages 5\noom_kill 1")
    for group in ("pod/container/memory.events", "memory/pod/memory.oom_control"):
        write_limit(tmp_path / group, "under_oom 0\noom_kill 2")

    found = find_oom_counter(7, tmp_path, tmp_path)

    assert found == tmp_path / counter
    assert count_oom_kills(found) == (1 if counter == "vmstat" else 2)
    assert count_oom_kills(tmp_path / "missing") == 0


def test_the_limit_of_tensors_is_a_share_of_the_memory_and_of_their_file_system(tmp_path: Path) -> None:
    limit = slab_limit_mib(tmp_path / "not" / "created") << 20

    system = os.statvfs(tmp_path)
    assert 16 << 20 <= limit <= max(16 << 20, memory_limit_bytes() // 8)
    assert limit <= max(16 << 20, system.f_blocks * system.f_frsize // 2)
