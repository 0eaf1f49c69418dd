"""The request bodies of `/v1/messages`, and their translation to a chat."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, MaxLen, MinLen
from pydantic import BaseModel, Field, Tag, ValidationError

from cornserve.app.media_slots import MediaSlot, find_media_slots
from cornserve.gateway.endpoints.anthropic.message_input import (
    MAX_MESSAGES,
    MessageParam,
    TextBlock,
    TranslatedMessage,
    translate,
)
from cornserve.gateway.endpoints.union_discriminators import text_or_list
from cornserve.gateway.errors import ApiError
from cornserve_tasklib.chat_request import ChatRequest
from cornserve_tasklib.enforced_schema import EnforcedSchema
from cornserve_tasklib.messages import ChatMessage, FunctionName, Unused
from cornserve_tasklib.sampling_fields import STRICT
from cornserve_tasklib.schema import Schema
from cornserve_tasklib.tools import Function, FunctionChoice, JsonSchema, NamedToolChoice, ResponseFormat, Tool

Effort = Literal["low", "medium", "high", "xhigh", "max"]


class CustomTool(BaseModel):
    """A function that the model may call."""

    model_config = STRICT

    type: Literal["custom"] | None = None
    name: FunctionName
    description: str | None = None
    input_schema: Schema
    strict: bool | None = None
    cache_control: Unused[dict[str, Any]] = None
    eager_input_streaming: Unused[bool] = None
    input_examples: Unused[list[Any]] = None
    allowed_callers: Unused[list[Literal["direct"]]] = None
    """Must be `direct`: code that Anthropic's servers run cannot call tools."""
    defer_loading: Unused[Literal[False]] = None
    """Must be `false`: the prompt has all tools."""

    @property
    def tool(self) -> Tool:
        function = Function(
            name=self.name, description=self.description, parameters=self.input_schema, strict=self.strict
        )
        return Tool(type="function", function=function)


class MessageToolChoice(BaseModel):
    """Whether the model may call a function, must call one, or must call that with the given name."""

    model_config = STRICT

    type: Literal["auto", "any", "tool", "none"]
    name: FunctionName | None = None
    """The name of the function, for the type `tool`."""
    disable_parallel_tool_use: bool | None = None

    @property
    def choice(self) -> Literal["none", "required"] | NamedToolChoice | None:
        match self.type:
            case "auto":
                return None
            case "any":
                return "required"
            case "none":
                return "none"
            case "tool":
                if self.name is None:
                    raise ApiError(400, "tool_choice.name: missing: name the function", param="tool_choice.name")
                return NamedToolChoice(type="function", function=FunctionChoice(name=self.name))


class Thinking(BaseModel):
    """Whether the model reasons before it responds."""

    model_config = STRICT

    type: Literal["enabled", "disabled", "adaptive", "between_tools"]
    block_binding: Unused[dict[str, Any]] = None
    budget_tokens: Unused[int] = None
    display: Unused[Literal["summarized", "omitted"]] = None


class OutputFormat(BaseModel):
    """JSON that matches a schema."""

    model_config = STRICT

    type: Literal["json_schema"]
    json_schema: Annotated[EnforcedSchema, Field(alias="schema")]


class OutputConfig(BaseModel):
    """The options of the response."""

    model_config = STRICT

    effort: Effort | None = None
    """The amount of reasoning, for models whose chat template supports it."""
    format: OutputFormat | None = None


