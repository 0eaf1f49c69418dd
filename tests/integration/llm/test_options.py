"""Every option of a chat or completion has the documented effect."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable

import pytest

from cornserve_tasklib import ChatRequest, CompletionRequest
from tests.integration.llm.client import ExecutorClient
from tests.integration.llm.conftest import CONTEXT
from tests.integration.llm.process import ExecutorProcess

pytestmark = pytest.mark.timeout(300)

SCHEMA = {
    "type": "object",
    "properties": {"colour": {"enum": ["red", "green"]}, "ripe": {"type": "boolean"}},
    "required": ["colour", "ripe"],
    "additionalProperties": False,
}
PICK = {"type": "function", "function": {"name": "pick", "parameters": SCHEMA}}
DROP = {"type": "function", "function": {"name": "drop", "parameters": SCHEMA}}

streams = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "unstreamed"])


def ask(question: str = "Tell me something.", **fields: object) -> ChatRequest:
    return ChatRequest.model_validate(
        {"messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": 20} | fields
    )


def complete(prompt: str | list[int], **fields: object) -> CompletionRequest:
    return CompletionRequest.model_validate({"prompt": prompt, "temperature": 0, "ignore_eos": True} | fields)


@streams
async def test_n_is_the_number_of_choices(client: ExecutorClient, stream: bool) -> None:
    request = ask(n=3, temperature=1, seed=7, max_tokens=10, ignore_eos=True)
    reply = await client.invoke(request, stream=stream)
    choices = reply.response.choices

    assert len({choice.text for choice in choices}) == 3
    assert [len(choice.token_ids) for choice in choices] == [10, 10, 10]
    assert reply.response.usage.completion_tokens == 30
    for index, choice in enumerate(choices if stream else []):
        assert "".join(chunk.text for chunk in reply.chunks if chunk.index == index) == choice.text
        assert [t for chunk in reply.chunks if chunk.index == index for t in chunk.token_ids] == choice.token_ids


@streams
async def test_logprobs_come_with_each_token(client: ExecutorClient, stream: bool) -> None:
    reply = await client.invoke(ask(logprobs=True, top_logprobs=3, ignore_eos=True), stream=stream)
    logprobs = reply.response.logprobs

    assert logprobs is not None
    assert len(logprobs) == len(reply.response.token_ids) == 20
    for token in logprobs:  # Greedy decoding selects the likeliest token.
        assert len(token.top_logprobs) == 3
        assert token.logprob is not None
        assert (token.token, token.logprob) == (token.top_logprobs[0].token, token.top_logprobs[0].logprob)
    if stream:
        assert logprobs == [token for chunk in reply.chunks for token in chunk.logprobs or ()]


async def test_a_seed_samples_the_same_tokens_if_the_prompt_takes_several_steps(client: ExecutorClient) -> None:
    """The second request finds all but the last tokens in the prefix cache."""
    request = complete("A prompt of more than one step. " * 100, temperature=1, seed=3, max_tokens=3)

    first = (await client.invoke(request)).response
    again = (await client.invoke(request)).response

    assert again.token_ids == first.token_ids


async def test_seeded_prompts_sample_the_same_tokens_when_they_share_steps(client: ExecutorClient) -> None:
    requests = [
        complete(f"{number}: a prompt that others compete with. " * 25, temperature=1, seed=number, max_tokens=3)
        for number in range(8)
    ]

    together = await asyncio.gather(*(client.invoke(request) for request in requests))
    alone = [await client.invoke(request) for request in requests]

    assert [reply.response.token_ids for reply in together] == [reply.response.token_ids for reply in alone]


async def test_logit_bias_makes_a_token_certain(client: ExecutorClient) -> None:
    # One token for each byte, in the order of their characters.
    response = (await client.invoke(ask(logit_bias={"65": 100}, max_tokens=5))).response

    assert response.token_ids == [65] * 5


async def test_a_presence_penalty_forbids_repetition(client: ExecutorClient) -> None:
    request = ask(logit_bias={"65": 100, "66": 99, "67": 98}, presence_penalty=2, max_tokens=3)

    assert sorted((await client.invoke(request)).response.token_ids) == [65, 66, 67]


async def test_a_stop_token_ends_the_response(client: ExecutorClient) -> None:
    tokens = (await client.invoke(ask(ignore_eos=True))).response.token_ids

    response = (await client.invoke(ask(ignore_eos=True, stop_token_ids=[tokens[5]]))).response

    assert response.finish_reason == "stop"
    assert response.token_ids == tokens[: tokens.index(tokens[5]) + 1]


@streams
async def test_a_response_follows_a_schema(client: ExecutorClient, stream: bool) -> None:
    format = {"type": "json_schema", "json_schema": {"name": "fruit", "schema": SCHEMA}}
    response = (await client.invoke(ask(response_format=format, max_tokens=500), stream=stream)).response

    fruit = json.loads(response.text)
    assert fruit["colour"] in ("red", "green")
    assert type(fruit["ripe"]) is bool


async def test_a_json_object_begins_with_a_brace(client: ExecutorClient) -> None:
    response = (await client.invoke(ask(response_format={"type": "json_object"}))).response

    assert response.text.lstrip().startswith("{")


GRAMMAR = 'root ::= "plant " ("maize" | "rye") "."'

REFERRING = {"$ref": "#/$defs/fruit/colour", "$defs": {"fruit": {"colour": {"enum": ["red", "green"]}}}}

CONSTRAINTS: dict[str, tuple[dict[str, object], str]] = {
    "json": ({"json": SCHEMA}, r'\{\s*"colour"\s*:\s*"(red|green)"\s*,\s*"ripe"\s*:\s*(true|false)\s*\}'),
    "json-as-text": ({"json": json.dumps({"enum": ["red", "green"]})}, '"(red|green)"'),
    "json-with-references": ({"json": REFERRING}, '"(red|green)"'),
    "json-object": ({"json_object": True}, r"\s*\{(?s:.*)"),
    "regex": ({"regex": "[0-9]{3}-(ab|cd)"}, "[0-9]{3}-(ab|cd)"),
    "choice": ({"choice": ["a ripe\nplum", 'a "sour" plum']}, 'a ripe\nplum|a "sour" plum'),
    "ebnf-grammar": ({"grammar": GRAMMAR}, r"plant (maize|rye)\."),
    "lark-grammar": ({"grammar": 'start: "plant " CROP\nCROP: "maize" | "rye"'}, "plant (maize|rye)"),
}


@streams
@pytest.mark.parametrize(("constraint", "pattern"), CONSTRAINTS.values(), ids=CONSTRAINTS.keys())
@pytest.mark.parametrize("create", [ask, pytest.param(complete, marks=pytest.mark.slow)], ids=["chat", "completion"])
async def test_a_response_follows_a_constraint(
    client: ExecutorClient,
    create: Callable[..., ChatRequest | CompletionRequest],
    constraint: dict[str, object],
    pattern: str,
    stream: bool,
) -> None:
    request = create("Which?", structured_outputs=constraint, max_tokens=500, ignore_eos=False)
    reply = await client.invoke(request, stream=stream)

    assert reply.code == "OK"
    assert re.fullmatch(pattern, reply.response.text)


@streams
async def test_an_unsupported_schema_is_rejected_without_affecting_others(client: ExecutorClient, stream: bool) -> None:
    """vLLM's default selects the grammar backend by the first schema, possibly one without support for tools."""
    schema = {"type": "object", "propertyNames": {"pattern": "n"}, "patternProperties": {"n": {"type": "integer"}}}
    format = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}

    rejected = await client.invoke(ask(response_format=format, max_tokens=50), stream=stream)
    assert rejected.code == "INVALID_ARGUMENT"

    request = ask(tools=[PICK, DROP], tool_choice="required", parallel_tool_calls=False, max_tokens=1000)
    assert (await client.invoke(request, stream=stream)).code == "OK"


