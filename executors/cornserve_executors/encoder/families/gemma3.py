"""Gemma 3. An image is resized to one square, without regard to its aspect ratio."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import PIL.Image
import torch

from cornserve_executors.base import ExecutorStartError
from cornserve_executors.encoder.families.family import EncoderFamily, EncodingPlan, PreparedImage
from cornserve_executors.media.image_decoding import ImageSize
from cornserve_tasklib.media import IMAGE_SIZE


class Gemma3(EncoderFamily):
    submodules = frozenset({"vision_tower", "multi_modal_projector"})

    def __init__(self, model: Any, processor: Any) -> None:
        super().__init__(model, processor)
        if processor.do_pan_and_scan:
            raise ExecutorStartError("do_pan_and_scan is not supported: disable it in the model's image processor")

    def plan(self, size: ImageSize) -> EncodingPlan:
        config = self.model.config
        patches = (config.vision_config.image_size // config.vision_config.patch_size) ** 2
        fields = {IMAGE_SIZE: [size.height, size.width]}
        return EncodingPlan(patches, rows=config.mm_tokens_per_image, fields=fields)

    def prepare(self, image: PIL.Image.Image) -> torch.Tensor:
        pixels: torch.Tensor = self.processor(images=[image], return_tensors="pt")["pixel_values"]
        return pixels

    def encode(self, images: Sequence[PreparedImage]) -> Sequence[torch.Tensor]:
        rows: Sequence[torch.Tensor] = self.model.get_image_features(self.concatenate_on_device(images)).pooler_output
        return rows
