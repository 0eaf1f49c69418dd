"""An encoder as a process: callers send images, consumers read embeddings from its shared memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path

import httpx2 as httpx
import PIL.Image
import pytest
from prometheus_client.parser import text_string_to_metric_families

from cornserve.transport import LostError, Transport
from cornserve.v1 import executor_pb2 as pb
from cornserve_tasklib.encoder import EncoderTask
from tests.images import file_of, image_of, noise, sent
from tests.integration.docs.metrics_told import metrics_told
from tests.integration.encoder.client import calling, read
from tests.integration.encoder.engine import encoding, rows_of
from tests.integration.llm.process import ExecutorProcess, running
from tests.waiting import until

SLAB_MIB = 8
_PROBES = count()


@pytest.fixture(scope="module")
def shared_memory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shared-memory")


@pytest.fixture(scope="module")
def executor(
    tiny_qwen25vl: Path, shared_memory: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ExecutorProcess]:
    task = EncoderTask(model_id=str(tiny_qwen25vl))
    options = ["--shared-memory", str(shared_memory), "--slab-mib", str(SLAB_MIB)]
    with running(task, tmp_path_factory.mktemp("executor"), *options) as executor:
        executor.until_ready()
        yield executor


async def at_rest(executor: ExecutorProcess) -> None:
    """Waits until nothing is under way, not even a batch that nobody waits for any more: one more image is through."""

    async def is_idle() -> bool:
        figures = await executor.figures()
        return figures["cornserve_executor_running"] == figures["cornserve_encoder_pending_images"] == 0

    await until(is_idle)
    number = next(_PROBES)
    async with calling(f"rest-{number}", executor.endpoint) as caller:
        caller.send(sent(noise(1000 + number, 112, 84)))
        await caller.ends(1)


@pytest.fixture
async def consumer(shared_memory: Path) -> AsyncIterator[Transport]:
    """Another process of the same node, as far as the data plane can tell."""
    transport = Transport(shared_memory, slab_bytes=1 << 20, request_bytes=1 << 19)
    yield transport
    await transport.stop()


async def test_a_consumer_reads_what_the_encoder_has_made(
    executor: ExecutorProcess, consumer: Transport, tiny_qwen25vl: Path
) -> None:
    image = sent(noise(1, 300, 200))
    async with encoding(tiny_qwen25vl) as engine:
        expected = (await rows_of(engine, image)).numpy()

    async with calling("reads", executor.endpoint) as caller:
        (source,) = caller.send(image)
        data, encoded = await read(consumer, source)
        (end,) = await caller.ends(1)

    assert end.code == pb.CODE_OK
    assert encoded.fields == {"image_grid_thw": [1, 14, 22]}
    assert encoded.rows == 77
    assert image.digest in encoded.key
    assert data == expected.tobytes()


async def test_images_of_several_callers_are_encoded_together(executor: ExecutorProcess) -> None:
    await at_rest(executor)
    before = await executor.figures()
    images = [sent(noise(100 + number, 112, 84)) for number in range(40)]
    async with calling("app-1", executor.endpoint) as one, calling("app-2", executor.endpoint) as other:
        one.send(*images[:20])
        other.send(*images[20:])
        ends = [*await one.ends(20), *await other.ends(20)]
    after = await executor.figures()

    def grew(name: str) -> float:
        return after[f"cornserve_encoder_{name}"] - before[f"cornserve_encoder_{name}"]

    assert {end.code for end in ends} == {pb.CODE_OK}
    assert grew("images_total") == grew("batch_images_sum") == grew("batch_requests_sum") == 40
    assert grew("batch_images_count") < 40


async def test_an_image_that_was_seen_is_not_encoded_again(executor: ExecutorProcess, consumer: Transport) -> None:
    image = sent(noise(2, 112, 84))
    async with calling("first", executor.endpoint) as first:
        (source,) = first.send(image)
        once = await read(consumer, source)
        await first.ends(1)
        first.release_all()
    before = await executor.figures()
    async with calling("second", executor.endpoint) as second:
        (source,) = second.send(image)
        again = await read(consumer, source)
    after = await executor.figures()

    assert again == once
    assert after["cornserve_encoder_images_total"] == before["cornserve_encoder_images_total"]
    assert after["cornserve_encoder_cache_hits_total"] == before["cornserve_encoder_cache_hits_total"] + 1


async def test_an_image_that_a_request_has_several_times_takes_room_once(
    executor: ExecutorProcess, consumer: Transport
) -> None:
    await at_rest(executor)
    before = await executor.figures()
    async with calling("repeats", executor.endpoint) as caller:
        sources = caller.send_together(*[sent(noise(5, 112, 84))] * 3)
        ends = await caller.ends(3)
        copies = [await read(consumer, source) for source in sources]
    after = await executor.figures()

    assert {end.code for end in ends} == {pb.CODE_OK}
    assert copies[0] == copies[1] == copies[2]
    assert after["cornserve_encoder_images_total"] == before["cornserve_encoder_images_total"] + 1
    assert after["cornserve_encoder_cache_hits_total"] == before["cornserve_encoder_cache_hits_total"] + 2


async def test_a_broken_image_is_refused_and_its_consumer_told(executor: ExecutorProcess, consumer: Transport) -> None:
    cut = file_of(noise(3, 112, 84))[:-500]
    async with calling("broken", executor.endpoint) as caller:
        good, bad = caller.send(sent(noise(4, 112, 84)), image_of(cut, "PNG", 112, 84, "messages[1].content[2]"))
        fine, refused = await caller.ends(2)
        await read(consumer, good)
        with pytest.raises(LostError):
            await read(consumer, bad)

    assert fine.code == pb.CODE_OK
    assert refused.code == pb.CODE_INVALID_ARGUMENT
    assert refused.message.startswith("messages[1].content[2]: the PNG image cannot be decoded")


async def test_an_image_for_which_a_request_may_have_no_more_memory_is_named(executor: ExecutorProcess) -> None:
    """Each is as much as the model takes: 256 rows of 128 numbers of 4 bytes. A request may have half of the slab."""
    fitting = SLAB_MIB * 2**20 // 2 // (256 * 128 * 4)
    data = [file_of(PIL.Image.new("RGB", (448, 448), (number, 0, 0))) for number in range(fitting + 1)]
    async with calling("together", executor.endpoint) as caller:
        caller.send_together(*(image_of(one, "PNG", 448, 448, f"image {place}") for place, one in enumerate(data)))
        ends = await caller.ends(len(data))

    ((place, refused),) = [(place, end) for place, end in enumerate(ends) if end.code != pb.CODE_OK]
    assert refused.code == pb.CODE_INVALID_ARGUMENT
    assert refused.message.startswith(f"image {place}: with this image, the request needs 4.1 MiB of tensors at once")


async def test_a_caller_that_leaves_takes_its_images_from_the_queue(executor: ExecutorProcess) -> None:
    before = await executor.figures()
    images = [sent(noise(200 + number, 448, 448)) for number in range(30)]
    async with calling("leaves", executor.endpoint) as caller:
        caller.send(*images)
        await caller.ends(1)

    await at_rest(executor)
    after = await executor.figures()
    # One of those that went through was the one that waited for the others to be gone.
    assert after["cornserve_encoder_images_total"] - before["cornserve_encoder_images_total"] < len(images) + 1


async def test_every_metric_of_encoders_is_told(executor: ExecutorProcess) -> None:
    async with httpx.AsyncClient() as http:
        text = (await http.get(f"http://127.0.0.1:{executor.metrics_port}/metrics")).text
    found = {
        (family.name, family.type, frozenset(name for sample in family.samples for name in sample.labels) - {"le"})
        for family in text_string_to_metric_families(text)
        if family.name.startswith("cornserve_encoder_")
    }

    assert found == metrics_told("## Encoders")
