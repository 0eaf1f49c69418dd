"""After a crash, a new gateway or controller finds the running executors and keeps them."""

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


async def responds(machine: CliInstance) -> bool:
    done = await asyncio.to_thread(machine.run, "invoke", "echo", json.dumps({"text": "hello"}))
    return done.returncode == 0


async def assert_managed(machine: CliInstance, executors: set[int]) -> None:
    """Asserts that the executors still run and that the current controller manages them: it scales them up and down."""
    await until(lambda: responds(machine), seconds=60)
    machine.do("scale", "echo", "2")
    assert pids(machine, EXECUTOR) > executors
    machine.do("scale", "echo", "1")
    assert pids(machine, EXECUTOR) == executors


@pytest.fixture
def executors(machine: CliInstance, tmp_path: Path) -> set[int]:
    machine.deploy(write_app(tmp_path, "echo"))
    return pids(machine, EXECUTOR)


@pytest.mark.parametrize("module", ["cornserve.gateway", "cornserve.control"])
async def test_a_killed_process_is_replaced_and_its_executors_keep_running(
    machine: CliInstance, executors: set[int], module: str
) -> None:
    [killed] = machine.processes(module)
    killed.kill()
    await until(lambda: bool(pids(machine, module) - {killed.pid}), seconds=60)
    await assert_managed(machine, executors)


async def test_a_new_instance_keeps_the_executors_of_a_killed_one(machine: CliInstance, executors: set[int]) -> None:
    supervisor = psutil.Process(machine.pid)
    os.kill(supervisor.pid, signal.SIGKILL)
    await until(lambda: not pids(machine, "cornserve.control") and not pids(machine, "cornserve.gateway"))
    assert pids(machine, EXECUTOR) == executors
    machine.up()
    await assert_managed(machine, executors)


async def test_the_engine_of_an_executor_that_died_while_the_controller_was_down_is_killed(
    machine: CliInstance, tmp_path: Path
) -> None:
    file = tmp_path / "echo.py"
    file.write_text(
        "from cornserve import App\nfrom cornserve_echo import EchoTask\n"
        "app = App(name='echo', paths=[EchoTask(engine=True)])\n"
    )
    machine.deploy(str(file))
    [executor] = machine.processes(EXECUTOR)
    [engine] = executor.children()
    os.kill(machine.pid, signal.SIGKILL)
    await until(lambda: not pids(machine, "cornserve.control"))
    executor.kill()
    assert engine.is_running()

    machine.up()

    await until(lambda: not engine.is_running(), seconds=60)
    await until(lambda: responds(machine), seconds=60)
