"""Executors that send any events. Their requests fail by the deadline at the latest, and others are not affected."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence, Set
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from cornserve import Output, Stream, Tensor, UnitTask
from cornserve.gateway.http.request_id import RequestIds
from cornserve.gateway.observe.replica_metrics import ReplicaStats
from cornserve.gateway.observe.request_stats import AppStats, RequestStats
from cornserve.gateway.request.dispatcher import Dispatcher
from cornserve.gateway.request.replica_connection import ReplicaConnection
from cornserve.gateway.request.replica_pool import OnChoice, ReplicaPool
from cornserve.gateway.request_route import RequestRoute
from cornserve.task.recording import Recording
from cornserve.v1 import executor_pb2 as pb
from cornserve.wire.connection import MessageConnection
from cornserve.wire.invocations import EXECUTOR
from cornserve.wire.listener import ConnectionListener
from cornserve_policies.replayable_random import ReplayableRandom
from cornserve_policies.replica_routing import RoutedInvocation, RoutingPolicy
from tests.chaos import form
from tests.credentials import CREDENTIALS
from tests.waiting import until

SEQUENCES = form.by_form(short=20, full=1500)


class PartsRequest(BaseModel):
    tensors: list[Tensor]


class Parts(Output):
    tensor: Tensor = Tensor()
    words: Stream[str] = Stream()
    count: int


class PartsTask(UnitTask[PartsRequest, Parts]):
    executor = "echo-writer"


class HostileExecutor:
    """Sends the same events for each invocation."""

    def __init__(self, events: Sequence[pb.Event]) -> None:
        self._events = events

    def create_connection(self) -> MessageConnection[pb.Event, pb.Command]:
        def respond(command: pb.Command | None) -> None:
            if command is not None and command.HasField("start"):
                for event in self._events:
                    sent = pb.Event(call=command.call)
                    sent.MergeFrom(event)  # the call of some events is another one
                    connection.send(sent)

        connection = MessageConnection(EXECUTOR, respond)
        return connection


class OneReplicaPool(ReplicaPool):
    def __init__(self, replica: ReplicaConnection) -> None:
        super().__init__(CREDENTIALS)
        self._only = replica

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
        return None if self._only.lost_at is not None or self._only.endpoint in exclude else self._only


def run(dispatcher: Dispatcher, task: PartsTask, recording: Recording) -> None:
    def record() -> None:
        first = task.invoke(PartsRequest(tensors=[]))
        task.invoke(PartsRequest(tensors=[first.tensor, first.tensor]))

    recording.run("Parts", record)
    dispatcher.dispatch(recording.invocations, streams=True)
    dispatcher.end_recording()


TEXTS = ["", "words", "count", "tensor", "x" * 100_000]
VALUES = [b"", b"1", b'"a"', b"{}", b"[]", b"\xff", b"[" * 1000, b'{"count": 1}', b'{"count": []}', b'{"tensor": 1}']

chunk = st.builds(
    lambda output, item: pb.Event(chunk=pb.OutputChunk(output=output, item=item)),
    st.sampled_from(TEXTS),
    st.sampled_from(VALUES),
)
end = st.builds(
    lambda code, message, values, lost: pb.Event(
        end=pb.End(code=code, message=message, values=values, lost_inputs=lost)
    ),
    st.sampled_from([*pb.Code.values(), 99, -1]),
    st.sampled_from(TEXTS),
    st.sampled_from(VALUES),
    st.sampled_from([[], [0], [1, 1, 0], [2**32 - 1], [0] * 10_000]),
)
other_call = st.builds(
    lambda call, code: pb.Event(call=call, end=pb.End(code=code)),
    st.sampled_from([7, 2**64 - 1]),
    st.sampled_from(pb.Code.values()),
)
description = st.builds(
    lambda size, limits: pb.Event(
        description=pb.Description(max_model_len=size, max_running=size, limits_consumers=limits)
    ),
    st.sampled_from([0, 1, 2**32 - 1]),
    st.booleans(),
)
unknown = st.sampled_from([pb.Event(), pb.Event.FromString(b"\xfa\x3f\x04junk")])
event = st.one_of(chunk, end, other_call, description, unknown)


@pytest.mark.chaos(fault="sequences of events that no executor sends", count=SEQUENCES)
@seed(form.seed())
@settings(
    max_examples=SEQUENCES,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(st.lists(event, max_size=12))
def test_any_events_of_an_executor_end_its_invocations(events: Sequence[pb.Event]) -> None:
    asyncio.run(_check(events))


async def _check(events: Sequence[pb.Event], deadline_seconds: float = 0.3) -> list[str]:
    """Returns the errors of the invocations."""
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: errors.append(context))
    listener = ConnectionListener({EXECUTOR.preamble: HostileExecutor(events).create_connection}, CREDENTIALS)
    replica = ReplicaConnection(await listener.listen("127.0.0.1:0"), CREDENTIALS, ReplicaStats())
    task, recording = PartsTask(), Recording(ReplayableRandom("request"))
    route = RequestRoute(1, [1.0], {task.key: task.key}, {task.key: [replica.endpoint]})
    deadline = asyncio.get_running_loop().time() + deadline_seconds
    dispatcher = Dispatcher(
        RequestIds("request", "request", "request"),
        route,
        OneReplicaPool(replica),
        RequestStats(AppStats()),
        None,
        attempt=0,
        arrived_us=0,
        deadline=deadline,
    )
    run(dispatcher, task, recording)

    await until(lambda: all(execution.invocation.ended for execution in dispatcher.executions), seconds=20)

    failures = [str(invocation.error) for invocation in recording.invocations if invocation.error is not None]
    assert replica.in_flight == 0
    dispatcher.close()
    assert not replica.is_in_use
    await replica.close()
    await listener.close()
    with suppress(TimeoutError):
        await until(lambda: len(asyncio.all_tasks()) == 1, seconds=10)
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []
    assert errors == []
    return failures


def test_an_executor_that_sends_output_without_end_loses_its_invocation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cornserve.gateway.request.invocation_execution.MAX_OUTPUT_BYTES", 100_000)
    endless = [pb.Event(chunk=pb.OutputChunk(output="words", item=b'"a"'))] * 5000
    failures = asyncio.run(_check(endless, deadline_seconds=60))

    assert len(failures) == 2
    assert "the executor sent more than 100000 bytes of output" in failures[0]
