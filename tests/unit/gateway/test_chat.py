"""`/v1/chat/completions`, through the official client."""

from __future__ import annotations

import asyncio
import json

import httpx2 as httpx
import openai as openai_client
import pytest
import pytest_asyncio
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionMessageParam

from cornserve.gateway.endpoints.openai.chat import ChatCompletionRequest
from tests.unit.echo_executors import EchoExecutors
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.refused_bodies import assert_refused, refusal
from tests.unit.gateway.sources import CHAT, ECHO, ILLUSTRATOR, MODEL, READER
from tests.waiting import until


@pytest_asyncio.fixture(loop_scope="module")
async def client(openai: AsyncOpenAI, deploy: Deploy) -> AsyncOpenAI:
    await deploy(CHAT)
    return openai


async def test_a_chat_gets_a_response(client: AsyncOpenAI) -> None:
    completion = await client.chat.completions.create(
        model="parrot", messages=[{"role": "user", "content": "one two three"}]
    )

    assert completion.choices[0].message.content == "one two three "
    assert completion.choices[0].finish_reason == "stop"
    assert completion.usage is not None
    assert completion.id.startswith("chatcmpl-")


async def test_a_task_may_read_a_value_before_it_returns_the_stream(client: AsyncOpenAI, deploy: Deploy) -> None:
    await deploy(READER)

    completion = await client.chat.completions.create(
        model="reader", messages=[{"role": "user", "content": "one two three"}]
    )

    assert completion.choices[0].message.content == "one two three "


async def test_images_are_parts_of_the_message(openai: AsyncOpenAI, deploy: Deploy) -> None:
    await deploy(ILLUSTRATOR)
    parts = [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{content}"}} for content in ("aWU=", "aWY=")
    ]

    completion = await openai.chat.completions.create(
        model="illustrator", messages=[{"role": "user", "content": "a fox"}]
    )
    stream = await openai.chat.completions.create(
        model="illustrator", messages=[{"role": "user", "content": "a fox"}], stream=True
    )
    [text, images, end] = [chunk.choices[0] async for chunk in stream]

    assert completion.choices[0].message.content == "a fox"
    assert completion.choices[0].message.to_dict()["images"] == parts
    assert text.delta.content == "a fox"
    assert images.delta.to_dict() == {"images": parts}
    assert end.finish_reason == "stop"


async def test_a_streamed_chat_arrives_in_chunks(client: AsyncOpenAI, executors: EchoExecutors) -> None:
    stream = await client.chat.completions.create(
        model="parrot",
        messages=[{"role": "system", "content": "slowly"}, {"role": "user", "content": "one two three"}],
        stream=True,
        stream_options={"include_usage": True},
    )
    first = await anext(stream)

    assert executors.running()  # the executor has not sent the rest yet
    rest = [chunk async for chunk in stream]
    texts = [chunk.choices[0].delta.content or "" for chunk in [first, *rest] if chunk.choices]
    assert texts == ["one ", "two ", "three ", ""]
    assert first.choices[0].delta.role == "assistant"
    assert rest[-2].choices[0].finish_reason == "stop"
    assert rest[-1].usage is not None


async def test_each_chunk_has_a_finish_reason_which_is_null_before_the_last(
    gateway: httpx.AsyncClient, client: AsyncOpenAI
) -> None:
    body = {"model": "parrot", "messages": [{"role": "user", "content": "one two"}], "stream": True}
    response = await gateway.post("/v1/chat/completions", json=body)

    events = [line.removeprefix("data: ") for line in response.text.splitlines() if line.startswith("data: {")]
    assert [json.loads(event)["choices"][0]["finish_reason"] for event in events] == [None, None, "stop"]


@pytest.mark.parametrize(
    "fields",
    [
        {"stream_options": {"include_usage": True, "include_obfuscation": False}},
        {"prompt_cache_key": "a", "prompt_cache_retention": "24h", "safety_identifier": "b", "user": "c"},
        {"verbosity": "low", "prediction": {"type": "content", "content": "one"}, "metadata": {"a": "b"}},
        {"service_tier": "fast", "store": False, "tools": []},
        {"tools": [], "tool_choice": "auto", "prompt_cache_options": {"mode": "implicit", "ttl": "30m"}},
        {"tools": [], "tool_choice": "none"},
    ],
)
async def test_hints_of_clients_are_accepted(
    gateway: httpx.AsyncClient, client: AsyncOpenAI, fields: dict[str, object]
) -> None:
    body = {"model": "parrot", "messages": [{"role": "user", "content": "one two"}]}
    response = await gateway.post("/v1/chat/completions", json=body | fields)

    assert response.status_code == 200
    assert response.json()["choices"][0]["message"] == {"role": "assistant", "content": "one two ", "refusal": None}


