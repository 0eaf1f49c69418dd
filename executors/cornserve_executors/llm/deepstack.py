"""Qwen3-VL for received embeddings, as a plugin of vLLM.

Qwen3-VL adds further levels of the vision tower to the first layers of the language model (DeepStack). Without the
tower, vLLM 0.32 disables DeepStack, and fails when it receives embeddings, which contain all levels.
"""

from __future__ import annotations

import torch
from vllm.config import VllmConfig
from vllm.model_executor.models.qwen3_vl import Qwen3VLForConditionalGeneration


class Qwen3VLWithDeepstack(Qwen3VLForConditionalGeneration):  # type: ignore[misc]
    """vLLM's model, with DeepStack even if the vision tower is not loaded."""

    use_deepstack: bool

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "model") -> None:
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        if self.use_deepstack:
            return
        self.use_deepstack = True
        self.deepstack_num_level = len(self.config.vision_config.deepstack_visual_indexes)
        self.multiscale_dim = self.visual_dim * self.deepstack_num_level
        shape = vllm_config.scheduler_config.max_num_batched_tokens, self.config.text_config.hidden_size
        self.deepstack_input_embeds = [torch.zeros(shape) for _ in range(self.deepstack_num_level)]
        self.deepstack_input_embeds_num_tokens = 0
