"""The plugin that vLLM loads in each of its processes. It must import fast."""

from __future__ import annotations


def register_models() -> None:
    """Replaces models of vLLM with subclasses that accept embeddings when the encoder is not loaded."""
    from vllm import ModelRegistry

    model = "cornserve_executors.llm.deepstack:Qwen3VLWithDeepstack"
    ModelRegistry.register_model("Qwen3VLForConditionalGeneration", model)
