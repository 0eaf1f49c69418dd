"""Pulls with libraries for RDMA. Without a network device for it, the libraries use TCP."""

from __future__ import annotations

import asyncio
import resource
import socket
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from cornserve.pull_protocol import PullProtocol
from cornserve.transport.errors import LostError
from cornserve.transport.memory.step_registrations import StepRegistrations
from cornserve.transport.pull import selection
from cornserve.transport.pull.fabric import Fabric
from cornserve.transport.pull.fabric_ends import RESPONSE_SECONDS
from cornserve.transport.pull.selection import FABRICS, PULLS_PER_PRODUCER
from cornserve.wire import sockets
from tests.loop_clock import LoopClock
from tests.tcp_sockets import tcp_sockets
from tests.unit.transport.conftest import MIB, TransportCluster, TransportProcess, needs_extra
from tests.unit.transport.test_transport import DATA, produce, publish, received
from tests.waiting import until

ONLY_PORT = b"\x82"
"""Precedes the port of a TCP interface in an address of UCX: the size, and the flag for the device's last transport."""

by_fabric = pytest.mark.parametrize("two_nodes", list(FABRICS), indirect=True)


def metric(process: TransportProcess, name: str) -> dict[str, float]:
    """Returns the values of a metric by protocol."""
    samples = [sample for metric in process.transport.metrics() for sample in metric.samples]
    return {
        sample.labels["protocol"]: sample.value for sample in samples if sample.name == f"cornserve_transport_{name}"
    }


@by_fabric
async def test_metrics_name_the_protocol_that_pulls(two_nodes: tuple[TransportProcess, TransportProcess]) -> None:
    producer, consumer = two_nodes
    await publish(produce(producer))

    assert await received(consumer, producer) == DATA

    fabric, *others = metric(consumer, "protocol")
    assert others == ["tcp"]
    assert metric(consumer, "pulled_bytes_total") == {fabric: len(DATA), "tcp": 0}


@pytest.mark.parametrize("name", FABRICS)
@pytest.mark.parametrize("has_producer", [True, False])
async def test_tensors_are_pulled_by_tcp_unless_both_processes_have_the_protocol(
    cluster: TransportCluster, tmp_path: Path, name: PullProtocol, has_producer: bool
) -> None:
    (tmp_path / "other").mkdir()
    protocols = [needs_extra(name), PullProtocol.TCP]
    mine, theirs = protocols if has_producer else reversed(protocols)
    producer = await cluster.transport(protocol=mine)
    consumer = await cluster.transport(protocol=theirs, directory=tmp_path / "other")
    await publish(produce(producer))

    assert await received(consumer, producer) == DATA

    pulled = metric(consumer, "pulled_bytes_total")
    assert (pulled["tcp"], sum(pulled.values())) == (len(DATA), len(DATA))


async def test_processes_with_different_versions_of_the_library_pull_by_tcp(
    cluster: TransportCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "other").mkdir()
    producer = await cluster.transport(protocol=needs_extra(PullProtocol.UCX))
    monkeypatch.setattr("cornserve.transport.pull.ucx._version", lambda: "1.19")
    consumer = await cluster.transport(protocol=PullProtocol.UCX, directory=tmp_path / "other")
    await publish(produce(producer))

    assert await received(consumer, producer) == DATA

    assert metric(consumer, "pulled_bytes_total") == {"ucx": 0, "tcp": len(DATA)}


def test_no_library_is_imported_before_it_is_selected() -> None:
    code = "import cornserve.transport, cornserve.gateway, cornserve_executors.base, sys; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"ucxx", "libucxx"}.isdisjoint(loaded)


@pytest.mark.parametrize("name", FABRICS)
async def test_a_library_that_is_not_installed_is_replaced_by_tcp(
    cluster: TransportCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: PullProtocol
) -> None:
    async def fail() -> Any:
        raise ModuleNotFoundError("No module named 'library'")

    monkeypatch.setitem(FABRICS, name, fail)

    process = await cluster.transport(protocol=name)

    assert metric(process, "protocol") == {"tcp": 1}
    assert f"{name} does not work: No module named 'library': install cornserve[rdma]" in caplog.text


