"""Requests with fields that the app does not use are rejected."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import httpx2 as httpx
import openai as openai_client
import pytest
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionUserMessageParam

from cornserve.app.unused_fields import invoke_rejecting_unused, tracked
from cornserve.task import Task
from cornserve.task.recording import Recording
from cornserve_policies.replayable_random import ReplayableRandom
from cornserve_tasklib import Chat, ChatRequest, ChatResponse
from tests.unit.echo_executors import EchoExecutors
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.sources import CHAT, VECTORS

USER: ChatCompletionUserMessageParam = {"role": "user", "content": "one two"}

LATE = """
from cornserve import App, Task
from cornserve_echo import EchoRequest, EchoTask
from cornserve_tasklib import ChatRequest, ChatResponse

class Late(Task[ChatRequest, ChatResponse]):
    '''Repeats the message `n` times, and reads `n` last.'''

    def post_init(self) -> None:
        self.echo = EchoTask()

    def invoke(self, request: ChatRequest) -> ChatResponse:
        text = self.echo.invoke(EchoRequest(text=request.messages[-1].content)).text
        return ChatResponse(text=text * request.n)

app = App(name="late", paths=[Late()])
"""


@pytest.mark.parametrize("stream", [False, True])
async def test_unused_fields_are_rejected_before_the_dispatch(
    openai: AsyncOpenAI, deploy: Deploy, executors: EchoExecutors, stream: bool
) -> None:
    await deploy(CHAT)

    with pytest.raises(openai_client.BadRequestError) as caught:
        await openai.chat.completions.create(
            model="parrot", messages=[USER], temperature=0, seed=3, max_tokens=None, n=1, stream=stream
        )

    assert "this app makes no use of 'seed', 'temperature'" in caught.value.message
    assert (caught.value.param, caught.value.code) == ("seed", "unused_field")
    assert executors.total("cornserve_executor_invocations_total", {"code": "OK"}) == 0


async def test_fields_that_clients_of_anthropic_must_send_are_never_unused(
    gateway: httpx.AsyncClient, deploy: Deploy
) -> None:
    await deploy(CHAT)
    body = {"model": "parrot", "max_tokens": 7, "messages": [USER], "thinking": {"type": "disabled"}}

    accepted = await gateway.post("/v1/messages", json=body)
    refused = await gateway.post("/v1/messages", json={**body, "temperature": 0})

    assert accepted.json()["content"][0]["text"].split() == ["one", "two"]
    assert "this app makes no use of 'temperature': remove it" in refused.json()["error"]["message"]


async def test_an_app_without_reasoning_accepts_an_effort_of_none(openai: AsyncOpenAI, deploy: Deploy) -> None:
    await deploy(CHAT)

    await openai.chat.completions.create(model="parrot", messages=[USER], reasoning_effort="none")
    with pytest.raises(openai_client.BadRequestError, match="no use of 'reasoning_effort'"):
        await openai.chat.completions.create(model="parrot", messages=[USER], reasoning_effort="low")
    with pytest.raises(openai_client.BadRequestError, match="no use of 'max_tokens'"):
        await openai.chat.completions.create(model="parrot", messages=[USER], max_tokens=7)


async def test_a_field_that_is_read_in_a_replay_is_used(openai: AsyncOpenAI, deploy: Deploy) -> None:
    await deploy(LATE)

    completion = await openai.chat.completions.create(model="late", messages=[USER], n=2)

    assert completion.choices[0].message.content == "one twoone two"
    with pytest.raises(openai_client.BadRequestError, match="no use of 'stop'"):
        await openai.chat.completions.create(model="late", messages=[USER], n=2, stop=["x"])


async def test_fields_of_embedding_requests_are_tracked(openai: AsyncOpenAI, deploy: Deploy) -> None:
    await deploy(VECTORS.replace("request.dimensions or 2", "2"))

    await openai.embeddings.create(model="lengths", input="four")
    with pytest.raises(openai_client.BadRequestError, match="no use of 'dimensions'"):
        await openai.embeddings.create(model="lengths", input="four", dimensions=3)


def test_passing_on_the_request_uses_all_fields() -> None:
    given = ChatRequest.model_validate(
        {"messages": [USER], "n": 2, "tools": [{"type": "function", "function": {"name": "f"}}]}
    )

    recording = Recording(ReplayableRandom("a request"))
    recording.run("Chat", lambda: invoke_rejecting_unused(Chat(model_id="m"), tracked(ChatRequest, given)))

    assert ChatRequest.model_validate_json(recording.invocations[0].request) == given


def test_a_copy_of_a_tracked_request_is_a_plain_request() -> None:
    given = ChatRequest.model_validate({"messages": [USER], "n": 2})

    changed = tracked(ChatRequest, given).model_copy(update={"n": 3})

    assert (type(changed), changed.n, changed.messages) == (ChatRequest, 3, given.messages)


@pytest.mark.parametrize(
    "read",
    [
        copy.copy,
        copy.deepcopy,
        lambda request: request.model_copy(deep=True),
        ChatRequest.model_dump,
        ChatRequest.model_dump_json,
        dict,
        vars,
        repr,
    ],
    ids=["copy", "deepcopy", "model_copy", "model_dump", "model_dump_json", "dict", "vars", "repr"],
)
def test_reading_the_whole_request_uses_all_fields(read: Callable[[ChatRequest], Any]) -> None:
    given = ChatRequest.model_validate({"messages": [USER], "n": 2})

    class WholeRequestReader(Task[ChatRequest, ChatResponse]):
        def invoke(self, request: ChatRequest) -> ChatResponse:
            assert read(request) == read(given)
            return ChatResponse(text="")

    invoke_rejecting_unused(WholeRequestReader(), tracked(ChatRequest, given))
