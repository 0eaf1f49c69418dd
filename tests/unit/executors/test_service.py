"""The executor contract, spoken by hand: what any gateway, in any language, may rely on."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator

import grpc
import pytest

from cornserve.v1 import executor_pb2 as pb
from cornserve.v1 import executor_pb2_grpc
from cornserve_echo import EchoResponse
from cornserve_echo.executor import EchoExecutor
from cornserve_executors.base.executor import InvalidRequestError
from cornserve_executors.base.state import ExecutorState
from cornserve_executors.encoder.single_flight import SingleFlight
from cornserve_executors.media.decode_pool import DecodePools
from tests.invoking import Caller, calling
from tests.unit.echo_executors import EchoExecutors
from tests.waiting import until

WORDS = ["words"]


@pytest.fixture
async def stub(endpoint: str) -> AsyncIterator[executor_pb2_grpc.ExecutorAsyncStub]:
    async with grpc.aio.insecure_channel(endpoint) as channel:
        yield executor_pb2_grpc.ExecutorStub(channel)


@pytest.fixture
def state(endpoint: str, executors: EchoExecutors) -> ExecutorState:
    return executors.states[endpoint]


def start(call: int, request: str, **fields: object) -> pb.Command:
    named = {"request_id": "r", **fields}
    return pb.Command(call=call, start=pb.Start(request=request.encode(), **named))  # type: ignore[arg-type]


async def ends(caller: Caller, count: int) -> dict[int, pb.End]:
    """The ends of so many calls, whatever else arrives meanwhile."""
    ended: dict[int, pb.End] = {}
    while len(ended) < count:
        event = await caller.read()
        assert event is not None
        if event.HasField("end"):
            ended[event.call] = event.end
    return ended


async def end_of(caller: Caller, command: pb.Command) -> pb.End:
    caller.send(command)
    return (await ends(caller, 1))[command.call]


async def test_one_line_carries_many_invocations(caller: Caller) -> None:
    commands = [start(call, f'{{"text": "number {call}"}}') for call in range(100)]
    caller.send(*commands)

    ended = await ends(caller, 100)

    assert {call: end.values for call, end in ended.items()} == {
        call: b'{"text":"number %d","words_sent":2}' % call for call in range(100)
    }


async def test_chunks_come_only_to_those_who_ask(caller: Caller) -> None:
    request = '{"text": "one two"}'
    caller.send(start(1, request, outputs=WORDS), start(2, request))

    events: list[pb.Event] = []
    while sum(event.HasField("end") for event in events) < 2:
        event = await caller.read()
        assert event is not None
        events.append(event)

    chunks = [(event.call, event.chunk.item) for event in events if event.HasField("chunk")]
    assert chunks == [(1, b'"one"'), (1, b'"two"')]


async def test_a_cancelled_invocation_ends(caller: Caller, executors: EchoExecutors) -> None:
    caller.send(start(1, '{"text": "a", "seconds": 1000}'))
    await until(lambda: executors.running() == 1)

    end = await end_of(caller, pb.Command(call=1, cancel=pb.Cancel()))

    assert end.code == pb.CODE_CANCELLED
    await until(lambda: executors.running() == 0)


async def test_a_broken_line_cancels_what_was_started_on_it(caller: Caller, executors: EchoExecutors) -> None:
    caller.send(start(1, '{"text": "a", "seconds": 1000}'))
    await until(lambda: executors.running() == 1)

    caller.abort()

    await until(lambda: executors.running() == 0)


async def test_invocations_finish_when_the_caller_has_nothing_more_to_start(caller: Caller) -> None:
    caller.send(start(1, '{"text": "a", "seconds": 0.05}'))
    caller.finish()

    assert (await ends(caller, 1))[1].code == pb.CODE_OK
    assert await caller.read() is None


async def test_a_deadline_ends_the_invocation(caller: Caller) -> None:
    end = await end_of(caller, start(1, '{"text": "a", "seconds": 1000}', timeout_ms=10))

    assert (end.code, end.message) == (pb.CODE_DEADLINE_EXCEEDED, "not done by the request's deadline")


@pytest.mark.parametrize("request_", ["", "{", '{"txt": "a"}', '{"text": 1}', '{"text": "a", "seconds": -1}'])
async def test_a_wrong_request_harms_nobody_else(caller: Caller, request_: str) -> None:
    wrong, right = start(1, request_), start(2, '{"text": "a"}')
    caller.send(wrong, right)

    ended = await ends(caller, 2)

    assert (ended[1].code, ended[2].code) == (pb.CODE_INVALID_ARGUMENT, pb.CODE_OK)


async def test_an_invocation_that_fails_leaves_nothing_for_the_garbage_collector(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Image: ...

    opened: list[weakref.ref[Image]] = []
    lane, flights = DecodePools(1).pool_for(1), SingleFlight[None]()

    def breaks() -> None:
        image = Image()
        opened.append(weakref.ref(image))
        raise InvalidRequestError(f"{image} cannot be decoded")

    async def invoke(*_: object) -> EchoResponse:
        async with flights.join("image", lambda: lane.run(breaks)):
            raise AssertionError("it was decoded")

    monkeypatch.setattr(EchoExecutor, "invoke", invoke)
    gc.disable()
    try:
        end = await end_of(caller, start(1, '{"text": "a"}'))

        assert end.code == pb.CODE_INVALID_ARGUMENT
        await until(lambda: [image() for image in opened] == [None])
    finally:
        gc.enable()
        lane.shutdown()


async def test_an_exception_is_an_internal_error_with_its_reason(caller: Caller) -> None:
    end = await end_of(caller, start(1, '{"text": "a", "fail": "boom"}'))

    assert (end.code, end.message) == (pb.CODE_INTERNAL, "RuntimeError: boom")


async def test_a_draining_executor_takes_what_callers_send_that_it_knows(
    endpoint: str, caller: Caller, state: ExecutorState
) -> None:
    state.set_phase(pb.PHASE_DRAINING)
    assert (await end_of(caller, start(1, '{"text": "a"}'))).code == pb.CODE_OK
    state.refuse_new_callers()

    async with calling(endpoint) as late:
        end = await end_of(late, start(1, '{"text": "a"}'))

    assert (end.code, end.message) == (pb.CODE_UNAVAILABLE, "the executor is draining")
    assert (await end_of(caller, start(2, '{"text": "a"}'))).code == pb.CODE_OK


async def test_an_executor_is_deserted_when_all_callers_it_has_taken_have_left(
    endpoint: str, caller: Caller, state: ExecutorState
) -> None:
    await end_of(caller, start(1, '{"text": "a"}'))
    state.refuse_new_callers()
    async with calling(endpoint) as late:
        await end_of(late, start(1, '{"text": "a"}'))
        deserted = asyncio.ensure_future(state.wait_without_callers())

        caller.send(start(2, '{"text": "a b", "seconds": 0.2}'))
        caller.finish()
        assert (await ends(caller, 1))[2].code == pb.CODE_OK

        await deserted


async def test_what_is_aborted_may_be_done_elsewhere(caller: Caller, executors: EchoExecutors) -> None:
    caller.send(start(1, '{"text": "a b", "seconds": 60}'))
    await until(lambda: executors.running() == 1)
    (service,) = executors.services.values()

    await service.abort("the executor ends")

    end = (await ends(caller, 1))[1]
    assert (end.code, end.message) == (pb.CODE_ABORTED, "the executor ends")


async def test_observers_hear_an_executor_of_which_there_is_nothing_to_say(
    stub: executor_pb2_grpc.ExecutorAsyncStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cornserve_executors.base.state.HEARTBEAT_SECONDS", 0.01)
    observing = stub.Observe(pb.ObserveRequest())
    async with asyncio.timeout(60):
        heard = [await observing.read() for _ in range(3)]
    assert heard[0] == heard[1] == heard[2]
    observing.cancel()


async def test_a_call_that_is_cancelled_before_it_begins_ends_too(caller: Caller) -> None:
    cancelled = [start(1, '{"text": "a"}'), pb.Command(call=1, cancel=pb.Cancel())]
    caller.send(*cancelled)

    assert (await ends(caller, 1))[1].code == pb.CODE_CANCELLED


async def test_what_has_no_place_in_the_queue_is_refused_until_there_is_one(
    caller: Caller, executors: EchoExecutors
) -> None:
    running = [start(call, '{"text": "a", "seconds": 1000}') for call in range(1024)]
    caller.send(*running)
    await until(lambda: executors.running() == 1024)

    refused = await end_of(caller, start(2000, '{"text": "a"}'))
    assert (refused.code, refused.message) == (
        pb.CODE_RESOURCE_EXHAUSTED,
        "the executor has 1024 invocations (see the limit `queue`)",
    )

    assert (await end_of(caller, pb.Command(call=7, cancel=pb.Cancel()))).code == pb.CODE_CANCELLED
    assert (await end_of(caller, start(2001, '{"text": "a"}'))).code == pb.CODE_OK


async def test_an_unknown_call_can_be_cancelled(caller: Caller) -> None:
    caller.send(pb.Command(call=7, cancel=pb.Cancel()))

    assert (await end_of(caller, start(8, '{"text": "a"}'))).code == pb.CODE_OK


async def test_observers_see_the_state_and_its_changes(
    stub: executor_pb2_grpc.ExecutorAsyncStub, state: ExecutorState
) -> None:
    observations = stub.Observe(pb.ObserveRequest())
    first = await observations.read()
    assert isinstance(first, pb.Observation)
    assert first.phase == pb.PHASE_READY

    state.set_phase(pb.PHASE_DRAINING, "finishes what is in flight")
    later = await observations.read()
    assert isinstance(later, pb.Observation)
    assert (later.phase, later.message) == (pb.PHASE_DRAINING, "finishes what is in flight")
    observations.cancel()
