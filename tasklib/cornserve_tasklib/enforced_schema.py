"""Refuses JSON schemas that the engine accepts and does not enforce.

Its compiler of grammars, xgrammar, reads references to other documents as any value, and ignores keywords that it does
not know, that lack the type to which they belong, or that stand next to a reference or a choice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator

from cornserve_tasklib.schema import Schema

_UNKNOWN = (
    "$dynamicRef",
    "$recursiveRef",
    "contains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "else",
    "if",
    "multipleOf",
    "not",
    "then",
    "uniqueItems",
)
"""Keywords that xgrammar ignores."""

_TYPE_OF = {
    "format": "string",
    "maxLength": "string",
    "minLength": "string",
    "pattern": "string",
    "exclusiveMaximum": "number",
    "exclusiveMinimum": "number",
    "maximum": "number",
    "minimum": "number",
    "maxItems": "array",
    "minItems": "array",
    "maxProperties": "object",
    "minProperties": "object",
    "patternProperties": "object",
    "propertyNames": "object",
    "required": "object",
}
"""Keywords that xgrammar ignores without the type."""

_CHOICES = ("$ref", "allOf", "anyOf", "oneOf")
"""Keywords next to which xgrammar ignores all others."""

_VALUES = ("const", "enum")
_PARTS = ("additionalProperties", "items", "prefixItems", "properties", "unevaluatedItems", "unevaluatedProperties")
"""Keywords that also determine the type."""

_CONSTRAINTS = frozenset((*_TYPE_OF, *_CHOICES, *_VALUES, *_PARTS))

_FORMATS = (
    "date",
    "date-time",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "json-pointer",
    "relative-json-pointer",
    "time",
    "uri",
    "uri-reference",
    "uri-template",
    "uuid",
)
"""The formats of strings that xgrammar knows."""

_SINGLE_PARTS = ("additionalProperties", "items", "propertyNames", "unevaluatedItems", "unevaluatedProperties")
_LISTED_PARTS = ("allOf", "anyOf", "oneOf", "prefixItems")
_NAMED_PARTS = ("patternProperties", "properties")


class UnenforcedPart(NamedTuple):
    """A part of a schema that the engine would not enforce."""

    position: str
    """The position in the schema, such as `properties.name`, or an empty text for the schema itself."""
    problem: str

    def message(self, schema: str = "") -> str:
        """Returns the message of an error, which begins with the position if there is one.

        Args:
            schema: the position of the schema.
        """
        position = ".".join(filter(None, (schema, self.position)))
        return f"{position}: {self.problem}" if position else self.problem


def find_unenforced(schema: dict[str, Any]) -> UnenforcedPart | None:
    """Returns the first part of a schema that the engine would not enforce."""
    if schema.keys().isdisjoint({*_CONSTRAINTS, *_UNKNOWN, "type"}):
        return UnenforcedPart("", 'the schema allows all values, so it enforces nothing: add a "type"')
    needs: dict[int, list[int]] = {}
    positions: dict[int, str] = {}
    for position, part in _parts(schema):
        problem = next(_problems(part, is_name=position.endswith("propertyNames")), None)
        if problem is not None:
            return UnenforcedPart(position, problem)
        positions[id(part)] = position
        needs[id(part)] = [id(needed) for needed in _needed_parts(part, schema) if isinstance(needed, dict)]
    endless = next(iter(_without_end(needs)), None)
    if endless is None:
        return None
    problem = "the schema needs itself again and again, so no text ends it: make a property in it optional"
    return UnenforcedPart(positions[endless], problem)


def _check_enforced(schema: dict[str, Any]) -> dict[str, Any]:
    if (found := find_unenforced(schema)) is not None:
        raise ValueError(found.message())
    return schema


EnforcedSchema = Annotated[Schema, AfterValidator(_check_enforced)]
"""A schema that the generated text follows."""


def _problems(schema: dict[str, Any], *, is_name: bool) -> Iterator[str]:
    """Yields what the engine would not enforce of a schema alone, without its parts.

    Args:
        is_name: whether it is the schema of the names of properties, which are strings.
    """
    reference = schema.get("$ref")
    if isinstance(reference, str) and _pointer(reference) is None:
        yield f"the reference {reference!r} is not enforced: refer to a part of the schema, such as '#/$defs/NAME'"
    for keyword in _UNKNOWN:
        if schema.get(keyword, False) is not False:
            yield f"{keyword!r} is not enforced: remove it"
    choices = [keyword for keyword in _CHOICES if keyword in schema]
    ignored = [keyword for keyword in schema if choices and keyword in _CONSTRAINTS and keyword != choices[0]]
    if ignored:
        yield f"{ignored[0]!r} next to {choices[0]!r} is not enforced: move it into the schemas of {choices[0]!r}"
    if isinstance(schema.get("allOf"), list) and len(schema["allOf"]) > 1:
        yield "'allOf' with several schemas is not enforced: join them"
    if not is_name and schema.keys().isdisjoint(("type", *_CHOICES, *_VALUES, *_PARTS)):
        for keyword, kind in _TYPE_OF.items():
            if keyword in schema:
                yield f'{keyword!r} without a type is not enforced: add "type": "{kind}"'
    pattern = next((keyword for keyword in ("pattern", "format") if keyword in schema), None)
    for keyword in ("minLength", "maxLength"):
        if pattern is not None and keyword in schema:
            yield f"{keyword!r} next to {pattern!r} is not enforced: remove one"
    if schema.get("required") and schema.keys().isdisjoint(("properties", *_CHOICES, *_VALUES)):
        yield "'required' without 'properties' is not enforced: add the properties"
    if isinstance(schema.get("format"), str) and _is_string(schema) and schema["format"] not in _FORMATS:
        yield f"the format {schema['format']!r} is not enforced: use one of {', '.join(_FORMATS)}"


def _is_string(schema: dict[str, Any]) -> bool:
    kind = schema.get("type")
    return kind == "string" or (isinstance(kind, list) and "string" in kind)


def _parts(root: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the schema and all schemas in it that it uses, once each, with their positions."""
    waiting: list[tuple[str, Any]] = [("", root)]
    seen: set[int] = set()
    while waiting:
        position, schema = waiting.pop()
        if isinstance(schema, dict) and id(schema) not in seen:
            seen.add(id(schema))
            yield position, schema
            parts = [(f"{position}{name}".removeprefix("."), part) for name, part in _direct_parts(schema)]
            waiting += reversed([*parts, *_referenced(schema, root)])


