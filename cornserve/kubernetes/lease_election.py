"""The election of one process among several, with a Lease."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from cornserve.concurrency import run_unless
from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.errors import (
    KubeAlreadyExistsError,
    KubeApiError,
    KubeConflictError,
    KubeNotFoundError,
)
from cornserve.kubernetes.informer import Informer
from cornserve.kubernetes.resources import LEASES, JsonObject

log = logging.getLogger(__name__)

RELEASE_SECONDS = 3.0
"""Timeout of the release of the Lease at the end."""


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Durations in seconds. The defaults cost a leader one request every five seconds."""

    duration: int = 15
    """The time after the last renewal at which another process takes the Lease."""
    renew_deadline: float = 10.0
    """The time after the last renewal at which the leader stops. It has the rest of `duration` to end its work."""
    renew_interval: float = 5.0
    retry_interval: float = 1.0
    """The interval of attempts after an error."""

    def __post_init__(self) -> None:
        if not 0 < self.retry_interval <= self.renew_interval < self.renew_deadline < self.duration:
            raise ValueError(f"invalid times of a Lease: {self}: retry <= renew < deadline < duration must hold")


class LeaseElection:
    """Runs work in the one process that holds the Lease.

    Clocks of different machines are not compared: a Lease has expired when it has not changed for its duration on the
    monotonic clock of this process.

    Args:
        name: the name of the Lease.
        identity: the name of this process, unique among the candidates and different after a restart.
    """

    def __init__(self, client: KubeClient, name: str, identity: str, times: LeaseTimes | None = None) -> None:
        self._client = client
        self._name = name
        self._identity = identity
        self._times = times or LeaseTimes()
        self._leases = Informer(client, LEASES, field_selector=f"metadata.name={name}")
        self._seen: JsonObject | None = None
        """The spec of the Lease when it last changed."""
        self._seen_at = 0.0
        self.is_leader = False

    @property
    def holder(self) -> str:
        """The identity of the leader, as far as this process knows, or an empty text."""
        lease = self._leases.objects.get(self._name)
        return str(lease["spec"].get("holderIdentity") or "") if lease is not None else ""

    async def run(self, while_leading: Callable[[], Awaitable[None]]) -> None:
        """Waits for the Lease and then runs `while_leading`, again after each loss of the Lease.

        When the Lease cannot be renewed in time, `while_leading` is cancelled before another process can take it.
        Returns when `while_leading` returns, and raises its error. Releases the Lease at the end and when cancelled.
        """
        watching = asyncio.create_task(self._leases.run())
        try:
            while True:
                await self._acquire()
                log.info("%s leads: it holds the Lease %s", self._identity, self._name)
                if await self._lead(while_leading):
                    return
                log.error("%s does not lead any more: it could not renew the Lease %s", self._identity, self._name)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _acquire(self) -> None:
        """Returns when this process holds the Lease."""
        while True:
            changed = self._leases.next_change()
            self._observe(self._leases.objects.get(self._name))
            remaining = self._remaining_seconds()
            if self._leases.synced.is_set() and remaining <= 0:
                try:
                    if await self._take():
                        return
                    continue
                except KubeApiError as error:
                    log.warning("cannot take the Lease %s, retrying: %s", self._name, error)
                    remaining = self._times.retry_interval
            # The jitter separates candidates that wait for the same Lease.
            with suppress(TimeoutError):
                async with asyncio.timeout(max(remaining, 0.01) * random.uniform(1.0, 1.2)):
                    await changed.wait()

    def _observe(self, lease: JsonObject | None) -> None:
        spec = lease["spec"] if lease is not None else None
        if spec != self._seen:
            self._seen = spec
            self._seen_at = time.monotonic()

    def _remaining_seconds(self) -> float:
        """Returns the time after which the Lease may be taken."""
        if self._seen is None or self._seen.get("holderIdentity") in (None, "", self._identity):
            return 0.0
        duration = self._seen.get("leaseDurationSeconds") or self._times.duration
        return float(self._seen_at + duration - time.monotonic())

    async def _take(self) -> bool:
        """Writes this process into the Lease. Returns whether it holds it; otherwise another process has changed it."""
        try:
            lease = await self._client.get(LEASES, self._name)
        except KubeNotFoundError:
            lease = None
        self._observe(lease)
        if self._remaining_seconds() > 0:
            return False
        self._renewed_at = time.monotonic()
        try:
            if lease is None:
                self._lease = await self._client.create(LEASES, self._new_lease())
            else:
                transitions = int(lease["spec"].get("leaseTransitions") or 0) + 1
                lease["spec"] = self._held_spec(transitions)
                self._lease = await self._client.replace(LEASES, lease)
        except (KubeAlreadyExistsError, KubeConflictError):
            return False
        return True

    async def _lead(self, while_leading: Callable[[], Awaitable[None]]) -> bool:
        """Runs the work while the Lease is renewed. Returns whether the work has ended by itself."""
        lost = asyncio.Event()
        renewing = asyncio.create_task(self._renew_until_lost(lost))
        self.is_leader = True
        try:
            return await run_unless(lost, while_leading())
        finally:
            self.is_leader = False
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
            if not lost.is_set():
                await self._release()

    async def _renew_until_lost(self, lost: asyncio.Event) -> None:
        try:
            while await self._renew():
                await asyncio.sleep(self._times.renew_interval)
        finally:
            lost.set()
