"""Messages of a chat."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Self, TypeVar

from annotated_types import MaxLen, MinLen
from pydantic import (
    BaseModel,
    BeforeValidator,
    Discriminator,
    Field,
    StringConstraints,
    Tag,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema

from cornserve.task.references import ReferenceDecoder
from cornserve_tasklib.media import MediaPart
from cornserve_tasklib.sampling_fields import STRICT

FunctionName = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]

Value = TypeVar("Value")

Unused = Annotated[Value | None, Field(exclude=True)]
"""A field that clients send back from responses of other servers. It is accepted and not used."""

AlwaysEmpty = Annotated[list[Any], MaxLen(0)] | None
"""A field of OpenAI's responses that clients send back. Cornserve's responses leave it empty."""


class _SentMessagePart(BaseModel):
    """A part as clients send it."""

    model_config = STRICT

    cache_control: Unused[dict[str, Any]] = None
    prompt_cache_breakpoint: Unused[dict[str, Any]] = None


ImageDetail = Literal["auto", "low", "high", "original"]
"""OpenAI's levels of detail of an image."""


class TextPart(_SentMessagePart):
    """A text in a message."""

    type: Literal["text"]
    text: str


class _SentMedia(_SentMessagePart):
    """A medium as clients send it."""

    uuid: Unused[str] = None
    """vLLM's name of the medium in its caches. Cornserve's caches identify media by their contents."""


class MediaUrl(BaseModel):
    """The URL of a medium. vLLM's clients may send it as a text instead of an object."""

    model_config = STRICT

    url: str
    """A `data:TYPE;base64,…` URL, or the address of the file. Its content has its format: the type has no effect."""

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, sent: object) -> object:
        return {"url": sent} if isinstance(sent, str) else sent


class ImageUrl(MediaUrl):
    """The URL of an image."""

    detail: ImageDetail | None = None
    """Has no effect: the model's processor determines the resolution, as in vLLM."""


class ImageUrlPart(_SentMedia):
    """An image that a client sends. The gateway replaces it with a `MediaPart`."""

    type: Literal["image_url"]
    image_url: ImageUrl


class AudioUrlPart(_SentMedia):
    """Audio that a client sends by URL. The gateway replaces it with a `MediaPart`."""

    type: Literal["audio_url"]
    audio_url: MediaUrl


class InputAudio(BaseModel):
    """Audio as base64."""

    model_config = STRICT

    data: str
    """The file, as base64."""
    format: str | None = None
    """Has no effect: the content has its format."""


class InputAudioPart(_SentMedia):
    """Audio that a client sends as base64. The gateway replaces it with a `MediaPart`."""

    type: Literal["input_audio"]
    input_audio: InputAudio


class VideoUrlPart(_SentMedia):
    """A video that a client sends. The gateway replaces it with a `MediaPart`."""

    type: Literal["video_url"]
    video_url: MediaUrl


class VideoSoundPart(BaseModel):
    """The sound of the video in the part before. A `ChatRequest` adds it; clients cannot send it."""

    model_config = STRICT

    type: Literal["video_sound"]


SentMediaPart = Annotated[
    ImageUrlPart | AudioUrlPart | InputAudioPart | VideoUrlPart | VideoSoundPart, Field(discriminator="type")
]
"""A medium as clients send it, or the sound of a video."""

_PART_TYPES = ("text", "image_url", "audio_url", "input_audio", "video_url")
"""The types of parts that clients may send."""

_PART_TYPES_TEXT = "'text', 'image_url', 'audio_url', 'input_audio' or 'video_url'"


def _reject_media_from_client(part: object, info: ValidationInfo) -> object:
    """Rejects a `MediaPart` that comes from a client. Only the gateway creates them."""
    if isinstance(part, dict) and part.get("type") == "media" and not isinstance(info.context, ReferenceDecoder):
        raise ValueError(f"invalid part type 'media': use {_PART_TYPES_TEXT}")
    return part


def _kind(part: object) -> str | None:
    kind = part.get("type") if isinstance(part, dict) else getattr(part, "type", None)
    return f"part:{kind}" if kind in (*_PART_TYPES, "media") else None


ContentPart = Annotated[
    Annotated[TextPart, Tag("part:text")]
    | Annotated[ImageUrlPart, Tag("part:image_url")]
    | Annotated[AudioUrlPart, Tag("part:audio_url")]
    | Annotated[InputAudioPart, Tag("part:input_audio")]
    | Annotated[VideoUrlPart, Tag("part:video_url")]
    | Annotated[SkipJsonSchema[VideoSoundPart], Tag("part:video_sound")]
    | Annotated[SkipJsonSchema[MediaPart], Tag("part:media")],
    Discriminator(_kind, custom_error_type="part", custom_error_message=f"invalid part type: use {_PART_TYPES_TEXT}"),
    BeforeValidator(_reject_media_from_client),
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
    """A text, or a list of parts."""
    name: str | None = None
    """The name of the author."""
    tool_calls: Annotated[list[ToolCall], MinLen(1), MaxLen(128)] | None = None
    """The function calls that an assistant message requests."""
    tool_call_id: str | None = None
    """The id of the call whose result a tool message contains."""
    reasoning_content: str | None = None
    """The reasoning that precedes an assistant message."""
    reasoning: Unused[str] = None
    """vLLM's newer name of `reasoning_content`, which it sets."""
    id: Unused[str] = None
    provider_specific_fields: Unused[dict[str, Any]] = None
    images: Unused[list[Any]] = None
    """The images of an earlier response."""
    refusal: AlwaysEmpty = None
    annotations: AlwaysEmpty = None
    audio: AlwaysEmpty = None
    function_call: AlwaysEmpty = None

    @property
    def media_parts(self) -> list[MediaPart]:
        """The parts with media, in order of appearance."""
        return [part for part in self.content if isinstance(part, MediaPart)] if isinstance(self.content, list) else []

    @property
    def texts(self) -> list[str]:
        """The text parts, in order of appearance."""
        if isinstance(self.content, list):
            return [part.text for part in self.content if isinstance(part, TextPart)]
        return [] if self.content is None else [self.content]

    def with_sounds(self) -> ChatMessage:
        """Returns a copy in which the sound of each video follows it, or this message if it has sounds."""
        if not isinstance(self.content, list) or any(isinstance(part, VideoSoundPart) for part in self.content):
            return self
        content: list[ContentPart] = []
        for part in self.content:
            content.append(part)
            if isinstance(part, VideoUrlPart):
                content.append(VideoSoundPart(type="video_sound"))
        return self.model_copy(update={"content": content})

    def with_media(self, parts: Iterator[MediaPart]) -> ChatMessage:
        """Returns a copy in which the next element of `parts` replaces each medium."""
        if not isinstance(self.content, list):
            return self
        content = [next(parts) if isinstance(part, MediaPart) else part for part in self.content]
        return self.model_copy(update={"content": content})

    @field_validator("audio", mode="before")
    @classmethod
    def _check_audio(cls, audio: object) -> object:
        if isinstance(audio, dict):
            raise ValueError("audio of earlier responses is not stored: send its transcript as the content")
        return audio

    @field_validator("tool_calls", mode="before")
    @classmethod
    def _omit_empty_calls(cls, calls: object) -> object:
        return None if calls == [] else calls

    @model_validator(mode="after")
    def _check_role(self) -> Self:
        if self.reasoning_content is None and self.reasoning is not None:
            self.reasoning_content = self.reasoning
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
        return self


def _a(role: str) -> str:
    return f"an {role}" if role == "assistant" else f"a {role}"
