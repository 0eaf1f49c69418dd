"""The first requests of an app run twice, which finds code that differs when it runs again before a word is sent."""

from __future__ import annotations

from typing import Any

import httpx2 as httpx
import pytest
import pytest_asyncio

from cornserve.app_host.repetition import REPEATED_REQUESTS
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.sources import STARTS

MOODY = """
from collections import Counter
from cornserve import App, Task, recorded
from cornserve_echo import EchoRequest, EchoTask
from cornserve_tasklib import ChatChunk, ChatRequest, ChatResponse

runs = Counter()

class Moody(Task[ChatRequest, ChatResponse]):
    '''Does something else in each run, as the last message says.'''

    def post_init(self) -> None:
        self.echo = EchoTask()
        self.loud = EchoTask(prefix="!")

    def invoke(self, request: ChatRequest) -> ChatResponse:
        mode = request.messages[-1].content
        number = runs[mode]
        runs[mode] += 1
        is_odd = number % 2 == 1
        if mode == "late":
            self.echo.invoke(EchoRequest(text="one")).text
        if mode in ("input", "late"):
            return self.answer(self.echo.invoke(EchoRequest(text=f"two {number}")))
        if mode == "task":
            return self.answer((self.loud if is_odd else self.echo).invoke(EchoRequest(text="x")))
        if mode == "more" and is_odd:
            self.echo.invoke(EchoRequest(text="x"))
        if mode == "fewer" and not is_odd:
            self.echo.invoke(EchoRequest(text="x"))
        if mode == "value":
            output = self.echo.invoke(EchoRequest(text="x"))
            return ChatResponse(text=output.text if is_odd else str(output.words_sent))
        if mode == "error" and is_odd:
            raise KeyError(mode)
        if mode == "argument":
            recorded(abs, number)
        if mode == "function":
            recorded(abs if is_odd else hex, 1)
        return ChatResponse(text="done")

    def answer(self, output):
        return ChatResponse(chunks=output.words.map(lambda word: ChatChunk(text=word + " ")))

app = App(name="moody", paths=[Moody()])
"""


def line_of(code: str) -> str:
    return f"app.py:{next(number for number, line in enumerate(MOODY.splitlines(), start=1) if code in line)}"


TWO, TASK = line_of("two {number}"), line_of("self.loud if is_odd")
DIFFERENCES = {
    "input": f"at invocation 0: its input differs from the recorded one: {TWO} called it in the recording, {TWO} now",
    "late": f"at invocation 1: its input differs from the recorded one: {TWO} called it in the recording, {TWO} now",
    "task": f"at invocation 0: {TASK} called it with other settings in the recording, {TASK} calls EchoTask now",
    "more": "calls EchoTask now, and did not in the recording",
    "fewer": "called EchoTask in the recording, and does not now",
    "value": "it waited for `words_sent` of invocation 0 in the recording, and waited for `text` of invocation 0 now",
    "error": "it returned a response in the recording, and raises KeyError now",
    "argument": "the arguments of abs differ from the recorded ones",
    "function": "called hex in the recording",
}


@pytest_asyncio.fixture(scope="module", autouse=True, loop_scope="module")
async def moody(deploy_for_module: Deploy) -> None:
    await deploy_for_module(MOODY)


def messages(mode: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": mode}]


CALLS: dict[str, tuple[str, dict[str, Any], str]] = {
    "native": ("/v1/apps/moody/invoke", {}, "application/json"),
    "native stream": ("/v1/apps/moody/invoke", {}, "text/event-stream"),
    "chat": ("/v1/chat/completions", {"model": "moody"}, "*/*"),
    "chat stream": ("/v1/chat/completions", {"model": "moody", "stream": True}, "*/*"),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("mode", ["input", "late"])
async def test_all_calls_fail_before_a_word_is_sent(gateway: httpx.AsyncClient, call: str, mode: str) -> None:
    path, fields, accepted = CALLS[call]

    response = await gateway.post(path, json=fields | {"messages": messages(mode)}, headers={"accept": accepted})

    assert response.status_code == 500
    error = response.json()["error"]
    assert error["code"] == "task_error"
    assert "DivergenceError: the replay of EchoTask diverged" in error["message"]
    assert DIFFERENCES[mode] in error["message"]


@pytest.mark.parametrize("mode", DIFFERENCES)
async def test_the_error_names_the_difference_and_its_place(gateway: httpx.AsyncClient, mode: str) -> None:
    response = await gateway.post("/v1/apps/moody/invoke", json={"messages": messages(mode)})

    assert response.status_code == 500
    assert DIFFERENCES[mode] in response.json()["error"]["message"]


async def test_only_the_first_requests_run_twice(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(STARTS)

    async def starts(text: str) -> int:
        """Returns how often the code has started for a request."""
        response = await gateway.post("/v1/apps/starts/invoke", json={"text": text})
        found: int = response.json()["starts"]
        return found

    found = [await starts(str(number)) for number in range(REPEATED_REQUESTS + 2)]

    assert found == [2] * REPEATED_REQUESTS + [1] * 2
