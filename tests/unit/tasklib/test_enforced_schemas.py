"""Schemas that the engine would accept without enforcing them are refused by position."""

from __future__ import annotations

from enum import Enum
from itertools import pairwise
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cornserve.validation_errors import describe_error, locate_error
from cornserve_tasklib.chat_request import ChatRequest
from cornserve_tasklib.completion import CompletionRequest

ANY_OBJECT = {"type": "object", "properties": {}}
NUMBER = {"type": "integer"}
ENDLESS = {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}
AGAIN: dict[str, Any] = {"$ref": "#"}
TEXT = {"type": "string"}


class RoofColor(Enum):
    RED = "red"
    BLUE = "blue"


class Cat(BaseModel):
    kind: Literal["cat"] = "cat"
    lives: int = Field(default=9, ge=1, le=9)


class Dog(BaseModel):
    kind: Literal["dog"]
    name: Annotated[str, Field(min_length=1, max_length=20)]


class House(BaseModel):
    """Model like those of usual clients, with other models, lists, choices and optional values."""

    model_config = ConfigDict(extra="forbid")

    size: float | None = None
    color: RoofColor = RoofColor.RED
    sign: Literal[1, -1]
    mood: Literal["calm", None] = None
    code: str = Field(pattern=r"^[A-Z]{2}\d+$", description="Such as AB12.")
    pets: list[Cat | Dog] = Field(min_length=1)
    first: Annotated[Cat | Dog, Field(discriminator="kind")]
    place: tuple[int, str]
    notes: dict[str, int] = {}
    rooms: list[House] = []
    next: House | None = None


def of(part: Any, **others: Any) -> dict[str, Any]:
    """Returns the schema of an object with one property."""
    return {"type": "object", "properties": {"a": part}, "required": ["a"], **others}


def chat(**fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "x"}], **fields}


def formatted(schema: Any, **others: Any) -> dict[str, Any]:
    return chat(response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema, **others}})


def with_tool(schema: Any, **function: Any) -> dict[str, Any]:
    functions = [{"name": "ok", "strict": True}, {"name": "x", "parameters": schema, **function}]
    return chat(tools=[{"type": "function", "function": function} for function in functions])


def problem_of(request_type: Any, fields: dict[str, Any]) -> tuple[str, str]:
    """Returns the path of the refused field and the message."""
    with pytest.raises(ValidationError) as caught:
        request_type.model_validate(fields)
    (error,) = caught.value.errors()
    located = locate_error(error)
    return ".".join(map(str, located["loc"])), describe_error(located)


