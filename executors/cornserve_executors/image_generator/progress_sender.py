"""Sends the progress of images to the caller of an invocation, or to the invocation that decodes the previews."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from cornserve_executors.base import InvocationContext
from cornserve_tasklib.image_components import StepInfo
from cornserve_tasklib.image_generation import ImageProgress

if TYPE_CHECKING:
    import torch

    from cornserve_executors.image_generator.progress import SendProgress, SendStep


def progress_sender(context: InvocationContext) -> SendProgress | None:
    """Returns a function that sends an item of the stream `progress`, or None if the caller does not read it."""
    if not context.is_requested("progress"):
        return None

    async def send(progress: ImageProgress) -> None:
        await context.send("progress", progress.model_dump_json(exclude_defaults=True).encode())

    return send


def step_sender(context: InvocationContext, size: str) -> SendStep | None:
    """Returns a function that publishes a step in `previews`, or sends it in `progress`, or None if nothing reads them.

    Args:
        size: width and height of the image in pixels.
    """
    if context.is_requested("previews"):

        async def publish(progress: ImageProgress, preview: torch.Tensor | None) -> None:
            metadata = (
                StepInfo(progress=progress, has_preview=preview is not None, size=size).model_dump_json().encode()
            )
            if preview is None:
                await context.publish("previews", b"\0", "uint8", (1,), metadata)
                return
            from cornserve_executors import tensor_copies

            dtype, shape = tensor_copies.dtype_name(preview.dtype), tuple(preview.shape)
            await context.publish(
                "previews", await asyncio.to_thread(tensor_copies.read_bytes, preview), dtype, shape, metadata
            )

        return publish
    send = progress_sender(context)
    if send is None:
        return None

    async def send_step(progress: ImageProgress, preview: torch.Tensor | None) -> None:
        await send(progress)

    return send_step
