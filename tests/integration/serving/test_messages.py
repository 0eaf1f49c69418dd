"""`/v1/messages` with a real model, called with the official client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from anthropic import Anthropic, BadRequestError
from anthropic.types import MessageParam

from tests.integration.serving.conftest import CommandLine

QUESTION: MessageParam = {"role": "user", "content": "What is the capital of France?"}


@pytest.fixture(scope="module")
def anthropic(cornserve: CommandLine) -> Iterator[Anthropic]:
    with Anthropic(base_url=cornserve.url, api_key="none", max_retries=0, timeout=120) as client:
        yield client


def test_the_streamed_text_is_that_of_the_message(anthropic: Anthropic, model: str) -> None:
    greedy = {"temperature": 0}
    whole = anthropic.messages.create(model=model, max_tokens=24, messages=[QUESTION], extra_body=greedy)
    with anthropic.messages.stream(model=model, max_tokens=24, messages=[QUESTION], extra_body=greedy) as stream:
        texts = list(stream.text_stream)
        final = stream.get_final_message()

    assert "Paris" in "".join(texts)
    assert [block.to_dict() for block in whole.content] == [{"type": "text", "text": "".join(texts)}]
    assert (final.stop_reason, final.usage.output_tokens) == (whole.stop_reason, whole.usage.output_tokens)


def test_the_counted_tokens_are_those_of_the_message(anthropic: Anthropic, model: str) -> None:
    message = anthropic.messages.create(model=model, max_tokens=1, messages=[QUESTION], system="Be brief.")
    count = anthropic.messages.count_tokens(model=model, messages=[QUESTION], system="Be brief.")

    assert message.usage.input_tokens + (message.usage.cache_read_input_tokens or 0) == count.input_tokens > 10


def test_a_stop_sequence_is_named_and_an_answer_continued(anthropic: Anthropic, model: str) -> None:
    begun: MessageParam = {"role": "assistant", "content": "The capital of France is"}
    message = anthropic.messages.create(
        model=model,
        max_tokens=24,
        messages=[QUESTION, begun],
        stop_sequences=["Paris"],
        extra_body={"temperature": 0},
    )

    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "Paris")


def test_errors_of_the_executor_name_fields_of_the_request(anthropic: Anthropic, model: str) -> None:
    with pytest.raises(BadRequestError, match=r"thinking, output_config\.effort: the model's chat template"):
        anthropic.messages.create(
            model=model, max_tokens=1, messages=[QUESTION], thinking={"type": "enabled", "budget_tokens": 1024}
        )
