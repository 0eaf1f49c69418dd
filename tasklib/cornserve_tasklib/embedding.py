"""Embeddings: texts as vectors."""

from __future__ import annotations

from array import array
from base64 import b64decode
from typing import Annotated

from annotated_types import Ge, Le, MaxLen, MinLen
from pydantic import BaseModel, ConfigDict, Discriminator, Tag

from cornserve.task import Output, Task, UnitTask
from cornserve_tasklib.engine import EngineSettings
from cornserve_tasklib.sampling import STRICT, Tokens

MAX_INPUTS = 2048

Text = Annotated[str, MinLen(1)]

Inputs = Annotated[
    Annotated[Annotated[list[Text], MinLen(1), MaxLen(MAX_INPUTS)], Tag("input:texts")]
    | Annotated[Annotated[list[Tokens], MinLen(1), MaxLen(MAX_INPUTS)], Tag("input:tokens")],
    Discriminator(lambda inputs: "input:texts" if not inputs or isinstance(inputs[0], str) else "input:tokens"),
]


class EmbeddingRequest(BaseModel):
    model_config = STRICT | ConfigDict(frozen=True)

    input: Inputs
    """Texts, or the ids of their tokens."""
    dimensions: Annotated[int, Ge(1), Le(1 << 20)] | None = None
    """Of each vector, where the model allows fewer than it has."""


class EmbeddingResponse(Output):
    embeddings: list[str]
    """The vector of each input, in their order: its 32-bit floats, little-endian, in base64. As JSON's numbers they
    would be three times as long, and slow to read."""
    prompt_tokens: int

    @property
    def vectors(self) -> list[array[float]]:
        return [decode_vector(embedding) for embedding in self.embeddings]


def decode_vector(embedding: str) -> array[float]:
    return array("f", b64decode(embedding))


class EmbeddingTask(EngineSettings, UnitTask[EmbeddingRequest, EmbeddingResponse]):
    """A model that turns texts into vectors, on vLLM."""

    executor = "embedding"


class Embed(Task[EmbeddingRequest, EmbeddingResponse]):
    """The embeddings of one model."""

    model_id: str

    def post_init(self) -> None:
        self.embedding = EmbeddingTask(model_id=self.model_id)

    def invoke(self, request: EmbeddingRequest) -> EmbeddingResponse:
        return self.embedding.invoke(request)
