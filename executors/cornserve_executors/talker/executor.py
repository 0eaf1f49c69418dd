"""The executor of a `TalkerTask`."""

from __future__ import annotations

from array import array
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING

from prometheus_client import Metric

from cornserve.task import TensorStream
from cornserve.transport import TensorView
from cornserve_executors.base import InvocationContext
from cornserve_executors.device_executor import DeviceExecutor
from cornserve_executors.talker.stats import TalkerStats
from cornserve_tasklib.spoken_prompt import SpokenPrompt
from cornserve_tasklib.talker import SpokenChunk, TalkerRequest, TalkerResponse, TalkerTask

if TYPE_CHECKING:
    from cornserve_executors.talker.engine import TalkerEngine
    from cornserve_executors.talker.prompt import MediaPrompt


class TalkerExecutor(DeviceExecutor[TalkerTask, TalkerRequest, TalkerResponse]):
    library = "transformers"

    _engine: TalkerEngine

    def __init__(self, config: TalkerTask) -> None:
        super().__init__(config)
        self._stats = TalkerStats()

    def import_engine(self) -> Callable[[TalkerTask], TalkerEngine]:
        from cornserve_executors.talker.engine import TalkerEngine

        return partial(TalkerEngine, stats=self._stats)

    async def invoke(self, request: TalkerRequest, context: InvocationContext) -> TalkerResponse:
        async def send(chunk: SpokenChunk) -> None:
            await context.send("chunks", chunk.model_dump_json().encode())

        stream = send if context.is_requested("chunks") else None
        media = None if request.prompt is None else await _read_prompt(context, request.prompt)
        if request.tokens is None:
            return await self._engine.speak(request, context.id, stream, media=media)
        async with aclosing(_read_tokens(context.receive_stream(request.tokens))) as tokens:
            return await self._engine.speak(request, context.id, stream, tokens, media)

    def metrics(self) -> Iterable[Metric]:
        return self._stats.metrics()


async def _read_prompt(context: InvocationContext, prompt: TensorStream) -> MediaPrompt:
    from cornserve_executors.talker.prompt import MediaPrompt
    from cornserve_executors.tensor_copies import copy_from_buffer

    async for view in context.receive_stream(prompt):
        described = SpokenPrompt.model_validate_json(view.metadata)
        media = MediaPrompt(described, copy_from_buffer(view.view, view.dtype, view.shape))
        view.check()
        return media
    raise RuntimeError("the thinker has not sent its prompt")


async def _read_tokens(views: AsyncIterator[TensorView]) -> AsyncGenerator[Sequence[int], None]:
    async for view in views:
        tokens = array("q", bytes(view.view)).tolist()
        view.check()
        yield tokens