@pytest.mark.parametrize(
    ("schema", "position", "message"),
    [
        ({"$ref": "file:///etc/passwd"}, "", "the reference 'file:///etc/passwd' is not enforced: refer to a part of"),
        (of({"$ref": "http://example.com/a.json"}), "properties.a", "the reference 'http://example.com/a.json'"),
        (of({"$ref": "other.json#/$defs/a"}), "properties.a", "the reference 'other.json#/$defs/a'"),
        (of({"$ref": "#anchor"}), "properties.a", "the reference '#anchor'"),
        (of({"$ref": "#/$defs/"}), "properties.a", "the reference '#/$defs/'"),
        (of({"$ref": "#/$defs/b"}, **{"$defs": {"b": {"$ref": "c.json"}}}), "$defs.b", "the reference 'c.json'"),
        (of({"type": "array", "items": {"$dynamicRef": "#b"}}), "properties.a.items", "'$dynamicRef' is not enforced"),
        (of({"anyOf": [NUMBER, {"type": "string", "not": {"const": ""}}]}), "properties.a.anyOf.1", "'not' is not"),
        (of(NUMBER, dependentRequired={"a": ["b"]}), "", "'dependentRequired' is not enforced: remove it"),
        (of({"type": "array", "uniqueItems": True}), "properties.a", "'uniqueItems' is not enforced"),
        (of({"minLength": 3}), "properties.a", '\'minLength\' without a type is not enforced: add "type": "string"'),
        (
            of({"type": "string", "pattern": "a", "maxLength": 3}),
            "properties.a",
            "'maxLength' next to 'pattern' is not",
        ),
        (
            of({"type": "string", "format": "iban"}),
            "properties.a",
            "the format 'iban' is not enforced: use one of date",
        ),
        (of(NUMBER, anyOf=[ANY_OBJECT]), "", "'properties' next to 'anyOf' is not enforced: move it into"),
        (
            of({"$ref": "#/$defs/b", "minimum": 5}, **{"$defs": {"b": NUMBER}}),
            "properties.a",
            "'minimum' next to '$ref'",
        ),
        (of({"allOf": [NUMBER, {"type": "integer", "minimum": 5}]}), "properties.a", "'allOf' with several schemas"),
        ({"type": "object", "required": ["a"]}, "", "'required' without 'properties' is not enforced"),
        ({}, "", "the schema allows all values, so it enforces nothing"),
        ({"title": "Any"}, "", "the schema allows all values, so it enforces nothing"),
        ({"$ref": "#"}, "", "the schema needs itself again and again, so no text ends it"),
        (ENDLESS, "", "the schema needs itself again and again"),
        (
            of({"type": "array", "minItems": 1, "items": {"$ref": "#/properties/a"}}),
            "",
            "the schema needs itself again and again",
        ),
        ({"anyOf": [AGAIN, AGAIN]}, "", "the schema needs itself again and again"),
        ({"type": "array", "items": {"anyOf": [AGAIN, AGAIN]}, "minItems": 1}, "", "the schema needs itself again"),
        (
            of({"anyOf": [AGAIN, {"$ref": "#/$defs/b"}]}, **{"$defs": {"b": {"$ref": "#"}}}),
            "",
            "the schema needs itself again and again",
        ),
        ({"type": "array", "prefixItems": [AGAIN], "minItems": 1}, "", "the schema needs itself again and again"),
        ({"type": "array", "prefixItems": [NUMBER], "items": AGAIN, "minItems": 2}, "", "the schema needs itself"),
        (
            {"type": "object", "properties": {"a": AGAIN}, "minProperties": 1, "additionalProperties": False},
            "",
            "the schema needs itself again and again",
        ),
        ({"type": "object", "patternProperties": {"^a": AGAIN}, "minProperties": 1}, "", "the schema needs itself"),
        ({"type": "object", "additionalProperties": AGAIN, "minProperties": 1}, "", "the schema needs itself again"),
        (of(NUMBER, minProperties=2, additionalProperties=AGAIN), "", "the schema needs itself again and again"),
        (of({"enum": ["a", "bb"], "minLength": 2}), "properties.a", "'minLength' next to 'enum' is not enforced"),
        (of({"type": "integer", "enum": [1, 20], "maximum": 10}), "properties.a", "'maximum' next to 'enum'"),
        (of({"const": {}, "required": ["a"]}), "properties.a", "'required' next to 'const' is not enforced"),
        (of({"type": "string", "enum": ["a", 1]}), "properties.a", "the 'type' of the value 1 is not enforced"),
        (of({"type": "integer", "const": 1.5}), "properties.a", "the 'type' of the value 1.5 is not enforced"),
        (of({"type": "integer", "const": True}), "properties.a", "the 'type' of the value True is not enforced"),
        (of({"const": 1, "enum": [2]}), "properties.a", "'enum' next to 'const' is not enforced"),
        (of({"type": "string", "anyOf": [NUMBER, TEXT]}), "properties.a", "'type' next to 'anyOf' is not enforced"),
        (of({"type": "string", "allOf": [NUMBER]}), "properties.a", "'type' next to 'allOf' is not enforced"),
        (of({"type": "string", "oneOf": [{"enum": ["a", 1]}]}), "properties.a", "'type' next to 'oneOf'"),
        (of({"type": "object", "anyOf": [{}]}), "properties.a", "'type' next to 'anyOf' is not enforced"),
        (
            of({"type": "string", "$ref": "#/$defs/b"}, **{"$defs": {"b": {"$ref": "#/$defs/c"}, "c": NUMBER}}),
            "properties.a",
            "'type' next to '$ref' is not enforced: move it into",
        ),
        (of({"type": "string", "allOf": []}), "properties.a", "an empty 'allOf' is not enforced"),
        ({"type": []}, "", "an empty 'type' is not enforced: remove it"),
        (of({"type": "string", "pattern": "^(?!a)[a-z]+$"}), "properties.a", "the lookaround in the pattern '^(?!a)"),
        (of({"type": "string", "pattern": "(?<=a)b"}), "properties.a", "the lookaround in the pattern"),
        (of({"type": "string", "pattern": "a^b"}), "properties.a", "'^' and '$' inside the pattern 'a^b' are not"),
        (of({"type": "string", "pattern": "^(a$)b"}), "properties.a", "'^' and '$' inside the pattern '^(a$)b'"),
        ({"type": "object", "patternProperties": {"^(?=a)b": NUMBER}}, "", "the lookaround in the pattern"),
        (
            {"type": "object", "propertyNames": {"pattern": "(?!a)b"}},
            "propertyNames",
            "the lookaround in the pattern '(?!a)b' is not enforced",
        ),
        (of(NUMBER, required=["a", "b"]), "", "the required 'b' is not enforced: add it to 'properties'"),
        (of(NUMBER, required=["b"], additionalProperties=NUMBER), "", "the required 'b' is not enforced"),
        (of(NUMBER, unevaluatedProperties=False), "", "'unevaluatedProperties' is not enforced: use"),
        (of(NUMBER, propertyNames={"maxLength": 2}), "", "'propertyNames' next to 'properties' is not enforced"),
        (of({"$id": "http://z/", "type": "integer"}), "properties.a", "'$id' in a part of a schema is not enforced"),
        (of({"type": "array", "minContains": 2}), "properties.a", "'minContains' is not enforced: remove it"),
        (
            of({"type": "array", "prefixItems": [NUMBER], "additionalItems": False}),
            "properties.a",
            "'additionalItems' is not enforced: remove it",
        ),
        (of({"type": "integer", "divisibleBy": 2}), "properties.a", "'divisibleBy' is not enforced: remove it"),
    ],
)
def test_a_schema_is_refused_wherever_it_is_enforced(schema: dict[str, Any], position: str, message: str) -> None:
    def check(found: tuple[str, str], path: str) -> None:
        assert found[0] == ".".join(filter(None, (path, position)))
        assert found[1].startswith(message)

    check(problem_of(ChatRequest, formatted(schema)), "response_format.json_schema.schema")
    check(problem_of(ChatRequest, formatted(schema, strict=False)), "response_format.json_schema.schema")
    check(problem_of(ChatRequest, chat(structured_outputs={"json": schema})), "structured_outputs.json")
    check(
        problem_of(CompletionRequest, {"prompt": "x", "structured_outputs": {"json": schema}}),
        "structured_outputs.json",
    )
    if schema:  # A function without parameters has no arguments.
        check(problem_of(ChatRequest, with_tool(schema, strict=True)), "tools.1.function.parameters")
    assert ChatRequest.model_validate(with_tool(schema)).tools  # Without `strict`, it only describes the arguments.


