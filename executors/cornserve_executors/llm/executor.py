"""Executors of language models, for `LLMTask`, `PrefillTask`, `DecodeTask` and `ThinkerTask`."""

from __future__ import annotations

import contextlib
import logging
from array import array
from collections.abc import Iterable, Sequence
from functools import partial
from secrets import randbits
from typing import TYPE_CHECKING

from prometheus_client import Metric

from cornserve.task import Tensor
from cornserve_executors.base import InvalidRequestError, InvocationContext, ProgressReporter
from cornserve_executors.base.executor import Request, Result
from cornserve_executors.llm.first_token import FirstToken
from cornserve_executors.llm.hand_over import KvHandOver, send_chunk
from cornserve_executors.llm.kv_format import KvMetadata
from cornserve_executors.llm.kv_stats import KvStats
from cornserve_executors.media.grey_image import GREY_IMAGE
from cornserve_executors.media.silence import SILENCE
from cornserve_executors.vllm.executor import Settings, VllmExecutor
from cornserve_tasklib.chat_request import ChatRequest
from cornserve_tasklib.chat_response import ChatChunk, ChatResponse
from cornserve_tasklib.completion import CompletionRequest
from cornserve_tasklib.llm import LLMRequest, LLMTask
from cornserve_tasklib.media import Media, MediaPart
from cornserve_tasklib.messages import ChatMessage
from cornserve_tasklib.prefill_decode import DecodeTask, PrefilledPrompt, PrefilledRequest, PrefillTask
from cornserve_tasklib.thinker import ThinkerResponse, ThinkerTask

if TYPE_CHECKING:
    from cornserve_executors.llm.engine import ChunkDelivery, LLMEngine
    from cornserve_executors.llm.kv_messages import KvMessages, PrefilledKv
    from cornserve_executors.llm.partial_response import HandOver
    from cornserve_executors.llm.thinker_states import StatesDelivery, ThinkerStates


log = logging.getLogger(__name__)


class LanguageModelExecutor(VllmExecutor[Settings, Request, Result]):
    """Loads a language model. A subclass invokes it."""

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
        media = [medium for medium in (GREY_IMAGE, SILENCE) if self._engine.encodes(medium.modality)]
        chats = [ChatRequest.ask("Hello", max_tokens=2, temperature=0), *map(_chat_about, media)]
        for index, chat in enumerate(chats):
            with contextlib.suppress(InvalidRequestError):  # A chat template may refuse one of them.
                await self._engine.generate(chat, f"warm-up/chat/{index}")
        for component, count in (await self._engine.parameter_counts()).items():
            log.info("%s has %d parameters", component, count)

    async def generate(
        self,
        request: LLMRequest,
        context: InvocationContext,
        deliver: ChunkDelivery | None,
        deliver_states: StatesDelivery | None = None,
        delivered: Sequence[ChatChunk] | None = None,
        prefilled: PrefilledKv | None = None,
        hand_over: HandOver | None = None,
    ) -> ChatResponse:
        """Generates the response of an invocation, and streams its chunks to `deliver`. See `LLMEngine.generate`.

        Args:
            delivered: chunks that have been sent. By default, those of an earlier attempt.
        """
        embeddings = await context.receive_all(_embedding_tensors(request))
        return await self._engine.generate(
            request,
            context.id,
            deliver,
            _delivered_chunks(context) if delivered is None else delivered,
            embeddings,
            context.input_bytes,
            deliver_states,
            prefilled,
            hand_over,
            context.due,
        )


