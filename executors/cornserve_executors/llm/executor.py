"""The executor of an `LLMTask`."""

from __future__ import annotations

import contextlib
import logging
from typing import TYPE_CHECKING

from cornserve.task import Blob, Tensor
from cornserve_executors.base import InvalidRequestError, InvocationContext
from cornserve_executors.media.silence import SILENCE
from cornserve_executors.vllm.executor import VllmExecutor
from cornserve_tasklib.chat_request import ChatRequest
from cornserve_tasklib.chat_response import ChatChunk, ChatResponse
from cornserve_tasklib.completion import CompletionRequest
from cornserve_tasklib.llm import LLMRequest, LLMTask
from cornserve_tasklib.media import Image, Media, MediaPart
from cornserve_tasklib.messages import ChatMessage

if TYPE_CHECKING:
    from cornserve_executors.llm.engine import LLMEngine


log = logging.getLogger(__name__)

_GREY_IMAGE = Image(
    data=Blob(b"P5 64 64 255\n" + bytes([128]) * 64 * 64),
    format="PPM",
    width=64,
    height=64,
    digest="grey",
    where="warm-up",
)


class LLMExecutor(VllmExecutor[LLMTask, LLMRequest, ChatResponse]):
    continues = True

    _engine: LLMEngine

    def import_engine(self) -> type[LLMEngine]:
        from cornserve_executors.llm.engine import LLMEngine

        return LLMEngine

    async def warm_up(self) -> None:
        """Loads the adapters. Sends a completion for each, and a chat if the model has a chat template."""
        await self._engine.load_adapters(self.config.options.lora_modules)
        completion = CompletionRequest(prompt="Hello", max_tokens=2, temperature=0)
        await self._engine.generate(completion, "warm-up")
        for name in self.config.options.lora_modules:
            await self._engine.generate(completion.with_lora(name), f"warm-up/lora/{name}")
        with contextlib.suppress(InvalidRequestError):
            await self._engine.generate(ChatRequest.ask("Hello", max_tokens=2, temperature=0), "warm-up/chat")
            for medium in (_GREY_IMAGE, SILENCE):
                if self._engine.encodes(medium.modality):
                    await self._engine.generate(_chat_about(medium), f"warm-up/{medium.modality}")
        for component, count in (await self._engine.parameter_counts()).items():
            log.info("%s has %d parameters", component, count)

    async def invoke(self, request: LLMRequest, context: InvocationContext) -> ChatResponse:
        async def send(chunk: bytes) -> None:
            await context.send("chunks", chunk)

        delivered = [ChatChunk.model_validate_json(chunk) for chunk in context.delivered.get("chunks", ())]
        embeddings = await context.receive_all(_embedding_tensors(request))
        stream = send if context.is_requested("chunks") else None
        return await self._engine.generate(request, context.id, stream, delivered, embeddings, context.input_bytes)


def _chat_about(medium: Media) -> ChatRequest:
    message = ChatMessage(role="user", content=[MediaPart(type="media", media=medium)])
    return ChatRequest(messages=[message], max_tokens=2, temperature=0)


def _embedding_tensors(request: LLMRequest) -> list[Tensor]:
    parts = request.media_parts if isinstance(request, ChatRequest) else []
    return [part.embedding for part in parts if part.embedding is not None]
