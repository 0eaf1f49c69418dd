"""The executor of an `EncoderTask`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from prometheus_client import Metric

from cornserve.transport import Slot, TensorTooLargeError
from cornserve_executors.base import InvocationContext
from cornserve_executors.device_executor import DeviceExecutor
from cornserve_executors.encoder.stats import EncoderStats
from cornserve_executors.vllm import settings
from cornserve_tasklib.encoder import Embeddings, EncoderTask
from cornserve_tasklib.media import Media

if TYPE_CHECKING:
    from cornserve_executors.encoder.engine import EncoderEngine, PreparedMedium

OUTPUT = "embeddings"

PREPARED_SECONDS = 0.1
"""The time for which a prepared medium is kept while it waits for shared memory."""


class EncoderExecutor(DeviceExecutor[EncoderTask, Media, Embeddings]):
    library = "vllm"

    _engine: EncoderEngine

    def __init__(self, config: EncoderTask) -> None:
        super().__init__(config)
        self._stats = EncoderStats(*config.modalities)
        self._locks = WeakValueDictionary[tuple[str, str], asyncio.Lock]()
        """Locks by request id and cache key."""

    def import_engine(self) -> Callable[[EncoderTask], EncoderEngine]:
        # On CPUs, oneDNN caches kernels for the last 1024 batch sizes, half a megabyte each, without a measurable gain.
        os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "16")
        settings.prepare_environment()
        from cornserve_executors.encoder.engine import EncoderEngine

        return partial(EncoderEngine.load, stats=self._stats)

    async def invoke(self, request: Media, context: InvocationContext) -> Embeddings:
        key = self._engine.cache_key(request)
        # A repeated medium of a request is encoded, and allocated in shared memory, only once.
        async with self._locks.setdefault((context.request_id, key), asyncio.Lock()):
            return await self._embed(request, key, context)

    async def _embed(self, request: Media, key: str, context: InvocationContext) -> Embeddings:
        if self._reuse(request, key, context):
            return Embeddings()
        with self._stats.pending(request.modality), await self._engine.prepare(request, context.request_id) as prepared:
            # Allocate before encoding, so that no finished embeddings wait for shared memory.
            slot = await self._allocate(request, prepared, context)
            if self._reuse(request, key, context):  # Another request has encoded the medium in the meantime.
                slot.discard()
                return Embeddings()
            metadata = prepared.describe(key).model_dump_json().encode()
            async with self._engine.encoded(request, prepared, context.request_id, context.due) as rows:
                await self._engine.write(rows, slot.buffer)
                # Publish inside the block: other requests then find the medium either here or in shared memory.
                slot.publish(self._engine.dtype, self._engine.shape(request, prepared), metadata, key)
        return Embeddings()

    async def _allocate(self, media: Media, prepared: PreparedMedium, context: InvocationContext) -> Slot:
        release = asyncio.get_running_loop().call_later(PREPARED_SECONDS, prepared.release)
        try:
            return await context.allocate(OUTPUT, self._engine.nbytes(media, prepared))
        except TensorTooLargeError as error:
            raise TensorTooLargeError(
                f"{media.where}: with this {media.modality}, the request", error.wanted, error.limit
            ) from error
        finally:
            release.cancel()

    def _reuse(self, media: Media, key: str, context: InvocationContext) -> bool:
        found = context.reuse(OUTPUT, key)
        if found:
            self._stats.count_cache_hit(media.modality)
        return found

    def metrics(self) -> Iterable[Metric]:
        return self._stats.metrics()
