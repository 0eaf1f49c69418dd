"""The interface to the logs of executors."""

from __future__ import annotations

from typing import Protocol


class ReplicaLogReader(Protocol):
    async def __call__(self, replica: str, lines: int) -> list[str]:
        """Returns the replica's last lines, or an empty list if the replica is unknown."""
