"""Structural schemas of custom resources, from pydantic models.

A structural schema has no references and no alternatives of types. Optional fields are absent, not null. Defaults are
left out unless listed: the API server would write them into the users' objects.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.alias_generators import to_camel

from cornserve.app.spec_rules import SpecModel
from cornserve.kubernetes.resources import JsonObject
from cornserve.kubernetes_resources.camel_case import camel_case

_KEPT = {
    "description", "enum", "format", "items", "maxItems", "maxLength", "maxProperties", "maximum", "minItems",
    "minLength", "minProperties", "minimum", "pattern", "properties", "required", "type",
}  # fmt: skip
"""The keywords of JSON schema that CRDs have as well. Others describe Python's view of the model."""


def structural_schema(model: type[BaseModel]) -> JsonObject:
    """Returns the schema of the model with camelCase names, and with its docstrings as descriptions."""
    document = camel_case(model).model_json_schema()
    documented = {found.__name__: found for found in _models(model)}
    definitions = {
        name: _with_descriptions(definition, documented[name])
        for name, definition in document.pop("$defs", {}).items()
        if name in documented
    }
    return _structural(_with_descriptions(document, model), definitions)


def _structural(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> JsonObject:
    schema = _resolved(schema, definitions)
    result: JsonObject = {}
    for keyword, value in schema.items():
        match keyword:
            case "properties":
                result[keyword] = {name: _structural(field, definitions) for name, field in value.items()}
            case "items":
                result[keyword] = _structural(value, definitions)
            case "const":
                result["enum"] = [value]
            case "additionalProperties" if value is not False:
                if value is True or value.get("$ref", "").endswith("/JsonValue"):
                    result["x-kubernetes-preserve-unknown-fields"] = True
                else:
                    result[keyword] = _structural(value, definitions)
            case "patternProperties":  # CRDs cannot restrict the names in a map
                (values,) = value.values()
                result["additionalProperties"] = _structural(values, definitions)
            case _ if keyword in _KEPT or keyword.startswith("x-kubernetes-"):
                result[keyword] = value
    if result.get("type") == "array":
        result.setdefault("x-kubernetes-list-type", "atomic")
    if result.get("type") == "integer":
        result["format"] = "int32" if schema.get("maximum", 2**63) < 2**31 else "int64"
    return result


def _resolved(schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Replaces a reference with the definition, and an optional value with the value."""
    outer = {keyword: value for keyword, value in schema.items() if keyword not in ("$ref", "anyOf", "allOf")}
    if "$ref" in schema:
        return _resolved(definitions[schema["$ref"].rpartition("/")[2]], definitions) | outer
    alternatives = [value for value in schema.get("anyOf", []) if value != {"type": "null"}]
    if not alternatives:
        return dict(schema)
    if len(alternatives) > 1:
        raise ValueError(f"a CRD cannot have alternatives of types: {schema}")
    return _resolved(alternatives[0], definitions) | outer


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yields the model and all models in its fields."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
        for field in annotation.model_fields.values():
            yield from _models(field.annotation)
    for argument in get_args(annotation):
        yield from _models(argument)


def _with_descriptions(schema: Mapping[str, Any], model: type[BaseModel]) -> JsonObject:
    documentation: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, BaseModel) and base is not BaseModel:
            documentation |= _attribute_docstrings(base)
    properties = {
        name: field | ({"description": documentation[name]} if name in documentation else {})
        for name, field in schema.get("properties", {}).items()
    }
    described = {**schema, "description": _one_line(model.__doc__ or ""), "properties": properties}
    if issubclass(model, SpecModel) and model.rules:
        described["x-kubernetes-validations"] = [rule.validation for rule in model.rules]
    return described


def _attribute_docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Returns the docstrings below the fields of a class, by the fields' camelCase names."""
    (definition,) = ast.parse(inspect.getsource(model)).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for field, docstring in zip(definition.body, definition.body[1:], strict=False):
        match field, docstring:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                found[to_camel(name)] = _one_line(text)
    return found


def _one_line(text: str) -> str:
    return " ".join(text.split())
