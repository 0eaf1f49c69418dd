"""The pool of replica connections, and the selection of a replica for each invocation.

An open connection signals that invocations may still come, so a draining executor exits when its last connection
closes. The pool therefore connects to each routed replica in advance, and keeps the connections to unrouted replicas
until all requests that started with their routes have ended.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass

from cornserve.concurrency import Broadcast
from cornserve.gateway.observe.replica_metrics import ReplicaStatsRegistry
from cornserve.gateway.request.invocation_queues import InvocationQueues
from cornserve.gateway.request.replica_connection import ReplicaConnection
from cornserve.gateway.request_route import RequestRoute
from cornserve.wire.credentials import ConnectionCredentials
from cornserve_policies.board import Board, ReplicaLoad
from cornserve_policies.replica_routing import RoutedInvocation, RoutingPolicy

OnChoice = Callable[[RoutedInvocation, Board, float, ReplicaLoad], None]
"""Called with an invocation, the loads, the time and the chosen replica."""

RECONNECT_SECONDS = 1.0
"""The delay before connecting to a lost replica again."""

CHECK_SECONDS = 1.0
"""The time for which no replica of a group must be reachable before the machine is checked, and the interval of the
checks."""

UNREACHABLE_SECONDS = 10.0
"""The time for which requests wait for replicas of which none can be reached. A controller that works replaces a lost
replica in the route after a fraction of a second."""

FAILED_SECONDS = 30.0
"""The time for which requests wait for a group whose replicas have all failed and do not start again meanwhile."""


@dataclass(frozen=True, slots=True)
class _ReplacedGroup:
    """A group that no route contains any more, because another group runs the same executor instead.

    Args:
        successor: the other group.
        digest: the digest of the model that its replicas have loaded. Empty if it is unknown or differs.
        endpoints: its replicas.
    """

    successor: str
    digest: str
    endpoints: Set[str]


class ReplicaPool:
    """Connections to all routed replicas, selected by executor group key.

    Args:
        find_start_problem: returns why no replica can start on this machine, or an empty text. It may block.
    """

    def __init__(self, credentials: ConnectionCredentials, find_start_problem: Callable[[], str] = lambda: "") -> None:
        self._credentials = credentials
        self._find_start_problem = find_start_problem
        self._start_problem = ""
        self._next_check = 0.0
        """The time of the next check of `start_problem`."""
        self._check = asyncio.Lock()
        self._endpoints: dict[str, Sequence[str]] = {}
        """The endpoints of each routed group, sorted, so that all gateways have the same order."""
        self._groups: defaultdict[str, set[str]] = defaultdict(set)
        """The routed groups of each endpoint."""
        self._connections: dict[str, ReplicaConnection] = {}
        self.stats = ReplicaStatsRegistry()
        self.queues = InvocationQueues()
        """The invocations that wait for capacity on a replica."""
        self._routes_in_use: dict[int, tuple[RequestRoute, int]] = {}
        """Routes that running requests started with, and the number of these requests, by the route's identity."""
        self._failures: dict[str, tuple[str, float]] = {}
        """The groups whose replicas have all failed: the reason, and the time since then."""
        self._waiting: set[str] = set()
        """The groups without a ready replica: those that are known may not be reached."""
        self._missing: dict[str, float] = {}
        """The routed groups whose replicas cannot be found, and the time since then."""
        self._unrouted: set[str] = set()
        """The connected endpoints that no route contains."""
        self._replaced: dict[str, _ReplacedGroup] = {}
        self._leaving: dict[str, Set[str]] = {}
        """The replicas of replaced groups that leave when their successor is known to have the same model."""
        self._closing: set[asyncio.Task[None]] = set()
        self._changes = Broadcast()

    def update_group(
        self,
        key: str,
        replicas: Mapping[str, str] | None,
        failure: str = "",
        *,
        is_waiting: bool = False,
        paused: Set[str] = frozenset(),
    ) -> None:
        """Connects to new replicas, and closes unneeded connections to removed ones.

        Args:
            replicas: replica ids by endpoint, or None if no route contains the group any more.
            failure: the reason if all replicas of the group have failed, or an empty text.
            is_waiting: whether no replica is ready, so that requests wait for others if none can be reached.
            paused: removed endpoints that may come back, so that their running requests stay there.
        """
        (self._waiting.add if is_waiting else self._waiting.discard)(key)
        self._missing.pop(key, None)
        removed = set(self._endpoints.pop(key, ()))
        if replicas is not None:
            self._replaced.pop(key, None)
            self._leaving.pop(key, None)
            self._endpoints[key] = sorted(replicas)
            removed -= replicas.keys()
        if failure:
            self._failures[key] = failure, self._failures[key][1] if key in self._failures else _now()
        else:
            self._failures.pop(key, None)
        for endpoint in removed:
            self._remove(key, endpoint)
        for endpoint, id in (replicas or {}).items():
            self._groups[endpoint].add(key)
            self._unrouted.discard(endpoint)
            self.stats.add(key, endpoint, id)
            self._connection(endpoint)
        self.close_unrouted()
        self._changes.notify()
        self.queues.serve_soon(key)
        if replicas:  # Those that remain can take running invocations over.
            for endpoint in (removed & self._unrouted) - paused:
                self._connections[endpoint].leave()
        elif removed and key in self._replaced:
            self._leaving[key] = removed - paused
        self._leave_replaced()

    def replace_groups(self, successors: Mapping[str, str]) -> None:
        """Lets running requests of groups continue in others, once no route contains the groups any more.

        Args:
            successors: the key of another group that runs the same executor, for example after a restart.
        """
        for key, successor in successors.items():
            endpoints = self._endpoints.get(key, ())
            digests = {self._connections[each].model_digest for each in endpoints if each in self._connections}
            digest = (digests.pop() if len(digests) == 1 else None) or ""
            self._replaced.pop(successor, None)  # It is used again, as after a return to an earlier plan.
            self._leaving.pop(successor, None)
            self._replaced[key] = _ReplacedGroup(successor, digest, frozenset(endpoints))

    def left_invocations(self, keys: Set[str]) -> int:
        """Returns the running invocations at the replicas of groups that these groups have replaced."""
        left = (endpoint for key in self._replaced if self._successor(key) in keys for endpoint in self._left(key))
        return sum(self._connections[endpoint].in_flight for endpoint in {*left})

    def _left(self, key: str) -> Set[str]:
        """Returns the connected replicas of a replaced group that no route contains."""
        return frozenset() if key in self._endpoints else self._replaced[key].endpoints & self._unrouted

    def _successor(self, key: str) -> str:
        """Returns the routed group that has replaced a group, or the last known one."""
        while key not in self._endpoints and key in self._replaced:
            key = self._replaced[key].successor
        return key

    def _successor_endpoints(self, key: str) -> Sequence[str]:
        """Returns the replicas of the group that has replaced a group, if they have loaded the same model."""
        if key in self._endpoints or key not in self._replaced:
            return ()
        digest = self._replaced[key].digest
        return [each for each, found in self._successor_digests(key).items() if digest and found == digest]

    def _successor_digests(self, key: str) -> Mapping[str, str | None]:
        """Returns the digests of the models that a group's successors have loaded, None for those not known yet."""
        return {each: self._connections[each].model_digest for each in self._endpoints.get(self._successor(key), ())}

    def _reconnect_successors(self, key: str) -> None:
        """Connects again to the lost replicas of the group that has replaced a group."""
        for endpoint in self._endpoints.get(self._successor(key), ()):
            self._connection(endpoint)

    def _leave_replaced(self) -> None:
        """Informs the replicas of replaced groups whose requests can continue in their successors."""
        for key in [*self._leaving]:
            self._reconnect_successors(key)
            if self._successor_endpoints(key):
                for endpoint in self._leaving.pop(key) & self._unrouted:
                    self._connections[endpoint].leave()

    def keep_group(self, key: str) -> None:
        """Keeps the connections to a routed group whose replicas cannot be found any more: they may still run."""
        self._endpoints.setdefault(key, ())
        self._missing.setdefault(key, _now())
        self._changes.notify()

    def _remove(self, key: str, endpoint: str) -> None:
        """Removes an endpoint from a group."""
        groups = self._groups[endpoint]
        groups.remove(key)
        if not groups:
            del self._groups[endpoint]
            self._unrouted.add(endpoint)
            self.stats.remove(endpoint)

    def acquire_route(self, route: RequestRoute) -> None:
        """Keeps the route's replicas for a request until `release_route`."""
        _, count = self._routes_in_use.get(id(route), (route, 0))
        self._routes_in_use[id(route)] = route, count + 1

    def release_route(self, route: RequestRoute) -> None:
        _, count = self._routes_in_use.pop(id(route))
        if count > 1:
            self._routes_in_use[id(route)] = route, count - 1
        else:
            self.close_unrouted()

    async def wait_for_change(self, timeout: float) -> None:
        """Returns at the next `update_group`, or after `timeout` seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._changes.next_change().wait()

    def select(
        self,
        key: str,
        routing: RoutingPolicy,
        invocation: RoutedInvocation,
        *,
        unrouted_endpoints: Sequence[str],
        exclude: Set[str] = frozenset(),
        needs_capacity: bool = False,
        on_choice: OnChoice | None = None,
    ) -> ReplicaConnection | None:
        """Returns the reachable replica of the group that the policy chooses, or None.

        Args:
            unrouted_endpoints: used if no route contains the group any more: the endpoints of a draining old version.
            exclude: endpoints not to select.
            needs_capacity: whether to select only replicas that can begin the invocation soon.
            on_choice: called with the replica that is chosen, and with all that the policy read.
        """
        if key not in self._endpoints:
            self._reconnect_successors(key)
        endpoints = self._selectable_endpoints(key, unrouted_endpoints)
        connections = [self._connection(endpoint) for endpoint in endpoints]
        board, now = _board(connections, exclude), _now()
        if needs_capacity:
            board = board.with_capacity(invocation.size.tokens, now)
        chosen = routing.choose(invocation, board, now)
        if chosen is None:
            return None
        if on_choice is not None:
            on_choice(invocation, board, now, chosen)
        return self._connections[chosen.id]

    def max_model_len(self, keys: Iterable[str]) -> int | None:
        """Returns the smallest context length of the connected replicas of these groups, in tokens, or None."""
        endpoints = {endpoint for key in keys for endpoint in self._endpoints.get(key, ())}
        connections = (self._connections[endpoint] for endpoint in endpoints if endpoint in self._connections)
        return min((length for each in connections if (length := each.max_model_len) is not None), default=None)

    def replica_count(self, key: str, unrouted_endpoints: Sequence[str]) -> int:
        """Returns the number of replicas from which `select` chooses."""
        return len(self._selectable_endpoints(key, unrouted_endpoints))

    def _selectable_endpoints(self, key: str, unrouted_endpoints: Sequence[str]) -> Sequence[str]:
        if key in self._endpoints:
            return self._endpoints[key]
        if successors := self._successor_endpoints(key):
            return successors
        if self.may_get_replicas(key):  # Those replace lost ones.
            known = self._connections
            unrouted_endpoints = [each for each in unrouted_endpoints if each in known and not known[each].is_suspect]
        return sorted(unrouted_endpoints)

    def outage(self, key: str) -> str:
        """Returns why requests to the group must not wait for a replica, or an empty text if one may come soon."""
        key = self._successor(key)
        now, endpoints = _now(), self._endpoints.get(key, ())
        if self.is_missing(key):
            return (
                f"no endpoint of the executor {key} can be found, so sending the request again does not help: see "
                "`cornserve doctor`"
            )
        if key in self._missing:
            return ""
        if not endpoints or key in self._waiting:
            reason, since = self._failures.get(key, ("", now))
            return f"its executors have failed: {reason}" if now - since >= FAILED_SECONDS else ""
        if all(self._is_unreachable_for(endpoint, UNREACHABLE_SECONDS) for endpoint in endpoints):
            return (
                f"none of its {len(endpoints)} executors can be reached, and the controller has not replaced them: see "
                "`cornserve status` and `cornserve doctor`"
            )
        return ""

    def is_missing(self, key: str) -> bool:
        """Whether the replicas of a routed group cannot be found, and the controller has not corrected it."""
        key = self._successor(key)
        return key in self._missing and _now() - self._missing[key] >= UNREACHABLE_SECONDS

    async def start_problem(self, key: str) -> str:
        """Returns why the lost replicas of a group cannot be replaced, for example because the disk is full.

        Returns an empty text if one of them can be reached, or if others can start.
        """
        endpoints = self._endpoints.get(self._successor(key), ())
        if not all(self._is_unreachable_for(endpoint, CHECK_SECONDS) for endpoint in endpoints):
            return ""
        async with self._check:
            if _now() >= self._next_check:
                self._start_problem = await asyncio.to_thread(self._find_start_problem)
                self._next_check = _now() + CHECK_SECONDS
        return self._start_problem and f"its executors are lost, and others {self._start_problem}"

    def is_unreachable(self, endpoint: str) -> bool:
        """Returns whether this gateway has lost its connection to a replica, and has not established another."""
        if endpoint in self._connections:
            self._connection(endpoint)  # Connects again: without requests, nothing else would.
        return self._is_unreachable_for(endpoint, 0)

    def _is_unreachable_for(self, endpoint: str, seconds: float) -> bool:
        connection = self._connections.get(endpoint)
        since = None if connection is None else connection.unreachable_since
        return since is not None and _now() - since >= seconds

    def may_get_replicas(self, key: str) -> bool:
        """Whether other replicas may run the invocations of lost ones: replicas of the group, or of one that has
        replaced it and may load the same model."""
        if key in self._endpoints:
            return True
        if self._successor(key) not in self._endpoints or not self._replaced[key].digest:
            return False
        digests = {*self._successor_digests(key).values()}
        return not digests or not digests.isdisjoint({None, self._replaced[key].digest})

    async def close(self) -> None:
        await asyncio.gather(*(connection.close() for connection in self._connections.values()), *self._closing)

    def close_unrouted(self) -> None:
        """Closes the connections that neither a route nor a running request needs."""
        if self._unrouted:
            self._close_unneeded()
        if self._replaced:
            self._forget_replaced()

    def _close_unneeded(self) -> None:
        routes = (route for route, _ in self._routes_in_use.values())
        groups = (
            group
            for route in routes
            for key, group in route.endpoints.items()
            if key not in self._endpoints and not self._successor_endpoints(key)
        )
        for endpoint in self._unrouted.difference(*groups):
            if not self._connections[endpoint].is_in_use:
                self._close_later(self._connections.pop(endpoint))
                self._unrouted.remove(endpoint)

    def _forget_replaced(self) -> None:
        """Forgets the replaced groups that no running request may need."""
        used = {key for route, _ in self._routes_in_use.values() for key in route.endpoints}
        for key in self._replaced.keys() - self._endpoints.keys() - used:
            if not self._left(key):
                del self._replaced[key]
                self._leaving.pop(key, None)

    def _connection(self, endpoint: str) -> ReplicaConnection:
        connection = self._connections.get(endpoint)
        if connection is None and endpoint not in self._groups:
            self._unrouted.add(endpoint)
        if connection is None or (connection.lost_at is not None and _now() - connection.lost_at > RECONNECT_SECONDS):
            connection = self._connections[endpoint] = ReplicaConnection(
                endpoint,
                self._credentials,
                self.stats.for_endpoint(endpoint),
                unreachable_since=None if connection is None else connection.unreachable_since,
                on_load=self._on_load,
            )
        return connection

    def _on_load(self, endpoint: str) -> None:
        self._leave_replaced()
        for group in self._groups.get(endpoint, ()):
            self.queues.serve_soon(group)

    def _close_later(self, connection: ReplicaConnection) -> None:
        closing = asyncio.create_task(connection.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)


def _board(connections: Sequence[ReplicaConnection], exclude: Set[str]) -> Board:
    """Returns the loads. Replicas that may be lost are available only if all others are lost."""
    unavailable = exclude
    if suspects := {replica.endpoint for replica in connections if replica.is_suspect}:
        unavailable = exclude | {replica.endpoint for replica in connections if replica.lost_at is not None}
        if any(replica.endpoint not in unavailable | suspects for replica in connections):
            unavailable |= suspects
    return Board([replica.load for replica in connections], unavailable)


def _now() -> float:
    return asyncio.get_running_loop().time()
