"""Commands that the executor contract does not allow: they affect their own connection or invocation only."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from cornserve.v1 import executor_pb2 as pb
from cornserve_echo import EchoTask
from cornserve_echo.notes import NoteTask, ReadTask
from tests.executor_caller import Caller, calling
from tests.unit.echo_executors import EchoExecutors
from tests.unit.executors.test_service import end_of, ends, start
from tests.waiting import until

LARGEST = 2**32 - 1


@pytest.fixture
async def writers(executors: EchoExecutors) -> str:
    return await executors.endpoint(NoteTask().spec)


@pytest.fixture
async def writer(writers: str) -> AsyncIterator[Caller]:
    async with calling(writers) as caller:
        yield caller


def held(executors: EchoExecutors) -> float:
    return executors.total("cornserve_transport_slab_bytes", {"state": "held"})


def write(call: int, *, nbytes: int = 1, seconds: float = 0, **fields: object) -> pb.Command:
    request = json.dumps({"text": "news", "nbytes": nbytes, "seconds": seconds})
    return start(call, request, **{"invocation": 0, **fields})


async def begin(executors: EchoExecutors, caller: Caller, command: pb.Command) -> None:
    """Waits until the invocation has allocated its tensor, and until it has ended if it does not sleep."""
    before = held(executors)
    caller.send(command)
    if not json.loads(command.start.request)["seconds"]:
        await ends(caller, 1)
    await until(lambda: held(executors) > before)


async def test_attempts_with_the_largest_number_run(executors: EchoExecutors, writers: str, writer: Caller) -> None:
    note = pb.Pending(invocation=0, output="note", attempt=LARGEST - 1, endpoint=writers)
    async with calling(await executors.endpoint(ReadTask().spec)) as reader:
        reader.send(start(1, '{"notes": [{"$input": 0}]}', inputs=[pb.Input(pending=note)]))
        await until(lambda: executors.total("cornserve_executor_invocations_waiting") == 1)

        assert (await end_of(writer, write(1, attempt=LARGEST))).code == pb.CODE_OK

        assert (await ends(reader, 1))[1].code == pb.CODE_INPUT_LOST


@pytest.mark.parametrize("is_running", [True, False], ids=["running", "retained"])
async def test_a_second_start_of_an_attempt_ends_and_does_not_affect_the_first(
    executors: EchoExecutors, writers: str, writer: Caller, is_running: bool
) -> None:
    async with calling(writers) as other:
        await begin(executors, writer, write(1, seconds=1000 if is_running else 0))

        for caller in (writer, other):
            end = await end_of(caller, write(2))
            assert end.code == pb.CODE_INVALID_ARGUMENT
            assert "attempt 0 of invocation 0 of request r" in end.message

        assert executors.running() == is_running
        writer.send(pb.Command(call=1, cancel=pb.Cancel()))
        await until(lambda: held(executors) == 0)
        assert (await end_of(other, write(3, request_id="later"))).code == pb.CODE_OK


async def test_a_second_start_of_an_attempt_does_not_keep_the_reserve(executors: EchoExecutors, writer: Caller) -> None:
    await end_of(writer, write(1, arrived_us=1))
    await end_of(writer, write(2, arrived_us=1))
    writer.send(pb.Command(call=1, release=pb.Release()))
    half = executors.total("cornserve_transport_slab_bytes", {"state": "free"}) // 2

    for call, arrived_us in ((3, 9), (4, 8)):  # the second one needs the reserve, which the oldest request gets
        end = await end_of(writer, write(call, nbytes=int(half), request_id=f"r{call}", arrived_us=arrived_us))
        assert end.code == pb.CODE_OK


@pytest.mark.parametrize("is_running", [True, False], ids=["running", "retained"])
async def test_a_call_number_that_is_in_use_closes_the_connection_and_frees_its_tensors(
    executors: EchoExecutors, writers: str, writer: Caller, is_running: bool
) -> None:
    async with calling(writers) as other:
        await end_of(other, write(1, request_id="other"))
        others = held(executors)
        await begin(executors, writer, write(1, seconds=1000 if is_running else 0))

        writer.send(write(1, invocation=1))

        await writer.connection.wait_closed()
        await until(lambda: executors.running() == 0 and held(executors) == others)
        assert (await end_of(other, write(2, request_id="other", invocation=1))).code == pb.CODE_OK


async def test_invocations_that_wait_for_tensors_are_limited(
    executors: EchoExecutors, writers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cornserve_executors.base.running_invocations.WAITING_PER_QUEUE", 0.01)
    note = pb.Pending(invocation=99, output="note", endpoint=writers)
    async with calling(await executors.endpoint(ReadTask().spec)) as reader:
        reading = [start(call, '{"notes": [{"$input": 0}]}', inputs=[pb.Input(pending=note)]) for call in range(12)]

        reader.send(*reading)

        ended = await ends(reader, 1)
        assert {(call, end.code) for call, end in ended.items()} == {(11, pb.CODE_RESOURCE_EXHAUSTED)}
        assert "11 invocations that wait for tensors" in ended[11].message


async def test_the_inputs_of_all_invocations_are_limited(
    executors: EchoExecutors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cornserve_executors.base.service.memory_limit_bytes", lambda: 4000)
    endpoint = await executors.endpoint(EchoTask().spec)
    large = '{"text": "%s", "seconds": 1000}' % ("x" * 2000)
    async with calling(endpoint) as caller, calling(endpoint) as other:
        caller.send(start(1, large))
        await until(lambda: executors.running() == 1)

        assert (await end_of(other, start(1, large, request_id="other"))).code == pb.CODE_RESOURCE_EXHAUSTED

        caller.abort()
        await until(lambda: executors.running() == 0)
        assert (await end_of(other, start(2, '{"text": "a"}'))).code == pb.CODE_OK


async def test_the_endpoints_that_an_invocation_names_are_limited(executors: EchoExecutors) -> None:
    notes = [pb.Input(pending=pb.Pending(output="note", endpoint=f"127.0.0.1:{port}")) for port in range(1, 300)]
    request = json.dumps({"notes": [{"$input": index} for index in range(len(notes))]})
    async with calling(await executors.endpoint(ReadTask().spec)) as reader:
        end = await end_of(reader, start(1, request, inputs=notes))

    assert end.code == pb.CODE_INVALID_ARGUMENT
    assert "name 299 endpoints: give at most 256" in end.message


async def test_the_number_of_inputs_of_all_invocations_is_limited(
    executors: EchoExecutors, writers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cornserve_executors.base.running_invocations.MAX_TOTAL_INPUTS", 3)
    notes = [pb.Input(pending=pb.Pending(invocation=index, output="note", endpoint=writers)) for index in range(2)]
    request = '{"notes": [{"$input": 0}, {"$input": 1}]}'
    async with calling(await executors.endpoint(ReadTask().spec)) as reader:
        reader.send(start(1, request, inputs=notes))

        refused = await end_of(reader, start(2, request, inputs=notes))
        assert refused.code == pb.CODE_RESOURCE_EXHAUSTED
        assert "invocations with 2 inputs, of at most 3" in refused.message

        reader.send(pb.Command(call=1, cancel=pb.Cancel()))
        await ends(reader, 1)
        reader.send(start(3, request, inputs=notes))
        await until(lambda: executors.total("cornserve_executor_invocations_waiting") == 1)
