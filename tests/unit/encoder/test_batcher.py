from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import pytest

from cornserve.due_queue import DueTime
from cornserve_executors.base import EngineDeadError
from cornserve_executors.encoder.batcher import Batcher
from cornserve_executors.encoder.stats import EncoderStats, EncodingWork
from tests.waiting import until


class DoublingDevice:
    """Doubles numbers. Batches wait for `release`."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self._released = threading.Event()

    def release(self) -> None:
        self._released.set()

    def work(self, numbers: Sequence[int]) -> Sequence[int]:
        self.batches.append(list(numbers))
        assert self._released.wait(20)
        if 13 in numbers:
            raise ValueError("13 cannot be doubled")
        if 666 in numbers:
            raise EngineDeadError("the device is gone")
        return [2 * number for number in numbers]


@pytest.fixture
def device() -> DoublingDevice:
    return DoublingDevice()


@pytest.fixture
def stats() -> EncoderStats:
    return EncoderStats("image")


@asynccontextmanager
async def running_batcher(
    device: DoublingDevice, stats: EncoderStats, max_patches: int = 100
) -> AsyncIterator[Batcher[int, int]]:
    with ThreadPoolExecutor(1) as thread:
        batcher = Batcher(device.work, thread, max_patches, stats)
        running = asyncio.create_task(batcher.run())
        try:
            yield batcher
        finally:
            device.release()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


def sample_values(stats: EncoderStats) -> dict[str, float]:
    """Returns the metrics by name and modality, without the buckets of histograms."""
    samples = [sample for metric in stats.metrics() for sample in metric.samples if "le" not in sample.labels]
    return {
        " ".join((sample.name.removeprefix("cornserve_encoder_"), *sample.labels.values())): sample.value
        for sample in samples
    }


def work(patches: int, request_id: str) -> EncodingWork:
    return EncodingWork(request_id, "image", patches)


async def keep_busy(
    batcher: Batcher[int, int], device: DoublingDevice, *queued: tuple[int, int, str]
) -> tuple[asyncio.Task[int], list[asyncio.Task[int]]]:
    """Starts a batch with the input 0, and queues further inputs: (number, patches, request id)."""
    first = asyncio.create_task(batcher.encode(0, work(1, "first")))
    await until(lambda: device.batches == [[0]])
    waiting = [
        asyncio.create_task(batcher.encode(number, work(patches, request))) for number, patches, request in queued
    ]
    await asyncio.sleep(0)
    return first, waiting


async def test_images_queued_during_a_batch_are_encoded_together(device: DoublingDevice, stats: EncoderStats) -> None:
    async with running_batcher(device, stats) as batcher:
        first, waiting = await keep_busy(batcher, device, (1, 10, "a"), (2, 10, "b"), (3, 10, "b"))
        device.release()

        assert await asyncio.gather(first, *waiting) == [0, 2, 4, 6]
    assert device.batches == [[0], [1, 2, 3]]


async def test_the_input_of_a_cancelled_call_is_freed_at_once(stats: EncoderStats) -> None:
    class Pixels:
        pass

    started, released = threading.Event(), threading.Event()

    def encode(inputs: Sequence[Pixels]) -> Sequence[Pixels]:
        started.set()
        assert released.wait(20)
        return inputs

    with ThreadPoolExecutor(1) as thread:
        batcher = Batcher[Pixels, Pixels](encode, thread, 100, stats)
        running = asyncio.create_task(batcher.run())
        encoding = asyncio.create_task(batcher.encode(Pixels(), work(1, "a")))
        await until(started.is_set)
        pixels = Pixels()
        freed = weakref.ref(pixels)
        queued = asyncio.create_task(batcher.encode(pixels, work(1, "b")))
        del pixels
        await asyncio.sleep(0)

        queued.cancel()
        await asyncio.gather(queued, return_exceptions=True)
        del queued
        gc.collect()

        assert freed() is None
        released.set()
        await encoding
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_batch_stays_within_its_budget(device: DoublingDevice, stats: EncoderStats) -> None:
    async with running_batcher(device, stats, max_patches=25) as batcher:
        _, waiting = await keep_busy(
            batcher, device, (1, 10, "a"), (2, 10, "a"), (3, 10, "a"), (4, 99, "a"), (5, 1, "a")
        )
        device.release()
        await asyncio.gather(*waiting)
    assert device.batches == [[0], [4], [1, 2], [3, 5]]


async def test_requests_are_served_round_robin_however_many_images_they_have(
    device: DoublingDevice, stats: EncoderStats
) -> None:
    async with running_batcher(device, stats, max_patches=20) as batcher:
        many = [(number, 10, "many") for number in range(1, 7)]
        _, waiting = await keep_busy(batcher, device, *many, (7, 10, "few"), (8, 10, "other"))
        device.release()
        await asyncio.gather(*waiting)
    assert device.batches == [[0], [1, 7], [8, 2], [3, 4], [5, 6]]


async def test_large_images_alternate_with_small_ones(device: DoublingDevice, stats: EncoderStats) -> None:
    async with running_batcher(device, stats, max_patches=20) as batcher:
        large = [(number, 99, f"large-{number}") for number in range(1, 4)]
        small = [(number, 10, f"small-{number}") for number in range(4, 10)]
        _, waiting = await keep_busy(batcher, device, *large, *small)
        device.release()
        await asyncio.gather(*waiting)
    assert sorted(map(len, device.batches[1:3])) == sorted(map(len, device.batches[3:5])) == [1, 2]


async def test_every_second_batch_contains_a_part_of_long_media_while_others_wait(
    device: DoublingDevice, stats: EncoderStats
) -> None:
    async with running_batcher(device, stats, max_patches=400_000) as batcher:
        _, waiting = await keep_busy(batcher, device, *((number, 100_000, "small") for number in range(1, 5)))
        parts = [EncodingWork("long", "video", 100_000, is_part=True)] * 3
        waiting += [asyncio.create_task(batcher.encode(20 + number, part)) for number, part in enumerate(parts)]
        await asyncio.sleep(0)
        device.release()
        await asyncio.gather(*waiting)
    assert device.batches[:3] == [[0], [20, 1, 2, 3], [4]]
    assert sorted(number for batch in device.batches for number in batch) == [0, 1, 2, 3, 4, 20, 21, 22]


async def test_parts_are_encoded_after_the_cancellation_of_others(device: DoublingDevice, stats: EncoderStats) -> None:
    async with running_batcher(device, stats) as batcher:
        part = EncodingWork("long", "video", 10, is_part=True)
        first = [asyncio.create_task(batcher.encode(number, part)) for number in range(3)]
        await until(lambda: device.batches == [[0]])
        cancelled = asyncio.create_task(batcher.encode(9, work(10, "a")))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.gather(cancelled, return_exceptions=True)
        device.release()
        async with asyncio.timeout(20):
            assert await asyncio.gather(*first) == [0, 2, 4]


async def test_a_cancelled_image_is_not_encoded(device: DoublingDevice, stats: EncoderStats) -> None:
    async with running_batcher(device, stats) as batcher:
        _, waiting = await keep_busy(batcher, device, (1, 10, "a"), (2, 10, "b"))
        waiting[0].cancel()
        await asyncio.gather(waiting[0], return_exceptions=True)
        device.release()
        assert await waiting[1] == 4
    assert device.batches == [[0], [2]]


async def test_a_failing_image_does_not_fail_the_rest_of_its_batch(device: DoublingDevice, stats: EncoderStats) -> None:
    async with running_batcher(device, stats) as batcher:
        _, (bad, good) = await keep_busy(batcher, device, (13, 1, "a"), (7, 1, "b"))
        device.release()
        assert await good == 14
        with pytest.raises(ValueError, match="13"):
            await bad


async def test_a_dead_device_fails_all_images(device: DoublingDevice, stats: EncoderStats) -> None:
    with ThreadPoolExecutor(1) as thread:
        batcher = Batcher(device.work, thread, 10, stats)
        running = asyncio.create_task(batcher.run())
        _, (bad, *others) = await keep_busy(batcher, device, (13, 1, "a"), (666, 5, "b"), (1, 4, "c"), (2, 10, "d"))
        device.release()
        async with asyncio.timeout(60):
            with pytest.raises(ValueError, match="13"):
                await bad
            for failed in (*others, running, asyncio.create_task(batcher.encode(3, work(1, "e")))):
                with pytest.raises(EngineDeadError, match="the device is gone"):
                    await failed
    assert device.batches == [[0], [13, 666, 1], [13], [666]]


async def test_metrics_describe_the_batches_by_modality(device: DoublingDevice, stats: EncoderStats) -> None:
    async with running_batcher(device, stats) as batcher:
        _, waiting = await keep_busy(batcher, device, (1, 10, "a"), (2, 20, "b"))
        waiting.append(asyncio.create_task(batcher.encode(3, EncodingWork("b", "audio", 30))))
        await asyncio.sleep(0)
        device.release()
        await asyncio.gather(*waiting)

    values = sample_values(stats)
    assert device.batches == [[0], [1, 2, 3]]
    assert values["batch_seconds_count"] == 2
    assert values["batch_requests_sum"] == 3
    assert (values["batch_items_count image"], values["batch_items_count audio"]) == (2, 1)
    assert (values["batch_items_sum image"], values["batch_items_sum audio"]) == (3, 1)
    assert (values["batch_patches_sum image"], values["batch_patches_sum audio"]) == (31, 30)


async def test_media_of_apps_with_targets_are_encoded_in_the_order_in_which_they_are_due(
    device: DoublingDevice, stats: EncoderStats
) -> None:
    async with running_batcher(device, stats, max_patches=1) as batcher:
        first = asyncio.create_task(batcher.encode(0, EncodingWork("first", "image", 1)))
        await until(lambda: bool(device.batches))
        due = {1: 900, 2: 300, 3: 600}
        rest = [
            asyncio.create_task(batcher.encode(number, EncodingWork("many", "image", 1, due=DueTime(1, when))))
            for number, when in due.items()
        ]
        await asyncio.sleep(0)
        device.release()
        await asyncio.gather(first, *rest)

    assert device.batches == [[0], [2], [3], [1]]
