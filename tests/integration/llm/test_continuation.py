"""An answer that another executor has begun ends exactly as it would have there."""

from __future__ import annotations

import asyncio

import pytest

from cornserve_tasklib import ChatRequest, CompletionRequest
from tests.integration.llm.client import ExecutorClient
from tests.integration.llm.test_chat import ask

pytestmark = pytest.mark.timeout(300)

TOKENS = 60
"""The model draws bytes at random, among them many halves of characters."""

PLAIN = ask(max_tokens=TOKENS, ignore_eos=True)
TEXT = CompletionRequest(prompt="Once upon a time", max_tokens=TOKENS, ignore_eos=True, temperature=0)


@pytest.mark.parametrize("request_", [PLAIN, TEXT], ids=["chat", "completion"])
async def test_wherever_it_was_interrupted(client: ExecutorClient, request_: ChatRequest | CompletionRequest) -> None:
    whole = await client.invoke(request_)

    await _check_every_cut(client, request_, whole.text)


async def test_with_a_stop_string_that_may_have_begun(client: ExecutorClient) -> None:
    text = (await client.invoke(PLAIN)).text
    request = ask(max_tokens=TOKENS, ignore_eos=True, stop=[text[30:35], "never generated, but held back for"])
    stopped = await client.invoke(request)
    assert (stopped.response.finish_reason, stopped.text) == ("stop", text[: text.index(text[30:35])])

    await _check_every_cut(client, request, stopped.text)


async def _check_every_cut(client: ExecutorClient, request: ChatRequest | CompletionRequest, text: str) -> None:
    whole = await client.invoke(request)
    cuts = range(1, len(whole.chunks) + 1)
    assert len(cuts) > 5

    replies = await asyncio.gather(*(client.resume(request, whole.chunks[:cut]) for cut in cuts))

    for cut, reply in zip(cuts, replies, strict=True):
        assert "".join(chunk.text for chunk in [*whole.chunks[:cut], *reply.chunks]) == text
        assert reply.response == whole.response


async def test_an_answer_of_which_all_was_delivered_only_ends(client: ExecutorClient) -> None:
    whole = await client.invoke(PLAIN)

    reply = await client.resume(PLAIN, whole.chunks)

    assert "".join(chunk.text for chunk in reply.chunks) == ""
    assert reply.response == whole.response


async def test_what_was_sampled_goes_on_from_the_tokens_that_were_drawn(client: ExecutorClient) -> None:
    request = ask(max_tokens=TOKENS, ignore_eos=True, temperature=1, top_p=0.9, logit_bias={"65": 100, "66": 100})
    whole = await client.invoke(request)

    reply = await client.resume(request, whole.chunks[:20])

    delivered = [token for chunk in whole.chunks[:20] for token in chunk.token_ids]
    assert reply.response.token_ids[: len(delivered)] == delivered
    assert len(reply.response.token_ids) == TOKENS


async def test_half_a_character_that_was_sampled_cannot_be_sampled_again(client: ExecutorClient) -> None:
    request = ask(max_tokens=TOKENS, ignore_eos=True, temperature=1)
    whole = await client.invoke(PLAIN)
    half = next(number for number, chunk in enumerate(whole.chunks) if chunk.token_ids and not chunk.text)

    reply = await client.resume(request, whole.chunks[: half + 1])

    assert reply.code == "INVALID_ARGUMENT"
    assert "cannot be sampled again" in reply.end.message
