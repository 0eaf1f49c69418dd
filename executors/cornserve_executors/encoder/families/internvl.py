"""InternVL 3 in transformers' format. An image is split into square tiles, plus a thumbnail of the whole image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Self

import PIL.Image
import torch

from cornserve_executors.encoder.families.family import EncoderFamily, EncodingPlan, PreparedImage
from cornserve_executors.media.image_decoding import ImageSize
from cornserve_executors.media.size_limits import tile_arguments
from cornserve_tasklib.media import Media


class InternVL(EncoderFamily):
    submodules = frozenset({"vision_tower", "multi_modal_projector"})
    _cropping: Mapping[str, int] = {"crop_to_patches": True}
    """InternVL's processor passes this to its image processor, and so overrides the image processor's own settings."""

    def for_media(self, media: Media) -> Self:
        limits = tile_arguments(self.processor.min_patches, self.processor.max_patches, media)
        family = copy(self)
        family._cropping = {**self._cropping, **limits}
        return family

    def plan(self, size: ImageSize) -> EncodingPlan:
        tiles = self.processor.get_number_of_image_patches(size.height, size.width, self._cropping)
        config = self.model.config
        image_size, patch_size = config.vision_config.image_size, config.vision_config.patch_size
        patches = tiles * (image_size[0] // patch_size[0]) * (image_size[1] // patch_size[1])
        return EncodingPlan(
            patches, rows=int(patches * config.downsample_ratio**2), fields={"image_num_patches": [tiles]}
        )

    def prepare(self, image: PIL.Image.Image) -> torch.Tensor:
        pixels: torch.Tensor = self.processor(images=[image], return_tensors="pt", **self._cropping)["pixel_values"]
        return pixels

    def encode(self, images: Sequence[PreparedImage]) -> Sequence[torch.Tensor]:
        tiles: torch.Tensor = self.model.get_image_features(self.concatenate_on_device(images)).pooler_output
        rows: Sequence[torch.Tensor] = tiles.flatten(0, 1).split([image.plan.rows for image in images])
        return rows
