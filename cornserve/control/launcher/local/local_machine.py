"""State and settings that all replica supervisors of a launcher share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cornserve.backoff import backoff_seconds
from cornserve.control.launcher.local.device_slots import DeviceSlots
from cornserve.control.launcher.local.slab_budget import SlabBudget
from cornserve.control.launcher.local.state_dir import StateDir
from cornserve.control.launcher.local.status_board import StatusBoard
from cornserve.control.launcher.local.warm_processes import WarmProcesses
from cornserve.pull_protocol import PullProtocol
from cornserve.wire.credentials import ConnectionCredentials

STABLE_SECONDS = 10.0
"""A replica that was ready for this long counts as stable: its replacement starts without delay."""

FREE_RESTARTS = 2
"""Number of consecutive unstable replicas that were ready and are still replaced without delay."""


@dataclass(frozen=True, slots=True)
class LocalMachine:
    state_dir: StateDir
    device_slots: DeviceSlots
    status_board: StatusBoard
    secret: Path
    """The file of the instance's secret."""
    tls: Path | None
    """The directory with the files for TLS between processes, or None."""
    drain_seconds: float
    """Timeout for a replica to finish the invocations in flight."""
    queue: int
    """Maximum number of running and queued invocations of a replica."""
    slab_mib: int
    """The most shared memory that a replica's slab takes."""
    transport: PullProtocol
    """The protocol for tensors of other nodes."""
    slab_budget: SlabBudget
    warm_processes: WarmProcesses
    first_delay: float
    longest_delay: float

    def load_credentials(self) -> ConnectionCredentials:
        """Reads the files. Raises `InstanceSecretError` or `TlsFilesError` if they cannot be used."""
        return ConnectionCredentials.load(self.secret, self.tls)

    def restart_delay(self, failures: int, unstable: int) -> float:
        """Returns the seconds until a replacement starts.

        Args:
            failures: consecutive replicas that exited before they were ready.
            unstable: consecutive replicas that exited before they were stable.
        """
        attempts = failures or max(0, unstable - FREE_RESTARTS)
        return backoff_seconds(attempts, first=self.first_delay, longest=self.longest_delay)
