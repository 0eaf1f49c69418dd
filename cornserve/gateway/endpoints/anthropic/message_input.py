"""The messages of `/v1/messages`, and their translation to the messages of a chat."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Self

from annotated_types import MaxLen, MinLen
from pydantic import BaseModel, BeforeValidator, Field, Tag, model_validator
from pydantic_core import to_json

from cornserve.gateway.endpoints.tool_results import match_result
from cornserve.gateway.endpoints.union_discriminators import by_type, text_or_list
from cornserve_tasklib.messages import (
    ChatMessage,
    ContentPart,
    FunctionCall,
    FunctionName,
    ImageUrl,
    ImageUrlPart,
    TextPart,
    ToolCall,
    Unused,
)
from cornserve_tasklib.sampling_fields import STRICT

MAX_MESSAGES = 2048
"""Maximum number of messages. One can become several messages of a chat, which has at most 4096."""


class _Block(BaseModel):
    model_config = STRICT

    cache_control: Unused[dict[str, Any]] = None


class TextBlock(_Block):
    """A text."""

    type: Literal["text"]
    text: str
    citations: Unused[list[Any]] = None


class Base64Source(BaseModel):
    """The file of an image, as base64."""

    model_config = STRICT

    type: Literal["base64"]
    media_type: str | None = None
    """Has no effect: the content has its format."""
    data: str

    @property
    def address(self) -> str:
        return f"data:;base64,{self.data}"


class UrlSource(BaseModel):
    """The address of an image, which the gateway fetches."""

    model_config = STRICT

    type: Literal["url"]
    url: str

    @property
    def address(self) -> str:
        return self.url


class ImageBlock(_Block):
    """An image in a user message or in the result of a call."""

    type: Literal["image"]
    source: Annotated[
        Annotated[Base64Source, Tag("source:base64")] | Annotated[UrlSource, Tag("source:url")],
        by_type("source", "base64", "url"),
    ]
    transformations: Unused[dict[str, Any]] = None

    @property
    def part(self) -> ImageUrlPart:
        return ImageUrlPart(type="image_url", image_url=ImageUrl(url=self.source.address))


ResultBlock = Annotated[
    Annotated[TextBlock, Tag("block:text")] | Annotated[ImageBlock, Tag("block:image")],
    by_type("block", "text", "image"),
]


class ToolUseBlock(_Block):
    """A call of an earlier response."""

    type: Literal["tool_use"]
    id: str
    name: FunctionName
    input: dict[str, Any]
    caller: Unused[dict[str, Any]] = None
    toolset_name: Unused[str] = None

    @property
    def call(self) -> ToolCall:
        function = FunctionCall(name=self.name, arguments=to_json(self.input).decode())
        return ToolCall(id=self.id, type="function", function=function)


class ToolResultBlock(_Block):
    """The result of a call, in a user message."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: Annotated[
        Annotated[str, Tag("content:text")] | Annotated[list[ResultBlock], Tag("content:list")],
        text_or_list("content"),
        BeforeValidator(lambda content: "" if content is None else content),
    ] = ""
    is_error: bool | None = None
    """Whether the call has failed. Chat templates have no such field: the model reads it in the text."""
    toolset_name: Unused[str] = None

    @property
    def message(self) -> ChatMessage:
        if isinstance(self.content, str):
            text = self.content
        else:
            text = "\n".join(block.text for block in self.content if isinstance(block, TextBlock))
        if self.is_error:
            text = f"Error: {text}" if text else "Error"
        return ChatMessage(role="tool", tool_call_id=self.tool_use_id, content=text)

    @property
    def images(self) -> dict[int, ImageBlock]:
        """The images, by the index of their block."""
        blocks = () if isinstance(self.content, str) else self.content
        return {index: block for index, block in enumerate(blocks) if isinstance(block, ImageBlock)}


class ThinkingBlock(_Block):
    """The reasoning of an earlier response."""

    type: Literal["thinking"]
    thinking: str
    signature: Unused[str] = None


class RedactedThinkingBlock(_Block):
    """Encrypted reasoning of another server. It is accepted and not used."""

    type: Literal["redacted_thinking"]
    data: Unused[str] = None


