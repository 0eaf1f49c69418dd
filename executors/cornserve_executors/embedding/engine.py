"""Embeds texts with vLLM."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from contextlib import aclosing
from typing import Any

from vllm import PoolingParams, PoolingRequestOutput
from vllm.entrypoints.pooling.embed.protocol import EmbeddingCompletionRequest
from vllm.renderers.online_renderer import OnlineRenderer

from cornserve_executors.vllm import settings
from cornserve_executors.vllm.engine import VllmEngine, translate_errors
from cornserve_executors.vllm.large_texts import LargeTexts, text_batches
from cornserve_tasklib.embedding import EmbeddingRequest, EmbeddingResponse, EmbeddingTask


class EmbeddingEngine(VllmEngine):
    def __init__(self, config: EmbeddingTask) -> None:
        super().__init__(settings.engine_args(config) | {"runner": "pooling"})
        self._large_texts = LargeTexts()
        self._renderer = OnlineRenderer(
            self._vllm.model_config,
            self._vllm.renderer,
            request_logger=None,
            chat_template=None,
            chat_template_content_format="auto",
        )

    async def embed(self, request: EmbeddingRequest, id: str) -> EmbeddingResponse:
        """Embeds all inputs concurrently, each as a separate request to vLLM's engine."""
        with translate_errors():
            vllm_request = EmbeddingCompletionRequest.model_validate(request.model_dump())
            prompts = await self._tokenize(request, vllm_request, id)
            params = vllm_request.to_pooling_params()
            params.verify(self._vllm.model_config)
            tasks = [
                asyncio.ensure_future(self._embed(prompt, params.clone(), f"{id}/{index}"))
                for index, prompt in enumerate(prompts)
            ]
            try:
                outputs = await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()
        return EmbeddingResponse(
            embeddings=[_encode(output) for output in outputs],
            prompt_tokens=sum(len(output.prompt_token_ids) for output in outputs),
        )

    async def _tokenize(
        self, request: EmbeddingRequest, vllm_request: EmbeddingCompletionRequest, id: str
    ) -> list[Any]:
        async def tokenize() -> list[Any]:
            batches = text_batches(request.input) if isinstance(request.input[0], str) else [request.input]
            return [
                prompt
                for batch in batches
                for prompt in await self._renderer.preprocess_completion(vllm_request, batch, prompt_embeds=None)
            ]

        characters = sum(map(len, request.input))
        return await self._large_texts.run(tokenize, characters, owner=id)

    async def _embed(self, prompt: Any, params: PoolingParams, id: str) -> PoolingRequestOutput:
        async with aclosing(self._vllm.encode(prompt, params, id)) as outputs:
            return await anext(outputs)  # vLLM yields a single output.


def _encode(output: PoolingRequestOutput) -> str:
    return b64encode(output.outputs.data.float().cpu().numpy().astype("<f4").tobytes()).decode()
