"""`/v1/responses`, through the official client and raw JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import httpx2 as httpx
import pytest
import pytest_asyncio
from openai import AsyncOpenAI, BadRequestError
from openai.types.responses import (
    FunctionToolParam,
    Response,
    ResponseCompletedEvent,
    ResponseFailedEvent,
    ResponseFunctionToolCall,
    ResponseIncompleteEvent,
    ResponseInputParam,
    ResponseOutputMessage,
    ResponseReasoningItem,
    ResponseStreamEvent,
)
from pydantic import BaseModel

from cornserve.gateway.endpoints.openai.response_request import CreateResponseRequest
from tests.unit.echo_executors import EchoExecutors
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.image_files import data_url, image_file
from tests.unit.gateway.refused_bodies import assert_refused, refusal
from tests.unit.gateway.sources import CHAT, ECHO, MODEL, RELAY, SEER

RESPONSES = "/v1/responses"
ADD: FunctionToolParam = {
    "type": "function",
    "name": "add",
    "description": "Adds.",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
    "strict": True,
}
FAR = {"type": "object", "properties": {"a": {"$ref": "file:///a"}}}
FAR_TOOL = {"type": "function", "name": "far", "parameters": FAR, "strict": True}


def custom_tool(**format: str) -> dict[str, object]:
    return {"type": "custom", "name": "patch", "format": format}


CALL = {"type": "function_call", "call_id": "call-1", "name": "add", "arguments": "{}"}
OUTPUT: dict[str, Any] = {"type": "function_call_output", "call_id": "call-1", "output": "2"}


EDITOR = (
    MODEL.replace('name="model"', 'name="editor"')
    .replace("""'{"a": 1}'""", """'{"input": "a"}'""")
    .replace("""'{"a": '""", """'{"input": "'""")
    .replace('arguments="1}"', """arguments='a"}'""")
)


@pytest_asyncio.fixture(scope="module", autouse=True, loop_scope="module")
async def apps(deploy_for_module: Deploy) -> None:
    await deploy_for_module(RELAY)
    await deploy_for_module(MODEL)


@pytest.fixture
def relay(openai: AsyncOpenAI) -> AsyncOpenAI:
    return openai


@pytest.fixture
def model(openai: AsyncOpenAI) -> AsyncOpenAI:
    return openai


async def relayed(client: AsyncOpenAI, **fields: Any) -> Any:
    """Returns the chat that the app receives for a request."""
    return json.loads((await client.responses.create(model="relay", **fields)).output_text)


async def stream_events(client: AsyncOpenAI, model: str, script: str) -> list[ResponseStreamEvent]:
    stream = await client.responses.create(model=model, input=script, stream=True)
    return [event async for event in stream]


async def test_a_text_gets_a_response(relay: AsyncOpenAI) -> None:
    response = await relay.responses.create(
        model="relay", input="hello", instructions="Be brief.", metadata={"a": "b"}, temperature=0.5, top_p=0.9
    )

    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}]
    assert json.loads(response.output_text) == {"messages": messages, "temperature": 0.5, "top_p": 0.9}
    assert response.id.startswith("resp_")
    assert (response.status, response.error, response.incomplete_details) == ("completed", None, None)
    assert (response.instructions, response.metadata, response.temperature) == ("Be brief.", {"a": "b"}, 0.5)
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens, response.usage.total_tokens) == (3, 2, 5)
    assert response.usage.input_tokens_details.cached_tokens == 1
    assert Response.model_validate(response.model_dump(mode="json", warnings=False)) == response


async def test_a_cut_response_is_incomplete(relay: AsyncOpenAI) -> None:
    response = await relay.responses.create(model="relay", input="hello", max_output_tokens=7)
    *_, last = [
        event
        async for event in await relay.responses.create(model="relay", input="x", max_output_tokens=7, stream=True)
    ]

    assert json.loads(response.output_text)["max_tokens"] == 7
    assert isinstance(last, ResponseIncompleteEvent)
    for cut in (response, last.response):
        assert cut.status == "incomplete"
        assert cut.incomplete_details is not None
        assert cut.incomplete_details.reason == "max_output_tokens"
        assert [getattr(item, "status", None) for item in cut.output] == ["incomplete"]


async def test_items_become_the_messages_of_a_chat(relay: AsyncOpenAI) -> None:
    items: ResponseInputParam = [
        {"role": "developer", "content": "Be brief."},
        {
            "role": "user",
            "content": [{"type": "input_text", "text": "1 + 1?", "prompt_cache_breakpoint": {"mode": "explicit"}}],
        },
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "abc"},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Let me see.", "annotations": []}],
        },
        {"type": "function_call", "id": "fc_1", "call_id": "call-1", "name": "add", "arguments": "{}"},
        {"type": "function_call", "call_id": "call-2", "name": "add", "arguments": "{}", "status": "completed"},
        {"type": "function_call_output", "call_id": "call-1", "output": "2"},
        {"type": "function_call_output", "call_id": "call-2", "output": [{"type": "input_text", "text": "3"}]},
        {"type": "function_call", "call_id": "call-3", "name": "add", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "call-3", "output": "4"},
    ]

    chat = await relayed(relay, input=items)

    def call(number: int) -> dict[str, object]:
        return {"id": f"call-{number}", "type": "function", "function": {"name": "add", "arguments": "{}"}}

    assert chat["messages"] == [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "1 + 1?"}]},
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "Let me see."}],
            "tool_calls": [call(1), call(2)],
        },
        {"role": "tool", "content": "2", "tool_call_id": "call-1"},
        {"role": "tool", "content": [{"type": "text", "text": "3"}], "tool_call_id": "call-2"},
        {"role": "assistant", "tool_calls": [call(3)]},
        {"role": "tool", "content": "4", "tool_call_id": "call-3"},
    ]


async def test_tools_and_formats_become_those_of_a_chat(relay: AsyncOpenAI) -> None:
    chat = await relayed(
        relay,
        input="x",
        tools=[ADD],
        tool_choice={"type": "function", "name": "add"},
        parallel_tool_calls=False,
        reasoning={"effort": "max", "summary": "auto"},
        text={"format": {"type": "json_schema", "name": "sum", "schema": {"type": "object"}, "strict": True}},
    )

    function = {name: value for name, value in ADD.items() if name != "type"}
    assert chat["tools"] == [{"type": "function", "function": function}]
    assert chat["tool_choice"] == {"type": "function", "function": {"name": "add"}}
    assert chat["parallel_tool_calls"] is False
    assert chat["reasoning_effort"] == "xhigh"
    schema = {"name": "sum", "schema": {"type": "object"}, "strict": True}
    assert chat["response_format"] == {"type": "json_schema", "json_schema": schema}


@pytest.mark.parametrize(
    "fields",
    [
        {"store": False, "background": False, "truncation": "disabled", "previous_response_id": None},
        {"reasoning": {"summary": "auto"}, "include": ["reasoning.encrypted_content"]},
        {"text": {"verbosity": "low", "format": {"type": "text"}}, "tools": [], "tool_choice": "auto"},
        {"prompt_cache_key": "a", "safety_identifier": "b", "user": "c", "service_tier": "ultrafast"},
        {"prompt_cache_options": {"mode": "explicit", "ttl": "12h", "prewarm": False}, "tool_choice": "none"},
        {"reasoning": {"context": "auto", "mode": "standard"}},
    ],
)
async def test_hints_and_defaults_are_accepted(
    gateway: httpx.AsyncClient, deploy: Deploy, fields: dict[str, object]
) -> None:
    await deploy(CHAT)

    response = await gateway.post(RESPONSES, json={"model": "parrot", "input": "one two", **fields})

    assert response.status_code == 200, response.text
    assert response.json()["output"][0]["content"][0]["text"] == "one two "


async def test_reasoning_and_calls_are_items(model: AsyncOpenAI) -> None:
    response = await model.responses.create(model="model", input="call", tools=[ADD])
    reasoning, call = response.output

    assert isinstance(reasoning, ResponseReasoningItem)
    assert reasoning.content is not None
    assert reasoning.content[0].text == "think-1"
    assert isinstance(call, ResponseFunctionToolCall)
    assert (call.call_id, call.name, call.arguments, call.status) == ("call-1", "add", '{"a": 1}', "completed")
    assert response.tools[0].type == "function"


async def test_a_custom_tool_is_called_with_a_text(openai: AsyncOpenAI, deploy: Deploy) -> None:
    """The model calls a function with one argument, which becomes the input."""
    await deploy(EDITOR)
    tool: Any = {
        "type": "custom",
        "name": "add",
        "format": {"type": "grammar", "syntax": "lark", "definition": "s: /x/"},
    }

    response = await openai.responses.create(model="editor", input="call", tools=[tool])
    stream = await openai.responses.create(model="editor", input="begin go-on end", tools=[tool], stream=True)
    events = [event async for event in stream]

    called: Any = response.output[1]
    assert (called.type, called.call_id, called.name, called.input) == ("custom_tool_call", "call-1", "add", "a")
    assert [event.type.removeprefix("response.") for event in events] == [
        *("created", "in_progress", "output_item.added"),
        *("custom_tool_call_input.delta", "custom_tool_call_input.done", "output_item.done", "completed"),
    ]
    done: Any = events[-2]
    assert (done.item.type, done.item.input, done.item.status) == ("custom_tool_call", "a", "completed")


async def test_a_custom_tool_is_a_function_of_the_chat(relay: AsyncOpenAI) -> None:
    grammar: Any = {"type": "grammar", "syntax": "lark", "definition": "start: /x/"}
    tool: Any = {"type": "custom", "name": "patch", "description": "Edits.", "format": grammar}
    call = {"type": "custom_tool_call", "status": "completed", "call_id": "call-1", "name": "patch", "input": "a\nb"}
    output = {"type": "custom_tool_call_output", "call_id": "call-1", "output": "done"}

    chat = await relayed(
        relay,
        input=[{"role": "user", "content": "x"}, call, output],
        tools=[tool],
        tool_choice={"type": "custom", "name": "patch"},
    )

    assert chat["messages"][1:] == [
        {
            "role": "assistant",
            "tool_calls": [
                {"id": "call-1", "type": "function", "function": {"name": "patch", "arguments": '{"input":"a\\nb"}'}}
            ],
        },
        {"role": "tool", "content": "done", "tool_call_id": "call-1"},
    ]
    function = chat["tools"][0]["function"]
    assert function["description"] == "Edits.\n\nThe input follows this grammar (lark):\nstart: /x/"
    assert function["parameters"]["required"] == ["input"]
    assert chat["tool_choice"] == {"type": "function", "function": {"name": "patch"}}


async def test_input_tokens_are_counted(relay: AsyncOpenAI) -> None:
    count = await relay.responses.input_tokens.count(model="relay", input="Hello", instructions="Be brief.")

    assert (count.object, count.input_tokens) == ("response.input_tokens", 3)


async def test_the_output_can_be_sent_back(model: AsyncOpenAI) -> None:
    output: Any = (await model.responses.create(model="model", input="call", tools=[ADD])).output
    said: Any = (await model.responses.create(model="model", input="say hello")).output
    items = [*said, *output, OUTPUT]

    response = await model.responses.create(model="model", input=[*items, {"role": "user", "content": "say thanks"}])

    assert response.output_text == "thanks"


async def test_a_stream_starts_before_the_generation_ends(
    openai: AsyncOpenAI, deploy: Deploy, executors: EchoExecutors
) -> None:
    await deploy(CHAT)
    stream = await openai.responses.create(model="parrot", instructions="slowly", input="one two three", stream=True)
    first = [await anext(stream) for _ in range(5)]

    assert executors.running()  # the executor has not sent the rest yet
    events = [*first, *[event async for event in stream]]
    assert [event.type for event in events] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        *["response.output_text.delta"] * 3,
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.delta for event in events if event.type == "response.output_text.delta"] == ["one ", "two ", "three "]
    last = events[-1]
    assert isinstance(last, ResponseCompletedEvent)
    assert last.response.output_text == "one two three "
    assert last.response.usage is not None


async def test_reasoning_text_and_calls_are_streamed_as_items(model: AsyncOpenAI) -> None:
    events = await stream_events(model, "model", "think-1 think-2 hello begin go-on end")

    begin, end = ["output_item.added", "content_part.added"], ["content_part.done", "output_item.done"]
    reasoning = [*begin, *["reasoning_text.delta"] * 2, "reasoning_text.done", *end]
    text = [*begin, "output_text.delta", "output_text.done", *end]
    arguments = "function_call_arguments"
    call = ["output_item.added", *[f"{arguments}.delta"] * 2, f"{arguments}.done", "output_item.done"]
    names = ["created", "in_progress", *reasoning, *text, *call, "completed"]
    assert [event.type.removeprefix("response.") for event in events] == names
    last = events[-1]
    assert isinstance(last, ResponseCompletedEvent)
    done = [event.item for event in events if event.type == "response.output_item.done"]
    assert done == last.response.output
    thoughts, message, called = done
    assert isinstance(thoughts, ResponseReasoningItem)
    assert thoughts.content is not None
    assert thoughts.content[0].text == "think-1think-2"
    assert isinstance(message, ResponseOutputMessage)
    assert last.response.output_text == "hello"
    assert isinstance(called, ResponseFunctionToolCall)
    assert (called.call_id, called.name, called.arguments) == ("call-1", "add", '{"a": 1}')
    assert [event.output_index for event in events if event.type == "response.output_item.added"] == [0, 1, 2]


async def test_the_client_accumulates_a_stream(model: AsyncOpenAI) -> None:
    async with model.responses.stream(model="model", input="think-1 hello begin go-on end", tools=[ADD]) as stream:
        final = await stream.get_final_response()

    assert final.output_text == "hello"
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]
    assert getattr(final.output[2], "parsed_arguments", None) == {"a": 1}


async def test_a_response_without_output_has_an_empty_message(model: AsyncOpenAI) -> None:
    whole = await model.responses.create(model="model", input="say ")
    streamed = (await stream_events(model, "model", "say "))[-1]

    assert isinstance(streamed, ResponseCompletedEvent)
    for response in (whole, streamed.response):
        assert [item.type for item in response.output] == ["message"]
        assert response.output_text == ""


async def test_the_client_parses_structured_output(model: AsyncOpenAI) -> None:
    class Sum(BaseModel):
        value: int

    response = await model.responses.parse(model="model", input='say {"value": 2}', text_format=Sum)

    assert response.output_parsed == Sum(value=2)


async def test_a_stream_that_fails_ends_with_a_failed_response(relay: AsyncOpenAI) -> None:
    events = await stream_events(relay, "relay", "fail")

    last = events[-1]
    assert isinstance(last, ResponseFailedEvent)
    assert last.sequence_number == len(events) - 1
    assert last.response.status == "failed"
    assert last.response.error is not None
    assert last.response.error.code == "server_error"
    assert "boom" in last.response.error.message
    assert last.response.output_text == "onetwo"


async def test_images_are_loaded(gateway: httpx.AsyncClient, openai: AsyncOpenAI, deploy: Deploy) -> None:
    await deploy(SEER)
    image = data_url(image_file())
    large = data_url(image_file("PNG", (400, 300), "RGB", compress_level=0))
    text = {"type": "input_text", "text": "What is this?"}

    for url in (image, large):
        items: Any = [
            {"role": "assistant", "content": "hi"},
            {"role": "user", "content": [text, {"type": "input_image", "image_url": url, "detail": "auto"}]},
        ]
        response = await openai.responses.create(model="seer", instructions="Look.", input=items)
        assert response.output_text.startswith("input[1].content[1]=PNG:")


async def test_an_invalid_image_is_named(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(SEER)
    items = [{"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AAAA"}]}]

    error = (await gateway.post(RESPONSES, json={"model": "seer", "input": items})).json()["error"]

    assert error["param"] == "input[0].content[0].image_url"
    assert error["message"].startswith("input[0].content[0].image_url: ")


async def test_an_unused_field_is_named_as_in_the_request(gateway: httpx.AsyncClient, deploy: Deploy) -> None:
    await deploy(CHAT)
    body = {"model": "parrot", "input": "x", "text": {"format": {"type": "json_object"}}}

    for stream in (False, True):
        error = (await gateway.post(RESPONSES, json={**body, "stream": stream})).json()["error"]
        assert (error["param"], error["code"]) == ("text.format", "unused_field")
        assert "'text.format'" in error["message"]


async def test_an_app_without_chats_is_a_400_that_names_its_operation(openai: AsyncOpenAI, deploy: Deploy) -> None:
    await deploy(ECHO)

    with pytest.raises(BadRequestError, match="does not support /v1/responses: call it with POST /v1/apps/echo"):
        await openai.responses.create(model="echo", input="x")


def user(*content: object) -> list[object]:
    return [{"role": "user", "content": list(content)}]


@pytest.mark.parametrize(
    ("change", "param", "message"),
    [
        ({"input": None}, "input", "missing field: 'input'"),
        ({"previous_response_id": "resp_1"}, "previous_response_id", "responses are not stored: send the earlier"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt", "unknown or unsupported field"),
        ({"temperature": 3}, "temperature", "less than or equal to 2"),
        (
            {"input": [CALL, OUTPUT | {"call_id": "call-9"}]},
            "input[1].call_id",
            "no call before it has the id 'call-9'",
        ),
        ({"tool_choice": "required"}, "tool_choice", "is set without tools"),
        (
            {"tools": [ADD, {"type": "custom", "name": "add"}]},
            "tools[1].name",
            "an earlier tool also has the name 'add'",
        ),
    ],
)
async def test_an_invalid_body_is_a_400_that_names_the_field(
    gateway: httpx.AsyncClient, change: dict[str, object], param: str | None, message: str
) -> None:
    response = await gateway.post(RESPONSES, json={"model": "parrot", "input": "x"} | change)

    assert_refused(response, param, message)


@pytest.mark.parametrize(
    ("change", "param", "message"),
    [
        ({"input": []}, "input", "at least 1 item"),
        ({"input": 1}, "input", "must be"),
        ({"input": [{"role": "user", "content": "x"}] * 4096}, "input", "at most 4095"),
        ({"input": [{"type": "reasoning", "summary": []}]}, "input", "it has no message"),
        (
            {"input": [{"type": "item_reference", "id": "msg_1"}]},
            "input[0]",
            "invalid item type 'item_reference': use",
        ),
        ({"input": [{"type": "web_search_call", "id": "ws_1"}]}, "input[0]", "item type 'web_search_call'"),
        ({"input": [{"role": "alien", "content": "x"}]}, "input[0].role", "not 'alien'"),
        ({"input": user({"type": "input_file", "file_id": "f"})}, "input[0].content[0]", "invalid part type"),
        ({"input": user({"type": "input_image", "file_id": "f"})}, "input[0].content[0].image_url", "missing field"),
        (
            {"input": [{"type": "function_call_output", "call_id": "a", "output": [{"type": "input_file"}]}]},
            "input[0].output[0]",
            "invalid part type 'input_file': use 'input_text'",
        ),
        ({"input": [CALL] * 129}, "input[128]", "at most 128 calls"),
        (
            {"input": [CALL, OUTPUT, CALL, OUTPUT, OUTPUT]},
            "input[4].call_id",
            "earlier result also has the id 'call-1'",
        ),
        (
            {"input": [CALL, OUTPUT | {"output": None}]},
            "input[1].output",
            "must be a text or a list, not null",
        ),
        ({"conversation": "conv_1"}, "conversation", "responses are not stored"),
        ({"tools": [{**ADD, "defer_loading": True}]}, "tools[0].defer_loading", "must be false, not true"),
        ({"vllm_xargs": {}}, "vllm_xargs", "no extension of vLLM that reads it can be deployed"),
        ({"background": True}, "background", "must be false, not true"),
        ({"store": True}, "store", "must be false, not true"),
        ({"truncation": "auto"}, "truncation", "not 'auto'"),
        ({"include": ["message.output_text.logprobs"]}, "include[0]", "not 'message.output_text.logprobs'"),
        ({"top_logprobs": 2}, "top_logprobs", "unknown or unsupported field"),
        ({"max_output_tokens": 0}, "max_output_tokens", "greater than or equal to 1"),
        ({"tools": [{"type": "web_search"}]}, "tools[0]", "invalid tool type 'web_search': use 'function' or 'custom'"),
        ({"tools": [{"type": "function", "name": "a b"}]}, "tools[0].name", "must match pattern"),
        ({"tools": [ADD], "tool_choice": {"type": "allowed_tools"}}, "tool_choice.type", "not 'allowed_tools'"),
        (
            {"tools": [ADD], "tool_choice": {"type": "function", "name": "other"}},
            "tool_choice",
            "tool_choice: unknown tool 'other'",
        ),
        (
            {"tools": [ADD], "tool_choice": {"type": "custom", "name": "add"}},
            "tool_choice.type",
            "the tool 'add' has the type 'function': use it",
        ),
        ({"tools": [custom_tool(type="grammar")]}, "tools[0].format.syntax", "missing field"),
        ({"tools": [custom_tool(type="grammar", syntax="lark")]}, "tools[0].format.definition", "missing field"),
        ({"tools": [custom_tool(type="text", definition="s: /x/")]}, "tools[0].format.definition", "unknown"),
        ({"tools": [custom_tool(type="xml")]}, "tools[0].format", "invalid format type 'xml': use 'text' or 'grammar'"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type", "not 'xml'"),
        ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "text.format.schema", "missing field"),
        (
            {"text": {"format": {"type": "json_schema", "name": "a", "schema": FAR}}},
            "text.format.schema.properties.a",
            "the reference 'file:///a' is not enforced",
        ),
        ({"tools": [ADD, FAR_TOOL]}, "tools[1].parameters.properties.a", "the reference 'file:///a' is not enforced"),
        ({"reasoning": {"effort": "huge"}}, "reasoning.effort", "not 'huge'"),
        ({"reasoning": {"mode": "pro"}}, "reasoning.mode", "not 'pro'"),
        ({"prompt_cache_options": {"prewarm": True}}, "prompt_cache_options.prewarm", "must be false, not true"),
        ({"stream_options": {"banana": True}}, "stream_options.banana", "unknown or unsupported field"),
    ],
)
def test_an_invalid_body_names_the_field(change: dict[str, object], param: str | None, message: str) -> None:
    def read(given: Mapping[str, Any]) -> object:
        return CreateResponseRequest.model_validate(given).chat

    error = refusal(read, {"model": "parrot", "input": "x"} | change)

    assert message in error.message
    assert error.param == param
