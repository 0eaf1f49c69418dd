"""Streams about images move to another replica when theirs leaves, on each path."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI

from cornserve.client import Client
from tests.integration.serving.conftest import CommandLine
from tests.integration.serving.image_chats import Part, noise_part, sum_metric, text_part
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CHATS = [[noise_part(number, 448, 224), text_part("What is this?")] for number in range(4)]


@pytest.mark.parametrize(
    ("path", "executor"), [("monolith", "llm"), ("e-l", "llm"), ("ep-d", "decode"), ("e-p-d", "decode")]
)
async def test_streams_about_images_continue_on_the_other_replica(
    cornserve: CommandLine, tiny_qwen25vl: Path, path: str, executor: str
) -> None:
    app = f"images-{path}"
    options = ("--option", "max_model_len=4096", "--option", f"kv_cache_memory_bytes={64 << 20}")
    deployed = cornserve.run("deploy", str(tiny_qwen25vl), "--name", app, "--share", f"{path}=1", *options)
    assert deployed.returncode == 0, deployed.stderr
    assert cornserve.run("scale", app, "--executor", f"{executor}=2").returncode == 0

    with Client(cornserve.url) as client:
        expected = await asyncio.gather(*(_text(cornserve, app, chat, asyncio.Event(), "whole") for chat in CHATS))
        begun = [asyncio.Event() for _ in CHATS]
        streams = asyncio.gather(*(_text(cornserve, app, *each, "moved") for each in zip(CHATS, begun, strict=True)))
        await asyncio.gather(*(event.wait() for event in begun))
        await asyncio.to_thread(client.scale, app, executors={executor: 1})

        assert await streams == expected
        await until(lambda: client.app(app).is_scaled)
        assert client.app(app).moved_streams > 0

    assert len(set(expected)) == len(CHATS)
    await until(lambda: sum_metric(cornserve, app, 'cornserve_transport_slab_bytes{state="held"}') == 0)


async def _text(cornserve: CommandLine, app: str, content: Sequence[Part], begun: asyncio.Event, salt: str) -> str:
    """Returns the text of a streamed response. Sets `begun` at its first part.

    Args:
        salt: requests with other salts do not find the prompt in the prefix cache.
    """
    messages: Any = [{"role": "user", "content": content}]
    extra = {"ignore_eos": True, "cache_salt": salt}
    parts = []
    async with AsyncOpenAI(base_url=f"{cornserve.url}/v1", api_key="none", max_retries=0, timeout=240) as client:
        stream = await client.chat.completions.create(
            model=app, messages=messages, max_tokens=1000, temperature=0, stream=True, extra_body=extra
        )
        async for chunk in stream:
            if part := chunk.choices[0].delta.content:
                begun.set()
                parts.append(part)
    return "".join(parts)
