from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import pytest

from cornserve_executors.base import EngineDeadError
from cornserve_executors.encoder.batcher import Batcher
from cornserve_executors.encoder.stats import EncoderStats
from tests.waiting import until


class Device:
    """Doubles numbers; the first batch waits until it is `released`."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self._go_on = threading.Event()

    def release(self) -> None:
        self._go_on.set()

    def work(self, numbers: Sequence[int]) -> Sequence[int]:
        self.batches.append(list(numbers))
        assert self._go_on.wait(20)
        if 13 in numbers:
            raise ValueError("13 cannot be doubled")
        if 666 in numbers:
            raise EngineDeadError("the device is gone")
        return [2 * number for number in numbers]


@pytest.fixture
def device() -> Device:
    return Device()


@pytest.fixture
def stats() -> EncoderStats:
    return EncoderStats()


@asynccontextmanager
async def batching(device: Device, stats: EncoderStats, max_patches: int = 100) -> AsyncIterator[Batcher[int, int]]:
    with ThreadPoolExecutor(1) as thread:
        batcher = Batcher(device.work, thread, max_patches, stats)
        owner = asyncio.create_task(batcher.run())
        try:
            yield batcher
        finally:
            device.release()
            owner.cancel()
            await asyncio.gather(owner, return_exceptions=True)


def figures(stats: EncoderStats) -> dict[str, float]:
    samples = [sample for metric in stats.metrics() for sample in metric.samples]
    return {sample.name.removeprefix("cornserve_encoder_"): sample.value for sample in samples if not sample.labels}


async def occupied(
    batcher: Batcher[int, int], device: Device, *then: tuple[int, int, str]
) -> tuple[asyncio.Task[int], list[asyncio.Task[int]]]:
    """The device works on a 0, and these (number, patches, request) wait."""
    first = asyncio.create_task(batcher.encode(0, 1, "first"))
    await until(lambda: device.batches == [[0]])
    waiting = [asyncio.create_task(batcher.encode(*one)) for one in then]
    await asyncio.sleep(0)
    return first, waiting


async def test_what_waits_while_the_device_works_is_encoded_together(device: Device, stats: EncoderStats) -> None:
    async with batching(device, stats) as batcher:
        first, waiting = await occupied(batcher, device, (1, 10, "a"), (2, 10, "b"), (3, 10, "b"))
        device.release()

        assert await asyncio.gather(first, *waiting) == [0, 2, 4, 6]
    assert device.batches == [[0], [1, 2, 3]]


async def test_a_batch_stays_within_its_budget(device: Device, stats: EncoderStats) -> None:
    async with batching(device, stats, max_patches=25) as batcher:
        _, waiting = await occupied(
            batcher, device, (1, 10, "a"), (2, 10, "a"), (3, 10, "a"), (4, 99, "a"), (5, 1, "a")
        )
        device.release()
        await asyncio.gather(*waiting)
    assert device.batches == [[0], [4], [1, 2], [3, 5]]


async def test_requests_have_turns_however_many_images_they_have(device: Device, stats: EncoderStats) -> None:
    async with batching(device, stats, max_patches=20) as batcher:
        much = [(number, 10, "much") for number in range(1, 7)]
        _, waiting = await occupied(batcher, device, *much, (7, 10, "little"), (8, 10, "other"))
        device.release()
        await asyncio.gather(*waiting)
    assert device.batches == [[0], [1, 7], [8, 2], [3, 4], [5, 6]]


async def test_images_that_are_a_batch_of_their_own_have_turns_with_the_others(
    device: Device, stats: EncoderStats
) -> None:
    async with batching(device, stats, max_patches=20) as batcher:
        large = [(number, 99, f"large-{number}") for number in range(1, 4)]
        small = [(number, 10, f"small-{number}") for number in range(4, 10)]
        _, waiting = await occupied(batcher, device, *large, *small)
        device.release()
        await asyncio.gather(*waiting)
    assert sorted(map(len, device.batches[1:3])) == sorted(map(len, device.batches[3:5])) == [1, 2]


async def test_who_has_left_is_not_encoded(device: Device, stats: EncoderStats) -> None:
    async with batching(device, stats) as batcher:
        _, waiting = await occupied(batcher, device, (1, 10, "a"), (2, 10, "b"))
        waiting[0].cancel()
        await asyncio.gather(waiting[0], return_exceptions=True)
        device.release()
        assert await waiting[1] == 4
    assert device.batches == [[0], [2]]


async def test_an_image_that_fails_harms_only_itself(device: Device, stats: EncoderStats) -> None:
    async with batching(device, stats) as batcher:
        _, (bad, good) = await occupied(batcher, device, (13, 1, "a"), (7, 1, "b"))
        device.release()
        assert await good == 14
        with pytest.raises(ValueError, match="13"):
            await bad


async def test_a_dead_device_ends_everything(device: Device, stats: EncoderStats) -> None:
    with ThreadPoolExecutor(1) as thread:
        batcher = Batcher(device.work, thread, 10, stats)
        owner = asyncio.create_task(batcher.run())
        _, (bad, *others) = await occupied(batcher, device, (13, 1, "a"), (666, 5, "b"), (1, 4, "c"), (2, 10, "d"))
        device.release()
        async with asyncio.timeout(60):
            with pytest.raises(ValueError, match="13"):
                await bad
            for failed in (*others, owner, asyncio.create_task(batcher.encode(3, 1, "e"))):
                with pytest.raises(EngineDeadError, match="the device is gone"):
                    await failed
    assert device.batches == [[0], [13, 666, 1], [13], [666]]


async def test_the_figures_tell_what_was_batched(device: Device, stats: EncoderStats) -> None:
    async with batching(device, stats) as batcher:
        _, waiting = await occupied(batcher, device, (1, 10, "a"), (2, 20, "b"), (3, 30, "b"))
        device.release()
        await asyncio.gather(*waiting)

    told = figures(stats)
    assert told["batch_images_count"] == 2
    assert told["batch_images_sum"] == 4
    assert told["batch_requests_sum"] == 3
    assert told["batch_patches_sum"] == 61
