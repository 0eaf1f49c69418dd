"""A continued response equals the uninterrupted response."""

from __future__ import annotations

import asyncio

import pytest

from cornserve_tasklib import ChatRequest, CompletionRequest
from tests.integration.llm.client import ExecutorClient
from tests.integration.llm.test_chat import ask

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


async def _check_every_cut(client: ExecutorClient, request: ChatRequest | CompletionRequest, text: str) -> None:
    complete_reply = await client.invoke(request)
    cuts = range(1, len(complete_reply.chunks) + 1)
    assert len(cuts) > 1  # A busy engine combines tokens in fewer chunks.

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

    assert reply.code == "INVALID_ARGUMENT"
    assert "cannot be continued" in reply.end.message
