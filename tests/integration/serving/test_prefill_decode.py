"""Compares a language model whose prefill and decode run in different executors with the whole model."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError, OpenAI

from cornserve.control.launcher.local.state_dir import ReplicaDir
from tests.executor_processes import executor_processes, stopped
from tests.integration.serving.conftest import CommandLine
from tests.integration.serving.image_chats import sum_metric
from tests.waiting import until

pytestmark = [pytest.mark.timeout(300)]

LONG = "Count on: " + ", ".join(str(number) for number in range(150))
"""A prompt of several blocks of the KV cache."""

OPTIONS = ("max_model_len=1024", f"kv_cache_memory_bytes={64 << 20}")

ALONE = """
from cornserve import App, Task
from cornserve_tasklib import ChatResponse, DecodeTask, EngineOptions, LLMRequest, PrefilledRequest, PrefillSource


class Alone(Task[LLMRequest, ChatResponse]):
    decode: DecodeTask

    def post_init(self) -> None:
        self.source = PrefillSource()

    def invoke(self, request: LLMRequest) -> ChatResponse:
        return self.decode.invoke(PrefilledRequest(request=request, kv=self.source.invoke(request).kv))


"""

UNEQUAL = """
from cornserve import App, Task
from cornserve_tasklib import ChatResponse, DecodeTask, EngineOptions, LLMRequest, PrefilledRequest, PrefillTask


class Unequal(Task[LLMRequest, ChatResponse]):
    prefill: PrefillTask
    decode: DecodeTask

    def invoke(self, request: LLMRequest) -> ChatResponse:
        return self.decode.invoke(PrefilledRequest(request=request, kv=self.prefill.invoke(request).kv))


