"""The plugin that vLLM loads in each of its processes. It must import fast."""

from __future__ import annotations

_MODELS = {
    "Qwen3VLForConditionalGeneration": "Qwen3VLWithDeepstack",
    "Qwen3OmniMoeForConditionalGeneration": "Qwen3OmniWithDeepstack",
}


def register_models() -> None:
    """Replaces models of vLLM with subclasses that accept embeddings when the encoder is not loaded."""
    from vllm import ModelRegistry

    for architecture, model in _MODELS.items():
        ModelRegistry.register_model(architecture, f"cornserve_executors.llm.deepstack:{model}")
