"""LLaVA-OneVision. An image is split into square tiles, plus a thumbnail; rows of the padding are dropped."""

from __future__ import annotations

from collections.abc import Sequence

import PIL.Image
import torch
from transformers.models.llava_onevision.modeling_llava_onevision import image_size_to_num_patches

from cornserve_executors.encoder.families.family import EncoderFamily, EncodingPlan, PreparedImage
from cornserve_executors.encoder.families.video_family import VideoEncoderFamily, VideoFrames
from cornserve_executors.media.image_decoding import ImageSize
from cornserve_executors.media.video_sampling import FrameSampling


class LlavaOnevision(EncoderFamily):
    submodules = frozenset({"vision_tower", "multi_modal_projector"})

    def plan(self, size: ImageSize) -> EncodingPlan:
        config = self.model.config
        shape = [size.height, size.width]
        tiles = image_size_to_num_patches(shape, config.image_grid_pinpoints, config.vision_config.image_size)
        patches = (config.vision_config.image_size // config.vision_config.patch_size) ** 2
        # transformers' own code packs tensors without contents, and so counts the rows.
        features = torch.empty(tiles, patches, 1, device="meta")
        newline = torch.empty(1, device="meta")
        (rows,), _ = self.model.pack_image_features([features], [shape], newline, config.vision_aspect_ratio)
        return EncodingPlan(tiles * patches, rows=len(rows), fields={"image_sizes": shape})

    def prepare(self, image: PIL.Image.Image) -> torch.Tensor:
        pixels: torch.Tensor = self.processor(images=[image], return_tensors="pt")["pixel_values"]
        return pixels[0]

    def encode(self, images: Sequence[PreparedImage]) -> Sequence[torch.Tensor]:
        sizes = torch.tensor([image.plan.fields["image_sizes"] for image in images])
        rows: Sequence[torch.Tensor] = self.model.get_image_features(
            self.concatenate_on_device(images), sizes
        ).pooler_output
        return rows


class LlavaOnevisionVideos(VideoEncoderFamily):
    """A frame is one tile, whose rows are pooled. A row follows after all frames."""

    submodules = LlavaOnevision.submodules
    sampling = FrameSampling("opencv")

    def plan(self, video: VideoFrames) -> EncodingPlan:
        config = self.model.config.vision_config
        frames, patches = len(video.indices), (config.image_size // config.patch_size) ** 2
        pooled = self.model.apply_pooling(torch.empty(1, patches, 1, device="meta"))
        return EncodingPlan(frames * patches, rows=frames * pooled.shape[1] + 1, fields={})

    def split(self, video: PreparedImage, max_patches: int) -> Sequence[PreparedImage]:
        frames = video.pixels.shape[1]
        patches, rows = video.plan.patches // frames, (video.plan.rows - 1) // frames
        parts = video.pixels.split(max(1, max_patches // patches), dim=1)
        return [
            PreparedImage(pixels, EncodingPlan(pixels.shape[1] * patches, pixels.shape[1] * rows + 1, fields={}))
            for pixels in parts
        ]

    def join(self, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """Drops the row that follows after all frames of each part but the last."""
        return torch.cat([*(rows[:-1] for rows in parts[:-1]), parts[-1]])

    def encode(self, images: Sequence[PreparedImage]) -> Sequence[torch.Tensor]:
        return [self._encode_video(video) for video in images]

    def _encode_video(self, video: PreparedImage) -> torch.Tensor:
        rows: torch.Tensor = self.model.get_video_features(self.concatenate_on_device([video])).pooler_output[0]
        return rows
