"""Runs an encoder engine in the test process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cornserve_executors.encoder.stats import EncoderStats
from cornserve_tasklib.encoder import EncoderTask
from cornserve_tasklib.media import Media

if TYPE_CHECKING:
    from cornserve_executors.encoder.engine import EncoderEngine


def encoder_task(model: Path, **settings: object) -> EncoderTask:
    return EncoderTask.model_validate({"model_id": str(model)} | settings)


@asynccontextmanager
async def running_engine(task: EncoderTask, stats: EncoderStats | None = None) -> AsyncIterator[EncoderEngine]:
    from cornserve_executors.encoder.engine import EncoderEngine

    engine = EncoderEngine.load(task, stats or EncoderStats())
    work = asyncio.create_task(engine.run())
    try:
        yield engine
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        engine.shutdown()


async def encode_rows(engine: EncoderEngine, media: Media, request_id: str = "request") -> Any:
    """Returns the embeddings that the engine writes to shared memory, as a torch tensor."""
    import torch

    with await engine.prepare(media, request_id) as prepared:
        slot = bytearray(engine.nbytes(media, prepared))
        async with engine.encoded(media, prepared, request_id) as rows:
            await engine.write(rows, memoryview(slot))
        return torch.frombuffer(slot, dtype=getattr(torch, engine.dtype)).view(engine.shape(media, prepared))
