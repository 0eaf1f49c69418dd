"""Hands the KV cache of a running response over to another replica."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from cornserve_executors.base import EngineDeadError, InvocationContext
from cornserve_executors.llm.kv_format import KvMetadata
from cornserve_tasklib.chat_response import ChatChunk

if TYPE_CHECKING:  # They load vLLM.
    from cornserve_executors.llm.engine import LLMEngine
    from cornserve_executors.llm.kv_messages import KvMessages
    from cornserve_executors.llm.prompt_renderer import RenderedRequest

log = logging.getLogger(__name__)

SAVE_SECONDS: Final = 5.0
"""The time in which the engine must save the KV cache. The stream pauses meanwhile."""


class KvHandOver:
    """The hand-over of one invocation. See `HandOver`.

    Args:
        unsent: chunks of a response without a stream that precede those that the engine generates, and that the caller
            does not have.
    """

    def __init__(
        self, context: InvocationContext, engine: LLMEngine, messages: KvMessages, unsent: Sequence[ChatChunk] = ()
    ) -> None:
        self._context = context
        self._engine = engine
        self._messages = messages
        self._unsent = unsent

    def is_wanted(self) -> bool:
        return self._context.wants_hand_over()

    def on_wanted(self, callback: Callable[[], None]) -> None:
        self._context.on_hand_over(callback)

    async def send(self, chunks: Sequence[ChatChunk]) -> None:
        for chunk in (*self._unsent, *chunks):
            await send_chunk(self._context, chunk)

    async def save(self, continued: RenderedRequest, cached_tokens: int) -> None:
        """Publishes the complete blocks of the running request as the state of the invocation.

        Without memory or time for it, or if vLLM has preempted the request, the other replica computes the blocks.
        """
        try:
            await self._save(continued, cached_tokens)
        except EngineDeadError:
            raise
        except Exception as error:
            log.warning("a response is handed over without its KV cache: %s", str(error) or type(error).__name__)

    async def _save(self, continued: RenderedRequest, cached_tokens: int) -> None:
        format = await self._engine.kv_format()
        if format is None:
            return
        # The engine has computed all tokens but the last one.
        tokens = (len(continued.known_tokens) - 1) // format.block_size * format.block_size
        nbytes = format.nbytes(tokens)
        slot = await self._context.allocate_state(nbytes) if tokens else None
        if slot is None:
            return
        key = f"{self._context.id}/hand-over"
        async with (
            asyncio.timeout(SAVE_SECONDS),
            self._messages.lend(key, slot, tokens, self._engine.end_save) as lent,
        ):
            await self._engine.save_running(self._context.id, lent.target)
            await lent.wait_saved()
        metadata = KvMetadata(format, continued.digest(tokens), tokens, cached_tokens)
        slot.publish("uint8", (nbytes,), metadata.encode())


async def send_chunk(context: InvocationContext, chunk: ChatChunk) -> None:
    await context.send("chunks", chunk.__pydantic_serializer__.to_json(chunk, exclude_defaults=True))
