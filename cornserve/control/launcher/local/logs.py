"""The logs of replicas, for processes of the instance that do not launch them."""

from __future__ import annotations

import asyncio

from cornserve.control.launcher.base import ReplicaId
from cornserve.control.launcher.local.state_dir import StateDir
from cornserve.home import Home


class LocalReplicaLogs:
    def __init__(self, home: Home) -> None:
        self._folders = StateDir(home.replicas)

    async def __call__(self, replica: str, lines: int) -> list[str]:
        """The last lines that the replica wrote, also if it has ended lately."""
        return await asyncio.to_thread(self._folders.logs, ReplicaId(replica), lines)
