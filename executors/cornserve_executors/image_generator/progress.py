"""Reports the steps of one image, with previews."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

import torch

from cornserve.concurrency import gather_all
from cornserve_tasklib.image_generation import ImageProgress

SendProgress = Callable[[ImageProgress], Awaitable[None]]
SendStep = Callable[[ImageProgress, torch.Tensor | None], Awaitable[None]]
"""Sends a step, and the latents of the preview after it."""

EncodeFile = Callable[[torch.Tensor], Awaitable[str]]
"""Returns the image file of latents, in base64."""


class SteppedImage(Protocol):
    """An image between two steps."""

    @property
    def step(self) -> int:
        """The number of completed steps."""

    @property
    def steps(self) -> int:
        """The number of all steps."""

    @property
    def preview(self) -> torch.Tensor | None:
        """The latents of a preview after the last step."""


class ProgressReporter:
    """Queues the steps of an image, and sends them while `run` is running. A slow caller does not delay the steps.

    Args:
        number: the position of the image in the response.
    """

    def __init__(self, image: SteppedImage, number: int, send: SendStep) -> None:
        self._image = image
        self._number = number
        self._send = send
        self._steps: asyncio.Queue[tuple[int, torch.Tensor | None]] = asyncio.Queue()

    def add_step(self) -> None:
        """Queues the last step of the image."""
        self._steps.put_nowait((self._image.step, self._image.preview))

    async def run(self) -> None:
        """Sends all steps of the image."""
        steps, step = self._image.steps, 0
        while step < steps:
            step, preview = await self._steps.get()
            await self._send(ImageProgress(image=self._number, step=step, steps=steps), preview)


def encode_previews(send: SendProgress, encode: EncodeFile) -> SendStep:
    """Returns a function that sends steps with their previews as image files."""

    async def send_step(progress: ImageProgress, preview: torch.Tensor | None) -> None:
        if preview is not None:
            progress = progress.model_copy(update={"b64_json": await encode(preview)})
        await send(progress)

    return send_step


async def run_image_steps(
    run_steps: Callable[[Callable[[], None]], Coroutine[Any, Any, None]],
    image: SteppedImage,
    number: int,
    send: SendStep | None,
) -> None:
    """Runs all steps of an image, and sends its progress.

    Args:
        run_steps: runs the steps, and calls its argument after each.
        number: the position of the image in the response.
    """
    if send is None:
        await run_steps(_ignore_step)
    else:
        progress = ProgressReporter(image, number, send)
        await gather_all([run_steps(progress.add_step), progress.run()])


def _ignore_step() -> None:
    """Ignores a step of an image whose caller does not read the progress."""
