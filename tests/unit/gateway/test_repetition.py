"""The first requests of an app run twice, which finds code that differs when it runs again before a word is sent."""

from __future__ import annotations

import json
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
from cornserve_tasklib import ChatChunk, ChatRequest, ChatResponse, Usage

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
        if mode == "text":
            return ChatResponse(text=f"done {number}")
        if mode == "usage":
            return ChatResponse(text="done", usage=Usage(completion_tokens=number))
        if mode == "mapped":
            streams = [self.echo.invoke(EchoRequest(text=text)) for text in ("a", "b")]
            return self.answer(streams[is_odd])
        return ChatResponse(text="done")

    def answer(self, output):
        return ChatResponse(chunks=output.words.map(lambda word: ChatChunk(text=word + " ")))

app = App(name="moody", paths=[Moody()])
"""

TALK = """
from collections import Counter
from collections.abc import Generator
from typing import Any
from cornserve import App, Stream, Task
from cornserve_echo import EchoRequest, EchoTask
from pydantic import BaseModel

runs = Counter()

class Line(BaseModel):
    text: str
    number: float = 0
    words: Stream[str] = Stream()

class Talk(Task[EchoRequest, Line]):
    '''Yields or returns something else in each run, as the text says.'''

    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: EchoRequest) -> Generator[Any, None, Line]:
        mode = request.text
        number = runs[mode]
        runs[mode] += 1
        is_odd = number % 2 == 1
        one, two = (self.echo.invoke(EchoRequest(text=text)) for text in ("a a", "b b"))
        if mode == "equal":
            yield {"nothing": float("nan"), "words": {"one", "two"}}
            yield one.words.map(str.upper)
            return Line(text=str(["equal"]), number=float("nan"))
        if mode == "yielded value":
            yield {"step": number}
        if mode == "yielded text":
            yield f"step {number}"
        if mode == "yielded stream":
            yield (two if is_odd else one).words
        if mode == "yielded mapped stream":
            yield (two if is_odd else one).words.map(str.upper).map(str.lower)
        if mode == "yielded stream or value":
            yield "a" if is_odd else one.words
        if mode == "late yield":
            yield "step"
            yield f"{one.text} {number}"
        if mode == "more" and is_odd or mode == "fewer" and not is_odd:
            yield "step"
        if mode == "returned stream":
            return Line(text=mode, words=(two if is_odd else one).words)
        if mode == "returned end":
            yield "step"
            return Line(text=f"end {number}")
        return Line(text=mode)

app = App(name="talk", paths=[Talk()])
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
    "text": '`text` is "done 0" in the recording, and "done 1" now',
    "usage": "the response differs from the recorded one: ",
}

STREAMED = {
    "yielded value": "a yielded value differs from the recorded one: `step` is 0 in the recording, and 1 now",
    "yielded text": 'a yielded value differs from the recorded one: it is "step 0" in the recording, and "step 1" now',
    "yielded stream": "a yielded value differs from the recorded one: a stream is another one",
    "yielded mapped stream": "a yielded value differs from the recorded one: a stream is another one",
    "yielded stream or value": "a yielded value differs from the recorded one: a stream is another one",
    "more": "it yields a value now that it did not yield in the recording",
    "fewer": "it yielded a value in the recording that it does not yield now",
    "returned stream": "the response differs from the recorded one: a stream is another one",
}


@pytest_asyncio.fixture(scope="module", autouse=True, loop_scope="module")
async def moody(deploy_for_module: Deploy) -> None:
    await deploy_for_module(MOODY)
    await deploy_for_module(TALK)


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


@pytest.mark.parametrize("call", [call for call in CALLS if call != "native"])
async def test_a_response_with_another_stream_fails_before_a_word_is_sent(
    gateway: httpx.AsyncClient, call: str
) -> None:
    path, fields, accepted = CALLS[call]

    response = await gateway.post(path, json=fields | {"messages": messages("mapped")}, headers={"accept": accepted})

    assert response.status_code == 500
    difference = "the response differs from the recorded one: a stream is another one"
    assert difference in response.json()["error"]["message"]


@pytest.mark.parametrize("mode", DIFFERENCES)
async def test_the_error_names_the_difference_and_its_place(gateway: httpx.AsyncClient, mode: str) -> None:
    response = await gateway.post("/v1/apps/moody/invoke", json={"messages": messages(mode)})

    assert response.status_code == 500
    assert DIFFERENCES[mode] in response.json()["error"]["message"]


@pytest.mark.parametrize("mode", STREAMED)
async def test_streams_of_a_task_are_compared_before_an_item_is_sent(gateway: httpx.AsyncClient, mode: str) -> None:
    response = await stream_talk(gateway, mode)

    assert response.status_code == 500
    assert STREAMED[mode] in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("mode", "difference"),
    [
        ("late yield", "a yielded value differs from the recorded one: it is "),
        ("returned end", "the response differs from the recorded one: `text` is"),
    ],
)
async def test_a_later_difference_ends_the_stream(gateway: httpx.AsyncClient, mode: str, difference: str) -> None:
    response = await stream_talk(gateway, mode)

    assert response.status_code == 200
    _, error = response.text.rstrip().rsplit("data: ", 1)
    assert difference in json.loads(error)["error"]["message"]


async def test_equal_values_of_different_objects_are_no_difference(gateway: httpx.AsyncClient) -> None:
    response = await stream_talk(gateway, "equal")

    assert response.status_code == 200
    assert '"item":"A"' in response.text.replace(" ", "")
    assert "event: result" in response.text


async def stream_talk(gateway: httpx.AsyncClient, mode: str) -> httpx.Response:
    return await gateway.post("/v1/apps/talk/invoke", json={"text": mode}, headers={"accept": "text/event-stream"})


async def test_only_the_first_requests_run_twice(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(STARTS)

    async def starts(text: str) -> int:
        """Returns how often the code has started for a request."""
        response = await gateway.post("/v1/apps/starts/invoke", json={"text": text})
        found: int = response.json()["starts"]
        return found

    found = [await starts(str(number)) for number in range(REPEATED_REQUESTS + 2)]

    assert found == [2] * REPEATED_REQUESTS + [1] * 2
