"""Qwen2.5-Omni as a plugin of vLLM."""

from __future__ import annotations

from vllm.model_executor.models.qwen2_5_omni_thinker import Qwen2_5OmniThinkerForConditionalGeneration

from cornserve_executors.llm.hidden_states import KeepsHiddenStates


class Qwen25OmniWithStates(KeepsHiddenStates, Qwen2_5OmniThinkerForConditionalGeneration):  # type: ignore[misc]
    """vLLM's thinker of Qwen2.5-Omni, whose states a talker can read."""
