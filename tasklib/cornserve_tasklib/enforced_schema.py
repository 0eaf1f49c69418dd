"""Refuses JSON schemas that the engine accepts and does not enforce.

Its compiler of grammars, xgrammar, reads references to other documents as any value, and ignores keywords that it does
not know, that lack the type to which they belong, or that stand next to a reference, a choice or a list of values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator

from cornserve_tasklib.schema import Schema

_UNKNOWN = (
    "$dynamicRef",
    "$recursiveRef",
    "additionalItems",
    "contains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "divisibleBy",
    "else",
    "if",
    "maxContains",
    "minContains",
    "multipleOf",
    "not",
    "then",
    "uniqueItems",
)
"""Keywords that xgrammar ignores."""

_ALLOWS_ALL = {"additionalItems": True, "not": False, "uniqueItems": False}
"""Values with which these keywords have no effect."""

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
_PARTS = {
    "additionalProperties": "object",
    "items": "array",
    "prefixItems": "array",
    "properties": "object",
    "unevaluatedItems": "array",
    "unevaluatedProperties": "object",
}
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

_PATTERN_TOKENS = re.compile(r"\\.|\[(?:\\.|[^]\\])*]?|\(\?<?[=!]|\((?:\?:|\?P?<\w+>)?|.", re.DOTALL)
"""The parts of a regular expression: escapes, classes, beginnings of groups, and other characters."""


_Seen = set[tuple[int, frozenset[str]]]


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


class _Need(NamedTuple):
    """Schemas of which each value of a schema contains values."""

    fewest: int
    """Number of values that have to end."""
    schemas: list[Any]
    """Schemas of one value each."""
    repeated: Iterable[Any] = ()
    """Schemas of any number of values each."""


def find_unenforced(schema: dict[str, Any]) -> UnenforcedPart | None:
    """Returns the first part of a schema that the engine would not enforce."""
    if schema.keys().isdisjoint({*_CONSTRAINTS, *_UNKNOWN, "type"}):
        return UnenforcedPart("", 'the schema allows all values, so it enforces nothing: add a "type"')
    needs: dict[int, list[_Need]] = {}
    positions: dict[int, str] = {}
    seen: _Seen = set()
    for position, part in _parts(schema):
        problem = next(_problems(part, schema, seen, is_name=position.endswith("propertyNames")), None)
        if problem is not None:
            return UnenforcedPart(position, problem)
        positions[id(part)] = position
        needs[id(part)] = list(_needs(part, schema))
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


def _problems(schema: dict[str, Any], root: dict[str, Any], seen: _Seen, *, is_name: bool) -> Iterator[str]:
    """Yields what the engine would not enforce of a schema alone, without its parts.

    Args:
        seen: the alternatives that were found to have only some types.
        is_name: whether it is the schema of the names of properties, which are strings.
    """
    reference = schema.get("$ref")
    if isinstance(reference, str) and _pointer(reference) is None:
        yield f"the reference {reference!r} is not enforced: refer to a part of the schema, such as '#/$defs/NAME'"
    if schema is not root and "$id" in schema:
        yield "'$id' in a part of a schema is not enforced: remove it, and refer to parts from the whole schema"
    for keyword in _UNKNOWN:
        if keyword in schema and schema[keyword] is not _ALLOWS_ALL.get(keyword):
            yield f"{keyword!r} is not enforced: remove it"
    for keyword in ("type", *_CHOICES):
        if schema.get(keyword) == []:
            yield f"an empty {keyword!r} is not enforced: remove it"
    yield from _problems_of_choices(schema, root, seen)
    yield from _problems_of_values(schema)
    if not is_name and schema.keys().isdisjoint(("type", *_CHOICES, *_VALUES, *_PARTS)):
        for keyword, kind in _TYPE_OF.items():
            if keyword in schema:
                yield f'{keyword!r} without a type is not enforced: add "type": "{kind}"'
    yield from _problems_of_objects(schema)
    if "string" in _types(schema) or (is_name and "type" not in schema):
        yield from _problems_of_strings(schema)


def _problems_of_choices(schema: dict[str, Any], root: dict[str, Any], seen: _Seen) -> Iterator[str]:
    choices = [keyword for keyword in _CHOICES if keyword in schema]
    if not choices:
        return
    advice = f"next to {choices[0]!r} is not enforced: move it into the schemas of {choices[0]!r}"
    for keyword in schema:
        if keyword in _CONSTRAINTS and keyword != choices[0]:
            yield f"{keyword!r} {advice}"
    if len(_list(schema, "allOf")) > 1:
        yield "'allOf' with several schemas is not enforced: join them"
    if "type" in schema and not _choose_only(schema, frozenset(_types(schema)), root, seen):
        yield f"'type' {advice}"


def _problems_of_values(schema: dict[str, Any]) -> Iterator[str]:
    values = next((keyword for keyword in _VALUES if keyword in schema), None)
    if values is None:
        return
    types = _types(schema)
    for keyword in schema:
        is_note = keyword == "format" and types and "string" not in types  # Such as `int32`.
        if keyword in _CONSTRAINTS and keyword not in _VALUES and not is_note:
            yield f"{keyword!r} next to {values!r} is not enforced: remove it, and the values that it excludes"
    if "const" in schema and "enum" in schema and schema["const"] not in _list(schema, "enum"):
        yield "'enum' next to 'const' is not enforced: remove one"
    for value in _values(schema):
        if "type" in schema and not _is_of(value, types):
            yield f"the 'type' of the value {value!r} is not enforced: remove the value, or add its type"


def _problems_of_objects(schema: dict[str, Any]) -> Iterator[str]:
    if schema.get("required") and "properties" not in schema:
        yield "'required' without 'properties' is not enforced: add the properties"
    for name in _list(schema, "required"):
        if isinstance(name, str) and name not in _dict(schema, "properties"):
            yield f"the required {name!r} is not enforced: add it to 'properties'"
    if "propertyNames" in schema and "properties" in schema:
        yield "'propertyNames' next to 'properties' is not enforced: remove one"
    if schema.get("unevaluatedProperties") is False and "additionalProperties" not in schema:
        yield "'unevaluatedProperties' is not enforced: use 'additionalProperties'"
    for pattern in _dict(schema, "patternProperties"):
        yield from _problems_of_pattern(pattern)


def _problems_of_strings(schema: dict[str, Any]) -> Iterator[str]:
    pattern = next((keyword for keyword in ("pattern", "format") if keyword in schema), None)
    for keyword in ("minLength", "maxLength"):
        if pattern is not None and keyword in schema:
            yield f"{keyword!r} next to {pattern!r} is not enforced: remove one"
    if isinstance(schema.get("format"), str) and schema["format"] not in _FORMATS:
        yield f"the format {schema['format']!r} is not enforced: use one of {', '.join(_FORMATS)}"
    if isinstance(schema.get("pattern"), str) and "format" not in schema:  # The engine prefers the format.
        yield from _problems_of_pattern(schema["pattern"])


def _problems_of_pattern(pattern: str) -> Iterator[str]:
    tokens: list[str] = _PATTERN_TOKENS.findall(pattern)
    if any(token.startswith("(?") and token[-1] in "=!" for token in tokens):
        yield f"the lookaround in the pattern {pattern!r} is not enforced: use a pattern without it"
    groups = ["(" if token.startswith("(") else token for token in tokens]
    if _anchors_inside(groups, "^", "(", ")") or _anchors_inside(groups[::-1], "$", ")", "("):
        yield f"'^' and '$' inside the pattern {pattern!r} are not enforced: use them at its beginning and end"


def _anchors_inside(tokens: list[str], anchor: str, opening: str, closing: str) -> bool:
    """Returns whether an anchor follows other tokens in any alternative of a pattern."""
    is_inside = False
    groups = [False]  # Whether other tokens come before each open group.
    for token in tokens:
        if token == anchor and is_inside:
            return True
        if token == opening:
            groups.append(is_inside)
        elif token == "|":
            is_inside = groups[-1]
        elif token != anchor:
            is_inside = True
            if token == closing and len(groups) > 1:
                groups.pop()
    return False


def _types(schema: dict[str, Any]) -> list[str]:
    """Returns the types in a schema. An empty list means any type."""
    types = schema.get("type", [])
    return [kind for kind in (types if isinstance(types, list) else [types]) if isinstance(kind, str)]


def _values(schema: dict[str, Any]) -> list[Any]:
    return [schema["const"]] if "const" in schema else _list(schema, "enum")


def _is_of(value: Any, types: Iterable[str]) -> bool:
    match value:
        case None:
            return "null" in types
        case bool():
            return "boolean" in types
        case int() | float():
            return "number" in types or ("integer" in types and (isinstance(value, int) or value.is_integer()))
        case str():
            return "string" in types
        case list():
            return "array" in types
    return "object" in types


def _choose_only(schema: dict[str, Any], types: frozenset[str], root: dict[str, Any], seen: _Seen) -> bool:
    """Returns whether all values of the alternatives of a schema have one of the types."""
    allowed = types | {"integer"} if "number" in types else types
    waiting = _alternatives(schema, root)
    while waiting:
        part = waiting.pop()
        if (id(part), types) in seen:
            continue
        seen.add((id(part), types))
        if not isinstance(part, dict):
            return False
        if "type" in part:  # Its own alternatives are checked with it.
            if not allowed.issuperset(_types(part)):
                return False
        elif alternatives := _alternatives(part, root):
            waiting += alternatives
        elif not part.keys().isdisjoint(_VALUES):
            if not all(_is_of(value, types) for value in _values(part)):
                return False
        else:
            kinds = {kind for keyword, kind in _PARTS.items() if keyword in part}
            if not kinds or not kinds <= allowed:
                return False
    return True


def _alternatives(schema: dict[str, Any], root: dict[str, Any]) -> list[Any]:
    chosen = [part for keyword in _CHOICES for part in _list(schema, keyword)]
    return [*(part for _, part in _referenced(schema, root)), *chosen]


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


def _needs(schema: dict[str, Any], root: dict[str, Any]) -> Iterator[_Need]:
    """Yields what each value of the schema has values of."""
    if alternatives := _alternatives(schema, root):
        yield _Need(1, alternatives)
        return
    if not schema.keys().isdisjoint(_VALUES) or not {"array", "object"}.issuperset(_types(schema)):
        return  # Some values contain no others.
    properties = _dict(schema, "properties")
    required = {name for name in _list(schema, "required") if isinstance(name, str) and name in properties}
    yield from (_Need(1, [properties[name]]) for name in required)
    optional = [part for name, part in properties.items() if name not in required]
    others = [
        *_dict(schema, "patternProperties").values(),
        _first(schema, "additionalProperties", "unevaluatedProperties"),
    ]
    repeated = [part for part in others if part is not None and part is not False]
    missing = min(_number(schema, "minProperties") - len(required), len(optional) + bool(repeated))
    if missing > 0:
        yield _Need(missing, optional, repeated)
    prefix = _list(schema, "prefixItems")
    count = _number(schema, "minItems")
    yield from (_Need(1, [part]) for part in prefix[:count])
    if count > len(prefix):
        yield _Need(1, [_first(schema, "items", "unevaluatedItems")])


def _without_end(needs: dict[int, list[_Need]]) -> Iterable[int]:
    """Returns the schemas whose values would contain values of themselves without end, in order."""
    users: dict[int, list[tuple[int, list[int], int]]] = {}
    unmet = {part: len(found) for part, found in needs.items()}
    others = id(None)  # Stands for parts such as `true`, which end.
    for user, found in needs.items():
        for need in found:
            missing = [need.fewest]
            for parts, count in ((need.schemas, 1), (need.repeated, need.fewest)):
                for part in parts:
                    users.setdefault(id(part) if isinstance(part, dict) else others, []).append((user, missing, count))
    ending = [others, *(part for part, count in unmet.items() if not count)]
    while ending:
        part = ending.pop()
        unmet.pop(part, None)
        for user, missing, count in users.get(part, ()):
            if missing[0] > 0:
                missing[0] -= count
                if missing[0] <= 0:
                    unmet[user] -= 1
                    if not unmet[user]:
                        ending.append(user)
    return unmet


def _first(schema: dict[str, Any], *keywords: str) -> Any:
    return next((schema[keyword] for keyword in keywords if keyword in schema), None)


def _number(schema: dict[str, Any], keyword: str) -> int:
    found = schema.get(keyword)
    return max(found, 0) if isinstance(found, int) else 0


def _list(schema: dict[str, Any], keyword: str) -> list[Any]:
    found = schema.get(keyword)
    return found if isinstance(found, list) else []


def _dict(schema: dict[str, Any], keyword: str) -> dict[str, Any]:
    found = schema.get(keyword)
    return found if isinstance(found, dict) else {}
