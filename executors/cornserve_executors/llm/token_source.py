"""The executor of a `TokenSource`."""

from __future__ import annotations

from cornserve_executors.base import Executor, InvocationContext
from cornserve_tasklib.llm import LLMRequest
from cornserve_tasklib.spoken_prompt import SpokenPrompt, SpokenTokens
from cornserve_tasklib.thinker import ThinkerResponse, TokenSource

DEFAULT_TOKENS = 128


class TokenSourceExecutor(Executor[TokenSource, LLMRequest, ThinkerResponse]):
    async def invoke(self, request: LLMRequest, context: InvocationContext) -> ThinkerResponse:
        prompt = SpokenPrompt(tokens=[]).model_dump_json().encode()
        for output in ("prompt", "states"):
            await context.publish(output, bytes(4), "float32", (1, 1), prompt)
        tokens = request.token_limit or DEFAULT_TOKENS
        await context.publish("tokens", bytes(8 * tokens), "int64", (tokens,))
        described = SpokenTokens(tokens=[0] * tokens).model_dump_json().encode()
        await context.publish("states", bytes(4 * tokens), "float32", (tokens, 1), described)
        return ThinkerResponse(token_ids=[0] * tokens, finish_reason="length")
