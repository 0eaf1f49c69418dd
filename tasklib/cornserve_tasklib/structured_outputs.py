"""vLLM's constraints of the generated text."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from annotated_types import MaxLen, MinLen
from pydantic import BaseModel, Field, field_validator, model_validator
from pydantic_core import from_json

from cornserve_tasklib.enforced_schema import EnforcedSchema
from cornserve_tasklib.sampling_fields import STRICT
from cornserve_tasklib.schema import Pattern


class StructuredOutputs(BaseModel):
    """The text that the model may generate, as one of several kinds of constraints."""

    model_config = STRICT | {"frozen": True, "populate_by_name": True, "serialize_by_alias": True}

    json_schema: Annotated[EnforcedSchema | None, Field(alias="json")] = None
    """A JSON schema that the text matches, as an object or as its JSON."""
    json_object: Literal[True] | None = None
    """The text is any JSON object."""
    regex: Pattern | None = None
    """A regular expression that the whole text matches."""
    choice: Annotated[list[Annotated[str, MinLen(1), MaxLen(1000)]], MinLen(1), MaxLen(1000)] | None = None
    """The text is one of these."""
    grammar: Pattern | None = None
    """A context-free grammar in xgrammar's EBNF or in Lark's notation."""

    @field_validator("json_schema", mode="before")
    @classmethod
    def _parse_schema(cls, schema: object) -> object:
        return from_json(schema) if isinstance(schema, str) else schema

    @model_validator(mode="after")
    def _check_kinds(self) -> Self:
        if not self.given:
            raise ValueError("no constraint is set: give one of json, json_object, regex, choice and grammar")
        if len(self.given) > 1:
            raise ValueError(f"{' and '.join(self.given)} are set: give one of them")
        return self

    @property
    def given(self) -> dict[str, Any]:
        """The constraint by its name in requests."""
        return self.model_dump(exclude_none=True)
