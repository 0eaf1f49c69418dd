"""Selection of replicas, and the lifetime of the connections to them."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence, Set

import pytest
import pytest_asyncio

from cornserve.gateway.request import replica_pool
from cornserve.gateway.request.replica_connection import ReplicaConnection
from cornserve.gateway.request.replica_pool import ReplicaPool
from cornserve.gateway.request_route import RequestRoute
from cornserve.v1 import executor_pb2 as pb
from cornserve_echo import EchoTask
from cornserve_policies.input_size import InputSize
from cornserve_policies.registry import routing_policy
from cornserve_policies.replica_routing import RoutedInvocation
from tests.credentials import CREDENTIALS
from tests.unit.echo_executors import EchoExecutors
from tests.waiting import until


class NullListener:
    def on_chunk(self, output: str, item: bytes) -> None: ...

    def on_replica_leaving(self) -> None: ...

    def on_handed_over(self, message: str, *, has_state: bool) -> None: ...

    def on_inputs_taken(self, inputs: Sequence[int]) -> None: ...

    def on_compute_time(self, seconds: float) -> None: ...

    def on_inputs_lost(self, inputs: Sequence[int], message: str) -> None: ...

    def on_end(self, code: str, message: str, values: bytes) -> None: ...


@pytest_asyncio.fixture(loop_scope="module")
async def endpoints(executors: EchoExecutors) -> list[str]:
    return [await executors.replica(EchoTask().spec) for _ in range(3)]


@pytest_asyncio.fixture(loop_scope="module")
async def replicas(endpoints: list[str]) -> AsyncIterator[ReplicaPool]:
    replicas = ReplicaPool(CREDENTIALS)
    replicas.update_group("echo", {endpoint: endpoint for endpoint in endpoints})
    yield replicas
    await replicas.close()


def select(
    replicas: ReplicaPool, policy: str = "least-loaded", request: str = "r", exclude: Set[str] = frozenset()
) -> ReplicaConnection:
    replica = replicas.select(
        "echo",
        routing_policy(policy),
        RoutedInvocation(request, 0, InputSize()),
        unrouted_endpoints=[],
        exclude=exclude,
    )
    assert replica is not None
    return replica


def connections(replicas: ReplicaPool, endpoints: list[str]) -> list[ReplicaConnection]:
    return [replicas._connection(endpoint) for endpoint in endpoints]


def start(replica: ReplicaConnection, seconds: float) -> None:
    request = b'{"text": "a", "seconds": %f}' % seconds
    replica.start_invocation(pb.Command(start=pb.Start(request_id="r", request=request)), NullListener())


def callers(executors: EchoExecutors) -> list[int]:
    return [state.callers for state in executors.states.values()]


def route(endpoints: list[str]) -> RequestRoute:
    return RequestRoute(1, [1.0], {"echo": "echo"}, {"echo": endpoints})


async def test_the_pool_connects_to_routed_executors_before_any_request(
    replicas: ReplicaPool, executors: EchoExecutors
) -> None:
    await until(lambda: callers(executors) == [1, 1, 1])
    replicas.update_group("echo", None)
    await until(lambda: callers(executors) == [0, 0, 0])


async def test_an_old_version_stays_connected_until_the_requests_that_started_with_it_have_ended(
    replicas: ReplicaPool, executors: EchoExecutors, endpoints: list[str]
) -> None:
    await until(lambda: callers(executors) == [1, 1, 1])
    old = route(endpoints)
    replicas.acquire_route(old)
    replicas.acquire_route(old)

    replicas.update_group("echo", None)
    replicas.release_route(old)
    late = replicas.select(
        "echo", routing_policy("static"), RoutedInvocation("r", 0, InputSize()), unrouted_endpoints=endpoints
    )
    assert late is not None
    start(late, 0.1)
    await until(lambda: late.in_flight == 0)
    assert callers(executors) == [1, 1, 1]

    replicas.release_route(old)
    await until(lambda: callers(executors) == [0, 0, 0])


async def test_a_group_that_is_routed_again_keeps_the_connections_that_requests_need(
    replicas: ReplicaPool, endpoints: list[str]
) -> None:
    """Without a connection, the executors could end."""
    replicas.acquire_route(route(endpoints))
    replicas.update_group("echo", None)
    kept = connections(replicas, endpoints)

    replicas.update_group("echo", {endpoint: endpoint for endpoint in endpoints})

    assert connections(replicas, endpoints) == kept


async def test_a_replica_scaled_down_is_disconnected_although_requests_started_with_its_route(
    replicas: ReplicaPool, executors: EchoExecutors, endpoints: list[str]
) -> None:
    await until(lambda: callers(executors) == [1, 1, 1])
    replicas.acquire_route(route(endpoints))
    replicas.update_group("echo", {endpoint: endpoint for endpoint in endpoints[:2]})
    await until(lambda: callers(executors) == [1, 1, 0])


async def test_requests_stay_on_a_replica_that_may_come_back(replicas: ReplicaPool, endpoints: list[str]) -> None:
    class Listener(NullListener):
        left = 0

        def on_replica_leaving(self) -> None:
            self.left += 1

    first, *others = endpoints
    listener = Listener()
    request = b'{"text": "a", "seconds": 60}'
    command = pb.Command(start=pb.Start(request_id="r", request=request))
    replicas._connection(first).start_invocation(command, listener)
    without = {endpoint: endpoint for endpoint in others}

    replicas.update_group("echo", without, paused={first})
    assert listener.left == 0
    replicas.update_group("echo", without | {first: first})
    replicas.update_group("echo", without)

    assert listener.left == 1


async def test_the_least_loaded_replica_is_selected(replicas: ReplicaPool, endpoints: list[str]) -> None:
    for _ in range(30):
        start(select(replicas), seconds=1000)

    assert [replica.in_flight for replica in connections(replicas, endpoints)] == [10, 10, 10]


async def test_idle_replicas_are_selected_in_turn(replicas: ReplicaPool, endpoints: list[str]) -> None:
    selected = Counter[str]()
    for _ in range(6):
        replica = select(replicas)
        selected[replica.endpoint] += 1
        start(replica, seconds=0)
        await until(lambda replica=replica: replica.in_flight == 0)  # type: ignore[misc]

    assert selected == dict.fromkeys(endpoints, 2)


async def test_a_faster_replica_gets_more_invocations(replicas: ReplicaPool, endpoints: list[str]) -> None:
    slow = connections(replicas, endpoints)[0]
    for _ in range(100):
        replica = select(replicas)
        start(replica, seconds=1000 if replica is slow else 0)
        await until(lambda replica=replica: replica is slow or replica.in_flight == 0)  # type: ignore[misc]

    assert slow.in_flight == 1


async def test_static_routing_ignores_the_load(replicas: ReplicaPool, endpoints: list[str]) -> None:
    start(connections(replicas, endpoints)[0], seconds=1000)

    selected = Counter(select(replicas, "static", f"request {n}").endpoint for n in range(3000))

    assert all(900 < selected[endpoint] < 1100 for endpoint in endpoints)


async def test_static_routing_selects_another_replica_while_the_drawn_one_refuses(
    replicas: ReplicaPool, endpoints: list[str]
) -> None:
    first = select(replicas, "static")

    other = select(replicas, "static", exclude={first.endpoint})

    assert other.endpoint in set(endpoints) - {first.endpoint}


async def test_requests_wait_for_a_group_whose_replicas_are_lost_and_will_be_replaced(
    endpoints: list[str], replicas: ReplicaPool, executors: EchoExecutors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_pool, "UNREACHABLE_SECONDS", 0.0)
    for endpoint in endpoints:
        await executors.kill(endpoint)
    await until(lambda: all(map(replicas.is_unreachable, endpoints)))
    assert "none of its 3 executors can be reached" in replicas.outage("echo")

    ids = {endpoint: endpoint for endpoint in endpoints}
    replicas.update_group("echo", ids, is_waiting=True)
    assert replicas.outage("echo") == ""

    monkeypatch.setattr(replica_pool, "FAILED_SECONDS", 0.0)
    replicas.update_group("echo", ids, "no weights", is_waiting=True)
    assert replicas.outage("echo") == "its executors have failed: no weights"


async def test_replicas_that_cannot_be_found_any_more_are_used_while_they_can_be_reached(
    endpoints: list[str], replicas: ReplicaPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    replicas.keep_group("echo")
    assert select(replicas).endpoint in endpoints
    assert (replicas.outage("echo"), replicas.is_missing("echo")) == ("", False)

    monkeypatch.setattr(replica_pool, "UNREACHABLE_SECONDS", 0.0)
    assert "no endpoint of the executor echo can be found" in replicas.outage("echo")
    assert replicas.is_missing("echo")

    replicas.update_group("echo", {endpoint: endpoint for endpoint in endpoints})
    assert (replicas.outage("echo"), replicas.is_missing("echo")) == ("", False)


async def test_lost_replicas_that_the_machine_cannot_replace_are_a_problem_at_once(
    endpoints: list[str], executors: EchoExecutors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replica_pool, "CHECK_SECONDS", 0.0)
    problems = ["cannot start: cannot write to replicas, on the disk /: No space left on device", ""]
    pool = ReplicaPool(CREDENTIALS, lambda: problems.pop(0))
    pool.update_group("echo", {endpoint: endpoint for endpoint in endpoints[:1]})
    await until(lambda: not pool.is_unreachable(endpoints[0]))
    assert await pool.start_problem("echo") == ""
    assert len(problems) == 2

    await executors.kill(endpoints[0])
    await until(lambda: pool.is_unreachable(endpoints[0]))
    assert await pool.start_problem("echo") == (
        "its executors are lost, and others cannot start: cannot write to replicas, on the disk /: "
        "No space left on device"
    )
    assert await pool.start_problem("echo") == ""
    await pool.close()


async def test_all_gateways_draw_the_same_replica(replicas: ReplicaPool, endpoints: list[str]) -> None:
    other = ReplicaPool(CREDENTIALS)
    other.update_group("echo", {endpoint: endpoint for endpoint in reversed(endpoints)})

    for request in map(str, range(20)):
        assert select(replicas, "static", request).endpoint == select(other, "static", request).endpoint
    await other.close()