@streams
async def test_a_required_tool_is_called(client: ExecutorClient, stream: bool) -> None:
    request = ask(tools=[PICK, DROP], tool_choice="required", parallel_tool_calls=False, max_tokens=1000)
    reply = await client.invoke(request, stream=stream)

    assert reply.response.tool_calls is not None
    (call,) = reply.response.tool_calls
    assert call.function.name in ("pick", "drop")
    assert set(json.loads(call.function.arguments)) == {"colour", "ripe"}
    assert call.id
    assert reply.response.finish_reason == "tool_calls"
    if stream:
        deltas = [delta for chunk in reply.chunks for delta in chunk.tool_calls or ()]
        assert "".join(delta.arguments or "" for delta in deltas) == call.function.arguments
        assert [token for chunk in reply.chunks for token in chunk.token_ids] == reply.response.token_ids


@streams
async def test_a_named_tool_is_called(client: ExecutorClient, stream: bool) -> None:
    named = {"type": "function", "function": {"name": "drop"}}
    response = (await client.invoke(ask(tools=[PICK, DROP], tool_choice=named, max_tokens=500), stream=stream)).response

    assert response.tool_calls is not None
    (call,) = response.tool_calls
    assert call.function.name == "drop"
    assert set(json.loads(call.function.arguments)) == {"colour", "ripe"}
    assert response.finish_reason == "stop"


