"""The plugin that vLLM loads in each of its processes. It must import fast."""

from __future__ import annotations

_MODELS = {
    "Qwen3VLForConditionalGeneration": "deepstack:Qwen3VLWithDeepstack",
    "Qwen3VLMoeForConditionalGeneration": "deepstack:Qwen3VLMoeWithDeepstack",
    "Qwen2_5OmniForConditionalGeneration": "qwen2_5_omni:Qwen25OmniWithStates",
    "Qwen2_5OmniModel": "qwen2_5_omni:Qwen25OmniWithStates",
    "Qwen3OmniMoeForConditionalGeneration": "deepstack:Qwen3OmniWithDeepstack",
    "LlavaOnevisionForConditionalGeneration": "llava_videos:LlavaOnevisionWithVideos",
}


def register_models() -> None:
    """Replaces models of vLLM with subclasses: some accept embeddings or videos which vLLM's models do not accept, and
    some keep hidden states."""
    from vllm import ModelRegistry

    for architecture, model in _MODELS.items():
        ModelRegistry.register_model(architecture, f"cornserve_executors.llm.{model}")
