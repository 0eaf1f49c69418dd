"""Texts in, vectors out."""

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
from cornserve_tasklib.embedding import EmbeddingRequest, EmbeddingResponse, EmbeddingTask


class EmbeddingEngine(VllmEngine):
    def __init__(self, config: EmbeddingTask) -> None:
        super().__init__(settings.engine_args(config) | {"runner": "pooling"})
        self._renderer = OnlineRenderer(
            self._vllm.model_config,
            self._vllm.renderer,
            request_logger=None,
            chat_template=None,
            chat_template_content_format="auto",
        )

    async def embed(self, request: EmbeddingRequest, id: str) -> EmbeddingResponse:
        """Each input is a request to the engine, which works on many at once."""
        with translate_errors():
            asked = EmbeddingCompletionRequest.model_validate(request.model_dump())
            prompts = await self._renderer.preprocess_completion(asked, asked.input, prompt_embeds=None)
            params = asked.to_pooling_params()
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
            embeddings=[_encoded(output) for output in outputs],
            prompt_tokens=sum(len(output.prompt_token_ids) for output in outputs),
        )

    async def _embed(self, prompt: Any, params: PoolingParams, id: str) -> PoolingRequestOutput:
        async with aclosing(self._vllm.encode(prompt, params, id)) as outputs:
            return await anext(outputs)  # There is one.


def _encoded(output: PoolingRequestOutput) -> str:
    return b64encode(output.outputs.data.float().cpu().numpy().astype("<f4").tobytes()).decode()
