"""A process connects only to endpoints of its own instance, whatever address a message names."""

from __future__ import annotations

import asyncio
from ipaddress import ip_network
from pathlib import Path

import pytest

from cornserve.transport import AnnouncedPeers, LostError, NetworkPeers, TensorId
from tests.unit.transport.conftest import REQUEST, TransportCluster
from tests.unit.transport.test_transport import DATA, produce, publish, received


@pytest.fixture
def peers(tmp_path: Path) -> AnnouncedPeers:
    return AnnouncedPeers(f"{tmp_path}/replicas/*/endpoint")


def announce(tmp_path: Path, replica: str, endpoint: str) -> None:
    directory = tmp_path / "replicas" / replica
    directory.mkdir(parents=True)
    (directory / "endpoint").write_text(f"{endpoint}\n127.0.0.1:1")


async def test_tensors_are_consumed_at_announced_endpoints(
    cluster: TransportCluster, peers: AnnouncedPeers, tmp_path: Path
) -> None:
    producer, late, consumer = (
        await cluster.transport(),
        await cluster.transport(),
        await cluster.transport(peers=peers),
    )
    for process, replica in ((producer, "a"), (late, "b")):
        await publish(produce(process))
        announce(tmp_path, replica, process.endpoint)

        assert await received(consumer, process) == DATA


async def test_no_connection_is_opened_to_an_address_that_is_not_announced(
    cluster: TransportCluster, peers: AnnouncedPeers, tmp_path: Path
) -> None:
    consumer, other = await cluster.transport(peers=peers), await cluster.transport()
    announce(tmp_path, "a", other.endpoint)
    connections: list[object] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        writer.close()

    async with await asyncio.start_server(accept, "127.0.0.1", 0) as server:
        endpoint = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for address in (endpoint, endpoint.replace("127.0.0.1", "localhost"), other.endpoint.replace("127", "0127")):
            with pytest.raises(LostError, match="is not an endpoint of an executor of this instance"):
                async with consumer.transport.consume(TensorId(address, REQUEST, 0, 0, "embeddings")):
                    pass

    assert connections == []


async def test_the_permission_is_checked_before_a_task_for_the_connection_is_created(
    cluster: TransportCluster, peers: AnnouncedPeers
) -> None:
    consumer = await cluster.transport(peers=peers)
    tasks: set[str] = set()

    async def consume(port: int) -> None:
        try:
            async with consumer.transport.consume(TensorId(f"127.0.0.1:{port}", REQUEST, 0, 0, "embeddings")):
                pass
        finally:
            tasks.update(task.get_name() for task in asyncio.all_tasks())

    lost = await asyncio.gather(*(consume(port) for port in range(1, 50)), return_exceptions=True)

    assert {type(error) for error in lost} == {LostError}
    assert [name for name in tasks if name.startswith("transfer ")] == []


@pytest.mark.parametrize("endpoint", ["", ":", "host", "127.0.0.1:", "127.0.0.1:-2", "127.0.0.1:65536", ":80", "h:٣"])
async def test_a_tensor_at_a_malformed_endpoint_is_lost(cluster: TransportCluster, endpoint: str) -> None:
    consumer = await cluster.transport()

    with pytest.raises(LostError, match="is not an endpoint: give HOST:PORT"):
        async with consumer.transport.consume(TensorId(endpoint, REQUEST, 0, 0, "embeddings")):
            pass


async def test_many_unknown_endpoints_share_the_reads_of_the_files(
    cluster: TransportCluster, peers: AnnouncedPeers, tmp_path: Path
) -> None:
    announce(tmp_path, "a", "127.0.0.1:9")

    found = await asyncio.gather(*(peers.contains(f"127.0.0.1:{port}") for port in range(2000)))

    assert found == [port == 9 for port in range(2000)]


async def test_tensors_are_consumed_in_the_networks_of_the_peers(cluster: TransportCluster) -> None:
    producer = await cluster.transport()
    await publish(produce(producer))
    port = int(producer.endpoint.rpartition(":")[2])
    inside = await cluster.transport(peers=NetworkPeers([ip_network("127.0.0.0/8")], port))
    outside = await cluster.transport(peers=NetworkPeers([ip_network("10.0.0.0/8")], port))

    assert await received(inside, producer) == DATA
    with pytest.raises(LostError, match="is not an endpoint of an executor of this instance"):
        await received(outside, producer)


@pytest.mark.parametrize(
    ("endpoint", "is_peer"),
    [
        ("10.244.3.7:9000", True),
        ("[fd00::7]:9000", True),
        ("[::ffff:10.244.3.7]:9000", True),
        ("10.244.3.7:6443", False),
        ("10.245.0.1:9000", False),
        ("[fd01::7]:9000", False),
        ("executor.svc:9000", False),
        ("010.244.3.7:9000", False),
        ("10.244.3.7", False),
        ("", False),
    ],
)
async def test_a_peer_has_the_common_port_and_an_address_in_a_network(endpoint: str, *, is_peer: bool) -> None:
    peers = NetworkPeers([ip_network("10.244.0.0/16"), ip_network("fd00::/64")], port=9000)

    assert await peers.contains(endpoint) == is_peer


@pytest.mark.parametrize(
    ("address", "is_peer"),
    [
        ("192.0.2.1", True),
        ("[2001:db8::1]", True),
        ("127.0.0.1", False),
        ("[::1]", False),
        ("169.254.169.254", False),
        ("[fe80::1]", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
    ],
)
async def test_networks_of_all_addresses_contain_no_special_ones(address: str, *, is_peer: bool) -> None:
    peers = NetworkPeers([ip_network("0.0.0.0/0"), ip_network("::/0")], port=9000)

    assert await peers.contains(f"{address}:9000") == is_peer
