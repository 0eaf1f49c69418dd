"""The messages of a conversation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, Self

from annotated_types import MaxLen, MinLen
from pydantic import (
    BaseModel,
    BeforeValidator,
    Discriminator,
    StringConstraints,
    Tag,
    ValidationInfo,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema

from cornserve.task.references import ReferenceDecoder
from cornserve_tasklib.image import ImagePart
from cornserve_tasklib.sampling import STRICT

FunctionName = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]

Nothing = Annotated[list[Any], MaxLen(0)] | None
"""Fields of OpenAI's answers that its clients send back. Ours are always empty."""


class TextPart(BaseModel):
    model_config = STRICT

    type: Literal["text"]
    text: str


class ImageUrl(BaseModel):
    model_config = STRICT

    url: str
    """`data:image/…;base64,…`, or where to fetch it from."""
    detail: Literal["auto", "high"] = "auto"
    """The model's own processor decides how much of an image is looked at, which is much."""


class ImageUrlPart(BaseModel):
    """An image, as a client names it. The gateway puts an `ImagePart` in its place."""

    model_config = STRICT

    type: Literal["image_url"]
    image_url: ImageUrl


def _no_finished_image(part: object, info: ValidationInfo) -> object:
    """What the gateway makes of images reaches executors, and does not come from clients."""
    if isinstance(part, dict) and part.get("type") == "image" and not isinstance(info.context, ReferenceDecoder):
        raise ValueError("an image is sent as a part of type 'image_url'")
    return part


def _kind(part: object) -> str | None:
    kind = part.get("type") if isinstance(part, dict) else getattr(part, "type", None)
    return f"part:{kind}" if kind in ("text", "image_url", "image") else None


ContentPart = Annotated[
    Annotated[TextPart, Tag("part:text")]
    | Annotated[ImageUrlPart, Tag("part:image_url")]
    | Annotated[SkipJsonSchema[ImagePart], Tag("part:image")],
    Discriminator(_kind, custom_error_type="part", custom_error_message="a part is of type 'text' or 'image_url'"),
    BeforeValidator(_no_finished_image),
]


class FunctionCall(BaseModel):
    model_config = STRICT

    name: FunctionName
    arguments: str
    """JSON, as the model has written it."""


class ToolCall(BaseModel):
    """A function that the model wants to be called."""

    model_config = STRICT

    id: str
    type: Literal["function"]
    function: FunctionCall


class ChatMessage(BaseModel):
    model_config = STRICT

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: (
        Annotated[
            Annotated[str, Tag("content:text")] | Annotated[list[ContentPart], Tag("content:parts")],
            Discriminator(lambda content: "content:text" if isinstance(content, str) else "content:parts"),
        ]
        | None
    ) = None
    name: str | None = None
    tool_calls: Annotated[list[ToolCall], MinLen(1), MaxLen(128)] | None = None
    """Of an assistant's message: the functions that it asked for."""
    tool_call_id: str | None = None
    """Of a tool's message: the call that it answers."""
    reasoning_content: str | None = None
    """Of an assistant's message: what it thought before."""
    refusal: Nothing = None
    annotations: Nothing = None
    audio: Nothing = None
    function_call: Nothing = None

    @property
    def images(self) -> list[ImagePart]:
        """In order of appearance."""
        return [part for part in self.content if isinstance(part, ImagePart)] if isinstance(self.content, list) else []

    def with_images(self, parts: Iterator[ImagePart]) -> ChatMessage:
        """This one, with the next of `parts` in the place of each image."""
        if not isinstance(self.content, list):
            return self
        content = [next(parts) if isinstance(part, ImagePart) else part for part in self.content]
        return self.model_copy(update={"content": content})

    @model_validator(mode="after")
    def _fits_its_role(self) -> Self:
        role, content, tool_calls = self.role, self.content, self.tool_calls
        if content is None and tool_calls is None:
            raise ValueError(f"content: {_a(role)} message needs it")
        if role == "tool" and self.tool_call_id is None:
            raise ValueError("tool_call_id: a tool message names the call that it answers")
        if role != "tool" and self.tool_call_id is not None:
            raise ValueError(f"tool_call_id: {_a(role)} message has none")
        if role != "assistant" and (tool_calls is not None or self.reasoning_content is not None):
            field = "tool_calls" if tool_calls is not None else "reasoning_content"
            raise ValueError(f"{field}: {_a(role)} message has none")
        if role != "user" and isinstance(content, list):
            self._check_has_only_text(content)
        return self

    def _check_has_only_text(self, parts: Sequence[ContentPart]) -> None:
        for index, part in enumerate(parts):
            if not isinstance(part, TextPart):
                raise ValueError(f"content.{index}: {_a(self.role)} message has no images, only a user message has")


def _a(role: str) -> str:
    return f"an {role}" if role == "assistant" else f"a {role}"
