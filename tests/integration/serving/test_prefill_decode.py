"""Compares a language model whose prefill and decode run in different executors with the whole model."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError, OpenAI

from tests.integration.serving.conftest import CommandLine
from tests.waiting import until

pytestmark = [pytest.mark.timeout(300)]

LONG = "Count on: " + ", ".join(str(number) for number in range(150))
"""A prompt of several blocks of the KV cache."""

APP = """
from cornserve import App
from cornserve_tasklib import EngineOptions, PrefillDecodeChat

options = EngineOptions(max_model_len=1024, kv_cache_memory_bytes=64 << 20)
app = App(name="apart", paths=[PrefillDecodeChat(model_id={model!r}, options=options)])
"""


@pytest.fixture(scope="module")
def apart(cornserve: CommandLine, smollm2: Path, model: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("app") / "app.py"
    file.write_text(APP.format(model=str(smollm2)))
    deployed = cornserve.run("deploy", str(file))
    assert deployed.returncode == 0, deployed.stderr
    return "apart"


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": "Hello"},
        {"prompt": LONG},
        {"prompt": LONG, "max_tokens": 1},
        {"prompt": "Hello", "logprobs": 2},
        {"prompt": "Hello", "n": 2, "temperature": 1, "seed": 7},
        {"prompt": "Hello", "temperature": 1, "seed": 7, "frequency_penalty": 1},
        {"prompt": "Hello", "extra_body": {"prompt_logprobs": 1}},
        {"prompt": "Hello", "extra_body": {"structured_outputs": {"choice": ["red", "green"]}}},
    ],
)
def test_completions_are_those_of_the_whole_model(
    client: OpenAI, model: str, apart: str, fields: dict[str, Any]
) -> None:
    whole, split = (
        client.completions.create(model=app, **{"max_tokens": 8, "temperature": 0, **fields}) for app in (model, apart)
    )

    assert split.choices == whole.choices
    assert split.usage is not None
    assert whole.usage is not None
    assert split.usage.completion_tokens == whole.usage.completion_tokens


def test_chats_are_streamed(client: OpenAI, model: str, apart: str) -> None:
    texts = []
    for app in (model, apart):
        stream = client.chat.completions.create(
            model=app, messages=[{"role": "user", "content": "Hello"}], max_tokens=8, temperature=0, stream=True
        )
        texts.append("".join(chunk.choices[0].delta.content or "" for chunk in stream))

    assert texts[0]
    assert texts[0] == texts[1]


def test_a_prompt_that_is_too_long_is_refused(client: OpenAI, apart: str) -> None:
    with pytest.raises(BadRequestError, match="maximum context length"):
        client.completions.create(model=apart, prompt="word " * 2000, max_tokens=1)


async def _is_free(cornserve: CommandLine, app: str) -> bool:
    """Whether the executors of an app keep no tensors."""
    status = await asyncio.to_thread(cornserve.run, "status", app)  # Disconnects of clients need the event loop.
    return " 0 MiB used" in status.stdout


@pytest.mark.slow
async def test_the_memory_of_a_prompt_is_free_again_while_its_response_is_generated(
    cornserve: CommandLine, apart: str
) -> None:
    async with AsyncOpenAI(base_url=f"{cornserve.url}/v1", api_key="none", max_retries=0) as client:
        stream = await client.completions.create(
            model=apart, prompt=LONG, max_tokens=300, stream=True, extra_body={"ignore_eos": True}
        )
        await anext(stream)
        await until(lambda: _is_free(cornserve, apart))
        rest = [chunk async for chunk in stream]

    assert len(rest) > 10


@pytest.mark.slow
async def test_the_memory_of_cancelled_requests_is_free_again(cornserve: CommandLine, apart: str) -> None:
    async def cancelled(number: int) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(0.05 * number):
                await client.completions.create(model=apart, prompt=f"{number} {LONG}", max_tokens=100)

    async with AsyncOpenAI(base_url=f"{cornserve.url}/v1", api_key="none", max_retries=0) as client:
        await asyncio.gather(*map(cancelled, range(20)))
        response = await client.completions.create(model=apart, prompt="Hello", max_tokens=1)

    assert response.choices

    await until(lambda: _is_free(cornserve, apart))
