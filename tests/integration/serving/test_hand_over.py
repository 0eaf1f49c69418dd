"""Streams move to another replica when theirs leaves."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import httpx2 as httpx
import pytest
from openai import AsyncOpenAI

from tests.integration.serving.conftest import CommandLine
from tests.integration.serving.image_chats import sum_metric
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

STREAMS = 8

NUMBERS = ", ".join(str(number) for number in range(60))
"""A text of more tokens than one block of the KV cache."""

OPTIONS = ("--option", "max_model_len=1024", "--option", f"kv_cache_memory_bytes={128 << 20}")


@pytest.mark.parametrize("path", ["chat", "p-d"])
async def test_streams_continue_on_the_other_replica_when_an_app_is_scaled_in(
    cornserve: CommandLine, smollm2: Path, path: str
) -> None:
    executor = "llm" if path == "chat" else "decode"
    deployed = cornserve.run("deploy", str(smollm2), "--name", path, "--share", f"{path}=1", *OPTIONS)
    assert deployed.returncode == 0, deployed.stderr
    assert cornserve.run("scale", path, "--executor", f"{executor}=2").returncode == 0

    async with AsyncOpenAI(base_url=f"{cornserve.url}/v1", api_key="none", max_retries=0, timeout=120) as client:

        async def text(number: int, begun: asyncio.Event, salt: str) -> str:
            stream = await client.completions.create(
                model=path,
                prompt=f"{number}. {NUMBERS}",
                max_tokens=200,
                temperature=0,
                stream=True,
                extra_body={"ignore_eos": True, "cache_salt": salt},
            )
            parts = []
            async for chunk in stream:
                begun.set()
                parts.append(chunk.choices[0].text)
            return "".join(parts)

        expected = await asyncio.gather(*(text(number, asyncio.Event(), "whole") for number in range(STREAMS)))
        begun = [asyncio.Event() for _ in range(STREAMS)]
        streams = asyncio.gather(*(text(number, begun[number], "moved") for number in range(STREAMS)))
        await asyncio.gather(*(event.wait() for event in begun))
        scaled = await asyncio.to_thread(cornserve.run, "scale", path, "--executor", f"{executor}=1")
        assert scaled.returncode == 0, scaled.stderr
        assert re.search(r"^[1-9]\d* running streams moved to other replicas$", scaled.stderr, re.MULTILINE)
        assert not streams.done()

        assert await streams == expected

    metrics = httpx.get(f"{cornserve.url}/metrics").text
    handed_over = r'^cornserve_gateway_invocations_total\{{.*code="HANDED_OVER".*replica="{}.*\}} [1-9]'
    assert re.search(handed_over.format(executor), metrics, re.MULTILINE)
    if path == "chat":  # No other copies.
        assert sum_metric(cornserve, path, "cornserve_llm_kv_copied_bytes_total") > 0

    held = 'cornserve_transport_slab_bytes{state="held"}'
    await until(lambda: sum_metric(cornserve, path, held) == 0)
