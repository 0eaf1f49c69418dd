"""Limits on the JSON schemas and patterns in requests. The engine compiles each to a grammar, which can take long."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any

from annotated_types import MinLen
from pydantic import AfterValidator
from pydantic_core import to_json

MAX_BYTES = 64 << 10
"""Maximum size of a schema."""

MAX_COUNTED_PROPERTIES = 100
"""Maximum number of properties of objects with `minProperties` or `maxProperties`.

The grammar has a rule for each pair of a property and a count. vLLM's compiler takes a second for a hundred properties,
and many minutes for a thousand."""

MAX_REPETITIONS = 1000
"""Maximum number of repetitions in patterns.

The compiler expands repetitions: `(foo|bar){1,1000}` takes a second, `(foo|bar){1,3000}` ten seconds."""

_REPETITIONS = re.compile(r"\{(\d+)(?:,(\d*))?\}")


def _check_limits(schema: dict[str, Any]) -> dict[str, Any]:
    if (size := len(to_json(schema))) > MAX_BYTES:
        raise ValueError(f"the schema has {size} bytes: at most {MAX_BYTES} are allowed, send a smaller one")
    objects = list(_objects(schema))
    if (counted := sum(map(_counted_properties, objects))) > MAX_COUNTED_PROPERTIES:
        raise ValueError(
            f"objects with minProperties or maxProperties have {counted} properties: "
            f"at most {MAX_COUNTED_PROPERTIES} are allowed"
        )
    if (repetitions := sum(map(_repetitions, objects))) > MAX_REPETITIONS:
        raise ValueError(
            f"patterns have {repetitions} repetitions: at most {MAX_REPETITIONS} are allowed; "
            "use maxLength to limit the length of a string"
        )
    return schema


def _check_pattern(pattern: str) -> str:
    if (size := len(pattern.encode())) > MAX_BYTES:
        raise ValueError(f"has {size} bytes: at most {MAX_BYTES} are allowed, send a smaller one")
    if (repetitions := _pattern_repetitions(pattern)) > MAX_REPETITIONS:
        raise ValueError(f"has {repetitions} repetitions: at most {MAX_REPETITIONS} are allowed")
    return pattern


Schema = Annotated[dict[str, Any], AfterValidator(_check_limits)]

Pattern = Annotated[str, MinLen(1), AfterValidator(_check_pattern)]
"""A regular expression or a grammar."""


def _objects(value: object) -> Iterator[dict[str, Any]]:
    """Yields all objects in a document."""
    match value:
        case dict():
            yield value
            for inner in value.values():
                yield from _objects(inner)
        case list():
            for inner in value:
                yield from _objects(inner)


def _counted_properties(schema: dict[str, Any]) -> int:
    properties = schema.get("properties")
    counts = "minProperties" in schema or "maxProperties" in schema
    return len(properties) if counts and isinstance(properties, dict) else 0


def _repetitions(schema: dict[str, Any]) -> int:
    keys = schema.get("patternProperties")
    patterns = [schema.get("pattern"), *(keys if isinstance(keys, dict) else ())]
    return sum(_pattern_repetitions(pattern) for pattern in patterns if isinstance(pattern, str))


def _pattern_repetitions(pattern: str) -> int:
    return sum(max(map(_repetition, bounds)) for bounds in _REPETITIONS.findall(pattern))


def _repetition(digits: str) -> int:
    """Returns a bound of a repetition, or a larger number than any schema may have."""
    return int(digits or 0) if len(digits) < 10 else 10**9
