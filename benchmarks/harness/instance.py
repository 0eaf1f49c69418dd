"""Runs an instance for a benchmark: gateway, controller and one echo executor, in a temporary home."""

from __future__ import annotations

import asyncio
import socket
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.harness.processes import CoreAssignment, running_process
from cornserve.app.record import Phase
from cornserve.app.spec import AppSource, AppSpec
from cornserve.client import Client, ClientError
from cornserve.control.local_instance.cleanup import stop_all_executors
from cornserve.control.store.sqlite import SqliteStore
from cornserve.home import Home
from cornserve.instance_secret import InstanceSecret

START_TIMEOUT_SECONDS = 60.0
DEPLOY_TIMEOUT_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class BenchmarkInstance:
    port: int
    gateway: int
    """Process id."""
    executor: int
    """Process id."""
    endpoint: str
    """The executor's endpoint."""
    app_hosts: tuple[int, ...]
    """Process ids of the processes that run the apps' code."""
    secret: Path
    """The file of the instance's secret."""


@contextmanager
def running_instance(
    apps: Mapping[str, str], cores: CoreAssignment, gateway: tuple[str, ...]
) -> Iterator[BenchmarkInstance]:
    """Serves the apps, which must share one executor.

    Args:
        apps: sources by name.
        gateway: Python's arguments that run the gateway, for example `-m cornserve.gateway`.
    """
    with ExitStack() as cleanup:
        home = Home(Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="cornserve-benchmark-"))))
        InstanceSecret.load_or_create(home.secret)
        asyncio.run(_create_store(home))
        cleanup.callback(_stop_executors, home)
        port = free_port()
        home_option = ("--home", str(home.path))
        gateway_command = [sys.executable, *gateway, *home_option, "--port", str(port)]
        controller_command = [sys.executable, "-m", "cornserve.control", *home_option, "--cpu-slots", "1"]
        gateway_process = cleanup.enter_context(
            running_process(gateway_command, home.path / "gateway.log", cores.gateway)
        )
        controller = cleanup.enter_context(
            running_process(controller_command, home.path / "controller.log", cores.others)
        )
        client = cleanup.enter_context(Client(f"http://127.0.0.1:{port}"))
        try:
            endpoint = _deploy(client, apps)
        except (ClientError, TimeoutError) as error:
            logs = "".join(path.read_text(errors="replace")[-2000:] for path in sorted(home.path.glob("*.log")))
            raise RuntimeError(f"the instance did not start: {error}\n{logs}") from error
        executor, hosts = _executor_under(controller.pid), _app_hosts_under(gateway_process.pid)
        yield BenchmarkInstance(port, gateway_process.pid, executor, endpoint, hosts, home.secret)


def _deploy(client: Client, apps: Mapping[str, str]) -> str:
    """Deploys the apps; returns the endpoint of the executor that they share."""
    _wait_for_gateway(client)
    endpoints = set()
    for name, source in apps.items():
        client.deploy(AppSpec(source=AppSource(inline=source)), name=name, wait=False)
        for view in client.events(name, timeout=DEPLOY_TIMEOUT_SECONDS):
            if view.settled:
                break
        status = client.app(name).status
        if status.phase is not Phase.SERVING:
            raise ClientError(f"{name}: {status.phase}: {status.message}")
        endpoints |= {endpoint for group in status.groups for endpoint in group.endpoints}
    (endpoint,) = endpoints
    return endpoint


def _wait_for_gateway(client: Client) -> None:
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    while True:
        try:
            client.apps()
            return
        except ClientError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _executor_under(controller: int) -> int:
    (executor,) = (child for child in psutil.Process(controller).children() if not _is_fork_server(child))
    return executor.pid


def _app_hosts_under(gateway: int) -> tuple[int, ...]:
    servers = filter(_is_fork_server, psutil.Process(gateway).children())
    return tuple(host.pid for server in servers for host in server.children())


def _is_fork_server(process: psutil.Process) -> bool:
    return "cornserve.app_host" in process.cmdline()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


async def _create_store(home: Home) -> None:
    store = await SqliteStore.open(home.store)
    await store.close()


def _stop_executors(home: Home) -> None:
    """Stops the executors, which keep running when their controller ends."""
    asyncio.run(stop_all_executors(home, lambda message: None, drain_seconds=0))
