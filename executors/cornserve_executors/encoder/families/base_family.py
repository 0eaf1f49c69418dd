"""The part of an encoder family that does not depend on the modality."""

from __future__ import annotations

from abc import ABC
from typing import Any, ClassVar

import torch
from transformers import AutoModel


class BaseFamily(ABC):
    """The encoder of one model, and its processor.

    Args:
        model: the transformers model of `build`, without the modules that no encoder needs.
        processor: its image processor, video processor or feature extractor.
    """

    submodules: ClassVar[frozenset[str]]
    """transformers' names of the tower and the projector."""

    @classmethod
    def build(cls, config: Any, dtype: torch.dtype) -> Any:
        """Returns the transformers model that contains `submodules`. All families of a model type build the same.

        Args:
            config: the configuration of the checkpoint.
        """
        return AutoModel.from_config(config, dtype=dtype)

    def __init__(self, model: Any, processor: Any) -> None:
        self.model = model
        self.processor = processor

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the weights and the embeddings."""
        dtype: torch.dtype = self.model.dtype
        return dtype

    @property
    def row_size(self) -> int:
        """The length of an embedding: the hidden size of the language model in most families."""
        return int(self.model.config.text_config.hidden_size)