@pytest.mark.parametrize("name", FABRICS)
@pytest.mark.parametrize(
    ("error", "problems"),
    [
        (ModuleNotFoundError("No module named 'library'"), []),
        (ImportError("library.so: undefined symbol"), ["library.so: undefined symbol"]),
        (OSError("the library does not start"), ["the library does not start"]),
    ],
)
async def test_auto_warns_of_an_installed_library_that_does_not_work_on_a_machine_with_a_device(
    cluster: TransportCluster,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    name: PullProtocol,
    error: Exception,
    problems: list[str],
) -> None:
    async def fail() -> Any:
        raise error

    monkeypatch.setattr(selection, "rdma_devices", lambda: ["uverbs0"])
    monkeypatch.setattr(selection, "FABRICS", {name: fail})

    process = await cluster.transport()

    assert metric(process, "protocol") == {"tcp": 1}
    assert caplog.messages == [
        f"tensors are pulled by TCP, because {name} does not work: {problem}" for problem in problems
    ]


@pytest.mark.parametrize("name", FABRICS)
async def test_auto_warns_of_a_library_without_support_for_the_device(
    cluster: TransportCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: PullProtocol
) -> None:
    monkeypatch.setattr(selection, "rdma_devices", lambda: ["uverbs0"])
    monkeypatch.setattr(selection, "FABRICS", {needs_extra(name): without_rdma(FABRICS[name])})

    process = await cluster.transport()

    assert metric(process, "protocol") == {"tcp": 1}
    assert f"{name} does not work: it does not support the network devices uverbs0" in caplog.text


@pytest.mark.parametrize("name", FABRICS)
async def test_a_selected_library_over_tcp_warns_that_its_port_is_open_to_others(
    cluster: TransportCluster, caplog: pytest.LogCaptureFixture, name: PullProtocol
) -> None:
    await cluster.transport(protocol=needs_extra(name))

    assert f"{name} uses TCP: each process that reaches its port can write the memory of this one" in caplog.messages


def without_rdma(start: Callable[[], Awaitable[Fabric]]) -> Callable[[], Awaitable[Fabric]]:
    async def started() -> Fabric:
        fabric = await start()
        fabric.has_rdma = False
        return fabric

    return started


async def test_machines_without_a_device_for_rdma_pull_by_tcp(cluster: TransportCluster) -> None:
    assert metric(await cluster.transport(), "protocol") == {"tcp": 1}


