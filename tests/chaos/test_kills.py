"""`kill -9` of random processes under load: outcomes of requests, and leaked resources."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from tests.chaos.apps import echo, requests, twice
from tests.chaos.judge import Victim, violations
from tests.chaos.killer import Killer
from tests.chaos.load import ChaosRequest, LoadClients
from tests.integration.cli.cli_instance import CliInstance

KILLS = 100
REPLICAS = 6
CLIENTS = 32
WEIGHTS = {Victim.EXECUTOR: 55, Victim.ENGINE: 20, Victim.GATEWAY: 12, Victim.CONTROLLER: 13}


@pytest.mark.timeout(420)
async def test_kills_under_load_violate_no_guarantee_and_leak_nothing(machine: CliInstance, tmp_path: Path) -> None:
    for source in (echo(engine=True), twice(engine=True)):
        file = tmp_path / "app.py"
        file.write_text(source)
        machine.do("deploy", str(file), "--replicas", str(REPLICAS))
    killer = Killer(machine, seed=20)
    load = LoadClients(machine.url, requests("", seconds=1.0), clients=CLIENTS)

    async with load.running():
        await killer.kill(KILLS, WEIGHTS, mean_seconds=1.0)
    machine.do("down")

    assert violations(load.outcomes, killer.kills) == []
    print(_summary(load, killer))
    assert killer.leaked_resources() == []
    assert machine.processes() == []


@pytest.mark.timeout(600)
async def test_kills_of_a_language_model_violate_no_guarantee_and_leak_nothing(
    machine: CliInstance, tiny_llama: Path, tmp_path: Path
) -> None:
    file = tmp_path / "app.py"
    file.write_text(LLM.format(model=str(tiny_llama)))
    await asyncio.to_thread(machine.do, "deploy", str(file))
    killer = Killer(machine, seed=1)
    load = LoadClients(machine.url, chat, clients=CLIENTS)

    async with load.running():
        for victim in (Victim.EXECUTOR, Victim.ENGINE, Victim.GATEWAY, Victim.CONTROLLER, Victim.EXECUTOR):
            await killer.kill(len(killer.kills) + 1, {victim: 1}, mean_seconds=2.0)
            await _wait_for_response(load)
    machine.do("down")

    assert violations(load.outcomes, killer.kills) == []
    print(_summary(load, killer))
    for outcome in load.outcomes:
        if outcome.result is not None:
            assert outcome.result["usage"]["completion_tokens"] == TOKENS
        if outcome.is_complete and outcome.request.stream:
            assert sum(len(item["token_ids"]) for item in outcome.items) == TOKENS
    assert killer.leaked_resources() == []
    assert machine.processes() == []


TOKENS = 60

LLM = """
from cornserve import App
from cornserve_tasklib import LLMTask

app = App(name="llm", paths=[LLMTask(model_id={model!r}, max_model_len=4096, kv_cache_memory_bytes=64 << 20)])
"""


def chat(number: int) -> ChaosRequest:
    body = {
        "messages": [{"role": "user", "content": f"Number {number}"}],
        "max_tokens": TOKENS,
        "temperature": 0,
        "ignore_eos": True,
    }
    return ChaosRequest("llm", body, stream=number % 2 == 0, timeout=240)


async def _wait_for_response(load: LoadClients) -> None:
    """Waits until a request sent from now on completes."""
    now = asyncio.get_running_loop().time()
    async with asyncio.timeout(240):
        while not any(outcome.is_complete and outcome.started > now for outcome in load.outcomes[-100:]):
            await asyncio.sleep(0.1)


def _summary(load: LoadClients, killer: Killer) -> str:
    kills = Counter(str(kill.victim) for kill in killer.kills)
    complete = sum(outcome.is_complete for outcome in load.outcomes)
    slowest = max(outcome.ended - outcome.started for outcome in load.outcomes)
    broken = sum(outcome.broken for outcome in load.outcomes)
    aborted = sum(outcome.error is not None for outcome in load.outcomes)
    return (
        f"{len(load.outcomes)} requests, {complete} complete, {broken} broken with their gateway, {aborted} aborted; "
        f"the slowest took {slowest:.1f} s; killed: {dict(kills)}"
    )