async def test_messages_of_responses_of_other_servers_can_be_sent_back(
    gateway: httpx.AsyncClient, client: AsyncOpenAI
) -> None:
    cached = {"cache_control": {"type": "ephemeral"}, "prompt_cache_breakpoint": {"mode": "explicit"}}
    answer = {"id": "msg_1", "reasoning": "why", "provider_specific_fields": {"a": 1}, "tool_calls": []}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "hello", **cached}]},
        {"role": "assistant", "content": "hi", **answer},
        {"role": "user", "content": "one two"},
    ]
    response = await gateway.post("/v1/chat/completions", json={"model": "parrot", "messages": messages})

    assert response.status_code == 200
    assert response.json()["choices"][0]["message"]["content"] == "one two "


async def test_a_disconnect_cancels_a_stream(client: AsyncOpenAI, executors: EchoExecutors) -> None:
    stream = await client.chat.completions.create(
        model="parrot",
        messages=[{"role": "system", "content": "slowly"}, {"role": "user", "content": "word " * 1000}],
        stream=True,
    )
    await anext(stream)
    await stream.close()

    await until(lambda: executors.running() == 0)


async def test_a_disconnect_before_the_response_cancels_the_request(
    client: AsyncOpenAI, executors: EchoExecutors
) -> None:
    request = asyncio.create_task(
        client.chat.completions.create(
            model="parrot",
            messages=[{"role": "system", "content": "slowly"}, {"role": "user", "content": "word " * 1000}],
        )
    )
    await until(lambda: executors.running() == 1)
    request.cancel()
    await until(lambda: executors.running() == 0)


async def test_a_disconnect_before_the_first_chunk_cancels_the_stream(
    gateway: httpx.AsyncClient, client: AsyncOpenAI, executors: EchoExecutors
) -> None:
    body = {
        "model": "parrot",
        "messages": [{"role": "system", "content": "slowly"}, {"role": "user", "content": "one-long-word\n" * 1000}],
        "stream": True,
    }
    request = asyncio.create_task(gateway.post("/v1/chat/completions", json=body))
    await until(lambda: executors.running() == 1)
    request.cancel()
    await until(lambda: executors.running() == 0)


async def test_models_are_listed(client: AsyncOpenAI) -> None:
    assert [model.id for model in (await client.models.list()).data] == ["parrot"]
    assert (await client.models.retrieve("parrot")).id == "parrot"


async def test_an_unknown_model_is_a_404_that_names_the_served_models(client: AsyncOpenAI) -> None:
    with pytest.raises(
        openai_client.NotFoundError, match=r"unknown model 'nobody': deploy .* or use one of: parrot"
    ) as caught:
        await client.chat.completions.create(model="nobody", messages=[{"role": "user", "content": "x"}])

    assert caught.value.code == "model_not_found"


async def test_an_app_without_chats_is_a_400_that_names_its_operation(client: AsyncOpenAI, deploy: Deploy) -> None:
    await deploy(ECHO)

    with pytest.raises(
        openai_client.BadRequestError, match="does not support /v1/chat/completions: call it with POST /v1/apps/echo"
    ):
        await client.chat.completions.create(model="echo", messages=[{"role": "user", "content": "x"}])


def function(definition: dict[str, object]) -> dict[str, object]:
    return {"type": "function", "function": definition}


