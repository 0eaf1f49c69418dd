"""LLaVA-OneVision for videos of different lengths, as a plugin of vLLM.

In a batch of such videos, vLLM 0.32 returns embeddings with a dimension too many, which it then asserts away: the
engine dies.
"""

from __future__ import annotations

from typing import Any

import torch
from vllm.model_executor.models.llava_onevision import LlavaOnevisionForConditionalGeneration


class LlavaOnevisionWithVideos(LlavaOnevisionForConditionalGeneration):  # type: ignore[misc]
    """vLLM's model, with embeddings of two dimensions for each video of a batch."""

    def _process_video_pixels(self, inputs: Any) -> list[torch.Tensor]:
        return [rows.flatten(0, -2) for rows in super()._process_video_pixels(inputs)]