class KvExecutor(LanguageModelExecutor[Settings, Request, Result]):
    """Loads a language model whose KV caches are saved or loaded."""

    _messages: KvMessages

    def __init__(self, config: Settings) -> None:
        super().__init__(config)
        self._kv_stats = KvStats()

    async def start(self, report_progress: ProgressReporter) -> None:
        await super().start(report_progress)
        from cornserve_executors.llm.kv_messages import KvMessages

        self._messages = KvMessages(self._kv_stats)
        await self._engine.kv_format()  # It is then known when the engine is busy.

    def metrics(self) -> Iterable[Metric]:
        yield from super().metrics()
        yield from self._kv_stats.metrics()

    async def stop(self) -> None:
        await super().stop()
        if hasattr(self, "_messages"):
            self._messages.close()


class ResponseExecutor(KvExecutor[Settings, Request, Result]):
    """Generates responses, which another replica can continue."""

    async def respond(
        self,
        request: LLMRequest,
        context: InvocationContext,
        delivered: Sequence[ChatChunk] | None = None,
        prefilled: PrefilledKv | None = None,
    ) -> ChatResponse:
        """Generates the response of an invocation. See `generate`."""
        deliver, sent = _chunk_delivery(context), len(_delivered_chunks(context))
        unsent = [] if deliver or delivered is None else delivered[sent:]
        hand_over = KvHandOver(context, self._engine, self._messages, unsent)
        return await self.generate(
            request, context, deliver, delivered=delivered, prefilled=prefilled, hand_over=hand_over
        )

    async def respond_from_state(self, request: LLMRequest, context: InvocationContext) -> ChatResponse | None:
        """Generates the rest of a response that another replica has handed over with its KV cache.

        Returns None without a KV cache, or if it is unusable.
        """
        from cornserve_executors.llm.engine import UnusableKvError

        tensor = await context.receive_state()
        if tensor is None:
            return None
        state = self._messages.receive(context.id, tensor, context.release_state, is_state=True)
        try:
            return await self.respond(request, context, prefilled=state)
        except UnusableKvError as error:
            log.warning("the tokens of a response are processed again: %s", error)
            await context.release_state()
            return None
        finally:
            self._messages.forget(context.id)


class LLMExecutor(ResponseExecutor[LLMTask, LLMRequest, ChatResponse]):
    async def invoke(self, request: LLMRequest, context: InvocationContext) -> ChatResponse:
        response = await self.respond_from_state(request, context)
        return await self.respond(request, context) if response is None else response


class PrefillExecutor(KvExecutor[PrefillTask, LLMRequest, PrefilledPrompt]):
    limits_consumers = True

    async def invoke(self, request: LLMRequest, context: InvocationContext) -> PrefilledPrompt:
        embeddings = await context.receive_all(_embedding_tensors(request))
        seed = randbits(63) if self.config.samples_first(request) else None
        if seed is not None:
            request = request.model_copy(update={"seed": seed})
        rendered = await self._engine.render(request, context.id, embeddings, context.input_bytes)
        format = await self._engine.kv_format()
        assert format is not None
        nbytes = format.nbytes(len(rendered.prompt_tokens))
        slot, slot_of_first = await context.allocate("kv", nbytes), await context.allocate("first", 1)
        tokens = len(rendered.prompt_tokens)
        async with self._messages.lend(context.id, slot, tokens, self._engine.end_save) as lent:
            chunk, cached_tokens = await self._engine.prefill(
                rendered, context.id, lent.target, embeddings, samples_first=seed is not None, due=context.due
            )
            first = FirstToken(chunk=chunk, seed=seed if chunk is None else None)
            slot_of_first.publish("uint8", (1,), first.model_dump_json(exclude_defaults=True).encode())
            await lent.wait_saved()
        metadata = KvMetadata(format, rendered.digest(tokens), tokens, cached_tokens)
        slot.publish("uint8", (nbytes,), metadata.encode())
        return PrefilledPrompt()


