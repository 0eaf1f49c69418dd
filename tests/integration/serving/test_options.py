"""Options of chats and completions, set with the official client. tests/integration/llm covers all options."""

from __future__ import annotations

from typing import Any

import pytest
from openai import BadRequestError, OpenAI
from openai.types.chat import ChatCompletionMessageParam
from pydantic import BaseModel

QUESTION: list[ChatCompletionMessageParam] = [{"role": "user", "content": "What is the capital of France?"}]


class City(BaseModel):
    name: str
    is_capital: bool


@pytest.mark.slow
def test_a_response_can_be_parsed(client: OpenAI, model: str) -> None:
    completion = client.chat.completions.parse(
        model=model, messages=QUESTION, response_format=City, temperature=0, max_tokens=100
    )

    assert isinstance(completion.choices[0].message.parsed, City)


@pytest.mark.slow
def test_a_response_is_one_of_the_choices(client: OpenAI, model: str) -> None:
    constraint = {"structured_outputs": {"choice": ["Madrid", "Oslo"]}}
    chat = client.chat.completions.create(model=model, messages=QUESTION, temperature=0, extra_body=constraint)
    completion = client.completions.create(model=model, prompt="I live in ", temperature=0, extra_body=constraint)

    assert chat.choices[0].message.content in ("Madrid", "Oslo")
    assert completion.choices[0].text in ("Madrid", "Oslo")
    assert chat.choices[0].finish_reason == completion.choices[0].finish_reason == "stop"


def test_several_choices_have_logprobs(client: OpenAI, model: str) -> None:
    completion = client.chat.completions.create(
        model=model, messages=QUESTION, n=2, seed=1, max_tokens=8, logprobs=True, top_logprobs=2
    )

    assert [choice.index for choice in completion.choices] == [0, 1]
    assert completion.usage is not None
    assert completion.usage.completion_tokens <= 16
    for choice in completion.choices:
        assert choice.logprobs is not None
        tokens = choice.logprobs.content or []
        assert "".join(token.token for token in tokens).startswith(choice.message.content or "")
        assert all(len(token.top_logprobs) == 2 for token in tokens)


def test_streamed_choices_carry_their_index(client: OpenAI, model: str) -> None:
    with client.chat.completions.create(
        model=model, messages=QUESTION, n=2, seed=1, max_tokens=8, stream=True
    ) as stream:
        choices = [choice for chunk in stream for choice in chunk.choices]

    for index in (0, 1):
        own = [choice for choice in choices if choice.index == index]
        assert "".join(choice.delta.content or "" for choice in own)
        assert own[-1].finish_reason in ("stop", "length")


def test_tools_are_rejected_without_a_tool_parser(client: OpenAI, model: str) -> None:
    with pytest.raises(BadRequestError, match="tools: this app cannot parse tool calls"):
        client.chat.completions.create(
            model=model, messages=QUESTION, tools=[{"type": "function", "function": {"name": "look_up"}}]
        )


def test_completions_have_the_order_of_the_prompts(client: OpenAI, model: str) -> None:
    prompts = ["The capital of France is", "The capital of Italy is"]
    completion = client.completions.create(model=model, prompt=prompts, temperature=0, max_tokens=4, echo=True)

    assert [choice.text.startswith(prompt) for choice, prompt in zip(completion.choices, prompts, strict=True)]
    assert "Paris" in completion.choices[0].text
    assert "Rome" in completion.choices[1].text
    assert completion.usage is not None
    assert completion.usage.completion_tokens == 8


def test_a_streamed_completion_equals_an_unstreamed_one(client: OpenAI, model: str) -> None:
    create = client.completions.create
    with create(model=model, prompt="Once upon a time", temperature=0, max_tokens=8, logprobs=1, stream=True) as stream:
        choices = [choice for chunk in stream for choice in chunk.choices]
    unstreamed = create(model=model, prompt="Once upon a time", temperature=0, max_tokens=8, logprobs=1).choices[0]

    assert "".join(choice.text for choice in choices) == unstreamed.text
    assert unstreamed.logprobs is not None
    offsets = [offset for choice in choices if choice.logprobs for offset in choice.logprobs.text_offset or ()]
    assert offsets == unstreamed.logprobs.text_offset


def test_usage_counts_the_cached_tokens_of_the_prompt(client: OpenAI, model: str) -> None:
    prompt = "A prompt that no other test sends, of more than one block of vLLM's KV cache. " * 12
    plain = client.completions.create(model=model, prompt=prompt, max_tokens=1).usage
    again = client.completions.create(model=model, prompt=prompt, max_tokens=1).usage
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": prompt}]
    client.chat.completions.create(model=model, messages=messages, max_tokens=1)
    with client.chat.completions.create(
        model=model, messages=messages, max_tokens=1, stream=True, stream_options={"include_usage": True}
    ) as stream:
        chat = list(stream)[-1].usage

    assert plain is not None
    assert plain.prompt_tokens_details is not None
    assert plain.prompt_tokens_details.cached_tokens == 0
    for usage in (again, chat):
        assert usage is not None
        assert usage.prompt_tokens_details is not None
        assert 0 < (usage.prompt_tokens_details.cached_tokens or 0) < usage.prompt_tokens


def test_every_chunk_has_the_usage_of_its_choice_so_far_if_requested(client: OpenAI, model: str) -> None:
    messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Name a color."}]
    options: Any = {"include_usage": True, "continuous_usage_stats": True}
    given: Any = {"model": model, "max_tokens": 6, "n": 2, "extra_body": {"ignore_eos": True}}
    with (
        client.chat.completions.create(**given, messages=messages, stream=True, stream_options=options) as chats,
        client.completions.create(**given, prompt="corn " * 5, stream=True, stream_options=options) as completions,
    ):
        for stream in (chats, completions):
            parts: list[Any] = list(stream)
            last = parts.pop()
            for index in (0, 1):
                usages = [part.usage for part in parts if part.choices[0].index == index]
                counts = [usage.completion_tokens for usage in usages if usage is not None]
                assert len(counts) == len(usages)
                assert counts == sorted(counts)
                assert counts[-1] == 6
                assert {usage.prompt_tokens for usage in usages} == {last.usage.prompt_tokens}
            assert last.usage.completion_tokens == 12
