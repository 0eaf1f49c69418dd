"""The input items of `/v1/responses`, and their translation to the messages of a chat."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from annotated_types import MaxLen, MinLen
from pydantic import BaseModel, Field, Tag
from pydantic_core import to_json

from cornserve.gateway.endpoints.tool_results import match_result
from cornserve.gateway.endpoints.union_discriminators import by_type, text_or_list
from cornserve.gateway.errors import ApiError
from cornserve_tasklib.messages import (
    AudioUrlPart,
    ChatMessage,
    ContentPart,
    FunctionCall,
    FunctionName,
    ImageDetail,
    ImageUrl,
    ImageUrlPart,
    InputAudioPart,
    TextPart,
    ToolCall,
    Unused,
    VideoUrlPart,
)
from cornserve_tasklib.sampling_fields import STRICT

MAX_ITEMS = 4095
"""Maximum number of items: with the instructions, the maximum number of messages of a chat."""

CUSTOM_INPUT = "input"
"""The parameter of the function in place of a custom tool."""

MAX_CALLS = 128
"""Maximum number of calls in one message."""


class _SentPart(BaseModel):
    """A part that a client writes."""

    model_config = STRICT

    prompt_cache_breakpoint: Unused[dict[str, Any]] = None


class InputTextPart(_SentPart):
    """A text in an item."""

    type: Literal["input_text"]
    text: str


class OutputTextPart(BaseModel):
    """A text of an earlier response."""

    model_config = STRICT

    type: Literal["output_text"]
    text: str
    annotations: Unused[list[Any]] = None
    logprobs: Unused[list[Any]] = None


class RefusalPart(BaseModel):
    """A refusal in an earlier response of another server."""

    model_config = STRICT

    type: Literal["refusal"]
    refusal: str


class InputImagePart(_SentPart):
    """An image."""

    type: Literal["input_image"]
    image_url: str
    """A `data:image/…;base64,…` URL, or the address of the image."""
    detail: ImageDetail | None = None
    """Has no effect, as in chat completions."""
    file_id: None = None
    """Must be null: files cannot be uploaded."""


InputPart = Annotated[
    Annotated[InputTextPart, Tag("part:input_text")]
    | Annotated[InputImagePart, Tag("part:input_image")]
    | Annotated[InputAudioPart, Tag("part:input_audio")]
    | Annotated[AudioUrlPart, Tag("part:audio_url")]
    | Annotated[VideoUrlPart, Tag("part:video_url")]
    | Annotated[OutputTextPart, Tag("part:output_text")]
    | Annotated[RefusalPart, Tag("part:refusal")],
    by_type("part", "input_text", "input_image", "input_audio", "audio_url", "video_url", "output_text", "refusal"),
]
"""A part of an item. OpenAI's API has no audio and videos: they are the parts of chat completions, as in vLLM."""


class _InputItem(BaseModel):
    """The fields of items that clients send back from earlier responses."""

    model_config = STRICT

    id: Unused[str] = None
    status: Unused[Literal["in_progress", "completed", "incomplete"]] = None


class InputMessage(_InputItem):
    """A message of the conversation."""

    type: Literal["message"] | None = None
    role: Literal["user", "assistant", "system", "developer"]
    content: Annotated[
        Annotated[str, Tag("content:text")] | Annotated[list[InputPart], Field(fail_fast=True), Tag("content:list")],
        text_or_list("content"),
    ]
    """A text, or a list of parts."""
    phase: Unused[str] = None

    @property
    def message(self) -> ChatMessage:
        """The message of the chat. Its parts have the positions of the item's parts."""
        if isinstance(self.content, str):
            return ChatMessage(role=self.role, content=self.content)
        return ChatMessage(role=self.role, content=[_chat_part(part) for part in self.content])


def _chat_part(part: InputPart) -> ContentPart:
    match part:
        case InputAudioPart() | AudioUrlPart() | VideoUrlPart():
            return part
        case InputImagePart():
            return ImageUrlPart(type="image_url", image_url=ImageUrl(url=part.image_url))
        case RefusalPart():
            return TextPart(type="text", text=part.refusal)
        case _:
            return TextPart(type="text", text=part.text)


class _CallItem(_InputItem):
    """The fields of calls and results of other servers, on which tools have namespaces, and programs call them."""

    caller: Unused[dict[str, Any]] = None
    namespace: Unused[str] = None


