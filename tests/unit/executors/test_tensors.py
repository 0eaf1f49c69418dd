"""Tensors in the executor contract: how long they are retained, and how losses are reported."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator

import pytest

from cornserve.transport.metrics import TRANSFER_KINDS
from cornserve.v1 import executor_pb2 as pb
from cornserve_echo.note_executors import ReadExecutor
from cornserve_echo.notes import Note, NoteTask, ReadRequest, ReadTask
from cornserve_echo.task import EchoResponse
from cornserve_executors.base import InvocationContext
from tests.executor_caller import Caller, calling
from tests.loop_clock import LoopClock
from tests.unit.echo_executors import SLAB_BYTES, EchoExecutors
from tests.unit.executors import test_service
from tests.unit.executors.test_service import end_of, ends
from tests.waiting import until


@pytest.fixture
async def writers(executors: EchoExecutors) -> str:
    return await executors.endpoint(NoteTask().spec)


@pytest.fixture
async def writer(writers: str) -> AsyncIterator[Caller]:
    async with calling(writers) as caller:
        yield caller


@pytest.fixture
async def reader(executors: EchoExecutors) -> AsyncIterator[Caller]:
    async with calling(await executors.endpoint(ReadTask().spec)) as caller:
        yield caller


def held(executors: EchoExecutors) -> float:
    return executors.total("cornserve_transport_slab_bytes", {"state": "held"})


def received(executors: EchoExecutors) -> float:
    """Returns the number of received tensors."""
    return sum(executors.total("cornserve_transport_hop_seconds_count", {"kind": kind}) for kind in TRANSFER_KINDS)


def start(call: int, request: str, **fields: object) -> pb.Command:
    """Returns the command that starts invocation 0, or the given one."""
    return test_service.start(call, request, **{"invocation": 0, **fields})


def write(call: int, text: str, **fields: object) -> pb.Command:
    return start(call, json.dumps({"text": text}), **fields)


def read(call: int, endpoint: str, *, attempt: int = 0, **fields: object) -> pb.Command:
    """Returns the command that reads the note of invocation 0 in another invocation."""
    note = pb.Pending(invocation=0, output="note", attempt=attempt, endpoint=endpoint)
    return start(call, '{"notes": [{"$input": 0}]}', invocation=call + 1, inputs=[pb.Input(pending=note)], **fields)


async def test_a_tensor_may_be_consumed_before_it_is_produced(
    executors: EchoExecutors, writers: str, writer: Caller, reader: Caller
) -> None:
    reader.send(read(1, writers))
    await until(lambda: executors.total("cornserve_executor_invocations_waiting") == 1)

    await end_of(writer, write(1, "good news"))

    answer = await reader.read()
    assert answer is not None
    assert json.loads(answer.end.values)["text"] == "good news"


async def test_tensors_are_retained_until_their_caller_releases_them(
    executors: EchoExecutors, writers: str, writer: Caller, reader: Caller
) -> None:
    await end_of(writer, write(1, "news"))
    assert held(executors) > 0
    assert (await end_of(reader, read(1, writers))).code == pb.CODE_OK
    assert held(executors) > 0, "a later consumer may need it"

    writer.send(pb.Command(call=1, release=pb.Release()))

    await until(lambda: held(executors) == 0)


@pytest.mark.parametrize("attempt", [0, 1])
async def test_a_released_tensor_is_lost_for_later_consumers(
    executors: EchoExecutors, writers: str, writer: Caller, reader: Caller, attempt: int
) -> None:
    await end_of(writer, write(1, "news", attempt=attempt))
    writer.send(pb.Command(call=1, release=pb.Release()))
    await until(lambda: held(executors) == 0)

    end = await end_of(reader, read(1, writers, attempt=attempt))

    assert (end.code, list(end.lost_inputs)) == (pb.CODE_INPUT_LOST, [0])


async def test_a_tensor_that_is_revoked_while_it_is_read_is_lost(
    executors: EchoExecutors, writers: str, writer: Caller, reader: Caller, clock: LoopClock
) -> None:
    await end_of(writer, write(1, "news"))
    note = pb.Pending(invocation=0, output="note", endpoint=writers)
    request = '{"notes": [{"$input": 0}], "seconds": 1}'
    reader.send(start(1, request, invocation=1, inputs=[pb.Input(pending=note)]))
    await until(lambda: received(executors) == 1)

    writer.send(pb.Command(call=1, cancel=pb.Cancel()))

    end = (await clock.advance_during(ends(reader, 1), step=0.1))[1]
    assert (end.code, list(end.lost_inputs)) == (pb.CODE_INPUT_LOST, [0])


async def test_two_requests_that_each_hold_the_reserve_the_other_waits_for_both_end(
    executors: EchoExecutors, writers: str, writer: Caller, reader: Caller, clock: LoopClock
) -> None:
    """The younger request holds the reserve of writer 1, the older one that of writer 2. The test is the gateway."""
    large = json.dumps({"text": "news", "nbytes": SLAB_BYTES // 2})
    others = await executors.replica(NoteTask().spec)
    older, younger, youngest = (dict[str, object](request_id=name, arrived_us=age) for age, name in enumerate("abc"))
    notes = [
        pb.Input(pending=pb.Pending(invocation=number, output="note", endpoint=endpoint))
        for number, endpoint in enumerate((writers, others))
    ]
    both = '{"notes": [{"$input": 0}, {"$input": 1}]}'
    async with calling(others) as other:
        for caller, first in ((writer, younger), (other, older)):
            await end_of(caller, start(1, large, **youngest))  # everything outside the reserve
            await end_of(caller, start(2, large, invocation=int(caller is other), **first))
        reader.send(start(1, both, invocation=2, inputs=notes, **older))
        reader.send(start(2, both, invocation=2, inputs=notes, **younger))
        await until(lambda: received(executors) == 2)
        writer.send(start(3, large, **older))
        other.send(start(3, large, invocation=1, **younger))

        ((call, lost),) = (await clock.advance_during(ends(reader, 1), step=0.1)).items()
        assert (call, lost.code, list(lost.lost_inputs)) == (2, pb.CODE_INPUT_LOST, [0])
        writer.send(pb.Command(call=2, release=pb.Release()))
        writer.send(start(4, large, attempt=1, **younger))
        notes[0].pending.attempt = 1
        reader.send(start(3, both, invocation=2, inputs=notes, **younger))

        ((call, read),) = (await ends(reader, 1)).items()
        assert (call, read.code) == (1, pb.CODE_OK)
        writer.send(pb.Command(call=3, release=pb.Release()))
        other.send(pb.Command(call=2, release=pb.Release()))

        ((call, read),) = (await ends(reader, 1)).items()
        assert (call, read.code) == (3, pb.CODE_OK)


async def test_a_state_is_given_up_for_an_older_request_while_its_invocation_waits_for_another_tensor(
    executors: EchoExecutors,
    writers: str,
    writer: Caller,
    reader: Caller,
    monkeypatch: pytest.MonkeyPatch,
    clock: LoopClock,
) -> None:
    read_notes = ReadExecutor.invoke

    async def invoke(self: ReadExecutor, request: ReadRequest, context: InvocationContext) -> EchoResponse:
        assert await context.receive_state() is not None
        return await read_notes(self, request, context)

    monkeypatch.setattr(ReadExecutor, "invoke", invoke)
    large = json.dumps({"text": "news", "nbytes": SLAB_BYTES // 2})
    older, younger, youngest = (dict[str, object](request_id=name, arrived_us=age) for age, name in enumerate("abc"))
    await end_of(writer, start(1, large, **youngest))  # everything outside the reserve
    await end_of(writer, start(2, large, **younger))
    other = await executors.replica(NoteTask().spec)
    note = pb.Input(pending=pb.Pending(invocation=1, output="note", endpoint=other))
    state = pb.Input(pending=pb.Pending(invocation=0, output="note", endpoint=writers))
    one = '{"notes": [{"$input": 0}]}'
    reader.send(start(1, one, invocation=2, inputs=[note, state], has_state=True, **younger))
    await until(lambda: received(executors) == 1)

    writer.send(start(3, large, **older))
    event = await clock.advance_during(reader.read(), step=0.1)
    assert event is not None
    assert list(event.taken.inputs) == [1]
    writer.send(pb.Command(call=2, release=pb.Release()))

    assert [end.code for end in (await ends(writer, 1)).values()] == [pb.CODE_OK]
    async with calling(other) as author:
        await end_of(author, write(1, "news", invocation=1, **younger))
        assert [end.code for end in (await ends(reader, 1)).values()] == [pb.CODE_OK]


async def test_a_tensor_without_consumers_is_revoked_for_an_older_request(
    writers: str, writer: Caller, reader: Caller, clock: LoopClock
) -> None:
    large = json.dumps({"text": "news", "nbytes": SLAB_BYTES // 2})
    for call, name in ((3, "c"), (2, "b")):
        assert (await end_of(writer, start(call, large, request_id=name, arrived_us=call))).code == pb.CODE_OK

    oldest = end_of(writer, start(1, large, request_id="a", arrived_us=1))

    assert (await clock.advance_during(oldest, step=0.1)).code == pb.CODE_OK
    lost = await end_of(reader, read(1, writers, request_id="b"))
    assert (lost.code, list(lost.lost_inputs)) == (pb.CODE_INPUT_LOST, [0])


async def test_cancelling_an_ended_invocation_frees_its_tensors(executors: EchoExecutors, writer: Caller) -> None:
    await end_of(writer, write(1, "news"))

    writer.send(pb.Command(call=1, cancel=pb.Cancel()))

    await until(lambda: held(executors) == 0)


async def test_the_tensors_of_a_caller_that_disconnects_are_freed(executors: EchoExecutors, writer: Caller) -> None:
    for call in range(3):
        await end_of(writer, write(call, "news", invocation=call))

    writer.abort()

    await until(lambda: held(executors) == 0)


async def test_tensors_are_not_retained_beyond_the_deadline(executors: EchoExecutors, writer: Caller) -> None:
    for call in itertools.count():  # the machine may be too slow for the first deadlines
        end = await end_of(writer, write(call, "news", invocation=call, timeout_ms=100 << call))
        if end.code == pb.CODE_OK:
            break

    await until(lambda: held(executors) == 0)


async def test_the_tensors_of_a_failed_invocation_are_freed(executors: EchoExecutors, writer: Caller) -> None:
    end = await end_of(writer, start(1, '{"text": "news", "fail": "out of ink"}'))

    assert end.code == pb.CODE_INTERNAL
    assert held(executors) == 0


async def test_invocations_that_wait_for_tensors_do_not_occupy_the_queue(
    executors: EchoExecutors, writers: str, writer: Caller, reader: Caller
) -> None:
    for begun in (0, 600):
        reader.send(*(read(begun + call, writers) for call in range(600)))
        await until(lambda begun=begun: executors.total("cornserve_executor_invocations_waiting") == begun + 600)  # type: ignore[misc]

    end = await end_of(writer, write(1, "for all"))

    assert end.code == pb.CODE_OK
    await until(lambda: executors.total("cornserve_executor_invocations_running") == 0)


async def test_consumers_of_an_invocation_that_fails_lose_its_tensors_at_once(
    writers: str, writer: Caller, reader: Caller
) -> None:
    reader.send(read(1, writers, timeout_ms=60_000))

    await end_of(writer, start(1, '{"text": "news", "fail": "out of ink"}'))

    assert (await ends(reader, 1))[1].code == pb.CODE_INPUT_LOST


async def test_an_invocation_that_does_not_publish_a_tensor_fails_with_its_name(
    writers: str, writer: Caller, reader: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def invoke(executor: object, request: object, context: object) -> Note:
        return Note(words=0)

    monkeypatch.setattr("cornserve_echo.note_executors.NoteExecutor.invoke", invoke)
    reader.send(read(1, writers, timeout_ms=60_000))

    end = await end_of(writer, write(1, "news"))

    assert end.code == pb.CODE_INTERNAL
    assert "has not published its output 'note'" in end.message
    assert (await ends(reader, 1))[1].code == pb.CODE_INPUT_LOST


async def test_many_different_inputs_are_found_without_a_search_for_each(reader: Caller, writers: str) -> None:
    """The time would be quadratic if each input were compared with all others: 20 seconds instead of one."""
    inputs = [pb.Input(pending=pb.Pending(invocation=n, output="note", endpoint=writers)) for n in range(5000)]
    notes = [{"$input": index} for index in range(len(inputs))]

    async with asyncio.timeout(10):
        reading = start(1, json.dumps({"notes": notes}), invocation=9999, inputs=inputs, timeout_ms=1)
        ended = await end_of(reader, reading)

    assert ended.code == pb.CODE_DEADLINE_EXCEEDED


async def test_the_tensors_for_one_of_several_consumers_use_its_share_of_the_memory(
    writer: Caller, executors: EchoExecutors
) -> None:
    nbytes = 5 * SLAB_BYTES // 32  # The share of one of two consumers is a quarter.
    large = json.dumps({"text": "news", "nbytes": nbytes})

    def write_for(call: int, consumer: str) -> tuple[pb.Command, pb.Command]:
        bind = pb.Command(call=call, bind_consumer=pb.BindConsumer(endpoint=consumer, replicas=2))
        return start(call, large, request_id=f"request {call}", arrived_us=call), bind

    writer.send(*write_for(1, "hung:1"))
    assert (await ends(writer, 1))[1].code == pb.CODE_OK
    writer.send(*write_for(2, "hung:1"), *write_for(3, "other:1"))
    assert (await ends(writer, 1))[3].code == pb.CODE_OK
    assert nbytes * 2 <= held(executors) < nbytes * 3

    writer.send(pb.Command(call=3, release=pb.Release()), *write_for(4, "other:1"))
    assert (await ends(writer, 1))[4].code == pb.CODE_OK

    writer.send(pb.Command(call=1, bind_consumer=pb.BindConsumer(endpoint="replacement:1", replicas=2)))
    assert (await ends(writer, 1))[2].code == pb.CODE_OK
