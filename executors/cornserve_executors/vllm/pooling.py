"""Runs pooling models, which compute a vector or values of each text."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

from vllm import PoolingParams, PoolingRequestOutput
from vllm.renderers.online_renderer import OnlineRenderer
from vllm.v1.engine.async_llm import AsyncLLM

from cornserve.concurrency import gather_all
from cornserve_executors.vllm.large_texts import LargeTexts, text_batches
from cornserve_tasklib.embedding import Inputs


async def tokenize(
    renderer: OnlineRenderer, vllm_request: Any, inputs: Inputs, large_texts: LargeTexts, id: str
) -> list[Any]:
    """Returns the prompts of texts, or of lists of tokens, with the options of vLLM's request."""

    async def run() -> list[Any]:
        batches = text_batches(inputs) if isinstance(inputs[0], str) else [inputs]
        return [
            prompt
            for batch in batches
            for prompt in await renderer.preprocess_completion(vllm_request, batch, prompt_embeds=None)
        ]

    return await large_texts.run(run, sum(map(len, inputs)), owner=id)


async def pool(engine: AsyncLLM, prompts: Sequence[Any], params: PoolingParams, id: str) -> list[PoolingRequestOutput]:
    """Runs all prompts concurrently, each as a separate request to vLLM's engine."""

    async def run(prompt: Any, id: str) -> PoolingRequestOutput:
        async with aclosing(engine.encode(prompt, params.clone(), id)) as outputs:
            return await anext(outputs)  # vLLM yields a single output.

    return await gather_all(run(prompt, f"{id}/{index}") for index, prompt in enumerate(prompts))
