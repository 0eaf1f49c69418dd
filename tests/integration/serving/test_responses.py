"""`/v1/responses` with a real model, called with the official client."""

from __future__ import annotations

import pytest
from openai import BadRequestError, OpenAI
from pydantic import BaseModel

QUESTION = "What is the capital of France?"


class Town(BaseModel):
    name: str
    is_capital: bool


def test_the_streamed_text_is_that_of_the_response(client: OpenAI, model: str) -> None:
    create = client.responses.create
    whole = create(model=model, input=QUESTION, instructions="Be brief.", temperature=0, max_output_tokens=24)
    stream = create(
        model=model, input=QUESTION, instructions="Be brief.", temperature=0, max_output_tokens=24, stream=True
    )
    deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]

    assert "Paris" in whole.output_text
    assert "".join(deltas) == whole.output_text
    assert whole.usage is not None
    assert 0 < whole.usage.output_tokens <= 24
    assert whole.usage.total_tokens == whole.usage.input_tokens + whole.usage.output_tokens


def test_an_earlier_response_is_part_of_the_next_prompt(client: OpenAI, model: str) -> None:
    question = {"role": "user", "content": QUESTION}
    first = client.responses.create(model=model, input=[question], temperature=0, max_output_tokens=24)  # type: ignore[list-item]
    items = [question, *first.output, {"role": "user", "content": "Repeat it."}]
    second = client.responses.create(model=model, input=items, temperature=0, max_output_tokens=8)  # type: ignore[arg-type]

    assert first.usage is not None
    assert second.usage is not None
    assert second.usage.input_tokens > first.usage.total_tokens
    assert (second.status, second.incomplete_details and second.incomplete_details.reason) in [
        ("completed", None),
        ("incomplete", "max_output_tokens"),
    ]


@pytest.mark.slow
def test_structured_output_is_parsed(client: OpenAI, model: str) -> None:
    response = client.responses.parse(
        model=model, input=QUESTION, text_format=Town, temperature=0, max_output_tokens=100
    )

    assert isinstance(response.output_parsed, Town)


def test_errors_of_the_executor_name_fields_of_the_request(client: OpenAI, model: str) -> None:
    schema: dict[str, object] = {"type": "object", "properties": {"a": {"type": "bananas"}}}
    with pytest.raises(BadRequestError) as rejected:
        client.responses.create(
            model=model, input="x", text={"format": {"type": "json_schema", "name": "a", "schema": schema}}
        )
    with pytest.raises(BadRequestError, match=r"reasoning\.effort: the model's chat template"):
        client.responses.create(model=model, input="Hi!", reasoning={"effort": "low"})
    with pytest.raises(BadRequestError, match="tools: this app cannot parse tool calls"):
        client.responses.create(
            model=model, input="x", tools=[{"type": "function", "name": "a", "parameters": None, "strict": None}]
        )

    assert rejected.value.param == "text.format.schema"