class FunctionCallItem(_CallItem):
    """A call of an earlier response."""

    type: Literal["function_call"]
    call_id: str
    name: FunctionName
    arguments: str

    @property
    def call(self) -> ToolCall:
        function = FunctionCall(name=self.name, arguments=self.arguments)
        return ToolCall(id=self.call_id, type="function", function=function)


class CustomCallItem(_CallItem):
    """A call of a custom tool, of an earlier response."""

    type: Literal["custom_tool_call"]
    call_id: str
    name: FunctionName
    input: str

    @property
    def call(self) -> ToolCall:
        function = FunctionCall(name=self.name, arguments=to_json({CUSTOM_INPUT: self.input}).decode())
        return ToolCall(id=self.call_id, type="function", function=function)


class CallOutputItem(_CallItem):
    """The result of a call."""

    type: Literal["function_call_output", "custom_tool_call_output"]
    call_id: str
    name: Unused[str] = None
    output: Annotated[
        Annotated[str, Tag("content:text")] | Annotated[list[InputPart], Field(fail_fast=True), Tag("content:list")],
        text_or_list("content"),
    ]

    @property
    def message(self) -> ChatMessage:
        if isinstance(self.output, str):
            return ChatMessage(role="tool", tool_call_id=self.call_id, content=self.output)
        return ChatMessage(role="tool", tool_call_id=self.call_id, content=[_chat_part(part) for part in self.output])


class ReasoningItem(_InputItem):
    """The reasoning of an earlier response. It is accepted and not used."""

    type: Literal["reasoning"]
    summary: Unused[list[Any]] = None
    content: Unused[list[Any]] = None
    encrypted_content: Unused[str] = None


InputItem = Annotated[
    Annotated[InputMessage, Tag("item:message")]
    | Annotated[FunctionCallItem, Tag("item:function_call")]
    | Annotated[CustomCallItem, Tag("item:custom_tool_call")]
    | Annotated[CallOutputItem, Tag("item:function_call_output")]
    | Annotated[CallOutputItem, Tag("item:custom_tool_call_output")]
    | Annotated[ReasoningItem, Tag("item:reasoning")],
    by_type(
        "item",
        *("message", "function_call", "function_call_output"),
        *("custom_tool_call", "custom_tool_call_output", "reasoning"),
        default="message",
    ),
]

InputItems = Annotated[
    Annotated[str, Tag("input:text")]
    | Annotated[list[InputItem], MinLen(1), MaxLen(MAX_ITEMS), Field(fail_fast=True), Tag("input:list")],
    text_or_list("input"),
]
"""The input: a text of the user, or a list of items."""


def chat_messages(items: Sequence[InputItem]) -> list[tuple[int, ChatMessage]]:
    """Returns the messages, each with the index of its first item.

    The calls that follow a message of the assistant become a part of it, as in chat completions. Raises an `ApiError`
    (400) for more than `MAX_CALLS` of them, for items without a message, for the output of an unknown call, and for a
    second one of a call.
    """
    messages: list[tuple[int, ChatMessage]] = []
    missing_results = Counter[str]()
    for index, item in enumerate(items):
        match item:
            case ReasoningItem():
                pass
            case FunctionCallItem() | CustomCallItem():
                missing_results[item.call_id] += 1
                if not messages or messages[-1][1].role != "assistant":
                    messages.append((index, ChatMessage(role="assistant", tool_calls=[item.call])))
                else:
                    first, message = messages[-1]
                    messages[-1] = first, _with_call(message, index, item.call)
            case _:
                if isinstance(item, CallOutputItem):
                    match_result(missing_results, item.call_id, f"input[{index}].call_id")
                messages.append((index, item.message))
    if not messages:
        raise ApiError(400, "input: it has no message: add one", param="input", code="invalid_value")
    return messages


def _with_call(message: ChatMessage, index: int, call: ToolCall) -> ChatMessage:
    calls = message.tool_calls or []
    if len(calls) == MAX_CALLS:
        text = (
            f"input[{index}]: a response has at most {MAX_CALLS} calls: add the outputs of the earlier ones before it"
        )
        raise ApiError(400, text, param=f"input[{index}]", code="invalid_value")
    return message.model_copy(update={"tool_calls": [*calls, call]})
