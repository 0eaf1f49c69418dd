"""The election of one process among several, with a Lease."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from cornserve.concurrency import run_unless
from cornserve.kubernetes.client import KubeClient
from cornserve.kubernetes.errors import KubeAlreadyExistsError, KubeApiError, KubeConflictError
from cornserve.kubernetes.informer import Informer
from cornserve.kubernetes.lease_lock import LeaseLock, is_held_by
from cornserve.kubernetes.resources import LEASES, JsonObject
from cornserve.observe.error_log import ErrorLog

log = logging.getLogger(__name__)

RELEASE_SECONDS = 3.0
"""Timeout of the release of the Lease at the end."""


class LeaseLostError(Exception):
    """Another process holds the Lease."""


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """Durations in seconds. By default, a leader sends one request every five seconds."""

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
    clock of this process's event loop. Candidates watch the Lease, and send requests only when they can take it.

    Args:
        name: the name of the Lease.
        identity: the name of this process, unique among the candidates and different after a restart.
    """

    def __init__(self, client: KubeClient, name: str, identity: str, times: LeaseTimes | None = None) -> None:
        self._name = name
        self._identity = identity
        self._times = times or LeaseTimes()
        self._lock = LeaseLock(client, name, identity, self._times.duration)
        self._leases = Informer(client, LEASES, field_selector=f"metadata.name={name}")
        self._seen: JsonObject | None = None
        """The spec of the Lease when it changed last."""
        self._seen_at = 0.0
        self._errors = ErrorLog(log, f"cannot write the Lease {name}, retrying: %s")

    async def run(self, while_leading: Callable[[], Awaitable[None]]) -> None:
        """Waits for the Lease and then runs `while_leading`, again after each loss of the Lease.

        When the Lease cannot be renewed in time, `while_leading` is cancelled before another process can take it.
        Returns when `while_leading` returns, and raises its error. Releases the Lease at the end and when cancelled.
        """
        async with self._leases.running():
            while True:
                lease, renewed_at = await self._acquire()
                log.info("%s leads: it holds the Lease %s", self._identity, self._name)
                if await self._lead(lease, renewed_at, while_leading):
                    return
                log.error("%s does not lead any more: it could not renew the Lease %s", self._identity, self._name)

    async def _acquire(self) -> tuple[JsonObject, float]:
        """Waits until this process holds the Lease. Returns it and the time when it was taken."""
        while True:
            changed = self._leases.next_change()
            self._observe(self._leases.objects.get(self._name))
            pause = self._remaining_seconds()
            if pause <= 0:
                started = asyncio.get_running_loop().time()
                lease = await self._try_to_take()
                if lease is not None:
                    return lease, started
                pause = max(self._remaining_seconds(), self._times.retry_interval)
            # The jitter separates candidates that wait for the same Lease.
            with suppress(TimeoutError):
                async with asyncio.timeout(pause * random.uniform(1.0, 1.2)):
                    await changed.wait()

    def _observe(self, lease: JsonObject | None) -> None:
        spec = lease["spec"] if lease is not None else None
        if spec != self._seen:
            self._seen = spec
            self._seen_at = asyncio.get_running_loop().time()

    def _remaining_seconds(self) -> float:
        """Returns the time after which the Lease can be taken."""
        if self._seen is None or self._seen.get("holderIdentity") in (None, "", self._identity):
            return 0.0
        return float(self._seen_at + (self._seen.get("leaseDurationSeconds") or 0) - asyncio.get_running_loop().time())

    async def _try_to_take(self) -> JsonObject | None:
        """Returns the Lease, or None if another process holds it or the API server is away."""
        try:
            lease = await self._lock.read()  # The watch may be behind.
            self._observe(lease)
            if self._remaining_seconds() > 0:
                return None
            lease = await self._lock.take(lease)
        except (KubeAlreadyExistsError, KubeConflictError):
            return None
        except KubeApiError as error:
            self._errors.report(str(error))
            return None
        self._errors.clear()
        return lease

    async def _lead(self, lease: JsonObject, renewed_at: float, while_leading: Callable[[], Awaitable[None]]) -> bool:
        """Runs the work while the Lease is renewed. Returns whether the work has ended by itself."""
        lost = asyncio.Event()
        renewing = asyncio.create_task(self._renew_until_lost(lease, renewed_at, lost))
        try:
            return await run_unless(lost, while_leading())
        finally:
            renewing.cancel()
            await asyncio.gather(renewing, return_exceptions=True)
            await self._release()

    async def _renew_until_lost(self, lease: JsonObject, renewed_at: float, lost: asyncio.Event) -> None:
        """Renews the Lease, and sets `lost` when another process holds it, or at the deadline."""
        try:
            while True:
                pause = self._times.renew_interval
                async with asyncio.timeout_at(renewed_at + self._times.renew_deadline):
                    await asyncio.sleep(pause * random.uniform(0.8, 1.0))
                    lease, renewed_at = await self._renew(lease)
        except LeaseLostError as error:
            log.warning("%s", error)
        except TimeoutError:
            log.warning("the Lease %s was not renewed within %s s", self._name, self._times.renew_deadline)
        finally:
            lost.set()

    async def _renew(self, lease: JsonObject) -> tuple[JsonObject, float]:
        """Repeats the renewal until it succeeds. Raises `LeaseLostError`."""
        while True:
            started = asyncio.get_running_loop().time()
            try:
                try:
                    renewed = await self._lock.renew(lease)
                except KubeConflictError:
                    lease = await self._read_held()
                    renewed = await self._lock.renew(lease)
            except KubeApiError as error:
                self._errors.report(str(error))
                await asyncio.sleep(self._times.retry_interval * random.uniform(0.8, 1.2))
            else:
                self._errors.clear()
                return renewed, started

    async def _read_held(self) -> JsonObject:
        """Returns the Lease, of which another field, such as an annotation, has changed. Raises `LeaseLostError`."""
        lease = await self._lock.read()
        if lease is None or not is_held_by(lease, self._identity):
            holder = lease["spec"].get("holderIdentity") if lease is not None else None
            raise LeaseLostError(f"the Lease {self._name} has been taken: its holder is {holder or 'nobody'}")
        return lease

    async def _release(self) -> None:
        """Releases the Lease if this process still holds it."""
        with suppress(KubeApiError, TimeoutError):
            async with asyncio.timeout(RELEASE_SECONDS):
                lease = await self._lock.read()
                if lease is not None and is_held_by(lease, self._identity):
                    await self._lock.release(lease)
