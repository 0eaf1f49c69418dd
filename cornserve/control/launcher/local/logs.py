"""Read access to replica logs for processes that do not run the launcher."""

from __future__ import annotations

import asyncio

from cornserve.control.launcher.base import ReplicaId
from cornserve.control.launcher.local.state_dir import StateDir
from cornserve.home import Home


class LocalReplicaLogs:
    def __init__(self, home: Home) -> None:
        self._state_dir = StateDir(home.replicas)

    async def __call__(self, replica: str, lines: int) -> list[str]:
        """Returns the last lines of a replica's log. The logs of recently stopped replicas are available as well."""
        return await asyncio.to_thread(self._state_dir.logs, ReplicaId(replica), lines)
