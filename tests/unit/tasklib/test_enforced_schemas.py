"""Schemas that the engine would accept without enforcing them are refused by position."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from pydantic import ValidationError

from cornserve.validation_errors import describe_error, locate_error
from cornserve_tasklib.chat_request import ChatRequest
from cornserve_tasklib.completion import CompletionRequest

ANY_OBJECT = {"type": "object", "properties": {}}
NUMBER = {"type": "integer"}
ENDLESS = {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}


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
