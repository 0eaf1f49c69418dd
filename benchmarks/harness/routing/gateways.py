"""Gateways that route invocations to replicas, by a policy or after queries for all loads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import cast

from benchmarks.harness.routing.replicas import CREDENTIALS, QUERY, ReplicaAddress
from cornserve.gateway.request.replica_connection import ReplicaConnection
from cornserve.gateway.request.replica_pool import ReplicaPool
from cornserve.v1 import executor_pb2 as pb
from cornserve_echo.stages import StageRequest
from cornserve_policies.input_size import InputSize
from cornserve_policies.registry import routing_policy
from cornserve_policies.replica_routing import RoutedInvocation

GROUP = "stages"
QUERIES = "queries"
"""Asks all replicas for their loads before each invocation, and chooses the least loaded one [C §5.3]."""

REQUEST = StageRequest(items={"llm": 1}).model_dump_json().encode()


class LoadQuery(asyncio.Protocol):
    """The connection for queries to one replica."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport
        self._waiting: list[asyncio.Future[int]] = []
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4:
            self._waiting.pop(0).set_result(int.from_bytes(self._received[:4], "big"))
            self._received = self._received[4:]

    def ask(self) -> asyncio.Future[int]:
        """Returns the number of invocations of the replica."""
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        self._transport.write(QUERY)
        return answer

    def close(self) -> None:
        self._transport.close()


@dataclass(slots=True)
class RouteTimes:
    """The measurements of the requests of all gateways."""

    decision_seconds: list[float] = field(default_factory=list)
    response_seconds: list[float] = field(default_factory=list)
    """Times from the arrival of a request to its end."""
    imbalances: list[int] = field(default_factory=list)
    """The difference between the most and the fewest invocations of a replica, at each arrival."""


class EndListener:
    """Waits for the end of an invocation."""

    def __init__(self) -> None:
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def on_chunk(self, output: str, item: bytes) -> None: ...

    def on_replica_leaving(self) -> None: ...

    def on_handed_over(self, message: str, *, has_state: bool) -> None: ...

    def on_inputs_taken(self, inputs: Sequence[int]) -> None: ...

    def on_compute_time(self, seconds: float) -> None: ...

    def on_inputs_lost(self, inputs: Sequence[int], message: str) -> None:
        self.ended.set_result(message)

    def on_end(self, code: str, message: str, values: bytes) -> None:
        self.ended.set_result("" if code == "OK" else f"{code}: {message}")


class RoutingGateway:
    """Routes invocations like a gateway.

    Args:
        policy: the name of a policy, or `QUERIES`.
        running: the invocations at each replica, of all gateways.
    """

    def __init__(self, policy: str, running: dict[str, int], times: RouteTimes) -> None:
        self._policy = routing_policy("least-loaded" if policy == QUERIES else policy)
        self._asks = policy == QUERIES
        self._running = running
        self._times = times
        self._pool = ReplicaPool(CREDENTIALS)
        self._queries: dict[str, LoadQuery] = {}

    async def connect(self, replicas: Sequence[ReplicaAddress], stack: AsyncExitStack) -> None:
        self._pool.update_group(GROUP, {replica.endpoint: replica.endpoint for replica in replicas})
        stack.push_async_callback(self._pool.close)
        if self._asks:
            loop = asyncio.get_running_loop()
            for replica in replicas:
                _, query = await loop.create_connection(LoadQuery, "127.0.0.1", replica.load_port)
                self._queries[replica.endpoint] = query
                stack.callback(query.close)

    async def serve(self, number: int) -> None:
        """Serves one request. Raises RuntimeError if it fails."""
        times, running = self._times, self._running
        times.imbalances.append(max(running.values()) - min(running.values()))
        arrived = time.perf_counter()
        invocation = RoutedInvocation(f"request {number}", 0, InputSize())
        replica = await self._ask_all() if self._asks else self._choose(invocation)
        times.decision_seconds.append(time.perf_counter() - arrived)
        listener = EndListener()
        running[replica.endpoint] += 1
        start = pb.Start(request_id=invocation.request_id, request=REQUEST)
        call = replica.start_invocation(pb.Command(start=start), listener)
        error = await listener.ended
        running[replica.endpoint] -= 1
        if error:
            raise RuntimeError(f"an invocation failed: {error}")
        replica.release_tensors(call)
        times.response_seconds.append(time.perf_counter() - arrived)

    def _choose(self, invocation: RoutedInvocation, excluded: frozenset[str] = frozenset()) -> ReplicaConnection:
        chosen = self._pool.select(GROUP, self._policy, invocation, unrouted_endpoints=[], exclude=excluded)
        if chosen is None:
            raise RuntimeError("no replica can be reached")
        return chosen

    async def _ask_all(self) -> ReplicaConnection:
        answers = await asyncio.gather(*(query.ask() for query in self._queries.values()))
        least = min(range(len(answers)), key=answers.__getitem__)
        endpoint = [*self._queries][least]
        others = frozenset(self._queries.keys() - {endpoint})
        return self._choose(RoutedInvocation("", 0, InputSize()), others)
