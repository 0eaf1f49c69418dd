"""Streams move to another replica when theirs leaves."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import httpx2 as httpx
import pytest
from openai import AsyncOpenAI

from tests.integration.serving.conftest import CommandLine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

STREAMS = 16


async def test_streams_continue_on_the_other_replica_when_an_app_is_scaled_in(
    cornserve: CommandLine, smollm2: Path
) -> None:
    options = ["--option", "max_model_len=1024", "--option", f"kv_cache_memory_bytes={128 << 20}"]
    deployed = cornserve.run("deploy", str(smollm2), "--name", "pair", "--replicas", "2", *options)
    assert deployed.returncode == 0, deployed.stderr

    async with AsyncOpenAI(base_url=f"{cornserve.url}/v1", api_key="none", max_retries=0, timeout=120) as client:

        async def text(number: int, begun: asyncio.Event) -> str:
            stream = await client.completions.create(
                model="pair",
                prompt=f"{number}. Tell me about corn:",
                max_tokens=200,
                temperature=0,
                stream=True,
                extra_body={"ignore_eos": True},
            )
            parts = []
            async for chunk in stream:
                begun.set()
                parts.append(chunk.choices[0].text)
            return "".join(parts)

        expected = await asyncio.gather(*(text(number, asyncio.Event()) for number in range(STREAMS)))
        begun = [asyncio.Event() for _ in range(STREAMS)]
        streams = asyncio.gather(*(text(number, begun[number]) for number in range(STREAMS)))
        await asyncio.gather(*(event.wait() for event in begun))
        scaled = await asyncio.to_thread(cornserve.run, "scale", "pair", "1")
        assert scaled.returncode == 0, scaled.stderr
        assert re.search(r"^[1-9]\d* running streams moved to other replicas$", scaled.stderr, re.MULTILINE)
        assert not streams.done()

        assert await streams == expected

    metrics = httpx.get(f"{cornserve.url}/metrics").text
    assert re.search(r'^cornserve_gateway_invocations_total\{.*code="HANDED_OVER".*\} [1-9]', metrics, re.MULTILINE)
