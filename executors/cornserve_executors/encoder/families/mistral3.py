"""Mistral 3 with Pixtral's vision tower. An image keeps its aspect ratio; large images are scaled down."""

from __future__ import annotations

from collections.abc import Sequence

import PIL.Image
import torch
from torch.nn.functional import pad
from transformers.image_utils import ChannelDimension
from transformers.models.pixtral.image_processing_pixtral import get_resize_output_image_size

from cornserve_executors.encoder.families.family import EncoderFamily, EncodingPlan, PreparedImage
from cornserve_executors.media.image_decoding import ImageSize
from cornserve_tasklib.media import IMAGE_SIZE


class Mistral3(EncoderFamily):
    submodules = frozenset({"vision_tower", "multi_modal_projector"})

    @property
    def _token_size(self) -> int:
        """The width and height of the pixels of a row. Mistral's processor passes it to its image processor."""
        return int(self.model.config.vision_config.patch_size * self.model.config.spatial_merge_size)

    def plan(self, size: ImageSize) -> EncodingPlan:
        height, width = get_resize_output_image_size(
            torch.empty(3, size.height, size.width, device="meta"),
            self.processor.size["longest_edge"],
            self._token_size,
            ChannelDimension.FIRST,
        )
        rows = (height // self._token_size) * (width // self._token_size)
        if not rows:
            raise ValueError(f"its aspect ratio is too large: resized to {width}×{height} pixels")
        patches = rows * self.model.config.spatial_merge_size**2
        return EncodingPlan(patches, rows, fields={IMAGE_SIZE: [size.height, size.width]})

    def prepare(self, image: PIL.Image.Image) -> torch.Tensor:
        pixels: torch.Tensor = self.processor(images=[image], patch_size=self._token_size, return_tensors="pt")[
            "pixel_values"
        ]
        return pixels

    def encode(self, images: Sequence[PreparedImage]) -> Sequence[torch.Tensor]:
        sizes = [image.pixels.shape[-2:] for image in images]
        height, width = (max(lengths) for lengths in zip(*sizes, strict=True))
        padded = [
            pad(image.pixels, (0, width - size[1], 0, height - size[0]))
            for image, size in zip(images, sizes, strict=True)
        ]
        rows: Sequence[torch.Tensor] = self.model.get_image_features(
            torch.cat(padded).to(self.model.device, non_blocking=True), torch.tensor(sizes)
        ).pooler_output
        return rows
