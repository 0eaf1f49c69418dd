"""Messages that the transfer protocol does not allow. They affect their own connection only, and leak nothing."""

from __future__ import annotations

import pytest

from cornserve.transport import LostError, TensorId
from cornserve.transport.memory import segment
from cornserve.v1 import transfer_pb2 as pb
from tests.unit.transport.conftest import REQUEST, TransportCluster
from tests.unit.transport.raw_peers import RawProducer, consuming
from tests.unit.transport.test_transport import DATA, produce, publish, received
from tests.waiting import until

TOKEN = bytes(16)
PRODUCER = pb.Producer(token=TOKEN, segment=segment.file_name(TOKEN), protocols=["tcp"])


def tensor(**fields: object) -> pb.TransferEvent:
    """Returns the announcement of a tensor of 4 bytes, changed by the fields."""
    ref = {
        "dtype": "uint8",
        "shape": [4],
        "nbytes": 4,
        "offset": 1 << 20,
        "generation": 1,
        "capability": bytes(16),
    } | fields
    return pb.TransferEvent(tensor=pb.TensorRef(**ref))  # type: ignore[arg-type]


async def test_a_subscription_number_that_is_in_use_closes_the_connection_and_ends_its_leases(
    cluster: TransportCluster,
) -> None:
    producer, other = await cluster.transport(), await cluster.transport()
    production = produce(producer)
    await publish(production)
    async with consuming(producer.endpoint) as consumer:
        consumer.subscribe(7, REQUEST)
        await consumer.event("tensor")

        consumer.subscribe(7, REQUEST)

        await consumer.connection.wait_closed()
        assert await received(other, producer) == DATA
        production.release()
        await until(lambda: producer.held_bytes == 0)


@pytest.mark.parametrize(
    ("producer", "event", "message"),
    [
        (PRODUCER, tensor(nbytes=2**63), "a tensor of 9223372036854775808 bytes"),
        (PRODUCER, tensor(shape=[2**62, 2**62]), "a tensor of 4 bytes has the dtype 'uint8' and the shape"),
        (PRODUCER, tensor(shape=[0], nbytes=0), "the shape (0,)"),
        (PRODUCER, tensor(shape=[1] * 17, nbytes=1), "17 dimensions"),
        (PRODUCER, tensor(dtype="load"), "the dtype 'load' is unknown"),
        (PRODUCER, tensor(capability=b"short"), "the capability of a tensor has 5 bytes"),
        (PRODUCER, pb.TransferEvent(producer=PRODUCER), "described itself twice"),
        (None, tensor(), "has not described itself"),
        (pb.Producer(token=TOKEN, segment="../secrets", protocols=["tcp"]), tensor(), "'../secrets' does not belong"),
        (pb.Producer(token=b"short", segment=segment.file_name(b"short")), tensor(), "does not belong to the token"),
    ],
)
async def test_an_inconsistent_producer_loses_its_connection(
    cluster: TransportCluster, producer: pb.Producer | None, event: pb.TransferEvent, message: str
) -> None:
    consumer, other = await cluster.transport(), await cluster.transport()
    await publish(produce(other))

    async with RawProducer(producer, event).serving() as endpoint:
        with pytest.raises(LostError) as lost:
            async with consumer.transport.consume(TensorId(endpoint, REQUEST, 0, 0, "embeddings")):
                pass

    assert message in str(lost.value)
    assert await received(consumer, other) == DATA
    assert consumer.held_bytes == 0


@pytest.mark.parametrize("offset", [0, 1, 4096, 2**40, 2**64 - 1])
async def test_memory_outside_of_the_slab_is_not_read(cluster: TransportCluster, offset: int) -> None:
    owner, consumer = await cluster.transport(), await cluster.transport()
    await publish(produce(owner))
    async with consuming(owner.endpoint) as raw:
        described = (await raw.event("producer")).producer

    async with RawProducer(described, tensor(offset=offset)).serving() as endpoint:
        with pytest.raises(LostError, match="outside of its slab"):
            async with consumer.transport.consume(TensorId(endpoint, REQUEST, 0, 0, "embeddings")):
                pass


async def test_announcements_after_the_end_of_a_stream_are_ignored(cluster: TransportCluster) -> None:
    consumer = await cluster.transport()
    end = pb.TransferEvent(stream_end=True)
    async with RawProducer(PRODUCER, end, tensor(), end, pb.TransferEvent(lost="late")).serving() as endpoint:
        stream = consumer.transport.consume_stream(TensorId(endpoint, REQUEST, 0, 0, "hidden"))

        assert [chunk async for chunk in stream] == []


async def test_subscriptions_beyond_the_limit_are_lost(
    cluster: TransportCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cornserve.transport.producer.server.MAX_SUBSCRIPTIONS", 3)
    producer = await cluster.transport()
    async with consuming(producer.endpoint) as consumer:
        for number in range(1, 5):
            consumer.subscribe(number, REQUEST)

        lost = await consumer.event("lost")

        assert (lost.subscription, lost.lost) == (4, "its consumer has 3 subscriptions already")


async def test_a_slot_is_published_only_with_its_own_size(cluster: TransportCluster) -> None:
    slot = await produce(await cluster.transport()).allocate("embeddings", 16)

    with pytest.raises(ValueError, match="has 8 bytes: the slot has 16"):
        slot.publish("uint8", (8,))
    with pytest.raises(ValueError, match="the metadata have"):
        slot.publish("uint8", (16,), bytes(1 << 20))

    slot.publish("bfloat16", (2, 4))
