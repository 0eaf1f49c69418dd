"""Kills and stops processes of an instance at times drawn from a seed."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from tests.chaos.judge import Kill, Victim
from tests.integration.cli.cli_instance import CliInstance

MODULES = {
    Victim.GATEWAY: "cornserve.gateway",
    Victim.CONTROLLER: "cornserve.control",
    Victim.EXECUTOR: "cornserve_executors.base",
}


MAX_STOP_SECONDS = 1.0
"""The longest stop. No request may fail because of a stop, and no process may be replaced."""


EXIT_SECONDS = 5.0
"""The time in which app hosts exit after their gateway has been killed or has ended."""


class Killer:
    """Kills processes with SIGKILL, and stops processes with SIGSTOP for a while.

    Args:
        stop_share: the share of stops among all faults.
    """

    def __init__(self, machine: CliInstance, seed: int, *, stop_share: float = 0.0) -> None:
        self.kills: list[Kill] = []
        self.stops: list[Victim] = []
        self._stop_share = stop_share
        self._machine = machine
        self._random = random.Random(seed)
        self._sessions: set[int] = set()
        self._app_hosts: set[psutil.Process] = set()
        self._endpoints: set[str] = set()
        self._shared_memory: set[Path] = set()

    @property
    def faults(self) -> int:
        return len(self.kills) + len(self.stops)

    async def run(self, faults: int, weights: Mapping[Victim, int], *, mean_seconds: float) -> None:
        """Returns when this number of faults has occurred, including those of earlier calls."""
        victims, shares = list(weights), list(weights.values())
        while self.faults < faults:
            await asyncio.sleep(self._random.expovariate(1 / mean_seconds))
            [victim] = self._random.choices(victims, shares)
            candidates = await asyncio.to_thread(self._candidates, victim)
            if candidates:  # Wait until the last killed process is replaced.
                process = self._random.choice(candidates)
                if self._random.random() < self._stop_share:
                    await self._stop(victim, process)
                else:
                    killed_at = asyncio.get_running_loop().time()
                    with suppress(psutil.NoSuchProcess):  # The process may have exited meanwhile.
                        process.kill()
                        self.kills.append(Kill(victim, process.pid, killed_at))

    async def _stop(self, victim: Victim, process: psutil.Process) -> None:
        self.stops.append(victim)
        process.suspend()
        try:
            await asyncio.sleep(self._random.uniform(0.1, MAX_STOP_SECONDS))
        finally:
            process.resume()

    def _candidates(self, victim: Victim) -> list[psutil.Process]:
        executors = self._machine.processes(MODULES[Victim.EXECUTOR])
        self._record_resources(executors)
        fork_servers = self._fork_servers()
        match victim:
            case Victim.EXECUTOR:
                return executors
            case Victim.ENGINE:
                return [child for executor in executors for child in _children(executor)]
            case Victim.FORK_SERVER:
                return fork_servers
            case Victim.APP_HOST:
                return [host for fork_server in fork_servers for host in _children(fork_server)]
            case _:
                return self._machine.processes(MODULES[victim])

    def _fork_servers(self) -> list[psutil.Process]:
        fork_servers = [
            child for gateway in self._machine.processes(MODULES[Victim.GATEWAY]) for child in _children(gateway)
        ]
        self._app_hosts |= {*fork_servers, *(host for fork_server in fork_servers for host in _children(fork_server))}
        return fork_servers

    def _record_resources(self, executors: list[psutil.Process]) -> None:
        self._sessions |= {executor.pid for executor in executors}
        self._endpoints |= {file.read_text() for file in self._machine.home.replicas.glob("*/endpoint")}
        for file in self._machine.home.replicas.glob("*/shared-memory"):
            self._shared_memory |= {Path(line) for line in file.read_text().splitlines()}

    def leaked_resources(self) -> list[str]:
        """Returns the remaining resources of all executors and app hosts that have ever run."""
        remaining = (process for process in psutil.process_iter() if _session(process) in self._sessions)
        processes = [
            f"process {process.pid}: {process.name()}"
            for process in remaining
            if process.status() != psutil.STATUS_ZOMBIE
        ]
        ports = {int(endpoint.rpartition(":")[2]) for endpoint in self._endpoints}
        listening = {
            socket.laddr.port
            for socket in psutil.net_connections("tcp")
            if socket.laddr and socket.status == psutil.CONN_LISTEN
        }
        files = [f"file {file}" for file in self._shared_memory if file.exists()]
        _, hosts = psutil.wait_procs(self._app_hosts, timeout=EXIT_SECONDS)
        return [
            *processes,
            *(f"app host {host.pid}" for host in hosts),
            *(f"port {port}" for port in ports & listening),
            *files,
        ]


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children()
    except psutil.NoSuchProcess:
        return []


def _session(process: psutil.Process) -> int | None:
    try:
        return os.getsid(process.pid)
    except ProcessLookupError:
        return None
