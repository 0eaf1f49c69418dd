"""Embedding models, which convert texts, and for some models media, to vectors."""

from __future__ import annotations

from array import array
from base64 import b64decode
from typing import Annotated

from annotated_types import Ge, Le, MaxLen, MinLen
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationInfo, field_validator

from cornserve.task import Output, Task, UnitTask
from cornserve_policies.input_size import InputSize
from cornserve_tasklib.chat_request import ChatRequest
from cornserve_tasklib.engine import EngineOptions, EngineSettings
from cornserve_tasklib.messages import ChatMessage
from cornserve_tasklib.sampling_fields import STRICT, Tokens, estimate_tokens

MAX_INPUTS = 2048
"""Maximum number of inputs of a request."""

Text = Annotated[str, MinLen(1)]

Inputs = Annotated[
    Annotated[Annotated[list[Text], MinLen(1), MaxLen(MAX_INPUTS)], Tag("input:texts")]
    | Annotated[Annotated[list[Tokens], MinLen(1), MaxLen(MAX_INPUTS)], Tag("input:tokens")],
    Discriminator(lambda inputs: "input:texts" if not inputs or isinstance(inputs[0], str) else "input:tokens"),
]


class EmbeddingRequest(BaseModel):
    """Texts to embed, or a chat, which may contain media."""

    model_config = STRICT | ConfigDict(frozen=True)

    input: Inputs = Field(default_factory=list, exclude_if=lambda inputs: not inputs)
    """Texts, or lists of token ids. Empty if there are messages."""
    messages: Annotated[
        Annotated[list[ChatMessage], MinLen(1), MaxLen(4096)] | None,
        Field(validate_default=True, exclude_if=lambda messages: not messages),
    ] = None
    """A chat, which becomes one vector, in place of `input`. The model's chat template renders it."""
    dimensions: Annotated[int, Ge(1), Le(1 << 20)] | None = None
    """The length of the vectors, for models that support shorter ones. Defaults to the model's length."""

    @field_validator("messages", mode="after")
    @classmethod
    def _check_inputs(cls, messages: list[ChatMessage] | None, info: ValidationInfo) -> list[ChatMessage] | None:
        if (messages is None) == (not info.data.get("input", True)):
            raise ValueError("give either input or messages")
        return messages

    @property
    def size(self) -> InputSize:
        """The size, of which the tokens of texts are estimated."""
        if self.messages is not None:
            return ChatRequest(messages=self.messages).size
        return InputSize(text=sum(map(estimate_tokens, self.input)), items=len(self.input))


class EmbeddingResponse(Output):
    """The vectors of an `EmbeddingRequest`."""

    embeddings: list[str]
    """The vector of each input, in order: base64 of little-endian 32-bit floats. JSON numbers would be three times as
    long, and slow to parse."""
    prompt_tokens: int
    """The number of tokens of all inputs."""

    @property
    def vectors(self) -> list[array[float]]:
        """The decoded vectors."""
        return [decode_vector(embedding) for embedding in self.embeddings]


def decode_vector(embedding: str) -> array[float]:
    """Decodes an element of `EmbeddingResponse.embeddings`."""
    return array("f", b64decode(embedding))


class EmbeddingTask(EngineSettings, UnitTask[EmbeddingRequest, EmbeddingResponse]):
    """Runs an embedding model on vLLM."""

    executor = "embedding"

    def size(self, request: EmbeddingRequest) -> InputSize:
        return request.size

    def post_init(self) -> None:
        if self.options.lora_modules:
            raise ValueError("lora_modules: an embedding model has no LoRA adapters: remove the option")


class Embed(Task[EmbeddingRequest, EmbeddingResponse]):
    """Embeds texts with one model."""

    model_id: str
    """A Hugging Face id, or the path of a model directory."""
    revision: str | None = None
    """See `EmbeddingTask.revision`."""
    options: EngineOptions = EngineOptions()
    """Options of the engine."""

    def post_init(self) -> None:
        self.embedding = EmbeddingTask(model_id=self.model_id, revision=self.revision, options=self.options)

    def invoke(self, request: EmbeddingRequest) -> EmbeddingResponse:
        return self.embedding.invoke(request)
