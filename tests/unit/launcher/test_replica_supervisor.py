from __future__ import annotations

from pathlib import Path
from typing import Any

import psutil
import pytest

from cornserve.app.record import ReplicaState
from cornserve.control.launcher.base import ExecutorGroup
from cornserve.control.launcher.local.device_slots import DeviceSlots
from cornserve.control.launcher.local.launcher import LocalLauncher
from cornserve.home import Home
from cornserve.task.spec import ExecutorSpec
from tests.waiting import until


async def test_a_process_that_exits_before_it_is_recorded_leaves_no_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def spawn(*_: Any) -> None:
        raise psutil.NoSuchProcess(1)

    monkeypatch.setattr("cornserve.control.launcher.local.replica_supervisor.spawn_executor", spawn)
    home = Home(tmp_path)
    launcher = LocalLauncher(home, DeviceSlots.cpu(1))
    await launcher.start()

    await launcher.apply(ExecutorGroup(ExecutorSpec(executor="echo"), 1))
    await until(lambda: [replica.state for replica in launcher.replicas()] == [ReplicaState.FAILED])

    assert [path.name for path in home.replicas.iterdir()] == ["ended"]
    await launcher.close()
