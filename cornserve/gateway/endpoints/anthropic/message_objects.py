"""The objects in the responses of `/v1/messages`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic_core import from_json
from typing_extensions import TypedDict

from cornserve_tasklib.chat_response import ChatChoice, FinishReason, Usage
from cornserve_tasklib.messages import ToolCall

StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]


class Text(TypedDict):
    type: Literal["text"]
    text: str


class ThinkingText(TypedDict):
    type: Literal["thinking"]
    thinking: str
    signature: str


class ToolUse(TypedDict):
    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


Content = Text | ThinkingText | ToolUse


class MessageUsage(TypedDict):
    input_tokens: int
    """Tokens of the prompt that were not cached."""
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int


class MessageObject(TypedDict):
    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[Content]
    stop_reason: StopReason | None
    stop_sequence: str | None
    usage: MessageUsage


class TokenCount(TypedDict):
    input_tokens: int


def new_message(id: str, model: str) -> MessageObject:
    """Returns a message without content."""
    return {
        "id": f"msg_{id}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": message_usage(Usage()),
    }


def message_usage(usage: Usage) -> MessageUsage:
    """Returns the token counts. Cached tokens are not input tokens in this API."""
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
    }


def content_of(choice: ChatChoice, text: str) -> list[Content]:
    """Returns the blocks of a choice. `text` replaces its text."""
    blocks: list[Content] = []
    if choice.reasoning:
        blocks.append({"type": "thinking", "thinking": choice.reasoning, "signature": ""})
    if text or not (choice.reasoning or choice.tool_calls):
        blocks.append({"type": "text", "text": text})
    return [*blocks, *map(_tool_use, choice.tool_calls or ())]


def _tool_use(call: ToolCall) -> ToolUse:
    return {
        "type": "tool_use",
        "id": call.id,
        "name": call.function.name,
        "input": parse_arguments(call.function.arguments),
    }


def parse_arguments(arguments: str) -> dict[str, Any]:
    """Returns the arguments of a call, as far as they were generated."""
    try:
        parsed = from_json(arguments or "{}", allow_partial="trailing-strings")
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}


def stop_reason(reason: FinishReason, stop_sequence: str | None, *, has_calls: bool) -> StopReason:
    """Returns the reason why a message has ended."""
    if reason == "length":
        return "max_tokens"
    if has_calls:
        return "tool_use"
    return "end_turn" if stop_sequence is None else "stop_sequence"
