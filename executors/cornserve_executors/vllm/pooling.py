"""Runs pooling models, which compute a vector or values of each text."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import aclosing
from typing import Any

from vllm import PoolingParams, PoolingRequestOutput
from vllm.renderers.online_renderer import OnlineRenderer
from vllm.v1.engine.async_llm import AsyncLLM

from cornserve.concurrency import gather_all
from cornserve_executors.base import InvalidRequestError
from cornserve_executors.vllm.large_texts import LargeTexts, text_batches
from cornserve_tasklib.embedding import Inputs


def online_renderer(engine: AsyncLLM) -> OnlineRenderer:
    """Returns a renderer with the model's own chat template."""
    return OnlineRenderer(
        engine.model_config,
        engine.renderer,
        request_logger=None,
        chat_template=None,
        chat_template_content_format="auto",
    )


def check_truncation(tokens: int | None, context: int) -> None:
    """Raises `InvalidRequestError` for a value of `truncate_prompt_tokens` that exceeds the context length."""
    if (tokens or 0) > context:
        raise InvalidRequestError(f"truncate_prompt_tokens: {tokens} exceeds the context length {context}")


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


async def pool(engine: AsyncLLM, prompts: Iterable[tuple[Any, PoolingParams]], id: str) -> list[PoolingRequestOutput]:
    """Runs all prompts concurrently, each as a separate request to vLLM's engine."""

    async def run(prompt: Any, params: PoolingParams, id: str) -> PoolingRequestOutput:
        async with aclosing(engine.encode(prompt, params, id)) as outputs:
            return await anext(outputs)  # vLLM yields a single output.

    return await gather_all(run(prompt, params, f"{id}/{index}") for index, (prompt, params) in enumerate(prompts))
