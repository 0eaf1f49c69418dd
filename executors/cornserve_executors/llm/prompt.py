"""From a conversation to token ids, by vLLM's own code: it knows every model's template and its oddities."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from vllm.renderers import BaseRenderer, ChatParams, TokenizeParams
from vllm.utils.mistral import is_mistral_tokenizer

from cornserve_tasklib.chat import ChatRequest


async def render(renderer: BaseRenderer, request: ChatRequest) -> Any:
    """The engine's input. Templates and tokenizers run in vLLM's threads."""
    messages = [message.model_dump(exclude_none=True) for message in request.messages]
    _, prompts = await renderer.render_chat_async([messages], _template(renderer), _tokenization(renderer))
    return prompts[0]


def _template(renderer: BaseRenderer) -> ChatParams:
    """As `vllm.LLM.chat` does it; Mistral's own tokenizer knows no step between a conversation and its tokens."""
    tokenize = is_mistral_tokenizer(renderer.tokenizer)
    return ChatParams(
        chat_template_kwargs={"add_generation_prompt": True, "continue_final_message": False, "tokenize": tokenize}
    )


def _tokenization(renderer: BaseRenderer) -> TokenizeParams:
    """Special tokens come from the template. Without a limit here a prompt that is too long is counted, not cut."""
    return replace(renderer.default_chat_tok_params, add_special_tokens=False, max_total_tokens=None)
