"""Tests of code that runs in a real host, and of the errors that its parent gets."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from cornserve.app.spec import AppSource, AppSpec
from cornserve.app_host.app_host import AppHost
from cornserve.app_host.errors import AppHostLostError
from cornserve.app_host.fork_client import ForkServer
from cornserve.app_host.fork_server_process import ForkServerProcess
from cornserve.limits import Limits
from cornserve.v1 import app_host_pb2 as pb
from tests.loop_clock import LoopClock
from tests.sandbox import require_sandbox
from tests.unit.app_host.apps import (
    C_CALL_WITH_LOCK,
    CATASTROPHIC_REGEX,
    CRASH,
    ENDLESS_LOOP,
    SLEEP,
    TEST_FILES,
    announced,
)
from tests.unit.gateway.sources import ECHO
from tests.waiting import until

StartHost = Callable[[], Awaitable[AppHost]]

pytestmark = pytest.mark.asyncio(loop_scope="module")


@asynccontextmanager
async def running_server() -> AsyncIterator[ForkServer]:
    server = ForkServer(lambda: ForkServerProcess.start("tests.unit.app_host.code_host"))
    yield server
    await server.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def fork_server() -> AsyncIterator[ForkServer]:
    async with running_server() as server:
        yield server


@pytest_asyncio.fixture(loop_scope="module")
async def start_host(fork_server: ForkServer) -> AsyncIterator[StartHost]:
    async with starting_hosts(fork_server) as start:
        yield start


@pytest_asyncio.fixture(loop_scope="module")
async def start_host_with_environment() -> AsyncIterator[StartHost]:
    """Starts hosts with the variables that the test has set before the first of them."""
    async with running_server() as server, starting_hosts(server) as start:
        yield start


@asynccontextmanager
async def starting_hosts(fork_server: ForkServer) -> AsyncIterator[StartHost]:
    hosts: list[AppHost] = []

    async def start() -> AppHost:
        limits = Limits(run_seconds=1)
        spec = AppSpec(source=AppSource(inline=ECHO, allow_paths=TEST_FILES))
        hosts.append(await AppHost.start(fork_server, "echo", spec, "app_of_the_test", limits))
        return hosts[-1]

    yield start
    for host in hosts:
        host.close()


async def run(host: AppHost, code: str) -> str:
    """Runs the code in the host; returns its error. Its session has the number of the call, which counts from 2."""
    reply = await host.call(pb.HostCommand(find_media=pb.FindMedia(body=code.encode())))
    return reply.error.message


async def test_an_error_of_the_code_does_not_end_the_host(start_host: StartHost) -> None:
    host = await start_host()

    assert await run(host, "x = 1") == ""
    assert await run(host, "import os\nos._exit(3)") == "SystemExit(3)"
    assert await run(host, "data = bytearray(1 << 30)") == "MemoryError()"
    assert await run(host, "x = 1") == ""
    assert host.lost is None


@pytest.mark.parametrize(
    ("code", "location"),
    [
        (ENDLESS_LOOP, "app.py:3 in wait"),
        (SLEEP, "app.py:3 in <module>"),
        (CATASTROPHIC_REGEX, "app.py:3 in <module>"),
        (C_CALL_WITH_LOCK, "app.py:3 in <module>"),
        ("import signal; signal.signal(signal.SIGUSR1, signal.SIG_IGN)\nwhile True: pass", ""),
    ],
)
async def test_a_host_whose_code_runs_too_long_is_killed(
    start_host: StartHost, tmp_path: Path, clock: LoopClock, code: str, location: str
) -> None:
    host = await start_host()
    await run(host, "x = 1")
    begins = tmp_path / "begins"
    calls = asyncio.gather(run(host, announced(code, begins)), run(host, "x = 1"), return_exceptions=True)
    await until(begins.exists)

    lost = await clock.advance_during(host.wait_lost(), step=0.1)

    for error in await calls:
        assert isinstance(error, AppHostLostError)
        assert (error.culprit_session, error.location) == (3, location)
        assert error.reason == "the app's code ran for more than 1 s (limit run-seconds=1, see `cornserve up --limit`)"
    with pytest.raises(AppHostLostError, match="ran for more than 1 s"):
        await run(host, "x = 1")
    assert host.lost is lost


@pytest.mark.parametrize(
    ("code", "reason", "location"),
    [
        (CRASH, "the app's process was killed by SIGSEGV", "app.py:2 in <module>"),
        ("import os\nos.kill(os.getpid(), 9)", "the app's process was killed by SIGKILL", ""),
        ("import posix\nposix._exit(4)", "the app's process exited with status 4", ""),
    ],
)
async def test_calls_fail_when_the_host_dies(start_host: StartHost, code: str, reason: str, location: str) -> None:
    host = await start_host()

    for error in await asyncio.gather(run(host, code), run(host, "x = 1"), return_exceptions=True):
        assert isinstance(error, AppHostLostError)
        assert (error.culprit_session, error.reason, error.location) == (2, reason, location)


async def test_a_host_that_dies_while_no_code_runs_has_no_culprit(start_host: StartHost) -> None:
    host = await start_host()
    assert await run(host, "x = 1") == ""

    os.kill(host.pid, signal.SIGKILL)

    assert (await host.wait_lost()).culprit_session is None


async def test_other_hosts_continue(start_host: StartHost, tmp_path: Path, clock: LoopClock) -> None:
    looping, healthy = await start_host(), await start_host()
    begins = tmp_path / "begins"
    loop = asyncio.create_task(run(looping, announced(ENDLESS_LOOP, begins)))
    await until(begins.exists)

    assert await run(healthy, "x = 1") == ""

    await clock.advance_until(loop.done, step=0.1)
    assert await run(healthy, "x = 1") == ""


def running_until(end: Path) -> str:
    """Returns code that runs until a file exists."""
    return f"import os, time\nwhile not os.path.exists({str(end)!r}): time.sleep(0.01)"


async def test_code_that_runs_often_but_briefly_is_not_killed(
    start_host: StartHost, tmp_path: Path, clock: LoopClock
) -> None:
    host = await start_host()

    for number in range(4):
        begins, end = tmp_path / f"begins-{number}", tmp_path / f"end-{number}"
        call = asyncio.create_task(run(host, announced(running_until(end), begins)))
        await until(begins.exists)
        clock.advance(0.4)
        await asyncio.sleep(0)  # The host's time is checked.
        end.touch()
        assert await call == ""


async def test_a_cancelled_call_does_not_disturb_later_calls(start_host: StartHost, tmp_path: Path) -> None:
    host = await start_host()
    begins, end = tmp_path / "begins", tmp_path / "end"
    cancelled = asyncio.create_task(run(host, announced(running_until(end), begins)))
    await until(begins.exists)

    cancelled.cancel()
    later = asyncio.create_task(run(host, "import os\nos._exit(5)"))
    await asyncio.sleep(0)
    end.touch()

    assert await later == "SystemExit(5)"


async def test_a_host_does_not_have_the_secrets_of_clients(
    start_host_with_environment: StartHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORNSERVE_ADMIN_TOKEN", "a token of the administrator")
    monkeypatch.setenv("CORNSERVE_API_KEYS", "a key of a client")
    monkeypatch.setenv("SETTING", "of the app")
    host = await start_host_with_environment()

    environment = await run(host, "raise Exception(open('/proc/self/environ').read())")

    assert "of the app" in environment
    assert "token of the administrator" not in environment
    assert "key of a client" not in environment


async def test_the_home_remains_closed_if_an_allowed_path_contains_it_except_for_its_models(
    start_host_with_environment: StartHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_sandbox()
    monkeypatch.setenv("CORNSERVE_HOME", str(tmp_path / "home"))
    (tmp_path / "home" / "models").mkdir(parents=True)
    for name in ("data", "home/secret", "home/models/config.json"):
        (tmp_path / name).write_text("{}")
    host = await start_host_with_environment()

    assert await run(host, f"open('{tmp_path}/data', 'r+')") == ""
    assert await run(host, f"open('{tmp_path}/home/models/config.json')") == ""
    assert "Permission denied" in await run(host, f"open('{tmp_path}/home/models/config.json', 'r+')")
    assert "Permission denied" in await run(host, f"open('{tmp_path}/home/secret')")
    assert "Permission denied" in await run(host, f"open('{tmp_path}/home/new', 'w')")


async def test_closing_a_host_fails_its_calls(start_host: StartHost) -> None:
    host = await start_host()
    call = asyncio.create_task(run(host, SLEEP))
    await asyncio.sleep(0)

    host.close()

    with pytest.raises(AppHostLostError, match="the app's process was stopped"):
        await call
