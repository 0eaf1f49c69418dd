"""Run as `doomed_launcher.py HOME MOMENT`: starts an echo executor, prints its pid, and kills itself at the moment."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

from cornserve.app.record import ReplicaState
from cornserve.control.launcher.base import ExecutorGroup
from cornserve.control.launcher.local.device_slots import DeviceSlots
from cornserve.control.launcher.local.launcher import LocalLauncher
from cornserve.control.launcher.local.state_dir import ProcessRecord, ReplicaDir
from cornserve.home import Home
from cornserve_echo.task import EchoTask
from tests.credentials import write_secret

write = ReplicaDir.write_process


def die(pid: int) -> None:
    print(pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def before_the_record(folder: ReplicaDir, process: ProcessRecord) -> None:
    die(process.process_group.pid)


def after_the_record(folder: ReplicaDir, process: ProcessRecord) -> None:
    write(folder, process)
    die(process.process_group.pid)


async def launch(home: Home) -> None:
    write_secret(home.path)
    launcher = LocalLauncher(home, DeviceSlots.cpu(1))
    await launcher.start()
    await launcher.apply(ExecutorGroup(EchoTask().executor_spec(), 1))
    async for [replica] in launcher.watch():
        if replica.state is ReplicaState.READY:
            process = ReplicaDir(home.replicas / replica.id).read_process()
            assert process is not None
            die(process.process_group.pid)


def main(home: Home, moment: str) -> None:
    moments: dict[str, Callable[[ReplicaDir, ProcessRecord], None]] = {
        "before the record": before_the_record,
        "after the record": after_the_record,
        "when it is ready": write,
    }
    with patch.object(ReplicaDir, "write_process", moments[moment]):
        asyncio.run(launch(home))


if __name__ == "__main__":
    main(Home(Path(sys.argv[1])), sys.argv[2])
