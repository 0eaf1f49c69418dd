"""Run as `doomed_launcher.py HOME MOMENT`: starts an echo executor, prints its pid, and is killed at that moment."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

from cornserve.app.record import ReplicaState
from cornserve.control.launcher.base import Group
from cornserve.control.launcher.local import LocalLauncher, Slots
from cornserve.control.launcher.local.folder import Folder, Process
from cornserve.home import Home
from cornserve_echo.task import EchoTask

write = Folder.write_process


def die(pid: int) -> None:
    print(pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def before_the_record(folder: Folder, process: Process) -> None:
    die(process.leader.pid)


def after_the_record(folder: Folder, process: Process) -> None:
    write(folder, process)
    die(process.leader.pid)


async def launch(home: Home) -> None:
    launcher = LocalLauncher(home, Slots.cpu(1))
    await launcher.start()
    await launcher.apply(Group(EchoTask().executor_spec(), 1))
    async for [replica] in launcher.watch():
        if replica.state is ReplicaState.READY:
            process = Folder(home.replicas / replica.id).read_process()
            assert process is not None
            die(process.leader.pid)


def main(home: Home, moment: str) -> None:
    moments: dict[str, Callable[[Folder, Process], None]] = {
        "before the record": before_the_record,
        "after the record": after_the_record,
        "when it is ready": write,
    }
    with patch.object(Folder, "write_process", moments[moment]):
        asyncio.run(launch(home))


if __name__ == "__main__":
    main(Home(Path(sys.argv[1])), sys.argv[2])
