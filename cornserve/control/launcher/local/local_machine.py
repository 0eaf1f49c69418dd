"""What all places of a launcher share."""

from __future__ import annotations

from dataclasses import dataclass

from cornserve.control.launcher.local.device_slots import DeviceSlots
from cornserve.control.launcher.local.state_dir import StateDir
from cornserve.control.launcher.local.status_board import StatusBoard

STEADY_SECONDS = 10.0
"""A replica that was ready for so long has not died of what it is: its replacement starts at once."""

FREE_DEATHS = 2
"""So many deaths in a row of replicas that were ready, but not steady, are met by a replacement at once."""


@dataclass(frozen=True, slots=True)
class LocalMachine:
    folders: StateDir
    slots: DeviceSlots
    board: StatusBoard
    drain_seconds: float
    """How long a replica may finish what is in flight."""
    queue: int
    """How many invocations a replica works on or keeps waiting."""
    slab_mib: int
    """How much a replica keeps in shared memory for others."""
    first_pause: float
    longest_pause: float

    def pause(self, failures: int, deaths: int) -> float:
        """Seconds before a replacement starts.

        Args:
            failures: replicas in a row that have ended before they were ready.
            deaths: replicas in a row that have ended before they were steady.
        """
        vain = failures or max(0, deaths - FREE_DEATHS)
        return min(self.longest_pause, self.first_pause * 2 ** (min(vain, 30) - 1)) if vain else 0