@streams
@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "look"}}])
@pytest.mark.parametrize(
    "parameters", [{}, pytest.param({"parameters": {}}, marks=pytest.mark.slow)], ids=["without", "empty"]
)
async def test_a_function_without_parameters_is_called_without_arguments(
    client: ExecutorClient, stream: bool, choice: object, parameters: dict[str, object]
) -> None:
    look = {"type": "function", "function": {"name": "look", **parameters}}
    request = ask(tools=[look], tool_choice=choice, parallel_tool_calls=False, max_tokens=500)
    response = (await client.invoke(request, stream=stream)).response

    assert response.tool_calls is not None
    (call,) = response.tool_calls
    assert json.loads(call.function.arguments) == {}


async def test_tools_that_may_not_be_called_are_part_of_the_prompt(client: ExecutorClient) -> None:
    without = (await client.invoke(ask(max_tokens=1))).response.usage
    response = (await client.invoke(ask(tools=[PICK], tool_choice="none", max_tokens=1))).response

    assert response.tool_calls is None
    assert response.usage.prompt_tokens > without.prompt_tokens + len(json.dumps(SCHEMA))


async def test_tool_calls_and_their_results_are_part_of_the_prompt(client: ExecutorClient) -> None:
    call = {"id": "call-1", "type": "function", "function": {"name": "pick", "arguments": '{"colour": "red"}'}}
    messages = [
        {"role": "user", "content": "Pick one."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call-1", "content": "Done."},
    ]

    assert (await client.invoke(ask(messages=messages))).response.usage.prompt_tokens > 100


async def test_the_last_message_is_continued(client: ExecutorClient) -> None:
    partial = {"role": "assistant", "content": "Once"}
    messages = [{"role": "user", "content": "Tell me a tale."}, partial]
    prompt = "<|im_start|>user\nTell me a tale.<|im_end|>\n<|im_start|>assistant\nOnce"

    continued = ask(messages=messages, add_generation_prompt=False, continue_final_message=True)

    expected = (await client.invoke(complete(prompt, max_tokens=20, ignore_eos=False))).response
    assert (await client.invoke(continued)).response == expected


@streams
async def test_a_completion_continues_the_prompt(client: ExecutorClient, stream: bool) -> None:
    response = (await client.invoke(complete("One two", max_tokens=5), stream=stream)).response

    assert response.usage.prompt_tokens == len("One two")
    assert len(response.token_ids) == 5
    assert (await client.invoke(complete("One two"), stream=stream)).response.usage.completion_tokens == 16


async def test_a_prompt_may_consist_of_token_ids(client: ExecutorClient) -> None:
    # The token ids of printable characters begin with 0.
    letters = [ord(letter) - ord("!") for letter in "hello"]

    assert (await client.invoke(complete(letters))).response == (await client.invoke(complete("hello"))).response


@streams
async def test_an_echo_contains_the_prompt_and_its_logprobs(client: ExecutorClient, stream: bool) -> None:
    plain = (await client.invoke(complete("One two", max_tokens=4, logprobs=2), stream=stream)).response
    reply = await client.invoke(complete("One two", max_tokens=4, logprobs=2, echo=True), stream=stream)
    response = reply.response

    assert response.text == "One two" + plain.text
    assert response.token_ids == plain.token_ids
    assert response.logprobs is not None
    assert [token.token for token in response.logprobs[:7]] == list("One two")
    assert response.logprobs[0].logprob is None
    assert all(token.logprob is not None and len(token.top_logprobs) == 2 for token in response.logprobs[1:])
    assert [token.token for token in response.logprobs[7:]] == [token.token for token in plain.logprobs or ()]


@streams
async def test_every_choice_echoes_the_prompt_with_its_logprobs(client: ExecutorClient, stream: bool) -> None:
    """vLLM may omit the prompt's log probabilities from the first chunk of a choice if it comes with other chunks."""
    request = complete("One two", max_tokens=12, logprobs=1, echo=True, n=16, temperature=1, seed=5)
    first, *others = (await client.invoke(request, stream=stream)).response.choices

    assert first.logprobs is not None
    assert len(first.logprobs) == 7 + 12
    assert [token.token for token in first.logprobs[:7]] == list("One two")
    assert len({choice.text for choice in others}) == 15
    for choice in others:
        assert choice.logprobs is not None
        assert choice.logprobs[:7] == first.logprobs[:7]
        assert len(choice.logprobs) == 7 + 12


@streams
async def test_an_echo_may_be_the_whole_response(client: ExecutorClient, stream: bool) -> None:
    response = (await client.invoke(complete("One two", max_tokens=0, logprobs=0, echo=True), stream=stream)).response

    assert response.text == "One two"
    assert response.token_ids == []
    assert response.usage.completion_tokens == 0
    assert response.logprobs is not None
    assert len(response.logprobs) == 7


@streams
async def test_prompt_logprobs_describe_each_position_of_the_prompt(client: ExecutorClient, stream: bool) -> None:
    request = complete("One two", max_tokens=1, logprobs=2, echo=True, prompt_logprobs=3)
    response = (await client.invoke(request, stream=stream)).response

    assert response.logprobs is not None
    assert response.prompt_logprobs is not None
    first, *positions = response.prompt_logprobs
    assert first is None
    for echoed, candidates in zip(response.logprobs[1:7], positions, strict=True):
        assert candidates is not None
        by_text = {candidate.decoded_token: candidate for candidate in candidates.values()}
        assert by_text[echoed.token].logprob == echoed.logprob
        assert {1, 2, 3} <= {candidate.rank for candidate in candidates.values()}
        assert len(echoed.top_logprobs) == 2


@streams
async def test_prompt_logprobs_of_a_chat_need_no_echo(client: ExecutorClient, stream: bool) -> None:
    response = (await client.invoke(ask("One two", prompt_logprobs=0), stream=stream)).response

    assert response.prompt_logprobs is not None
    assert len(response.prompt_logprobs) == response.usage.prompt_tokens
    assert all(candidates and len(candidates) == 1 for candidates in response.prompt_logprobs[1:])
    assert response.logprobs is None


PUZZLE: dict[str, object] = {
    "type": "object",
    "properties": {"a": {"type": "string", "pattern": "(a|b)*a(a|b){200}"}},
    "required": ["a"],
}
"""A schema whose automaton has 2**200 states. The engine fails when it compiles the grammar."""


def with_response_schema(schema: dict[str, object]) -> ChatRequest:
    return ask(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}})


