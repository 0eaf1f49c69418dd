"""The executor of a `TalkerTask`."""

from __future__ import annotations

from array import array
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, aclosing
from functools import partial
from typing import TYPE_CHECKING, Any

from prometheus_client import Metric

from cornserve.transport import TensorView
from cornserve_executors.base import InvocationContext
from cornserve_executors.device_executor import DeviceExecutor
from cornserve_executors.talker.stats import TalkerStats
from cornserve_tasklib.spoken_prompt import SpokenPrompt, SpokenTokens
from cornserve_tasklib.talker import (
    SpokenChunk,
    SpokenCodes,
    SpokenCodesInfo,
    TalkerRequest,
    TalkerResponse,
    TalkerTask,
)

if TYPE_CHECKING:
    import torch

    from cornserve_executors.talker.engine import TalkerEngine
    from cornserve_executors.talker.prompt import ThinkerPrompt
    from cornserve_executors.talker.spoken_text import SpokenPart


class TalkerExecutor(DeviceExecutor[TalkerTask, TalkerRequest, SpokenCodes]):
    library = "transformers"
    repeats = "in order"

    _engine: TalkerEngine

    def __init__(self, config: TalkerTask) -> None:
        super().__init__(config)
        self._stats = TalkerStats()
        # Shared memory is for the codes alone.
        self.layout = config.layout

    def import_engine(self) -> Callable[[TalkerTask], Any]:
        from cornserve_executors.talker.constant_codes import ConstantCodesEngine
        from cornserve_executors.talker.engine import TalkerEngine

        return ConstantCodesEngine if self.config.constant else partial(TalkerEngine.load, stats=self._stats)

    async def invoke(self, request: TalkerRequest, context: InvocationContext) -> SpokenCodes:
        self._engine.check(request)
        request = context.with_seed(request)
        async with AsyncExitStack() as stack:
            prompt, parts = None, None
            if request.states is not None:
                views = context.receive_stream(request.states)
                prompt = await _read_prompt(views)
                parts = await stack.enter_async_context(aclosing(_read_states(views)))
            if request.prompt is not None:
                prompt = await _read_prompt(context.receive_stream(request.prompt))
            if request.tokens is not None:
                views = context.receive_stream(request.tokens)
                parts = await stack.enter_async_context(aclosing(_read_tokens(views)))
            return SpokenCodes(**dict(await self._speak(request, context, parts, prompt)))

    async def _speak(
        self,
        request: TalkerRequest,
        context: InvocationContext,
        parts: AsyncIterator[SpokenPart] | None,
        prompt: ThinkerPrompt | None,
    ) -> TalkerResponse:
        async def send(chunk: SpokenChunk) -> None:
            await context.send("chunks", chunk.model_dump_json().encode())

        async def publish(codes: torch.Tensor, info: SpokenCodesInfo) -> None:
            from cornserve_executors.tensor_copies import dtype_name, read_bytes

            metadata = info.model_dump_json().encode()
            await context.publish("codes", read_bytes(codes), dtype_name(codes.dtype), tuple(codes.shape), metadata)

        if self.config.with_vocoder:
            stream = send if context.is_requested("chunks") else None
            return await self._engine.speak(request, context.id, stream, parts, prompt)
        return await self._engine.speak_codes(request, context.id, publish, parts, prompt)

    def metrics(self) -> Iterable[Metric]:
        return self._stats.metrics()


async def _read_prompt(views: AsyncIterator[TensorView]) -> ThinkerPrompt:
    from cornserve_executors.talker.prompt import ThinkerPrompt

    async for view in views:
        described = SpokenPrompt.model_validate_json(view.metadata)
        return ThinkerPrompt(described, _copy_states(view))
    raise RuntimeError("the thinker has not sent its prompt")


async def _read_tokens(views: AsyncIterator[TensorView]) -> AsyncGenerator[SpokenPart, None]:
    from cornserve_executors.talker.spoken_text import SpokenPart

    async for view in views:
        tokens = array("q", bytes(view.view)).tolist()
        view.check()
        yield SpokenPart(tokens)


async def _read_states(views: AsyncIterator[TensorView]) -> AsyncGenerator[SpokenPart, None]:
    from cornserve_executors.talker.spoken_text import SpokenPart

    async for view in views:
        tokens = SpokenTokens.model_validate_json(view.metadata).tokens
        yield SpokenPart(tokens, _copy_states(view).unbind())


def _copy_states(view: TensorView) -> torch.Tensor:
    """Returns a copy of the thinker's hidden states. Raises `RuntimeError` if they are not finite."""
    from cornserve_executors.tensor_copies import copy_from_buffer

    states = copy_from_buffer(view.view, view.dtype, view.shape)
    view.check()
    if not states.isfinite().all():
        raise RuntimeError("the thinker sent hidden states that are not finite (NaN or infinity)")
    return states
