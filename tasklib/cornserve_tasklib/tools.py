"""Tools that a model may call, and formats of its response."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from annotated_types import MaxLen
from pydantic import BaseModel, Discriminator, Field, StringConstraints, Tag, model_validator

from cornserve_tasklib.enforced_schema import EnforcedSchema
from cornserve_tasklib.messages import FunctionName
from cornserve_tasklib.sampling_fields import STRICT
from cornserve_tasklib.schema import Schema


class Function(BaseModel):
    """A function that the model may call."""

    model_config = STRICT

    name: FunctionName
    """The name of the function."""
    description: str | None = None
    """The purpose of the function, for the model."""
    parameters: Schema | None = None
    """The JSON schema of the arguments, an object. By default, the function has no arguments."""
    strict: bool | None = None
    """Whether the generated arguments must match the schema."""


class Tool(BaseModel):
    """A tool of a chat request."""

    model_config = STRICT

    type: Literal["function"]
    function: Function


class FunctionChoice(BaseModel):
    """The name of a function to call."""

    model_config = STRICT

    name: FunctionName


class NamedToolChoice(BaseModel):
    """A function that the model must call."""

    model_config = STRICT

    type: Literal["function"]
    function: FunctionChoice


ToolChoice = Annotated[
    Annotated[Literal["none", "auto", "required"], Tag("choice:mode")]
    | Annotated[NamedToolChoice, Tag("choice:named")],
    Discriminator(lambda choice: "choice:mode" if isinstance(choice, str) else "choice:named"),
]

Tools = Annotated[list[Tool], MaxLen(128)]


class JsonSchema(BaseModel):
    """A JSON schema that the response must match."""

    model_config = STRICT | {"populate_by_name": True, "serialize_by_alias": True}

    name: Annotated[str, StringConstraints(min_length=1, max_length=64)]
    description: str | None = None
    json_schema: Annotated[EnforcedSchema, Field(alias="schema")]
    strict: bool | None = None


class ResponseFormat(BaseModel):
    """The format of the generated text: any text, a JSON object, or JSON that matches a schema."""

    model_config = STRICT

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    @model_validator(mode="after")
    def _check_schema(self) -> Self:
        if (self.type == "json_schema") != (self.json_schema is not None):
            state = "missing for" if self.json_schema is None else "only allowed for"
            raise ValueError(f'json_schema: {state} the type "json_schema"')
        return self
