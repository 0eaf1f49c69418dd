"""After a crash, a new gateway or controller finds the running executors and keeps them."""

from __future__ import annotations

import os
import signal

import psutil
import pytest

from tests.chaos.apps import echo
from tests.integration.cli.cli_instance import CliInstance
from tests.waiting import until

EXECUTOR = "cornserve_executors.base"


def pids(machine: CliInstance, module: str) -> set[int]:
    return {process.pid for process in machine.processes(module)}


async def assert_managed(machine: CliInstance, executors: set[int]) -> None:
    """Asserts that the executors still run and that the current controller manages them: it scales them up and down."""
    await until(lambda: machine.responds("echo"), seconds=60)
    machine.do("scale", "echo", "2")
    assert pids(machine, EXECUTOR) > executors
    machine.do("scale", "echo", "1")
    assert pids(machine, EXECUTOR) == executors


@pytest.fixture
def executors(machine: CliInstance) -> set[int]:
    machine.deploy(echo())
    return pids(machine, EXECUTOR)


@pytest.mark.slow
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


@pytest.mark.slow
async def test_the_engine_of_an_executor_that_died_while_the_controller_was_down_is_killed(
    machine: CliInstance,
) -> None:
    machine.deploy(echo(engine=True))
    [executor] = machine.processes(EXECUTOR)
    [engine] = executor.children()
    os.kill(machine.pid, signal.SIGKILL)
    await until(lambda: not pids(machine, "cornserve.control"))
    executor.kill()
    assert engine.is_running()

    machine.up()

    await until(lambda: not engine.is_running(), seconds=60)
    await until(lambda: machine.responds("echo"), seconds=60)
