"""An encoder process: callers send images, consumers read embeddings from shared memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2 as httpx
import PIL.Image
import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families

from cornserve.transport import LostError, Transport
from cornserve.v1 import executor_pb2 as pb
from cornserve_tasklib.encoder import EncoderTask
from cornserve_tasklib.media import MediaTensor
from tests.credentials import CREDENTIALS
from tests.images import as_image, encode_file, image_from_file, noise
from tests.integration.docs.documented_metrics import documented_metrics
from tests.integration.encoder.client import calling, read_embeddings
from tests.integration.encoder.engine import encode_rows, encoder_task
from tests.integration.engine_pool import EnginePool
from tests.integration.llm.process import ExecutorProcess, running_executor
from tests.waiting import until

if TYPE_CHECKING:
    from cornserve_executors.encoder.engine import EncoderEngine

SLAB_MIB = 8
_PROBES = count()


@pytest.fixture(scope="module")
def shared_memory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shared-memory")


@pytest.fixture(scope="module")
def executor(
    tiny_qwen25vl: Path,
    shared_memory: Path,
    fork_variables: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ExecutorProcess]:
    task = EncoderTask(model_id=str(tiny_qwen25vl))
    options = ["--shared-memory", str(shared_memory), "--slab-mib", str(SLAB_MIB)]
    directory = tmp_path_factory.mktemp("executor")
    with running_executor(task, directory, *options, environment=fork_variables) as executor:
        executor.until_ready()
        yield executor


async def wait_until_idle(executor: ExecutorProcess) -> None:
    """Waits until the executor is idle. Encodes one more image, to flush a batch whose callers have left."""

    async def is_idle() -> bool:
        metrics = await executor.metrics()
        return metrics["cornserve_executor_invocations_running"] == metrics["cornserve_encoder_pending_items"] == 0

    await until(is_idle)
    number = next(_PROBES)
    async with calling(f"probe-{number}", executor.endpoint) as caller:
        caller.send(as_image(noise(1000 + number, 112, 84)))
        await caller.end_events(1)


@pytest_asyncio.fixture(loop_scope="session")
async def consumer(shared_memory: Path) -> AsyncIterator[Transport]:
    """A transport that behaves as another process on the same node."""
    transport = Transport(shared_memory, CREDENTIALS, slab_bytes=1 << 20, request_bytes=1 << 19)
    yield transport
    await transport.stop()


async def test_a_consumer_reads_the_embeddings(
    executor: ExecutorProcess,
    consumer: Transport,
    engines: EnginePool[EncoderEngine],
    tiny_qwen25vl: Path,
) -> None:
    image = as_image(noise(1, 300, 200))
    expected = (await encode_rows(await engines.engine(encoder_task(tiny_qwen25vl)), image)).numpy()

    async with calling("reads", executor.endpoint) as caller:
        (tensor,) = caller.send(image)
        data, encoded = await read_embeddings(consumer, tensor)
        (end,) = await caller.end_events(1)

    assert end.code == pb.CODE_OK
    assert encoded.fields == {"image_grid_thw": MediaTensor(dtype="int64", shape=[3], values=[1, 14, 22])}
    assert encoded.rows == 77
    assert image.digest in encoded.key
    assert data == expected.tobytes()


async def test_images_of_several_callers_are_encoded_together(executor: ExecutorProcess) -> None:
    await wait_until_idle(executor)
    before = await executor.metrics()
    images = [as_image(noise(100 + number, 112, 84)) for number in range(40)]
    async with calling("app-1", executor.endpoint) as one, calling("app-2", executor.endpoint) as other:
        one.send(*images[:20])
        other.send(*images[20:])
        ends = [*await one.end_events(20), *await other.end_events(20)]
    after = await executor.metrics()

    def increase(name: str) -> float:
        return after[f"cornserve_encoder_{name}"] - before[f"cornserve_encoder_{name}"]

    assert {end.code for end in ends} == {pb.CODE_OK}
    assert increase("items_total") == increase("batch_items_sum") == increase("batch_requests_sum") == 40
    assert increase("batch_items_count") < 40


async def test_a_cached_image_is_not_encoded_again(executor: ExecutorProcess, consumer: Transport) -> None:
    image = as_image(noise(2, 112, 84))
    async with calling("first", executor.endpoint) as first:
        (tensor,) = first.send(image)
        once = await read_embeddings(consumer, tensor)
        await first.end_events(1)
        first.release_all()
    before = await executor.metrics()
    async with calling("second", executor.endpoint) as second:
        (tensor,) = second.send(image)
        again = await read_embeddings(consumer, tensor)
    after = await executor.metrics()

    assert again == once
    assert after["cornserve_encoder_items_total"] == before["cornserve_encoder_items_total"]
    assert after["cornserve_encoder_cache_hits_total"] == before["cornserve_encoder_cache_hits_total"] + 1


async def test_a_repeated_image_of_a_request_is_allocated_once(executor: ExecutorProcess, consumer: Transport) -> None:
    await wait_until_idle(executor)
    before = await executor.metrics()
    async with calling("repeats", executor.endpoint) as caller:
        tensors = caller.send_together(*[as_image(noise(5, 112, 84))] * 3)
        ends = await caller.end_events(3)
        copies = [await read_embeddings(consumer, tensor) for tensor in tensors]
    after = await executor.metrics()

    assert {end.code for end in ends} == {pb.CODE_OK}
    assert copies[0] == copies[1] == copies[2]
    assert after["cornserve_encoder_items_total"] == before["cornserve_encoder_items_total"] + 1
    assert after["cornserve_encoder_cache_hits_total"] == before["cornserve_encoder_cache_hits_total"] + 2


async def test_a_broken_image_is_rejected_and_its_consumer_notified(
    executor: ExecutorProcess, consumer: Transport
) -> None:
    cut = encode_file(noise(3, 112, 84))[:-500]
    async with calling("broken", executor.endpoint) as caller:
        good, bad = caller.send(
            as_image(noise(4, 112, 84)), image_from_file(cut, "PNG", 112, 84, "messages[1].content[2]")
        )
        accepted, rejected = await caller.end_events(2)
        await read_embeddings(consumer, good)
        with pytest.raises(LostError):
            await read_embeddings(consumer, bad)

    assert accepted.code == pb.CODE_OK
    assert rejected.code == pb.CODE_INVALID_ARGUMENT
    assert rejected.message.startswith("messages[1].content[2]: the PNG image cannot be decoded")


async def test_an_image_that_exceeds_the_requests_memory_limit_is_named(executor: ExecutorProcess) -> None:
    """Each image has the largest size: 256 rows of 128 numbers of 4 bytes. A request may use half of the slab."""
    fitting = SLAB_MIB * 2**20 // 2 // (256 * 128 * 4)
    data = [encode_file(PIL.Image.new("RGB", (448, 448), (number, 0, 0))) for number in range(fitting + 1)]
    async with calling("together", executor.endpoint) as caller:
        caller.send_together(
            *(image_from_file(file, "PNG", 448, 448, f"image {index}") for index, file in enumerate(data))
        )
        ends = await caller.end_events(len(data))

    ((index, rejected),) = [(index, end) for index, end in enumerate(ends) if end.code != pb.CODE_OK]
    assert rejected.code == pb.CODE_INVALID_ARGUMENT
    assert rejected.message.startswith(f"image {index}: with this image, the request needs 4.1 MiB of tensors at once")


async def test_images_of_a_disconnected_caller_are_removed_from_the_queue(executor: ExecutorProcess) -> None:
    before = await executor.metrics()
    images = [as_image(noise(200 + number, 448, 448)) for number in range(30)]
    async with calling("leaves", executor.endpoint) as caller:
        caller.send(*images)
        await caller.end_events(1)

    await wait_until_idle(executor)
    after = await executor.metrics()
    # The difference includes the image of `wait_until_idle`.
    assert after["cornserve_encoder_items_total"] - before["cornserve_encoder_items_total"] < len(images) + 1


async def test_every_metric_of_encoders_is_documented(executor: ExecutorProcess) -> None:
    async with httpx.AsyncClient() as http:
        text = (await http.get(f"http://127.0.0.1:{executor.metrics_port}/metrics")).text
    found = {
        (family.name, family.type, frozenset(name for sample in family.samples for name in sample.labels) - {"le"})
        for family in text_string_to_metric_families(text)
        if family.name.startswith("cornserve_encoder_")
    }

    assert found == documented_metrics("## Encoders")
