"""Guarantees of a language executor to its callers."""

from __future__ import annotations

import asyncio

import pytest

from cornserve_tasklib import ChatMessage, ChatRequest, Usage
from cornserve_tasklib.messages import ContentPart, TextPart
from tests.integration.llm.client import ExecutorClient
from tests.integration.llm.conftest import CONTEXT
from tests.integration.llm.process import ExecutorProcess
from tests.waiting import until

pytestmark = pytest.mark.timeout(300)


def ask(question: str = "Tell me something.", *, temperature: float = 0, **fields: object) -> ChatRequest:
    message = {"role": "user", "content": question}
    return ChatRequest.model_validate({"messages": [message], "temperature": temperature, **fields})


BLOCK = 128
"""The tokens of a block of the KV cache, of which vLLM caches only full ones. The default on CPUs."""

LONG = ask(max_tokens=3000, ignore_eos=True)
"""A request that takes many seconds."""


async def test_chunks_arrive_during_generation(client: ExecutorClient) -> None:
    invocation = await client.start(LONG)
    first = await invocation.first_chunk()
    invocation.cancel()

    assert len(first.token_ids) < 3000
    assert (await invocation.reply()).code == "CANCELLED"


async def test_the_chunks_add_up_to_the_response(client: ExecutorClient) -> None:
    reply = await client.invoke(ask(max_tokens=100, ignore_eos=True))

    assert "".join(chunk.text for chunk in reply.chunks) == reply.text
    assert [token for chunk in reply.chunks for token in chunk.token_ids] == reply.response.token_ids


async def test_an_unstreamed_response_equals_the_streamed_one(client: ExecutorClient) -> None:
    streamed = await client.invoke(ask(max_tokens=50))
    unstreamed = await client.invoke(ask(max_tokens=50), stream=False)

    assert unstreamed.chunks == []
    assert unstreamed.response == streamed.response


async def test_max_tokens_limits_a_response(client: ExecutorClient) -> None:
    response = (await client.invoke(ask(max_tokens=7, ignore_eos=True))).response

    assert response.finish_reason == "length"
    assert len(response.token_ids) == response.usage.completion_tokens == 7


async def test_usage_includes_the_tokens_of_the_template(client: ExecutorClient) -> None:
    response = (await client.invoke(ask("four", max_tokens=1))).response

    # One token for each byte and each of the three markers.
    prompt = len("user\n") + len("four") + len("\n") + len("assistant\n") + 3
    assert response.usage == Usage(prompt_tokens=prompt, completion_tokens=1)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "unstreamed"])
async def test_usage_counts_the_cached_tokens_of_the_prompt(client: ExecutorClient, stream: bool) -> None:
    request = ask(f"{stream}: a prompt that no other test sends. " * 8, max_tokens=1)
    first = await client.invoke(request, stream=stream)
    second = await client.invoke(request, stream=stream)

    prompt_tokens = second.response.usage.prompt_tokens
    assert first.cached_tokens == 0
    assert prompt_tokens - BLOCK <= second.cached_tokens < prompt_tokens


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "unstreamed"])
async def test_only_requests_with_the_same_salt_share_the_cache(client: ExecutorClient, stream: bool) -> None:
    text = f"salted {stream}: a prompt that no other test sends. " * 8

    async def cached(salt: str | None = None) -> int:
        chat = await client.invoke(ask(text, max_tokens=1, cache_salt=salt), stream=stream)
        return chat.cached_tokens

    assert await cached() == 0
    assert await cached() > 0
    assert await cached("mine") == 0
    assert await cached("mine") > 0
    assert await cached("yours") == 0


async def test_a_priority_needs_an_engine_that_schedules_by_priority(client: ExecutorClient) -> None:
    reply = await client.invoke(ask("first", max_tokens=1, priority=-1))

    assert reply.code == "INVALID_ARGUMENT"
    assert reply.end.message.startswith("priority: this app serves requests in their order: deploy it with ")


@pytest.mark.parametrize("max_tokens", [None, CONTEXT], ids=["unlimited", "context-length"])
async def test_a_response_ends_at_the_context_length(client: ExecutorClient, max_tokens: int | None) -> None:
    response = (await client.invoke(ask("x" * (CONTEXT - 60), max_tokens=max_tokens, ignore_eos=True))).response

    assert response.finish_reason == "length"
    assert response.usage.prompt_tokens + response.usage.completion_tokens == CONTEXT


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "unstreamed"])
async def test_a_stop_string_ends_the_response_and_is_not_part_of_it(client: ExecutorClient, stream: bool) -> None:
    text = (await client.invoke(ask(max_tokens=60, ignore_eos=True))).text
    stop = text[20:24]

    reply = await client.invoke(ask(max_tokens=60, ignore_eos=True, stop=["never generated", stop]), stream=stream)

    assert reply.response.finish_reason == "stop"
    assert reply.text == text[: text.index(stop)]
    assert "".join(chunk.text for chunk in reply.chunks) == (reply.text if stream else "")