def with_tool_schema(schema: dict[str, object]) -> ChatRequest:
    leap = {"type": "object", "properties": {"by": {"type": "integer", "multipleOf": 4}}}
    functions = [{"name": "leap", "parameters": leap}, {"name": "broken", "parameters": schema}]
    tools = [{"type": "function", "function": function} for function in functions]
    return ask(tools=tools, tool_choice={"type": "function", "function": {"name": "broken"}})


def with_constraint(**constraint: object) -> ChatRequest:
    return ask(structured_outputs=constraint)


REJECTED = {
    "n-greedy": (ask(n=2), "n must be 1 when using greedy sampling"),
    "unknown-token-in-logit-bias": (ask(logit_bias={"99999": 1}), "99999"),
    "unknown-stop-token": (ask(stop_token_ids=[99999]), "99999"),
    "unknown-token-in-prompt": (complete([1, 99999]), "99999|vocabulary"),
    "not-a-schema": (
        with_response_schema({"type": "nonsense"}),
        r'^response_format\.json_schema\.schema: .*"nonsense"$',
    ),
    "a-pattern-that-is-too-complex": (with_response_schema(PUZZLE), r"^response_format\.json_schema\.schema: "),
    "a-tool-with-a-too-complex-pattern": (with_tool_schema(PUZZLE), r"^tools\[1\]\.function\.parameters: "),
    "not-a-schema-of-vllm": (with_constraint(json={"type": "nonsense"}), r'^structured_outputs\.json: .*"nonsense"$'),
    "a-regex-with-an-open-bracket": (
        with_constraint(regex="(ab"),
        r"^structured_outputs\.regex: .*parenthesis is not closed",
    ),
    "a-regex-that-looks-ahead": (with_constraint(regex="(?=a)b"), r"^structured_outputs\.regex: .*Lookahead"),
    "a-grammar-without-a-root": (with_constraint(grammar='leaf ::= "x"'), r"^structured_outputs\.grammar: .*root"),
    "a-grammar-of-an-unknown-rule": (
        complete("x", structured_outputs={"grammar": "root ::= leaf"}),
        r"grammar: .*leaf",
    ),
    "a-schema-that-no-text-matches": (
        with_response_schema({"type": "integer", "minimum": 5, "maximum": 1}),
        r"^response_format\.json_schema\.schema: ",
    ),
    "a-tool-with-an-invalid-schema": (
        with_tool_schema({"type": "nonsense"}),
        r'^tools\[1\]\.function\.parameters: .*"nonsense"$',
    ),
}


@pytest.mark.parametrize(("request_", "message"), REJECTED.values(), ids=REJECTED.keys())
async def test_an_impossible_request_is_rejected(
    client: ExecutorClient, request_: ChatRequest | CompletionRequest, message: str
) -> None:
    reply = await client.invoke(request_)

    assert reply.code == "INVALID_ARGUMENT"
    assert re.search(message, reply.end.message)


@pytest.mark.parametrize("request_", [ask("x" * 10_000_000), complete("x" * 10_000_000)], ids=["chat", "completion"])
async def test_a_prompt_of_ten_megabytes_is_rejected_before_it_is_tokenized(
    executor: ExecutorProcess, client: ExecutorClient, request_: ChatRequest | CompletionRequest
) -> None:
    neighbour = await client.start(ask(max_tokens=100, ignore_eos=True))
    await neighbour.first_chunk()
    before = executor.process.cpu_times().user

    reply = await client.invoke(request_)

    assert executor.process.cpu_times().user - before < 3
    assert reply.code == "INVALID_ARGUMENT"
    assert f"maximum context length is {CONTEXT} tokens" in reply.end.message
    assert len((await neighbour.reply()).response.token_ids) == 100
