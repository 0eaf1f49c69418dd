"""What all places of a launcher share."""

from __future__ import annotations

from dataclasses import dataclass

from cornserve.control.launcher.local.board import Board
from cornserve.control.launcher.local.folder import Folders
from cornserve.control.launcher.local.slots import Slots


@dataclass(frozen=True, slots=True)
class Machine:
    folders: Folders
    slots: Slots
    board: Board
    drain_seconds: float
    """How long a replica may finish what is in flight."""
    first_pause: float
    longest_pause: float

    def pause(self, failures: int) -> float:
        """Seconds before a replacement starts. What was ready is replaced at once: its start-up was pause enough."""
        return min(self.longest_pause, self.first_pause * 2 ** (failures - 1)) if failures else 0