async def test_a_seed_reproduces_a_sampled_response(client: ExecutorClient) -> None:
    async def sampled(seed: int) -> str:
        return (await client.invoke(ask(max_tokens=40, temperature=1, seed=seed))).text

    assert await sampled(1) == await sampled(1) != await sampled(2)


async def test_concurrent_requests_get_the_same_responses_as_alone(client: ExecutorClient) -> None:
    requests = [ask(f"Question {number}" * number, max_tokens=24, ignore_eos=True) for number in range(1, 17)]
    alone = [(await client.invoke(request)).response for request in requests]

    together = await asyncio.gather(*(client.invoke(request) for request in requests))

    assert [reply.response for reply in together] == alone


async def test_text_may_consist_of_several_parts(client: ExecutorClient) -> None:
    parts: list[ContentPart] = [TextPart(type="text", text=text) for text in ("Good", "morning")]
    request = ChatRequest(messages=[ChatMessage(role="user", content=parts)], max_tokens=20, temperature=0)

    assert (await client.invoke(request)).response == (
        await client.invoke(ask("Good\nmorning", max_tokens=20))
    ).response


async def test_cancelling_stops_the_generation_in_the_engine(executor: ExecutorProcess, client: ExecutorClient) -> None:
    invocation = await client.start(LONG)
    await invocation.first_chunk()
    assert (await executor.metrics())["cornserve_llm_num_requests_running"] == 1

    invocation.cancel()

    assert (await invocation.reply()).code == "CANCELLED"
    await until(lambda: idle(executor))


async def test_a_disconnected_caller_stops_the_generation_in_the_engine(
    executor: ExecutorProcess, client: ExecutorClient
) -> None:
    invocation = await client.start(LONG)
    await invocation.first_chunk()

    invocation.disconnect()

    await until(lambda: idle(executor))


async def test_cancelling_an_unstreamed_response_stops_the_generation_in_the_engine(
    executor: ExecutorProcess, client: ExecutorClient
) -> None:
    invocation = await client.start(LONG, stream=False)
    await until(lambda: busy(executor))

    invocation.cancel()

    assert (await invocation.reply()).code == "CANCELLED"
    await until(lambda: idle(executor))


async def idle(executor: ExecutorProcess) -> bool:
    metrics = await executor.metrics()
    return metrics["cornserve_llm_num_requests_running"] == metrics["cornserve_llm_kv_cache_usage_perc"] == 0


async def busy(executor: ExecutorProcess) -> bool:
    return (await executor.metrics())["cornserve_llm_num_requests_running"] == 1


async def test_metrics_count_generated_tokens(executor: ExecutorProcess, client: ExecutorClient) -> None:
    before = (await executor.metrics())["cornserve_llm_generation_tokens_total"]

    await client.invoke(ask(max_tokens=30, ignore_eos=True))

    assert (await executor.metrics())["cornserve_llm_generation_tokens_total"] == before + 30


TOO_MANY = rf"^{{}}: {CONTEXT + 1} .* context length is {CONTEXT} tokens, .* prompt has \d+: give at most \d+$"

BAD_REQUESTS = {
    "too-long": (
        ask("x" * 5000).model_dump_json(),
        f"maximum context length is {CONTEXT} tokens.* at least {CONTEXT + 1} input tokens",
    ),
    "just-too-long": (ask("x" * (CONTEXT - 19)).model_dump_json(), f"{CONTEXT} tokens, .* context length is {CONTEXT}"),
    "max-tokens": (ask("x", max_tokens=CONTEXT + 1).model_dump_json(), TOO_MANY.format("max_tokens")),
    "max-completion-tokens": (
        ask("x", max_completion_tokens=CONTEXT + 1).model_dump_json(),
        TOO_MANY.format("max_completion_tokens"),
    ),
    "rejected-by-the-template": (
        '{"messages": [{"role": "assistant", "content": "I begin."}]}',
        "The assistant must not speak first",
    ),
    "unknown-field": ('{"messages": [{"role": "user", "content": "x"}], "best_of": 2}', "best_of"),
    "not-json": ("Hello?", "JSON"),
}


async def test_bad_requests_are_rejected_without_affecting_others(client: ExecutorClient) -> None:
    good = ask(max_tokens=150, ignore_eos=True)
    expected = (await client.invoke(good)).response
    neighbour = await client.start(good)
    await neighbour.first_chunk()

    for name, (request, message) in BAD_REQUESTS.items():
        rejected = await client.invoke(request.encode())
        assert rejected.code == "INVALID_ARGUMENT", name
        assert_matches(rejected.end.message, message)

    assert (await neighbour.reply()).response == expected


def assert_matches(text: str, pattern: str) -> None:
    with pytest.raises(ValueError, match=pattern):
        raise ValueError(text)
