"""The life of an encoder."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from prometheus_client import Metric

from cornserve.transport import Slot, TensorTooLargeError
from cornserve_executors.base import Call, Executor
from cornserve_executors.base.executor import Report
from cornserve_executors.encoder.stats import EncoderStats
from cornserve_executors.models import check_model
from cornserve_tasklib.encoder import Embeddings, EncoderTask
from cornserve_tasklib.image import EncodedImage, Image

if TYPE_CHECKING:
    from cornserve_executors.encoder.engine import EncoderEngine
    from cornserve_executors.encoder.families.family import EncodingPlan

OUTPUT = "embeddings"


class EncoderExecutor(Executor[EncoderTask, Image, Embeddings]):
    _engine: EncoderEngine
    _working: asyncio.Task[None]

    def __init__(self, config: EncoderTask) -> None:
        super().__init__(config)
        self._stats = EncoderStats()
        self._repeated = WeakValueDictionary[tuple[str, str], asyncio.Lock]()
        """By request and image, while it is made."""

    async def start(self, report: Report) -> None:
        check_model(self.config.model_id)
        report("importing torch")
        engine_type = await asyncio.to_thread(_import_engine)
        report("loading weights")
        self._engine = await asyncio.to_thread(engine_type, self.config, self._stats)
        report("warming up")
        await asyncio.to_thread(self._engine.warm_up)
        self._working = asyncio.create_task(self._engine.run())

    async def invoke(self, request: Image, call: Call) -> Embeddings:
        key = self._engine.key(request)
        # An image that a request has several times is made, and takes room, once.
        async with self._repeated.setdefault((call.request_id, key), asyncio.Lock()):
            return await self._embed(request, key, call)

    async def _embed(self, request: Image, key: str, call: Call) -> Embeddings:
        if self._reuse(call, key):
            return Embeddings()
        with self._stats.waiting():
            plan = await self._engine.plan(request)
            # There has to be room for the embeddings before work goes into them.
            slot = await self._room_for(request, plan, call)
            if self._reuse(call, key):  # Another request's image has been encoded meanwhile.
                slot.discard()
                return Embeddings()
            encoded = EncodedImage(key=key, rows=plan.rows, fields=plan.fields).model_dump_json().encode()
            async with self._engine.encoded(request, plan, call.request_id) as rows:
                await self._engine.write(rows, slot.buffer)
                # Within the block, so that whoever asks for this image meanwhile finds it either here or there.
                slot.publish(self._engine.dtype, self._engine.shape(plan), encoded, key)
        return Embeddings()

    async def _room_for(self, image: Image, plan: EncodingPlan, call: Call) -> Slot:
        try:
            return await call.allocate(OUTPUT, self._engine.nbytes(plan))
        except TensorTooLargeError as error:
            raise TensorTooLargeError(
                f"{image.where}: with this image, the request", error.wanted, error.limit
            ) from error

    def _reuse(self, call: Call, key: str) -> bool:
        found = call.reuse(OUTPUT, key)
        if found:
            self._stats.cache_hit()
        return found

    async def death(self) -> str:
        await asyncio.wait({self._working})
        return f"the device failed: {self._working.exception()}"

    def metrics(self) -> Iterable[Metric]:
        return self._stats.metrics()

    async def stop(self) -> None:
        if hasattr(self, "_working"):
            self._working.cancel()
            await asyncio.gather(self._working, return_exceptions=True)
        if hasattr(self, "_engine"):
            await asyncio.to_thread(self._engine.shutdown)


def _import_engine() -> type[EncoderEngine]:
    # On CPUs, torch keeps kernels for the last 1024 sizes of batches, half a megabyte each, and gains nothing by it.
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "16")
    from cornserve_executors.encoder.engine import EncoderEngine

    return EncoderEngine
