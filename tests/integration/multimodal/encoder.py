"""Runs an encoder and a transport in the test process, in place of an encoder executor."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import PIL.Image

from cornserve.transport import Production, TensorId, TensorView, Transport
from cornserve.wire.listener import ConnectionListener
from cornserve_tasklib.media import Media
from tests.credentials import CREDENTIALS
from tests.images import as_image
from tests.integration.encoder.engine import encoder_task, running_engine

if TYPE_CHECKING:
    from cornserve_executors.encoder.engine import EncoderEngine

SLAB_BYTES = 64 << 20


class LocalEncoder:
    def __init__(self, engine: EncoderEngine, transport: Transport, endpoint: str, held: AsyncExitStack) -> None:
        self._engine = engine
        self._transport = transport
        self._endpoint = endpoint
        self._held = held
        self._numbers = count()

    async def encode_all(self, media: Sequence[PIL.Image.Image | Media], kind: str) -> list[TensorView]:
        """Returns the embeddings of the media of kind "e"."""
        return [
            (await self.encode(medium))[0]
            for medium, medium_kind in zip(media, kind, strict=True)
            if medium_kind == "e"
        ]

    async def encode(self, medium: PIL.Image.Image | Media, **changes: object) -> tuple[TensorView, Production]:
        """Returns the embeddings, which are readable while the encoder runs, and their production.

        Args:
            changes: wrong fields of their metadata.
        """
        media = as_image(medium) if isinstance(medium, PIL.Image.Image) else medium
        prepared = await self._engine.prepare(media, "request")
        name = f"request-{next(self._numbers)}"
        production = self._transport.produce(name, 0, 1, arrived_us=1)
        self._held.callback(production.release)
        slot = await production.allocate("embeddings", self._engine.nbytes(media, prepared))
        async with self._engine.encoded(media, prepared, name) as embeddings:
            await self._engine.write(embeddings, slot.buffer)
        encoded = prepared.describe(self._engine.cache_key(media)).model_copy(update=changes)
        slot.publish(self._engine.dtype, self._engine.shape(media, prepared), encoded.model_dump_json().encode())
        source = TensorId(self._endpoint, name, 0, 1, "embeddings")
        return await self._held.enter_async_context(self._transport.consume(source)), production


@asynccontextmanager
async def running_encoder(model: Path, directory: Path, **settings: object) -> AsyncIterator[LocalEncoder]:
    async with AsyncExitStack() as stack:
        engine = await stack.enter_async_context(running_engine(encoder_task(model, **settings)))
        transport = Transport(directory, CREDENTIALS, slab_bytes=SLAB_BYTES, request_bytes=SLAB_BYTES // 4)
        stack.push_async_callback(transport.stop)
        listener = ConnectionListener(await transport.start(), CREDENTIALS)
        stack.push_async_callback(listener.close)
        endpoint = await listener.listen("127.0.0.1:0")
        held = await stack.enter_async_context(AsyncExitStack())
        yield LocalEncoder(engine, transport, endpoint, held)
