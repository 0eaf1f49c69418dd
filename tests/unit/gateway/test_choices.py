"""Choices, tool calls, reasoning and log probabilities, through the official client."""

from __future__ import annotations

import pytest
import pytest_asyncio
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.sources import MODEL


@pytest_asyncio.fixture(scope="module", autouse=True, loop_scope="module")
async def apps(deploy_for_module: Deploy) -> None:
    await deploy_for_module(MODEL)


@pytest.fixture
def model(openai: AsyncOpenAI) -> AsyncOpenAI:
    return openai


async def complete(client: AsyncOpenAI, script: str, n: int = 1, **fields: object) -> ChatCompletion:
    messages = [{"role": "user", "content": script}]
    completion: ChatCompletion = await client.chat.completions.create(model="model", messages=messages, n=n, **fields)  # type: ignore[call-overload]
    return completion


async def stream_chunks(client: AsyncOpenAI, script: str, n: int = 1, **fields: object) -> list[ChatCompletionChunk]:
    messages = [{"role": "user", "content": script}]
    create = client.chat.completions.create
    stream = await create(model="model", messages=messages, n=n, stream=True, **fields)  # type: ignore[call-overload]
    return [chunk async for chunk in stream]


async def test_several_choices_are_numbered(model: AsyncOpenAI) -> None:
    completion = await complete(model, "say hello", n=3)

    assert [(choice.index, choice.message.content) for choice in completion.choices] == [
        (0, "hello"),
        (1, "hello 1"),
        (2, "hello 2"),
    ]
    assert completion.usage is not None
    assert completion.usage.completion_tokens == 3


async def test_streamed_choices_are_interleaved(model: AsyncOpenAI) -> None:
    chunks = [chunk.choices[0] for chunk in await stream_chunks(model, "0:a 1:x 1:y 0:b", n=2)]

    assert [(choice.index, choice.delta.content) for choice in chunks[:-2]] == [(0, "a"), (1, "x"), (1, "y"), (0, "b")]
    assert [choice.delta.role for choice in chunks[:-2]] == ["assistant", "assistant", None, None]
    assert [(choice.index, choice.finish_reason) for choice in chunks[-2:]] == [(0, "stop"), (1, "stop")]


async def test_a_choice_created_by_the_task_is_one_chunk(model: AsyncOpenAI) -> None:
    chunks = [chunk.choices[0] for chunk in await stream_chunks(model, "say hello", n=2)]

    assert [(choice.index, choice.delta.content) for choice in chunks[:2]] == [(0, "hello"), (1, "hello 1")]


async def test_a_tool_call_has_no_text(model: AsyncOpenAI) -> None:
    (choice,) = (await complete(model, "call")).choices

    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    assert choice.message.tool_calls is not None
    assert choice.message.tool_calls[0].model_dump() == {
        "id": "call-1",
        "type": "function",
        "function": {"name": "add", "arguments": '{"a": 1}'},
    }
    assert choice.message.model_extra == {"reasoning_content": "think-1"}


async def test_tool_calls_and_reasoning_are_streamed(model: AsyncOpenAI) -> None:
    first, *calls, _ = [chunk.choices[0].delta for chunk in await stream_chunks(model, "think-1 begin go-on end")]

    assert first.model_extra == {"reasoning_content": "think-1"}
    assert (first.role, first.content) == ("assistant", None)
    functions = [call for delta in calls for call in delta.tool_calls or ()]
    assert functions[0].id == "call-1"
    assert functions[0].type == "function"
    assert functions[0].function is not None
    assert functions[0].function.name == "add"
    assert "".join((call.function and call.function.arguments) or "" for call in functions) == '{"a": 1}'


async def test_a_response_message_can_be_sent_back(model: AsyncOpenAI) -> None:
    message = (await complete(model, "call")).choices[0].message
    messages = [
        {"role": "user", "content": "1 + 1"},
        message,
        message.model_dump(),
        {"role": "tool", "tool_call_id": "call-1", "content": "2"},
        {"role": "user", "content": "say thanks"},
    ]

    completion = await model.chat.completions.create(model="model", messages=messages)  # type: ignore[arg-type]

    assert completion.choices[0].message.content == "thanks"


async def test_logprobs_have_openais_format(model: AsyncOpenAI) -> None:
    (choice,) = (await complete(model, "say hello", logprobs=True, top_logprobs=2)).choices
    (chunk, _) = [each.choices[0] for each in await stream_chunks(model, "hello", logprobs=True, top_logprobs=2)]

    for logprobs in (choice.logprobs, chunk.logprobs):
        assert logprobs is not None
        assert logprobs.content is not None
        (token,) = logprobs.content
        assert (token.token, token.logprob) == ("hello", -0.5)
        assert [(other.token, other.logprob) for other in token.top_logprobs] == [("hello", -0.5), ("?", -1.5)]