TOOL = function({"name": "look_up"})
NAMED = function({"name": "other"})
CALL = {"id": "call-1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
USER = {"role": "user", "content": "x"}
HUGE = {"type": "object", "description": "x" * 65536}
COUNTED = {"type": "object", "minProperties": 1, "properties": {f"p{number}": {} for number in range(101)}}
CHOICE = {"choice": ["yes", "no"]}
FAR = {"type": "object", "properties": {"a": {"$ref": "file:///a"}}}
REPEATED = {"type": "object", "properties": {"a": {"pattern": "a{1000}"}, "b": {"patternProperties": {"b{1,2}": {}}}}}


async def test_a_completion_has_the_log_probabilities_of_the_prompt(openai: AsyncOpenAI, deploy: Deploy) -> None:
    await deploy(MODEL)
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": "say hello"}]

    plain = await openai.chat.completions.create(model="model", messages=messages)
    requested = await openai.chat.completions.create(
        model="model", messages=messages, extra_body={"prompt_logprobs": 1}
    )

    assert "prompt_logprobs" not in plain.to_dict()
    assert requested.to_dict()["prompt_logprobs"] == [None, {"7": {"logprob": -0.5, "rank": 1, "decoded_token": "y"}}]


@pytest.mark.parametrize(
    ("change", "param", "message"),
    [
        ({"banana": 1}, "banana", "unknown or unsupported field: 'banana'"),
        ({"functions": []}, "functions", "unsupported field: 'functions': use tools"),
        ({"model": None}, "model", "missing field: 'model'"),
        ({"temperature": 3}, "temperature", "must be less than or equal to 2, not 3"),
        ({"top_logprobs": 2}, "top_logprobs", "top_logprobs: 2 needs logprobs: true"),
        ({"logit_bias": {"one": 1}}, "logit_bias.one.[key]", "must match pattern"),
    ],
)
async def test_an_invalid_body_is_a_400_that_names_the_field(
    gateway: httpx.AsyncClient, change: dict[str, object], param: str | None, message: str
) -> None:
    body = {"model": "parrot", "messages": [{"role": "user", "content": "x"}]} | change
    response = await gateway.post("/v1/chat/completions", json=body)

    assert_refused(response, param, message)


@pytest.mark.parametrize(
    ("change", "param", "message"),
    [
        ({"vllm_xargs": {"a": 1}}, "vllm_xargs", "unsupported field: 'vllm_xargs': no extension of vLLM"),
        ({"watermarking": False}, "watermarking", "unsupported field: 'watermarking': an app has watermarks by its"),
        ({"messages": []}, "messages", "at least 1 item"),
        ({"messages": [{"role": "user"}]}, "messages[0].content", "missing in a user message: add it"),
        ({"messages": [{"role": "alien", "content": "x"}]}, "messages[0].role", "not 'alien'"),
        (
            {"messages": [{"role": "user", "content": [{"type": "input_video", "input_video": {"url": "x"}}]}]},
            "messages[0].content[0]",
            "invalid part type 'input_video': use 'text', 'image_url', 'audio_url', 'input_audio' or 'video_url'",
        ),
        ({"temperature": "hot"}, "temperature", "not 'hot'"),
        ({"max_tokens": 0}, "max_tokens", "greater than or equal to 1"),
        ({"prompt_logprobs": 21}, "prompt_logprobs", "less than or equal to 20"),
        ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs", "a stream has no log probabilities of the prompt"),
        (
            {
                "prompt_logprobs": 1,
                "modalities": ["text", "audio"],
                "audio": {"voice": "a", "format": "wav"},
            },
            "audio",
            "remove prompt_logprobs",
        ),
        ({"max_tokens": 1, "max_completion_tokens": 2}, "max_completion_tokens", "differs from max_tokens"),
        ({"top_k": -2}, "top_k", "greater than or equal to -1"),
        ({"max_tokens": "5"}, "max_tokens", "valid integer, not '5'"),
        ({"max_tokens": True}, "max_tokens", "must be a valid integer, not true"),
        ({"stream": 1}, "stream", "must be a valid boolean, not 1"),
        ({"n": 0}, "n", "greater than or equal to 1"),
        ({"n": 129}, "n", "less than or equal to 128"),
        ({"seed": 2**63}, "seed", "less than or equal to 9223372036854775807"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "less than or equal to 20"),
        ({"presence_penalty": 3}, "presence_penalty", "less than or equal to 2"),
        ({"logit_bias": {"\u0661": 1}}, "logit_bias.\u0661.[key]", "must match pattern"),
        ({"logit_bias": {"1": 101}}, "logit_bias.1", "less than or equal to 100"),
        ({"logit_bias": {str(number): 1 for number in range(301)}}, "logit_bias", "at most 300"),
        ({"stop": "x" * 1001}, "stop[0]", "at most 1000 characters"),
        ({"stop": [""]}, "stop[0]", "at least 1 character"),
        ({"tool_choice": "auto"}, "tool_choice", "is set without tools: add tools"),
        ({"tools": [TOOL], "tool_choice": "perhaps"}, "tool_choice", "'none', 'auto' or 'required'"),
        ({"tools": [TOOL], "tool_choice": NAMED}, "tool_choice", "tool_choice: unknown tool 'other'"),
        ({"tools": [TOOL] * 129}, "tools", "at most 128"),
        ({"tools": [{"type": "function"}]}, "tools[0].function", "missing field"),
        ({"tools": [function({"name": "a b"})]}, "tools[0].function.name", "must match pattern"),
        ({"tools": [function({"name": "f", "parameters": HUGE})]}, "tools[0].function.parameters", "at most 65536"),
        (
            {"tools": [TOOL, function({"name": "f", "parameters": COUNTED})]},
            "tools[1].function.parameters",
            "have 101 properties",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "f", "schema": REPEATED}}},
            "response_format.json_schema.schema",
            "have 1002 repetitions",
        ),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "f", "schema": FAR}}},
            "response_format.json_schema.schema.properties.a",
            "response_format.json_schema.schema.properties.a: the reference 'file:///a' is not enforced",
        ),
        (
            {"tools": [TOOL, function({"name": "f", "parameters": FAR, "strict": True})]},
            "tools[1].function.parameters.properties.a",
            "the reference 'file:///a' is not enforced",
        ),
        ({"structured_outputs": {"json": FAR}}, "structured_outputs.json.properties.a", "is not enforced"),
        ({"structured_outputs": {"json": "{}"}}, "structured_outputs.json", "the schema allows all values"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "missing"),
        ({"response_format": {"type": "xml"}}, "response_format.type", "not 'xml'"),
        ({"structured_outputs": {}}, "structured_outputs", "no constraint is set: give one of json, json_object"),
        (
            {"structured_outputs": {"regex": "a", "choice": ["a"]}},
            "structured_outputs",
            "regex and choice are set: give one of them",
        ),
        ({"structured_outputs": {"json": "{"}}, "structured_outputs.json", "EOF"),
        ({"structured_outputs": {"json": REPEATED}}, "structured_outputs.json", "have 1002 repetitions"),
        ({"structured_outputs": {"regex": "a{1001}"}}, "structured_outputs.regex", "has 1001 repetitions"),
        (
            {"structured_outputs": {"regex": f"a{{{'9' * 5000}}}"}},
            "structured_outputs.regex",
            "has 1000000000 repetitions: at most 1000 are allowed",
        ),
        ({"structured_outputs": {"grammar": "x" * 65537}}, "structured_outputs.grammar", "has 65537 bytes"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice", "at least 1 item"),
        ({"structured_outputs": {"json_object": False}}, "structured_outputs.json_object", "must be true, not false"),
        ({"structured_outputs": {"structural_tag": "{}"}}, "structured_outputs.structural_tag", "unsupported field"),
        ({"structured_outputs": CHOICE, "tools": [TOOL]}, "structured_outputs", "tool calls are not allowed"),
        (
            {"structured_outputs": CHOICE, "response_format": {"type": "json_object"}},
            "structured_outputs",
            "response_format also constrains the text: remove one",
        ),
        ({"chat_template_kwargs": {"tools": []}}, "chat_template_kwargs", "reserved template variable 'tools'"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id", "missing in a tool message"),
        (
            {"messages": [{"role": "user", "content": "x", "tool_calls": [CALL]}]},
            "messages[0].tool_calls",
            "not allowed in a user message",
        ),
        ({"messages": [USER] * 4097}, "messages", "at most 4096"),
        ({"store": True}, "store", "must be false, not true"),
        ({"modalities": ["text", "video"]}, "modalities[1]", "not 'video'"),
        ({"stop": ["a"] * 5}, "stop", "at most 4"),
        ({"stream_options": {"banana": True}}, "stream_options.banana", "unknown or unsupported field"),
        ({"service_tier": "slow"}, "service_tier", "not 'slow'"),
    ],
)
def test_an_invalid_body_names_the_field(change: dict[str, object], param: str | None, message: str) -> None:
    error = refusal(ChatCompletionRequest.model_validate, {"model": "parrot", "messages": [USER]} | change)

    assert message in error.message
    assert error.param == param


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the body is not valid JSON: "),
        (b"{", "the body is not valid JSON: "),
        (b"\xff", "the body is not valid JSON: "),
        (b"[]", "the body must be a JSON object, not an array"),
        (b"null", "the body must be a JSON object, not null"),
        (b'"text"', "the body must be a JSON object, not a string"),
        (b"1", "the body must be a JSON object, not a number"),
    ],
)
async def test_a_body_that_is_not_an_object_is_a_400(gateway: httpx.AsyncClient, body: bytes, message: str) -> None:
    response = await gateway.post("/v1/chat/completions", content=body)

    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith(message)


async def test_null_means_the_default(gateway: httpx.AsyncClient, client: AsyncOpenAI) -> None:
    body = {"model": "parrot", "messages": [{"role": "user", "content": "x"}], "stop": None, "temperature": None}

    assert (await gateway.post("/v1/chat/completions", json=body)).status_code == 200
