"""Prompts that vLLM's own server renders, and their tokens."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

from tests.integration.multimodal.media_chats import MediaContent, is_sound, media_chat, media_in, vllm_messages
from tests.integration.multimodal.multimodal_tests import new_id

if TYPE_CHECKING:
    from cornserve_executors.llm.engine import LLMEngine
    from cornserve_executors.llm.prompt_renderer import PromptRenderer


async def vllm_prompt(renderer: PromptRenderer, content: MediaContent) -> Any:
    """Returns the prompt of vLLM's own renderer and decoders."""
    from vllm.entrypoints.openai.chat_completion.protocol import ChatCompletionRequest

    options: dict[str, Any] = {"use_audio_in_video": True} if any(map(is_sound, content)) else {}
    frames: dict[str, Any] = {}
    for medium in media_in(content):
        options |= medium.options.sizes
        frames |= medium.options.frames
    request = ChatCompletionRequest(
        messages=vllm_messages(content),
        mm_processor_kwargs=options,
        media_io_kwargs={"video": frames} if frames else None,
    )
    trusting = copy(renderer._renderer)
    trusting.trust_request_mm_kwargs = True
    _, (prompt,) = await trusting.render_chat(request, skip_mm_cache=True)
    return prompt


async def vllm_tokens(engine: LLMEngine, content: MediaContent) -> list[int]:
    """Returns the tokens for a prompt that vLLM renders itself."""
    prompt = await vllm_prompt(engine._prompt_renderer, content)
    rendered = await engine._prompt_renderer.render(media_chat(content), stream=False)
    outputs = [output async for output in engine._vllm.generate(prompt, rendered.sampling, new_id())]
    return list(outputs[-1].outputs[0].token_ids)
