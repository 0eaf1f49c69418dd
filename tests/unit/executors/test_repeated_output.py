"""Invocations that run again from their start, and whose caller has received a part of their output."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from cornserve.task.output import output_layout
from cornserve.v1 import executor_pb2 as pb
from cornserve_executors.base import NotRepeatedError
from cornserve_executors.base.repeated_output import RepeatedOutput
from cornserve_tasklib.image_generation import ImageGenerationResponse, ImageProgress


def step(number: int, image: int = 0) -> bytes:
    progress = ImageProgress(image=image, step=number, steps=100)
    return progress.model_dump_json(exclude_defaults=True).encode()


class SentItems:
    """A caller that keeps the items."""

    def __init__(self, sent: list[bytes]) -> None:
        self._sent = sent

    async def send(self, output: str, item: bytes) -> None:
        assert output == "progress"
        await asyncio.sleep(0)
        self._sent.append(item)

    def wants_hand_over(self) -> bool:
        return False

    def on_hand_over(self, callback: Callable[[], None]) -> None: ...


class RepeatedProgress:
    def __init__(self, *delivered: bytes, max_buffered: int = 0) -> None:
        self.sent: list[bytes] = []
        # The gateway encodes items again, with all their fields.
        items = [ImageProgress.model_validate_json(item).model_dump_json().encode() for item in delivered]
        chunks = [pb.OutputChunk(output="progress", item=item) for item in items]
        self.output = RepeatedOutput(
            output_layout(ImageGenerationResponse), chunks, SentItems(self.sent), max_buffered=max_buffered
        )

    async def send(self, *items: bytes) -> None:
        for item in items:
            await self.output.send("progress", item)


async def test_items_that_were_delivered_are_not_sent_again() -> None:
    repetition = RepeatedProgress(step(1), step(2))

    await repetition.send(step(1), step(2), step(3), step(4))

    assert repetition.sent == [step(3), step(4)]
    repetition.output.check_complete()


async def test_new_items_wait_until_all_others_have_come_again() -> None:
    repetition = RepeatedProgress(step(1), step(1, image=1), max_buffered=3)

    await repetition.send(step(1), step(2))
    assert repetition.sent == []
    await repetition.send(step(1, image=1), step(2, image=1))

    assert repetition.sent == [step(2), step(2, image=1)]


async def test_the_order_of_each_image_is_kept_while_its_caller_reads_slowly() -> None:
    repetition = RepeatedProgress(step(1), step(1, image=1), max_buffered=3)
    await repetition.send(step(1), step(2), step(3))

    await asyncio.gather(repetition.send(step(1, image=1)), repetition.send(step(4)))

    assert repetition.sent == [step(2), step(3), step(4)]


async def test_equal_items_are_counted() -> None:
    repetition = RepeatedProgress(step(1), step(1))

    await repetition.send(step(1), step(1), step(1))

    assert repetition.sent == [step(1)]


@pytest.mark.parametrize("max_buffered", [0, 2])
async def test_an_output_that_differs_is_not_sent(max_buffered: int) -> None:
    repetition = RepeatedProgress(step(1), max_buffered=max_buffered)
    await repetition.send(*map(step, range(2, 2 + max_buffered)))

    with pytest.raises(NotRepeatedError, match="does not repeat"):
        await repetition.send(step(9))

    assert repetition.sent == []


async def test_an_output_that_ends_early_is_an_error() -> None:
    repetition = RepeatedProgress(step(1), step(2))
    await repetition.send(step(1))

    with pytest.raises(NotRepeatedError):
        repetition.output.check_complete()
