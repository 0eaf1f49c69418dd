"""The load that callers receive with events, and with which gateways choose replicas."""

from __future__ import annotations

from collections.abc import Sequence

from cornserve.gateway.request.replica_pool import ReplicaPool
from cornserve.v1 import executor_pb2 as pb
from cornserve_echo import EchoTask
from cornserve_policies.input_size import InputSize
from cornserve_policies.registry import routing_policy
from cornserve_policies.replica_routing import RoutedInvocation
from tests.credentials import CREDENTIALS
from tests.executor_caller import Caller, calling
from tests.unit.echo_executors import EchoExecutors
from tests.waiting import until


def start(call: int, request: str, tokens: int, **fields: Sequence[str]) -> pb.Command:
    named = {"request_id": "r", "invocation": call, "tokens": tokens}
    return pb.Command(call=call, start=pb.Start(request=request.encode(), **named, **fields))  # type: ignore[arg-type]


async def test_events_report_the_load_of_all_callers_and_the_part_of_their_own(
    caller: Caller, endpoint: str, executors: EchoExecutors
) -> None:
    async with calling(endpoint) as other:
        other.send(start(100, '{"text": "a", "seconds": 1000}', tokens=70))
        other.send(start(101, '{"text": "a", "seconds": 1000}', tokens=7))
        await until(lambda: executors.running(endpoint) == 2)

        caller.send(start(1, '{"text": "a b"}', tokens=500, outputs=["words"]))
        first, second, end = [await caller.read() for _ in range(3)]

    assert first is not None
    assert first.load == pb.Load(running=3, pending_tokens=77, own_invocations=1)
    assert second is not None
    assert not second.HasField("load")
    assert end is not None
    assert end.load == first.load


async def test_tokens_are_pending_until_the_first_chunk_or_the_end(caller: Caller) -> None:
    caller.send(start(1, '{"text": "a", "seconds": 1000}', tokens=30))
    caller.send(start(2, '{"text": "b"}', tokens=4))

    event = await caller.read()

    assert event is not None
    assert event.load == pb.Load(running=2, pending_tokens=34, own_invocations=2, own_pending_tokens=34)
    caller.send(pb.Command(call=1, cancel=pb.Cancel()))
    cancelled = await caller.read()
    assert cancelled is not None
    assert (cancelled.load.running, cancelled.load.pending_tokens) == (1, 30)


class InvocationEnd:
    """Waits for the end of an invocation."""

    ended = False

    def on_chunk(self, output: str, item: bytes) -> None: ...

    def on_replica_leaving(self) -> None: ...

    def on_handed_over(self, message: str, *, has_state: bool) -> None: ...

    def on_inputs_taken(self, inputs: Sequence[int]) -> None: ...

    def on_compute_time(self, seconds: float) -> None: ...

    def on_inputs_lost(self, inputs: Sequence[int], message: str) -> None: ...

    def on_end(self, code: str, message: str, values: bytes) -> None:
        self.ended = True


async def test_a_gateway_avoids_the_replica_that_another_gateway_uses(executors: EchoExecutors) -> None:
    endpoints = sorted([await executors.replica(EchoTask().spec) for _ in range(2)])
    invocation, policy = RoutedInvocation("r", 0, InputSize()), routing_policy("least-loaded")
    one, two = ReplicaPool(CREDENTIALS), ReplicaPool(CREDENTIALS)
    for pool in (one, two):
        pool.update_group("echo", {endpoint: endpoint for endpoint in endpoints})
    busy = one.select("echo", policy, invocation, unrouted_endpoints=[])
    assert busy is not None
    for call in range(3):
        busy.start_invocation(start(call, '{"text": "a", "seconds": 1000}', tokens=1), InvocationEnd())
    await until(lambda: executors.running(busy.endpoint) == 3)

    for endpoint in endpoints:  # each event carries the load of one replica
        ending = InvocationEnd()
        excluded = {*endpoints} - {endpoint}
        replica = two.select("echo", policy, invocation, unrouted_endpoints=[], exclude=excluded)
        assert replica is not None
        replica.start_invocation(start(0, '{"text": "a"}', tokens=1), ending)
        await until(lambda ending=ending: ending.ended)  # type: ignore[misc]

    for _ in range(3):
        chosen = two.select("echo", policy, invocation, unrouted_endpoints=[])
        assert chosen is not None
        assert chosen.endpoint != busy.endpoint
    await one.close()
    await two.close()
