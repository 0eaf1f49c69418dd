"""Messages that the transfer protocol does not allow. They affect their own connection only, and leak nothing."""

from __future__ import annotations

from tests.unit.transport.conftest import REQUEST, TransportCluster
from tests.unit.transport.raw_peers import consuming
from tests.unit.transport.test_transport import DATA, produce, publish, received
from tests.waiting import until


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
