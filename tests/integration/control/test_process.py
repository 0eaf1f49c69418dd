"""Tests of the controller process and its options."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cornserve.app.record import AppStatus, Phase
from cornserve.app.spec import AppSource, AppSpec
from cornserve.control.local_instance.cleanup import stop_all_executors
from cornserve.control.store.base import APPS, Store
from cornserve.control.store.sqlite import SqliteStore
from cornserve.home import Home
from cornserve.v1 import executor_pb2 as pb
from tests.credentials import write_secret
from tests.executor_caller import calling
from tests.unit.gateway.sources import ECHO
from tests.waiting import until


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    write_secret(home.path)
    return home


@pytest.fixture
async def store(home: Home) -> AsyncIterator[Store]:
    store = await SqliteStore.open(home.store)
    yield store
    await store.close()


@asynccontextmanager
async def controller(home: Home, *options: str) -> AsyncIterator[None]:
    command = [sys.executable, "-m", "cornserve.control", "--home", str(home.path), "--cpu-slots", "1", *options]
    # The process exits when its standard input ends, as it does when the supervisor dies.
    process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE)
    try:
        yield
        assert process.returncode is None
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()
        await stop_all_executors(home, print, drain_seconds=0)


async def wait_until_served(store: Store) -> AppStatus:
    async def holds() -> bool:
        return (await store.get(APPS, "echo")).status.phase is Phase.SERVING

    await until(holds, seconds=60)
    return (await store.get(APPS, "echo")).status


async def test_unneeded_executors_may_finish_requests_until_the_request_timeout(home: Home, store: Store) -> None:
    endless = pb.Start(request_id="r", request=b'{"text": "a", "seconds": 1000}')
    async with controller(home, "--limit", "request-seconds=1"):
        await store.create(APPS, "echo", AppSpec(source=AppSource(inline=ECHO)))
        [group] = (await wait_until_served(store)).groups
        [endpoint] = group.endpoints
        async with calling(endpoint) as caller, asyncio.timeout(60):
            caller.send(pb.Command(call=1, start=endless))
            await store.delete(APPS, "echo")
            event = await caller.read()

    assert event is not None
    assert event.end.code == pb.CODE_ABORTED


@pytest.mark.slow
async def test_apps_are_served_although_the_metrics_port_is_in_use(home: Home, store: Store) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        async with controller(home, "--metrics-port", str(listener.getsockname()[1])):
            await store.create(APPS, "echo", AppSpec(source=AppSource(inline=ECHO)))

            await wait_until_served(store)
