"""Every field that the official clients can send is accepted or refused by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from inspect import signature
from operator import attrgetter
from typing import Any

import anthropic
import httpx2 as httpx
import openai
import pytest
from anthropic import Anthropic
from anthropic.types import message_create_params
from openai import OpenAI
from openai.types import completion_create_params as text_params
from openai.types.chat import completion_create_params as chat_params
from openai.types.responses import response_create_params

from tests.integration.serving.conftest import CommandLine

Send = Callable[[dict[str, Any]], httpx.Response]

QUESTION = [{"role": "user", "content": "Hi"}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": False}
FUNCTION = {"name": "look", "parameters": {"type": "object", "properties": {}}}


@dataclass(frozen=True)
class ClientOperation:
    """An operation, and the fields that its official client can send.

    Args:
        required: the smallest body.
        accepted: a value of each field that is accepted, or several fields that need each other.
        refused: a value of each field that is refused.
        elsewhere: fields that need another app, which other tests have.
    """

    path: str
    resource: str
    """The attribute of the client, which has a method `create`."""
    fields: frozenset[str]
    required: dict[str, Any]
    accepted: dict[str, Any]
    refused: dict[str, Any]
    elsewhere: frozenset[str] = frozenset()

    def body(self, model: str, name: str, value: Any) -> dict[str, Any]:
        """Returns a request with a field. The value of a field that needs others is a dict of all of them."""
        given = value.fields if isinstance(value, Together) else {name: value}
        return {"model": model, **self.required, **given}


@dataclass(frozen=True)
class Together:
    fields: dict[str, Any]


SAMPLING = {"temperature": 0.5, "top_p": 0.9, "frequency_penalty": 0.1, "presence_penalty": 0.1, "seed": 1, "stop": "x"}
HINTS = {
    "user": "me",
    "metadata": {"a": "b"},
    "prompt_cache_key": "a",
    "prompt_cache_options": {"mode": "implicit", "ttl": "30m"},
    "prompt_cache_retention": "24h",
    "safety_identifier": "a",
    "service_tier": "auto",
    "store": False,
}
STREAM = Together({"stream": True, "stream_options": {"include_usage": True}})

CHAT = ClientOperation(
    "/v1/chat/completions",
    "chat.completions",
    frozenset(chat_params.CompletionCreateParamsBase.__annotations__),
    {"messages": QUESTION, "max_tokens": 1},
    {
        **SAMPLING,
        **HINTS,
        "max_tokens": 2,
        "max_completion_tokens": Together({"max_completion_tokens": 1}),
        "n": 2,
        "logit_bias": {"5": 1},
        "logprobs": True,
        "top_logprobs": Together({"logprobs": True, "top_logprobs": 2}),
        "modalities": ["text"],
        "parallel_tool_calls": True,
        "prediction": {"type": "content", "content": "Hi"},
        "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}},
        "stream_options": STREAM,
        "tool_choice": "none",
        "tools": Together({"tools": [{"type": "function", "function": FUNCTION}], "tool_choice": "none"}),
        "verbosity": "low",
    },
    {
        "function_call": "none",
        "functions": [FUNCTION],
        "moderation": {},
        "reasoning_effort": "low",  # The template of this model does not use it.
        "web_search_options": {},
    },
    frozenset({"audio"}),
)

TEXT = ClientOperation(
    "/v1/completions",
    "completions",
    frozenset(text_params.CompletionCreateParamsBase.__annotations__),
    {"prompt": "Hi", "max_tokens": 1},
    {
        **SAMPLING,
        "best_of": 1,
        "echo": True,
        "logit_bias": {"5": 1},
        "logprobs": 2,
        "max_tokens": 2,
        "n": 2,
        "stream_options": STREAM,
        "user": "me",
    },
    {"suffix": "a"},
)

RESPONSE = ClientOperation(
    "/v1/responses",
    "responses",
    frozenset(response_create_params.ResponseCreateParamsBase.__annotations__),
    {"input": "Hi", "max_output_tokens": 1},
    {
        **HINTS,
        "access_programs": {},
        "background": False,
        "include": [],
        "instructions": "Be brief.",
        "max_output_tokens": 2,
        "parallel_tool_calls": True,
        "stream_options": Together({"stream": True, "stream_options": {"include_obfuscation": False}}),
        "temperature": 0.5,
        "text": {"format": {"type": "text"}, "verbosity": "low"},
        "tool_choice": "none",
        "tools": Together({"tools": [{"type": "function", "strict": False, **FUNCTION}], "tool_choice": "none"}),
        "top_p": 0.9,
        "truncation": "disabled",
    },
    {
        "context_management": [],
        "conversation": "a",
        "image": {},
        "max_tool_calls": 1,
        "moderation": {},
        "previous_response_id": "a",
        "prompt": {"id": "a"},
        "reasoning": {"effort": "low"},  # The template of this model does not use it.
        "top_logprobs": 0,
    },
)

MESSAGE = ClientOperation(
    "/v1/messages",
    "messages",
    frozenset(message_create_params.MessageCreateParamsBase.__annotations__),
    {"messages": QUESTION, "max_tokens": 1},
    {
        "cache_control": {"type": "ephemeral"},
        "diagnostics": {},
        "max_tokens": 2,
        "metadata": {"user_id": "me"},
        "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}},
        "service_tier": "auto",
        "speed": "fast",
        "stop_sequences": ["x"],
        "system": "Be brief.",
        "temperature": 0.5,
        "thinking": {"type": "disabled"},
        "tool_choice": {"type": "none"},
        "tools": Together(
            {"tools": [{"name": "look", "input_schema": FUNCTION["parameters"]}], "tool_choice": {"type": "none"}}
        ),
        "top_k": 5,
        "top_p": 0.9,
        "user_profile_id": "a",
        "workspace_id": "a",
    },
    {
        "container": "a",
        "inference_geo": "eu",
        "thinking": {"type": "enabled", "budget_tokens": 1024},  # The template of this model does not use it.
    },
)

OPERATIONS = [CHAT, TEXT, RESPONSE, MESSAGE]


@pytest.fixture
def send(cornserve: CommandLine, operation: ClientOperation) -> Iterator[Send]:
    """Sends a body with the official client, and returns the response."""
    with ExitStack() as stack:
        client: Anthropic | OpenAI
        if operation is MESSAGE:
            client = stack.enter_context(Anthropic(base_url=cornserve.url, api_key="none", max_retries=0))
        else:
            client = stack.enter_context(OpenAI(base_url=f"{cornserve.url}/v1", api_key="none", max_retries=0))
        create = attrgetter(f"{operation.resource}.with_raw_response.create")(client)
        named = signature(create).parameters.keys()

        def send(body: dict[str, Any]) -> httpx.Response:
            arguments = {name: value for name, value in body.items() if name in named}
            try:
                response: httpx.Response = create(**arguments, extra_body={**body}).http_response
                response.read()
            except (anthropic.APIStatusError, openai.APIStatusError) as error:
                response = error.response
            return response

        yield send


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.path)
def test_every_field_of_the_official_client_is_known(operation: ClientOperation) -> None:
    named = {*operation.required, *operation.accepted, *operation.refused, *operation.elsewhere, "model"}

    assert sorted(operation.fields - named) == []


@pytest.mark.slow
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.path)
def test_accepted_fields(send: Send, model: str, operation: ClientOperation) -> None:
    refused = {}
    for name, value in operation.accepted.items():
        response = send(operation.body(model, name, value))
        if response.status_code != 200:
            refused[name] = response.text

    assert refused == {}


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.path)
def test_refused_fields_are_named(send: Send, model: str, operation: ClientOperation) -> None:
    unnamed = {}
    for name, value in operation.refused.items():
        response = send(operation.body(model, name, value))
        if response.status_code != 400 or name not in response.json()["error"]["message"]:
            unnamed[name] = response.text

    assert unnamed == {}
