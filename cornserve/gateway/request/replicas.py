"""All replicas that this gateway may use: which there are, which is chosen, and how one waits for another.

A connection says to the executor that invocations may still come: an executor that drains ends when it has no more of
them. So there is one to each replica that a route names, before any request; and one that no route names any more is
kept until the requests that began with such a route have ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from types import MappingProxyType

from cornserve.app.record import Route
from cornserve.gateway.observe.replica_metrics import Tallies
from cornserve.gateway.request.replica import Replica

RECONNECT_SECONDS = 1.0
"""How long a lost replica is left alone."""


class Replicas:
    """Replicas by executor key, as the routes name them, with the connections to them."""

    def __init__(self) -> None:
        self._endpoints: Mapping[str, Sequence[str]] = {}
        self._replicas: dict[str, Replica] = {}
        self.tallies = Tallies()
        self._held: dict[int, tuple[Route, int]] = {}
        """By identity, the routes that requests began with, and how many still run."""
        self._has_old = False
        """Whether there are replicas that no route names any more."""
        self._closing: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()

    def update(self, endpoints: Mapping[str, Sequence[str]], ids: Mapping[str, str] = MappingProxyType({})) -> None:
        """Takes what all routes together say now; `ids` are the replicas', by endpoint."""
        self._endpoints = endpoints
        self.tallies.update(endpoints, ids)
        self._leave_old()
        for endpoint in self._named:
            self._get(endpoint)
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def hold(self, route: Route) -> None:
        """A request begins that may use the route's replicas until it is released."""
        _, count = self._held.get(id(route), (route, 0))
        self._held[id(route)] = route, count + 1

    def release(self, route: Route) -> None:
        _, count = self._held.pop(id(route))
        if count > 1:
            self._held[id(route)] = route, count - 1
        elif self._has_old:
            self._leave_old()

    @property
    def _named(self) -> set[str]:
        return {endpoint for group in self._endpoints.values() for endpoint in group}

    def _leave_old(self) -> None:
        """Closes the connections to replicas that no route names, and no request may want."""
        routes = (route for route, _ in self._held.values())
        groups = (group for route in routes for key, group in route.endpoints.items() if key not in self._endpoints)
        named = self._named
        wanted = named.union(*groups)
        for endpoint in [*self._replicas]:
            if endpoint not in wanted and not self._replicas[endpoint].is_needed:
                self._close(self._replicas.pop(endpoint))
        self._has_old = not self._replicas.keys() <= named

    async def change(self, timeout: float) -> None:
        """Returns when `update` is called, or after so many seconds."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), timeout)

    def choose(
        self, key: str, *, otherwise: Sequence[str], avoiding: Set[str] = frozenset(), draw: float | None = None
    ) -> Replica | None:
        """A replica of the group, if one can be reached.

        Args:
            otherwise: the endpoints of a group that no route names any more: an old version's, which drain.
            avoiding: endpoints that are not to be chosen.
            draw: a number in [0, 1), by which the replicas are divided equally. Without it, the one with the fewest of
                this gateway's invocations in flight is chosen, of several the one that has rested longest.
        """
        endpoints = self._endpoints.get(key, otherwise)
        if draw is not None and endpoints:
            start = int(draw * len(endpoints))
            ordered = sorted(endpoints)
            reachable = self._reachable([*ordered[start:], *ordered[:start]], avoiding)
            return next(iter(reachable), None)
        return min(self._reachable(endpoints, avoiding), key=_preference, default=None)

    def is_abandoned(self, key: str) -> bool:
        """Whether no route names the group any more: what it has lost is not replaced."""
        return key not in self._endpoints

    def _reachable(self, endpoints: Sequence[str], avoiding: Set[str]) -> list[Replica]:
        named = [self._get(endpoint) for endpoint in endpoints if endpoint not in avoiding]
        return [replica for replica in named if replica.lost_at is None]

    def _get(self, endpoint: str) -> Replica:
        replica = self._replicas.get(endpoint)
        if replica is None or (replica.lost_at is not None and _now() - replica.lost_at > RECONNECT_SECONDS):
            tally = self.tallies.of(endpoint)
            replica = self._replicas[endpoint] = Replica(endpoint, tally, is_suspect=replica is not None)
        return replica

    def _close(self, replica: Replica) -> None:
        closing = asyncio.create_task(replica.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        await asyncio.gather(*(replica.close() for replica in self._replicas.values()), *self._closing)


def _preference(replica: Replica) -> tuple[bool, int, int]:
    return replica.is_suspect, replica.in_flight, replica.last_start


def _now() -> float:
    return asyncio.get_running_loop().time()
