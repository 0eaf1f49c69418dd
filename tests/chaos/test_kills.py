"""`kill -9` and SIGSTOP of random processes under load: outcomes of requests, and leaked resources."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.apps import echo, requests, twice
from tests.chaos.conftest import running_instance
from tests.chaos.form import by_form, seed
from tests.chaos.judge import Victim, violations
from tests.chaos.killer import Killer
from tests.chaos.load import ChaosRequest, LoadClients
from tests.chaos.report import FaultRecorder
from tests.chaos.summary import killed
from tests.integration.cli.cli_instance import CliInstance

FAULTS = by_form(short=12, full=106)
MEAN_SECONDS = by_form(short=0.7, full=1.8)
REQUEST_SECONDS = 0.25
REPLICAS = by_form(short=3, full=6)
CLIENTS = by_form(short=16, full=32)
WEIGHTS = {
    Victim.EXECUTOR: 45,
    Victim.ENGINE: 15,
    Victim.GATEWAY: 10,
    Victim.CONTROLLER: 10,
    Victim.APP_HOST: 15,
    Victim.FORK_SERVER: 5,
}
STOP_SHARE = 0.15

MODEL_VICTIMS = by_form(
    short=(Victim.ENGINE, Victim.GATEWAY),
    full=(Victim.EXECUTOR, Victim.ENGINE, Victim.GATEWAY, Victim.CONTROLLER, Victim.EXECUTOR),
)
"""The order of the kills under a real model, whose restarts dominate the duration of the test."""


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[CliInstance]:
    with running_instance(tmp_path / "home") as machine:
        yield machine


@pytest.mark.timeout(420)
async def test_faults_under_load_violate_no_guarantee_and_leak_nothing(
    machine: CliInstance, record_fault: FaultRecorder
) -> None:
    for source in (echo(engine=True), twice(engine=True)):
        machine.deploy(source, replicas=REPLICAS)
    killer = Killer(machine, seed(), stop_share=STOP_SHARE)
    load = LoadClients(machine.url, requests("", seconds=REQUEST_SECONDS), clients=CLIENTS)

    async with load.running():
        await killer.run(FAULTS, WEIGHTS, mean_seconds=MEAN_SECONDS)
    machine.do("down")

    assert violations(load.outcomes, killer.kills) == []
    leaks = [*killer.leaked_resources(), *machine.processes()]
    assert leaks == []
    record_fault(killed(load, killer, "kill -9 and SIGSTOP under load", leaks=len(leaks)))


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_kills_of_a_language_model_violate_no_guarantee_and_leak_nothing(
    machine: CliInstance, tiny_llama: Path, record_fault: FaultRecorder
) -> None:
    await asyncio.to_thread(machine.deploy, LLM.format(model=str(tiny_llama)))
    killer = Killer(machine, seed())
    load = LoadClients(machine.url, chat, clients=CLIENTS)

    async with load.running():
        for victim in MODEL_VICTIMS:
            await killer.run(killer.faults + 1, {victim: 1}, mean_seconds=2.0)
            await _wait_for_response(load)
    machine.do("down")

    assert violations(load.outcomes, killer.kills) == []
    for outcome in load.outcomes:
        if outcome.result is not None:
            assert outcome.result["usage"]["completion_tokens"] == TOKENS
        if outcome.is_complete and outcome.request.stream:
            assert sum(len(item["token_ids"]) for item in outcome.items) == TOKENS
    leaks = [*killer.leaked_resources(), *machine.processes()]
    assert leaks == []
    record_fault(killed(load, killer, "kill -9 under a language model", leaks=len(leaks)))


TOKENS = 60

LLM = """
from cornserve import App
from cornserve_tasklib import EngineOptions, LLMTask

options = EngineOptions(max_model_len=4096, kv_cache_memory_bytes=64 << 20)
app = App(name="llm", paths=[LLMTask(model_id={model!r}, options=options)])
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
