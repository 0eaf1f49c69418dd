"""Reports the steps of one image, with previews."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import torch

from cornserve_executors.image_generator.denoiser import DenoisedImage
from cornserve_tasklib.image_generation import ImageProgress

SendProgress = Callable[[ImageProgress], Awaitable[None]]
EncodeFile = Callable[[torch.Tensor], Awaitable[str]]
"""Returns the image file of latents, in base64."""


class ProgressReporter:
    """Queues the steps of an image, and sends them while `run` is running. A slow caller does not delay the steps.

    Args:
        number: the position of the image in the response.
        encode: writes previews; needed for images that have them.
    """

    def __init__(self, image: DenoisedImage, number: int, encode: EncodeFile | None, send: SendProgress) -> None:
        self._image = image
        self._number = number
        self._encode = encode
        self._send = send
        self._steps: asyncio.Queue[tuple[int, torch.Tensor | None]] = asyncio.Queue()

    def add_step(self) -> None:
        """Queues the last step of the image."""
        self._steps.put_nowait((self._image.step, self._image.preview))

    async def run(self) -> None:
        """Sends all steps of the image."""
        steps, step = len(self._image.timesteps), 0
        while step < steps:
            step, preview = await self._steps.get()
            file = None if preview is None or self._encode is None else await self._encode(preview)
            await self._send(ImageProgress(image=self._number, step=step, steps=steps, b64_json=file))
