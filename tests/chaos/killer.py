"""Kills processes of an instance at random moments, as a seed says."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Mapping
from pathlib import Path

import psutil

from tests.chaos.judge import Kill, Victim
from tests.integration.cli.cli_instance import CliInstance

MODULES = {
    Victim.GATEWAY: "cornserve.gateway",
    Victim.CONTROLLER: "cornserve.control",
    Victim.EXECUTOR: "cornserve_executors.base",
}


class Killer:
    def __init__(self, machine: CliInstance, seed: int) -> None:
        self.kills: list[Kill] = []
        self._machine = machine
        self._random = random.Random(seed)
        self._sessions: set[int] = set()
        self._endpoints: set[str] = set()
        self._shared_memory: set[Path] = set()

    async def kill(self, times: int, weights: Mapping[Victim, int], *, mean_seconds: float) -> None:
        victims, shares = list(weights), list(weights.values())
        while len(self.kills) < times:
            await asyncio.sleep(self._random.expovariate(1 / mean_seconds))
            [victim] = self._random.choices(victims, shares)
            candidates = await asyncio.to_thread(self._candidates, victim)
            if candidates:  # else the last one has not been replaced yet
                process = self._random.choice(candidates)
                self.kills.append(Kill(victim, process.pid, asyncio.get_running_loop().time()))
                process.kill()

    def _candidates(self, victim: Victim) -> list[psutil.Process]:
        executors = self._machine.processes(MODULES[Victim.EXECUTOR])
        self._note_what_runs(executors)
        match victim:
            case Victim.EXECUTOR:
                return executors
            case Victim.ENGINE:
                return [child for executor in executors for child in _children(executor)]
            case _:
                return self._machine.processes(MODULES[victim])

    def _note_what_runs(self, executors: list[psutil.Process]) -> None:
        self._sessions |= {executor.pid for executor in executors}
        self._endpoints |= {file.read_text() for file in self._machine.home.replicas.glob("*/endpoint")}
        for note in self._machine.home.replicas.glob("*/shared-memory"):
            self._shared_memory |= {Path(line) for line in note.read_text().splitlines()}

    def left_behind(self) -> list[str]:
        """Of all that has ever run: what there still is."""
        remaining = (it for it in psutil.process_iter() if _session(it) in self._sessions)
        processes = [f"process {it.pid}: {it.name()}" for it in remaining if it.status() != psutil.STATUS_ZOMBIE]
        ports = {int(endpoint.rpartition(":")[2]) for endpoint in self._endpoints}
        sockets = psutil.net_connections("tcp")
        listening = {it.laddr.port for it in sockets if it.laddr and it.status == psutil.CONN_LISTEN}
        files = [f"file {file}" for file in self._shared_memory if file.exists()]
        return [*processes, *(f"port {port}" for port in ports & listening), *files]


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
