"""Embeds texts and chats with vLLM."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from vllm import PoolingParams, PoolingRequestOutput
from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest
from vllm.entrypoints.pooling.embed.protocol import EmbeddingCompletionRequest

from cornserve_executors.base import InvalidRequestError
from cornserve_executors.llm.chat_media import ChatMedia
from cornserve_executors.llm.chat_prompt import ChatPrompt
from cornserve_executors.vllm import settings
from cornserve_executors.vllm.engine import VllmEngine, translate_errors
from cornserve_executors.vllm.large_texts import LargeTexts
from cornserve_executors.vllm.media_limits import media_limits
from cornserve_executors.vllm.pooling import online_renderer, pool, tokenize
from cornserve_tasklib.chat_request import ChatRequest
from cornserve_tasklib.embedding import EmbeddingRequest, EmbeddingResponse, EmbeddingTask


def engine_args(config: EmbeddingTask) -> dict[str, Any]:
    """Returns the arguments of vLLM's `AsyncEngineArgs`. Text models ignore those that concern media."""
    # Media rarely recur, unlike in chats.
    media = {"limit_mm_per_prompt": media_limits(config), "mm_processor_cache_gb": 0}
    return settings.engine_args(config) | {"runner": "pooling"} | media


class EmbeddingEngine(VllmEngine):
    def __init__(self, config: EmbeddingTask) -> None:
        super().__init__(engine_args(config))
        self._large_texts = LargeTexts()
        self._renderer = online_renderer(self._vllm)
        self._chat_media = ChatMedia(self._vllm.model_config, self._vllm.renderer)

    async def embed(self, request: EmbeddingRequest, id: str) -> EmbeddingResponse:
        """Embeds all inputs concurrently."""
        with translate_errors():
            prompts = await (self._tokenize(request, id) if request.messages is None else self._render(request, id))
            params = PoolingParams(task="embed", dimensions=self._dimensions(request))
            params.verify(self._vllm.model_config)
            outputs = await pool(self._vllm, ((prompt, params.clone()) for prompt in prompts), id)
        return EmbeddingResponse(
            embeddings=[_encode(output) for output in outputs],
            prompt_tokens=sum(len(output.prompt_token_ids) for output in outputs),
        )

    def _dimensions(self, request: EmbeddingRequest) -> int | None:
        """Returns the length to which vectors are shortened. Raises `InvalidRequestError` if they cannot be."""
        model, dimensions = self._vllm.model_config, request.dimensions
        size, lengths = model.embedding_size, model.matryoshka_dimensions
        if dimensions is None or dimensions == size:
            return None
        if not model.is_matryoshka:
            message = f"dimensions: the vectors of this model have {size} elements and cannot be shortened: omit it"
            raise InvalidRequestError(message)
        if dimensions > size or (lengths and dimensions not in lengths):
            known = ", ".join(map(str, lengths)) if lengths else f"1 to {size}"
            raise InvalidRequestError(f"dimensions: {dimensions} is not a length of this model's vectors: give {known}")
        return dimensions

    async def _render(self, request: EmbeddingRequest, id: str) -> list[Any]:
        """Returns the prompt of the request's chat."""
        chat = ChatRequest(messages=request.messages or [], add_generation_prompt=False)
        prompt = ChatPrompt(chat, (), self._chat_media, id)

        async def render() -> list[Any]:
            async with prompt.messages() as messages:
                fields = {"messages": messages, "add_generation_prompt": False}
                return [await prompt.render(self._renderer, ChatCompletionRequest.model_validate(fields))]

        characters = sum(len(text) for message in chat.messages for text in message.texts)
        return await self._large_texts.run(render, characters, owner=id)

    async def _tokenize(self, request: EmbeddingRequest, id: str) -> list[Any]:
        vllm_request = EmbeddingCompletionRequest(input=request.input)
        return await tokenize(self._renderer, vllm_request, request.input, self._large_texts, id)


def _encode(output: PoolingRequestOutput) -> str:
    return b64encode(output.outputs.data.float().cpu().numpy().astype("<f4").tobytes()).decode()
