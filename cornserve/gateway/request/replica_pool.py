"""The pool of replica connections, and the selection of a replica for each invocation.

An open connection signals that invocations may still come, so a draining executor exits when its last connection
closes. The pool therefore connects to each routed replica in advance, and keeps the connections to unrouted replicas
until all requests that started with their routes have ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from types import MappingProxyType

from cornserve.concurrency import Broadcast
from cornserve.gateway.observe.replica_metrics import ReplicaStatsRegistry
from cornserve.gateway.request.replica_connection import ReplicaConnection
from cornserve.gateway.request_route import RequestRoute
from cornserve.wire.credentials import ConnectionCredentials

RECONNECT_SECONDS = 1.0
"""The delay before connecting to a lost replica again."""

UNREACHABLE_SECONDS = 10.0
"""The time for which requests wait for replicas of which none can be reached. A controller that works replaces a lost
replica in the route after a fraction of a second."""

FAILED_SECONDS = 30.0
"""The time for which requests wait for a group whose replicas have all failed and do not start again meanwhile."""


class ReplicaPool:
    """Connections to all routed replicas, selected by executor group key."""

    def __init__(self, credentials: ConnectionCredentials) -> None:
        self._credentials = credentials
        self._endpoints: Mapping[str, Sequence[str]] = {}
        self._connections: dict[str, ReplicaConnection] = {}
        self.stats = ReplicaStatsRegistry()
        self._routes_in_use: dict[int, tuple[RequestRoute, int]] = {}
        """Routes that running requests started with, and the number of these requests, by the route's identity."""
        self._failures: dict[str, tuple[str, float]] = {}
        """The groups whose replicas have all failed: the reason, and the time since then."""
        self._has_unrouted = False
        """Whether there are connections to replicas that no route contains any more."""
        self._closing: set[asyncio.Task[None]] = set()
        self._changes = Broadcast()

    def update_routes(
        self,
        endpoints: Mapping[str, Sequence[str]],
        ids: Mapping[str, str] = MappingProxyType({}),
        failures: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        """Connects to new replicas, and closes unneeded connections to removed ones.

        Args:
            endpoints: the endpoints of all routes, by group key.
            ids: replica ids, by endpoint.
            failures: the reasons of the groups whose replicas have all failed, by group key.
        """
        self._endpoints = endpoints
        now = _now()
        self._failures = {
            key: (reason, self._failures[key][1] if key in self._failures else now) for key, reason in failures.items()
        }
        self.stats.update_replicas(endpoints, ids)
        self._close_unrouted()
        for endpoint in self._routed:
            self._connection(endpoint)
        self._changes.notify()

    def acquire_route(self, route: RequestRoute) -> None:
        """Keeps the route's replicas for a request until `release_route`."""
        _, count = self._routes_in_use.get(id(route), (route, 0))
        self._routes_in_use[id(route)] = route, count + 1

    def release_route(self, route: RequestRoute) -> None:
        _, count = self._routes_in_use.pop(id(route))
        if count > 1:
            self._routes_in_use[id(route)] = route, count - 1
        elif self._has_unrouted:
            self._close_unrouted()

    async def wait_for_change(self, timeout: float) -> None:
        """Returns at the next `update_routes`, or after `timeout` seconds."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changes.next_change().wait(), timeout)

    def select(
        self,
        key: str,
        *,
        unrouted_endpoints: Sequence[str],
        exclude: Set[str] = frozenset(),
        draw: float | None = None,
    ) -> ReplicaConnection | None:
        """Returns a reachable replica of the group, or None.

        Args:
            unrouted_endpoints: used if no route contains the group any more: the endpoints of a draining old version.
            exclude: endpoints not to select.
            draw: a number in [0, 1) that selects among the endpoints with equal shares. Without it, the replica with
                the fewest of this gateway's invocations in flight is selected, and among equals the least recently
                used.
        """
        endpoints = self._endpoints.get(key, unrouted_endpoints)
        if draw is not None and endpoints:
            start = int(draw * len(endpoints))
            ordered = sorted(endpoints)
            reachable = self._reachable([*ordered[start:], *ordered[:start]], exclude)
            return next(iter(reachable), None)
        return min(self._reachable(endpoints, exclude), key=_preference, default=None)

    def outage(self, key: str) -> str:
        """Returns why requests to the group must not wait for a replica, or an empty text if one may come soon."""
        now, endpoints = _now(), self._endpoints.get(key, ())
        if endpoints and all(self._is_unreachable_for(endpoint, UNREACHABLE_SECONDS) for endpoint in endpoints):
            return (
                f"none of its {len(endpoints)} executors can be reached, and the controller has not replaced them: see "
                "`cornserve status` and `cornserve doctor`"
            )
        reason, since = self._failures.get(key, ("", now))
        return f"its executors have failed: {reason}" if not endpoints and now - since >= FAILED_SECONDS else ""

    def is_unreachable(self, endpoint: str) -> bool:
        """Returns whether this gateway has lost its connection to a replica, and has not established another."""
        if endpoint in self._connections:
            self._connection(endpoint)  # Connects again: without requests, nothing else would.
        return self._is_unreachable_for(endpoint, 0)

    def _is_unreachable_for(self, endpoint: str, seconds: float) -> bool:
        connection = self._connections.get(endpoint)
        since = None if connection is None else connection.unreachable_since
        return since is not None and _now() - since >= seconds

    def is_unrouted(self, key: str) -> bool:
        """Whether no route contains the group any more, so that lost replicas are not replaced."""
        return key not in self._endpoints

    async def close(self) -> None:
        await asyncio.gather(*(connection.close() for connection in self._connections.values()), *self._closing)

    @property
    def _routed(self) -> set[str]:
        return {endpoint for group in self._endpoints.values() for endpoint in group}

    def _close_unrouted(self) -> None:
        """Closes the connections that neither a route nor a running request needs."""
        routes = (route for route, _ in self._routes_in_use.values())
        groups = (group for route in routes for key, group in route.endpoints.items() if key not in self._endpoints)
        routed = self._routed
        needed = routed.union(*groups)
        for endpoint in [*self._connections]:
            if endpoint not in needed and not self._connections[endpoint].is_in_use:
                self._close_later(self._connections.pop(endpoint))
        self._has_unrouted = not self._connections.keys() <= routed

    def _reachable(self, endpoints: Sequence[str], exclude: Set[str]) -> list[ReplicaConnection]:
        connections = [self._connection(endpoint) for endpoint in endpoints if endpoint not in exclude]
        return [connection for connection in connections if connection.lost_at is None]

    def _connection(self, endpoint: str) -> ReplicaConnection:
        connection = self._connections.get(endpoint)
        if connection is None or (connection.lost_at is not None and _now() - connection.lost_at > RECONNECT_SECONDS):
            connection = self._connections[endpoint] = ReplicaConnection(
                endpoint,
                self._credentials,
                self.stats.for_endpoint(endpoint),
                unreachable_since=None if connection is None else connection.unreachable_since,
            )
        return connection

    def _close_later(self, connection: ReplicaConnection) -> None:
        closing = asyncio.create_task(connection.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


def _preference(connection: ReplicaConnection) -> tuple[bool, int, int]:
    return connection.is_suspect, connection.in_flight, connection.last_start


def _now() -> float:
    return asyncio.get_running_loop().time()
