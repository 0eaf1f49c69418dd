"""The executor contract, tested with a minimal caller."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from cornserve.v1 import executor_pb2 as pb
from cornserve.wire.connection import MessageConnection
from cornserve.wire.invocations import OBSERVER
from cornserve_echo import EchoRequest, EchoResponse
from cornserve_echo.executor import EchoExecutor
from cornserve_executors.base.executor import InvalidRequestError
from cornserve_executors.base.state import ExecutorState
from cornserve_executors.encoder.single_flight import SingleFlight
from cornserve_executors.media.decode_pool import DecodePools
from tests.credentials import CREDENTIALS
from tests.executor_caller import Caller, calling
from tests.unit.echo_executors import EchoExecutors
from tests.waiting import until

WORDS = ["words"]


@pytest.fixture
async def observations(endpoint: str) -> AsyncIterator[asyncio.Queue[pb.Observation | None]]:
    """The observations that an observer has received. None ends them."""
    received: asyncio.Queue[pb.Observation | None] = asyncio.Queue()
    connection = MessageConnection(OBSERVER, received.put_nowait)
    await connection.connect(endpoint, CREDENTIALS)
    yield received
    connection.abort("the test has ended")
    await connection.wait_closed()


@pytest.fixture
def state(endpoint: str, executors: EchoExecutors) -> ExecutorState:
    return executors.states[endpoint]


def start(call: int, request: str, **fields: object) -> pb.Command:
    named = {"request_id": "r", "invocation": call, **fields}
    return pb.Command(call=call, start=pb.Start(request=request.encode(), **named))  # type: ignore[arg-type]


async def ends(caller: Caller, count: int) -> dict[int, pb.End]:
    """Waits for the ends of `count` calls; ignores other events."""
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


async def test_one_connection_carries_many_invocations(caller: Caller) -> None:
    commands = [start(call, f'{{"text": "number {call}"}}') for call in range(100)]
    caller.send(*commands)

    ended = await ends(caller, 100)

    assert {call: end.values for call, end in ended.items()} == {
        call: b'{"text":"number %d","words_sent":2}' % call for call in range(100)
    }


async def test_chunks_are_sent_only_for_requested_outputs(caller: Caller) -> None:
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


async def test_a_cancellation_that_the_executor_drops_ends_the_invocation(
    caller: Caller, executors: EchoExecutors, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def invoke(self: EchoExecutor, request: EchoRequest, context: object) -> EchoResponse:
        with suppress(asyncio.CancelledError):  # `asyncio.wait_for` of Python 3.11 may do this.
            await asyncio.Event().wait()
        return EchoResponse(text=request.text, words_sent=0)

    monkeypatch.setattr(EchoExecutor, "invoke", invoke)
    caller.send(start(1, '{"text": "a"}'))
    await until(lambda: executors.running() == 1)

    end = await end_of(caller, pb.Command(call=1, cancel=pb.Cancel()))

    assert end.code == pb.CODE_CANCELLED


async def test_a_broken_connection_cancels_its_invocations(caller: Caller, executors: EchoExecutors) -> None:
    caller.send(start(1, '{"text": "a", "seconds": 1000}'))
    await until(lambda: executors.running() == 1)

    caller.abort()

    await until(lambda: executors.running() == 0)


async def test_no_invocation_starts_while_a_disconnected_callers_invocations_are_cancelled(
    caller: Caller, executors: EchoExecutors, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    cancelled, may_end = asyncio.Event(), asyncio.Event()

    async def invoke(self: EchoExecutor, request: EchoRequest, context: object) -> EchoResponse:
        started.append(request.text)
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
            await may_end.wait()
        raise AssertionError

    monkeypatch.setattr(EchoExecutor, "invoke", invoke)
    monkeypatch.setattr("cornserve_executors.base.service.DISCONNECT_TIMEOUT_SECONDS", 0.01)
    caller.send(start(1, '{"text": "a"}'))
    await until(lambda: executors.running() == 1)
    (service,) = executors.services.values()
    disconnecting = asyncio.create_task(service.disconnect())
    await cancelled.wait()

    caller.send(start(2, '{"text": "b"}'))
    await asyncio.wait((disconnecting,), timeout=0.1)
    may_end.set()
    await disconnecting

    assert started == ["a"]
    assert executors.running() == 0


async def test_invocations_finish_after_the_callers_last_command(caller: Caller) -> None:
    caller.send(start(1, '{"text": "a", "seconds": 0.05}'))
    caller.finish()

    assert (await ends(caller, 1))[1].code == pb.CODE_OK
    assert await caller.read() is None


async def test_a_deadline_ends_the_invocation(caller: Caller) -> None:
    end = await end_of(caller, start(1, '{"text": "a", "seconds": 1000}', timeout_ms=10))

    assert (end.code, end.message) == (pb.CODE_DEADLINE_EXCEEDED, "not done by the request's deadline")


@pytest.mark.parametrize("request_", ["", "{", '{"txt": "a"}', '{"text": 1}', '{"text": "a", "seconds": -1}'])
async def test_an_invalid_request_does_not_affect_other_invocations(caller: Caller, request_: str) -> None:
    invalid, valid = start(1, request_), start(2, '{"text": "a"}')
    caller.send(invalid, valid)

    ended = await ends(caller, 2)

    assert (ended[1].code, ended[2].code) == (pb.CODE_INVALID_ARGUMENT, pb.CODE_OK)


async def test_a_failed_invocation_leaves_no_reference_cycle(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    class DecodedImage: ...

    opened: list[weakref.ref[DecodedImage]] = []
    pool, single_flight = DecodePools(1).pool_for(1), SingleFlight[None]()

    def fail() -> None:
        image = DecodedImage()
        opened.append(weakref.ref(image))
        raise InvalidRequestError(f"{image} cannot be decoded")

    async def invoke(*_: object) -> EchoResponse:
        async with single_flight.join("image", lambda: pool.run(fail)):
            raise AssertionError("decoding did not fail")

    monkeypatch.setattr(EchoExecutor, "invoke", invoke)
    gc.disable()
    try:
        end = await end_of(caller, start(1, '{"text": "a"}'))

        assert end.code == pb.CODE_INVALID_ARGUMENT
        await until(lambda: [image() for image in opened] == [None])
    finally:
        gc.enable()
        pool.shutdown()


async def test_an_exception_is_an_internal_error_with_its_message(caller: Caller) -> None:
    end = await end_of(caller, start(1, '{"text": "a", "fail": "boom"}'))

    assert (end.code, end.message) == (pb.CODE_INTERNAL, "RuntimeError: boom")


async def test_an_error_whose_message_cannot_be_encoded_ends_its_invocation(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def invoke(self: EchoExecutor, request: EchoRequest, context: object) -> EchoResponse:
        raise InvalidRequestError("the file has an unknown tag \ud800")

    monkeypatch.setattr(EchoExecutor, "invoke", invoke)

    end = await end_of(caller, start(1, '{"text": "a"}'))

    assert (end.code, end.message) == (pb.CODE_INVALID_ARGUMENT, "the file has an unknown tag ?")


async def test_a_time_limit_of_the_executor_is_not_the_deadline(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def invoke(self: EchoExecutor, request: EchoRequest, context: object) -> EchoResponse:
        raise TimeoutError("the tool does not respond")

    monkeypatch.setattr(EchoExecutor, "invoke", invoke)

    end = await end_of(caller, start(1, '{"text": "a"}', timeout_ms=60_000))

    assert (end.code, end.message) == (pb.CODE_INTERNAL, "TimeoutError: the tool does not respond")


async def test_a_draining_executor_accepts_invocations_of_connected_callers_only(
    endpoint: str, caller: Caller, state: ExecutorState
) -> None:
    state.set_phase(pb.PHASE_DRAINING)
    assert (await end_of(caller, start(1, '{"text": "a"}'))).code == pb.CODE_OK
    state.refuse_new_callers()

    async with calling(endpoint) as late:
        end = await end_of(late, start(1, '{"text": "a"}'))

    assert (end.code, end.message) == (pb.CODE_UNAVAILABLE, "the executor is draining")
    assert (await end_of(caller, start(2, '{"text": "a"}'))).code == pb.CODE_OK


async def test_a_draining_executor_waits_for_its_accepted_callers_only(
    endpoint: str, caller: Caller, state: ExecutorState
) -> None:
    await end_of(caller, start(1, '{"text": "a"}'))
    state.refuse_new_callers()
    async with calling(endpoint) as late:
        await end_of(late, start(1, '{"text": "a"}'))
        disconnected = asyncio.ensure_future(state.wait_without_callers())

        caller.send(start(2, '{"text": "a b", "seconds": 0.2}'))
        caller.finish()
        assert (await ends(caller, 1))[2].code == pb.CODE_OK

        await disconnected


async def test_aborted_invocations_end_with_aborted(caller: Caller, executors: EchoExecutors) -> None:
    caller.send(start(1, '{"text": "a b", "seconds": 60}'))
    await until(lambda: executors.running() == 1)
    (service,) = executors.services.values()

    await service.abort("the executor is stopping")

    end = (await ends(caller, 1))[1]
    assert (end.code, end.message) == (pb.CODE_ABORTED, "the executor is stopping")


async def test_an_executor_that_stops_starts_no_invocation(caller: Caller, executors: EchoExecutors) -> None:
    (service,) = executors.services.values()
    await service.abort("the executor is stopping")

    end = await end_of(caller, start(1, '{"text": "a"}'))

    assert (end.code, end.message) == (pb.CODE_UNAVAILABLE, "the executor is stopping")


async def test_observers_receive_heartbeats_while_the_state_does_not_change(
    observations: asyncio.Queue[pb.Observation | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cornserve_executors.base.state.HEARTBEAT_SECONDS", 0.01)
    async with asyncio.timeout(60):
        received = [await observations.get() for _ in range(3)]
    assert received[0] == received[1] == received[2]


async def test_a_call_that_is_cancelled_before_it_starts_ends(caller: Caller) -> None:
    cancelled = [start(1, '{"text": "a"}'), pb.Command(call=1, cancel=pb.Cancel())]
    caller.send(*cancelled)

    assert (await ends(caller, 1))[1].code == pb.CODE_CANCELLED


async def test_invocations_beyond_the_queue_limit_are_refused(caller: Caller, executors: EchoExecutors) -> None:
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


async def test_observers_receive_the_state_and_its_changes(
    observations: asyncio.Queue[pb.Observation | None], state: ExecutorState
) -> None:
    first = await observations.get()
    assert isinstance(first, pb.Observation)
    assert first.phase == pb.PHASE_READY

    state.set_phase(pb.PHASE_DRAINING, "finishes what is in flight")
    later = await observations.get()
    assert isinstance(later, pb.Observation)
    assert (later.phase, later.message) == (pb.PHASE_DRAINING, "finishes what is in flight")
