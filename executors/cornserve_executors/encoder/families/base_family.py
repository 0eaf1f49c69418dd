"""The part of an encoder family that does not depend on the modality."""

from __future__ import annotations

from abc import ABC
from typing import Any, ClassVar


class BaseFamily(ABC):
    """The encoder of one model, and its processor.

    Args:
        model: a transformers model that contains only `submodules`.
        processor: its image processor or feature extractor.
    """

    submodules: ClassVar[frozenset[str]]
    """transformers' names of the tower and the projector."""

    def __init__(self, model: Any, processor: Any) -> None:
        self.model = model
        self.processor = processor

    @property
    def row_size(self) -> int:
        """The length of an embedding: the hidden size of the language model in most families."""
        return int(self.model.config.text_config.hidden_size)
