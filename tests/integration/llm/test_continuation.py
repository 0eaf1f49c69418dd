"""A continued response equals the uninterrupted response."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from cornserve_tasklib import ChatChunk, ChatRequest, ChatResponse, CompletionRequest
from cornserve_tasklib.chat_response import ChatChoice
from tests.executor_processes import stopped
from tests.integration.llm.client import ClientInvocation, ExecutorClient, InvocationReply
from tests.integration.llm.process import ExecutorProcess
from tests.integration.llm.test_chat import ask
from tests.integration.llm.test_options import DROP, PICK
from tests.waiting import until

pytestmark = pytest.mark.timeout(300)

TOKENS = 60
"""The model generates random bytes, many of them parts of characters."""

PLAIN = ask(max_tokens=TOKENS, ignore_eos=True)
TEXT = CompletionRequest(prompt="Once upon a time", max_tokens=TOKENS, ignore_eos=True, temperature=0)


@pytest.mark.parametrize("request_", [PLAIN, TEXT], ids=["chat", "completion"])
async def test_a_response_can_be_continued_after_any_chunk(
    client: ExecutorClient, request_: ChatRequest | CompletionRequest
) -> None:
    complete_reply = await client.invoke(request_)

    await _check_every_cut(client, request_, complete_reply.text)


async def test_a_response_can_be_continued_within_a_possible_stop_string(client: ExecutorClient) -> None:
    text = (await client.invoke(PLAIN)).text
    request = ask(max_tokens=TOKENS, ignore_eos=True, stop=[text[30:35], "never generated, but held back for"])
    stopped = await client.invoke(request)
    assert (stopped.response.finish_reason, stopped.text) == ("stop", text[: text.index(text[30:35])])

    await _check_every_cut(client, request, stopped.text)


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
FORMAT = {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}

SAMPLED: dict[str, Any] = {"max_tokens": TOKENS, "temperature": 1, "seed": 7}

REPEATED = {
    "choices": ask(**SAMPLED, n=3, ignore_eos=True),
    "seed": ask(**SAMPLED, ignore_eos=True),
    "penalties": ask(max_tokens=TOKENS, temperature=0, frequency_penalty=1, min_tokens=4),
    "logprobs": ask(**SAMPLED, ignore_eos=True, logprobs=True, top_logprobs=2),
    "json": ask(max_tokens=TOKENS, seed=7, response_format=FORMAT),
    "tools": ask(tools=[PICK, DROP], tool_choice="required", parallel_tool_calls=False, max_tokens=1000, seed=7),
    "echo": TEXT.model_copy(update={"echo": True, "logprobs": 1}),
}
"""Requests whose tokens do not suffice to continue, and whose responses are the same each time."""


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(request, id=name, marks=[pytest.mark.slow] * (name not in ("choices", "json", "tools")))
        for name, request in REPEATED.items()
    ],
)
async def test_other_responses_are_generated_again_and_continued(
    client: ExecutorClient, request_: ChatRequest | CompletionRequest
) -> None:
    complete = await _in_parts(client, request_)
    cuts = [1, len(complete.chunks) // 2, len(complete.chunks)]

    replies = [await client.resume(request_, complete.chunks[:cut]) for cut in cuts]

    for cut, reply in zip(cuts, replies, strict=True):
        chunks = [*complete.chunks[:cut], *reply.chunks]
        assert _contents(chunks) == _contents(complete.chunks)
        assert _choices(reply.response) == _choices(complete.response)
        ids = [call.id for chunk in chunks for call in chunk.tool_calls or () if call.id]
        assert ids == [call.id for call in reply.response.tool_calls or ()]


@pytest.mark.slow
async def test_a_response_is_handed_over_where_it_continues_exactly(client: ExecutorClient) -> None:
    request = ask(max_tokens=1000, ignore_eos=True)
    complete = await client.invoke(request)
    invocation = await client.start(request)
    await invocation.first_chunk()

    invocation.hand_over()
    moved = await invocation.reply()
    rest = await client.resume(request, moved.chunks)

    assert moved.code == "HANDED_OVER"
    assert "".join(chunk.text for chunk in [*moved.chunks, *rest.chunks]) == complete.text
    assert rest.response == complete.response


@pytest.mark.slow
async def test_a_response_without_a_stream_is_handed_over(client: ExecutorClient, executor: ExecutorProcess) -> None:
    async def generated() -> float:
        return (await executor.metrics())["cornserve_llm_generation_tokens_total"]

    request = ask(max_tokens=1000, ignore_eos=True)
    complete = await client.invoke(request, stream=False)
    before = await generated()
    invocation = await client.start(request, stream=False)

    async def has_begun() -> bool:
        return await generated() > before

    await until(has_begun)
    invocation.hand_over()
    moved = await invocation.reply()
    other = await client.start(request, stream=False, delivered=moved.chunks, state_of=invocation)
    rest = await other.reply()

    assert moved.code == "HANDED_OVER"
    assert sum(len(chunk.token_ids) for chunk in moved.chunks) > 0
    assert rest.chunks == []
    assert rest.response == complete.response
    invocation.release()


@pytest.mark.slow
async def test_a_response_without_a_stream_is_handed_over_before_its_next_token(
    client: ExecutorClient, executor: ExecutorProcess
) -> None:
    async def generated() -> float:
        return (await executor.metrics())["cornserve_llm_generation_tokens_total"]

    request = ask(max_tokens=1000, ignore_eos=True, logit_bias={"65": 100})  # No parts of characters.
    before = await generated()
    invocation = await client.start(request, stream=False)

    async def has_begun() -> bool:
        return await generated() > before

    await until(has_begun)
    with stopped([executor.engine_process()]):
        invocation.hand_over()
        moved = await invocation.reply()

    assert moved.code == "HANDED_OVER"
    assert sum(len(chunk.token_ids) for chunk in moved.chunks) > 0
    invocation.release()


TOKEN_BYTES = 1024
"""The KV cache of a token of the tiny Llama."""

BLOCK_TOKENS = 128


async def _leave(client: ExecutorClient, request: ChatRequest) -> tuple[ClientInvocation, InvocationReply]:
    """Starts a response, and lets the executor hand it over."""
    invocation = await client.start(request)
    await invocation.first_chunk()
    invocation.hand_over()
    reply = await invocation.reply()
    assert reply.code == "HANDED_OVER"
    return invocation, reply


async def _copied_tokens(executor: ExecutorProcess) -> float:
    """Returns the number of tokens whose KV cache the engine has saved or loaded."""
    return (await executor.metrics())["cornserve_llm_kv_copied_bytes_total"] / TOKEN_BYTES


def _long(salt: str) -> ChatRequest:
    """Returns a request whose prompt has several blocks. Requests with other salts do not find them in the cache."""
    return ask("corn " * 60, max_tokens=400, ignore_eos=True, cache_salt=salt)


async def test_a_response_is_handed_over_with_its_kv_cache(client: ExecutorClient, executor: ExecutorProcess) -> None:
    complete = await client.invoke(_long("undisturbed"))
    before = await _copied_tokens(executor)

    leaving, moved = await _leave(client, _long("saved"))
    saved = await _copied_tokens(executor) - before
    rest = await client.resume(_long("loaded"), moved.chunks, state_of=leaving)
    loaded = await _copied_tokens(executor) - before - saved

    known = complete.response.usage.prompt_tokens + sum(len(chunk.token_ids) for chunk in moved.chunks)
    assert moved.end.has_state
    assert min(saved, loaded) >= known - BLOCK_TOKENS
    assert rest.taken == [0]
    assert "".join(chunk.text for chunk in [*moved.chunks, *rest.chunks]) == complete.text
    assert rest.response == complete.response
    assert rest.cached_tokens == 0

    leaving.release()
    await until(lambda: _holds_nothing(executor))


async def _holds_memory(executor: ExecutorProcess) -> bool:
    return bool(await executor.held_bytes())


async def _holds_nothing(executor: ExecutorProcess) -> bool:
    return not await executor.held_bytes()


async def test_a_response_continues_without_a_kv_cache_that_is_lost_or_of_another_prompt(
    client: ExecutorClient, executor: ExecutorProcess
) -> None:
    complete = await client.invoke(_long("undisturbed"))
    lost, moved = await _leave(client, _long("leaving"))
    lost.release()
    await until(lambda: _holds_nothing(executor))
    other, _ = await _leave(client, ask("corn? " * 60, max_tokens=400, ignore_eos=True))
    before = await _copied_tokens(executor)

    rests = [await client.resume(_long("another"), moved.chunks, state_of=state) for state in (lost, other)]

    for rest in rests:
        assert "".join(chunk.text for chunk in [*moved.chunks, *rest.chunks]) == complete.text
        assert rest.response == complete.response
    assert await _copied_tokens(executor) == before
    other.release()


async def test_the_memory_of_a_response_that_is_cancelled_after_the_start_of_its_hand_over_is_free_again(
    client: ExecutorClient, executor: ExecutorProcess
) -> None:
    invocation = await client.start(_long("cancelled"))
    await invocation.first_chunk()
    # The engine saves the KV cache between two steps, which these prompts make longer.
    prompts = [await client.start(ask("corn " * 700, max_tokens=1, cache_salt=str(number))) for number in range(8)]
    invocation.hand_over()
    await until(lambda: _holds_memory(executor))
    invocation.disconnect()
    for prompt in prompts:
        prompt.cancel()

    await until(lambda: _holds_nothing(executor))
    assert (await client.invoke(PLAIN)).code == "OK"


@pytest.mark.parametrize(
    "fields",
    [
        {"stop": ["never generated"]},
        {"temperature": 1, "seed": 7},
        {"n": 2, "temperature": 1, "seed": 7},
        {"logprobs": True},
    ],
)
async def test_other_responses_are_not_handed_over(client: ExecutorClient, fields: dict[str, Any]) -> None:
    invocation = await client.start(ask(max_tokens=TOKENS, ignore_eos=True, **fields))
    await invocation.first_chunk()

    invocation.hand_over()

    assert (await invocation.reply()).code == "OK"


async def test_a_response_that_is_not_repeated_ends_with_an_error(client: ExecutorClient) -> None:
    request = ask(**SAMPLED, ignore_eos=True)
    complete, other = [await _in_parts(client, request.model_copy(update={"seed": seed})) for seed in (7, 8)]
    shorter = request.model_copy(update={"max_tokens": 1})

    for delivered, resumed in ((other.chunks, request), (complete.chunks, shorter)):
        reply = await client.resume(resumed, delivered)

        assert reply.code == "CANNOT_CONTINUE"
        assert "does not repeat" in reply.end.message
        assert not reply.chunks


def _choices(response: ChatResponse) -> list[dict[str, Any]]:
    """Returns the choices without log probabilities, which other requests in a batch change by rounding, and ids."""
    fields: Any = set(ChatChoice.model_fields) - {"logprobs"}
    ids: Any = {"tool_calls": {"__all__": "id"}}
    return [choice.model_dump(include=fields, exclude=ids) for choice in response.choices]


async def _in_parts(client: ExecutorClient, request: ChatRequest | CompletionRequest) -> InvocationReply:
    """Returns a response of several chunks. A busy engine combines tokens in fewer chunks."""
    while True:
        reply = await client.invoke(request)
        if len(reply.chunks) > 2:
            return reply


def _contents(chunks: Sequence[ChatChunk]) -> dict[int, Any]:
    """Returns what the chunks of each choice contain in total."""
    contents = {}
    for index in {chunk.index for chunk in chunks}:
        own = [chunk for chunk in chunks if chunk.index == index]
        calls = [call for chunk in own for call in chunk.tool_calls or ()]
        contents[index] = (
            "".join(chunk.text for chunk in own),
            [token for chunk in own for token in chunk.token_ids],
            [(call.index, call.name) for call in calls if call.id],
            "".join(call.arguments or "" for call in calls),
            [position.token for chunk in own for position in chunk.logprobs or ()],
            sum(chunk.prompt_tokens for chunk in own),
        )
    return contents


async def _check_every_cut(client: ExecutorClient, request: ChatRequest | CompletionRequest, text: str) -> None:
    complete_reply = await _in_parts(client, request)
    cuts = range(1, len(complete_reply.chunks) + 1)

    replies = await asyncio.gather(*(client.resume(request, complete_reply.chunks[:cut]) for cut in cuts))

    for cut, reply in zip(cuts, replies, strict=True):
        assert "".join(chunk.text for chunk in [*complete_reply.chunks[:cut], *reply.chunks]) == text
        assert reply.response == complete_reply.response


async def test_a_completely_delivered_response_only_finishes(client: ExecutorClient) -> None:
    complete_reply = await client.invoke(PLAIN)

    reply = await client.resume(PLAIN, complete_reply.chunks)

    assert "".join(chunk.text for chunk in reply.chunks) == ""
    assert reply.response == complete_reply.response


async def test_a_sampled_response_continues_after_the_delivered_tokens(client: ExecutorClient) -> None:
    request = ask(max_tokens=TOKENS, ignore_eos=True, temperature=1, top_p=0.9, logit_bias={"65": 100, "66": 100})
    complete_reply = await client.invoke(request)

    reply = await client.resume(request, complete_reply.chunks[:20])

    delivered = [token for chunk in complete_reply.chunks[:20] for token in chunk.token_ids]
    assert reply.response.token_ids[: len(delivered)] == delivered
    assert len(reply.response.token_ids) == TOKENS


async def test_a_sampled_response_cannot_be_continued_within_a_character(client: ExecutorClient) -> None:
    request = ask(max_tokens=TOKENS, ignore_eos=True, temperature=1)
    complete_reply = await client.invoke(PLAIN)
    half = next(number for number, chunk in enumerate(complete_reply.chunks) if chunk.token_ids and not chunk.text)

    reply = await client.resume(request, complete_reply.chunks[: half + 1])

    assert reply.code == "CANNOT_CONTINUE"
    assert "cannot be continued" in reply.end.message
