"""The sizes of models' components, from their public configurations: what FLOPs and bytes are counted from."""

from __future__ import annotations

from importlib.resources import files
from typing import Annotated, Literal, Self, TypeVar

from pydantic import Field, model_validator

from cornserve_planner.document import Document, DocumentPart
from cornserve_planner.errors import InvalidInputError
from cornserve_planner.model import Name

T = TypeVar("T")

Count = Annotated[int, Field(ge=1)]


class ExpertsShape(DocumentPart):
    """Of each layer, instead of one feed-forward network."""

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
    def _groups_its_queries(self) -> Self:
        if self.heads % self.kv_heads:
            raise ValueError(f"{self.heads} heads cannot share {self.kv_heads} key-value heads evenly")
        return self

    @property
    def attention_parameters(self) -> int:
        """Of all layers."""
        return self.layers * self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)

    @property
    def parameters(self) -> int:
        """In memory, with both embeddings."""
        wide = self.experts.count * self.experts.intermediate if self.experts else self.intermediate
        return self.attention_parameters + self._feed_forward(wide) + 2 * self.vocabulary * self.hidden

    @property
    def active_parameters(self) -> int:
        """That each token is multiplied with in the layers, without embeddings."""
        wide = self.experts.per_token * self.experts.intermediate if self.experts else self.intermediate
        return self.attention_parameters + self._feed_forward(wide)

    @property
    def kv_values_per_token(self) -> int:
        """Keys and values that stay in the cache [H Eq. 1]."""
        return 2 * self.layers * self.kv_heads * self.head_dim

    def _feed_forward(self, wide: int) -> int:
        return 3 * self.layers * self.hidden * wide


class EncoderShape(DocumentPart):
    """A vision or audio tower with its projector.

    Args:
        output: the dimension of what it hands to the language model.
        positions_per_token: positions in the tower for each token that comes out.
        block: positions that attend to each other: an image, a tile, a window; without: all of a medium.
        full_layers: layers in which all of a medium do, despite `block`.
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
        """Of the layers; the projector is a fraction of them."""
        return self.layers * self.hidden * (4 * self.hidden + (3 if self.gated else 2) * self.intermediate)


class DiffusionTransformerShape(DocumentPart):
    """
    Args:
        parameters: in memory; more than a position passes, since streams and modulations have weights of their own.
        cross_attention: to the prompt, rather than attention over prompt and latents together.
        prompt: positions of the prompt, as long as it is padded to.
        pixels_per_position: sides of the square of pixels that becomes one position.
        frames_per_position: of a video.
        passes: through the model in a step: 2 with classifier-free guidance.
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
