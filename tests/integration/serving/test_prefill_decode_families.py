"""Multimodal models with prefill and decode apart, under each two of ten circumstances, against the whole model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from enum import StrEnum
from itertools import count
from pathlib import Path
from random import Random
from string import ascii_lowercase
from typing import Any

import httpx2 as httpx
import pytest

from tests.integration.serving.conftest import CommandLine
from tests.integration.serving.image_chats import noise_part, sum_metric, text_part
from tests.integration.serving.test_prefill_decode_matrix import CONTEXT, TOKENS, deploy
from tests.models.lora_adapters import make_adapter
from tests.models.tiny_families import tiny_model
from tests.pairwise import pairwise_settings
from tests.waiting import until

pytestmark = [pytest.mark.families, pytest.mark.timeout(900)]

FAMILIES = ("qwen25vl", "qwen3vl", "internvl", "gemma3", "mistral3")
"""Models with rotary positions in three dimensions, features of images in several layers, tiles, sliding windows, and
images of any size."""

BLOCK_TOKENS = 128
"""The tokens of a block of the KV cache on a CPU. Each token is a letter, and takes 1 KiB."""

COPIES = 3
"""The sets of requests that are sent at once."""


class Circumstance(StrEnum):
    CONCURRENCY = "concurrency"
    CANCELLATION = "cancellation"
    SMALL_CACHE = "small cache"
    FIRST_TOKEN_FROM_DECODE = "first token from decode"
    PREFIX_HITS = "prefix hits"
    ADAPTER = "adapter"
    CHUNKS = "chunks"
    LONG_PROMPTS = "long prompts"
    ENCODER_APART = "encoder apart"
    LATE_BINDING = "late binding"


Setting = frozenset[Circumstance]

PREEMPTED = {Circumstance.SMALL_CACHE, Circumstance.CONCURRENCY}
"""The circumstances in which a cache of seven blocks preempts requests."""

SETTINGS: Sequence[Setting] = pairwise_settings([*Circumstance])


class LetterPrompts:
    """Creates requests whose texts differ from all others, unless they begin equally on purpose."""

    def __init__(self, setting: Setting, seed: int) -> None:
        self._setting = setting
        self._random = Random(seed)
        self._numbers = count(1000 * seed)
        self._start = "".join(Random(-1).choices(ascii_lowercase, k=BLOCK_TOKENS + 20))

    def first_request(self) -> dict[str, Any]:
        """Returns a request whose text is the beginning of a later one of each set of requests."""
        return self._body(prompt=self._start)

    def requests(self) -> list[dict[str, Any]]:
        """Returns texts, some of which grow to a second block, and chats with images."""
        is_long = Circumstance.LONG_PROMPTS in self._setting
        growing = 5 if self._setting >= PREEMPTED else 1
        texts = [self._letters(CONTEXT - TOKENS if is_long else 1)]
        texts += [self._letters(BLOCK_TOKENS - 8) for _ in range(growing)]
        if Circumstance.PREFIX_HITS in self._setting:
            texts.append(self._start + self._letters(9))
        chats = [[noise_part(next(self._numbers), 84, 84), text_part(self._letters(200 if is_long else 1))]]
        chats.append([text_part("a"), noise_part(next(self._numbers), 84, 56), noise_part(next(self._numbers), 56, 84)])
        return [self._body(prompt=text) for text in texts] + [
            self._body(messages=[{"role": "user", "content": content}]) for content in chats
        ]

    def _letters(self, number: int) -> str:
        return "".join(self._random.choices(ascii_lowercase, k=number))

    def _body(self, **prompt: Any) -> dict[str, Any]:
        body = {**prompt, "max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
        if Circumstance.FIRST_TOKEN_FROM_DECODE in self._setting:
            body["logprobs"] = 1 if "prompt" in prompt else True
        return body


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def adapter(family: str, tmp_path: Path) -> Path:
    """An adapter of the language model alone."""
    layers = ["layers.0.mlp.gate_proj", "layers.1.mlp.down_proj"]
    return make_adapter(tiny_model(family), tmp_path / "adapter", layers, seed=1, scale=2.0)


@pytest.fixture
def adapter_options(adapter: Path) -> list[str]:
    return ["--option", f"lora_modules={json.dumps({'adapter': str(adapter)})}"]


@pytest.fixture
def whole(cornserve: CommandLine, family: str, adapter_options: list[str]) -> Iterator[dict[bool, str]]:
    """The apps of the whole model in one executor, without and with the adapter."""
    apps = {False: f"{family}-whole", True: f"{family}-adapted"}
    deploy(cornserve, tiny_model(family), apps[False], *adapter_options)
    deploy(cornserve, tiny_model(family), apps[True], *adapter_options, "--lora", "adapter")
    yield apps
    for app in apps.values():
        cornserve.run("delete", app)


async def test_tokens_are_those_of_the_whole_model_in_all_pairs_of_circumstances(
    cornserve: CommandLine, family: str, whole: dict[bool, str], adapter_options: list[str]
) -> None:
    different = []
    for number, (setting, path) in enumerate((each, path) for each in SETTINGS for path in _paths(each)):
        app = f"{family}-{number}"
        await asyncio.to_thread(_deploy_apart, cornserve, family, app, path, setting, adapter_options)
        requests = [request for copy in range(COPIES) for request in LetterPrompts(setting, copy).requests()]
        found = await _tokens(cornserve, app, setting, requests)
        await _check_circumstances(cornserve, app, setting)
        expected = await _tokens(cornserve, whole[Circumstance.ADAPTER in setting], frozenset(), requests)
        different += [
            (path, sorted(setting), index)
            for index, tokens in enumerate(zip(found, expected, strict=True))
            if tokens[0] != tokens[1]
        ]
        assert cornserve.run("delete", app).returncode == 0

    assert different == []


def _paths(setting: Setting) -> Sequence[str]:
    return ("e-p-d", "e-pd") if Circumstance.ENCODER_APART in setting else ("ep-d",)


def _deploy_apart(
    cornserve: CommandLine, family: str, app: str, path: str, setting: Setting, adapter_options: Sequence[str]
) -> None:
    arguments = ["--share", f"{path}=1"]
    if Circumstance.ADAPTER in setting:
        arguments += [*adapter_options, "--lora", "adapter"]
    if Circumstance.CHUNKS in setting:
        arguments += ["--option", "max_num_batched_tokens=64", "--option", "max_num_seqs=64"]
    if Circumstance.LATE_BINDING in setting:
        arguments.append("--late-binding")
    deploy(cornserve, tiny_model(family), app, *arguments, cache_mib=1 if Circumstance.SMALL_CACHE in setting else 64)


async def _tokens(
    cornserve: CommandLine, app: str, setting: Setting, requests: Sequence[dict[str, Any]]
) -> list[list[int]]:
    """Returns the tokens of each response."""
    async with httpx.AsyncClient(base_url=cornserve.url, timeout=120) as client:

        async def respond(body: dict[str, Any]) -> list[int]:
            response = await client.post(f"/v1/apps/{app}/invoke", json=body)
            assert response.status_code == 200, response.text
            tokens: list[int] = response.json()["token_ids"]
            assert len(tokens) == TOKENS
            return tokens

        async def cancel(number: int, body: dict[str, Any]) -> None:
            with suppress(TimeoutError):
                async with asyncio.timeout(0.02 * number):
                    await respond(body)

        if Circumstance.PREFIX_HITS in setting:
            await respond(LetterPrompts(setting, COPIES).first_request())
        cancelled = LetterPrompts(setting, COPIES).requests() if Circumstance.CANCELLATION in setting else []
        running = asyncio.gather(*(cancel(number, body) for number, body in enumerate(cancelled)))
        if Circumstance.CONCURRENCY in setting:
            found = await asyncio.gather(*map(respond, requests))
        else:
            found = [await respond(body) for body in requests]
        await running
        return found


async def _check_circumstances(cornserve: CommandLine, app: str, setting: Setting) -> None:
    """Checks that the circumstances have occurred, and that no memory stays in use."""
    await until(lambda: sum_metric(cornserve, app, 'cornserve_transport_slab_bytes{state="held"}') == 0)
    hits = sum_metric(cornserve, app, "cornserve_llm_prefix_cache_hits_total")
    if Circumstance.PREFIX_HITS in setting and Circumstance.SMALL_CACHE not in setting:
        assert hits >= BLOCK_TOKENS
    if setting >= PREEMPTED:
        assert sum_metric(cornserve, app, "cornserve_llm_num_preemptions_total") > 0
