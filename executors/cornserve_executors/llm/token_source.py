"""The executor of a `TokenSource`."""

from __future__ import annotations

import asyncio
from array import array
from itertools import cycle, islice
from typing import Any

from cornserve_executors.base import Executor, ExecutorStartError, InvocationContext, ProgressReporter
from cornserve_executors.models import check_model
from cornserve_tasklib.chat_request import ChatRequest
from cornserve_tasklib.llm import LLMRequest
from cornserve_tasklib.spoken_prompt import SpokenPrompt, SpokenTokens
from cornserve_tasklib.thinker import ThinkerResponse, TokenSource

DEFAULT_TOKENS = 128


class TokenSourceExecutor(Executor[TokenSource, LLMRequest, ThinkerResponse]):
    _tokenizer: Any

    async def start(self, report_progress: ProgressReporter) -> None:
        report_progress("loading the tokenizer")
        self._tokenizer = await asyncio.to_thread(self._load_tokenizer)

    def _load_tokenizer(self) -> Any:
        from transformers import AutoTokenizer

        model_id, revision = self.config.model_id, self.config.revision
        check_model(model_id, revision)
        try:
            return AutoTokenizer.from_pretrained(model_id, revision=revision)
        except (OSError, ValueError) as error:
            raise ExecutorStartError(f"{model_id} has no tokenizer that can be loaded: {error}") from error

    async def invoke(self, request: LLMRequest, context: InvocationContext) -> ThinkerResponse:
        prompt = SpokenPrompt(tokens=[]).model_dump_json().encode()
        for output in ("prompt", "states"):
            await context.publish(output, bytes(4), "float32", (1, 1), prompt)
        tokens = self._tokens(request)
        await context.publish("tokens", array("q", tokens).tobytes(), "int64", (len(tokens),))
        described = SpokenTokens(tokens=tokens).model_dump_json().encode()
        await context.publish("states", bytes(4 * len(tokens)), "float32", (len(tokens), 1), described)
        return ThinkerResponse(token_ids=tokens, finish_reason="length")

    def _tokens(self, request: LLMRequest) -> list[int]:
        """Returns the tokens of the request's text, repeated up to its limit."""
        texts = (
            [text for message in request.messages for text in message.texts] if isinstance(request, ChatRequest) else []
        )
        tokens = self._tokenizer(" ".join(texts) or ".", add_special_tokens=False)["input_ids"]
        return list(islice(cycle(tokens), request.token_limit or DEFAULT_TOKENS))
