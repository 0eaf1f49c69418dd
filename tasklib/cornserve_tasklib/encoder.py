"""Encoders, which convert images to embeddings for a language model."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from cornserve.task import Output, Tensor, UnitTask
from cornserve_tasklib.image import Image


class Embeddings(Output):
    """The embeddings of an image."""

    embeddings: Tensor = Tensor()
    """A tensor of shape [rows, hidden size of the language model]. Its metadata is an `EncodedImage`."""


class EncoderTask(UnitTask[Image, Embeddings]):
    """Runs the encoder and the projector of a multimodal language model, without the language model [C §5.1].

    Images of all requests, and of all apps that have an equal `EncoderTask`, are batched together.
    """

    executor = "encoder"

    model_id: str
    """A Hugging Face id, or the path of a model directory. Only the encoder's weights are loaded."""
    modality: Literal["image"] = "image"
    """The type of media that is encoded."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """The dtype of weights and embeddings. Choose the language model's to get the same responses as without a separate
    encoder. The language model converts embeddings of another dtype."""
    max_batch_patches: int = Field(default=16384, ge=1)
    """The maximum number of patches per batch. Larger batches use a GPU better, but take longer."""

    def components(self, request: Image) -> frozenset[str]:
        return frozenset({f"{self.modality}_encoder"})
