"""Streams move to another replica when theirs leaves."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import httpx2 as httpx
import pytest
from openai import AsyncOpenAI

from cornserve.client import Client
from cornserve.home import Home
from tests.integration.serving.conftest import CommandLine
from tests.integration.serving.greedy_streams import NUMBERS, running_streams
from tests.integration.serving.image_chats import sum_metric
from tests.waiting import until, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def _deploy_two(cornserve: CommandLine, model: Path, app: str, path: str, executor: str, *, cache_mib: int) -> None:
    options = ("--option", "max_model_len=1024", "--option", f"kv_cache_memory_bytes={cache_mib << 20}")
    deployed = cornserve.run("deploy", str(model), "--name", app, "--share", f"{path}=1", *options)
    assert deployed.returncode == 0, deployed.stderr
    assert cornserve.run("scale", app, "--executor", f"{executor}=2").returncode == 0


async def _texts(cornserve: CommandLine, app: str, prompts: Sequence[str], max_tokens: int) -> list[str]:
    """Returns the responses without a disturbance."""
    async with running_streams(cornserve.url, app, prompts, max_tokens, "undisturbed") as streams:
        pass
    return [stream.text for stream in streams]


@pytest.mark.parametrize("path", ["chat", "p-d"])
async def test_streams_continue_on_the_other_replica_when_an_app_is_scaled_in(
    cornserve: CommandLine, smollm2: Path, path: str
) -> None:
    executor = "llm" if path == "chat" else "decode"
    _deploy_two(cornserve, smollm2, path, path, executor, cache_mib=128)
    prompts = [f"{number}. {NUMBERS}" for number in range(8)]
    expected = await _texts(cornserve, path, prompts, 200)

    async with running_streams(cornserve.url, path, prompts, 200, "moved") as streams:
        scaled = await asyncio.to_thread(cornserve.run, "scale", path, "--executor", f"{executor}=1")
        assert scaled.returncode == 0, scaled.stderr
        assert re.search(r"^[1-9]\d* running responses moved to other replicas$", scaled.stderr, re.MULTILINE)

    assert [stream.text for stream in streams] == expected
    metrics = httpx.get(f"{cornserve.url}/metrics").text
    handed_over = r'^cornserve_gateway_invocations_total\{{.*code="HANDED_OVER".*replica="{}.*\}} [1-9]'
    assert re.search(handed_over.format(executor), metrics, re.MULTILINE)
    if path == "chat":  # No other copies.
        assert sum_metric(cornserve, path, "cornserve_llm_kv_copied_bytes_total") > 0

    held = 'cornserve_transport_slab_bytes{state="held"}'
    await until(lambda: sum_metric(cornserve, path, held) == 0)


async def test_streams_continue_on_the_new_replica_after_a_restart(cornserve: CommandLine, smollm2: Path) -> None:
    app, tokens = "restarted", 4000  # The streams last longer than the start of an engine.
    options = ("--option", f"max_model_len={tokens + 200}", "--option", f"kv_cache_memory_bytes={512 << 20}")
    deployed = cornserve.run("deploy", str(smollm2), "--name", app, *options)
    assert deployed.returncode == 0, deployed.stderr
    prompts = [f"{number}. {NUMBERS}" for number in range(2)]

    async with running_streams(cornserve.url, app, prompts, tokens, "moved") as streams:
        restarted = await asyncio.to_thread(cornserve.run, "restart", app)
        for stream in streams:
            stream.characters = len(stream.text) + 100
    found = [stream.text for stream in streams]
    async with running_streams(cornserve.url, app, prompts, tokens, "undisturbed", found) as undisturbed:
        pass

    assert re.search(r"^2 running responses moved to the new executors$", restarted.stderr, re.MULTILINE)
    assert [stream.text[: len(text)] for stream, text in zip(undisturbed, found, strict=True)] == found


async def test_responses_without_a_stream_continue_on_the_other_replica(cornserve: CommandLine, smollm2: Path) -> None:
    app, tokens, numbers = "collected", 100, range(4)
    _deploy_two(cornserve, smollm2, app, "p-d", "decode", cache_mib=128)

    async with AsyncOpenAI(base_url=f"{cornserve.url}/v1", api_key="none", max_retries=0, timeout=400) as client:

        async def complete(number: int, salt: str) -> tuple[str, int]:
            extra = {"ignore_eos": True, "cache_salt": salt}
            response = await client.completions.create(
                model=app, prompt=f"{number}. {NUMBERS}", max_tokens=tokens, temperature=0, extra_body=extra
            )
            assert response.usage is not None
            return response.choices[0].text, response.usage.completion_tokens

        expected = await asyncio.gather(*(complete(number, "undisturbed") for number in numbers))
        before = sum_metric(cornserve, app, GENERATED)
        running = [asyncio.create_task(complete(number, "moved")) for number in numbers]
        await until(lambda: sum_metric(cornserve, app, GENERATED) - before > 3 * len(running), interval=0.1)
        scaled = await asyncio.to_thread(cornserve.run, "scale", app, "--executor", "decode=1")
        found = await asyncio.gather(*running)

    assert re.search(r"^[1-9]\d* running responses moved to other replicas$", scaled.stderr, re.MULTILINE)
    assert found == expected
    assert {generated for _, generated in found} == {tokens}


DRAINED = 32
"""The running requests of a replica that leaves."""

REMAINING = 200
"""The tokens of each request that follow."""

BEGUN = 40
"""The most tokens of each request that have been generated."""

COMPARED = 100
"""The tokens of each response that are compared."""

DRAIN_SECONDS, DRAIN_STEPS = 3.0, 20
"""The replica ends within this time, or within these steps of the engine on a busy machine."""

GENERATED = "cornserve_llm_generation_tokens_total"


@pytest.fixture
def with_memory(fork_variables: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[CommandLine]:
    """An instance whose shared memory holds the KV caches of all streams that move."""
    with_memory = CommandLine(Home(tmp_path_factory.mktemp("home")), variables=fork_variables)
    try:
        options = ("--port", "0", "--cpu-slots", "4", "--limit", "slab-mib=1024")
        yield replace(with_memory, url=with_memory.json("up", "--detach", *options)["url"])
    finally:
        with_memory.run("down")


async def test_a_replica_with_many_running_requests_leaves_within_seconds(
    with_memory: CommandLine, smollm2: Path
) -> None:
    cornserve, app = with_memory, "drained"
    _deploy_two(cornserve, smollm2, app, "chat", "llm", cache_mib=1280)
    prompts = [f"{number}. {NUMBERS}" for number in range(2 * DRAINED)]  # Half of them on each replica.
    async with running_streams(cornserve.url, app, prompts, COMPARED, "undisturbed") as undisturbed:
        started = time.monotonic()
    step_seconds = (time.monotonic() - started) / COMPARED
    expected = [stream.text for stream in undisturbed]
    before = sum_metric(cornserve, app, GENERATED)

    with Client(cornserve.url) as client:
        async with running_streams(cornserve.url, app, prompts, REMAINING + BEGUN, "moved", expected) as streams:
            assert sum_metric(cornserve, app, GENERATED) - before <= len(prompts) * BEGUN
            seconds = await asyncio.to_thread(_seconds_to_drain, client, app)
        moved = client.app(app).moved_streams

    print(f"drained {moved} streams in {seconds:.2f} s, with steps of {step_seconds:.2f} s")
    assert moved == DRAINED
    assert [stream.text[: len(text)] for stream, text in zip(streams, expected, strict=True)] == expected
    assert seconds < max(DRAIN_SECONDS, DRAIN_STEPS * step_seconds)


def _seconds_to_drain(client: Client, app: str) -> float:
    """Removes one of two replicas. Returns the seconds until its process has ended."""
    started = time.monotonic()
    client.scale(app, 1)
    wait_until(lambda: sum(len(group.replicas) for group in client.app(app).status.groups) == 1)
    return time.monotonic() - started
