"""Prefill and decode executors of a multimodal model are killed at each moment of 200 running requests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import httpx2 as httpx
import psutil
import pytest

from cornserve.client import Client
from cornserve.control.launcher.local.state_dir import ReplicaDir
from tests.chaos.judge import Kill, Victim, violations
from tests.chaos.load import ChaosRequest, Outcome, send
from tests.chaos.report import FaultRecorder, FaultResult
from tests.executor_metrics import sum_of
from tests.executor_processes import executor_processes, kill, stopped
from tests.integration.cli.cli_instance import SMALL_KV_CACHE
from tests.integration.serving.conftest import CommandLine
from tests.integration.serving.image_chats import noise_part, sum_metric, text_part
from tests.integration.serving.test_prefill_decode import executors
from tests.waiting import until

pytestmark = [pytest.mark.slow, pytest.mark.chaos, pytest.mark.timeout(600)]

REQUESTS = 200

TOKENS = 24

CONTENTS = [[text_part("corn " * 20 * number)] for number in range(1, 6)] + [
    [noise_part(number, 112, 84), text_part("What is this?")] for number in range(5)
]

HELD = 'cornserve_transport_slab_bytes{state="held"}'
GENERATED = "cornserve_llm_generation_tokens_total"


def _body(number: int) -> dict[str, Any]:
    """Returns a request that does not find its prompt in the prefix cache."""
    return {
        "messages": [{"role": "user", "content": CONTENTS[number % len(CONTENTS)]}],
        "max_tokens": TOKENS,
        "temperature": 0,
        "ignore_eos": True,
        "cache_salt": f"{number}",
    }


@pytest.fixture(scope="module")
def expected(cornserve: CommandLine, tiny_qwen25vl: Path) -> list[str]:
    """The texts of the whole model."""
    deployed = cornserve.run("deploy", str(tiny_qwen25vl), "--name", "whole-vl", *SMALL_KV_CACHE)
    assert deployed.returncode == 0, deployed.stderr
    url = f"{cornserve.url}/v1/apps/whole-vl/invoke"
    texts = [httpx.post(url, json=_body(number), timeout=120).json()["text"] for number in range(len(CONTENTS))]
    cornserve.run("delete", "whole-vl")
    return texts


@pytest.fixture(scope="module")
def pairs(cornserve: CommandLine, tiny_qwen25vl: Path) -> Iterator[str]:
    """An app with two prefill and two decode executors."""
    app = "pairs"
    path = ("--share", "e-p-d=1")
    deployed = cornserve.run("deploy", str(tiny_qwen25vl), "--name", app, *path, *SMALL_KV_CACHE)
    assert deployed.returncode == 0, deployed.stderr
    scaled = cornserve.run("scale", app, "--executor", "prefill=2", "--executor", "decode=2")
    assert scaled.returncode == 0, scaled.stderr
    yield app
    cornserve.run("delete", app)


def _processes(cornserve: CommandLine, app: str, kind: str) -> list[list[psutil.Process]]:
    """Returns the processes of each executor of a kind."""
    return [
        executor_processes(ReplicaDir(cornserve.home.replicas / id).addresses)
        for id in executors(cornserve, app)
        if id.startswith(f"{kind}-")
    ]


def _sum(cornserve: CommandLine, kind: str, metric: str) -> float:
    """Returns the sum of a metric over the executors of a kind."""
    return sum(
        sum_of(metric, f"http://{target['targets'][0]}/metrics")
        for target in httpx.get(f"{cornserve.url}/admin/v1/metrics/targets").json()
        if target["labels"].get("group", "").startswith(f"{kind}-")
    )


def _running(cornserve: CommandLine, app: str) -> float:
    return sum_of(f'cornserve_gateway_requests_running{{app="{app}"}}', f"{cornserve.url}/metrics")


@pytest.mark.parametrize(
    ("killed", "hung"),
    [("prefill", "prefill"), ("prefill", "decode"), ("decode", "decode"), ("prefill", ""), ("decode", "")],
    ids=[
        "prefill before it publishes",
        "prefill before decode takes",
        "decode while it waits",
        "prefill while others decode",
        "decode after some tokens",
    ],
)
async def test_no_request_fails_and_no_memory_stays_in_use(
    cornserve: CommandLine,
    pairs: str,
    expected: list[str],
    killed: str,
    hung: str,
    record_fault: FaultRecorder,
) -> None:
    victim, _ = await asyncio.to_thread(_processes, cornserve, pairs, killed)
    paused = await asyncio.to_thread(_processes, cornserve, pairs, hung) if hung else []
    generated = _sum(cornserve, "decode", GENERATED)
    loop = asyncio.get_running_loop()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        with stopped([process for processes in paused for process in processes]):
            tasks = [
                asyncio.create_task(_send(session, cornserve, pairs, number, expected)) for number in range(REQUESTS)
            ]
            match hung:
                case "prefill":
                    await until(lambda: _running(cornserve, pairs) > REQUESTS // 2, interval=0.05)
                case "decode":
                    await until(lambda: _sum(cornserve, "prefill", HELD) > 0, interval=0.05)
                case _:
                    await until(lambda: _sum(cornserve, "decode", GENERATED) - generated > 2 * REQUESTS, interval=0.05)
            kill(victim)
            death = Kill(Victim.EXECUTOR, victim[0].pid, loop.time())
        outcomes = await asyncio.gather(*tasks)

    assert violations(outcomes, [death]) == []
    assert sum(outcome.is_complete for outcome in outcomes) == REQUESTS
    with Client(cornserve.url) as client:
        await until(lambda: client.app(pairs).is_scaled, interval=0.1)
    await until(lambda: sum_metric(cornserve, pairs, HELD) == 0, interval=0.1)
    await until(lambda: sum_metric(cornserve, pairs, "cornserve_llm_kv_cache_usage_perc") == 0, interval=0.1)
    record_fault(FaultResult(f"kill -9 of {killed}, {REQUESTS} requests running", 1, REQUESTS, "all complete", leaks=0))


async def test_a_decode_executor_that_hangs_does_not_stop_images_for_others(
    cornserve: CommandLine, pairs: str, expected: list[str]
) -> None:
    hung, _ = await asyncio.to_thread(_processes, cornserve, pairs, "decode")
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        def send_all(numbers: range) -> list[asyncio.Task[Outcome]]:
            return [asyncio.create_task(_send(session, cornserve, pairs, number, expected)) for number in numbers]

        with stopped(hung):  # The controller kills it after 30 s.
            first = send_all(range(REQUESTS))
            await until(lambda: sum(task.done() for task in first) >= REQUESTS // 4, interval=0.05)
            second = await asyncio.gather(*send_all(range(REQUESTS, REQUESTS + len(CONTENTS))))
            waiting = sum(not task.done() for task in first)
        outcomes = await asyncio.gather(*first)

    assert violations([*outcomes, *second], []) == []
    assert waiting > 0
    with Client(cornserve.url) as client:
        await until(lambda: client.app(pairs).is_scaled, interval=0.1)
    await until(lambda: sum_metric(cornserve, pairs, HELD) == 0, interval=0.1)


async def _send(
    session: aiohttp.ClientSession, cornserve: CommandLine, app: str, number: int, expected: list[str]
) -> Outcome:
    text = expected[number % len(CONTENTS)]
    request = ChaosRequest(app, _body(number), stream=number % 2 == 0, expected=(text,), timeout=120)
    return await send(session, cornserve.url, request, started=asyncio.get_running_loop().time())
