"""The executor of a `PrefillSource`."""

from __future__ import annotations

from cornserve_executors.base import Executor, InvocationContext
from cornserve_executors.llm.first_token import FirstToken
from cornserve_executors.llm.kv_format import KvMetadata
from cornserve_tasklib.llm import LLMRequest
from cornserve_tasklib.prefill_decode import PrefilledPrompt, PrefillSource


class PrefillSourceExecutor(Executor[PrefillSource, LLMRequest, PrefilledPrompt]):
    async def invoke(self, request: LLMRequest, context: InvocationContext) -> PrefilledPrompt:
        metadata = {"first": FirstToken().model_dump_json(exclude_defaults=True).encode(), "kv": KvMetadata().encode()}
        for output, value in metadata.items():
            slot = await context.allocate(output, 1)
            slot.publish("uint8", (1,), value)
        return PrefilledPrompt()
