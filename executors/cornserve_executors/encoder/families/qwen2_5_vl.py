"""Qwen2.5-VL. An image keeps its aspect ratio; the number of patches depends on its size."""

from __future__ import annotations

from collections.abc import Sequence

import PIL.Image
import torch
from transformers.models.qwen2_vl.image_processing_qwen2_vl import smart_resize

from cornserve_executors.encoder.families.family import EncoderFamily, EncodingPlan, PreparedImage
from cornserve_executors.media.image_decoding import ImageSize


class Qwen25VL(EncoderFamily):
    submodules = frozenset({"visual"})  # Includes the projector, Qwen's merger.

    def plan(self, size: ImageSize) -> EncodingPlan:
        patch, merge = self.processor.patch_size, self.processor.merge_size
        height, width = smart_resize(
            size.height,
            size.width,
            factor=patch * merge,
            min_pixels=self.processor.size["shortest_edge"],
            max_pixels=self.processor.size["longest_edge"],
        )
        grid = [1, height // patch, width // patch]
        patches = grid[1] * grid[2]
        return EncodingPlan(patches, rows=patches // merge**2, fields={"image_grid_thw": grid})

    def prepare(self, image: PIL.Image.Image) -> torch.Tensor:
        pixels: torch.Tensor = self.processor(images=[image], return_tensors="pt")["pixel_values"]
        return pixels

    def encode(self, images: Sequence[PreparedImage]) -> Sequence[torch.Tensor]:
        grids = torch.tensor([image.plan.fields["image_grid_thw"] for image in images], device=self.model.device)
        rows: Sequence[torch.Tensor] = self.model.get_image_features(
            self.concatenate_on_device(images), grids
        ).pooler_output
        return rows
