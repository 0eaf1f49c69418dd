from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from cornserve.app.record import ReplicaState
from cornserve.control.launcher.base import ExecutorGroup
from cornserve.control.launcher.local.device_slots import DeviceSlots
from cornserve.control.launcher.local.launcher import LocalLauncher
from cornserve.control.launcher.local.slab_budget import SlabBudget
from cornserve.home import Home
from cornserve.limits import MIB
from cornserve.task.spec import ExecutorSpec
from cornserve_echo.notes import NoteTask
from cornserve_echo.task import EchoTask
from tests.waiting import until


class DiskUsage(NamedTuple):
    total: int
    used: int
    free: int


@pytest.fixture
def budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlabBudget:
    """A budget of 10 MiB, in which 2 slabs fit."""
    created = tmp_path / "slabs"
    monkeypatch.setattr("shutil.disk_usage", lambda _: DiskUsage(10 * MIB, 0, 10 * MIB))
    return SlabBudget(tmp_path, created)


def test_slabs_are_reserved_until_no_more_fit(budget: SlabBudget) -> None:
    assert [budget.reserve(holder) for holder in ("a", "b", "a")] == ["", "", ""]
    assert "needs 4 MiB of shared memory for tensors" in budget.reserve("c")
    assert "10 MiB free, of which 8 MiB are reserved for other executors" in budget.reserve("c")
    budget.release("a")
    assert budget.reserve("c") == ""


def test_a_created_slab_is_not_reserved_again(budget: SlabBudget, tmp_path: Path) -> None:
    budget.grant("a")
    (tmp_path / "slabs").mkdir()
    (tmp_path / "slabs" / "cornserve-a.slab").write_bytes(bytes(4 * MIB))
    assert [budget.reserve(holder) for holder in ("b", "c")] == ["", ""]
    assert budget.reserve("d")


def test_a_spec_tells_whether_its_executor_needs_a_slab() -> None:
    assert NoteTask().spec.has_tensors
    assert not EchoTask().spec.has_tensors


async def test_an_executor_whose_slab_does_not_fit_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: DiskUsage(3 * MIB, 0, 3 * MIB))
    launcher = LocalLauncher(Home(tmp_path), DeviceSlots.cpu(1))
    await launcher.start()
    await launcher.apply(ExecutorGroup(ExecutorSpec(executor="echo", has_tensors=True), 1))
    await until(lambda: [replica.state for replica in launcher.replicas()] == [ReplicaState.FAILED])
    [replica] = launcher.replicas()
    assert replica.unschedulable
    assert "start the container with a larger --shm-size" in replica.message
    assert next(Home(tmp_path).replicas.iterdir(), None) is None
    await launcher.close()
