"""Changes of what runs under load: no request fails."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.chaos.apps import echo, requests, twice
from tests.chaos.judge import verdicts
from tests.chaos.load import Load
from tests.integration.cli.cli_instance import CliInstance, write_app

CLIENTS = 16
SECONDS = 2.0
"""Of a request: longer than a draining executor takes new callers."""


class Site:
    """An instance that serves both apps."""

    def __init__(self, machine: CliInstance, folder: Path) -> None:
        self.machine = machine
        self._folder = folder

    async def run(self, *arguments: str) -> str:
        return await asyncio.to_thread(functools.partial(self.machine.do, *arguments))

    async def deploy(self, *sources: str) -> None:
        for source in sources:
            file = self._folder / "app.py"
            file.write_text(source)
            await self.run("deploy", str(file))

    def executors(self) -> set[int]:
        return {process.pid for process in self.machine.processes("cornserve_executors.base")}

    @asynccontextmanager
    async def under_load(self, *prefixes: str) -> AsyncIterator[Load]:
        """Judges when it ends: everything must have been answered, by one of the versions."""
        load = Load(self.machine.url, requests(*prefixes, seconds=SECONDS), clients=CLIENTS)
        async with load.running():
            await answered(load)
            yield load
            await answered(load)
        assert verdicts(load.outcomes) == []


async def answered(load: Load) -> None:
    """Returns when every client's request was begun and answered from now on."""
    begun = len(load.outcomes)
    async with asyncio.timeout(60):
        while len(load.outcomes) < begun + 2 * CLIENTS:
            await asyncio.sleep(0.05)


@pytest.fixture
async def site(machine: CliInstance, tmp_path: Path) -> Site:
    site = Site(machine, tmp_path)
    await site.deploy(echo("a "), twice("a "))
    return site


async def test_another_task_takes_over_and_nothing_restarts(site: Site) -> None:
    before = site.executors()
    async with site.under_load("a "):
        await site.deploy(echo("a ", comment="changed"), twice("a ", comment="changed"))
    assert site.executors() == before


async def test_another_setting_takes_over_and_a_version_that_fails_does_not(site: Site, tmp_path: Path) -> None:
    async with site.under_load("a ", "b ") as load:
        await site.deploy(echo("b "), twice("b "))
        await answered(load)
        failing = write_app(tmp_path, "echo", fail_start="broken")
        assert (await asyncio.to_thread(site.machine.run, "deploy", failing)).returncode == 1
    last = [outcome.text for outcome in load.outcomes[-CLIENTS:]]
    assert all(text.startswith("b ") for text in last)


async def test_replicas_come_and_go(site: Site) -> None:
    [first] = site.executors()
    async with site.under_load("a ") as load:
        await site.run("scale", "echo", "3")
        assert len(site.executors()) == 3
        await answered(load)
        await site.run("scale", "echo", "1")
        assert site.executors() == {first}
