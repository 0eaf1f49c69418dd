"""Executors in pods: one directory in shared memory for all pods of a node, and process ids of their own in each."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from uuid import uuid4

import pytest

from tests.integration.transport.conftest import WorkerClient, running_worker
from tests.integration.transport.test_failures import HELD, hold, publish
from tests.integration.transport.worker import MIB
from tests.namespaces import Node, running_node
from tests.waiting import until

PRIVATE = "cornserve_transport_slab_private"


class Machine:
    """Starts nodes, and pods on them."""

    def __init__(self, directory: Path, stack: AsyncExitStack) -> None:
        self._directory = directory
        self._stack = stack

    async def start_node(self, shared_memory_mib: int = 16) -> Node:
        node = running_node(self._directory / "shared-memory", shared_memory_mib)
        return await self._stack.enter_async_context(node)

    async def start_pod(self, node: Node, *, kernel: Path | None = None, reap_seconds: float = 60) -> WorkerClient:
        worker = running_worker(node.shared_memory, 4 * MIB, prefix=node.pod(kernel), reap_seconds=reap_seconds)
        return await self._stack.enter_async_context(worker)


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    async with AsyncExitStack() as stack:
        (tmp_path / "shared-memory").mkdir()
        yield Machine(tmp_path, stack)


async def received_bytes(consumer: WorkerClient, kind: str) -> float:
    metrics: dict[str, float] = await consumer.call("metrics")
    return metrics[f'cornserve_transport_received_bytes_total{{kind="{kind}"}}']


async def test_pods_of_a_node_share_memory(machine: Machine) -> None:
    node = await machine.start_node()
    producer, consumer = await machine.start_pod(node), await machine.start_pod(node)
    await publish(producer, fill=0xAB)

    assert await hold(consumer, producer) == ""

    assert await consumer.call("read", output="embeddings") == "ab"
    assert await received_bytes(consumer, "same_node") == MIB


async def test_pods_of_two_nodes_pull(machine: Machine) -> None:
    producer = await machine.start_pod(await machine.start_node())
    consumer = await machine.start_pod(await machine.start_node())
    await publish(producer, fill=0xAB)

    assert await hold(consumer, producer) == ""

    assert await consumer.call("read", output="embeddings") == "ab"
    assert await received_bytes(consumer, "pulled") == MIB


async def test_pods_that_share_a_directory_but_no_kernel_pull(machine: Machine, tmp_path: Path) -> None:
    other_kernel = tmp_path / "boot_id"
    other_kernel.write_text(f"{uuid4()}\n")
    node = await machine.start_node()
    producer, consumer = await machine.start_pod(node), await machine.start_pod(node, kernel=other_kernel)
    await publish(producer, fill=0xAB)

    assert await hold(consumer, producer) == ""

    assert await consumer.call("read", output="embeddings") == "ab"
    assert await received_bytes(consumer, "pulled") == MIB


async def test_the_segment_of_a_killed_pod_is_removed_by_the_next(machine: Machine) -> None:
    node = await machine.start_node()
    killed, alive = await machine.start_pod(node), await machine.start_pod(node)
    for pod in (killed, alive):
        await publish(pod)
    await killed.kill()
    assert len(node.segments()) == 2

    await machine.start_pod(node)

    assert len(node.segments()) == 1
    assert await alive.metric_equals(HELD, MIB)


async def test_the_segment_of_a_killed_pod_is_removed_by_those_that_remain(machine: Machine) -> None:
    node = await machine.start_node()
    killed = await machine.start_pod(node)
    await machine.start_pod(node, reap_seconds=0.05)
    await publish(killed)
    assert len(node.segments()) == 1

    await killed.kill()

    await until(lambda: node.segments() == [])


async def test_pods_pull_the_tensors_of_a_pod_for_which_the_shared_memory_is_too_small(machine: Machine) -> None:
    node = await machine.start_node(shared_memory_mib=6)
    first, second = await machine.start_pod(node), await machine.start_pod(node)
    for pod in (first, second):
        await publish(pod, fill=0xAB)

    for consumer, producer in ((first, second), (second, first)):
        assert await hold(consumer, producer) == ""
        assert await consumer.call("read", output="embeddings") == "ab"

    assert await first.metric_equals(PRIVATE, 0)
    assert await second.metric_equals(PRIVATE, 1)
    assert await received_bytes(first, "pulled") == await received_bytes(second, "same_node") == MIB


async def test_the_segment_of_a_killed_pod_makes_room_for_one_that_needs_it(machine: Machine) -> None:
    node = await machine.start_node(shared_memory_mib=6)
    killed, alive = await machine.start_pod(node), await machine.start_pod(node)
    await publish(killed)
    await killed.kill()

    await publish(alive)

    assert await alive.metric_equals(PRIVATE, 0)
    assert len(node.segments()) == 1
