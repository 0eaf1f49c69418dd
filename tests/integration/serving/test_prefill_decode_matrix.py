"""Prefill and decode apart under combinations of load, small caches, adapters and chunks, against the whole model."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from openai import AsyncOpenAI

from cornserve.control.launcher.local.state_dir import ReplicaDir
from tests.executor_processes import executor_processes, stopped
from tests.integration.serving.conftest import CommandLine
from tests.integration.serving.test_prefill_decode import executors
from tests.models.lora_adapters import make_adapter
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CONTEXT = 512
"""The context length in tokens."""

TOKENS = 24
"""The tokens of each response."""

WORDS = ["corn", "wheat", "rice", "bread", "field", "sun", "rain", "soil", "seed", "plant", "farm", "food", "water"]
"""Words of one token. Arbitrary tokens would give responses that rounding errors change."""

FIELDS: list[dict[str, Any]] = [
    {},  # The prefill executor sends the first token of this one, and the decode executor that of the others.
    {"logprobs": 1},
    {"n": 2, "seed": 3, "temperature": 1},
]


def deploy(cornserve: CommandLine, model: Path, name: str, *arguments: str, cache_mib: int = 64) -> None:
    options = ("--option", f"max_model_len={CONTEXT}", "--option", f"kv_cache_memory_bytes={cache_mib << 20}")
    deployed = cornserve.run("deploy", str(model), "--name", name, *options, *arguments)
    assert deployed.returncode == 0, deployed.stderr


def prompts(seed: int) -> list[str]:
    """Returns prompts of at least one token, up to about the context length. Some begin equally."""
    random = Random(seed)
    start = random.choices(WORDS, k=CONTEXT)
    fresh = [random.choices(WORDS, k=length) for length in (1, 17, CONTEXT - TOKENS - 8)]
    return [" ".join(words) for words in (*fresh, *(start[:length] for length in (100, 300)))]


async def complete(
    client: AsyncOpenAI, app: str, prompt: str, fields: Mapping[str, Any], *, stream: bool = False
) -> list[str]:
    """Returns the texts of all choices."""
    options: dict[str, Any] = {"max_tokens": TOKENS, "temperature": 0, "extra_body": {"ignore_eos": True}, **fields}
    if not stream:
        response = await client.completions.create(model=app, prompt=prompt, **options)
        return [choice.text for choice in response.choices]
    texts = [""] * options.get("n", 1)
    async for chunk in await client.completions.create(model=app, prompt=prompt, stream=True, **options):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    return texts


async def compare(
    cornserve: CommandLine, whole: str, apart: str, prompts: list[str], *, cancels: bool = False, at_once: int = 64
) -> None:
    """Sends all prompts with all fields to both apps, half of them streamed."""
    free = asyncio.Semaphore(at_once)

    async def limited(*arguments: Any, stream: bool = False) -> list[str]:
        async with free:
            return await complete(*arguments, stream=stream)

    async def cancelled(number: int, prompt: str) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(0.03 * number):
                await complete(client, apart, " ".join(reversed(prompt.split())), {})

    async with AsyncOpenAI(base_url=f"{cornserve.url}/v1", api_key="none", max_retries=0, timeout=240) as client:
        cases = [(prompt, fields) for prompt in prompts for fields in FIELDS]
        running = asyncio.gather(*(cancelled(number, prompt) for number, (prompt, _) in enumerate(cases) if cancels))
        found = await asyncio.gather(
            *(limited(client, apart, *case, stream=number % 2 == 0) for number, case in enumerate(cases))
        )
        await running
        expected = await asyncio.gather(*(limited(client, whole, *case) for case in cases))

    different = [
        (len(prompt), fields)
        for (prompt, fields), *texts in zip(cases, found, expected, strict=True)
        if texts[0] != texts[1]
    ]
    assert different == []


@pytest.fixture(scope="module")
def whole(cornserve: CommandLine, smollm2: Path) -> str:
    deploy(cornserve, smollm2, "whole")
    return "whole"


@pytest.mark.parametrize(
    ("name", "cache_mib", "arguments"),
    [
        ("small-caches", 32, []),  # Requests are preempted in most runs.
        ("chunks", 64, ["--option", "max_num_batched_tokens=64", "--option", "max_num_seqs=64"]),
        ("late", 64, ["--late-binding", "--option", "max_num_seqs=4"]),
    ],
)
async def test_tokens_are_those_of_the_whole_model(
    cornserve: CommandLine, smollm2: Path, whole: str, name: str, cache_mib: int, arguments: list[str]
) -> None:
    deploy(cornserve, smollm2, name, "--share", "p-d=1", *arguments, cache_mib=cache_mib)

    await compare(cornserve, whole, name, prompts(1), cancels=True)


async def test_tokens_of_an_adapter_are_those_of_the_whole_model(
    cornserve: CommandLine, tiny_llama: Path, tmp_path: Path
) -> None:
    adapter = make_adapter(tiny_llama, tmp_path / "sql", ["q_proj", "v_proj"], seed=1, scale=2.0)
    lora = ("--option", f"lora_modules={json.dumps({'sql': str(adapter)})}", "--lora", "sql")
    deploy(cornserve, tiny_llama, "adapted", *lora)
    deploy(cornserve, tiny_llama, "adapted-apart", "--share", "p-d=1", *lora)

    short = [prompt[: CONTEXT // 2] for prompt in prompts(1)]  # This tokenizer has few tokens of several letters.
    # The weights are random: with others in its batch, rounding errors change a response.
    await compare(cornserve, "adapted", "adapted-apart", short, at_once=1)


HUNG_PROMPTS = 6
"""The prompts of a decode executor that hangs. Their KV caches need more than the common half of the shared memory."""


async def test_a_decode_executor_that_hangs_does_not_slow_prefills_for_others(
    cornserve: CommandLine, smollm2: Path, whole: str
) -> None:
    deploy(cornserve, smollm2, "pair", "--share", "p-d=1")
    scaled = cornserve.run("scale", "pair", "--executor", "decode=2")
    assert scaled.returncode == 0, scaled.stderr
    hung, _ = (id for id in executors(cornserve, "pair") if id.startswith("decode"))
    processes = executor_processes(ReplicaDir(cornserve.home.replicas / hung).addresses)
    prompts = [_long_prompt(seed) for seed in range(2 * HUNG_PROMPTS)]  # Half of them for each decode executor.

    async with AsyncOpenAI(base_url=f"{cornserve.url}/v1", api_key="none", max_retries=0, timeout=240) as client:
        before = await _shortest_seconds(client, "pair", range(100, 103))
        with stopped(processes):  # The controller kills it after 30 s.
            tasks = [asyncio.create_task(complete(client, "pair", prompt, {})) for prompt in prompts]
            await until(lambda: sum(task.done() for task in tasks) >= HUNG_PROMPTS, seconds=240)
            during = await _shortest_seconds(client, "pair", range(200, 203))
            assert not all(task.done() for task in tasks)
        found = await asyncio.gather(*tasks)
        expected = await asyncio.gather(*(complete(client, whole, prompt, {}) for prompt in prompts))

    assert found == expected
    print(f"shortest time of a prefill: {before:.2f} s, next to a decode executor that hangs {during:.2f} s")
    assert during < 2 * before


def _long_prompt(seed: int) -> str:
    return " ".join(Random(seed).choices(WORDS, k=200))


async def _shortest_seconds(client: AsyncOpenAI, app: str, seeds: range) -> float:
    """Returns the shortest time of requests for one token, which have different long prompts."""
    seconds = []
    for seed in seeds:
        started = time.perf_counter()
        await client.completions.create(model=app, prompt=_long_prompt(seed), max_tokens=1, temperature=0)
        seconds.append(time.perf_counter() - started)
    return min(seconds)
