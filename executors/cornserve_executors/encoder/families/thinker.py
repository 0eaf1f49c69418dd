"""The part of Qwen's Omni models that reads media and writes text, the thinker. Other parts speak."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoModelForImageTextToText

from cornserve_executors.encoder.families.base_family import BaseFamily


class ThinkerFamily(BaseFamily):
    """A family whose towers belong to the thinker."""

    @classmethod
    def build(cls, config: Any, dtype: torch.dtype) -> Any:
        return AutoModelForImageTextToText.from_config(config.thinker_config, dtype=dtype)