@by_fabric
async def test_steps_of_slabs_are_registered_once(
    two_nodes: tuple[TransportProcess, TransportProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    registered: list[tuple[int, int]] = []
    register = StepRegistrations._register_step

    def record(self: StepRegistrations, memory: Any, step: int, *arguments: Any) -> None:
        registered.append((id(memory), step))
        register(self, memory, step, *arguments)

    monkeypatch.setattr(StepRegistrations, "_register_step", record)
    producer, consumer = two_nodes
    for invocation in range(3):
        production = produce(producer, invocation=invocation)
        await publish(production)
        assert await received(consumer, producer, invocation=invocation) == DATA
        production.release()

    assert [step for _, step in registered] == [0, 0]
    assert len({memory for memory, _ in registered}) == 2  # both slabs


@by_fabric
async def test_a_link_that_fails_during_a_pull_is_replaced_by_tcp(
    two_nodes: tuple[TransportProcess, TransportProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    producer, consumer = two_nodes
    name = next(iter(metric(consumer, "protocol")))
    links: list[Any] = []
    monkeypatch.setattr(link_type(name), "offer", close_first(links, link_type(name).offer))
    for output in ("first", "second"):
        await publish(produce(producer, invocation=len(output)), output)

        assert await received(consumer, producer, output, invocation=len(output)) == DATA

    assert len(links) == 1  # the failed protocol is not used again for a while
    assert metric(consumer, "pull_failures_total") == {name: 1, "tcp": 0}
    assert metric(consumer, "pulled_bytes_total") == {name: 0, "tcp": 2 * len(DATA)}
    assert consumer.held_bytes == 0


@by_fabric
async def test_pulls_that_wait_while_a_protocol_fails_do_not_try_it(
    two_nodes: tuple[TransportProcess, TransportProcess], monkeypatch: pytest.MonkeyPatch, clock: LoopClock
) -> None:
    producer, consumer = two_nodes
    name = next(iter(metric(consumer, "protocol")))
    offered: list[int] = []

    async def offer_nothing(link: Any, source: memoryview, tag: int) -> bytes:
        offered.append(tag)
        return b""

    monkeypatch.setattr(link_type(name), "offer", offer_nothing)
    await publish(produce(producer))
    pulls = asyncio.gather(*(received(consumer, producer) for _ in range(12)))
    await until(lambda: len(offered) == PULLS_PER_PRODUCER)
    clock.advance(RESPONSE_SECONDS + 1)

    assert await pulls == [DATA] * 12

    assert len(offered) == PULLS_PER_PRODUCER
    assert metric(consumer, "pull_failures_total") == {name: PULLS_PER_PRODUCER, "tcp": 0}
    assert metric(consumer, "pulled_bytes_total") == {name: 0, "tcp": 12 * len(DATA)}


@by_fabric
async def test_a_tensor_arrives_when_the_sockets_of_the_library_break_during_its_pull(
    two_nodes: tuple[TransportProcess, TransportProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library connects again, or the pull fails and TCP replaces it: this depends on what it has sent before."""
    monkeypatch.setattr("cornserve.transport.pull.fabric_ends.RESPONSE_SECONDS", 1.0)
    producer, consumer = two_nodes
    fabric = next(iter(metric(consumer, "protocol")))
    await publish(produce(producer), "first")
    assert await received(consumer, producer, "first") == DATA
    offer, ports = link_type(fabric).offer, {port_of(process.endpoint) for process in two_nodes}

    async def break_network(link: Any, source: memoryview, tag: int) -> bytes:
        offered = await offer(link, source, tag)
        for end in tcp_sockets():
            with end, suppress(OSError):  # It listens, or is closed.
                if ports.isdisjoint({end.getsockname()[1], end.getpeername()[1]}):
                    end.shutdown(socket.SHUT_RDWR)
        return bytes(offered)

    monkeypatch.setattr(link_type(fabric), "offer", break_network)
    data = DATA * 100
    await publish(produce(producer, invocation=1), "second", data)

    assert await received(consumer, producer, "second", invocation=1) == data

    assert sum(metric(consumer, "pulled_bytes_total").values()) == len(DATA) + len(data)
    assert consumer.held_bytes == 0


@by_fabric
async def test_copies_that_are_cancelled_too_late_leave_no_descriptors(
    two_nodes: tuple[TransportProcess, TransportProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The producer's library does not send, as that of a process that hangs. Each copy is ended with its worker."""
    monkeypatch.setattr("cornserve.transport.pull.fabric_puller.CANCEL_SECONDS", 0)
    producer, consumer = two_nodes
    fabric = next(iter(metric(consumer, "protocol")))
    link = link_type(fabric)
    await publish(produce(producer))
    assert await received(consumer, producer) == DATA
    descriptors = psutil.Process().num_fds()

    with monkeypatch.context() as hang:
        fetching, fetch = asyncio.Event(), link.fetch

        async def offer_nothing(link: Any, source: memoryview, tag: int) -> bytes:
            return b""

        async def record_fetch(link: Any, offer: bytes, into: memoryview, tag: int) -> None:
            fetching.set()
            await fetch(link, offer, into, tag)

        hang.setattr(link, "offer", offer_nothing)
        hang.setattr(link, "fetch", record_fetch)
        for _ in range(4):
            reading = asyncio.create_task(received(consumer, producer))
            await fetching.wait()
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            fetching.clear()

    assert await received(consumer, producer) == DATA
    assert metric(consumer, "pulled_bytes_total") == {fabric: 2 * len(DATA), "tcp": 0}
    await until(lambda: psutil.Process().num_fds() <= descriptors)


@by_fabric
@pytest.mark.parametrize("is_cancelled", [True, False])
async def test_a_pull_by_a_library_that_hangs_ends_and_its_memory_is_not_reused(
    two_nodes: tuple[TransportProcess, TransportProcess], monkeypatch: pytest.MonkeyPatch, is_cancelled: bool
) -> None:
    producer, consumer = two_nodes
    name = next(iter(metric(consumer, "protocol")))
    production = produce(producer)
    for output in ("connecting", "first", "second"):
        await publish(production, output)
    assert await received(consumer, producer, "connecting") == DATA
    fetching, may_end, has_ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def hang(link: Any, offer: bytes, into: memoryview, tag: int) -> None:
        fetching.set()
        while not may_end.is_set():
            with suppress(asyncio.CancelledError):
                await may_end.wait()
        into[:] = bytes(into.nbytes)
        has_ended.set()

    with monkeypatch.context() as hanging:
        hanging.setattr(link_type(name), "fetch", hang)
        hanging.setattr("cornserve.transport.pull.fabric_ends.RESPONSE_SECONDS", 1.0)
        hanging.setattr("cornserve.transport.pull.fabric_puller.CANCEL_SECONDS", 0)
        hanging.setattr("cornserve.transport.pull.fabric_puller.HANG_SECONDS", 0.1)
        reading = asyncio.create_task(received(consumer, producer, "first"))
        await fetching.wait()
        if is_cancelled:
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
        else:
            with pytest.raises(LostError, match="has not ended a pull"):
                await reading
            assert metric(consumer, "pull_failures_total") == {name: 1, "tcp": 0}
            assert metric(consumer, "pulled_bytes_total") == {name: len(DATA), "tcp": 0}

    assert consumer.held_bytes == len(DATA)
    async with consumer.transport.consume(producer.tensor_id("second")) as tensor:
        may_end.set()
        await has_ended.wait()
        assert bytes(tensor.view) == DATA
    await until(lambda: consumer.held_bytes == 0)


async def test_a_process_that_cannot_be_reached_does_not_stop_the_links_to_others(
    unreachable_port: int,
) -> None:
    fabric = await FABRICS[needs_extra(PullProtocol.UCX)]()
    try:
        link, peer, other = fabric.link(), fabric.link(), fabric.link()
        others = listening_ports()
        address = await peer.open()
        for port in listening_ports() - others:
            address = address.replace(ONLY_PORT + port.to_bytes(2), ONLY_PORT + unreachable_port.to_bytes(2))
        await link.open()

        async with asyncio.timeout(30):  # connecting takes over two minutes
            await link.connect(address)
            await link.offer(memoryview(bytes(MIB)), 1)
            await other.open()
    finally:
        await fabric.close()


@pytest.fixture
def unreachable_port() -> Iterator[int]:
    """A port that drops packets of further connections, because nothing accepts those that have filled its queue."""
    with ExitStack() as sockets, socket.socket() as listener:
        listener.bind(("", 0))
        listener.listen(0)
        for _ in range(3):
            sockets.enter_context(connecting := socket.socket()).setblocking(False)
            with suppress(BlockingIOError):
                connecting.connect(("127.0.0.1", listener.getsockname()[1]))
        yield listener.getsockname()[1]


def listening_ports() -> set[int]:
    return {end.laddr.port for end in psutil.Process().net_connections("tcp") if end.status == "LISTEN"}


def port_of(endpoint: str) -> int:
    return sockets.split_endpoint(endpoint)[1]


def link_type(name: str) -> type[Any]:
    from cornserve.transport.pull.ucx import UcxLink

    return {"ucx": UcxLink}[name]


def close_first(links: list[Any], original: Any) -> Any:
    async def offer(link: Any, source: memoryview, tag: int) -> bytes:
        links.append(link)
        link.close()
        return bytes(await original(link, source, tag))

    return offer


@by_fabric
async def test_idle_connections_use_no_cpu(two_nodes: tuple[TransportProcess, TransportProcess]) -> None:
    producer, consumer = two_nodes
    await publish(produce(producer), data=DATA * 20)
    await asyncio.gather(*(received(consumer, producer) for _ in range(PULLS_PER_PRODUCER)))  # a connection for each
    await asyncio.sleep(0.1)  # the last events of the library
    before = cpu_seconds()

    await asyncio.sleep(0.5)

    assert cpu_seconds() - before < 0.1


def cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
