"""Random well-formed commands. They affect nothing but their own connection, and leave nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from cornserve.v1 import executor_pb2 as pb
from cornserve_echo.notes import NoteTask, ReadTask
from tests.chaos import form
from tests.executor_caller import Caller, calling
from tests.unit.echo_executors import EchoExecutors
from tests.unit.executors.test_service import end_of, start
from tests.waiting import until

SEQUENCES = form.by_form(short=30, full=3000)
ENDPOINTS = {"writers": NoteTask().spec, "readers": ReadTask().spec}
TEXTS = ["", "r", "words", "x" * 10_000, "\0", "\ud7ff\U0010ffff"]
UINT32 = [0, 1, 2, 2**31, 2**32 - 1]
UINT64 = [0, 1, 50, 2**63, 2**64 - 1]
REQUESTS = [
    b"",
    b"\xff\xfe",
    b"[" * 10_000,
    b"{}" + b" " * 100_000,
    b'{"text": "news"}',
    b'{"text": "news", "nbytes": 1000000000000}',
    b'{"text": "news", "nbytes": 4000000}',
    b'{"text": "news", "seconds": 1000}',
    b'{"text": "\\ud800", "fail": "\\udfff"}',
    b'{"text": "news", "fail": "' + b"x" * 100_000 + b'"}',
    b'{"notes": []}',
    b'{"notes": [{"$input": 0}, {"$input": 1}, {"$input": 0}]}',
    b'{"notes": [{"$input": -1}, {"$input": 1000000000000000000000000000000}]}',
    b'{"notes": [' + b'{"$input": 0}, ' * 2000 + b'{"$input": 0}], "seconds": 1000}',
]
UNKNOWN_FIELD = b"\xfa\x3f\x04junk"


def message(kind: Any, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Returns messages, each with some of the fields."""
    return st.fixed_dictionaries({}, optional=fields).map(lambda chosen: kind(**chosen))


pending = message(
    pb.Pending,
    invocation=st.sampled_from(UINT32),
    output=st.sampled_from(["note", *TEXTS]),
    attempt=st.sampled_from(UINT32),
    endpoint=st.sampled_from([*ENDPOINTS, "127.0.0.1:1", "[::1]:70000", *TEXTS]),
)
inputs = st.lists(
    st.one_of(
        pending.map(lambda tensor: pb.Input(pending=tensor)), st.sampled_from([pb.Input(), pb.Input(inline=b"a")])
    ),
    max_size=4,
)
chunk = message(pb.OutputChunk, output=st.sampled_from(TEXTS), item=st.sampled_from(REQUESTS))
start_command = message(
    pb.Start,
    request_id=st.sampled_from(TEXTS),
    invocation=st.sampled_from(UINT32),
    attempt=st.sampled_from(UINT32),
    timeout_ms=st.sampled_from(UINT64),
    traceparent=st.sampled_from([*TEXTS, "00-0-0-0"]),
    tracestate=st.sampled_from(TEXTS),
    request=st.sampled_from(REQUESTS),
    inputs=inputs,
    outputs=st.lists(st.sampled_from(TEXTS), max_size=1000),
    delivered=st.lists(chunk, max_size=3),
    arrived_us=st.sampled_from(UINT64),
)
call = st.sampled_from(UINT64)
command = st.one_of(
    st.builds(lambda call, start: pb.Command(call=call, start=start), call, start_command),
    st.builds(lambda call, start: pb.Command(call=call, start=start), st.integers(0, 2**64 - 1), start_command),
    st.builds(lambda call: pb.Command(call=call, cancel=pb.Cancel()), call),
    st.builds(lambda call: pb.Command(call=call, release=pb.Release()), call),
    st.just(pb.Command.FromString(UNKNOWN_FIELD)),
)
commands = st.lists(st.tuples(st.sampled_from([*ENDPOINTS]), command), min_size=1, max_size=30)


@pytest.mark.chaos(fault="sequences of random commands to executors", count=SEQUENCES)
@seed(form.seed())
@settings(
    max_examples=SEQUENCES,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(commands)
def test_any_commands_leave_nothing_behind_and_do_not_affect_other_callers(
    sent: Sequence[tuple[str, pb.Command]],
) -> None:
    asyncio.run(_send_and_check(sent))


async def _send_and_check(sent: Sequence[tuple[str, pb.Command]]) -> None:
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: errors.append(context))
    executors = EchoExecutors()
    endpoints = {name: await executors.endpoint(spec) for name, spec in ENDPOINTS.items()}
    async with calling(endpoints["writers"]) as valid:
        hostile = {name: await _connected(endpoint) for name, endpoint in endpoints.items()}
        for name, command in sent:
            for tensor in (given.pending for given in command.start.inputs if given.HasField("pending")):
                tensor.endpoint = endpoints.get(tensor.endpoint, tensor.endpoint)
            hostile[name].send(command)
        assert (await end_of(valid, start(1, '{"text": "good news"}', request_id="valid"))).code == pb.CODE_OK
        for caller in hostile.values():
            caller.abort()
            await caller.connection.wait_closed()
        valid.send(pb.Command(call=1, release=pb.Release()))
        await until(lambda: not executors.running() and not _held(executors), seconds=20)
        assert executors.total("cornserve_executor_invocations_waiting") == 0
        assert executors.total("cornserve_transport_waiting_tensors") == 0
        assert (await end_of(valid, start(2, '{"text": "good news"}', request_id="valid"))).code == pb.CODE_OK
    await executors.close()
    with suppress(TimeoutError):
        await until(lambda: len(asyncio.all_tasks()) == 1, seconds=10)
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []
    assert errors == []


async def _connected(endpoint: str) -> Caller:
    caller = Caller()
    await caller.connect(endpoint)
    return caller


def _held(executors: EchoExecutors) -> float:
    return executors.total("cornserve_transport_slab_bytes", {"state": "held"})
