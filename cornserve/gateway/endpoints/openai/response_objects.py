"""The objects in the responses of `/v1/responses`."""

from __future__ import annotations

from collections.abc import Container
from contextlib import suppress
from typing import Any, Literal

from pydantic_core import from_json
from typing_extensions import TypedDict

from cornserve.gateway.endpoints.openai.response_input import CUSTOM_INPUT
from cornserve_tasklib.chat_response import ChatChoice, FinishReason, Usage

ItemStatus = Literal["in_progress", "completed", "incomplete"]


class OutputText(TypedDict):
    type: Literal["output_text"]
    text: str
    annotations: list[Any]
    logprobs: list[Any]


class ReasoningText(TypedDict):
    type: Literal["reasoning_text"]
    text: str


class OutputMessage(TypedDict):
    type: Literal["message"]
    id: str
    role: Literal["assistant"]
    status: ItemStatus
    content: list[OutputText]


class OutputReasoning(TypedDict):
    type: Literal["reasoning"]
    id: str
    summary: list[Any]
    status: ItemStatus
    content: list[ReasoningText]


class OutputCall(TypedDict):
    type: Literal["function_call"]
    id: str
    call_id: str
    name: str
    arguments: str
    status: ItemStatus


class OutputCustomCall(TypedDict):
    type: Literal["custom_tool_call"]
    id: str
    call_id: str
    name: str
    input: str
    status: ItemStatus


OutputItem = OutputMessage | OutputReasoning | OutputCall | OutputCustomCall


class InputTokensDetails(TypedDict):
    cached_tokens: int
    cache_write_tokens: int


class OutputTokensDetails(TypedDict):
    reasoning_tokens: int


class ResponseUsage(TypedDict):
    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class IncompleteDetails(TypedDict):
    reason: Literal["max_output_tokens"]


class ResponseFailure(TypedDict):
    code: Literal["server_error", "rate_limit_exceeded", "invalid_prompt"]
    message: str


class ResponseObject(TypedDict):
    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    error: ResponseFailure | None
    incomplete_details: IncompleteDetails | None
    output: list[OutputItem]
    usage: ResponseUsage | None
    previous_response_id: None
    background: Literal[False]
    store: Literal[False]
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, str]
    model: str
    parallel_tool_calls: bool
    reasoning: dict[str, Any] | None
    temperature: float
    text: dict[str, Any]
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_p: float
    truncation: Literal["disabled"]


class InputTokenCount(TypedDict):
    object: Literal["response.input_tokens"]
    input_tokens: int


def new_response(id: str, created: int, echoed: dict[str, Any]) -> ResponseObject:
    """Returns a response in progress.

    Args:
        echoed: the fields that repeat those of the request.
    """
    response: Any = {
        "id": f"resp_{id}",
        "object": "response",
        "created_at": created,
        "status": "in_progress",
        "error": None,
        "incomplete_details": None,
        "output": [],
        "usage": None,
        "previous_response_id": None,
        "background": False,
        "store": False,
        **echoed,
    }
    result: ResponseObject = response
    return result


def end_response(response: ResponseObject, reason: FinishReason, usage: Usage) -> None:
    """Sets the status by the reason why the choice ended, and the usage."""
    is_cut = reason == "length"
    response["status"] = "incomplete" if is_cut else "completed"
    response["incomplete_details"] = {"reason": "max_output_tokens"} if is_cut else None
    response["usage"] = {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
    }


def output_items(id: str, choice: ChatChoice, text: str, custom_tools: Container[str]) -> list[OutputItem]:
    """Returns the items of a choice: its reasoning, its text and its calls. The last one may be incomplete."""
    items: list[OutputItem] = []
    if choice.reasoning:
        items.append(reasoning_item(id, 0, choice.reasoning))
    if text or not choice.tool_calls:
        items.append(message_item(id, len(items), text))
    for call in choice.tool_calls or ():
        write = custom_call_item if call.function.name in custom_tools else call_item
        items.append(write(id, len(items), call.id, call.function.name, call.function.arguments))
    items[-1]["status"] = last_status(choice.finish_reason)
    return items


def last_status(reason: FinishReason) -> ItemStatus:
    """Returns the status of the last item of a choice."""
    return "incomplete" if reason == "length" else "completed"


def reasoning_item(id: str, index: int, text: str) -> OutputReasoning:
    content: list[ReasoningText] = [{"type": "reasoning_text", "text": text}]
    return {"type": "reasoning", "id": f"rs_{id}_{index}", "summary": [], "status": "completed", "content": content}


def message_item(id: str, index: int, text: str) -> OutputMessage:
    content: list[OutputText] = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}]
    return {
        "type": "message",
        "id": f"msg_{id}_{index}",
        "role": "assistant",
        "status": "completed",
        "content": content,
    }


def custom_call_item(id: str, index: int, call_id: str, name: str, arguments: str) -> OutputCustomCall:
    """Returns the call of a custom tool.

    Args:
        arguments: those of the function in place of the tool, possibly cut.
    """
    given: Any = None
    with suppress(ValueError):
        given = from_json(arguments, allow_partial="trailing-strings")
    text = given.get(CUSTOM_INPUT, "") if isinstance(given, dict) else ""
    return {
        "type": "custom_tool_call",
        "id": f"ctc_{id}_{index}",
        "call_id": call_id,
        "name": name,
        "input": text if isinstance(text, str) else "",
        "status": "completed",
    }


def call_item(id: str, index: int, call_id: str, name: str, arguments: str) -> OutputCall:
    return {
        "type": "function_call",
        "id": f"fc_{id}_{index}",
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
        "status": "completed",
    }
