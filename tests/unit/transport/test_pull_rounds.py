"""Many tensors between two nodes, of which some are cancelled or revoked, by each protocol."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest

from cornserve.pull_protocol import PullProtocol
from cornserve.transport import LostError, TensorId
from tests.chaos.form import seed
from tests.unit.transport.conftest import MIB, TransportCluster, TransportProcess, needs_extra
from tests.unit.transport.test_transport import publish
from tests.waiting import until

ROUNDS = 1000
AT_ONCE = 6
"""Rounds that run concurrently. Their tensors do not fit into the slabs together."""


@pytest.mark.slow
@pytest.mark.parametrize("protocol", [PullProtocol.TCP, PullProtocol.UCX])
async def test_no_bytes_of_a_thousand_tensors_are_wrong(
    cluster: TransportCluster, tmp_path: Path, protocol: PullProtocol
) -> None:
    (tmp_path / "other").mkdir()
    producer, consumer = [
        await cluster.transport(protocol=needs_extra(protocol), slab_bytes=4 * MIB, directory=directory)
        for directory in (tmp_path, tmp_path / "other")
    ]
    order, outcomes, limit = random.Random(seed()), Counter[str](), asyncio.Semaphore(AT_ONCE)

    async def run(number: int) -> None:
        async with limit:
            outcomes[await run_round(producer, consumer, number, order)] += 1

    async with asyncio.TaskGroup() as group:
        for number in range(ROUNDS):
            group.create_task(run(number))

    assert outcomes["arrived"] > ROUNDS // 2
    assert outcomes["cancelled"] > 0
    assert outcomes["lost"] > 0
    assert outcomes.total() == ROUNDS
    await until(lambda: producer.held_bytes == consumer.held_bytes == 0)
    metrics = {
        (sample.name, sample.labels.get("protocol")): sample.value
        for metric in consumer.transport.metrics()
        for sample in metric.samples
    }
    assert metrics["cornserve_transport_pull_failures_total", protocol] == 0
    assert metrics["cornserve_transport_pulled_bytes_total", protocol] > 0
    assert metrics["cornserve_transport_waiting_tensors", None] == 0


async def read(consumer: TransportProcess, tensor_id: TensorId) -> bytes:
    async with consumer.transport.consume(tensor_id) as tensor:
        return bytes(tensor.view)


async def run_round(producer: TransportProcess, consumer: TransportProcess, number: int, order: random.Random) -> str:
    """Returns what has become of the tensor. Fails if its bytes are wrong."""
    data = order.randbytes(order.choice([1, 4096, 9000, 100_000, MIB // 2]))
    tensor_id = TensorId(producer.endpoint, f"request-{number}", 0, 0, "embeddings")
    production = producer.transport.produce(tensor_id.request_id, 0, 0, arrived_us=number)
    await publish(production, data=data)
    reading = asyncio.create_task(read(consumer, tensor_id))
    fate = order.random()
    if fate < 0.3:
        await asyncio.sleep(order.random() * 0.005)
        if fate < 0.15:
            reading.cancel()
        else:
            production.revoke()
    try:
        assert await reading == data, f"the bytes of tensor {number} are wrong"
        return "arrived"
    except LostError:
        return "lost"
    except asyncio.CancelledError:
        return "cancelled"
    finally:
        if not 0.15 <= fate < 0.3:
            production.release()
