"""Sends the progress of images to the caller of an invocation."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from cornserve_executors.base import InvocationContext
from cornserve_tasklib.image_generation import ImageProgress


def progress_sender(context: InvocationContext) -> Callable[[ImageProgress], Awaitable[None]] | None:
    """Returns a function that sends an item of the stream `progress`, or None if the caller does not read it."""
    if not context.is_requested("progress"):
        return None

    async def send(progress: ImageProgress) -> None:
        await context.send("progress", progress.model_dump_json(exclude_defaults=True).encode())

    return send