InputBlock = Annotated[
    Annotated[TextBlock, Tag("block:text")]
    | Annotated[ImageBlock, Tag("block:image")]
    | Annotated[ToolUseBlock, Tag("block:tool_use")]
    | Annotated[ToolResultBlock, Tag("block:tool_result")]
    | Annotated[ThinkingBlock, Tag("block:thinking")]
    | Annotated[RedactedThinkingBlock, Tag("block:redacted_thinking")],
    by_type("block", "text", "image", "tool_use", "tool_result", "thinking", "redacted_thinking"),
]

_ALLOWED = {
    "user": (TextBlock, ImageBlock, ToolResultBlock),
    "assistant": (TextBlock, ToolUseBlock, ThinkingBlock, RedactedThinkingBlock),
}


class MessageParam(BaseModel):
    """A message of the conversation."""

    model_config = STRICT

    role: Literal["user", "assistant"]
    content: Annotated[
        Annotated[str, Tag("content:text")]
        | Annotated[list[InputBlock], MinLen(1), MaxLen(1024), Field(fail_fast=True), Tag("content:list")],
        text_or_list("content"),
    ]

    @model_validator(mode="after")
    def _check_blocks(self) -> Self:
        for index, block in enumerate(self.content if isinstance(self.content, list) else ()):
            if not isinstance(block, _ALLOWED[self.role]):
                message = "an assistant" if self.role == "assistant" else "a user"
                raise ValueError(f"content.{index}: {block.type} is not allowed in {message} message: remove it")
        return self


class TranslatedMessage(NamedTuple):
    """A message of the chat, and where its content comes from."""

    message: ChatMessage
    position: int
    """The index of the message in the request. -1 for the system prompt."""
    blocks: Sequence[str] = ()
    """The path of the block of each part of the content, from the message."""


def translate(messages: Sequence[MessageParam]) -> Iterator[TranslatedMessage]:
    """Yields the messages of a chat. Each result of a tool becomes a message, followed by one with its images, as in
    vLLM: few chat templates have images in the results of tools.

    Raises an `ApiError` (400) for the result of an unknown call, and for a second one of a call.
    """
    missing_results = Counter[str]()
    for index, message in enumerate(messages):
        _check_results(message, index, missing_results)
        if isinstance(message.content, str):
            yield TranslatedMessage(ChatMessage(role=message.role, content=message.content), index)
        elif message.role == "assistant":
            yield TranslatedMessage(_assistant_message(message.content), index)
        else:
            yield from _user_messages(message.content, index)


def _check_results(message: MessageParam, index: int, missing: Counter[str]) -> None:
    for number, block in enumerate(message.content if isinstance(message.content, list) else ()):
        if isinstance(block, ToolUseBlock):
            missing[block.id] += 1
        if isinstance(block, ToolResultBlock):
            match_result(missing, block.tool_use_id, f"messages[{index}].content[{number}].tool_use_id")


def _assistant_message(blocks: Sequence[InputBlock]) -> ChatMessage:
    texts = [block.text for block in blocks if isinstance(block, TextBlock)]
    reasoning = [block.thinking for block in blocks if isinstance(block, ThinkingBlock)]
    calls = [block.call for block in blocks if isinstance(block, ToolUseBlock)]
    return ChatMessage(
        role="assistant",
        content="".join(texts) if texts or not calls else None,
        tool_calls=calls or None,
        reasoning_content="".join(reasoning) or None,
    )


def _user_messages(blocks: Sequence[InputBlock], index: int) -> Iterator[TranslatedMessage]:
    parts: list[ContentPart] = []
    origins: list[str] = []
    for number, block in enumerate(blocks):
        match block:
            case ToolResultBlock():
                yield TranslatedMessage(block.message, index)
                if images := block.images:
                    message = ChatMessage(role="user", content=[image.part for image in images.values()])
                    paths = [f".content[{number}].content[{position}]" for position in images]
                    yield TranslatedMessage(message, index, paths)
                continue
            case TextBlock():
                parts.append(TextPart(type="text", text=block.text))
            case ImageBlock():
                parts.append(block.part)
        origins.append(f".content[{number}]")
    if parts:
        yield TranslatedMessage(ChatMessage(role="user", content=parts), index, origins)
