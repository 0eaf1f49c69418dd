"""The request body of `/v1/responses`, and its translation to a chat."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any, Final, Literal, Self

from annotated_types import Ge, Gt, Le, MaxLen
from pydantic import BaseModel, Discriminator, Field, Tag, ValidationError, model_validator

from cornserve.app.media_slots import MediaSlot, find_media_slots
from cornserve.gateway.endpoints.openai.common_fields import HintedRequest
from cornserve.gateway.endpoints.openai.response_input import CUSTOM_INPUT, InputItems, chat_messages
from cornserve.gateway.endpoints.union_discriminators import by_type
from cornserve.gateway.errors import ApiError
from cornserve_tasklib.chat_request import ChatRequest, ReasoningEffort
from cornserve_tasklib.messages import ChatMessage, FunctionName, Unused
from cornserve_tasklib.sampling_fields import STRICT
from cornserve_tasklib.schema import Schema
from cornserve_tasklib.tools import Function, FunctionChoice, JsonSchema, NamedToolChoice, ResponseFormat, Tool

CUSTOM_PARAMETERS: Final = {
    "type": "object",
    "properties": {CUSTOM_INPUT: {"type": "string"}},
    "required": [CUSTOM_INPUT],
    "additionalProperties": False,
}
"""The schema of the function in place of a custom tool."""

Includable = Literal[
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "reasoning.encrypted_content",
    "web_search_call.action.sources",
    "web_search_call.results",
]
"""Data that a request may ask for and that no response has, as nothing produces it."""


class _DirectTool(BaseModel):
    """The fields of tools that only models call."""

    model_config = STRICT

    allowed_callers: Unused[list[Literal["direct"]]] = None
    """Must be `direct`: programs that OpenAI's servers run cannot call tools."""
    defer_loading: Unused[Literal[False]] = None
    """Must be `false`: the prompt has all tools."""


class FunctionTool(_DirectTool):
    """A function that the model may call."""

    type: Literal["function"]
    name: FunctionName
    description: str | None = None
    parameters: Schema | None = None
    strict: bool | None = None
    output_schema: Unused[dict[str, Any]] = None

    @property
    def tool(self) -> Tool:
        function = Function(
            name=self.name, description=self.description, parameters=self.parameters, strict=self.strict
        )
        return Tool(type="function", function=function)


class FreeformText(BaseModel):
    """The input of a custom tool is any text."""

    model_config = STRICT

    type: Literal["text"]


class FreeformGrammar(BaseModel):
    """The input of a custom tool is a sentence of a grammar."""

    model_config = STRICT

    type: Literal["grammar"]
    syntax: Literal["lark", "regex"]
    definition: str


FreeformFormat = Annotated[
    Annotated[FreeformText, Tag("format:text")] | Annotated[FreeformGrammar, Tag("format:grammar")],
    by_type("format", "text", "grammar"),
]


class FreeformTool(_DirectTool):
    """A tool whose input is a text. The model calls a function with the text, whose format it reads."""

    type: Literal["custom"]
    name: FunctionName
    description: str | None = None
    format: FreeformFormat | None = None

    @property
    def tool(self) -> Tool:
        lines = [] if self.description is None else [self.description]
        if isinstance(self.format, FreeformGrammar):
            lines.append(f"The input follows this grammar ({self.format.syntax}):\n{self.format.definition}")
        function = Function(name=self.name, description="\n\n".join(lines) or None, parameters=CUSTOM_PARAMETERS)
        return Tool(type="function", function=function)


class NamedTool(BaseModel):
    """A tool that the model must call."""

    model_config = STRICT

    type: Literal["function", "custom"]
    name: FunctionName


class PlainFormat(BaseModel):
    """Any text, or any JSON object."""

    model_config = STRICT

    type: Literal["text", "json_object"]

    @property
    def response_format(self) -> ResponseFormat | None:
        return None if self.type == "text" else ResponseFormat(type=self.type)


class SchemaFormat(JsonSchema):
    """JSON that matches a schema."""

    type: Literal["json_schema"]

    @property
    def response_format(self) -> ResponseFormat:
        schema = JsonSchema.model_validate(self.model_dump(exclude={"type"}))
        return ResponseFormat(type="json_schema", json_schema=schema)


def _format_kind(given: object) -> str:
    kind = given.get("type") if isinstance(given, dict) else getattr(given, "type", None)
    return "format:schema" if kind == "json_schema" else "format:plain"


class TextOptions(BaseModel):
    """The options of the generated text."""

    model_config = STRICT

    format: (
        Annotated[
            Annotated[PlainFormat, Tag("format:plain")] | Annotated[SchemaFormat, Tag("format:schema")],
            Discriminator(_format_kind),
        ]
        | None
    ) = None
    verbosity: Literal["low", "medium", "high"] | None = None
    """Accepted and not used."""


class ReasoningOptions(BaseModel):
    """The options of the reasoning."""

    model_config = STRICT

    effort: ReasoningEffort | None = None
    summary: Literal["auto", "concise", "detailed", "none"] | None = None
    """Accepted and not used."""
    generate_summary: Literal["auto", "concise", "detailed"] | None = None
    """Accepted and not used."""
    context: Literal["auto"] | None = None
    """Must be `auto`: earlier reasoning is not used."""
    mode: Literal["standard"] | None = None
    """Must be `standard`."""


ResponseTool = Annotated[
    Annotated[FunctionTool, Tag("tool:function")] | Annotated[FreeformTool, Tag("tool:custom")],
    by_type("tool", "function", "custom"),
]