"""


def deploy(cornserve: CommandLine, smollm2: Path, app: str, path: str, *arguments: str) -> str:
    options = [argument for option in OPTIONS for argument in ("--option", option)]
    deployed = cornserve.run("deploy", str(smollm2), "--name", app, "--share", f"{path}=1", *options, *arguments)
    assert deployed.returncode == 0, deployed.stderr
    return app


@pytest.fixture(scope="module")
def apart(cornserve: CommandLine, smollm2: Path, model: str) -> str:
    return deploy(cornserve, smollm2, "apart", "p-d")


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": "Hello"},
        {"prompt": LONG},
        {"prompt": LONG, "max_tokens": 1},
        {"prompt": "1, 2, 3, 4", "stop": [" 7"]},
        {"prompt": "Hello", "logprobs": 2},
        pytest.param({"prompt": "Hello", "seed": 7}, marks=pytest.mark.slow),
        pytest.param({"prompt": "Hello", "n": 2, "temperature": 1, "seed": 7}, marks=pytest.mark.slow),
        pytest.param({"prompt": "Hello", "temperature": 1, "seed": 7, "frequency_penalty": 1}, marks=pytest.mark.slow),
        pytest.param({"prompt": "Hello", "extra_body": {"prompt_logprobs": 1}}, marks=pytest.mark.slow),
        pytest.param(
            {"prompt": "Hello", "extra_body": {"structured_outputs": {"choice": ["red", "green"]}}},
            marks=pytest.mark.slow,
        ),
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


def executors(cornserve: CommandLine, app: str) -> list[str]:
    groups = cornserve.json("status", app)["status"]["groups"]
    return sorted(replica["id"] for group in groups for replica in group["replicas"])


def test_decode_executors_also_serve_the_whole_requests_of_another_app(
    client: OpenAI, cornserve: CommandLine, model: str, apart: str, smollm2: Path
) -> None:
    app = deploy(cornserve, smollm2, "whole-on-decode", "pd")

    fields: dict[str, Any] = {"prompt": f"Whole. {LONG}", "max_tokens": 8, "temperature": 0}
    found, whole = (client.completions.create(model=each, **fields) for each in (app, model))

    assert found.choices == whole.choices
    (decode,) = executors(cornserve, app)
    assert decode in executors(cornserve, apart)


@pytest.mark.slow
def test_late_binding_gives_the_same_tokens_and_restarts_nothing(
    client: OpenAI, cornserve: CommandLine, model: str, apart: str, smollm2: Path
) -> None:
    before = executors(cornserve, apart)
    deploy(cornserve, smollm2, apart, "p-d", "--late-binding")
    fields: dict[str, Any] = {"prompt": f"Late. {LONG}", "max_tokens": 8, "temperature": 0}
    split, whole = (client.completions.create(model=app, **fields) for app in (apart, model))
    after = executors(cornserve, apart)
    deploy(cornserve, smollm2, apart, "p-d")  # Other tests have the default.

    assert split.choices == whole.choices
    assert after == before


@pytest.mark.parametrize(
    ("fields", "first_in_decode"),
    [({}, 0), ({"temperature": 1}, 0), ({"seed": 7}, 0), ({"temperature": 1, "seed": 7}, 1)],
)
def test_the_prefill_executor_samples_the_first_token_of_responses_that_can_be_continued(
    client: OpenAI, cornserve: CommandLine, apart: str, fields: dict[str, Any], first_in_decode: int
) -> None:
    metric = "cornserve_llm_generation_tokens_total"
    before = sum_metric(cornserve, apart, metric)

    options = {"max_tokens": 8, "temperature": 0, "extra_body": {"ignore_eos": True}, **fields}
    response = client.completions.create(model=apart, prompt=f"{fields} one, two, three,", **options)

    assert response.usage is not None
    assert response.usage.completion_tokens == 8
    assert sum_metric(cornserve, apart, metric) - before == 8 + first_in_decode  # The prefill executor generates one.


@pytest.mark.slow
async def test_the_first_token_is_sent_before_the_kv_cache_is_loaded(cornserve: CommandLine, apart: str) -> None:
    (decode,) = (id for id in executors(cornserve, apart) if id.startswith("decode"))
    _, *engine = executor_processes(ReplicaDir(cornserve.home.replicas / decode).addresses)

    async with AsyncOpenAI(base_url=f"{cornserve.url}/v1", api_key="none", max_retries=0, timeout=120) as client:
        with stopped(engine):
            stream = await client.completions.create(
                model=apart, prompt=f"First. {LONG}", max_tokens=8, temperature=0, stream=True
            )
            first = await anext(stream)
        rest = [chunk async for chunk in stream]

    assert first.choices[0].text
    assert rest


@pytest.mark.slow
def test_a_prompt_of_a_source_has_keys_and_values_of_zero_for_its_request_alone(
    client: OpenAI, cornserve: CommandLine, model: str, apart: str, smollm2: Path, tmp_path: Path
) -> None:
    decode = f"DecodeTask(model_id={str(smollm2)!r}, options=EngineOptions({', '.join(OPTIONS)}))"
    (tmp_path / "alone.py").write_text(f"{ALONE}app = App('alone', [Alone(decode={decode})])\n")
    deployed = cornserve.run("deploy", str(tmp_path / "alone.py"))
    assert deployed.returncode == 0, deployed.stderr

    fields: dict[str, Any] = {"prompt": f"Again. {LONG}", "max_tokens": 8, "temperature": 0}
    zero, split, whole = (client.completions.create(model=app, **fields) for app in ("alone", apart, model))

    assert zero.choices[0].text
    assert split.choices == whole.choices != zero.choices


@pytest.mark.slow
def test_a_kv_cache_of_another_format_is_refused(
    client: OpenAI, cornserve: CommandLine, tiny_llama: Path, tmp_path: Path
) -> None:
    prefill, decode = (
        f"{task}(model_id={str(tiny_llama)!r}, options=EngineOptions({', '.join(OPTIONS)}, dtype={dtype!r}))"
        for task, dtype in (("PrefillTask", "float32"), ("DecodeTask", "bfloat16"))
    )
    code = f"{UNEQUAL}app = App('unequal', [Unequal(prefill={prefill}, decode={decode})])\n"
    (tmp_path / "unequal.py").write_text(code)
    deployed = cornserve.run("deploy", str(tmp_path / "unequal.py"))
    assert deployed.returncode == 0, deployed.stderr

    with pytest.raises(BadRequestError, match=r"KV caches of different formats \(dtype bfloat16 and float32\)"):
        client.completions.create(model="unequal", prompt="Hello", max_tokens=2)


@pytest.mark.slow
def test_the_copies_of_kv_caches_are_counted(client: OpenAI, cornserve: CommandLine, apart: str) -> None:
    def copied() -> dict[str, dict[str, float]]:
        return {replica["id"].split("-")[0]: replica for replica in cornserve.json("status", apart)["memory"]}

    client.completions.create(model=apart, prompt=f"Count. {LONG}", max_tokens=2)
    before = copied()
    client.completions.create(model=apart, prompt=f"Count again. {LONG}", max_tokens=2)
    after = copied()

    for kind in ("prefill", "decode"):
        assert after[kind]["kv_copies"] == before[kind]["kv_copies"] + 1
        assert after[kind]["kv_copied_bytes"] > before[kind]["kv_copied_bytes"]
        assert after[kind]["kv_copy_seconds"] > before[kind]["kv_copy_seconds"]


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


def _kill(cornserve: CommandLine, app: str, kind: str) -> None:
    """Kills the executor of a kind, with its engine."""
    (replica,) = (id for id in executors(cornserve, app) if id.startswith(kind))
    record = ReplicaDir(cornserve.home.replicas / replica).read_process()
    assert record is not None
    os.killpg(record.process_group.pid, signal.SIGKILL)


KILLED: list[dict[str, Any]] = [
    {},
    {"temperature": 1, "seed": 7, "n": 3},
    {"seed": 7, "frequency_penalty": 1, "logprobs": 2},
    {"extra_body": {"structured_outputs": {"regex": "[a-z ]{80,100}"}}},
]
"""Fields of the requests whose executor is killed."""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["prefill", "decode"])
async def test_streams_continue_when_an_executor_is_killed(cornserve: CommandLine, apart: str, kind: str) -> None:
    async with AsyncOpenAI(base_url=f"{cornserve.url}/v1", api_key="none", max_retries=0, timeout=120) as client:

        async def texts(number: int, begun: asyncio.Event) -> dict[int, str]:
            fields: dict[str, Any] = {"temperature": 0, **KILLED[number]}
            stream = await client.completions.create(
                model=apart, prompt=f"{number} {LONG}", max_tokens=24, stream=True, **fields
            )
            found: dict[int, str] = {}
            async for chunk in stream:
                begun.set()
                for choice in chunk.choices:
                    found[choice.index] = found.get(choice.index, "") + choice.text
            return found

        numbers = range(len(KILLED))
        expected = await asyncio.gather(*(texts(number, asyncio.Event()) for number in numbers))
        begun = asyncio.Event()
        streams = asyncio.gather(*(texts(number, begun) for number in numbers))
        await begun.wait()
        await asyncio.to_thread(_kill, cornserve, apart, kind)

        assert await streams == expected

    await until(lambda: _is_free(cornserve, apart))
