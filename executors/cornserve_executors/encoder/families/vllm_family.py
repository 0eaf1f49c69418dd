"""vLLM's encoders, for all models without a family."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from cornserve_executors.encoder.families.family import EncodingPlan
from cornserve_tasklib.media import Modality

if TYPE_CHECKING:
    from cornserve_executors.encoder.vllm_tower import VllmTower
    from cornserve_executors.vllm.processed_media import ProcessedMedium


@dataclass(frozen=True, slots=True)
class PreparedItem:
    """The input of vLLM's encoder for one medium."""

    processed: ProcessedMedium
    plan: EncodingPlan


@dataclass(frozen=True, slots=True)
class VllmFamily:
    """vLLM's encoder of one modality."""

    tower: VllmTower
    modality: Modality

    @property
    def dtype(self) -> torch.dtype:
        return self.tower.dtype

    @property
    def row_size(self) -> int:
        return self.tower.row_size(self.modality)

    def encode(self, media: Sequence[PreparedItem]) -> Sequence[torch.Tensor]:
        """Returns the embeddings of each medium. Media of other modalities of the same tower can be among them."""
        return self.tower.encode([medium.processed for medium in media])