class CountTokensRequest(BaseModel):
    """The fields that determine the prompt."""

    model_config = STRICT

    model: str
    messages: Annotated[list[MessageParam], MinLen(1), MaxLen(MAX_MESSAGES)]
    system: (
        Annotated[
            Annotated[str, Tag("system:text")] | Annotated[list[TextBlock], Tag("system:list")],
            text_or_list("system"),
        ]
        | None
    ) = None
    tools: Annotated[list[CustomTool], MaxLen(128)] = Field(default_factory=list)
    tool_choice: MessageToolChoice | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None
    cache_control: Unused[dict[str, Any]] = None
    context_management: Unused[dict[str, Any]] = None
    """It would remove earlier reasoning and results of tools from the prompt."""
    speed: Unused[Literal["standard", "fast"]] = None
    user_profile_id: Unused[str] = None
    workspace_id: Unused[str] = None

    @cached_property
    def chat(self) -> ChatRequest:
        """The chat. Raises an `ApiError` (400) for fields that contradict each other."""
        last = self._messages[-1].message
        continues = last.role == "assistant" and last.tool_calls is None
        fields: dict[str, Any] = {
            "messages": [translated.message for translated in self._messages],
            "tools": [tool.tool for tool in self.tools] or None,
            "response_format": self._response_format,
            "reasoning_effort": self._reasoning_effort,
            "add_generation_prompt": not continues,
            "continue_final_message": continues,
        }
        if self.tool_choice is not None:
            fields["tool_choice"] = self.tool_choice.choice
            fields["parallel_tool_calls"] = not self.tool_choice.disable_parallel_tool_use
        try:
            return ChatRequest(**fields | self.generation_fields)
        except ValidationError as error:
            raise ApiError.from_validation_error(error, self.rename_field) from error

    @property
    def generation_fields(self) -> dict[str, Any]:
        """The fields of the chat that do not concern the prompt."""
        return {"max_tokens": 1}

    @cached_property
    def media(self) -> list[MediaSlot]:
        """The media of the chat, with the paths of their blocks."""
        return [
            replace(slot, path=self.rename_field(slot.path), param=self.rename_field(slot.param))
            for slot in find_media_slots(self.chat)
        ]

    def rename_field(self, text: str) -> str:
        """Returns the text with the name of this operation in place of the path of a chat's field at its start."""
        if found := _MESSAGE.match(text):
            return self._block_path(found) + text[found.end() :]
        for pattern, name in _RENAMED:
            text, count = pattern.subn(name, text)
            if count:
                return text
        return text

    def _block_path(self, found: re.Match[str]) -> str:
        translated = self._messages[int(found["message"])]
        if translated.position < 0:
            return "system"
        path = f"messages[{translated.position}]"
        if found["part"] is not None and translated.blocks:
            path += translated.blocks[int(found["part"])]
        return path + (".source" if found["image"] else "")

    @cached_property
    def _messages(self) -> Sequence[TranslatedMessage]:
        translated = list(translate(self.messages))
        if not self.system:
            return translated
        system = self.system if isinstance(self.system, str) else "\n".join(block.text for block in self.system)
        return [TranslatedMessage(ChatMessage(role="system", content=system), -1), *translated]

    @property
    def _response_format(self) -> ResponseFormat | None:
        if self.output_config is None or self.output_config.format is None:
            return None
        schema = JsonSchema(name="response", json_schema=self.output_config.format.json_schema)
        return ResponseFormat(type="json_schema", json_schema=schema)

    @property
    def _reasoning_effort(self) -> str | None:
        if self.thinking is not None and self.thinking.type == "disabled":
            return "none"
        effort = None if self.output_config is None else self.output_config.effort
        if effort is not None:
            return effort
        return "medium" if self.thinking is not None and self.thinking.type == "enabled" else None


class CreateMessageRequest(CountTokensRequest):
    """Anthropic's request body."""

    max_tokens: Annotated[int, Ge(1)]
    stream: bool = False
    temperature: Annotated[float, Ge(0), Le(2)] = 1.0
    top_p: Annotated[float, Gt(0), Le(1)] = 1.0
    top_k: Annotated[int, Ge(0), Le(1_000_000)] = 0
    stop_sequences: Annotated[list[Annotated[str, MinLen(1), MaxLen(1000)]], MaxLen(4)] = Field(default_factory=list)
    metadata: Unused[dict[str, Any]] = None
    diagnostics: Unused[dict[str, Any]] = None
    service_tier: Unused[Literal["auto", "standard_only"]] = None

    @property
    def generation_fields(self) -> dict[str, Any]:
        return {
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "top_k": self.top_k,
            "stop": self.stop_sequences,
        }


_MESSAGE = re.compile(r"messages\[(?P<message>\d+)\](?:\.content\[(?P<part>\d+)\](?P<image>\.image_url(?:\.url)?)?)?")

_RENAMED = (
    (re.compile(r"^response_format(?:\.json_schema)?\b"), "output_config.format"),
    (re.compile(r"^reasoning_effort\b"), "thinking, output_config.effort"),
    (re.compile(r"^(tools\[\d+\])\.function\.parameters\b"), r"\1.input_schema"),
    (re.compile(r"^(tools\[\d+\])\.function\b"), r"\1"),
    (re.compile(r"^stop\b"), "stop_sequences"),
)
"""The fields of a chat with another name in this operation."""
