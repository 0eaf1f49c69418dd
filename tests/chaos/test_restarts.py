"""Whatever is killed, what runs is found again and kept."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path

import psutil
import pytest

from tests.integration.cli.cli_instance import CliInstance, write_app
from tests.waiting import until

EXECUTOR = "cornserve_executors.base"


def pids(machine: CliInstance, module: str) -> set[int]:
    return {process.pid for process in machine.processes(module)}


async def answers(machine: CliInstance) -> bool:
    done = await asyncio.to_thread(machine.run, "invoke", "echo", json.dumps({"text": "hello"}))
    return done.returncode == 0


async def assert_controls(machine: CliInstance, executors: set[int]) -> None:
    """The executors are there, and whoever controls now knows them: it starts one more, no other, and ends it."""
    await until(lambda: answers(machine), seconds=60)
    machine.do("scale", "echo", "2")
    assert pids(machine, EXECUTOR) > executors
    machine.do("scale", "echo", "1")
    assert pids(machine, EXECUTOR) == executors


@pytest.fixture
def executors(machine: CliInstance, tmp_path: Path) -> set[int]:
    machine.do("deploy", write_app(tmp_path, "echo"))
    return pids(machine, EXECUTOR)


@pytest.mark.parametrize("module", ["cornserve.gateway", "cornserve.control"])
async def test_another_takes_over_from_a_killed_one(machine: CliInstance, executors: set[int], module: str) -> None:
    [killed] = machine.processes(module)
    killed.kill()
    await until(lambda: bool(pids(machine, module) - {killed.pid}), seconds=60)
    await assert_controls(machine, executors)


async def test_another_instance_goes_on_with_what_a_killed_one_has_left(
    machine: CliInstance, executors: set[int]
) -> None:
    supervisor = psutil.Process(machine.pid)
    os.kill(supervisor.pid, signal.SIGKILL)
    await until(lambda: not pids(machine, "cornserve.control") and not pids(machine, "cornserve.gateway"))
    assert pids(machine, EXECUTOR) == executors
    machine.up()
    await assert_controls(machine, executors)


async def test_what_is_left_of_an_executor_that_died_while_nobody_looked_is_removed(
    machine: CliInstance, tmp_path: Path
) -> None:
    file = tmp_path / "echo.py"
    file.write_text(
        "from cornserve import App\nfrom cornserve_echo import EchoTask\n"
        "app = App(name='echo', paths=[EchoTask(engine=True)])\n"
    )
    machine.do("deploy", str(file))
    [executor] = machine.processes(EXECUTOR)
    [engine] = executor.children()
    os.kill(machine.pid, signal.SIGKILL)
    await until(lambda: not pids(machine, "cornserve.control"))
    executor.kill()
    assert engine.is_running()

    machine.up()

    await until(lambda: not engine.is_running(), seconds=60)
    await until(lambda: answers(machine), seconds=60)
