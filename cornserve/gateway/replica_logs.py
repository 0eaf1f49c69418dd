"""Where the gateway reads what executors wrote."""

from __future__ import annotations

from typing import Protocol


class Logs(Protocol):
    async def __call__(self, replica: str, lines: int) -> list[str]:
        """The replica's last lines; none if it is not known."""
