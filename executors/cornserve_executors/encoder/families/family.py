"""The interface of an encoder family."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import PIL.Image
import torch

from cornserve_executors.media.image_decoding import ImageSize


@dataclass(frozen=True, slots=True)
class EncodingPlan:
    """The result of encoding an image, computed from its size alone."""

    patches: int
    """Patches that the vision tower processes: a measure of the work."""
    rows: int
    """Number of embeddings, and of placeholder tokens in a prompt."""
    fields: dict[str, list[int]]
    """Further inputs of the language model, under vLLM's names."""


@dataclass(frozen=True, slots=True)
class PreparedImage:
    """The input of the vision tower for one image."""

    pixels: torch.Tensor
    """A tensor on the host. Its first dimension counts patches or tiles, depending on the family."""
    plan: EncodingPlan


class EncoderFamily(ABC):
    """Preprocesses and encodes images for one model, exactly as transformers does.

    Args:
        model: a transformers model that contains only `submodules`.
        processor: its image processor.
    """

    submodules: ClassVar[frozenset[str]]
    """transformers' names of the vision tower and the projector."""

    def __init__(self, model: Any, processor: Any) -> None:
        self.model = model
        self.processor = processor

    @property
    def hidden_size(self) -> int:
        """The hidden size of the language model."""
        return int(self.model.config.text_config.hidden_size)

    @abstractmethod
    def plan(self, size: ImageSize) -> EncodingPlan:
        """Returns the plan for an image of this size.

        Raises:
            ValueError: the model does not accept images of this shape.
        """

    @abstractmethod
    def prepare(self, image: PIL.Image.Image) -> torch.Tensor:
        """Returns the pixels that the model's processor produces, on the host. Blocks. Called in several threads.

        Args:
            image: an upright RGB image.
        """

    @abstractmethod
    def encode(self, images: Sequence[PreparedImage]) -> Sequence[torch.Tensor]:
        """Returns the embeddings of each image, equal to those of transformers' `get_image_features`.

        Blocks, except that a GPU may still be computing when this returns.

        Returns:
            For each image, a tensor of shape `(plan.rows, hidden_size)` on the model's device, in its dtype.

        Raises:
            torch.OutOfMemoryError: the batch does not fit into the device's memory.
        """

    def concatenate_on_device(self, images: Sequence[PreparedImage]) -> torch.Tensor:
        """Concatenates the pixels of all images along the first dimension, on the model's device."""
        pixels = torch.cat([image.pixels for image in images])
        return pixels.to(self.model.device, non_blocking=True)
