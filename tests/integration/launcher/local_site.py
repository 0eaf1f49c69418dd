"""A home with local launchers for the conformance tests."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from cornserve.control.launcher.base import ReplicaId
from cornserve.control.launcher.local.device_slots import DeviceSlots
from cornserve.control.launcher.local.launcher import LocalLauncher
from cornserve.control.launcher.local.slot_types import SlotType
from cornserve.control.launcher.local.state_dir import ProcessRecord, ReplicaDir
from cornserve.home import Home
from tests.credentials import write_secret
from tests.integration.launcher.conformance import none, observed


@dataclass(frozen=True)
class LocalSite:
    home: Home
    slots: int = 8
    slot_types: tuple[SlotType, ...] = ()
    """They replace the slots."""
    drain_seconds: float = 20

    @asynccontextmanager
    async def open(self) -> AsyncIterator[LocalLauncher]:
        write_secret(self.home.path)
        launcher = LocalLauncher(
            self.home,
            DeviceSlots.detect(gpus=0, cpu_slots=self.slots, slot_types=self.slot_types),
            drain_seconds=self.drain_seconds,
            slab_mib=64,
            first_delay=0.05,
            longest_delay=0.1,
        )
        await launcher.start()
        try:
            yield launcher
        finally:
            await launcher.close()

    async def kill(self, replica: ReplicaId) -> None:
        os.kill(self.process(replica).process_group.pid, signal.SIGKILL)

    def process(self, replica: ReplicaId) -> ProcessRecord:
        process = ReplicaDir(self.home.replicas / replica).read_process()
        assert process is not None
        return process

    async def clear(self) -> None:
        async with self.open() as launcher:
            await launcher.prune(set())
            await observed(launcher, none)
