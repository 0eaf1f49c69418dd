"""What the encoder has to know of a family of multimodal models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import PIL.Image
import torch

from cornserve_executors.media.images import ImageSize


@dataclass(frozen=True, slots=True)
class EncodingPlan:
    """What an image will become."""

    patches: int
    """What the vision tower sees of it, after preprocessing: how much work it is."""
    rows: int
    """Embeddings, and so places that it takes in a prompt."""
    fields: dict[str, list[int]]
    """What the language model has to know besides, by vLLM's names."""


@dataclass(frozen=True, slots=True)
class PreparedImage:
    """An image as the vision tower takes it."""

    pixels: torch.Tensor
    """On the host; patches or tiles, as the family has it, in the first dimension."""
    plan: EncodingPlan


class EncoderFamily(ABC):
    """Prepares and encodes images for one model, just as transformers does.

    Args:
        model: transformers' model, of which nothing but `submodules` is there.
        processor: transformers' image processor.
    """

    submodules: ClassVar[frozenset[str]]
    """The vision tower and the projector, as transformers' model names them."""

    def __init__(self, model: Any, processor: Any) -> None:
        self.model = model
        self.processor = processor

    @property
    def hidden_size(self) -> int:
        """Of the language model."""
        return int(self.model.config.text_config.hidden_size)

    @abstractmethod
    def plan(self, size: ImageSize) -> EncodingPlan:
        """What an image of so many pixels becomes.

        Raises:
            ValueError: the model takes no image of this shape.
        """

    @abstractmethod
    def prepare(self, image: PIL.Image.Image) -> torch.Tensor:
        """Its pixels, as the model's own processor makes them, on the host. Blocks; several threads do this at once.

        Args:
            image: in RGB, upright.
        """

    @abstractmethod
    def encode(self, images: Sequence[PreparedImage]) -> Sequence[torch.Tensor]:
        """The embeddings of each, as transformers' `get_image_features` makes them. Blocks; a GPU may still be
        computing when this returns.

        Returns:
            for each image a tensor of shape `(plan.rows, hidden_size)`, on the model's device, in its dtype.

        Raises:
            torch.OutOfMemoryError: the device has no memory for the batch.
        """

    def on_device(self, images: Sequence[PreparedImage]) -> torch.Tensor:
        """The pixels of all of them, one after the other in the first dimension."""
        pixels = torch.cat([image.pixels for image in images])
        return pixels.to(self.model.device, non_blocking=True)
