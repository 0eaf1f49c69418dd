"""The interface of a family of image encoders, and what it shares with video encoders."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import PIL.Image
import torch

from cornserve_executors.encoder.families.base_family import BaseFamily
from cornserve_executors.media.image_decoding import ImageSize
from cornserve_executors.media.size_limits import refuse_other_sizes
from cornserve_tasklib.media import EncodedMedia, Media, MediaField, PromptUpdates

if TYPE_CHECKING:
    from cornserve_executors.vllm.processed_media import ProcessedMedium


@dataclass(slots=True)
class EncodingPlan:
    """The future result of encoding a medium. Families of transformers compute it from the size of the medium alone."""

    patches: int
    """Patches that the vision tower processes, or positions of the audio tower: a measure of the work."""
    rows: int
    """Number of embeddings, and of placeholder tokens in a prompt."""
    fields: Mapping[str, MediaField]
    """Further inputs of the language model, under vLLM's names."""
    prompt: PromptUpdates | None = None
    """The changes of the prompt, unless the language model derives them from the fields."""
    prepared: ProcessedMedium | None = field(default=None, compare=False)
    """The prepared medium, if planning needs it. Without one, the medium is prepared again."""

    def describe(self, key: str) -> EncodedMedia:
        return EncodedMedia(key=key, rows=self.rows, fields=self.fields, prompt=self.prompt)

    def forget(self) -> None:
        """Frees the memory of the prepared medium."""
        self.prepared = None


@dataclass(frozen=True, slots=True)
class PreparedImage:
    """The input of the vision tower for one image or video."""

    pixels: torch.Tensor
    """A tensor on the host, whose dimensions depend on the family."""
    plan: EncodingPlan


class VisionFamily(BaseFamily):
    """A family whose inputs are pixels."""

    def for_media(self, media: Media) -> Self:
        """Returns the family with the limits on the size of a medium. Raises `UnsupportedOptionError`."""
        refuse_other_sizes(media)
        return self

    @abstractmethod
    def encode(self, images: Sequence[PreparedImage]) -> Sequence[torch.Tensor]:
        """Returns the embeddings of each image or video, equal to those of transformers' `get_image_features` or
        `get_video_features`.

        Blocks, except that a GPU may still be computing when this returns.

        Returns:
            For each image, a tensor of shape `(plan.rows, row_size)` on the model's device, in its dtype.

        Raises:
            torch.OutOfMemoryError: the batch does not fit into the device's memory.
        """

    def concatenate_on_device(self, images: Sequence[PreparedImage]) -> torch.Tensor:
        """Concatenates the pixels of all images along the first dimension, on the model's device."""
        pixels = torch.cat([image.pixels for image in images])
        return pixels.to(self.model.device, non_blocking=True)


class EncoderFamily(VisionFamily):
    """Preprocesses and encodes images for one model, exactly as transformers does."""

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
