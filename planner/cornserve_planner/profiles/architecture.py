"""Sizes of model components, from their public configurations. FLOPs and bytes are counted from them."""

from __future__ import annotations

from importlib.resources import files
from typing import Annotated, Literal, Self, TypeVar

from pydantic import Field, model_validator

from cornserve_planner.errors import InvalidInputError
from cornserve_planner.files.document import Document, DocumentPart
from cornserve_planner.model.document import Name

T = TypeVar("T")

Count = Annotated[int, Field(ge=1)]


class ExpertsShape(DocumentPart):
    """The experts of each layer, which replace the feed-forward network."""

    count: Count
    per_token: Count
    intermediate: Count


class DecoderShape(DocumentPart):
    """An autoregressive transformer with grouped-query attention and a gated feed-forward network."""

    kind: Literal["decoder"]
    layers: Count
    hidden: Count
    heads: Count
    kv_heads: Count
    head_dim: Count
    intermediate: Count
    vocabulary: Count
    experts: ExpertsShape | None = None

    @model_validator(mode="after")
    def _check_query_groups(self) -> Self:
        if self.heads % self.kv_heads:
            raise ValueError(f"{self.heads} heads cannot share {self.kv_heads} key-value heads evenly")
        return self

    @property
    def attention_parameters(self) -> int:
        """Parameters of the attention in all layers."""
        return self.layers * self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)

    @property
    def parameters(self) -> int:
        """All parameters in memory, including both embeddings."""
        wide = self.experts.count * self.experts.intermediate if self.experts else self.intermediate
        return self.attention_parameters + self._feed_forward(wide) + 2 * self.vocabulary * self.hidden

    @property
    def active_parameters(self) -> int:
        """Parameters of the layers that each token is multiplied with, without embeddings."""
        wide = self.experts.per_token * self.experts.intermediate if self.experts else self.intermediate
        return self.attention_parameters + self._feed_forward(wide)

    @property
    def kv_values_per_token(self) -> int:
        """Keys and values in the cache for each token [H Eq. 1]."""
        return 2 * self.layers * self.kv_heads * self.head_dim

    def _feed_forward(self, wide: int) -> int:
        return 3 * self.layers * self.hidden * wide


class EncoderShape(DocumentPart):
    """A vision or audio tower with its projector.

    Args:
        output: the dimension of its output, which is the input of the language model.
        positions_per_token: positions in the tower for each output token.
        block: positions that attend to each other: an image, a tile, or a window; None for the whole medium.
        full_layers: layers in which the whole medium attends to itself, despite `block`.
    """

    kind: Literal["encoder"]
    layers: Count
    hidden: Count
    heads: Count
    intermediate: Count
    gated: bool = False
    output: Count
    positions_per_token: Annotated[float, Field(gt=0)]
    block: Count | None = None
    full_layers: Annotated[int, Field(ge=0)] = 0

    @property
    def parameters(self) -> int:
        """Parameters of the layers, without the projector, which is much smaller."""
        return self.layers * self.hidden * (4 * self.hidden + (3 if self.gated else 2) * self.intermediate)


class DiffusionTransformerShape(DocumentPart):
    """
    Args:
        parameters: all parameters in memory. Each position passes fewer of them, because streams and modulations have
            separate weights.
        cross_attention: whether latents attend to the prompt through cross-attention instead of joint attention.
        prompt: padded length of the prompt, in positions.
        pixels_per_position: side length of the square of pixels that forms one position.
        frames_per_position: frames of a video that form one position.
        passes: passes through the model in each step: 2 with classifier-free guidance.
    """

    kind: Literal["diffusion"]
    layers: Count
    hidden: Count
    intermediate: Count
    parameters: Annotated[float, Field(gt=0)]
    cross_attention: bool = False
    prompt: Count
    pixels_per_position: Count
    frames_per_position: Count = 1
    passes: Count = 1

    def positions(self, width: int, height: int, frames: int = 1) -> int:
        area = (width // self.pixels_per_position) * (height // self.pixels_per_position)
        return area * (1 + (frames - 1) // self.frames_per_position)


ComponentShape = Annotated[DecoderShape | EncoderShape | DiffusionTransformerShape, Field(discriminator="kind")]


class Architecture(DocumentPart):
    source: Annotated[str, Field(min_length=1)]
    components: dict[Name, ComponentShape] = Field(min_length=1)

    def decoder(self, name: str = "llm") -> DecoderShape:
        return self._get(name, DecoderShape)

    def encoder(self, name: str = "vision_encoder") -> EncoderShape:
        return self._get(name, EncoderShape)

    def diffusion(self, name: str = "dit") -> DiffusionTransformerShape:
        return self._get(name, DiffusionTransformerShape)

    def _get(self, name: str, kind: type[T]) -> T:
        found = self.components.get(name)
        if not isinstance(found, kind):
            raise InvalidInputError(
                "component", f"{name!r} is not a {kind.__name__}; the components are {', '.join(self.components)}"
            )
        return found


class Architectures(Document):
    """`format: cornserve-planner/architectures`."""

    kind = "architectures"

    models: Annotated[dict[Name, Architecture], Field(min_length=1)]

    @classmethod
    def shipped(cls) -> Self:
        return cls.read_shipped(files("cornserve_planner.profiles") / "data/architectures.yaml")

    def __getitem__(self, name: str) -> Architecture:
        if name not in self.models:
            raise InvalidInputError("model", f"unknown model {name!r}: use one of {', '.join(self.models)}")
        return self.models[name]
