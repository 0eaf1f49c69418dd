"""Processes without access, of another user and in another network namespace, while an executor serves its callers."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cornserve.instance_secret import InstanceSecret
from cornserve.v1 import executor_pb2 as pb
from cornserve.wire import sockets
from cornserve_echo.notes import NoteTask
from tests.executor_caller import Caller, calling
from tests.free_ports import free_port
from tests.integration.llm.process import ExecutorProcess, running_executor

pytestmark = pytest.mark.chaos

ROOT = Path(__file__).parents[3]
NOBODY = 65534
FLOOD_SECONDS = 3.0
MAX_SECONDS = 10.0
"""Limit for an invocation during a flood. It is long, because the stranger uses all cores of a small machine."""
MAX_GROWTH_BYTES = 100 << 20

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes of other users")


@dataclass(frozen=True)
class NetworkNamespace:
    """A network namespace that reaches this one at `host`."""

    name: str
    host: str

    @property
    def command(self) -> list[str]:
        """The beginning of commands that run in the namespace."""
        return ["ip", "netns", "exec", self.name]


@pytest.fixture
def namespace() -> Iterator[NetworkNamespace]:
    number = os.getpid() % 60_000
    name, own, other = f"cornserve-{number}", f"corn{number}a", f"corn{number}b"
    subnet = f"10.213.{number % 250}"
    with ExitStack() as cleanup:
        try:
            _ip("netns", "add", name)
            cleanup.callback(_ip, "netns", "del", name)  # removes both interfaces
            _ip("link", "add", own, "type", "veth", "peer", "name", other, "netns", name)
            _ip("address", "add", f"{subnet}.1/24", "dev", own)
            _ip("link", "set", own, "up")
            for arguments in (("address", "add", f"{subnet}.2/24", "dev", other), ("link", "set", other, "up")):
                _ip("-netns", name, *arguments)
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"network namespaces are not available: {error}")
        yield NetworkNamespace(name, f"{subnet}.1")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


@pytest.fixture
def shared_memory() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="cornserve-test-") as directory:
        yield Path(directory)


@dataclass
class CallerTraffic:
    """Invocations of one caller, one after the other."""

    latencies: list[float]

    async def run(self, caller: Caller, done: asyncio.Event) -> None:
        call = len(self.latencies)
        while not done.is_set():
            call += 1
            started = time.monotonic()
            await write_note(caller, call)
            self.latencies.append(time.monotonic() - started)


async def write_note(caller: Caller, call: int) -> None:
    """Writes and releases a tensor."""
    start = pb.Start(request_id=f"valid-{id(caller)}-{call}", request=b'{"text": "good news"}', arrived_us=1)
    caller.send(pb.Command(call=call, start=start))
    async with asyncio.timeout(60):
        event = await caller.read()
    assert event is not None
    assert event.end.code == pb.CODE_OK, event.end.message
    caller.send(pb.Command(call=call, release=pb.Release()))


def private_memory(executor: ExecutorProcess) -> int:
    """Returns the executor's memory without its slab."""
    memory = executor.process.memory_info()
    private: int = memory.rss - memory.shared
    return private


async def attack(
    executor: ExecutorProcess, files: list[Path], prefix: list[str], health_port: int, uid: int | None = None
) -> dict[str, Any]:
    """Runs a stranger while callers are served, and asserts that it does not affect them. Returns what it could do."""
    host, port = sockets.split_endpoint(executor.endpoint)
    job = {
        "uid": uid,
        "host": host,
        "port": port,
        "open_ports": [executor.metrics_port, health_port],
        "files": [str(file) for file in files],
        "pids": [executor.process.pid],
        "flood_seconds": FLOOD_SECONDS,
    }
    memory = private_memory(executor)
    traffic, done = CallerTraffic([]), asyncio.Event()
    async with calling(executor.endpoint) as caller:
        await write_note(caller, 10_000_000)
        serving = asyncio.create_task(traffic.run(caller, done))
        process = await asyncio.create_subprocess_exec(
            *(*prefix, sys.executable, "-m", "tests.integration.security.stranger", json.dumps(job)),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
        )
        while process.returncode is None:
            async with asyncio.timeout(60), calling(executor.endpoint) as other:  # new connections are served as well
                await write_note(other, 1)
            await asyncio.sleep(0.1)
        done.set()
        await serving
    assert process.stdout is not None
    outcome: dict[str, Any] = json.loads(await process.stdout.read())

    assert len(traffic.latencies) > 20
    assert max(traffic.latencies) < MAX_SECONDS
    assert private_memory(executor) - memory < MAX_GROWTH_BYTES
    assert outcome["connections"] > 100
    assert set(outcome["responses"].values()) == {0}
    assert "closed a connection of" in executor.log.read_text()
    return outcome


@pytest.mark.slow
@needs_root
async def test_a_process_of_another_user_can_neither_invoke_nor_read_nor_stall(
    tmp_path: Path, shared_memory: Path, unused_port: int
) -> None:
    options = ("--slab-mib", "16", "--shared-memory", str(shared_memory), "--health-port", str(unused_port))
    with running_executor(NoteTask(), tmp_path, *options) as executor:
        executor.until_ready()
        async with calling(executor.endpoint) as caller:
            await write_note(caller, 1)
        files = [tmp_path / "secret", tmp_path / "endpoint", *open_directories(tmp_path, shared_memory)]

        outcome = await attack(executor, files, [], unused_port, uid=NOBODY)

    assert len(files) == 3
    assert outcome["readable"] == []
    assert outcome["environment"] == []


@needs_root
async def test_a_process_in_another_network_namespace_needs_the_secret(
    tmp_path: Path, namespace: NetworkNamespace, unused_port: int
) -> None:
    options = ("--slab-mib", "16", "--listen", f"{namespace.host}:0", "--health-port", str(unused_port))
    (tmp_path / "other").mkdir()
    InstanceSecret.load_or_create(tmp_path / "other-secret")
    with running_executor(NoteTask(), tmp_path, *options) as executor:
        executor.until_ready()

        await attack(executor, [], namespace.command, unused_port)

        assert member(namespace, executor, tmp_path / "secret", tmp_path) == "news from afar"
        assert member(namespace, executor, tmp_path / "other-secret", tmp_path).startswith("HandshakeError: ")


def open_directories(home: Path, shared_memory: Path) -> list[Path]:
    """Lets other users enter the directories, so that only the modes of the files protect these. Returns the slabs."""
    for directory in (home, *home.parents[:2], shared_memory):
        directory.chmod(0o755)
    return list(shared_memory.glob("*.slab"))


def member(namespace: NetworkNamespace, executor: ExecutorProcess, secret: Path, directory: Path) -> str:
    """Returns the note that a process with a secret writes and reads, or its error."""
    arguments = (executor.endpoint, str(secret), str(directory / "other"))
    command = [*namespace.command, sys.executable, "-m", "tests.integration.security.member", *arguments]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=60).stdout.strip()


@pytest.fixture
def unused_port() -> int:
    return free_port()
