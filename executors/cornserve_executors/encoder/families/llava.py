"""LLaVA-1.5. An image is resized and cropped to one square, so each image has the same number of patches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import PIL.Image
import torch

from cornserve_executors.base import ExecutorStartError
from cornserve_executors.encoder.families.family import EncoderFamily, EncodingPlan, PreparedImage
from cornserve_executors.media.image_decoding import ImageSize

_TOWER = "clip_vision_model"


class Llava(EncoderFamily):
    submodules = frozenset({"vision_tower", "multi_modal_projector"})

    def __init__(self, model: Any, processor: Any) -> None:
        super().__init__(model, processor)
        tower = model.config.vision_config.model_type
        if tower != _TOWER:  # Such models are not LLaVA-1.5. Example: Pixtral.
            raise ExecutorStartError(f"unsupported vision tower {tower!r} of a LLaVA model: it must be {_TOWER}")

    def plan(self, size: ImageSize) -> EncodingPlan:
        config = self.model.config
        patches = (config.vision_config.image_size // config.vision_config.patch_size) ** 2
        keeps_class_token = config.vision_feature_select_strategy == "full"
        return EncodingPlan(patches, rows=patches + keeps_class_token, fields={})

    def prepare(self, image: PIL.Image.Image) -> torch.Tensor:
        pixels: torch.Tensor = self.processor(images=[image], return_tensors="pt")["pixel_values"]
        return pixels

    def encode(self, images: Sequence[PreparedImage]) -> Sequence[torch.Tensor]:
        rows: Sequence[torch.Tensor] = self.model.get_image_features(self.concatenate_on_device(images)).pooler_output
        return rows
