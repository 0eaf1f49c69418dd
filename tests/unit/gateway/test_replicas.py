"""Which replica an invocation goes to."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence

import pytest

from cornserve.app.record import AppSpec, Route
from cornserve.gateway.request.replica import Replica
from cornserve.gateway.request.replicas import Replicas
from cornserve.task.replayable_random import ReplayableRandom
from cornserve.v1 import executor_pb2 as pb
from cornserve_echo import EchoTask
from tests.unit.echo_executors import EchoExecutors
from tests.waiting import until


class Silent:
    def on_chunk(self, output: str, item: bytes) -> None: ...

    def on_input_lost(self, inputs: Sequence[int], message: str) -> None: ...

    def on_end(self, code: str, message: str, values: bytes) -> None: ...


@pytest.fixture
async def endpoints(executors: EchoExecutors) -> list[str]:
    return [await executors.replica(EchoTask().spec) for _ in range(3)]


@pytest.fixture
async def replicas(endpoints: list[str]) -> AsyncIterator[Replicas]:
    replicas = Replicas()
    replicas.update({"echo": endpoints})
    yield replicas
    await replicas.close()


def choose(replicas: Replicas, **how: float) -> Replica:
    replica = replicas.choose("echo", otherwise=[], **how)  # type: ignore[arg-type]
    assert replica is not None
    return replica


def start(replica: Replica, seconds: float) -> None:
    request = b'{"text": "a", "seconds": %f}' % seconds
    replica.start(pb.Command(start=pb.Start(request_id="r", request=request)), Silent())


def callers(executors: EchoExecutors) -> list[int]:
    return [state.callers for state in executors.states.values()]


def route(endpoints: list[str]) -> Route:
    return Route(generation=1, spec=AppSpec(model="a/b"), shares=[1.0], endpoints={"echo": endpoints})


async def test_executors_that_a_route_names_are_told_so_before_any_request(
    replicas: Replicas, executors: EchoExecutors
) -> None:
    await until(lambda: callers(executors) == [1, 1, 1])
    replicas.update({})
    await until(lambda: callers(executors) == [0, 0, 0])


async def test_an_old_version_is_kept_until_the_requests_that_began_with_it_have_ended(
    replicas: Replicas, executors: EchoExecutors, endpoints: list[str]
) -> None:
    await until(lambda: callers(executors) == [1, 1, 1])
    old = route(endpoints)
    replicas.hold(old)
    replicas.hold(old)

    replicas.update({"new": []})
    replicas.release(old)
    late = replicas.choose("echo", otherwise=endpoints)
    assert late is not None
    start(late, 0.1)
    await until(lambda: late.in_flight == 0)
    assert callers(executors) == [1, 1, 1]

    replicas.release(old)
    await until(lambda: callers(executors) == [0, 0, 0])


async def test_a_replica_that_is_too_many_is_left_though_requests_began_with_it(
    replicas: Replicas, executors: EchoExecutors, endpoints: list[str]
) -> None:
    await until(lambda: callers(executors) == [1, 1, 1])
    replicas.hold(route(endpoints))
    replicas.update({"echo": endpoints[:2]})
    await until(lambda: callers(executors) == [1, 1, 0])


async def test_the_least_loaded_gets_the_next(replicas: Replicas, endpoints: list[str]) -> None:
    for _ in range(30):
        start(choose(replicas), seconds=1000)

    loads = [replica.in_flight for replica in map(replicas._get, endpoints)]
    assert loads == [10, 10, 10]


async def test_idle_replicas_take_turns(replicas: Replicas, endpoints: list[str]) -> None:
    chosen = Counter[str]()
    for _ in range(6):
        replica = choose(replicas)
        chosen[replica.endpoint] += 1
        start(replica, seconds=0)
        await until(lambda replica=replica: replica.in_flight == 0)  # type: ignore[misc]

    assert chosen == dict.fromkeys(endpoints, 2)


async def test_the_faster_of_uneven_replicas_gets_more(replicas: Replicas, endpoints: list[str]) -> None:
    slow = endpoints[0]
    for _ in range(100):
        replica = choose(replicas)
        start(replica, seconds=1000 if replica.endpoint == slow else 0)
        await until(lambda replica=replica: replica.endpoint == slow or replica.in_flight == 0)  # type: ignore[misc]

    assert replicas._get(slow).in_flight == 1


async def test_static_shares_divide_requests_whatever_is_in_flight(replicas: Replicas, endpoints: list[str]) -> None:
    start(replicas._get(endpoints[0]), seconds=1000)

    chosen = Counter(choose(replicas, draw=ReplayableRandom(f"request {n}").uniform()).endpoint for n in range(3000))

    assert all(900 < chosen[endpoint] < 1100 for endpoint in endpoints)


async def test_a_static_share_goes_elsewhere_while_its_replica_refuses(
    replicas: Replicas, endpoints: list[str]
) -> None:
    first = choose(replicas, draw=0.5)

    other = replicas.choose("echo", otherwise=[], avoiding={first.endpoint}, draw=0.5)

    assert other is not None
    assert other.endpoint in set(endpoints) - {first.endpoint}
