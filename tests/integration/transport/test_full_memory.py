"""Slabs that grow until the shared memory of their node is full."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from cornserve.transport.memory.segment import FIRST_STEP_PAGES, PAGE, STEP_PAGES
from tests.integration.transport.conftest import WorkerClient, running_worker
from tests.integration.transport.test_failures import HELD, hold
from tests.integration.transport.worker import MIB
from tests.namespaces import Node, running_node
from tests.waiting import until

STEP = STEP_PAGES * PAGE
OF_TENSOR = FIRST_STEP_PAGES * PAGE + 2 * STEP
"""The memory of the steps in which the first tensor is."""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "shared-memory").mkdir()
    return tmp_path / "shared-memory"


def running_pod(node: Node, idle_seconds: float = 60) -> AbstractAsyncContextManager[WorkerClient]:
    return running_worker(node.shared_memory, 128 * MIB, prefix=node.pod(), idle_seconds=idle_seconds)


async def publish(producer: WorkerClient, invocation: int, nbytes: int = 24 * MIB) -> str:
    """Returns the error, or an empty string."""
    await producer.call("begin", invocation=invocation)
    tensor = {"invocation": invocation, "output": "embeddings", "nbytes": nbytes, "fill": invocation}
    return str(await producer.call("publish", **tensor))


async def test_a_tensor_is_refused_while_the_memory_is_full(directory: Path) -> None:
    async with running_node(directory, 64) as node, running_pod(node) as producer, running_pod(node) as consumer:
        await producer.call("fill_memory", free=8 * MIB)

        assert "SlabError: no memory for a tensor of 25165824 bytes" in await publish(producer, 1)

        await producer.call("free_memory")
        assert await publish(producer, 2) == ""
        assert await hold(consumer, producer, 2) == ""
        assert await consumer.call("read", output="embeddings") == "02"


async def test_a_consumer_that_has_hung_reads_no_memory_that_was_given_back(directory: Path, tmp_path: Path) -> None:
    """Reading it would be SIGBUS, because the memory is full."""
    async with running_node(directory, 128) as node, running_pod(node, 0.1) as producer, running_pod(node) as consumer:
        assert await publish(producer, 1) == ""
        assert await hold(consumer, producer, 1) == ""
        await consumer.send("hang", until=str(tmp_path / "resume"))
        assert await consumer.read_response() == "hanging"
        await producer.call("release", invocation=1)
        await until(lambda: producer.metric_equals(HELD, 0))  # the lease has expired

        assert await publish(producer, 2, 3 * STEP) == ""
        await producer.call("release", invocation=2)
        await until(lambda: has_resident(producer, OF_TENSOR))  # all steps were unused for the same time
        with pytest.raises(TimeoutError):
            await until(lambda: has_resident(producer, OF_TENSOR - STEP), seconds=0.3)
        await producer.call("fill_memory", free=0)
        (tmp_path / "resume").touch()
        await consumer.read_response()

        assert "StaleError" in await consumer.call("read", output="embeddings")


async def has_resident(producer: WorkerClient, nbytes: int) -> bool:
    """Returns whether a process has this memory for tensors, and a little for their generations."""
    resident = (await producer.call("metrics"))["cornserve_transport_slab_resident_bytes"]
    return bool(nbytes < resident < nbytes + MIB)