class CreateResponseRequest(HintedRequest):
    """OpenAI's request body."""

    model_config = STRICT

    input: InputItems
    instructions: str | None = None
    """A system message before the input."""
    max_output_tokens: Annotated[int, Ge(1)] | None = None
    temperature: Annotated[float, Ge(0), Le(2)] = 1.0
    top_p: Annotated[float, Gt(0), Le(1)] = 1.0
    tools: Annotated[list[ResponseTool], MaxLen(128)] = Field(default_factory=list)
    tool_choice: Annotated[
        Annotated[Literal["none", "auto", "required"], Tag("choice:mode")] | Annotated[NamedTool, Tag("choice:named")],
        Discriminator(lambda choice: "choice:mode" if isinstance(choice, str) else "choice:named"),
    ] = "auto"
    parallel_tool_calls: bool = True
    text: TextOptions = TextOptions()
    reasoning: ReasoningOptions | None = None
    include: list[Includable] | None = None
    """Accepted and not used."""
    client_metadata: Unused[dict[str, Any]] = None
    """Codex sends it."""
    access_programs: Unused[dict[str, Any]] = None
    truncation: Literal["disabled"] = "disabled"
    background: Literal[False] = False

    @model_validator(mode="after")
    def _check_tool_names(self) -> Self:
        types: dict[str, str] = {}
        for index, tool in enumerate(self.tools):
            if tool.name in types:
                raise ValueError(f"tools[{index}].name: an earlier tool also has the name {tool.name!r}")
            types[tool.name] = tool.type
        choice = self.tool_choice
        if isinstance(choice, NamedTool) and types.get(choice.name, choice.type) != choice.type:
            raise ValueError(f"tool_choice.type: the tool {choice.name!r} has the type {types[choice.name]!r}: use it")
        return self

    @property
    def custom_tools(self) -> frozenset[str]:
        """The names of the tools whose input is a text."""
        return frozenset(tool.name for tool in self.tools if isinstance(tool, FreeformTool))

    @cached_property
    def chat(self) -> ChatRequest:
        """The chat. Raises an `ApiError` (400) for fields that contradict each other."""
        try:
            return ChatRequest(
                messages=[message for _, message in self._messages],
                max_tokens=self.max_output_tokens,
                temperature=self.temperature,
                top_p=self.top_p,
                tools=[tool.tool for tool in self.tools] or None,
                tool_choice=self._tool_choice,
                parallel_tool_calls=self.parallel_tool_calls,
                response_format=None if self.text.format is None else self.text.format.response_format,
                reasoning_effort=self._reasoning_effort,
            )
        except ValidationError as error:
            raise ApiError.from_validation_error(error, rename_field) from error

    @cached_property
    def media(self) -> list[MediaSlot]:
        """The media of the chat, with the paths of their items."""
        return [self._renamed(slot) for slot in find_media_slots(self.chat)]

    @cached_property
    def _messages(self) -> list[tuple[int, ChatMessage]]:
        """The messages, each with the index of its item."""
        given = self.input
        messages = [(0, ChatMessage(role="user", content=given))] if isinstance(given, str) else chat_messages(given)
        if self.instructions is None:
            return messages
        return [(-1, ChatMessage(role="system", content=self.instructions)), *messages]

    @property
    def _tool_choice(self) -> Literal["none", "auto", "required"] | NamedToolChoice | None:
        if isinstance(self.tool_choice, NamedTool):
            return NamedToolChoice(type="function", function=FunctionChoice(name=self.tool_choice.name))
        return None if self.tool_choice == "auto" else self.tool_choice

    @property
    def _reasoning_effort(self) -> ReasoningEffort | None:
        return None if self.reasoning is None else self.reasoning.effort

    def _renamed(self, slot: MediaSlot) -> MediaSlot:
        def rename(path: str) -> str:
            return _MESSAGE.sub(self._item_path, path)

        return replace(slot, path=rename(slot.path), param=rename(slot.param))

    def _item_path(self, found: re.Match[str]) -> str:
        item, message = self._messages[int(found[1])]
        return f"input[{item}].{'output' if message.role == 'tool' else 'content'}"

    def echo(self) -> dict[str, Any]:
        """Returns the fields that the response repeats."""
        return {
            "instructions": self.instructions,
            "max_output_tokens": self.max_output_tokens,
            "metadata": self.metadata or {},
            "model": self.model,
            "parallel_tool_calls": self.parallel_tool_calls,
            "reasoning": None if self.reasoning is None else self.reasoning.model_dump(),
            "temperature": self.temperature,
            "text": {"format": {"type": "text"}} | self.text.model_dump(by_alias=True, exclude_none=True),
            "tool_choice": self.tool_choice if isinstance(self.tool_choice, str) else self.tool_choice.model_dump(),
            "tools": [tool.model_dump() for tool in self.tools],
            "top_p": self.top_p,
            "truncation": self.truncation,
        }


_MESSAGE = re.compile(r"^messages\[(\d+)\]\.content")

_RENAMED = (
    (re.compile(r"^reasoning_effort\b"), "reasoning.effort"),
    (re.compile(r"^response_format(?:\.json_schema)?\b"), "text.format"),
    (re.compile(r"^(tools\[\d+\])\.function\b"), r"\1"),
    (re.compile(r"^messages\b(?:\[\d+\])?(?:\.\w+|\[\d+\])*"), "input"),
    (re.compile(r"^max_(?:completion_)?tokens\b"), "max_output_tokens"),
)
"""The fields of a chat with another name in this operation."""


def rename_field(text: str) -> str:
    """Returns the text with the name of this operation in place of the path of a chat's field at its start."""
    for pattern, name in _RENAMED:
        text, count = pattern.subn(name, text)
        if count:
            return text
    return text
