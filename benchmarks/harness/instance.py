"""A Cornserve of the benchmark's own: gateway, controller and one echo executor, in a temporary home."""

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

from benchmarks.harness.processes import Cores, running
from cornserve.app.record import AppSpec, Phase
from cornserve.client import Client, ClientError
from cornserve.control.cleanup import stop_all_executors
from cornserve.home import Home

START_SECONDS = 60.0
DEPLOY_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Instance:
    port: int
    gateway: int
    """Process id."""
    executor: int
    """Process id."""
    endpoint: str
    """Of the executor."""


@contextmanager
def serving(apps: Mapping[str, str], cores: Cores, gateway: tuple[str, ...]) -> Iterator[Instance]:
    """Serves the apps, given by name and source, which must share one executor.

    Args:
        gateway: what Python runs as the gateway: `-m cornserve.gateway`, or something around it.
    """
    with ExitStack() as cleanup:
        home = Home(Path(cleanup.enter_context(tempfile.TemporaryDirectory(prefix="cornserve-benchmark-"))))
        cleanup.callback(_sweep, home)
        port = free_port()
        at = ("--home", str(home.path))
        served = [sys.executable, *gateway, *at, "--port", str(port)]
        control = [sys.executable, "-m", "cornserve.control", *at, "--cpu-slots", "1"]
        front = cleanup.enter_context(running(served, home.path / "gateway.log", cores.gateway))
        back = cleanup.enter_context(running(control, home.path / "controller.log", cores.others))
        client = cleanup.enter_context(Client(f"http://127.0.0.1:{port}"))
        try:
            endpoint = _deploy(client, apps)
        except (ClientError, TimeoutError) as error:
            logs = "".join(path.read_text(errors="replace")[-2000:] for path in sorted(home.path.glob("*.log")))
            raise RuntimeError(f"the instance did not start: {error}\n{logs}") from error
        yield Instance(port, front.pid, _executor_under(back.pid), endpoint)


def _deploy(client: Client, apps: Mapping[str, str]) -> str:
    """The endpoint of the one executor that the apps share."""
    _await_gateway(client)
    endpoints = set()
    for name, source in apps.items():
        client.deploy(AppSpec(source=source), name=name, wait=False)
        for view in client.events(name, timeout=DEPLOY_SECONDS):
            if view.settled:
                break
        status = client.app(name).status
        if status.phase is not Phase.SERVING or status.route is None:
            raise ClientError(f"{name}: {status.phase}: {status.message}")
        endpoints |= {endpoint for group in status.route.endpoints.values() for endpoint in group}
    (endpoint,) = endpoints
    return endpoint


def _await_gateway(client: Client) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            client.apps()
            return
        except ClientError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _executor_under(controller: int) -> int:
    (executor,) = psutil.Process(controller).children()
    return executor.pid


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def _sweep(home: Home) -> None:
    """Executors outlive their controller, by design."""
    asyncio.run(stop_all_executors(home, lambda message: None, drain_seconds=0))
