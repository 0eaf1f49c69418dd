"""`/v1/completions`, through the official client."""

from __future__ import annotations

import httpx2 as httpx
import openai as openai_client
import pytest
import pytest_asyncio
from openai import AsyncOpenAI

from cornserve.gateway.endpoints.openai.completions import TextCompletionRequest
from tests.unit.gateway.conftest import Deploy
from tests.unit.gateway.refused_bodies import assert_refused, refusal
from tests.unit.gateway.sources import CHAT, MODEL


@pytest_asyncio.fixture(scope="module", autouse=True, loop_scope="module")
async def apps(deploy_for_module: Deploy) -> None:
    await deploy_for_module(MODEL)


@pytest.fixture
def model(openai: AsyncOpenAI) -> AsyncOpenAI:
    return openai


async def test_a_prompt_is_completed(model: AsyncOpenAI) -> None:
    completion = await model.completions.create(model="model", prompt="say hello")

    assert completion.id.startswith("cmpl-")
    assert completion.object == "text_completion"
    assert [choice.text for choice in completion.choices] == ["hello"]
    assert completion.choices[0].finish_reason == "stop"
    assert completion.usage is not None
    assert completion.usage.total_tokens == 3


async def test_choices_are_numbered_across_prompts(model: AsyncOpenAI) -> None:
    completion = await model.completions.create(model="model", prompt=["say a", "say b"], n=2)

    assert [(choice.index, choice.text) for choice in completion.choices] == [
        (0, "a"),
        (1, "a 1"),
        (2, "b"),
        (3, "b 1"),
    ]
    assert completion.usage is not None
    assert completion.usage.prompt_tokens == completion.usage.completion_tokens == 4
    assert completion.usage.prompt_tokens_details is not None
    assert completion.usage.prompt_tokens_details.cached_tokens == 2


@pytest.mark.parametrize(("prompt", "texts"), [([1, 2], ["12"]), ([[1, 2], [3]], ["12", "3"])])
async def test_prompts_may_be_token_ids(
    model: AsyncOpenAI, prompt: list[int] | list[list[int]], texts: list[str]
) -> None:
    completion = await model.completions.create(model="model", prompt=prompt)

    assert [choice.text for choice in completion.choices] == texts


async def test_prompts_are_streamed_concurrently(model: AsyncOpenAI) -> None:
    stream = await model.completions.create(
        model="model", prompt=["a b", "say c"], stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    choices = [choice for chunk in chunks for choice in chunk.choices]

    assert sorted((choice.index, choice.text) for choice in choices if choice.text) == [(0, "a"), (0, "b"), (1, "c")]
    assert [(choice.index, choice.finish_reason) for choice in choices[-2:]] == [(0, "stop"), (1, "stop")]
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 1


async def test_each_choice_has_the_log_probabilities_of_its_prompt(model: AsyncOpenAI) -> None:
    completion = await model.completions.create(
        model="model", prompt=["say a", "say b"], extra_body={"prompt_logprobs": 1}
    )

    expected = [None, {"7": {"logprob": -0.5, "rank": 1, "decoded_token": "y"}}]
    assert [choice.to_dict()["prompt_logprobs"] for choice in completion.choices] == [expected, expected]


async def test_logprobs_have_the_format_of_completions(model: AsyncOpenAI) -> None:
    completion = await model.completions.create(model="model", prompt="say hello", logprobs=2)

    logprobs = completion.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.model_dump() == {
        "tokens": ["hello"],
        "token_logprobs": [-0.5],
        "text_offset": [0],
        "top_logprobs": [{"hello": -0.5, "?": -1.5}],
    }


async def test_streamed_logprobs_have_text_offsets(model: AsyncOpenAI) -> None:
    stream = await model.completions.create(model="model", prompt="one three four", logprobs=2, stream=True)
    logprobs = [chunk.choices[0].logprobs async for chunk in stream]

    assert [choice.text_offset for choice in logprobs if choice is not None] == [[0], [3], [8]]


async def test_an_app_without_completions_is_a_400(openai: AsyncOpenAI, deploy: Deploy) -> None:
    await deploy(CHAT)

    with pytest.raises(openai_client.BadRequestError, match="the app 'parrot' does not support /v1/completions"):
        await openai.completions.create(model="parrot", prompt="x")


@pytest.mark.parametrize(
    ("change", "param", "message"),
    [
        ({"prompt": None}, "prompt", "missing field"),
        ({"suffix": "x"}, "suffix", "unknown or unsupported field"),
        ({"max_tokens": 0}, "max_tokens", "needs echo"),
        ({"logprobs": 21}, "logprobs", "less than or equal to 20"),
    ],
)
async def test_an_invalid_body_is_a_400_that_names_the_field(
    gateway: httpx.AsyncClient, change: dict[str, object], param: str | None, message: str
) -> None:
    response = await gateway.post("/v1/completions", json={"model": "model", "prompt": "x"} | change)

    assert_refused(response, param, message)


@pytest.mark.parametrize(
    ("change", "param", "message"),
    [
        ({"prompt": ""}, "prompt", "at least 1 character"),
        ({"prompt": []}, "prompt", "at least 1 item"),
        ({"prompt": ["x", ""]}, "prompt[1]", "at least 1 character"),
        ({"prompt": ["x", 1]}, "prompt[1]", "valid string"),
        ({"prompt": [1, -1]}, "prompt[1]", "greater than or equal to 0"),
        ({"prompt": [[1], []]}, "prompt[1]", "at least 1 item"),
        ({"prompt": ["x"] * 129}, "prompt", "at most 128"),
        ({"prompt": ["x"] * 3, "n": 64}, "prompt", "3 prompts with n=64 exceed 128 choices"),
        ({"best_of": 2}, "best_of", "best_of: 2 differs from n=1"),
        ({"echo": True, "prompt_logprobs": 1, "logprobs": 2}, "prompt_logprobs", "set it to 2"),
        ({"logprobs": True}, "logprobs", "valid integer"),
        ({"messages": []}, "messages", "unknown or unsupported field"),
    ],
)
def test_an_invalid_body_names_the_field(change: dict[str, object], param: str | None, message: str) -> None:
    error = refusal(TextCompletionRequest.model_validate, {"model": "model", "prompt": "x"} | change)

    assert message in error.message
    assert error.param == param
