"""The code of an app waits for values in its process. It runs again only after the loss of the process."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx2 as httpx

from tests.loop_clock import LoopClock
from tests.unit.echo_executors import EchoExecutors
from tests.unit.gateway.app_hosts import app_host, app_hosts
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.sources import STARTS
from tests.waiting import until

FIRST_CALL = next(number for number, line in enumerate(STARTS.splitlines(), start=1) if "first = " in line)


async def test_code_does_not_start_again_for_each_turn_of_a_request(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(STARTS)

    response = await gateway.post("/v1/apps/starts/invoke", json={"text": "same input"})

    assert response.json() == {"starts": 2}  # The first requests run twice.


async def test_another_process_repeats_the_code(
    gateway: httpx.AsyncClient, deploy: Deploy, executors: EchoExecutors, clock: LoopClock
) -> None:
    await deploy(STARTS)

    response = await kill_during_first_call(gateway, executors, clock, "same input")

    assert response.json() == {"starts": 2}  # The other process counts from zero, and runs its first requests twice.


async def test_code_that_differs_in_another_process_names_both_lines(
    gateway: httpx.AsyncClient, deploy: Deploy, executors: EchoExecutors, clock: LoopClock
) -> None:
    await deploy(STARTS)

    response = await kill_during_first_call(gateway, executors, clock, "process id")

    assert response.status_code == 500
    message = response.json()["error"]["message"]
    assert "its input differs from the recorded one" in message
    assert message.count(f"app.py:{FIRST_CALL}") == 2
    assert "`text` is " in message


MAPPER = """
import os
import signal
from cornserve import App, Task
from cornserve_echo import EchoRequest, EchoResponse, EchoTask

def upper(word: str) -> str:
    open({killed!r}, "w").close()
    os.kill(os.getpid(), signal.SIGKILL)
    return word.upper()

class Mapper(Task[EchoRequest, EchoResponse]):
    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: EchoRequest) -> EchoResponse:
        output = self.echo.invoke(request)
        words = output.words if os.path.exists({killed!r}) else output.words.map(upper)
        return EchoResponse(words=words, text=output.text, words_sent=1)

app = App(name="mapper", paths=[Mapper()])
"""


async def test_code_that_does_not_map_a_stream_again_in_another_process_fails_its_request_only(
    gateway: httpx.AsyncClient, deploy: Deploy, tmp_path: Path
) -> None:
    await deploy(MAPPER.format(killed=str(tmp_path / "killed")))

    response = await gateway.post("/v1/apps/mapper/invoke", json={"text": "a"}, headers={"accept": "text/event-stream"})
    host = await app_host()
    again = await gateway.post("/v1/apps/mapper/invoke", json={"text": "a"})

    assert "it mapped a stream in the recording that it does not map now" in response.text
    assert again.json()["text"] == "a"
    assert await app_host() == host


async def kill_during_first_call(
    gateway: httpx.AsyncClient, executors: EchoExecutors, clock: LoopClock, text: str
) -> httpx.Response:
    request = asyncio.create_task(gateway.post("/v1/apps/starts/invoke", json={"text": text, "seconds": 1}))
    await until(lambda: executors.running() == 1)
    for host in app_hosts():
        host.kill()
    await clock.advance_until(lambda: executors.running() == 0, step=0.5, at_most=1)
    return await request
