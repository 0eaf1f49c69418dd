"""Encoders: images as embeddings for a language model."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from cornserve.task import Output, Tensor, UnitTask
from cornserve_tasklib.image import Image


class Embeddings(Output):
    embeddings: Tensor = Tensor()
    """[rows, hidden size of the language model]; what the language model has to know besides travels with it."""


class EncoderTask(UnitTask[Image, Embeddings]):
    """The encoder of a multimodal language model, with its projector, apart from the language model [C §5.1].

    Images of several requests, and of several apps with an equal encoder, are encoded together.
    """

    executor = "encoder"

    model_id: str
    """A Hugging Face id, or a directory: of the whole model, of which only the encoder is loaded."""
    modality: Literal["image"] = "image"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """The language model's: to equal answers, where it encodes images itself. Embeddings of another are converted."""
    max_batch_patches: int = Field(default=16384, ge=1)
    """Patches of the images that are encoded together: larger batches waste less of a GPU, and take longer."""

    def components(self, request: Image) -> frozenset[str]:
        return frozenset({f"{self.modality}_encoder"})
