"""The executor of a `VocoderTask`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING

from prometheus_client import Metric

from cornserve.task import TensorStream
from cornserve_executors.base import InvocationContext
from cornserve_executors.device_executor import DeviceExecutor
from cornserve_executors.talker.vocoder_stats import VocoderStats
from cornserve_tasklib.talker import SpokenChunk, SpokenCodesInfo, TalkerResponse, VocoderRequest, VocoderTask

if TYPE_CHECKING:
    from cornserve_executors.talker.decoded_speech import CodesPart
    from cornserve_executors.talker.vocoder_engine import VocoderEngine


class VocoderExecutor(DeviceExecutor[VocoderTask, VocoderRequest, TalkerResponse]):
    library = "transformers"
    repeats = "in order"

    _engine: VocoderEngine

    def __init__(self, config: VocoderTask) -> None:
        super().__init__(config)
        self._stats = VocoderStats()

    def import_engine(self) -> Callable[[VocoderTask], VocoderEngine]:
        from cornserve_executors.talker.vocoder_engine import VocoderEngine

        return partial(VocoderEngine.load, stats=self._stats)

    async def invoke(self, request: VocoderRequest, context: InvocationContext) -> TalkerResponse:
        async def send(chunk: SpokenChunk) -> None:
            await context.send("chunks", chunk.model_dump_json().encode())

        stream = send if context.is_requested("chunks") else None
        async with aclosing(_read_codes(context, request.codes)) as parts:
            return await self._engine.speak(parts, request.response_format, stream)

    def metrics(self) -> Iterable[Metric]:
        return self._stats.metrics()


async def _read_codes(context: InvocationContext, codes: TensorStream) -> AsyncGenerator[CodesPart, None]:
    from cornserve_executors.talker.decoded_speech import CodesPart
    from cornserve_executors.tensor_copies import copy_from_buffer

    async for view in context.receive_stream(codes):
        info = SpokenCodesInfo.model_validate_json(view.metadata)
        tensor = copy_from_buffer(view.view, view.dtype, view.shape)
        view.check()
        yield CodesPart(info, tensor)
