"""Tasks whose `invoke` is a generator: clients receive what it yields before it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from openai import AsyncOpenAI

from tests.unit.echo_executors import EchoExecutors
from tests.unit.gateway.app_hosts import app_host, app_hosts
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.sources import COUNTDOWN, REVISER
from tests.waiting import until


def chat(text: str) -> Any:
    return {"model": "reviser", "messages": [{"role": "user", "content": text}]}


async def test_chunks_arrive_before_later_invocations_run(
    openai: AsyncOpenAI, deploy: Deploy, executors: EchoExecutors
) -> None:
    await deploy(REVISER)

    stream = await openai.chat.completions.create(**chat("a b"), stream=True, stream_options={"include_usage": True})
    texts: list[str] = []
    async for chunk in stream:
        if chunk.choices and chunk.choices[0].delta.content:
            texts.append(chunk.choices[0].delta.content)
        if texts[-1:] == ["A "]:
            await until(lambda: executors.running() == 1)  # The second word has not been generated.

    assert texts == ["Draft: ", "a ", "b ", "Revision: ", "A ", "B "]
    assert chunk.usage is not None
    assert chunk.usage.completion_tokens == 2


async def test_a_response_that_is_not_streamed_is_the_returned_one(openai: AsyncOpenAI, deploy: Deploy) -> None:
    await deploy(REVISER)

    completion = await openai.chat.completions.create(**chat("a b"))

    assert completion.choices[0].message.content == "A B"


async def test_text_completions_and_responses_stream_it_too(openai: AsyncOpenAI, deploy: Deploy) -> None:
    await deploy(REVISER)

    completion = await openai.completions.create(model="reviser", prompt="a b", stream=True)
    texts = [chunk.choices[0].text async for chunk in completion if chunk.choices]
    response = await openai.responses.create(model="reviser", input="a b", stream=True)
    deltas = [event.delta async for event in response if event.type == "response.output_text.delta"]

    assert "".join(texts) == "".join(deltas) == "Draft: a b Revision: A B "


async def test_several_prompts_stream_their_responses(openai: AsyncOpenAI, deploy: Deploy) -> None:
    await deploy(REVISER)

    completion = await openai.completions.create(model="reviser", prompt=["a", "b"], stream=True)
    texts = [(chunk.choices[0].index, chunk.choices[0].text) async for chunk in completion if chunk.choices]

    assert [text for text in texts if text[1]] == [(0, "A"), (1, "B")]


async def test_native_calls_stream_it_as_a_stream_of_its_own(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(COUNTDOWN)

    lines = await stream_natively(gateway, "countdown", {"text": "x y"})

    items = [line["item"] for line in lines[:-1]]
    assert items == [{"number": 0}, "x", "x", {"number": 1}, "y", "y", "end"]
    assert {line["stream"] for line in lines[:-1]} == {"yields"}
    assert lines[-1] == {"words": None, "text": "y y", "words_sent": 2}


async def test_a_number_that_json_does_not_have_is_null(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(COUNTDOWN.replace('yield "end"', 'yield float("nan")'))

    lines = await stream_natively(gateway, "countdown", {"text": "x y"})

    assert lines[-2] == {"stream": "yields", "item": None}


async def stream_natively(gateway: httpx.AsyncClient, app: str, request: object) -> list[Any]:
    headers = {"accept": "text/event-stream"}
    response = await gateway.post(f"/v1/apps/{app}/invoke", json=request, headers=headers)
    blocks = response.text.strip().split("\n\n")
    return [json.loads(block.partition("data: ")[2]) for block in blocks]


async def test_items_arrive_once_when_the_process_of_the_app_is_killed(
    openai: AsyncOpenAI, deploy: Deploy, executors: EchoExecutors
) -> None:
    await deploy(REVISER)
    words = [f"word{index}" for index in range(20)]

    stream = await openai.chat.completions.create(**chat(" ".join(words)), stream=True)
    host = await app_host()
    text = ""
    async for chunk in stream:
        text += chunk.choices[0].delta.content or ""
        if text.endswith(" WORD3 "):
            host.kill()

    assert text == f"Draft: {' '.join(words)} Revision: {' '.join(words).upper()} "
    assert [process.pid for process in app_hosts()] != [host.pid]


CLOSING = """
import os
import signal
from collections.abc import Generator
from typing import Any
from cornserve import App, Task
from cornserve_echo import EchoRequest, EchoTask
from cornserve_tasklib import ChatChunk, ChatRequest, ChatResponse, Usage

def chunk(word: str) -> ChatChunk:
    if not os.path.exists({killed!r}):
        open({killed!r}, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return ChatChunk(text=word + " ")

class Closing(Task[ChatRequest, ChatResponse]):
    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: ChatRequest) -> Generator[Any, None, ChatResponse]:
        output = self.echo.invoke(EchoRequest(text=request.messages[-1].content))
        yield output.words.map(chunk)
        text = output.text
        yield "End"
        return ChatResponse(text=text, usage=Usage(prompt_tokens=1, completion_tokens=2))

app = App(name="closing", paths=[Closing()])
"""


async def test_items_arrive_once_when_another_process_runs_the_task_to_its_end(
    openai: AsyncOpenAI, deploy: Deploy, tmp_path: Path
) -> None:
    await deploy(CLOSING.format(killed=str(tmp_path / "killed")))

    stream = await openai.chat.completions.create(**{**chat("a b c"), "model": "closing"}, stream=True)
    texts = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]

    assert "".join(texts) == "a b c End"


async def test_an_error_follows_what_came_before_it(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(REVISER)

    response = await gateway.post("/v1/chat/completions", json={**chat("crash"), "stream": True})

    assert response.status_code == 200
    assert '"content":"Draft: "' in response.text
    assert "no revision" in response.text.strip().splitlines()[-1]


async def test_an_error_without_a_wait_before_it_sets_the_status(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(REVISER.replace('yield "Draft: "', 'yield "Draft: "; raise ValueError("no draft")'))

    response = await gateway.post("/v1/chat/completions", json={**chat("a"), "stream": True})

    assert response.status_code == 500
    assert "no draft" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("yield 1", "invoke yielded a value of the type int: yield a str, a ChatChunk, a ChatResponse"),
        ("yield 'a'; return None", "returned a value of the type NoneType, not ChatResponse"),
    ],
)
async def test_invalid_yields_are_errors(gateway: httpx.AsyncClient, deploy: Deploy, line: str, message: str) -> None:
    await deploy(REVISER.replace('yield "Draft: "', line))

    response = await gateway.post("/v1/chat/completions", json={**chat("a b"), "stream": True})

    assert message in response.text
