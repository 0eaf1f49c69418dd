"""`/v1/messages`, through the official client and raw JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

import httpx2 as httpx
import pytest
import pytest_asyncio
from anthropic import APIStatusError, AsyncAnthropic, BadRequestError, InternalServerError, NotFoundError
from anthropic.types import Message, ThreadUnsupportedRequestError, ToolParam

from cornserve.gateway.endpoints.anthropic.message_request import CreateMessageRequest
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.image_files import image_file
from tests.unit.gateway.refused_bodies import refusal
from tests.unit.gateway.sources import ECHO, MODEL, RELAY

ADD: ToolParam = {
    "name": "add",
    "description": "Adds.",
    "input_schema": {"type": "object", "properties": {"a": {"type": "integer"}}},
}
FAR = {"type": "object", "properties": {"a": {"$ref": "file:///a"}}}
TEXT: Any = {"role": "user", "content": "hello"}
USE = {"type": "tool_use", "id": "call-1", "name": "add", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "call-1", "content": "x"}


def image(**source: Any) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "image", "source": source}]}


@pytest.fixture
def anthropic(gateway: httpx.AsyncClient) -> AsyncAnthropic:
    return AsyncAnthropic(base_url=str(gateway.base_url), api_key="none", max_retries=0, http_client=gateway)


@pytest_asyncio.fixture(scope="module", autouse=True, loop_scope="module")
async def apps(deploy_for_module: Deploy) -> None:
    await deploy_for_module(RELAY)
    await deploy_for_module(MODEL)


@pytest.fixture
def relay(anthropic: AsyncAnthropic) -> AsyncAnthropic:
    return anthropic


@pytest.fixture
def model(anthropic: AsyncAnthropic) -> AsyncAnthropic:
    return anthropic


def text_of(message: Message) -> str:
    (block,) = message.content
    assert block.type == "text"
    return block.text


async def relayed(client: AsyncAnthropic, **fields: Any) -> Any:
    """Returns the chat that the app receives for a request."""
    given = {"model": "relay", "max_tokens": 7, "messages": [TEXT], **fields}
    return json.loads(text_of(await client.messages.create(**given)))


async def test_a_message_gets_a_response(relay: AsyncAnthropic) -> None:
    message = await relay.messages.create(model="relay", max_tokens=7, messages=[TEXT], system="Be brief.")

    assert json.loads(text_of(message)) == {
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}],
        "max_tokens": 7,
    }
    assert message.id.startswith("msg_")
    assert (message.role, message.stop_reason, message.stop_sequence) == ("assistant", "max_tokens", None)
    usage = message.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (2, 1, 2)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (
            {"extra_body": {"temperature": 0.5, "top_p": 0.9, "top_k": 5}},
            {"temperature": 0.5, "top_p": 0.9, "top_k": 5},
        ),
        ({"stop_sequences": ["a", "b"]}, {"stop": ["a", "b"]}),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, {"reasoning_effort": "medium"}),
        ({"thinking": {"type": "disabled"}}, {"reasoning_effort": "none"}),
        ({"output_config": {"effort": "max"}}, {"reasoning_effort": "xhigh"}),
        ({"metadata": {"user_id": "u"}, "service_tier": "auto", "thinking": {"type": "adaptive"}}, {}),
        ({"tools": [ADD], "tool_choice": {"type": "any"}}, {"tool_choice": "required"}),
        (
            {"tools": [ADD], "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
            {"parallel_tool_calls": False},
        ),
        (
            {"tools": [ADD], "tool_choice": {"type": "any", "disable_parallel_tool_use": None}},
            {"tool_choice": "required"},
        ),
        (
            {"tools": [ADD], "tool_choice": {"type": "tool", "name": "add"}},
            {"tool_choice": {"type": "function", "function": {"name": "add"}}},
        ),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}}},
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "response", "schema": {"type": "object"}},
                }
            },
        ),
    ],
)
async def test_options_become_those_of_a_chat(
    relay: AsyncAnthropic, fields: dict[str, Any], expected: dict[str, Any]
) -> None:
    chat = await relayed(relay, **fields)

    function = {"name": "add", "description": "Adds.", "parameters": ADD["input_schema"]}
    tools = {"tools": [{"type": "function", "function": function}]} if "tools" in fields else {}
    assert chat == {"messages": [TEXT], "max_tokens": 7, **tools, **expected}


async def test_blocks_become_messages_of_a_chat(relay: AsyncAnthropic) -> None:
    chat = await relayed(
        relay,
        system=[{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "b"}],
        messages=[
            {"role": "user", "content": [{"type": "text", "text": "What is 1 + 2?"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "I add.", "signature": "s"},
                    {"type": "text", "text": "Let me see."},
                    {"type": "tool_use", "id": "call-1", "name": "add", "input": {"a": 1}},
                    {"type": "tool_use", "id": "call-2", "name": "add", "input": {}},
                    {"type": "tool_use", "id": "call-3", "name": "add", "input": {}, "toolset_name": "math"},
                    {"type": "tool_use", "id": "call-4", "name": "add", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "call-1", "content": [{"type": "text", "text": "3"}]},
                    {"type": "tool_result", "tool_use_id": "call-2", "is_error": True},
                    {"type": "tool_result", "tool_use_id": "call-3", "content": "no such file", "is_error": True},
                    {"type": "tool_result", "tool_use_id": "call-4", "content": None, "toolset_name": "math"},
                    {"type": "text", "text": "Go on."},
                ],
            },
        ],
    )

    calls = [
        {"id": f"call-{number}", "type": "function", "function": {"name": "add", "arguments": arguments}}
        for number, arguments in ((1, '{"a":1}'), (2, "{}"), (3, "{}"), (4, "{}"))
    ]
    assistant = {"role": "assistant", "content": "Let me see.", "tool_calls": calls, "reasoning_content": "I add."}
    assert chat["messages"] == [
        {"role": "system", "content": "a\nb"},
        {"role": "user", "content": [{"type": "text", "text": "What is 1 + 2?"}]},
        assistant,
        {"role": "tool", "content": "3", "tool_call_id": "call-1"},
        {"role": "tool", "content": "Error", "tool_call_id": "call-2"},
        {"role": "tool", "content": "Error: no such file", "tool_call_id": "call-3"},
        {"role": "tool", "content": "", "tool_call_id": "call-4"},
        {"role": "user", "content": [{"type": "text", "text": "Go on."}]},
    ]


async def test_the_last_message_of_the_assistant_is_continued(relay: AsyncAnthropic) -> None:
    chat = await relayed(relay, messages=[TEXT, {"role": "assistant", "content": "The answer is"}])

    assert chat["continue_final_message"] is True
    assert chat["add_generation_prompt"] is False


async def test_an_image_is_loaded(relay: AsyncAnthropic) -> None:
    data = base64.b64encode(image_file()).decode()
    source = {"type": "base64", "media_type": "image/png", "data": data}
    content = [{"type": "text", "text": "What is this?"}, {"type": "image", "source": source}]

    chat = await relayed(relay, messages=[{"role": "user", "content": content}])

    media = chat["messages"][0]["content"][1]["media"]
    assert (media["format"], media["where"]) == ("PNG", "messages[0].content[1]")


async def test_a_call_becomes_a_block(model: AsyncAnthropic) -> None:
    messages: Any = [{"role": "user", "content": "call"}]
    message = await model.messages.create(model="model", max_tokens=7, messages=messages, tools=[ADD])

    content: list[Any] = message.content
    thinking, call = content
    assert (thinking.type, call.type, message.stop_reason) == ("thinking", "tool_use", "tool_use")
    assert thinking.thinking == "think-1"
    assert (call.id, call.name, call.input) == ("call-1", "add", {"a": 1})


async def test_a_stream_has_anthropics_events(model: AsyncAnthropic) -> None:
    messages: Any = [{"role": "user", "content": "think-1 think-2 one two begin go-on end"}]
    async with model.messages.stream(model="model", max_tokens=7, messages=messages) as stream:
        events = [event.type async for event in stream]
        final = await stream.get_final_message()

    content: list[Any] = [*final.content]
    thinking, text, call = content
    assert (thinking.type, text.type, call.type) == ("thinking", "text", "tool_use")
    assert (thinking.thinking, text.text) == ("think-1think-2", "onetwo")
    assert (call.id, call.name, call.input) == ("call-1", "add", {"a": 1})
    assert final.stop_reason == "tool_use"
    assert events[0] == "message_start"
    assert events[-1] == "message_stop"
    assert events.count("content_block_start") == events.count("content_block_stop") == 3


async def test_the_text_arrives_word_by_word(model: AsyncAnthropic) -> None:
    messages: Any = [{"role": "user", "content": "one two"}]
    async with model.messages.stream(model="model", max_tokens=7, messages=messages) as stream:
        texts = [text async for text in stream.text_stream]

    assert texts == ["one", "two"]


async def test_tokens_are_counted(relay: AsyncAnthropic) -> None:
    count = await relay.messages.count_tokens(model="relay", messages=[{"role": "user", "content": "hello"}])

    assert count.input_tokens == 3


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_tokens": None}, "missing field: 'max_tokens'"),
        ({"container": "c"}, "unsupported field: 'container': tools run at the client"),
        ({"fallbacks": []}, "unknown or unsupported field: 'fallbacks'"),
        ({"top_k": -1}, "top_k: "),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call-9"}]}]},
            "messages[0].content[0].tool_use_id: no call before it has the id 'call-9'",
        ),
        ({"tool_choice": {"type": "any"}}, "tool_choice: is set without tools"),
    ],
)
async def test_an_invalid_request_is_rejected(gateway: httpx.AsyncClient, fields: dict[str, Any], message: str) -> None:
    response = await gateway.post("/v1/messages", json={"model": "relay", "max_tokens": 7, "messages": [TEXT]} | fields)

    assert response.status_code == 400
    body = response.json()
    assert (body["type"], body["error"]["type"]) == ("error", "invalid_request_error")
    assert message in body["error"]["message"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"inference_geo": "us"}, "unsupported field: 'inference_geo': requests run where the instance runs"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content: must be a text or a list, not null"),
        ({"tools": [ADD | {"defer_loading": True}]}, "tools[0].defer_loading: must be false"),
        ({"tools": [ADD | {"allowed_callers": ["code_execution_20250825"]}]}, "tools[0].allowed_callers[0]: "),
        ({"messages": []}, "messages: "),
        (
            {"messages": [{"role": "user", "content": [{"type": "document"}]}]},
            "invalid block type 'document': use 'text', 'image'",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_use", "id": "1", "name": "a", "input": {}}]}]},
            "messages[0].content[0]: tool_use is not allowed in a user message",
        ),
        (
            {"messages": [{"role": "assistant", "content": [USE]}, {"role": "user", "content": [RESULT] * 2}]},
            "messages[1].content[1].tool_use_id: an earlier result also has the id 'call-1': remove one of them",
        ),
        ({"messages": [image(type="url", url="x", foo=1)]}, "field: 'messages[0].content[0].source.foo'"),
        (
            {"messages": [image(type="file", file_id="x")]},
            "messages[0].content[0].source: invalid source type 'file': use 'base64' or 'url'",
        ),
        (
            {"output_config": {"format": {"type": "json_schema", "schema": FAR}}},
            "output_config.format.schema.properties.a: the reference 'file:///a' is not enforced",
        ),
        (
            {"tools": [ADD, {"name": "far", "input_schema": FAR, "strict": True}]},
            "tools[1].input_schema.properties.a: the reference 'file:///a' is not enforced",
        ),
        ({"tools": [ADD], "tool_choice": {"type": "tool"}}, "tool_choice.name: missing"),
    ],
)
def test_an_invalid_request_names_the_field(fields: dict[str, Any], message: str) -> None:
    def read(given: Mapping[str, Any]) -> object:
        return CreateMessageRequest.model_validate(given).chat

    error = refusal(read, {"model": "relay", "max_tokens": 7, "messages": [TEXT]} | fields)

    assert message in error.message


async def test_an_invalid_image_is_named(relay: AsyncAnthropic) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    messages = [TEXT, {"role": "assistant", "content": [USE]}, {"role": "user", "content": [RESULT, image]}]

    with pytest.raises(BadRequestError, match=r"messages\[2\]\.content\[1\]\.source: "):
        await relayed(relay, messages=messages)


async def test_an_unknown_model_is_not_found(anthropic: AsyncAnthropic) -> None:
    with pytest.raises(NotFoundError) as caught:
        await anthropic.messages.create(model="none", max_tokens=1, messages=[{"role": "user", "content": "x"}])
    with pytest.raises(NotFoundError) as unlisted:
        await anthropic.models.retrieve("none")

    assert caught.value.type == "not_found_error"
    assert caught.value.request_id
    assert unlisted.value.request_id
    assert unlisted.value.type == "not_found_error"


async def test_a_client_learns_that_threads_are_not_supported(relay: AsyncAnthropic) -> None:
    """The tool runner of Anthropic's client sends a thread first, and after this error whole conversations."""
    with pytest.raises(ThreadUnsupportedRequestError) as caught:
        await relayed(relay, extra_body={"temperature": 9, "banana": 1, "thread": {"id": "thread-1"}})

    assert caught.value.details.error_code == "thread_unsupported_request"
    assert "messages are not stored: send all of them (and 2 more: temperature, banana)" in caught.value.message


async def test_an_app_without_chats_is_rejected(anthropic: AsyncAnthropic, deploy: Deploy) -> None:
    await deploy(ECHO)

    with pytest.raises(BadRequestError, match="the app 'echo' does not support /v1/messages"):
        await anthropic.messages.create(model="echo", max_tokens=1, messages=[{"role": "user", "content": "x"}])


async def test_an_error_in_the_middle_is_an_event(relay: AsyncAnthropic) -> None:
    messages: Any = [{"role": "user", "content": "fail"}]
    stream = await relay.messages.create(model="relay", max_tokens=7, messages=messages, stream=True)
    events = []

    async def read() -> None:
        async for event in stream:
            events.append(event.type)  # noqa: PERF401 - the events before the error count

    with pytest.raises(APIStatusError, match="boom"):
        await read()

    assert events.count("content_block_delta") == 2


async def test_an_error_before_the_first_event_has_a_status(relay: AsyncAnthropic) -> None:
    with pytest.raises(InternalServerError, match="boom"):
        await relay.messages.create(model="relay", max_tokens=7, messages=[{"role": "user", "content": "fail"}])
