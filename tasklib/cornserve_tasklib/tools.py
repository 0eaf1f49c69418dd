"""The functions that a model may ask for, and the form that its answer must have."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from annotated_types import MaxLen
from pydantic import BaseModel, Discriminator, Field, StringConstraints, Tag, model_validator

from cornserve_tasklib.messages import FunctionName
from cornserve_tasklib.sampling import STRICT
from cornserve_tasklib.schema import Schema


class Function(BaseModel):
    model_config = STRICT

    name: FunctionName
    description: str | None = None
    parameters: Schema | None = None
    """Of its arguments, which are an object. Without: it has none."""
    strict: bool | None = None


class Tool(BaseModel):
    model_config = STRICT

    type: Literal["function"]
    function: Function


class FunctionChoice(BaseModel):
    model_config = STRICT

    name: FunctionName


class NamedToolChoice(BaseModel):
    """The one function that must be called."""

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
    model_config = STRICT | {"populate_by_name": True, "serialize_by_alias": True}

    name: Annotated[str, StringConstraints(min_length=1, max_length=64)]
    description: str | None = None
    json_schema: Annotated[Schema, Field(alias="schema")]
    strict: bool | None = None


class ResponseFormat(BaseModel):
    model_config = STRICT

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    @model_validator(mode="after")
    def _schema_if_and_only_if_it_is_used(self) -> Self:
        if (self.type == "json_schema") != (self.json_schema is not None):
            raise ValueError('json_schema goes with type "json_schema"')
        return self
