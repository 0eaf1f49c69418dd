"""`kill -9`, hangs and leaving clients under load, where executors hand tensors to each other (DESIGN §7)."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import aiohttp
import httpx2 as httpx
import psutil
import pytest

from cornserve.control.launcher.local.state_dir import StateDir
from tests.chaos.apps import POST, letters
from tests.chaos.judge import Victim, verdicts
from tests.chaos.killer import MODULES, Killer
from tests.chaos.load import Load
from tests.integration.cli.cli_instance import CliInstance
from tests.waiting import until

KILLS = 25
REPLICAS = 3
CLIENTS = 32
WEIGHTS = {Victim.EXECUTOR: 80, Victim.GATEWAY: 10, Victim.CONTROLLER: 10}
SLAB_MIB = 16
HELD = 'cornserve_transport_slab_bytes{state="held"}'

NBYTES = 2 * 1024 * 1024
"""Of a note: a few requests fill the slabs of all writers."""


@pytest.fixture
def machine(machine: CliInstance, tmp_path: Path) -> Iterator[CliInstance]:
    machine.do("down")
    machine.up("--limit", f"slab-mib={SLAB_MIB}", cpu_slots=16)
    file = tmp_path / "post.py"
    file.write_text(POST)
    machine.do("deploy", str(file), "--replicas", str(REPLICAS))
    yield machine
    machine.do("down")
    assert not StateDir(machine.home.replicas).segments.exists()


@pytest.mark.timeout(300)
async def test_kills_cost_no_request_and_leave_nothing_behind(machine: CliInstance) -> None:
    killer = Killer(machine, seed=5)
    load = Load(machine.url, letters(seconds=0.1, nbytes=NBYTES), clients=CLIENTS)

    async with load.running():
        await killer.kill(KILLS, WEIGHTS, mean_seconds=0.4)
    await until(lambda: _is_zero(machine, HELD), seconds=60)

    assert verdicts(load.outcomes, killer.kills) == []
    assert len(load.outcomes) > CLIENTS


@pytest.mark.timeout(300)
async def test_two_hundred_clients_that_leave_give_everything_back(machine: CliInstance) -> None:
    chance = random.Random(3)
    request = letters(seconds=0.2, nbytes=NBYTES // 8)

    async def leave(session: aiohttp.ClientSession, number: int) -> None:
        asking = asyncio.create_task(_ask(session, machine.url, request(number).body))
        await asyncio.wait([asking], timeout=chance.uniform(0, 2))
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(*(leave(session, number) for number in range(200)))

    await until(lambda: _is_zero(machine, HELD), seconds=60)
    await until(lambda: _is_zero(machine, "cornserve_executor_running"), seconds=60)


@pytest.mark.timeout(300)
async def test_a_consumer_that_hangs_keeps_nobody_elses_place(machine: CliInstance) -> None:
    """Its requests end by their deadline; the rest goes on, over the other replicas."""
    readers = [it for it in machine.processes(MODULES[Victim.EXECUTOR]) if "echo-reader" in " ".join(it.cmdline())]
    hung = psutil.Process(readers[0].pid)
    load = Load(machine.url, letters(seconds=0.05, nbytes=NBYTES), clients=8)

    async with load.running():
        await until(lambda: len(load.outcomes) > 8, seconds=60)
        hung.suspend()
        answered = len([outcome for outcome in load.outcomes if outcome.is_complete])
        await until(lambda: len([it for it in load.outcomes if it.is_complete]) > answered + 4, seconds=60)
        with suppress(ProcessLookupError, psutil.NoSuchProcess):  # The launcher has not waited for it for ever.
            hung.resume()

    await until(lambda: _is_zero(machine, HELD), seconds=60)
    assert [outcome for outcome in load.outcomes if outcome.hung] == []


@pytest.mark.timeout(300)
async def test_nothing_is_left_after_everything_was_killed(machine: CliInstance) -> None:
    load = Load(machine.url, letters(seconds=0.1, nbytes=NBYTES), clients=8)
    async with load.running():
        await until(lambda: _segments(machine) != [], seconds=60)
        machine.kill_everything()
        load.outcomes.clear()
    assert _segments(machine) != []

    machine.up()


async def _ask(session: aiohttp.ClientSession, url: str, body: dict[str, object]) -> None:
    async with session.post(f"{url}/v1/apps/post/invoke", json=body) as response:
        await response.read()


async def _is_zero(machine: CliInstance, metric: str) -> bool:
    """Of all executors; not known while the gateway is away."""
    try:
        return await asyncio.to_thread(_total, machine, metric) == 0
    except httpx.TransportError:
        return False


def _total(machine: CliInstance, metric: str) -> float:
    total = 0.0
    for target in httpx.get(f"{machine.url}/admin/v1/metrics/targets").json():
        if target["labels"]["component"] == "executor":
            text = httpx.get(f"http://{target['targets'][0]}/metrics").text
            total += sum(map(float, re.findall(rf"^{re.escape(metric)} (\S+)$", text, re.MULTILINE)))
    return total


def _segments(machine: CliInstance) -> list[Path]:
    """What the executors of this home have in shared memory."""
    return [*StateDir(machine.home.replicas).segments.glob("*")]