@pytest.mark.parametrize(
    "schema",
    [
        of(NUMBER),
        of({"$ref": "#/$defs/b"}, **{"$defs": {"b": NUMBER, "unused": {"not": {}}}}),
        of({"$ref": "#/definitions/b", "description": "b", "default": 1}, definitions={"b": NUMBER}),
        {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}, "required": ["next"]},
        {"type": "object", "properties": {"next": {"$ref": "#"}}},
        of({"type": "array", "items": {"$ref": "#"}}),
        of({"type": "string", "enum": ["$ref"], "default": {"$ref": "x"}}),
        {"type": "object", "properties": {"$ref": {"type": "string"}, "not": NUMBER, "minLength": NUMBER}},
        of({}),
        of({"type": "object", "propertyNames": {"pattern": "^b$"}}),
        of({"const": 1}),
        {"properties": {"a": NUMBER}, "required": ["a"]},
        of({"type": ["integer", "null"], "minimum": 5}),
        of({"oneOf": [NUMBER, {"type": "string"}], "discriminator": {"propertyName": "kind"}, "title": "A"}),
        of({"type": "array", "uniqueItems": False}),
        of({"type": "integer", "format": "int32"}),
        of({"type": "integer", "format": "int32", "enum": [1, 2.0]}),
        of({"type": ["string", "null"], "enum": ["a", None]}),
        of({"type": "string", "const": "a", "enum": ["a"], "title": "A", "default": "a"}),
        of({"type": "object", "anyOf": [ANY_OBJECT, {"properties": {"b": NUMBER}}, {"$ref": "#"}, {"const": {}}]}),
        of({"type": ["number", "null"], "oneOf": [NUMBER, {"type": "null"}, {"enum": [1.5]}]}),
        of({"type": ["object", "null"], "properties": {"b": AGAIN}, "required": ["b"]}),
        of({"anyOf": [AGAIN, True]}),
        of({"type": "object", "properties": {"b": AGAIN, "c": NUMBER}, "minProperties": 1}),
        of({"type": "object", "additionalProperties": {}, "minProperties": 3}),
        of({"type": "array", "prefixItems": [AGAIN]}),
        of({"type": "array", "prefixItems": [NUMBER], "items": AGAIN, "minItems": 1}),
        of({"type": "array", "prefixItems": [NUMBER], "additionalItems": True}),
        *(
            of({"type": "string", "pattern": pattern})
            for pattern in (r"^\^[^$^]\$$", "^$|^(?:a|b)+$", r"(^a$)|(^\(?!)")
        ),
        of({"type": "string", "format": "email", "pattern": r"^(?!\.)[a-z.]+@[a-z.]+$"}),
        {"$id": "http://x/y", "type": "object", "properties": {"$id": TEXT, "propertyNames": NUMBER}},
        {"type": "object", "propertyNames": TEXT, "additionalProperties": {}},
        House.model_json_schema(),
        House.model_json_schema(mode="serialization"),
    ],
)
def test_a_schema_that_the_engine_enforces_is_accepted(schema: dict[str, Any]) -> None:
    assert ChatRequest.model_validate(formatted(schema, strict=True)).response_format
    assert ChatRequest.model_validate(with_tool(schema, strict=True)).tools


def test_a_long_chain_of_references_is_checked() -> None:
    names = [f"n{number}" for number in range(1500)]
    definitions = {name: {"$ref": f"#/$defs/{after}"} for name, after in pairwise(names)}
    schema = of({"$ref": "#/$defs/n0"}, **{"$defs": definitions | {names[-1]: {"$ref": "far.json"}}})

    found = problem_of(ChatRequest, formatted(schema))

    assert found[0] == f"response_format.json_schema.schema.$defs.{names[-1]}"
