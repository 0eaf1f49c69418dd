"""Deployments and scaling under load fail no request."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.chaos.apps import echo, requests, twice
from tests.chaos.judge import violations
from tests.chaos.load import LoadClients
from tests.integration.cli.cli_instance import CliInstance, write_app

CLIENTS = 16
SECONDS = 2.0
"""The duration of a request. It exceeds the time for which a draining executor accepts new callers."""


class EchoInstance:
    """Operates an instance that serves both apps."""

    def __init__(self, machine: CliInstance) -> None:
        self.machine = machine

    async def run(self, *arguments: str) -> str:
        return await asyncio.to_thread(functools.partial(self.machine.do, *arguments))

    async def deploy(self, *sources: str) -> None:
        for source in sources:
            await asyncio.to_thread(self.machine.deploy, source)

    def executors(self) -> set[int]:
        return {process.pid for process in self.machine.processes("cornserve_executors.base")}

    @asynccontextmanager
    async def under_load(self, *prefixes: str) -> AsyncIterator[LoadClients]:
        """Runs clients during the block, and checks that one of the versions responds to each request."""
        load = LoadClients(self.machine.url, requests(*prefixes, seconds=SECONDS), clients=CLIENTS)
        async with load.running():
            await wait_for_responses(load)
            yield load
            await wait_for_responses(load)
        assert violations(load.outcomes) == []


async def wait_for_responses(load: LoadClients) -> None:
    """Waits until every client has sent another request and received its response."""
    before = len(load.outcomes)
    async with asyncio.timeout(60):
        while len(load.outcomes) < before + 2 * CLIENTS:
            await asyncio.sleep(0.05)


@pytest.fixture
async def instance(machine: CliInstance) -> EchoInstance:
    instance = EchoInstance(machine)
    await instance.deploy(echo("a "), twice("a "))
    return instance


@pytest.mark.slow
async def test_a_change_of_the_source_restarts_no_executor(instance: EchoInstance) -> None:
    before = instance.executors()
    async with instance.under_load("a "):
        await instance.deploy(echo("a ", comment="changed"), twice("a ", comment="changed"))
    assert instance.executors() == before


@pytest.mark.slow
async def test_a_changed_setting_is_served_and_a_version_that_fails_to_start_is_not(
    instance: EchoInstance, tmp_path: Path
) -> None:
    async with instance.under_load("a ", "b ") as load:
        await instance.deploy(echo("b "), twice("b "))
        await wait_for_responses(load)
        failing = write_app(tmp_path, "echo", fail_start="broken")
        assert (await asyncio.to_thread(instance.machine.run, "deploy", failing)).returncode == 1
    last = [outcome.text for outcome in load.outcomes[-CLIENTS:]]
    assert all(text.startswith("b ") for text in last)


@pytest.mark.slow
async def test_scaling_up_and_down_fails_no_request(instance: EchoInstance) -> None:
    [first] = instance.executors()
    async with instance.under_load("a ") as load:
        await instance.run("scale", "echo", "3")
        assert len(instance.executors()) == 3
        await wait_for_responses(load)
        await instance.run("scale", "echo", "1")
        assert instance.executors() == {first}
