"""`kill -9`, hangs and disconnects under load, while executors transfer tensors to each other."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import aiohttp
import httpx2 as httpx
import psutil
import pytest

from cornserve.control.launcher.local.state_dir import StateDir
from tests.chaos.apps import DICTATION, POST, dictations, letters
from tests.chaos.conftest import running_instance
from tests.chaos.form import by_form, seed
from tests.chaos.judge import Victim, violations
from tests.chaos.killer import MODULES, Killer
from tests.chaos.load import LoadClients
from tests.chaos.report import FaultRecorder, FaultResult
from tests.chaos.summary import killed
from tests.executor_metrics import executor_total
from tests.integration.cli.cli_instance import CliInstance
from tests.waiting import until

KILLS = by_form(short=8, full=100)
STREAM_KILLS = by_form(short=5, full=50)
DISCONNECTS = by_form(short=50, full=500)
REPLICAS = by_form(short=2, full=3)
CLIENTS = by_form(short=16, full=32)
WEIGHTS = {Victim.EXECUTOR: 80, Victim.GATEWAY: 10, Victim.CONTROLLER: 10}
TIGHT_SLAB_MIB = 16
HELD = 'cornserve_transport_slab_bytes{state="held"}'

NBYTES = 2 * 1024 * 1024
"""The size of a note. A few requests fill the slabs of all writers."""


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CliInstance]:
    """An instance with several writers and readers of notes, in which no segment is left at the end."""
    home = tmp_path_factory.mktemp("machine") / "home"
    with running_instance(home, cpu_slots=16, slab_mib=TIGHT_SLAB_MIB) as machine:
        machine.deploy(POST, replicas=REPLICAS)
        yield machine
        machine.do("down")
        assert not StateDir(machine.home.replicas).segments.exists()


@pytest.mark.timeout(300)
async def test_kills_violate_no_guarantee_and_leak_no_tensor(machine: CliInstance, record_fault: FaultRecorder) -> None:
    killer = Killer(machine, seed())
    load = LoadClients(machine.url, letters(seconds=0.1, nbytes=NBYTES), clients=CLIENTS)

    async with load.running():
        await killer.run(KILLS, WEIGHTS, mean_seconds=0.4)
        await until(lambda: any(outcome.is_complete for outcome in load.outcomes))  # On a busy machine, none has been.
    await until(lambda: _is_zero(machine, HELD), seconds=60)

    assert violations(load.outcomes, killer.kills) == []
    assert len(load.outcomes) > CLIENTS
    record_fault(killed(load, killer, "kill -9 while tensors are transferred", leaks=0))


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_kills_during_streams_of_tensors_repeat_them_exactly_or_end_with_an_error(
    tmp_path: Path, record_fault: FaultRecorder
) -> None:
    with running_instance(tmp_path / "home", cpu_slots=8, slab_mib=TIGHT_SLAB_MIB) as machine:
        machine.deploy(DICTATION, replicas=REPLICAS)
        killer = Killer(machine, seed())
        load = LoadClients(machine.url, dictations(seconds=0.02), clients=8)

        async with load.running():
            await killer.run(STREAM_KILLS, {Victim.EXECUTOR: 1}, mean_seconds=0.4)
            await until(lambda: any(outcome.is_complete for outcome in load.outcomes))
        await until(lambda: _is_zero(machine, HELD))

        assert violations(load.outcomes, killer.kills) == []
        record_fault(killed(load, killer, "kill -9 while streams of tensors are read", leaks=0))


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_disconnecting_clients_leak_nothing(machine: CliInstance, record_fault: FaultRecorder) -> None:
    rng = random.Random(seed())
    request = letters(seconds=0.2, nbytes=NBYTES // 8)

    async def send_and_disconnect(session: aiohttp.ClientSession, number: int) -> None:
        sending = asyncio.create_task(_send(session, machine.url, request(number).body))
        await asyncio.wait([sending], timeout=rng.uniform(0, 2))
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await asyncio.gather(*(send_and_disconnect(session, number) for number in range(DISCONNECTS)))

    await until(lambda: _is_zero(machine, HELD), seconds=60)
    await until(lambda: _is_zero(machine, "cornserve_executor_invocations_running"), seconds=60)
    record_fault(
        FaultResult("disconnect while tensors are transferred", DISCONNECTS, DISCONNECTS, "cancelled", leaks=0)
    )


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_a_hung_consumer_does_not_block_other_requests(machine: CliInstance) -> None:
    """Requests at the hung replica end at their deadlines. Others continue on the other replicas."""
    executors = machine.processes(MODULES[Victim.EXECUTOR])
    hung = next(process for process in executors if "echo-reader" in " ".join(process.cmdline()))
    load = LoadClients(machine.url, letters(seconds=0.05, nbytes=NBYTES), clients=8)

    async with load.running():
        await until(lambda: len(load.outcomes) > 8, seconds=60)
        hung.suspend()
        completed = sum(outcome.is_complete for outcome in load.outcomes)
        await until(lambda: sum(outcome.is_complete for outcome in load.outcomes) > completed + 4, seconds=60)
        with suppress(ProcessLookupError, psutil.NoSuchProcess):  # The launcher may have killed it.
            hung.resume()

    await until(lambda: _is_zero(machine, HELD), seconds=60)
    assert [outcome for outcome in load.outcomes if outcome.hung] == []


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_shared_memory_of_killed_processes_is_removed_at_the_next_start(machine: CliInstance) -> None:
    load = LoadClients(machine.url, letters(seconds=0.1, nbytes=NBYTES), clients=8)
    async with load.running():
        await until(lambda: _segments(machine) != [], seconds=60)
        machine.kill_everything()
        load.outcomes.clear()
    left = {*_segments(machine)}
    assert left

    machine.up()

    assert not left & {*_segments(machine)}


async def test_executors_create_the_memory_of_their_tensors_while_they_start(machine: CliInstance) -> None:
    machine.deploy(POST, replicas=REPLICAS + 1)  # The new writer has not had an invocation.

    writers = [
        each for each in machine.processes(MODULES[Victim.EXECUTOR]) if "echo-writer" in " ".join(each.cmdline())
    ]
    segments = {str(segment) for segment in _segments(machine)}
    assert len(writers) == REPLICAS + 1
    assert all(segments & {file.path for file in writer.open_files()} for writer in writers)
    machine.deploy(POST, replicas=REPLICAS)


async def _send(session: aiohttp.ClientSession, url: str, body: dict[str, object]) -> None:
    async with session.post(f"{url}/v1/apps/post/invoke", json=body) as response:
        await response.read()


async def _is_zero(machine: CliInstance, metric: str) -> bool:
    """Returns whether the sum of the metric over all executors is zero. While the gateway is down, it is unknown."""
    try:
        return await asyncio.to_thread(executor_total, machine.url, metric) == 0
    except httpx.TransportError:
        return False


def _segments(machine: CliInstance) -> list[Path]:
    """Returns the shared-memory segments of this home's executors."""
    return [*StateDir(machine.home.replicas).segments.glob("*")]
