"""Tests of fork servers: no process and no descriptor is left behind."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import psutil
import pytest

from cornserve.app.spec import AppSource, AppSpec
from cornserve.app_host import fork_client, fork_server_process
from cornserve.app_host.app_host import AppHost
from cornserve.app_host.errors import ForkServerError
from cornserve.app_host.fork_client import ForkServer
from cornserve.limits import Limits
from cornserve.process_id import is_zombie
from tests.unit.app_host.apps import ENDLESS_LOOP
from tests.unit.gateway.sources import ECHO
from tests.waiting import until

StartOn = Callable[..., Awaitable[AppHost]]


@pytest.fixture
async def own_server() -> AsyncIterator[ForkServer]:
    server = ForkServer()
    yield server
    await server.close()


@pytest.fixture
async def start() -> AsyncIterator[StartOn]:
    hosts: list[AppHost] = []

    async def start(fork_server: ForkServer, source: str = ECHO) -> AppHost:
        hosts.append(
            await AppHost.start(
                fork_server, "echo", AppSpec(source=AppSource(inline=source)), "app_of_the_test", Limits()
            )
        )
        return hosts[-1]

    yield start
    for host in hosts:
        host.close()


def fork_server_of(host: AppHost) -> psutil.Process:
    parent = psutil.Process(host.pid).parent()
    assert parent is not None
    assert parent.cmdline()[1:3] == ["-m", "cornserve.app_host"]
    return parent


def oom_score_adjustment(pid: int) -> int:
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


def has_ended(pid: int) -> bool:
    return not psutil.pid_exists(pid)


def temporary_files(server: psutil.Process) -> Path:
    """Returns the directory for the temporary files of a fork server's hosts."""
    return Path(server.cmdline()[4])


def files_per_host(directory: Path) -> list[int] | None:
    """Returns how many files of `WITH_FILES` each host has, or None if a directory does not exist or is removed now."""
    try:
        return [len(list(host.rglob("[abc]"))) for host in directory.iterdir()]
    except FileNotFoundError:
        return None


async def test_a_host_is_isolated(fork_server: ForkServer, start: StartOn) -> None:
    host = await start(fork_server)
    process = psutil.Process(host.pid)

    assert os.getpgid(host.pid) == host.pid
    assert oom_score_adjustment(host.pid) == 500
    assert process.rlimit(psutil.RLIMIT_CORE) == (0, 0)
    assert os.readlink(f"/proc/{host.pid}/fd/0") == "/dev/null"
    assert process.num_threads() == 1


async def test_descriptors_do_not_leak(fork_server: ForkServer, start: StartOn) -> None:
    first = await start(fork_server)
    own = psutil.Process()
    descriptors = {process: process.num_fds() for process in (own, fork_server_of(first))}
    in_host = psutil.Process(first.pid).num_fds()

    for _ in range(50):
        host = await start(fork_server)
        assert psutil.Process(host.pid).num_fds() == in_host
        host.close()

    await until(lambda: all(process.num_fds() <= count for process, count in descriptors.items()))


async def test_processes_of_a_host_end_with_it(fork_server: ForkServer, start: StartOn) -> None:
    source = f"import subprocess\nchild = subprocess.Popen(['sleep', '600'])\n{ECHO}"
    host = await start(fork_server, source)
    (child,) = psutil.Process(host.pid).children()

    host.close()

    await until(lambda: has_ended(child.pid))


WITH_FILES = """
import pathlib, tempfile
directory = pathlib.Path(tempfile.mkdtemp())
for name in "abc":
    (directory / name).touch()
"""


async def test_temporary_files_of_a_host_are_removed_with_it(own_server: ForkServer, start: StartOn) -> None:
    kept, closed = await start(own_server, WITH_FILES + ECHO), await start(own_server, WITH_FILES + ECHO)
    files = temporary_files(fork_server_of(kept))
    assert files_per_host(files) == [3, 3]

    closed.close()

    await until(lambda: files_per_host(files) == [3])
    await own_server.close()
    assert files_per_host(files) is None


