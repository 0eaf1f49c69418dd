"""Random well-formed messages between a producing and a consuming process. They affect their own connection only."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from cornserve.transport import LostError, TensorId, TensorTooLargeError
from cornserve.v1 import transfer_pb2 as pb
from tests.chaos import form
from tests.unit.transport.conftest import REQUEST, TransportCluster, TransportProcess
from tests.unit.transport.raw_peers import RawProducer, consuming
from tests.unit.transport.test_protocol_errors import PRODUCER
from tests.unit.transport.test_transport import DATA, produce, publish, received
from tests.waiting import until

TEXTS = ["", REQUEST, "embeddings", "x" * 1000]
UINT32 = [0, 1, 2, 2**32 - 1]
UINT64 = [0, 1, 4096, 16384, 2**63, 2**64 - 1]
SEQUENCES = form.by_form(short=25, full=2000)
FUZZED = settings(
    max_examples=SEQUENCES,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def message(kind: Any, **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Returns messages, each with some of the fields."""
    return st.fixed_dictionaries({}, optional=fields).map(lambda chosen: kind(**chosen))


number = st.sampled_from([*UINT64, 7])
subscribe = message(
    pb.Subscribe,
    request_id=st.sampled_from(TEXTS),
    invocation=st.sampled_from(UINT32),
    attempt=st.sampled_from(UINT32),
    output=st.sampled_from(TEXTS),
)
command = st.one_of(
    st.builds(lambda number, kind: pb.TransferCommand(subscription=number, subscribe=kind), number, subscribe),
    st.builds(lambda number, chunk: pb.TransferCommand(subscription=number, release_chunk=chunk), number, number),
    st.builds(lambda number: pb.TransferCommand(subscription=number, unsubscribe=True), number),
    st.sampled_from([pb.TransferCommand(heartbeat=True), pb.TransferCommand.FromString(b"\xfa\x3f\x04junk")]),
)
tensor_ref = message(
    pb.TensorRef,
    dtype=st.sampled_from(["uint8", "bfloat16", *TEXTS]),
    shape=st.sampled_from([[], [1], [64, 256], [0], [2**63, 2], [1] * 1000]),
    metadata=st.sampled_from([b"", bytes(60_000)]),
    offset=st.sampled_from(UINT64),
    nbytes=st.sampled_from(UINT64),
    generation=st.sampled_from(UINT64),
    arrived_us=st.sampled_from(UINT64),
    published_us=st.sampled_from(UINT64),
)
event = st.one_of(
    st.builds(lambda chunk, tensor: pb.TransferEvent(chunk=chunk, tensor=tensor), number, tensor_ref),
    st.builds(lambda number, text: pb.TransferEvent(subscription=number, lost=text), number, st.sampled_from(TEXTS)),
    st.sampled_from(
        [
            pb.TransferEvent(stream_end=True),
            pb.TransferEvent(recall=True),
            pb.TransferEvent(lost=""),
            pb.TransferEvent(heartbeat=True),
            pb.TransferEvent(producer=PRODUCER),
            pb.TransferEvent.FromString(b"\xfa\x3f\x04junk"),
        ]
    ),
)


@pytest.mark.chaos(fault="sequences of random commands of a tensor's consumer", count=SEQUENCES)
@seed(form.seed())
@FUZZED
@given(st.lists(command, min_size=1, max_size=30))
def test_any_commands_of_a_consumer_leave_nothing_behind(commands: Sequence[pb.TransferCommand]) -> None:
    async def check(cluster: TransportCluster) -> None:
        producer, other = await cluster.transport(), await cluster.transport()
        production, later = produce(producer), produce(producer, attempt=1)
        await publish(production)
        await publish(later)
        async with consuming(producer.endpoint) as hostile:
            for command in commands:
                hostile.connection.send(command)
            assert await received(other, producer, attempt=1) == DATA
        production.release()
        later.release()
        await until(lambda: producer.held_bytes == 0, seconds=20)

    asyncio.run(_run(check))


@pytest.mark.chaos(fault="sequences of random events of a tensor's producer", count=SEQUENCES)
@seed(form.seed())
@FUZZED
@given(st.sampled_from([None, PRODUCER]), st.lists(event, max_size=20))
def test_any_events_of_a_producer_leave_nothing_behind(
    described: pb.Producer | None, events: Sequence[pb.TransferEvent]
) -> None:
    async def check(cluster: TransportCluster) -> None:
        consumer, other = await cluster.transport(), await cluster.transport()
        await publish(produce(other))
        async with RawProducer(described, *events).serving() as endpoint:
            tensor = TensorId(endpoint, REQUEST, 0, 0, "embeddings")
            reading = [asyncio.create_task(_read(consumer, tensor)), asyncio.create_task(_read_all(consumer, tensor))]
            assert await received(consumer, other) == DATA
            assert consumer.held_bytes == 0 or not all(task.done() for task in reading)
        await asyncio.gather(*reading)  # the end of the producer ends both
        assert consumer.held_bytes == 0

    asyncio.run(_run(check))


async def _read(consumer: TransportProcess, tensor: TensorId) -> None:
    with suppress(LostError, TensorTooLargeError):
        async with consumer.transport.consume(tensor) as view:
            bytes(view.view)


async def _read_all(consumer: TransportProcess, tensor: TensorId) -> None:
    with suppress(LostError, TensorTooLargeError):
        async for view in consumer.transport.consume_stream(tensor):
            bytes(view.view)


async def _run(check: Any) -> None:
    """Runs the check with a cluster. Asserts that no task fails or remains."""
    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: errors.append(context))
    with TemporaryDirectory(dir="/dev/shm", prefix="cornserve-test-") as directory:
        async with AsyncExitStack() as stack:
            await check(TransportCluster(Path(directory), stack))
    with suppress(TimeoutError):
        await until(lambda: len(asyncio.all_tasks()) == 1, seconds=10)
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []
    assert errors == []
