from __future__ import annotations

from pathlib import Path

import pytest

from cornserve.limits import Limits
from cornserve.memory_limit import memory_limit_bytes

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


def test_the_bodies_of_a_gateway_use_at_most_an_eighth_of_the_memory_by_default() -> None:
    limits = Limits()

    assert limits.bodies_mib == max(limits.body_mib, memory_limit_bytes() // 8 // MIB)
    assert limits.cli_arguments == []
