"""Processes that share memory, and die or hang while a tensor is produced, announced or held."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cornserve.transport import LostError, StaleError, TensorId, Transport, reap
from tests.chaos.form import by_form, seed
from tests.chaos.report import FaultRecorder, FaultResult
from tests.credentials import CREDENTIALS
from tests.integration.transport.conftest import StartWorker, WorkerClient
from tests.integration.transport.worker import MIB, REQUEST
from tests.waiting import until

HELD = 'cornserve_transport_slab_bytes{state="held"}'


@pytest.fixture
async def consumer(shared_memory: Path) -> AsyncIterator[Transport]:
    """Returns a transport in the test's process."""
    transport = Transport(shared_memory, CREDENTIALS, slab_bytes=MIB, request_bytes=MIB)
    yield transport
    await transport.stop()


async def hold(consumer: WorkerClient, producer: WorkerClient, invocation: int = 0) -> str:
    """Returns the error, or an empty string."""
    tensor = {"endpoint": producer.endpoint, "invocation": invocation, "output": "embeddings"}
    return str(await consumer.call("hold", **tensor))


async def publish(producer: WorkerClient, fill: int = 7) -> None:
    await producer.call("begin", invocation=0)
    await producer.call("publish", invocation=0, output="embeddings", nbytes=MIB, fill=fill)


async def test_a_tensor_is_passed_from_process_to_process(start_worker: StartWorker) -> None:
    producer, consumer = await start_worker(), await start_worker()
    await publish(producer, fill=0xAB)

    assert await hold(consumer, producer) == ""

    assert await consumer.call("read", output="embeddings") == "ab"


async def test_a_tensor_is_lost_when_its_producer_is_killed_before_publishing(
    start_worker: StartWorker, consumer: Transport
) -> None:
    producer = await start_worker()
    await producer.call("begin", invocation=0)
    waiting = asyncio.create_task(read(consumer, producer, 0))
    await producer.call("begin", invocation=1)
    await producer.call("release", invocation=1)
    with pytest.raises(LostError, match="has ended"):  # The earlier subscription has arrived, too.
        await read(consumer, producer, 1)

    await producer.kill()

    with pytest.raises(LostError, match=r"output 'embeddings' of invocation 0 \(attempt 0\) of request request at"):
        await waiting
    with pytest.raises(LostError):
        await read(consumer, producer, 0)


async def test_a_tensor_is_lost_when_its_producer_is_killed_while_writing(start_worker: StartWorker) -> None:
    producer, consumer = await start_worker(), await start_worker()
    await producer.call("begin", invocation=0)
    await producer.call("allocate", invocation=0, output="embeddings", nbytes=MIB)
    holding = asyncio.create_task(hold(consumer, producer))

    await producer.kill()

    assert "LostError" in await holding


async def test_a_received_tensor_stays_readable_when_its_producer_is_killed(
    start_worker: StartWorker, shared_memory: Path
) -> None:
    producer, consumer = await start_worker(), await start_worker()
    await publish(producer, fill=0xAB)
    await hold(consumer, producer)

    await producer.kill()
    assert len(reap(shared_memory)) == 1

    assert await consumer.call("read", output="embeddings") == "ab"


async def test_leases_of_a_killed_consumer_end(start_worker: StartWorker) -> None:
    producer, consumer = await start_worker(), await start_worker()
    await publish(producer)
    await hold(consumer, producer)
    await producer.call("release", invocation=0)
    assert await producer.metric_equals(HELD, MIB)

    await consumer.kill()

    await until(lambda: producer.metric_equals(HELD, 0))


async def test_leases_of_a_hung_consumer_expire_and_its_tensors_are_stale_when_it_resumes(
    start_worker: StartWorker,
) -> None:
    producer, consumer = await start_worker(), await start_worker()
    await publish(producer, fill=1)
    await hold(consumer, producer)
    await producer.call("release", invocation=0)

    consumer.stop()
    await until(lambda: producer.metric_equals(HELD, 0))
    await producer.call("begin", invocation=1)
    for output in ("first", "second"):
        await producer.call("publish", invocation=1, output=output, nbytes=MIB, fill=2)
    consumer.resume()

    assert "StaleError" in await consumer.call("read", output="embeddings")


async def test_leases_of_an_idle_consumer_do_not_expire(start_worker: StartWorker) -> None:
    producer, consumer, hung = [await start_worker() for _ in range(3)]
    await publish(producer, fill=1)
    await hold(consumer, producer)
    await hold(hung, producer)
    await producer.call("release", invocation=0)

    hung.stop()
    await until(lambda: producer.metric_equals("cornserve_transport_expired_leases_total", 1))

    assert await consumer.call("read", output="embeddings") == "01"


