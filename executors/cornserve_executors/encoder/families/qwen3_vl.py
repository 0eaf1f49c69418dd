"""Qwen3-VL. Further levels of the vision tower are added to the first layers of the language model (DeepStack)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from cornserve_executors.encoder.families.family import PreparedImage
from cornserve_executors.encoder.families.qwen2_5_vl import Qwen25VL


class Qwen3VL(Qwen25VL):
    @property
    def row_size(self) -> int:
        return super().row_size * (1 + len(self.model.config.vision_config.deepstack_visual_indexes))

    def encode(self, images: Sequence[PreparedImage]) -> Sequence[torch.Tensor]:
        grids = torch.tensor([image.plan.fields["image_grid_thw"] for image in images], device=self.model.device)
        output = self.model.get_image_features(self.concatenate_on_device(images), grids)
        levels = [output.pooler_output, *output.deepstack_features]
        return [torch.cat(rows, dim=-1) for rows in zip(*levels, strict=True)]
