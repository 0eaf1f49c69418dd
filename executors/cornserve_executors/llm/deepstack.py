"""Models with DeepStack for received embeddings, as a plugin of vLLM.

Qwen3-VL and Qwen3-Omni add further levels of the vision tower to the first layers of the language model (DeepStack).
Without the tower, vLLM 0.32 disables DeepStack. When it receives embeddings, which contain all levels, Qwen3-VL fails,
and Qwen3-Omni ignores all levels but the first.
"""

from __future__ import annotations

from typing import Any

import torch
from vllm.config import VllmConfig
from vllm.model_executor.models.qwen3_omni_moe_thinker import Qwen3OmniMoeThinkerForConditionalGeneration
from vllm.model_executor.models.qwen3_vl import Qwen3VLForConditionalGeneration
from vllm.model_executor.models.qwen3_vl_moe import Qwen3VLMoeForConditionalGeneration

from cornserve_executors.llm.hidden_states import KeepsHiddenStates


class DeepstackWithoutTower:
    """A base of models that use DeepStack even if the vision tower is not loaded."""

    config: Any
    use_deepstack: bool
    visual_dim: int

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)  # type: ignore[call-arg]
        if self.use_deepstack:
            return
        self.use_deepstack = True
        self.deepstack_num_level = len(self.config.vision_config.deepstack_visual_indexes)
        self.multiscale_dim = self.visual_dim * self.deepstack_num_level
        shape = vllm_config.scheduler_config.max_num_batched_tokens, self.config.text_config.hidden_size
        self.deepstack_input_embeds = [torch.zeros(shape) for _ in range(self.deepstack_num_level)]
        self.deepstack_input_embeds_num_tokens = 0


class Qwen3VLWithDeepstack(DeepstackWithoutTower, Qwen3VLForConditionalGeneration):  # type: ignore[misc]
    """vLLM's Qwen3-VL."""


class Qwen3VLMoeWithDeepstack(DeepstackWithoutTower, Qwen3VLMoeForConditionalGeneration):  # type: ignore[misc]
    """vLLM's Qwen3-VL with experts."""


class Qwen3OmniWithDeepstack(
    KeepsHiddenStates,
    DeepstackWithoutTower,
    Qwen3OmniMoeThinkerForConditionalGeneration,  # type: ignore[misc]
):
    """vLLM's thinker of Qwen3-Omni, whose states a talker can read."""
