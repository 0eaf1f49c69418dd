"""A gateway that is killed during the request of an agent."""

from __future__ import annotations

import httpx2 as httpx
import psutil
import pytest

from cornserve.client import Client, DisconnectedError, StreamItem
from tests.executor_metrics import executor_total
from tests.integration.cli.cli_instance import CliInstance
from tests.waiting import until

pytestmark = [pytest.mark.chaos, pytest.mark.slow, pytest.mark.timeout(120)]

TURNS = 200
SECONDS = 0.02
KILLED_AFTER = 50
AGENT = """
from collections.abc import Generator
from typing import Any
from cornserve import App, Task, recorded
from cornserve_echo import EchoRequest, EchoResponse, EchoTask

class Agent(Task[EchoRequest, EchoResponse]):
    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: EchoRequest) -> Generator[Any, None, EchoResponse]:
        output = self.echo.invoke(request)
        for turn in range({turns}):
            text = recorded(str.upper, output.text)
            output = self.echo.invoke(EchoRequest(text=text, seconds={seconds}))
            yield turn
        return output

app = App(name="agent", paths=[Agent()])
"""


async def test_a_gateway_killed_during_an_agents_request_leaves_nothing_running(machine: CliInstance) -> None:
    machine.deploy(AGENT.format(turns=TURNS, seconds=SECONDS))
    [gateway] = machine.processes("cornserve.gateway")
    hosts = gateway.children(recursive=True)
    turns: list[int] = []

    def read_turns() -> None:
        with Client(machine.url, retries=0) as client:
            for item in client.stream("agent", {"text": "hello"}):
                assert isinstance(item, StreamItem)
                turns.append(item.item)
                if len(turns) == KILLED_AFTER:
                    gateway.kill()

    with pytest.raises(DisconnectedError):
        read_turns()

    assert turns == list(range(len(turns)))
    assert KILLED_AFTER <= len(turns) < TURNS
    _, left = psutil.wait_procs(hosts, timeout=60)
    assert left == []
    await until(lambda: has_no_invocations(machine), seconds=60)


def has_no_invocations(machine: CliInstance) -> bool:
    """Returns whether no executor runs an invocation. While the gateway is down, it is unknown."""
    try:
        return executor_total(machine.url, "cornserve_executor_invocations_running") == 0
    except httpx.TransportError:
        return False