class DecodeExecutor(ResponseExecutor[DecodeTask, PrefilledRequest, ChatResponse]):
    async def invoke(self, request: PrefilledRequest, context: InvocationContext) -> ChatResponse:
        response = await self.respond_from_state(request.request, context)
        if response is not None:
            return response
        if request.kv is None:
            return await self.respond(request.request, context)
        deliver = _chunk_delivery(context)
        llm_request, delivered = request.request, _delivered_chunks(context)
        if request.first is not None:
            if not delivered:
                tensor = await context.receive(request.first)
                first = FirstToken.model_validate_json(tensor.metadata)
                if first.chunk is not None:
                    delivered = [first.chunk]
                    if deliver is not None:
                        await deliver(first.chunk)
                elif first.seed is not None:
                    llm_request = llm_request.model_copy(update={"seed": first.seed})
            await context.release(request.first)
        tokens = sum(len(chunk.token_ids) for chunk in delivered)
        if tokens == llm_request.token_limit and self.config.continues_from_tokens(llm_request):
            return await self.respond(llm_request, context, delivered)
        tensor = await context.receive(request.kv)
        prefilled = self._messages.receive(context.id, tensor, partial(context.release, request.kv))
        try:
            return await self.respond(llm_request, context, delivered, prefilled)
        finally:
            self._messages.forget(context.id)


class ThinkerExecutor(LanguageModelExecutor[ThinkerTask, LLMRequest, ThinkerResponse]):
    async def invoke(self, request: LLMRequest, context: InvocationContext) -> ThinkerResponse:
        wants_chunks = context.is_requested("chunks")

        async def deliver(chunk: ChatChunk) -> None:
            await _publish_tokens(context, chunk)
            if wants_chunks:
                await send_chunk(context, chunk)

        async def deliver_states(states: ThinkerStates) -> None:
            metadata = states.tokens.model_dump_json().encode()
            await context.publish(states.output, states.data, states.dtype, states.shape, metadata)
            await publish_delivered()  # A talker reads the prompt first.

        delivered = _delivered_chunks(context)

        async def publish_delivered() -> None:
            while delivered:
                await _publish_tokens(context, delivered.pop(0))

        reads_states = self._reads_states(context)
        if not reads_states:
            await publish_delivered()
        is_streamed = wants_chunks or context.is_requested("tokens") or context.is_requested("states")
        response = await self.generate(
            request,
            context,
            deliver if is_streamed else None,
            deliver_states if reads_states else None,
        )
        return ThinkerResponse(**dict(response))

    def _reads_states(self, context: InvocationContext) -> bool:
        """Returns whether the invocation's talker reads hidden states.

        Raises `InvalidRequestError` for states that the model's talker does not read.
        """
        requested = [name for name in ("prompt", "states") if context.is_requested(name)]
        for name in requested:
            if not self._engine.reads_states(name):
                raise InvalidRequestError(f"{name}: the talker of this model does not read it")
        return bool(requested)


def _delivered_chunks(context: InvocationContext) -> list[ChatChunk]:
    """Returns the chunks that an earlier attempt has sent."""
    return [ChatChunk.model_validate_json(chunk) for chunk in context.delivered.get("chunks", ())]


def _chunk_delivery(context: InvocationContext) -> ChunkDelivery | None:
    """Returns the function that sends chunks of the response, if they are requested."""

    async def deliver(chunk: ChatChunk) -> None:
        await send_chunk(context, chunk)

    return deliver if context.is_requested("chunks") else None


async def _publish_tokens(context: InvocationContext, chunk: ChatChunk) -> None:
    if chunk.index == 0 and chunk.token_ids and context.is_requested("tokens"):
        tokens = array("q", chunk.token_ids)
        await context.publish("tokens", tokens.tobytes(), "int64", (len(tokens),))


def _chat_about(medium: Media) -> ChatRequest:
    message = ChatMessage(role="user", content=[MediaPart(type="media", media=medium)])
    return ChatRequest(messages=[message], max_tokens=2, temperature=0)


def _embedding_tensors(request: LLMRequest) -> list[Tensor]:
    parts = request.media_parts if isinstance(request, ChatRequest) else []
    return [part.embedding for part in parts if part.embedding is not None]
