"""Messages of a chat."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, Self

from annotated_types import MaxLen, MinLen
from pydantic import (
    BaseModel,
    BeforeValidator,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    ValidationInfo,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema

from cornserve.task.references import ReferenceDecoder
from cornserve_tasklib.image import ImagePart
from cornserve_tasklib.sampling_fields import STRICT

FunctionName = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]

AlwaysEmpty = Annotated[list[Any], MaxLen(0)] | None
"""A field of OpenAI's responses that clients send back. Cornserve's responses leave it empty."""


class TextPart(BaseModel):
    """A text in a message."""

    model_config = STRICT

    type: Literal["text"]
    text: str


class ImageUrl(BaseModel):
    """The URL of an image."""

    model_config = STRICT

    url: str
    """A `data:image/…;base64,…` URL, or the address of the image."""
    detail: Literal["auto", "high"] = "auto"
    """Has no effect: the model's processor determines the resolution, which corresponds to "high"."""


class ImageUrlPart(BaseModel):
    """An image that a client sends. The gateway replaces it with an `ImagePart`."""

    model_config = STRICT

    type: Literal["image_url"]
    image_url: ImageUrl


def _reject_image_from_client(part: object, info: ValidationInfo) -> object:
    """Rejects an `ImagePart` that comes from a client. Only the gateway creates them."""
    if isinstance(part, dict) and part.get("type") == "image" and not isinstance(info.context, ReferenceDecoder):
        raise ValueError("invalid part type 'image': send images as 'image_url'")
    return part


def _kind(part: object) -> str | None:
    kind = part.get("type") if isinstance(part, dict) else getattr(part, "type", None)
    return f"part:{kind}" if kind in ("text", "image_url", "image") else None


ContentPart = Annotated[
    Annotated[TextPart, Tag("part:text")]
    | Annotated[ImageUrlPart, Tag("part:image_url")]
    | Annotated[SkipJsonSchema[ImagePart], Tag("part:image")],
    Discriminator(_kind, custom_error_type="part", custom_error_message="invalid part type: use 'text' or 'image_url'"),
    BeforeValidator(_reject_image_from_client),
]


class FunctionCall(BaseModel):
    """The function and the arguments of a tool call."""

    model_config = STRICT

    name: FunctionName
    """The name of the function."""
    arguments: str
    """The arguments that the model generated, as JSON."""


class ToolCall(BaseModel):
    """A function call that the model requests."""

    model_config = STRICT

    id: str
    """Identifies the call in the tool message with its result."""
    type: Literal["function"]
    function: FunctionCall


class ChatMessage(BaseModel):
    """A message of a chat."""

    model_config = STRICT

    role: Literal["system", "developer", "user", "assistant", "tool"]
    """The author of the message."""
    content: (
        Annotated[
            Annotated[str, Tag("content:text")]
            | Annotated[list[ContentPart], Field(fail_fast=True), Tag("content:parts")],
            Discriminator(lambda content: "content:text" if isinstance(content, str) else "content:parts"),
        ]
        | None
    ) = None
    """A text, or a list of parts. Only user messages may contain images."""
    name: str | None = None
    """The name of the author."""
    tool_calls: Annotated[list[ToolCall], MinLen(1), MaxLen(128)] | None = None
    """The function calls that an assistant message requests."""
    tool_call_id: str | None = None
    """The id of the call whose result a tool message contains."""
    reasoning_content: str | None = None
    """The reasoning that precedes an assistant message."""
    refusal: AlwaysEmpty = None
    annotations: AlwaysEmpty = None
    audio: AlwaysEmpty = None
    function_call: AlwaysEmpty = None

    @property
    def images(self) -> list[ImagePart]:
        """The image parts, in order of appearance."""
        return [part for part in self.content if isinstance(part, ImagePart)] if isinstance(self.content, list) else []

    @property
    def texts(self) -> list[str]:
        """The text parts, in order of appearance."""
        if isinstance(self.content, list):
            return [part.text for part in self.content if isinstance(part, TextPart)]
        return [] if self.content is None else [self.content]

    def with_images(self, parts: Iterator[ImagePart]) -> ChatMessage:
        """Returns a copy in which the next element of `parts` replaces each image."""
        if not isinstance(self.content, list):
            return self
        content = [next(parts) if isinstance(part, ImagePart) else part for part in self.content]
        return self.model_copy(update={"content": content})

    @model_validator(mode="after")
    def _check_role(self) -> Self:
        role, content, tool_calls = self.role, self.content, self.tool_calls
        if content is None and tool_calls is None:
            raise ValueError(f"content: missing in {_a(role)} message: add it")
        if role == "tool" and self.tool_call_id is None:
            raise ValueError("tool_call_id: missing in a tool message: add the id of the call")
        if role != "tool" and self.tool_call_id is not None:
            raise ValueError(f"tool_call_id: not allowed in {_a(role)} message: remove it")
        if role != "assistant" and (tool_calls is not None or self.reasoning_content is not None):
            field = "tool_calls" if tool_calls is not None else "reasoning_content"
            raise ValueError(f"{field}: not allowed in {_a(role)} message: remove it")
        if role != "user" and isinstance(content, list):
            self._check_text_only(content)
        return self

    def _check_text_only(self, parts: Sequence[ContentPart]) -> None:
        for index, part in enumerate(parts):
            if not isinstance(part, TextPart):
                raise ValueError(
                    f"content.{index}: images are not allowed in {_a(self.role)} message: send them in a user message"
                )


def _a(role: str) -> str:
    return f"an {role}" if role == "assistant" else f"a {role}"
