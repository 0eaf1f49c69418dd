"""Processes on two nodes that die or hang during a pull, and networks that fail, by each protocol."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.harness.transport.namespaces import NetworkHost, NotPermittedError, two_hosts
from cornserve.pull_protocol import PullProtocol
from cornserve.transport import LostError, StaleError, Transport
from tests.chaos.form import seed
from tests.credentials import CREDENTIALS
from tests.integration.transport.conftest import StartWorker, WorkerClient
from tests.integration.transport.test_failures import read
from tests.integration.transport.worker import MIB
from tests.unit.transport.conftest import needs_extra
from tests.waiting import until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.parametrize("protocol", [PullProtocol.TCP, PullProtocol.UCX], scope="function"),
]

SIZE = 128 * MIB
BYTES_PER_SECOND = 32 * MIB
"""The rate of pulls, which limits how soon they end."""
HELD = 'cornserve_transport_slab_bytes{state="held"}'

StartPair = Callable[[PullProtocol], Awaitable[tuple[WorkerClient, WorkerClient]]]


@pytest.fixture
async def start_pair(start_worker: StartWorker, shared_memory: Path) -> StartPair:
    """Starts a producer and a consumer without a common directory."""

    async def start(protocol: PullProtocol) -> tuple[WorkerClient, WorkerClient]:
        needs_extra(protocol)
        workers = []
        for name in ("producer", "consumer"):
            (shared_memory / name).mkdir()
            workers.append(await start_worker(shared_memory / name, slab_bytes=2 * SIZE, protocol=protocol))
        producer, consumer = workers
        return producer, consumer

    return start


async def begin_pull(producer: WorkerClient, consumer: WorkerClient) -> None:
    """Returns while the consumer pulls a large tensor, over the connection of an earlier pull."""
    for invocation, nbytes in ((2, MIB), (0, SIZE)):
        await producer.call("begin", invocation=invocation)
        await producer.call("publish", invocation=invocation, output="tensor", nbytes=nbytes, fill=7)
    tensor = {"endpoint": producer.endpoint, "output": "tensor"}
    assert await consumer.call("hold", invocation=2, **tensor) == ""
    await consumer.call("end_holds")
    await producer.call("release", invocation=2)
    await producer.call("limit_rate", bytes_per_second=BYTES_PER_SECOND)
    await consumer.send("hold", invocation=0, **tensor)
    await until(lambda: producer.metric_equals("cornserve_transport_sent_bytes_total", MIB + SIZE))


async def test_a_tensor_arrives_by_the_protocol(protocol: PullProtocol, start_pair: StartPair) -> None:
    producer, consumer = await start_pair(protocol)
    await begin_pull(producer, consumer)

    assert await consumer.read_response() == ""

    assert await consumer.call("read", output="tensor") == "07"
    pulled = f'cornserve_transport_pulled_bytes_total{{protocol="{protocol}"}}'
    assert await consumer.metric_equals(pulled, MIB + SIZE)


async def test_a_pull_from_a_process_that_is_killed_is_lost(protocol: PullProtocol, start_pair: StartPair) -> None:
    producer, consumer = await start_pair(protocol)
    await begin_pull(producer, consumer)

    producer.stop()
    await producer.kill()

    assert "LostError" in await consumer.read_response()
    await until(lambda: consumer.metric_equals(HELD, 0))


async def test_a_pull_from_a_process_that_hangs_is_lost(protocol: PullProtocol, start_pair: StartPair) -> None:
    producer, consumer = await start_pair(protocol)
    await begin_pull(producer, consumer)

    producer.stop()

    assert "LostError" in await consumer.read_response()
    await until(lambda: consumer.metric_equals(HELD, 0))
    producer.resume()
    await producer.call("release", invocation=0)
    await until(lambda: producer.metric_equals(HELD, 0))


async def test_a_consumer_that_is_killed_during_a_pull_leaves_no_lease(
    protocol: PullProtocol, start_pair: StartPair
) -> None:
    producer, consumer = await start_pair(protocol)
    await begin_pull(producer, consumer)
    await producer.call("release", invocation=0)

    await consumer.kill()

    await until(lambda: producer.metric_equals(HELD, 0))


async def test_a_consumer_that_hangs_during_a_pull_loses_its_lease(
    protocol: PullProtocol, start_pair: StartPair
) -> None:
    producer, consumer = await start_pair(protocol)
    await begin_pull(producer, consumer)
    await producer.call("release", invocation=0)

    consumer.stop()

    await until(lambda: producer.metric_equals(HELD, 0))
    consumer.resume()
    assert "LostError" in await consumer.read_response()
    await until(lambda: consumer.metric_equals(HELD, 0))


async def test_a_pull_is_lost_when_the_network_fails_and_later_pulls_arrive(
    protocol: PullProtocol, start_worker: StartWorker, shared_memory: Path
) -> None:
    needs_extra(protocol)
    with slow_network() as hosts:
        workers = []
        for name, host in zip(("producer", "consumer"), hosts, strict=True):
            (shared_memory / name).mkdir()
            options = {"protocol": protocol, "prefix": host.prefix, "host": host.address}
            workers.append(await start_worker(shared_memory / name, slab_bytes=2 * SIZE, **options))
        producer, consumer = workers
        await begin_pull(producer, consumer)

        set_link(hosts[0], "down")

        assert "LostError" in await consumer.read_response()
        await until(lambda: consumer.metric_equals(HELD, 0))
        await producer.call("release", invocation=0)
        await until(lambda: producer.metric_equals(HELD, 0))
        set_link(hosts[0], "up")
        await producer.call("begin", invocation=1)
        await producer.call("publish", invocation=1, output="small", nbytes=MIB, fill=9)
        small = {"endpoint": producer.endpoint, "invocation": 1, "output": "small"}
        assert await consumer.call("hold", **small) == ""
        assert await consumer.call("read", output="small") == "09"


@contextmanager
def slow_network() -> Iterator[tuple[NetworkHost, NetworkHost]]:
    """Connects two hosts by a link over which a large tensor takes seconds."""
    try:
        with two_hosts() as hosts:
            for host in hosts:
                shape = ("root", "tbf", "rate", "400mbit", "burst", "1mb", "latency", "50ms")
                _on(host, "tc", "qdisc", "add", "dev", link_of(host), *shape)
            yield hosts
    except (NotPermittedError, FileNotFoundError) as error:  # only root with iproute2 can create them
        pytest.skip(f"network namespaces are not available: {error}")


def set_link(host: NetworkHost, state: str) -> None:
    _on(host, "ip", "link", "set", link_of(host), state)


def link_of(host: NetworkHost) -> str:
    """Returns the name of the network device with the address of the host."""
    interfaces = json.loads(_on(host, "ip", "-json", "address"))
    (name,) = (
        interface["ifname"]
        for interface in interfaces
        if host.address in (address["local"] for address in interface["addr_info"])
    )
    return str(name)


def _on(host: NetworkHost, *command: str) -> str:
    return subprocess.run((*host.prefix, *command), check=True, capture_output=True, text=True).stdout


async def test_bytes_of_another_tensor_are_never_pulled(
    protocol: PullProtocol, start_worker: StartWorker, shared_memory: Path
) -> None:
    """The producer reuses the same memory while the tensors are pulled."""
    needs_extra(protocol)
    count, nbytes, pause = 200, 256 << 10, 0.1
    for name in ("producer", "consumer"):
        (shared_memory / name).mkdir()
    producer = await start_worker(shared_memory / "producer", slab_bytes=4 * nbytes, protocol=protocol)
    consumer = Transport(
        shared_memory / "consumer", CREDENTIALS, slab_bytes=16 * MIB, request_bytes=16 * MIB, protocol=protocol
    )
    await consumer.start()
    reading = [asyncio.create_task(read(consumer, producer, invocation)) for invocation in range(count)]

    await producer.call("churn", count=count, nbytes=nbytes, seed=seed(), pause=pause)
    async with asyncio.timeout(60):
        outcomes = await asyncio.gather(*reading, return_exceptions=True)

    wrong = [outcome for outcome in outcomes if not isinstance(outcome, bytes | StaleError | LostError)]
    assert wrong == []  # an AssertionError means that the bytes were of another tensor
    assert await producer.metric_equals(HELD, 0)
    assert any(isinstance(outcome, bytes) for outcome in outcomes)
    assert pulled_bytes(consumer, protocol) > 0
    await consumer.stop()


def pulled_bytes(consumer: Transport, protocol: PullProtocol) -> float:
    samples = [sample for metric in consumer.metrics() for sample in metric.samples]
    name = "cornserve_transport_pulled_bytes_total"
    return sum(sample.value for sample in samples if sample.name == name and sample.labels["protocol"] == protocol)