async def test_a_starting_process_removes_the_segments_of_dead_ones(
    start_worker: StartWorker, shared_memory: Path
) -> None:
    dead, alive = await start_worker(), await start_worker()
    for worker in (dead, alive):
        await publish(worker)
    await dead.kill()
    assert len(segments(shared_memory)) == 2

    await start_worker()

    assert len(segments(shared_memory)) == 1
    assert await alive.metric_equals(HELD, MIB)


async def test_a_process_that_ends_removes_its_segment(start_worker: StartWorker, shared_memory: Path) -> None:
    worker = await start_worker()
    await publish(worker)
    assert worker.process.stdin is not None

    worker.process.stdin.close()
    await worker.process.wait()

    assert segments(shared_memory) == []


def segments(directory: Path) -> list[Path]:
    return list(directory.iterdir())


async def test_no_consumer_waits_for_a_producer_that_is_killed_while_announcing(
    start_worker: StartWorker, consumer: Transport
) -> None:
    producer = await start_worker()
    reading = [asyncio.create_task(read(consumer, producer, invocation)) for invocation in range(1001)]
    await producer.send("churn", count=1000, nbytes=1000, seed=4)
    async with asyncio.timeout(60):
        await asyncio.wait({reading[500]})

        await producer.kill()

        outcomes = await asyncio.gather(*reading, return_exceptions=True)
    assert all(isinstance(outcome, bytes | LostError | StaleError) for outcome in outcomes)
    assert isinstance(outcomes[-1], LostError)


@pytest.mark.chaos
async def test_bytes_of_another_tensor_are_never_accepted(
    start_worker: StartWorker, consumer: Transport, record_fault: FaultRecorder
) -> None:
    """The producer reuses the same memory while the tensors are read."""
    count, nbytes = by_form(short=800, full=6000), 256 << 10
    producer = await start_worker(slab_bytes=4 * nbytes)
    reading = [asyncio.create_task(read(consumer, producer, invocation)) for invocation in range(count)]

    await producer.call("churn", count=count, nbytes=nbytes, seed=seed())
    async with asyncio.timeout(60):
        outcomes = await asyncio.gather(*reading, return_exceptions=True)

    wrong = [outcome for outcome in outcomes if not isinstance(outcome, bytes | StaleError | LostError)]
    assert wrong == []  # an AssertionError means that the bytes were of another tensor
    assert await producer.metric_equals(HELD, 0)
    received = sum(isinstance(outcome, bytes) for outcome in outcomes)
    record_fault(
        FaultResult(
            "tensor revoked while it is read", count, count, f"{received:,} read, others stale or lost", leaks=0
        )
    )


async def read(consumer: Transport, producer: WorkerClient, invocation: int) -> bytes:
    """Reads a tensor and checks that all its bytes equal its metadata."""
    async with consumer.consume(TensorId(producer.endpoint, REQUEST, invocation, 0, "embeddings")) as tensor:
        for _ in range(invocation % 7):
            await asyncio.sleep(0)
        data = bytes(tensor.view)
        tensor.check()
        assert data == tensor.metadata * len(data)
        return tensor.metadata


async def test_processes_without_shared_memory_pull(start_worker: StartWorker, shared_memory: Path) -> None:
    (shared_memory / "producer").mkdir()
    (shared_memory / "consumer").mkdir()
    producer = await start_worker(shared_memory / "producer")
    consumer = await start_worker(shared_memory / "consumer")
    await publish(producer, fill=0xAB)

    assert await hold(consumer, producer) == ""
    await producer.call("release", invocation=0)
    await until(lambda: producer.metric_equals(HELD, 0))
    await producer.kill()

    assert await consumer.call("read", output="embeddings") == "ab"


async def test_a_tensor_is_lost_when_its_producer_is_killed_during_the_pull(
    start_worker: StartWorker, shared_memory: Path
) -> None:
    (shared_memory / "producer").mkdir()
    (shared_memory / "consumer").mkdir()
    size = 256 * MIB
    producer = await start_worker(shared_memory / "producer", slab_bytes=2 * size)
    consumer = await start_worker(shared_memory / "consumer", slab_bytes=2 * size)
    await producer.call("begin", invocation=0)
    await producer.call("publish", invocation=0, output="embeddings", nbytes=size, fill=1)
    await consumer.send("hold", endpoint=producer.endpoint, invocation=0, output="embeddings")

    producer.stop()
    await producer.kill()

    assert "LostError" in await consumer.read_response()
    await until(lambda: consumer.metric_equals(HELD, 0))