async def test_cleaners_of_old_files_do_not_remove_those_of_hosts(fork_server: ForkServer, start: StartOn) -> None:
    files = os.open(temporary_files(fork_server_of(await start(fork_server))), os.O_RDONLY)

    with pytest.raises(BlockingIOError):  # systemd-tmpfiles(8) skips a directory that it cannot lock.
        fcntl.flock(files, fcntl.LOCK_EX | fcntl.LOCK_NB)

    os.close(files)


async def test_a_fork_server_that_was_killed_leaves_no_files(own_server: ForkServer, start: StartOn) -> None:
    server = fork_server_of(await start(own_server, WITH_FILES + ECHO))
    files = temporary_files(server)

    server.kill()

    await start(own_server)
    assert files_per_host(files) is None


async def test_a_cancelled_start_leaves_no_process_and_no_descriptor(own_server: ForkServer, start: StartOn) -> None:
    server = fork_server_of(await start(own_server))
    descriptors = psutil.Process().num_fds()

    for turns in range(12):
        starting = asyncio.ensure_future(start(own_server))
        for _ in range(turns):
            await asyncio.sleep(0)
        starting.cancel()
        await asyncio.wait([starting])

    await until(lambda: len(server.children()) == 1)
    await until(lambda: psutil.Process().num_fds() <= descriptors)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_to_all_processes_ends_only_the_parent(
    own_server: ForkServer, start: StartOn, number: signal.Signals
) -> None:
    host = await start(own_server)
    server = fork_server_of(host)

    for process in (server, psutil.Process(host.pid)):
        process.send_signal(number)

    await start(own_server)
    assert server.is_running()
    assert host.lost is None


async def test_a_fork_server_that_died_is_replaced_and_its_hosts_end(own_server: ForkServer, start: StartOn) -> None:
    host = await start(own_server)
    server = fork_server_of(host)

    server.kill()
    while not is_zombie(server):  # The event loop has no turn, in which it would notice the end.
        pass

    replacement = await start(own_server)
    assert fork_server_of(replacement).pid != server.pid
    assert str(await host.wait_lost()) == "the app's process was killed by SIGKILL"
    await until(lambda: has_ended(host.pid))


async def test_a_fork_server_that_hangs_is_replaced(
    own_server: ForkServer, start: StartOn, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = await start(own_server)
    fork_server_of(host).suspend()
    monkeypatch.setattr(fork_client, "FORK_SECONDS", 0.1)
    monkeypatch.setattr(fork_server_process, "STOP_SECONDS", 0.1)

    with pytest.raises(ForkServerError, match=r"the fork server has not started a process within 0\.1 s"):
        await start(own_server)
    monkeypatch.undo()

    assert (await start(own_server)).description.name == "echo"
    await until(lambda: has_ended(host.pid))


PARENT = f"""
import asyncio
from cornserve.app.spec import AppSource, AppSpec
from cornserve.app_host.app_host import AppHost
from cornserve.app_host.fork_client import ForkServer
from cornserve.limits import Limits
from cornserve.process_id import is_zombie

async def main():
    server = ForkServer()
    host = await AppHost.start(server, "echo", AppSpec(source={ECHO!r}), "good", Limits())
    print(host.pid, flush=True)
    await AppHost.start(server, "echo", AppSpec(source={ENDLESS_LOOP!r}), "bad", Limits())

asyncio.run(main())
"""


@pytest.mark.parametrize("stopped", [False, True])
async def test_no_process_survives_the_parent_even_if_it_loops_or_is_stopped(stopped: bool) -> None:
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", PARENT, stdout=asyncio.subprocess.PIPE)
    assert parent.stdout is not None
    host = psutil.Process(int(await parent.stdout.readline()))
    server = host.parent()
    assert server is not None
    await until(lambda: len(server.children()) == 2)
    processes = [server, *server.children()]
    files = temporary_files(server)
    assert files_per_host(files) == [0, 0]
    if stopped:
        for process in processes:
            process.suspend()

    parent.kill()

    await until(lambda: all(has_ended(process.pid) for process in processes))
    assert files_per_host(files) is None
    await parent.wait()  # The processes have inherited its output: it would wait for them.