def _direct_parts(schema: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for keyword in _SINGLE_PARTS:
        if keyword in schema:
            yield f".{keyword}", schema[keyword]
    for keyword in _LISTED_PARTS:
        for index, part in enumerate(_list(schema, keyword)):
            yield f".{keyword}[{index}]", part
    for keyword in _NAMED_PARTS:
        for name, part in _dict(schema, keyword).items():
            yield f".{keyword}.{name}", part


def _referenced(schema: dict[str, Any], root: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields the part to which the schema refers. The engine refuses references to parts that do not exist."""
    reference = schema.get("$ref")
    pointer = _pointer(reference) if isinstance(reference, str) else None
    if pointer is not None:
        part: Any = root
        for name in pointer:
            part = part.get(name) if isinstance(part, dict) else None
        yield ".".join(pointer), part


def _pointer(reference: str) -> list[str] | None:
    """Returns the names on the path to a part of the same schema, or None for any other reference."""
    if reference == "#":
        return []
    names = reference.removeprefix("#/").split("/")
    return names if reference.startswith("#/") and all(names) else None


def _needed_parts(schema: dict[str, Any], root: dict[str, Any]) -> Iterator[Any]:
    """Yields the schemas that each value of the schema has values of."""
    yield from (part for _, part in _referenced(schema, root))
    yield from _list(schema, "allOf")
    for keyword in ("anyOf", "oneOf"):
        if len(alternatives := _list(schema, keyword)) == 1:
            yield alternatives[0]
    properties = _dict(schema, "properties")
    yield from (properties[name] for name in _list(schema, "required") if isinstance(name, str) and name in properties)
    if schema.get("minItems"):
        yield schema.get("items")


def _without_end(needs: dict[int, list[int]]) -> Iterable[int]:
    """Returns the schemas whose values would contain values of themselves without end, in order."""
    users: dict[int, list[int]] = {}
    for user, needed in needs.items():
        for part in needed:
            users.setdefault(part, []).append(user)
    missing = {part: len(needed) for part, needed in needs.items()}
    ending = [part for part, count in missing.items() if not count]
    while ending:
        part = ending.pop()
        del missing[part]
        for user in users.get(part, ()):
            missing[user] -= 1
            if not missing[user]:
                ending.append(user)
    return missing


def _list(schema: dict[str, Any], keyword: str) -> list[Any]:
    found = schema.get(keyword)
    return found if isinstance(found, list) else []


def _dict(schema: dict[str, Any], keyword: str) -> dict[str, Any]:
    found = schema.get(keyword)
    return found if isinstance(found, dict) else {}
